#include "remote/server/pending.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "remote/server/pacing.h"
#include "remote/server/passage.h"
#include "state/base/clock.h"
#include "state/base/thread.h"

#define WATCH_NS    (20 * NS_PER_MS)
#define TELL_ROUNDS 25 /* Of them. */

static uint64_t profile(const struct given *given, cl_event event, cl_profiling_info what)
{
    cl_ulong at = 0;
    if (!given->profiled || given->cl->clGetEventProfilingInfo(event, what, sizeof(at), &at, NULL))
        return 0;
    return at;
}

static pthread_mutex_t pending_lock = PTHREAD_MUTEX_INITIALIZER;
static struct given *pending;
static uint64_t busy_since_ns, busy_ns; /* While there were any; guarded by pending_lock. */

/* Under pending_lock. */
static void count_busy(void)
{
    uint64_t now_ns = clock_now_ns();
    busy_ns += pending ? now_ns - busy_since_ns : 0;
    busy_since_ns = now_ns;
}

/* Under pending_lock. */
static void unlink_given(struct given *given)
{
    count_busy();
    given->ended = true;
    if (given->next)
        given->next->previous = given->previous;
    if (given->previous)
        given->previous->next = given->next;
    else
        pending = given->next;
}

static void give_up(struct server *server, void *bytes, uint32_t area)
{
    if (area)
        bulk_map_release(server->areas, area);
    else
        free(bytes);
}

void given_unstage(struct server *server, void *bytes, uint64_t size, uint32_t area)
{
    if (bytes && !area)
        atomic_fetch_sub(&server->staged, size);
    if (bytes)
        give_up(server, bytes, area);
}

static void given_put(struct given *given)
{
    pthread_mutex_lock(&pending_lock);
    bool last = --given->holders == 0;
    pthread_mutex_unlock(&pending_lock);
    if (!last)
        return;
    given->cl->clReleaseEvent(given->event);
    passage_unref(given->passage);
    given_unstage(given->server, given->bytes, given->size, given->area);
    free(given);
}

/* False: it had ended already. */
static bool take_end(struct given *given)
{
    pthread_mutex_lock(&pending_lock);
    bool first = !given->ended;
    if (first)
        unlink_given(given);
    pthread_mutex_unlock(&pending_lock);
    return first;
}

static void add_pending(struct given *given)
{
    pthread_mutex_lock(&pending_lock);
    count_busy();
    given->next = pending;
    if (pending)
        pending->previous = given;
    pending = given;
    pthread_mutex_unlock(&pending_lock);
}

static void tell_end(const struct given *given, cl_event event, cl_int status)
{
    if (given->passage && status == CL_COMPLETE)
        status = passage_status(given->passage);
    if (given->tell) {
        server_print(given->server);
        struct msg_done done = {.event = given->id, .status = status};
        if (status == CL_COMPLETE) {
            done.queued = profile(given, event, CL_PROFILING_COMMAND_QUEUED);
            done.submitted = profile(given, event, CL_PROFILING_COMMAND_SUBMIT);
            done.started = profile(given, event, CL_PROFILING_COMMAND_START);
            done.ended = profile(given, event, CL_PROFILING_COMMAND_END);
            done.content = given->answer ? given->bytes : NULL;
            done.content_size = given->answer;
        }
        int error = post_done(&given->server->stream, &done);
        if (error == -ENOMEM) {
            /* Without what it read, then; the client must not wait for ever. */
            done = (struct msg_done){.event = given->id, .status = CL_OUT_OF_HOST_MEMORY};
            if (post_done(&given->server->stream, &done))
                stream_end(&given->server->stream, -ENOMEM);
        }
    }
    if (given->pace)
        pacing_ended(given->pace, given->began_ns);
}

static void CL_CALLBACK on_end(cl_event event, cl_int status, void *data)
{
    struct given *given = data;
    if (!take_end(given))
        return;
    tell_end(given, event, status);
    given_put(given);
}

cl_int given_see_end(struct given *given)
{
    given->holders = 1;
    given->cl->clRetainEvent(given->event);
    add_pending(given);
    return given->cl->clSetEventCallback(given->event, CL_COMPLETE, on_end, given);
}

int server_see_end(struct server *server, const cl_icd_dispatch *cl, cl_event event,
                   struct pace *pace)
{
    struct given *given = malloc(sizeof(*given));
    if (!given)
        return -ENOMEM;
    *given = (struct given){
        .server = server, .cl = cl, .event = event, .pace = pace, .began_ns = clock_now_ns()};
    /* One that calls nobody back is looked at all the same. */
    (void)!given_see_end(given);
    return 0;
}

/* Up to @room of those that have not ended, from the @skip-th; each is held. */
static size_t list_pending(struct given **givens, size_t skip, size_t room)
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

/* POCL calls nobody back for a command that failed because what it waited for did. Whoever comes
   first tells. A driver that did not call back may still do so, and write: it holds what it was
   given. No driver is called under the lock: its callback may come with locks of its own, and waits
   for ours. */
static void look_for_failures(void)
{
    struct given *givens[64];
    size_t count;
    for (size_t skip = 0; (count = list_pending(givens, skip, ARRAY_SIZE(givens))) != 0;
         skip += count)
        for (size_t i = 0; i < count; i++) {
            struct given *given = givens[i];
            cl_int status = CL_COMPLETE;
            if (!given->cl->clGetEventInfo(given->event, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                           sizeof(status), &status, NULL) &&
                status < 0 && take_end(given))
                tell_end(given, given->event, status);
            given_put(given);
        }
}

/* For the operator, who sees how much each session has of a device. */
static void tell_busy(const struct server *server)
{
    pthread_mutex_lock(&pending_lock);
    count_busy();
    uint64_t ns = busy_ns;
    busy_ns = 0;
    pthread_mutex_unlock(&pending_lock);
    if (ns)
        word_say(server->channel, &(struct word){.kind = WORD_BUSY, .ns = ns});
}

static void *watch_commands(void *data)
{
    for (unsigned round = 0;; round++) {
        look_for_failures();
        if (round % TELL_ROUNDS == 0)
            tell_busy(data);
        clock_sleep(WATCH_NS);
    }
    return NULL;
}

int server_watch_commands(struct server *server)
{
    return thread_start("reseat-watch", 0, watch_commands, server, NULL);
}
