#include "state/move/elastic.h"

#include <errno.h>
#include <pthread.h>

#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"
#include "state/base/threads/work.h"
#include "state/command/place.h"
#include "state/move/move_priv.h"
#include "state/move/spread.h"
#include "state/program/pace.h"

/* Pause while another mover waits or works. */
#define STAND_BACK_NS (2 * NS_PER_MS)
/* How long a device that could not be prewarmed is not tried again. */
#define RETRY_NS (5 * NS_PER_S)
/* Least time between two sessions that place launches. */
#define CLOSED_NS (10 * NS_PER_MS)

struct member {
    struct device_key key;
    uint64_t not_before; /* of the monotonic clock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* Guarded by `lock`. */
static struct member members[ELASTIC_MAX];
static struct device_key leavers[ELASTIC_MAX];
static size_t leaver_count;
static bool running, awake;

static _Atomic size_t member_count; /* changed under the lock */

/* Under the lock. */
static bool elastic_is_member(const struct device_key *key)
{
    for (size_t i = 0; i < atomic_load(&member_count); i++)
        if (device_key_equal(&members[i].key, key))
            return true;
    return false;
}

static bool elastic_is_listed(const struct device_key *key)
{
    pthread_mutex_lock(&lock);
    bool wanted = elastic_is_member(key);
    pthread_mutex_unlock(&lock);
    return wanted;
}

static bool elastic_offers(const void *unused, const struct context *context,
                           uint8_t residence_index)
{
    const struct device *device = atomic_load(&context->ready[residence_index]);
    (void)unused;
    return device && elastic_is_listed(&device->key);
}

/* Stops when a device is to leave (it may have been taken from the program), when another mover
 * waits, and when the program exits. */
static bool elastic_stops(const void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    bool left = leaver_count != 0;
    pthread_mutex_unlock(&lock);
    return left || move_is_awaited() || work_is_over();
}

/* ---- the thread ---- */

static bool elastic_is_ready(const struct device_key *key)
{
    uintptr_t cursor = 0;
    struct context *context;
    bool ready = true;
    gate_enter(); /* keeps movers from releasing residences */
    for (; (context = object_next(OBJECT_CONTEXT, &cursor)); object_unhold(context)) {
        bool here = false;
        for (uint8_t residence_index = 0; residence_index < context->residences;
             residence_index++) {
            const struct device *device = atomic_load(&context->ready[residence_index]);
            /* Another residence may be one that a mover adds now. */
            here = here || (device && device_key_equal(&device->key, key)) ||
                   (context_is_inhabited(context, residence_index) &&
                    device_key_equal(&context->at[residence_index]->device->key, key));
        }
        ready = ready && here;
    }
    gate_leave();
    return ready;
}

/* Returns whether member @i exists and may be tried now. */
static bool elastic_member_at(size_t i, struct device_key *ret_key)
{
    pthread_mutex_lock(&lock);
    bool due = i < atomic_load(&member_count) && members[i].not_before <= clock_now_ns();
    if (due)
        *ret_key = members[i].key;
    pthread_mutex_unlock(&lock);
    return due;
}

static void elastic_put_off(const struct device_key *key)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < atomic_load(&member_count); i++)
        if (device_key_equal(&members[i].key, key))
            members[i].not_before = clock_now_ns() + RETRY_NS;
    pthread_mutex_unlock(&lock);
}

/* Prewarm the members for @vdev. @again: also those that are ready, because the program has made
 * objects since. */
static void elastic_make_ready(uint32_t vdev, bool again)
{
    struct device_key key;
    for (size_t i = 0; i < ELASTIC_MAX; i++) {
        if (!elastic_member_at(i, &key) || (!again && elastic_is_ready(&key)))
            continue;
        const struct move_request request = {.target = &key, .vdev = vdev, .prewarm = true};
        struct move_report report;
        move_run(&request, &report);
        if (report.result == MOVE_DONE)
            continue;
        log_info("launches are not spread over %s: %s", key.device, report.reason);
        elastic_put_off(&key);
    }
}

