#include "remote/server/session/pacing.h"

#include <pthread.h>
#include <stdlib.h>

#include "remote/server/listener/devices.h"
#include "state/base/clock.h"

/* A session whose device is idle for this long gives up its time slice. A client over a network
 * that waits for each command needs some time between commands. */
#define LINGER_NS  (2 * NS_PER_MS)
#define WINDOW_MAX 256u
/* The longest wait: a listening process that does not answer by then is stuck, and the driver
 * divides the device. */
#define PATIENCE_NS (60 * NS_PER_S)

/* A queue that was used while the session had the device to itself, so that ends of commands were
 * not observed. */
struct lane {
    const cl_icd_dispatch *cl;
    cl_command_queue queue;
};

/* One device. All fields are guarded by `lock`, except where noted. */
struct pace {
    atomic_bool alone; /* Atomic. The device is ours until it is recalled. */
    bool yours, asked;
    bool waiting; /* The session's thread is waiting to submit a command. */
    bool owes;    /* The time slice went to others before our commands had ended. */
    uint64_t until_ns;
    unsigned given;  /* Submitted commands whose end will be observed. */
    unsigned window; /* How many of them there may be. */
    unsigned room;   /* While owing: how many more may be submitted. */
    unsigned grow;   /* `room` of the next time slice while owing. */
    uint64_t cost_ns, last_end_ns;
    uint64_t idle_ns;       /* Since when `given` has been 0. */
    _Atomic uint32_t round; /* Atomic. Number of the present list of lanes. */
    struct lane *lanes;
    size_t lane_count;
    int channel;
    uint32_t number;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct pace paces[DEVICES_MAX];

static void pacing_say(const struct pace *pace, enum channel_kind kind)
{
    channel_tell(pace->channel, &(struct channel_message){
                                    .kind = kind, .device = pace->number, .again = pace->asked});
}

/* All submitted commands have ended. If one was submitted or ended a moment ago, ask for the next
 * time slice at once: a client that waits for each command asks a little later, and would come
 * after all others. */
static void pacing_end_timeslice(struct pace *pace, uint64_t now_ns)
{
    pace->yours = pace->owes = false;
    pace->grow = 0;
    pace->asked |= pace->waiting || now_ns - pace->idle_ns < LINGER_NS;
    pacing_say(pace, CHANNEL_OVER);
}

/* May one more command be submitted now? The lock is held. */
static bool pacing_may_give(struct pace *pace, uint64_t now_ns)
{
    if (pace->yours && now_ns >= pace->until_ns) {
        /* While owing, the time slice was beside those of others, and nobody waits for its end. */
        if (pace->given == 0)
            pacing_end_timeslice(pace, now_ns);
        else if (pace->owes)
            pace->yours = false;
    }
    if (!pace->yours && !pace->asked) {
        pace->asked = true;
        pacing_say(pace, CHANNEL_WANT);
    }
    if (!pace->yours || now_ns >= pace->until_ns)
        return false;
    return pace->owes ? pace->room != 0 : pace->given < pace->window;
}

/* Called by the session's thread, with the lock. */
static void pacing_note_lane(struct pace *pace, struct entry *queue)
{
    struct lane *lanes = reallocarray(pace->lanes, pace->lane_count + 1, sizeof(*pace->lanes));
    if (!lanes)
        return; /* Without memory, the end of its commands is not observed after a recall. */
    lanes[pace->lane_count++] = (struct lane){queue->cl, queue->real};
    pace->lanes = lanes;
    queue->round = pace->round;
}

struct pace *pacing_wait(struct server *server, struct entry *queue)
{
    struct pace *pace = &paces[server->numbers[queue->device]];
    if (!server->known)
        return NULL;
    if (atomic_load_explicit(&pace->alone, memory_order_acquire) && queue->round == pace->round)
        return NULL;
    pthread_mutex_lock(&lock);
    pace->channel = server->channel;
    pace->number = server->numbers[queue->device];
    pace->waiting = true;
    uint64_t patience = clock_now_ns() + PATIENCE_NS;
    for (bool flushed = false;
         !atomic_load(&pace->alone) && !pacing_may_give(pace, clock_now_ns());) {
        if (clock_now_ns() >= patience)
            break;
        if (flushed) {
            (void)clock_wait(&changed, &lock,
                             pace->yours && pace->owes && pace->until_ns < patience ? pace->until_ns
                                                                                    : patience);
            continue;
        }
        /* Our own unflushed commands may be what we would wait for. */
        pthread_mutex_unlock(&lock);
        server_flush(server);
        flushed = true;
        pthread_mutex_lock(&lock);
    }
    pace->waiting = false;
    bool alone = atomic_load(&pace->alone);
    if (alone && queue->round != pace->round)
        pacing_note_lane(pace, queue);
    if (!alone) {
        pace->given++;
        pace->room -= pace->owes && pace->room;
    }
    pthread_mutex_unlock(&lock);
    return alone ? NULL : pace;
}

/* Estimate how many commands fit into a time slice, from the time that this one took. The lock is
 * held. */
static void pacing_learn(struct pace *pace, uint64_t began_ns, uint64_t now_ns)
{
    uint64_t from = began_ns > pace->last_end_ns ? began_ns : pace->last_end_ns;
    uint64_t took = now_ns - from + 1;
    pace->last_end_ns = now_ns;
    pace->cost_ns = pace->cost_ns ? (3 * pace->cost_ns + took) / 4 : took;
    uint64_t window = TIMESLICE_NS / pace->cost_ns;
    pace->window = window < 1 ? 1 : window > WINDOW_MAX ? WINDOW_MAX : (unsigned)window;
}

void pacing_ended(struct pace *pace, uint64_t began_ns)
{
    uint64_t now_ns = clock_now_ns();
    pthread_mutex_lock(&lock);
    pace->given--;
    pacing_learn(pace, began_ns, now_ns);
    if (pace->given == 0) {
        pace->idle_ns = now_ns;
        if (pace->owes || (pace->yours && now_ns >= pace->until_ns))
            pacing_end_timeslice(pace, now_ns);
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void pacing_forget(struct server *server, const struct entry *queue)
{
    struct pace *pace = &paces[server->numbers[queue->device]];
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < pace->lane_count; i++)
        if (pace->lanes[i].queue == queue->real) {
            pace->lanes[i] = pace->lanes[--pace->lane_count];
            break;
        }
    pthread_mutex_unlock(&lock);
}

/* ---- messages of the listening process ---- */

/* Observe the end of all commands that were submitted to a queue. */
static void pacing_watch_lane(struct server *server, struct pace *pace, const struct lane *lane)
{
    cl_event event = NULL;
    if (lane->cl->clEnqueueMarkerWithWaitList(lane->queue, 0, NULL, &event) ||
        server_see_end(server, lane->cl, event, pace))
        pacing_ended(pace, clock_now_ns()); /* The end cannot be observed: count it as ended. */
    if (event)
        lane->cl->clReleaseEvent(event);
    lane->cl->clFlush(lane->queue);
    lane->cl->clReleaseCommandQueue(lane->queue);
}

/* Others wait for the device: from now on observe ends, also of the commands submitted before. */
static void pacing_recall(struct server *server, struct pace *pace, uint64_t ns)
{
    pthread_mutex_lock(&lock);
    struct lane *lanes = pace->lanes;
    size_t count = pace->lane_count;
    pace->lanes = NULL;
    pace->lane_count = 0;
    pace->round++;
    atomic_store(&pace->alone, false);
    pace->until_ns = clock_now_ns() + ns;
    pace->idle_ns = clock_now_ns();
    pace->given += (unsigned)count;
    for (size_t i = 0; i < count; i++)
        lanes[i].cl->clRetainCommandQueue(lanes[i].queue);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < count; i++)
        pacing_watch_lane(server, pace, &lanes[i]);
    free(lanes);
}

static void pacing_begin(struct pace *pace, uint64_t ns)
{
    uint64_t now_ns = clock_now_ns();
    pthread_mutex_lock(&lock);
    pace->yours = true;
    pace->asked = false;
    pace->idle_ns = now_ns;
    pace->until_ns = ns == UINT64_MAX ? UINT64_MAX : now_ns + ns;
    pace->window = pace->window ? pace->window : 1;
    if (pace->owes) {
        pace->room = pace->grow;
        pace->grow = pace->grow < WINDOW_MAX ? 2 * pace->grow : WINDOW_MAX;
    }
    atomic_store_explicit(&pace->alone, ns == UINT64_MAX, memory_order_release);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void pacing_lose(struct pace *pace)
{
    pthread_mutex_lock(&lock);
    if (pace->yours && pace->given == 0)
        pacing_end_timeslice(pace, clock_now_ns());
    else if (pace->yours)
        pace->owes = true;
    pace->yours = false;
    pace->grow = pace->owes && !pace->grow ? 1 : pace->grow;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void pacing_hear(struct server *server, const struct channel_message *message)
{
    if (message->device >= DEVICES_MAX)
        return;
    struct pace *pace = &paces[message->device];
    if (message->kind == CHANNEL_TIMESLICE)
        pacing_begin(pace, message->ns);
    else if (message->kind == CHANNEL_RECALL)
        pacing_recall(server, pace, message->ns);
    else
        pacing_lose(pace);
}

int pacing_tick(void)
{
    uint64_t now_ns = clock_now_ns();
    bool again = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < DEVICES_MAX; i++) {
        struct pace *pace = &paces[i];
        if (!pace->yours || atomic_load(&pace->alone))
            continue;
        if (pace->given == 0 && (now_ns >= pace->until_ns || now_ns - pace->idle_ns >= LINGER_NS)) {
            pacing_end_timeslice(pace, now_ns);
            pthread_cond_broadcast(&changed);
        } else {
            again = true;
        }
    }
    pthread_mutex_unlock(&lock);
    return again ? 1 : -1;
}
