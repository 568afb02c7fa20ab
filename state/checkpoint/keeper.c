#include "state/checkpoint/keeper.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/gate.h"
#include "state/base/threads/thread.h"

/* At its end a program waits for the disk for no longer: then it counts as one that died. */
#define END_NS (5 * NS_PER_S)

/* The machine may sleep meanwhile, which no wait notices. */
#define LOOK_NS NS_PER_S

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct lease lease; /* guarded by lock, as all below; but while it is kept only its thread
                           writes what is in it, and the problem */
    bool kept;
    bool settled;  /* it is the program's */
    bool taken;    /* by somebody else */
    bool restored; /* the process was, and its times are another host's until it said that it lives
                    */
    bool ends, ended;
    uint64_t renewed_ns; /* clock_boot_ns() when the last time began that went well */
    char problem[KEEPER_PROBLEM_MAX];
} keeper = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static uint64_t keeper_lease_ns(void)
{
    return keeper.lease.holder.lease_ms * NS_PER_MS;
}

/* Locked. Others may take it for dead, or have. */
static bool keeper_has_lapsed(void)
{
    return keeper.kept && (keeper.taken || keeper.restored ||
                           clock_boot_ns() >= keeper.renewed_ns + keeper_lease_ns());
}

/* Locked. Until @boot_ns, or something changed. */
static void keeper_wait_until(uint64_t boot_ns)
{
    uint64_t now = clock_boot_ns(), left = boot_ns > now ? boot_ns - now : 0;
    (void)clock_wait(&keeper.changed, &keeper.lock,
                     clock_now_ns() + (left < LOOK_NS ? left : LOOK_NS));
}

/* In words that an operator can act on. */
static void keeper_name_problem(const struct lease *lease, int error,
                                char ret_problem[KEEPER_PROBLEM_MAX])
{
    struct lease now = {.generation = lease->generation};
    if (error != -ESTALE)
        (void)!snprintf(ret_problem, KEEPER_PROBLEM_MAX,
                        "it cannot say that it lives: %.300s/rights/%s.%" PRIu64 ": %s",
                        lease->path, lease->id, lease->generation, strerror(-error));
    else if (lease_find(lease->path, lease->id, &now) == 0 && now.generation != lease->generation)
        (void)!snprintf(ret_problem, KEEPER_PROBLEM_MAX,
                        "process %" PRIu64 " on %s took its right to run, of the images in %.300s",
                        now.holder.pid, now.holder.host, lease->path);
    else
        (void)!snprintf(ret_problem, KEEPER_PROBLEM_MAX,
                        "somebody took its right to run, of the images in %.300s", lease->path);
}

static void keeper_renew(bool ends)
{
    struct lease lease = keeper.lease;
    bool restored = keeper.restored;
    char problem[KEEPER_PROBLEM_MAX] = "";
    uint64_t began = clock_boot_ns();
    pthread_mutex_unlock(&keeper.lock);
    int error = lease_renew(&lease, ends ? LEASE_ENDED : LEASE_RUNNING);
    if (error)
        keeper_name_problem(&lease, error, problem);
    if (error && strcmp(problem, keeper.problem) != 0)
        log_warn("%s", problem);
    pthread_mutex_lock(&keeper.lock);
    memcpy(keeper.problem, problem, sizeof(problem));
    keeper.lease = lease;
    keeper.taken = error == -ESTALE;
    if (!error) {
        keeper.renewed_ns = began;
        keeper.restored = keeper.restored && !restored;
    }
    pthread_cond_broadcast(&keeper.changed);
}

static void *keeper_thread(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&keeper.lock);
    for (bool tried = false; !keeper.ended && !keeper.taken;) {
        uint64_t next = clock_boot_ns() + LEASE_BEAT(keeper_lease_ns());
        while (!keeper.ends && (!keeper.restored || tried) && clock_boot_ns() < next)
            keeper_wait_until(next);
        bool restored = keeper.restored, ends = keeper.ends;
        keeper_renew(ends);
        tried = restored && keeper.restored;
        keeper.ended = ends;
    }
    pthread_cond_broadcast(&keeper.changed);
    pthread_mutex_unlock(&keeper.lock);
    return NULL;
}

/* A disk that does not answer keeps the other thread: this one closes the gate in time. */
static void *keeper_fence(void *unused)
{
    bool closed = false;
    (void)unused;
    pthread_mutex_lock(&keeper.lock);
    while (!keeper.ends) {
        bool lapsed = keeper_has_lapsed();
        if (lapsed != closed) {
            pthread_mutex_unlock(&keeper.lock);
            if (!lapsed)
                gate_open();
            else if (gate_close(0) != 0)
                lapsed = false;
            closed = lapsed;
            if (closed)
                log_error("the program is fenced, as its right to run has lapsed: its calls wait");
            else
                log_warn("the program has its right to run again: its calls go on");
            pthread_mutex_lock(&keeper.lock);
            continue;
        }
        keeper_wait_until(lapsed ? UINT64_MAX : keeper.renewed_ns + keeper_lease_ns());
    }
    bool taken = keeper.taken;
    pthread_mutex_unlock(&keeper.lock);
    if (closed && !taken)
        gate_open();
    return NULL;
}

