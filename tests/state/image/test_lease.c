#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "state/base/threads/gate.h"
#include "state/image/image_folder.h"
#include "state/image/lease_renewer.h"
#include "tests/support/folder.h"

/* The right to run a program: one has it, whoever asks. */

static char path[SCRATCH_MAX], file[PATH_MAX];

static void setup(void)
{
    folder_make(path);
}
TestSuite(lease, .init = setup, .timeout = 60);

static void name_file(const struct lease *lease)
{
    snprintf(file, sizeof(file), "%s/rights/%s.%llu", path, lease->id,
             (unsigned long long)lease->generation);
}

Test(lease, is_held_until_somebody_takes_it)
{
    struct lease first, found, second, third;
    cr_assert_eq(lease_begin(path, 5000, &first), 0);
    cr_assert_eq(lease_find(path, first.id, &found), 0);
    cr_assert_eq(found.generation, 0);
    cr_assert_eq(found.holder.state, LEASE_RUNNING);
    cr_assert_eq(found.holder.lease_ms, 5000);
    cr_assert_eq(found.holder.pid, (uint64_t)getpid());
    cr_assert_eq(lease_renew(&first, LEASE_RUNNING), 0);
    cr_assert_eq(lease_find(path, first.id, &second), 0);
    cr_assert_neq(second.holder.beat, found.holder.beat, "it says that it lives");
    cr_assert_eq(lease_take(&found, LEASE_TAKEN, &second), 0);
    cr_assert_eq(second.generation, 1);
    cr_assert_eq(lease_take(&found, LEASE_TAKEN, &third), -EEXIST);
    cr_assert_eq(lease_renew(&first, LEASE_RUNNING), -ESTALE);
    cr_assert_eq(lease_renew(&first, LEASE_ENDED), -ESTALE);
    cr_assert_eq(lease_renew(&second, LEASE_ENDED), 0);
    cr_assert_eq(lease_find(path, first.id, &found), 0);
    cr_assert_eq(found.generation, 1);
    cr_assert_eq(found.holder.state, LEASE_ENDED);
}

Test(lease, what_somebody_left_in_the_middle_goes_with_the_next_writer)
{
    struct image_folder *folder;
    struct lease lease, found;
    char problem[IMAGE_PROBLEM_MAX], left[PATH_MAX], kept[PATH_MAX];
    const enum image_use uses[] = {IMAGE_TO_WRITE, IMAGE_TO_SWEEP};
    struct image_swept swept;
    for (unsigned i = 0; i < 2; i++) {
        cr_assert_eq(image_folder_open(path, uses[i], &folder, problem), 0, "%s", problem);
        cr_assert_eq(lease_begin(path, 1000, &lease), 0);
        snprintf(left, sizeof(left), "%s/rights/new-0123456789abcdef", path);
        snprintf(kept, sizeof(kept), "%s/rights/new-one", path);
        name_file(&lease);
        cr_assert_eq(link(file, left), 0);
        cr_assert(i || link(file, kept) == 0);
        if (i)
            cr_assert_eq(image_folder_sweep(folder, &swept, problem), 0);
        image_folder_close(folder);
        cr_assert_eq(image_folder_open(path, IMAGE_TO_READ, &folder, problem), 0);
        cr_assert_eq(access(left, F_OK) == 0, i == 0, "only who is alone removes it");
        image_folder_close(folder);
        cr_assert_eq(image_folder_open(path, IMAGE_TO_WRITE, &folder, problem), 0);
        image_folder_close(folder);
        cr_assert_neq(access(left, F_OK), 0);
        cr_assert_eq(access(kept, F_OK), 0, "what is none of ours stays");
        cr_assert_eq(lease_find(path, lease.id, &found), 0);
    }
}

Test(lease, the_last_one_counts_also_where_one_before_it_is_gone)
{
    struct lease first, second, third, found;
    cr_assert_eq(lease_begin(path, 1000, &first), 0);
    cr_assert_eq(lease_take(&first, LEASE_TAKEN, &second), 0);
    cr_assert_eq(lease_take(&second, LEASE_RUNNING, &third), 0);
    name_file(&second);
    cr_assert_eq(unlink(file), 0);
    cr_assert_eq(lease_find(path, first.id, &found), 0);
    cr_assert_eq(found.generation, 2);
    snprintf(file, sizeof(file), "%s/rights/%s.007", path, first.id);
    cr_assert_eq(symlink("/etc/passwd", file), 0);
    cr_assert_eq(lease_find(path, first.id, &found), 0);
    cr_assert_eq(found.generation, 2, "such a name nobody makes");
}

