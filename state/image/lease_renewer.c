#include "state/image/lease_renewer.h"

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

/* How long exit() waits for the disk. After that the program counts as one that died. */
#define END_NS (5 * NS_PER_S)

/* Longest wait: waits do not count time during which the machine sleeps. */
#define LOOK_NS NS_PER_S

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct lease lease; /* guarded by lock, like all below; while `kept`, only the thread writes its
                           content and the problem */
    bool kept;
    bool settled;  /* the process has all that the program had when it was saved */
    bool taken;    /* by another process */
    bool restored; /* the process was restored, and its times are another host's until the first
                      renewal */
    bool ends, ended;
    uint64_t renewed_ns; /* clock_boot_ns() at the begin of the last successful renewal */
    char problem[LEASE_RENEWER_PROBLEM_MAX];
} lease_renewer = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static uint64_t lease_renewer_lease_ns(void)
{
    return lease_renewer.lease.holder.lease_ms * NS_PER_MS;
}

/* Locked. True when another process may hold the program for dead, or has taken its lease. */
static bool lease_renewer_has_lapsed(void)
{
    return lease_renewer.kept &&
           (lease_renewer.taken || lease_renewer.restored ||
            clock_boot_ns() >= lease_renewer.renewed_ns + lease_renewer_lease_ns());
}

/* Locked. Wait until @boot_ns or a change. */
static void lease_renewer_wait_until(uint64_t boot_ns)
{
    uint64_t now = clock_boot_ns(), left = boot_ns > now ? boot_ns - now : 0;
    (void)clock_wait(&lease_renewer.changed, &lease_renewer.lock,
                     clock_now_ns() + (left < LOOK_NS ? left : LOOK_NS));
}

/* Why the lease was not renewed, for the operator. */
static void lease_renewer_name_problem(const struct lease *lease, int error,
                                       char ret_problem[LEASE_RENEWER_PROBLEM_MAX])
{
    struct lease now = {.generation = lease->generation};
    if (error != -ESTALE)
        (void)!snprintf(ret_problem, LEASE_RENEWER_PROBLEM_MAX,
                        "it cannot say that it lives: %.300s/rights/%s.%" PRIu64 ": %s",
                        lease->path, lease->id, lease->generation, strerror(-error));
    else if (lease_find(lease->path, lease->id, &now) == 0 && now.generation != lease->generation)
        (void)!snprintf(ret_problem, LEASE_RENEWER_PROBLEM_MAX,
                        "process %" PRIu64 " on %s took its right to run, of the images in %.300s",
                        now.holder.pid, now.holder.host, lease->path);
    else
        (void)!snprintf(ret_problem, LEASE_RENEWER_PROBLEM_MAX,
                        "another process took its lease, of the images in %.300s", lease->path);
}

static void lease_renewer_renew(bool ends)
{
    struct lease lease = lease_renewer.lease;
    bool restored = lease_renewer.restored;
    char problem[LEASE_RENEWER_PROBLEM_MAX] = "";
    uint64_t began = clock_boot_ns();
    pthread_mutex_unlock(&lease_renewer.lock);
    int error = lease_renew(&lease, ends ? LEASE_ENDED : LEASE_RUNNING);
    if (error)
        lease_renewer_name_problem(&lease, error, problem);
    if (error && strcmp(problem, lease_renewer.problem) != 0)
        log_warn("%s", problem);
    pthread_mutex_lock(&lease_renewer.lock);
    memcpy(lease_renewer.problem, problem, sizeof(problem));
    lease_renewer.lease = lease;
    lease_renewer.taken = error == -ESTALE;
    if (!error) {
        lease_renewer.renewed_ns = began;
        lease_renewer.restored = lease_renewer.restored && !restored;
    }
    pthread_cond_broadcast(&lease_renewer.changed);
}

