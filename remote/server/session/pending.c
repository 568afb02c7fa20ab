#include "remote/server/session/pending.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "remote/rings/bell.h"
#include "remote/server/session/pacing.h"
#include "remote/server/session/peer_copy.h"
#include "state/base/clock.h"
#include "state/base/threads/thread.h"

/* Rounds of pending_watch_commands() between two reports of how busy the session is. */
#define TELL_ROUNDS    25
#define TIMER_SLACK_NS 1000ul /* By default, a sleep may last 50 us longer. */

void server_touch(struct server *server, struct entry *queue)
{
    if (queue->touched)
        return;
    uint64_t *touched = reallocarray(server->touched, server->touched_count + 1, sizeof(*touched));
    if (!touched)
        /* Without memory: drivers start commands even if they are not flushed, though some do so
         * later. */
        return;
    server->touched = touched;
    server->touched[server->touched_count++] = queue->id;
    queue->touched = true;
}

void server_flush(struct server *server)
{
    for (size_t i = 0; i < server->touched_count; i++) {
        uint64_t id = server->touched[i];
        struct table *table = &server->tables[ID_QUEUE];
        struct entry *queue = &table->entries[id_place(id)];
        if (queue->id != id)
            continue; /* Releasing a queue flushes it. */
        queue->touched = false;
        if (queue->real)
            queue->cl->clFlush(queue->real);
    }
    server->touched_count = 0;
}

static uint64_t pending_profile(const struct given *given, cl_event event, cl_profiling_info what)
{
    cl_ulong at = 0;
    if (!given->profiled || given->cl->clGetEventProfilingInfo(event, what, sizeof(at), &at, NULL))
        return 0;
    return at;
}

static pthread_mutex_t pending_lock = PTHREAD_MUTEX_INITIALIZER;
static struct given *pending, *oldest;
/* How long commands were pending; guarded by pending_lock. */
static uint64_t busy_since_ns, busy_ns;
static bool closer; /* Another command needs frequent checks; guarded by pending_lock. */
static pthread_cond_t closer_came = PTHREAD_COND_INITIALIZER;

/* The lock is held. */
static void pending_count_busy(void)
{
    uint64_t now_ns = clock_now_ns();
    busy_ns += pending ? now_ns - busy_since_ns : 0;
    busy_since_ns = now_ns;
}

/* The lock is held. */
static void pending_unlink(struct given *given)
{
    pending_count_busy();
    given->ended = true;
    if (given->next)
        given->next->previous = given->previous;
    if (given->previous)
        given->previous->next = given->next;
    else
        pending = given->next;
    if (oldest == given)
        oldest = given->previous;
}

void given_unstage(struct server *server, const struct staged *staged)
{
    if (!staged->bytes)
        return;
    if (staged->area) {
        bulk_map_release(server->areas, staged->area);
        return;
    }
    atomic_fetch_sub(&server->staged, staged->size);
    if (staged->staging)
        staging_give(staged->staging, staged->bytes);
    else if (staged->pooled)
        pooled_drop(staged->pooled);
    else
        free(staged->bytes);
}

static void pending_given_put(struct given *given)
{
    pthread_mutex_lock(&pending_lock);
    bool last = --given->holders == 0;
    pthread_mutex_unlock(&pending_lock);
    if (!last)
        return;
    given->cl->clReleaseEvent(given->event);
    peer_copy_unref(given->peer_copy);
    given_unstage(given->server, &given->staged);
    free(given);
}

/* False: another thread has seen its end before. */
static bool pending_take_end(struct given *given)
{
    pthread_mutex_lock(&pending_lock);
    bool first = !given->ended;
    if (first)
        pending_unlink(given);
    pthread_mutex_unlock(&pending_lock);
    return first;
}

static bool pending_has_ended(const struct given *given)
{
    pthread_mutex_lock(&pending_lock);
    bool ended = given->ended;
    pthread_mutex_unlock(&pending_lock);
    return ended;
}

static void pending_add(struct given *given)
{
    pthread_mutex_lock(&pending_lock);
    pending_count_busy();
    given->given_ns = busy_since_ns;
    given->next = pending;
    if (pending)
        pending->previous = given;
    else
        oldest = given;
    pending = given;
    pthread_mutex_unlock(&pending_lock);
}

static void pending_tell_end(const struct given *given, cl_event event, cl_int status)
{
    if (given->peer_copy && status == CL_COMPLETE)
        status = peer_copy_status(given->peer_copy);
    if (given->tell) {
        server_print(given->server);
        struct msg_done done = {.event = given->id, .status = status};
        if (status == CL_COMPLETE) {
            done.queued = pending_profile(given, event, CL_PROFILING_COMMAND_QUEUED);
            done.submitted = pending_profile(given, event, CL_PROFILING_COMMAND_SUBMIT);
            done.started = pending_profile(given, event, CL_PROFILING_COMMAND_START);
            done.ended = pending_profile(given, event, CL_PROFILING_COMMAND_END);
            done.content = given->answer ? given->staged.bytes : NULL;
            done.content_size = given->answer;
            done.content_lies_in = given->staged.pooled;
        }
        int error = post_done(&given->server->stream, &done);
        if (error == -ENOMEM) {
            /* There is no memory for the bytes it read: report an error, so that the client does
             * not wait for ever. */
            done = (struct msg_done){.event = given->id, .status = CL_OUT_OF_HOST_MEMORY};
            if (post_done(&given->server->stream, &done))
                stream_end(&given->server->stream, -ENOMEM);
        }
    }
    if (given->pace)
        pacing_ended(given->pace, given->began_ns);
}