/* Behind all handlers of exit(), and destructors of what the program is linked with: they may write
 * what others are to read still, and may be long. */
__attribute__((destructor)) static void keeper_process_ends(void)
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
static int keeper_start_locked(const struct lease *lease, bool settled)
{
    int error = fork_watch();
    keeper.settled = settled;
    keeper.lease = *lease;
    keeper.renewed_ns = clock_boot_ns();
    if (!error)
        error = thread_start("reseat-right", 0, keeper_thread, NULL, NULL);
    keeper.kept = !error;
    if (!error)
        error = thread_start("reseat-fence", 0, keeper_fence, NULL, NULL);
    return error;
}

static int keeper_keep_from_now(const struct lease *lease, bool settled)
{
    pthread_mutex_lock(&keeper.lock);
    int error = keeper.kept ? -EBUSY : keeper_start_locked(lease, settled);
    pthread_mutex_unlock(&keeper.lock);
    return error;
}

int keeper_begin(const char *path, uint32_t lease_ms)
{
    struct lease lease;
    pthread_mutex_lock(&keeper.lock);
    bool kept = keeper.kept, same = kept && strcmp(keeper.lease.path, path) == 0;
    pthread_mutex_unlock(&keeper.lock);
    if (kept)
        return same ? 0 : -EBUSY;
    int error = lease_begin(path, lease_ms, &lease);
    return error ? error : keeper_keep_from_now(&lease, true);
}

int keeper_adopt(const struct lease *lease)
{
    return keeper_keep_from_now(lease, false);
}

static void *keeper_follow_thread(void *data)
{
    struct lease *CLEANUP(cleanup_free) lease = data;
    int error = lease_find(lease->path, lease->id, lease);
    if (!error)
        error = lease_is_own(lease) ? keeper_keep_from_now(lease, true) : -ESTALE;
    if (error && error != -EBUSY)
        log_warn(
            "the right to run of the process before it executed this program, of the images in "
            "%s: %s",
            lease->path, error == -ESTALE ? "it is not its own any more" : strerror(-error));
    return NULL;
}

int keeper_follow(const char *path, const char *id)
{
    struct lease *lease;
    pthread_mutex_lock(&keeper.lock);
    bool kept = keeper.kept;
    pthread_mutex_unlock(&keeper.lock);
    if (kept)
        return 0;
    if (!lease_id_is_valid(id) || strlen(path) >= sizeof(lease->path))
        return -EBADMSG;
    lease = calloc(1, sizeof(*lease));
    if (!lease)
        return -ENOMEM;
    strcpy(lease->path, path);
    strcpy(lease->id, id);
    int error = thread_start("reseat-follow", 0, keeper_follow_thread, lease, NULL);
    if (error)
        free(lease);
    return error;
}

void keeper_settle(void)
{
    pthread_mutex_lock(&keeper.lock);
    keeper.settled = true;
    pthread_mutex_unlock(&keeper.lock);
}

void keeper_restored(void)
{
    uint64_t until = clock_now_ns() + END_NS;
    pthread_mutex_lock(&keeper.lock);
    keeper.restored = keeper.kept && !keeper.taken;
    pthread_cond_broadcast(&keeper.changed);
    while (keeper.restored && !keeper.taken && clock_now_ns() < until)
        (void)clock_wait(&keeper.changed, &keeper.lock, until);
    pthread_mutex_unlock(&keeper.lock);
}

void keeper_read(struct keeper_status *ret_status)
{
    pthread_mutex_lock(&keeper.lock);
    *ret_status = (struct keeper_status){.fenced = keeper_has_lapsed()};
    if (keeper.kept) {
        memcpy(ret_status->path, keeper.lease.path, sizeof(keeper.lease.path));
        memcpy(ret_status->id, keeper.lease.id, sizeof(keeper.lease.id));
        memcpy(ret_status->problem, keeper.problem, sizeof(keeper.problem));
    }
    if (ret_status->fenced && !*ret_status->problem)
        (void)!snprintf(
            ret_status->problem, sizeof(ret_status->problem),
            "it could not say in time that it lives: the disk of %.300s is slow, or it stood "
            "still itself",
            keeper.lease.path);
    pthread_mutex_unlock(&keeper.lock);
}

bool keeper_lease(const char *path, struct lease *ret_lease)
{
    pthread_mutex_lock(&keeper.lock);
    bool has = keeper.kept && strcmp(keeper.lease.path, path) == 0;
    if (has)
        *ret_lease = keeper.lease;
    pthread_mutex_unlock(&keeper.lock);
    return has;
}

/* The right is the parent's. Its end is not the program's. */
static void keeper_in_child(void)
{
    keeper.kept = keeper.taken = keeper.restored = false;
}

FORK_PART = {.rank = FORK_TABLE,
             .lock = &keeper.lock,
             .changed = {&keeper.changed},
             .in_child = keeper_in_child};