/* Waits so that the clock has moved on. */
static bool silent_after(struct lease_sight *sight, const char *id, bool *ret_changed)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    nanosleep(&pause, NULL);
    *ret_changed = lease_look(sight, path, id);
    return lease_is_silent(sight, 10 * NS_PER_MS);
}

Test(lease, its_silence_is_timed_by_who_looks)
{
    struct lease lease, taken;
    struct lease_sight sight = {.since_ns = 0};
    bool changed;
    cr_assert_eq(lease_begin(path, 5000, &lease), 0);
    cr_assert_not(lease_is_silent(&sight, 0), "nobody has looked");
    cr_assert_not(silent_after(&sight, lease.id, &changed) || changed, "the first look");
    cr_assert(silent_after(&sight, lease.id, &changed) && !changed);
    cr_assert_eq(lease_renew(&lease, LEASE_RUNNING), 0);
    cr_assert(!silent_after(&sight, lease.id, &changed) && changed);
    cr_assert_eq(lease_take(&lease, LEASE_TAKEN, &taken), 0);
    cr_assert(!silent_after(&sight, lease.id, &changed) && changed);
    snprintf(taken.holder.reason, sizeof(taken.holder.reason), "it had no device");
    cr_assert_eq(lease_renew(&taken, LEASE_TAKEN), 0);
    cr_assert(!silent_after(&sight, lease.id, &changed) && changed);
    cr_assert_str_eq(sight.lease.holder.reason, "it had no device");
    name_file(&taken);
    FILE *half = fopen(file, "r+");
    cr_assert(half && fwrite("reseat ri\0\0\0\0\0\0", 1, 15, half) == 15 && fclose(half) == 0);
    cr_assert(silent_after(&sight, lease.id, &changed) && !changed, "half of a renewal is none");
    cr_assert_eq(sight.error, -EBADMSG);
    cr_assert_eq(truncate(file, 0), 0);
    cr_assert(silent_after(&sight, lease.id, &changed) && !changed);
    cr_assert_eq(unlink(file), 0);
    cr_assert(silent_after(&sight, lease.id, &changed) || changed, "the one before counts again");
    char away[PATH_MAX + 8];
    snprintf(away, sizeof(away), "%s-away", path);
    cr_assert_eq(rename(path, away), 0);
    cr_assert(!silent_after(&sight, lease.id, &changed) && !changed, "nobody can renew it");
    cr_assert_eq(sight.error, -ENOENT);
    cr_assert_eq(rename(away, path), 0);
}

Test(lease, a_host_has_one_for_each_boot)
{
    struct lease first, again, found;
    char id[LEASE_ID_MAX];
    cr_assert_eq(lease_begin_host(path, 1000, &first), 0);
    cr_assert_eq(lease_begin_host(path, 1000, &again), 0, "a watch that was started again");
    cr_assert_str_eq(again.id, first.id);
    cr_assert_eq(again.generation, 0);
    cr_assert_eq(lease_renew(&again, LEASE_RUNNING), 0);
    lease_host_id(first.holder.boot, id);
    cr_assert_eq(lease_find(path, id, &found), 0);
    cr_assert_eq(found.holder.beat, 1);
    cr_assert(lease_is_of_this_host(&found));
    setenv(LEASE_ENV_BOOT, "another boot", 1);
    cr_assert_not(lease_is_of_this_host(&found));
    cr_assert_eq(lease_begin_host(path, 1000, &again), 0);
    cr_assert_str_neq(again.id, first.id);
    cr_assert_str_eq(again.holder.boot, "another_boot");
    unsetenv(LEASE_ENV_BOOT);
}

#define TAKERS 8
static struct lease from;
static pthread_barrier_t barrier;
static int results[TAKERS];

static void *take(void *data)
{
    int *result = data;
    struct lease taken;
    pthread_barrier_wait(&barrier);
    *result = lease_take(&from, LEASE_TAKEN, &taken);
    return NULL;
}