/* CL_QUEUED if the query fails. */
static cl_int pending_status(const struct given *given)
{
    cl_int status = CL_QUEUED;
    return given->cl->clGetEventInfo(given->event, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                     sizeof(status), &status, NULL)
               ? CL_QUEUED
               : status;
}

/* The callback holds @given: the driver may write to its memory until it has called, even if
 * another thread has seen the end. */
static void CL_CALLBACK pending_on_end(cl_event event, cl_int status, void *data)
{
    struct given *given = data;
    cl_int asked = given->asks ? pending_status(given) : status;
    /* NVIDIA's driver reports CL_COMPLETE after a memory fault in a kernel. */
    if (pending_take_end(given))
        pending_tell_end(given, event, status == CL_COMPLETE && asked < 0 ? asked : status);
    pending_given_put(given);
}

static cl_int pending_ask_for_end(struct given *given)
{
    return given->cl->clSetEventCallback(given->event, CL_COMPLETE, pending_on_end, given);
}

/* Takes a reference, which the callback drops, or the thread that does without one. */
static void pending_begin(struct given *given)
{
    given->holders = 1;
    given->cl->clRetainEvent(given->event);
    pending_add(given);
}

/* ---- ends that the session's thread checks for ---- */

/* Used by the session's thread alone: the last command, for which no callback was requested yet. */
static struct given *fresh;
static struct bell_spin looking;

#define LOOKED_AT 8 /* Queues that are checked. */
#define SEARCHED  32
#define LOOKS     16 /* Checks for messages between two queries of an event, */
/* and one more for each LOOK_NS spent: the delay stays at a hundredth of the time. */
#define LOOK_NS 4096

/* Is it the first pending command of its queue? Only the first is checked. The lock is held. */
static bool pending_is_first(const struct given *given)
{
    const struct given *before = given->next;
    return !before || !before->tell || before->queue != given->queue;
}

/* From now on pending_look_closely() checks it. */
static void pending_mark_asked(struct given *given)
{
    pthread_mutex_lock(&pending_lock);
    given->asked = true;
    if (given->tell && given->own_memory && !given->ended && pending_is_first(given)) {
        closer = true;
        pthread_cond_signal(&closer_came);
    }
    pthread_mutex_unlock(&pending_lock);
}

static void pending_ask_for_fresh(struct server *server)
{
    struct given *given = fresh;
    fresh = NULL;
    if (!given)
        return;
    /* Before the callback is requested: that may run at once and free the command. */
    pending_mark_asked(given);
    if (pending_ask_for_end(given))
        server_wrong(server, "out of memory for its commands");
}

void given_see_end(struct given *given)
{
    pending_ask_for_fresh(given->server);
    pending_begin(given);
    fresh = given;
    if (!given->server->stream.rings)
        pending_ask_for_fresh(given->server);
}

/* For each queue, the command that ends first, of the SEARCHED oldest. Each is held. @closely  Only
 * commands that need frequent checks. */
static size_t pending_list_oldest(bool closely, struct given *givens[LOOKED_AT])
{
    size_t count = 0;
    unsigned searched = 0;
    pthread_mutex_lock(&pending_lock);
    for (struct given *given = oldest; given && count < LOOKED_AT && searched < SEARCHED;
         given = given->previous, searched++) {
        size_t i = 0;
        while (i < count && givens[i]->queue != given->queue)
            i++;
        if (i < count || !given->tell || (closely && !(given->asked && given->own_memory)))
            continue;
        given->holders++;
        givens[count++] = given;
    }
    pthread_mutex_unlock(&pending_lock);
    return count;
}

/* Query whether a command has ended, and if so, report it. */
static bool pending_look_at(struct given *given)
{
    cl_int status = pending_status(given);
    if (status > CL_COMPLETE)
        return false;
    if (pending_take_end(given))
        pending_tell_end(given, given->event, status);
    return true;
}

/* Query all of them until one has ended, a message arrives, or @budget_ns is over. */
static bool pending_look_for(const struct server *server, struct given *const *givens, size_t count,
                             uint64_t budget_ns, uint64_t *ret_took_ns)
{
    uint64_t begun = clock_now_ns(), took_ns = 0;
    bool ended = false;
    while (!ended && !stream_has_more(&server->stream) && took_ns < budget_ns) {
        for (size_t i = 0; i < count; i++)
            ended |= pending_look_at(givens[i]);
        uint64_t looks = LOOKS + took_ns / LOOK_NS;
        for (uint64_t i = 0; !ended && i < looks && !stream_has_more(&server->stream); i++)
            bell_relax();
        took_ns = clock_now_ns() - begun;
    }
    *ret_took_ns = took_ns;
    return ended;
}