static void *lease_renewer_thread(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lease_renewer.lock);
    for (bool tried = false; !lease_renewer.ended && !lease_renewer.taken;) {
        uint64_t next = clock_boot_ns() + LEASE_BEAT(lease_renewer_lease_ns());
        while (!lease_renewer.ends && (!lease_renewer.restored || tried) && clock_boot_ns() < next)
            lease_renewer_wait_until(next);
        bool restored = lease_renewer.restored, ends = lease_renewer.ends;
        lease_renewer_renew(ends);
        tried = restored && lease_renewer.restored;
        lease_renewer.ended = ends;
    }
    pthread_cond_broadcast(&lease_renewer.changed);
    pthread_mutex_unlock(&lease_renewer.lock);
    return NULL;
}

/* The renewing thread may hang on the disk, so this one closes the gate when the lease expires. */
static void *lease_renewer_fence(void *unused)
{
    bool closed = false;
    (void)unused;
    pthread_mutex_lock(&lease_renewer.lock);
    while (!lease_renewer.ends) {
        bool lapsed = lease_renewer_has_lapsed();
        if (lapsed != closed) {
            pthread_mutex_unlock(&lease_renewer.lock);
            if (!lapsed)
                gate_open();
            else if (gate_close(0) != 0)
                lapsed = false;
            closed = lapsed;
            if (closed)
                log_error("the program is fenced, as its right to run has lapsed: its calls wait");
            else
                log_warn("the program has its right to run again: its calls go on");
            pthread_mutex_lock(&lease_renewer.lock);
            continue;
        }
        lease_renewer_wait_until(lapsed ? UINT64_MAX
                                        : lease_renewer.renewed_ns + lease_renewer_lease_ns());
    }
    bool taken = lease_renewer.taken;
    pthread_mutex_unlock(&lease_renewer.lock);
    if (closed && !taken)
        gate_open();
    return NULL;
}

/* Runs after all handlers of exit() and the destructors of the program's libraries, which may take
 * long and may write files that other processes read. */
__attribute__((destructor)) static void lease_renewer_process_ends(void)
{
    uint64_t until = clock_now_ns() + END_NS;
    pthread_mutex_lock(&lease_renewer.lock);
    lease_renewer.ends = lease_renewer.settled;
    pthread_cond_broadcast(&lease_renewer.changed);
    while (lease_renewer.kept && lease_renewer.ends && !lease_renewer.ended &&
           !lease_renewer.taken && clock_now_ns() < until)
        (void)clock_wait(&lease_renewer.changed, &lease_renewer.lock, until);
    pthread_mutex_unlock(&lease_renewer.lock);
}

/* Locked. */
static int lease_renewer_start_locked(const struct lease *lease, bool settled)
{
    int error = fork_watch();
    lease_renewer.settled = settled;
    lease_renewer.lease = *lease;
    lease_renewer.renewed_ns = clock_boot_ns();
    if (!error)
        error = thread_start("reseat-right", 0, lease_renewer_thread, NULL, NULL);
    lease_renewer.kept = !error;
    if (!error)
        error = thread_start("reseat-fence", 0, lease_renewer_fence, NULL, NULL);
    return error;
}

static int lease_renewer_keep_from_now(const struct lease *lease, bool settled)
{
    pthread_mutex_lock(&lease_renewer.lock);
    int error = lease_renewer.kept ? -EBUSY : lease_renewer_start_locked(lease, settled);
    pthread_mutex_unlock(&lease_renewer.lock);
    return error;
}

int lease_renewer_begin(const char *path, uint32_t lease_ms)
{
    struct lease lease;
    pthread_mutex_lock(&lease_renewer.lock);
    bool kept = lease_renewer.kept, same = kept && strcmp(lease_renewer.lease.path, path) == 0;
    pthread_mutex_unlock(&lease_renewer.lock);
    if (kept)
        return same ? 0 : -EBUSY;
    int error = lease_begin(path, lease_ms, &lease);
    return error ? error : lease_renewer_keep_from_now(&lease, true);
}