Test(lease, one_of_many_takes_it)
{
    for (unsigned round = 0; round < 20; round++) {
        pthread_t threads[TAKERS];
        unsigned took = 0;
        cr_assert_eq(lease_begin(path, 1000, &from), 0);
        cr_assert_eq(pthread_barrier_init(&barrier, NULL, TAKERS), 0);
        for (unsigned i = 0; i < TAKERS; i++)
            cr_assert_eq(pthread_create(&threads[i], NULL, take, &results[i]), 0);
        for (unsigned i = 0; i < TAKERS; i++) {
            pthread_join(threads[i], NULL);
            cr_assert(results[i] == 0 || results[i] == -EEXIST, "%d", results[i]);
            took += results[i] == 0;
        }
        cr_assert_eq(took, 1);
        pthread_barrier_destroy(&barrier);
    }
}

Test(lease, is_refused_where_others_could_have_made_it)
{
    struct lease lease, found;
    cr_assert_eq(lease_begin(path, 1000, &lease), 0);
    cr_assert_eq(lease_find(path, "../../../etc/pass", &found), -EBADMSG);
    cr_assert_eq(lease_find(path, "0123456789abcdef", &found), -ENOENT);
    name_file(&lease);
    cr_assert_eq(chmod(path, 0750), 0);
    cr_assert_eq(lease_find(path, lease.id, &found), -EPERM);
    cr_assert_eq(lease_renew(&lease, LEASE_RUNNING), -EPERM);
    cr_assert_eq(chmod(path, 0700), 0);
    cr_assert_eq(chmod(file, 0622), 0);
    cr_assert_eq(lease_find(path, lease.id, &found), -EPERM);
    cr_assert_eq(unlink(file), 0);
    cr_assert_eq(symlink("/etc/passwd", file), 0);
    cr_assert_eq(lease_find(path, lease.id, &found), -EPERM);
    cr_assert_neq(lease_renew(&lease, LEASE_RUNNING), 0);
    cr_assert_eq(unlink(file), 0);
    cr_assert_eq(mkfifo(file, 0600), 0);
    cr_assert_eq(lease_find(path, lease.id, &found), -EPERM, "and nobody waits at it");
}

Test(lease, says_nothing_that_cannot_be)
{
    static const char *const wrong[] = {
        "",
        "reseat right 2\nrunning 30000 1 1 boot host\n",
        "reseat right 1\nrunning 999 1 1 boot host\n",
        "reseat right 1\nrunning 3600001 1 1 boot host\n",
        "reseat right 1\nwalking 30000 1 1 boot host\n",
        "reseat right 1\nrunning 30000 1 1 boot \x1b[2J\n",
        "reseat right 1\nrunning 30000 1 1 boot\n",
    };
    struct lease_holder holder;
    char block[LEASE_BLOCK] = "reseat right 1\nrunning 30000 1 1 boot host\n";
    cr_assert_eq(lease_decode(block, &holder), 0);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        memset(block, '\n', sizeof(block));
        memcpy(block, wrong[i], strlen(wrong[i]));
        cr_assert_eq(lease_decode(block, &holder), -EBADMSG, "%s", wrong[i]);
    }
}

/* ---- the process that keeps it ---- */

static void sleep_ms(unsigned ms)
{
    const struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

/* What the child and the test know of each other. */
struct shared {
    atomic_uint entered; /* how often the child went through the gate */
    atomic_bool begun, restored;
    atomic_uint slept_s; /* the machine did, for as long */
    char id[LEASE_ID_MAX];
    struct lease_renewer_status status;
    enum lease_state at_exit; /* when a handler of exit() looked */
};
static struct shared *shared;

/* The product asks this one for the time. */
int clock_gettime(clockid_t id, struct timespec *ret_time)
{
    int result = (int)syscall(SYS_clock_gettime, id, ret_time);
    if (result == 0 && id == CLOCK_BOOTTIME && shared)
        ret_time->tv_sec += atomic_load(&shared->slept_s);
    return result;
}

static void *watch(void *unused)
{
    for (;; sleep_ms(1))
        lease_renewer_read(&shared->status);
    return unused;
}

/* A program with a right to run, as @lives has it be. */
static pid_t begin(void (*lives)(void))
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(shared, MAP_FAILED);
    pid_t child = fork();
    if (child == 0) {
        pthread_t watcher;
        struct lease lease;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* whatever becomes of the test */
        lives();
        if (pthread_create(&watcher, NULL, watch, NULL) != 0)
            _exit(1);
        if (lease_renewer_lease(path, &lease))
            memcpy(shared->id, lease.id, sizeof(lease.id));
        atomic_store(&shared->begun, true);
        for (;;) {
            gate_enter();
            gate_leave();
            atomic_fetch_add(&shared->entered, 1);
            sleep_ms(1);
            if (atomic_exchange(&shared->restored, false))
                lease_renewer_restored();
        }
    }
    while (!atomic_load(&shared->begun) && waitpid(child, NULL, WNOHANG) == 0)
        sleep_ms(1);
    return child;
}