/* Returns whether a command ended. */
static bool pending_look_for_ends(const struct server *server)
{
    struct given *givens[LOOKED_AT];
    size_t count = pending_list_oldest(false, givens);
    uint64_t budget = count ? bell_spin_begin(&looking) : 0, took_ns;
    bool ended = budget && pending_look_for(server, givens, count, budget, &took_ns);
    if (ended)
        bell_spin_paid(&looking, took_ns);
    else if (budget && !stream_has_more(&server->stream))
        bell_spin_failed(&looking);
    for (size_t i = 0; i < count; i++) {
        if (ended && givens[i] == fresh && pending_has_ended(fresh)) {
            fresh = NULL;
            pending_given_put(givens[i]);
        }
        pending_given_put(givens[i]);
    }
    return ended;
}

void pending_attend(struct server *server)
{
    while (server->stream.rings && !stream_has_more(&server->stream) &&
           pending_look_for_ends(server))
        ;
    pending_ask_for_fresh(server);
}

int server_see_end(struct server *server, const cl_icd_dispatch *cl, cl_event event,
                   struct pace *pace)
{
    struct given *given = malloc(sizeof(*given));
    if (!given)
        return -ENOMEM;
    *given = (struct given){
        .server = server, .cl = cl, .event = event, .pace = pace, .began_ns = clock_now_ns()};
    pending_begin(given);
    /* If no callback can be requested, pending_watch_commands() still sees the end. */
    (void)!pending_ask_for_end(given);
    return 0;
}

/* At most @room pending commands, without the first @skip. Each is held. */
static size_t pending_list(struct given **givens, size_t skip, size_t room)
{
    size_t count = 0;
    pthread_mutex_lock(&pending_lock);
    for (struct given *given = pending; given && count < room; given = given->next) {
        if (skip) {
            skip--;
            continue;
        }
        given->holders++;
        givens[count++] = given;
    }
    pthread_mutex_unlock(&pending_lock);
    return count;
}

/* Check all pending commands. POCL does not call back for a command that failed because its wait
 * list did; other drivers may not call back at all, or late. The driver is not called under the
 * lock: it may hold locks of its own while its callback waits for ours. */
static void pending_look_at_all(void)
{
    struct given *givens[64];
    size_t count;
    for (size_t skip = 0; (count = pending_list(givens, skip, ARRAY_SIZE(givens))) != 0;
         skip += count)
        for (size_t i = 0; i < count; i++) {
            (void)pending_look_at(givens[i]);
            pending_given_put(givens[i]);
        }
}

/* Report how busy the session is, for `reseat server sessions`. */
static void pending_tell_busy(const struct server *server)
{
    pthread_mutex_lock(&pending_lock);
    pending_count_busy();
    uint64_t ns = busy_ns;
    busy_ns = 0;
    pthread_mutex_unlock(&pending_lock);
    if (ns)
        channel_tell(server->channel, &(struct channel_message){.kind = CHANNEL_BUSY, .ns = ns});
}

/* Wait until @until_ns, or until another command needs frequent checks. */
static void pending_rest(uint64_t until_ns)
{
    pthread_mutex_lock(&pending_lock);
    while (!closer && clock_wait(&closer_came, &pending_lock, until_ns) == 0)
        ;
    closer = false;
    pthread_mutex_unlock(&pending_lock);
}

/* GPU drivers may call back milliseconds late for commands of some milliseconds. */
static void pending_look_closely(uint64_t until_ns)
{
    struct given *givens[LOOKED_AT];
    while (clock_now_ns() < until_ns) {
        size_t count = pending_list_oldest(true, givens);
        uint64_t now_ns = clock_now_ns(), next_ns = until_ns;
        for (size_t i = 0; i < count; i++) {
            uint64_t again_ns = now_ns + pending_look_after(now_ns - givens[i]->given_ns);
            next_ns = again_ns < next_ns ? again_ns : next_ns;
            (void)pending_look_at(givens[i]);
            pending_given_put(givens[i]);
        }
        pending_rest(next_ns);
    }
}

static void *pending_watch_commands(void *data)
{
    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
    for (unsigned round = 0;; round++) {
        pending_look_at_all();
        staging_tidy();
        if (round % TELL_ROUNDS == 0)
            pending_tell_busy(data);
        pending_look_closely(clock_now_ns() + PENDING_LOOK_MOST_NS);
    }
    return NULL;
}

int server_watch_commands(struct server *server)
{
    bell_spin_init(&looking, BELL_SPIN_DEVICE);
    return thread_start("reseat-watch", 0, pending_watch_commands, server, NULL);
}