static void elastic_let_go(void)
{
    struct device_key key;
    pthread_mutex_lock(&lock);
    while (leaver_count != 0) {
        key = leavers[--leaver_count];
        bool back = elastic_is_member(&key);
        pthread_mutex_unlock(&lock);
        if (!back)
            (void)!move_cool(&key, 0);
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
}

/* Spread the launch that @vdev is in the middle of, again after each interruption, until it ends or
 * is not worth it. Returns as spread_run. */
static int elastic_spread_launch(struct vdev *vdev)
{
    struct spread_request request = {.vdev = vdev,
                                     .offers = elastic_offers,
                                     .stops = elastic_stops,
                                     .abandons = true,
                                     .yields = true};
    struct spread *spread;
    int error;
    do {
        while (move_is_awaited())
            clock_sleep(STAND_BACK_NS);
        (void)move_lock_until(0, true);
        error =
            work_begin() && atomic_load(&vdev->device) ? spread_run(&request, &spread) : -ENOENT;
        if (error == 0)
            spread_end(spread);
        request.again = error == 0;
        work_end();
        move_unlock();
    } while ((error == 0 || error == -EINTR) && atomic_load(&member_count) != 0 && !work_is_over());
    return error;
}

static bool elastic_stops_placing(const void *unused)
{
    return elastic_stops(unused) || move_prewarm_is_awaited();
}

/* Place launches of @vdev (command/place.h) until another mover waits or none come any more. What
 * is being fetched goes first: it needs the movers' lock, which this holds as long as launches
 * come. Returns as placement_run. */
static int elastic_place(struct vdev *vdev)
{
    const struct spread_request request = {
        .vdev = vdev, .offers = elastic_offers, .stops = elastic_stops_placing};
    uint64_t fetched, total;
    do {
        clock_sleep(STAND_BACK_NS);
        fetch_read(vdev->index, &fetched, &total);
    } while ((total != 0 || move_is_awaited() || move_prewarm_is_awaited()) &&
             atomic_load(&member_count) != 0 && !work_is_over());
    (void)move_lock_until(0, true);
    fetch_read(vdev->index, &fetched, &total);
    int error =
        work_begin() && atomic_load(&vdev->device) && total == 0 ? placement_run(&request) : 0;
    place_close(error != 0 ? RETRY_NS : CLOSED_NS);
    work_end();
    move_unlock();
    return error;
}

static int elastic_help(struct vdev *vdev)
{
    return atomic_load(&place_wanted) ? elastic_place(vdev) : elastic_spread_launch(vdev);
}

static bool elastic_await_launch(void)
{
    pthread_mutex_lock(&lock);
    while (!awake)
        pthread_cond_wait(&changed, &lock);
    awake = false;
    bool more = !work_is_over();
    pthread_mutex_unlock(&lock);
    return more;
}

static void *elastic_thread(void *unused)
{
    (void)unused;
    while (elastic_await_launch()) {
        elastic_let_go();
        /* The agent may have asked for it while the program starts. */
        uint32_t count = vdevs_count();
        for (uint32_t vdev = 0; vdev < count && atomic_load(&member_count) != 0; vdev++) {
            elastic_make_ready(vdev, false);
            if (elastic_help(the_vdevs[vdev]) != -ENOTSUP)
                continue;
            elastic_make_ready(vdev, true);
            (void)elastic_help(the_vdevs[vdev]);
        }
    }
    return NULL;
}

/* Called with no lock held that a thread may hold for long. */
void elastic_wake(void)
{
    pthread_mutex_lock(&lock);
    awake = true;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

/* Under the lock. */
static void elastic_note_leavers(const struct device_key *devices, size_t count)
{
    for (size_t i = 0; i < atomic_load(&member_count); i++) {
        bool stays = false;
        for (size_t j = 0; j < count; j++)
            stays = stays || device_key_equal(&members[i].key, &devices[j]);
        if (!stays && leaver_count < ELASTIC_MAX)
            leavers[leaver_count++] = members[i].key;
    }
}

int elastic_set(const struct device_key *devices, size_t count)
{
    int error = 0;
    if (count > ELASTIC_MAX)
        return -E2BIG;
    if (count != 0 && atomic_load(&pace_slice_ns) == 0)
        return -ENOTSUP;
    pthread_mutex_lock(&lock);
    if (!running && count != 0) {
        error = thread_start("reseat-elastic", 0, elastic_thread, NULL, NULL);
        running = error == 0;
    }
    if (error == 0) {
        elastic_note_leavers(devices, count);
        for (size_t i = 0; i < count; i++)
            members[i] = (struct member){.key = devices[i]};
        atomic_store(&member_count, count);
        atomic_store(&pieces_shared, count != 0);
        awake = running;
        pthread_cond_signal(&changed);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

/* The child has no such thread, and what was prewarmed remains the parent's. */
static void elastic_in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&changed, NULL);
    running = awake = false;
    leaver_count = 0;
    atomic_store(&member_count, 0);
    atomic_store(&pieces_shared, false);
}

FORK_PART = {.rank = FORK_TABLE, .in_child = elastic_in_child};