int lease_renewer_adopt(const struct lease *lease)
{
    return lease_renewer_keep_from_now(lease, false);
}

static void *lease_renewer_follow_thread(void *data)
{
    struct lease *CLEANUP(cleanup_free) lease = data;
    int error = lease_find(lease->path, lease->id, lease);
    if (!error)
        error = lease_is_own(lease) ? lease_renewer_keep_from_now(lease, true) : -ESTALE;
    if (error && error != -EBUSY)
        log_warn(
            "the right to run of the process before it executed this program, of the images in "
            "%s: %s",
            lease->path, error == -ESTALE ? "it is not its own any more" : strerror(-error));
    return NULL;
}

int lease_renewer_follow(const char *path, const char *id)
{
    struct lease *lease;
    pthread_mutex_lock(&lease_renewer.lock);
    bool kept = lease_renewer.kept;
    pthread_mutex_unlock(&lease_renewer.lock);
    if (kept)
        return 0;
    if (!lease_id_is_valid(id) || strlen(path) >= sizeof(lease->path))
        return -EBADMSG;
    lease = calloc(1, sizeof(*lease));
    if (!lease)
        return -ENOMEM;
    strcpy(lease->path, path);
    strcpy(lease->id, id);
    int error = thread_start("reseat-follow", 0, lease_renewer_follow_thread, lease, NULL);
    if (error)
        free(lease);
    return error;
}

void lease_renewer_settle(void)
{
    pthread_mutex_lock(&lease_renewer.lock);
    lease_renewer.settled = true;
    pthread_mutex_unlock(&lease_renewer.lock);
}

void lease_renewer_restored(void)
{
    uint64_t until = clock_now_ns() + END_NS;
    pthread_mutex_lock(&lease_renewer.lock);
    lease_renewer.restored = lease_renewer.kept && !lease_renewer.taken;
    pthread_cond_broadcast(&lease_renewer.changed);
    while (lease_renewer.restored && !lease_renewer.taken && clock_now_ns() < until)
        (void)clock_wait(&lease_renewer.changed, &lease_renewer.lock, until);
    pthread_mutex_unlock(&lease_renewer.lock);
}

void lease_renewer_read(struct lease_renewer_status *ret_status)
{
    pthread_mutex_lock(&lease_renewer.lock);
    *ret_status = (struct lease_renewer_status){.fenced = lease_renewer_has_lapsed()};
    if (lease_renewer.kept) {
        memcpy(ret_status->path, lease_renewer.lease.path, sizeof(lease_renewer.lease.path));
        memcpy(ret_status->id, lease_renewer.lease.id, sizeof(lease_renewer.lease.id));
        memcpy(ret_status->problem, lease_renewer.problem, sizeof(lease_renewer.problem));
        ret_status->age_ns = clock_boot_ns() - lease_renewer.renewed_ns;
    }
    if (ret_status->fenced && !*ret_status->problem)
        (void)!snprintf(
            ret_status->problem, sizeof(ret_status->problem),
            "it could not say in time that it lives: the disk of %.300s is slow, or it stood "
            "still itself",
            lease_renewer.lease.path);
    pthread_mutex_unlock(&lease_renewer.lock);
}

bool lease_renewer_lease(const char *path, struct lease *ret_lease)
{
    pthread_mutex_lock(&lease_renewer.lock);
    bool has = lease_renewer.kept && strcmp(lease_renewer.lease.path, path) == 0;
    if (has)
        *ret_lease = lease_renewer.lease;
    pthread_mutex_unlock(&lease_renewer.lock);
    return has;
}

/* The lease stays the parent's: a child neither renews nor ends it. */
static void lease_renewer_in_child(void)
{
    lease_renewer.kept = lease_renewer.taken = lease_renewer.restored = false;
}

FORK_PART = {.rank = FORK_TABLE,
             .lock = &lease_renewer.lock,
             .changed = {&lease_renewer.changed},
             .in_child = lease_renewer_in_child};