static void keeps(void)
{
    if (lease_renewer_begin(path, 1000) != 0)
        _exit(1);
}

static bool goes_on(void)
{
    unsigned before = atomic_load(&shared->entered);
    sleep_ms(300);
    return atomic_load(&shared->entered) != before;
}

static void becomes(bool wanted)
{
    for (unsigned i = 0; i < 60 && goes_on() != wanted; i++)
        ;
    cr_assert_eq(goes_on(), wanted);
}

/* What it says of itself is so, soon. */
static void says(bool fenced, const char *problem)
{
    for (unsigned i = 0; i < 200; i++, sleep_ms(50))
        if (shared->status.fenced == fenced && strstr(shared->status.problem, problem) &&
            (*problem || !*shared->status.problem))
            return;
    cr_assert_fail("%d: %s", shared->status.fenced, shared->status.problem);
}

Test(lease, a_program_whose_lease_was_taken_does_nothing_more)
{
    char text[LEASE_RENEWER_PROBLEM_MAX];
    struct lease lease, again;
    pid_t child = begin(keeps);
    cr_assert_eq(lease_find(path, shared->id, &lease), 0);
    sleep_ms(1500);
    cr_assert(goes_on());
    cr_assert_eq(lease_find(path, shared->id, &again), 0);
    cr_assert_neq(lease.holder.beat, again.holder.beat);
    cr_assert_eq(lease_take(&again, LEASE_TAKEN, &lease), 0);
    becomes(false);
    snprintf(text, sizeof(text), "process %d on %s took its right to run, of the images in %s",
             (int)getpid(), lease.holder.host, path);
    says(true, text);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

Test(lease, a_program_whose_lease_was_removed_says_so)
{
    struct lease lease;
    char away[SCRATCH_MAX + 16];
    pid_t child = begin(keeps);
    cr_assert_eq(lease_find(path, shared->id, &lease), 0);
    says(false, "");
    name_file(&lease);
    snprintf(away, sizeof(away), "%s/away", path);
    cr_assert_eq(rename(file, away), 0);
    becomes(false);
    says(true, file);
    says(true, "No such file");
    cr_assert_eq(rename(away, file), 0);
    becomes(true);
    says(false, "");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void keeps_long(void)
{
    if (lease_renewer_begin(path, LEASE_MOST_MS) != 0)
        _exit(1);
}

/* What others wait for its lease goes on while its machine sleeps. */
Test(lease, a_program_whose_machine_slept_waits_until_it_knows_that_it_may_run)
{
    char away[SCRATCH_MAX + 16];
    struct lease lease;
    pid_t child = begin(keeps_long);
    cr_assert(goes_on());
    snprintf(away, sizeof(away), "%s-away", path);
    cr_assert_eq(rename(path, away), 0);
    atomic_store(&shared->slept_s, 2 * LEASE_MOST_MS / 1000);
    becomes(false);
    cr_assert_eq(rename(away, path), 0);
    atomic_store(&shared->slept_s, 4 * LEASE_MOST_MS / 1000);
    becomes(true);
    /* It looks before its lease has passed. */
    cr_assert_eq(lease_find(path, shared->id, &lease), 0);
    cr_assert_eq(lease_take(&lease, LEASE_TAKEN, &lease), 0);
    atomic_fetch_add(&shared->slept_s, LEASE_MOST_MS / 1000 / 3);
    becomes(false);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

Test(lease, a_restored_program_waits_until_it_knows_that_it_may_run)
{
    struct lease lease, again;
    pid_t child = begin(keeps_long);
    cr_assert_eq(lease_find(path, shared->id, &lease), 0);
    atomic_store(&shared->restored, true);
    for (unsigned i = 0; i < 100 && lease_find(path, shared->id, &again) == 0 &&
                         again.holder.beat == lease.holder.beat;
         i++)
        sleep_ms(100);
    cr_assert_neq(again.holder.beat, lease.holder.beat, "it says at once that it lives");
    becomes(true);
    cr_assert_eq(lease_take(&again, LEASE_TAKEN, &lease), 0);
    cr_assert(goes_on(), "nobody has told it");
    atomic_store(&shared->restored, true);
    becomes(false);
    says(true, "took its right to run");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* As it is after execve(): the process is the one, and knows nothing. */
static void follows(void)
{
    struct lease lease;
    if (lease_begin(path, 1000, &lease) != 0 || lease_renewer_follow(path, lease.id) != 0)
        _exit(1);
    for (unsigned i = 0; i < 1000 && !lease_renewer_lease(path, &lease); i++)
        sleep_ms(10);
}

static void follows_another_s(void)
{
    if (lease_renewer_follow(path, from.id) != 0)
        _exit(1);
}

Test(lease, a_process_keeps_its_lease_when_it_executes_another_program)
{
    struct lease before, lease;
    pid_t child = begin(follows);
    cr_assert_eq(lease_find(path, shared->id, &before), 0);
    sleep_ms(1500);
    cr_assert_eq(lease_find(path, shared->id, &lease), 0);
    cr_assert_eq(lease.generation, 0);
    cr_assert_gt(lease.holder.beat, before.holder.beat);
    cr_assert(goes_on());
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    cr_assert_eq(lease_begin(path, 1000, &from), 0);
    child = begin(follows_another_s);
    sleep_ms(1500);
    cr_assert_eq(lease_find(path, from.id, &lease), 0);
    cr_assert_eq(lease.holder.beat, from.holder.beat, "it is none of its own");
    cr_assert(goes_on());
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

Test(lease, a_program_that_cannot_say_that_it_lives_waits_until_it_can)
{
    pid_t child = begin(keeps);
    char away[SCRATCH_MAX + 16];
    snprintf(away, sizeof(away), "%s-away", path);
    cr_assert_eq(rename(path, away), 0);
    becomes(false);
    cr_assert_eq(rename(away, path), 0);
    becomes(true);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void ends(void)
{
    struct lease lease;
    keeps();
    (void)lease_renewer_lease(path, &lease);
    memcpy(shared->id, lease.id, sizeof(lease.id));
    exit(0);
}

static void adopts(void)
{
    struct lease before, lease;
    if (lease_begin(path, 1000, &before) != 0 || lease_take(&before, LEASE_RUNNING, &lease) != 0 ||
        lease_renewer_adopt(&lease) != 0)
        _exit(1);
    memcpy(shared->id, lease.id, sizeof(lease.id));
}

static void adopts_and_ends(void)
{
    adopts();
    exit(0);
}

static void settles_and_ends(void)
{
    adopts();
    lease_renewer_settle();
    exit(0);
}

static enum lease_state end_of(void (*lives)(void))
{
    struct lease lease;
    (void)begin(lives);
    cr_assert_eq(lease_find(path, shared->id, &lease), 0);
    return lease.holder.state;
}

Test(lease, the_end_of_a_process_is_the_program_s_once_it_is_that)
{
    cr_assert_eq(end_of(ends), LEASE_ENDED);
    cr_assert_eq(end_of(adopts_and_ends), LEASE_RUNNING);
    cr_assert_eq(end_of(settles_and_ends), LEASE_ENDED);
}

/* Longer than from one time that it says that it lives to the next. */
static void handler(void)
{
    struct lease lease;
    sleep_ms(500);
    if (lease_find(path, shared->id, &lease) == 0)
        shared->at_exit = lease.holder.state;
}

static void ends_with_a_handler(void)
{
    if (atexit(handler) != 0)
        _exit(1);
    ends();
}

Test(lease, a_program_has_not_ended_before_its_handlers_of_exit)
{
    cr_assert_eq(end_of(ends_with_a_handler), LEASE_ENDED);
    cr_assert_eq(shared->at_exit, LEASE_RUNNING);
}
