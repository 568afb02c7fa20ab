#include "state/checkpoint/keeper.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/base/fork.h"
#include "state/base/gate.h"
#include "state/base/log.h"
#include "state/base/thread.h"

/* At its end a program waits for the disk for no longer: then it counts as one that died. */
#define END_NS (5 * NS_PER_S)

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct right right; /* guarded by lock, as all below; but while it is kept only its thread
                           writes what is in it */
    bool kept;
    bool settled; /* it is the program's */
    bool taken;   /* by somebody else */
    bool ends, ended;
    uint64_t renewed_ns; /* when the last time began that went well */
} keeper = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static uint64_t lease_ns(void)
{
    return keeper.right.holder.lease_ms * NS_PER_MS;
}

static void renew(bool ends)
{
    struct right right = keeper.right;
    uint64_t began = clock_now_ns();
    pthread_mutex_unlock(&keeper.lock);
    int error = right_renew(&right, ends ? RIGHT_ENDED : RIGHT_RUNNING);
    if (error)
        log_warn("the right to run the program, of the images in %s: %s", right.path,
                 error == -ESTALE ? "somebody else has it" : strerror(-error));
    pthread_mutex_lock(&keeper.lock);
    keeper.right = right;
    keeper.taken = error == -ESTALE;
    if (!error)
        keeper.renewed_ns = began;
    pthread_cond_broadcast(&keeper.changed);
}

static void *keep(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&keeper.lock);
    while (!keeper.ended && !keeper.taken) {
        uint64_t next = clock_now_ns() + RIGHT_BEAT(lease_ns());
        while (!keeper.ends && clock_now_ns() < next)
            (void)clock_wait(&keeper.changed, &keeper.lock, next);
        bool ends = keeper.ends;
        renew(ends);
        keeper.ended = ends;
    }
    pthread_cond_broadcast(&keeper.changed);
    pthread_mutex_unlock(&keeper.lock);
    return NULL;
}

/* A disk that does not answer keeps the other thread: this one closes the gate in time. */
static void *fence(void *unused)
{
    bool closed = false;
    (void)unused;
    pthread_mutex_lock(&keeper.lock);
    while (!keeper.ends) {
        uint64_t until = keeper.renewed_ns + lease_ns(), now = clock_now_ns();
        bool lapsed = keeper.taken || now >= until;
        if (lapsed != closed) {
            pthread_mutex_unlock(&keeper.lock);
            if (!lapsed)
                gate_open();
            else if (gate_close(0) != 0)
                lapsed = false;
            closed = lapsed;
            if (closed)
                log_error("its right to run has lapsed: what the program calls waits");
            pthread_mutex_lock(&keeper.lock);
            continue;
        }
        (void)clock_wait(&keeper.changed, &keeper.lock, lapsed ? 0 : until);
    }
    bool taken = keeper.taken;
    pthread_mutex_unlock(&keeper.lock);
    if (closed && !taken)
        gate_open();
    return NULL;
}

static void process_ends(void)
{
    uint64_t until = clock_now_ns() + END_NS;
    pthread_mutex_lock(&keeper.lock);
    keeper.ends = keeper.settled;
    pthread_cond_broadcast(&keeper.changed);
    while (keeper.kept && keeper.ends && !keeper.ended && !keeper.taken && clock_now_ns() < until)
        (void)clock_wait(&keeper.changed, &keeper.lock, until);
    pthread_mutex_unlock(&keeper.lock);
}

/* Locked. */
static int start(const struct right *right, bool settled)
{
    int error = fork_watch();
    keeper.settled = settled;
    keeper.right = *right;
    keeper.renewed_ns = clock_now_ns();
    if (!error && atexit(process_ends) != 0)
        error = -ENOMEM;
    if (!error)
        error = thread_start("reseat-right", 0, keep, NULL, NULL);
    keeper.kept = !error;
    if (!error)
        error = thread_start("reseat-fence", 0, fence, NULL, NULL);
    return error;
}

static int keep_from_now(const struct right *right, bool settled)
{
    pthread_mutex_lock(&keeper.lock);
    int error = keeper.kept ? -EBUSY : start(right, settled);
    pthread_mutex_unlock(&keeper.lock);
    return error;
}

int keeper_begin(const char *path, uint32_t lease_ms)
{
    struct right right;
    pthread_mutex_lock(&keeper.lock);
    bool kept = keeper.kept, same = kept && strcmp(keeper.right.path, path) == 0;
    pthread_mutex_unlock(&keeper.lock);
    if (kept)
        return same ? 0 : -EBUSY;
    int error = right_begin(path, lease_ms, &right);
    return error ? error : keep_from_now(&right, true);
}

int keeper_adopt(const struct right *right)
{
    return keep_from_now(right, false);
}

void keeper_settle(void)
{
    pthread_mutex_lock(&keeper.lock);
    keeper.settled = true;
    pthread_mutex_unlock(&keeper.lock);
}

bool keeper_right(const char *path, struct right *ret_right)
{
    pthread_mutex_lock(&keeper.lock);
    bool has = keeper.kept && strcmp(keeper.right.path, path) == 0;
    if (has)
        *ret_right = keeper.right;
    pthread_mutex_unlock(&keeper.lock);
    return has;
}

/* The right is the parent's. Its end is not the program's. */
static void in_child(void)
{
    keeper.kept = keeper.taken = false;
}

FORK_PART = {
    .rank = FORK_TABLE, .lock = &keeper.lock, .changed = {&keeper.changed}, .in_child = in_child};
