#include "tests/support/cases.h"
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>

#include "state/base/threads/thread.h"

#define PAGE 4096

static unsigned char *guarded;

static void open_page(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    (void)mprotect((void *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1)), PAGE,
                   PROT_READ | PROT_WRITE);
}

static void *write_there(void *unused)
{
    (void)unused;
    *guarded = 1;
    return NULL;
}

/* As garbage collectors find what is written to; blocked, the signal would end the process. */
Test(thread, the_program_mends_what_a_thread_of_ours_runs_into)
{
    const struct sigaction action = {.sa_sigaction = open_page, .sa_flags = SA_SIGINFO};
    pthread_t thread;
    guarded = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(guarded, MAP_FAILED);
    cr_assert_eq(sigaction(SIGSEGV, &action, NULL), 0);
    cr_assert_eq(thread_start("writer", 0, write_there, NULL, &thread), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(*guarded, 1);
}

static void *read_mask(void *ret_mask)
{
    pthread_sigmask(SIG_SETMASK, NULL, ret_mask);
    return NULL;
}

Test(thread, only_signals_of_faults_are_delivered_to_a_thread_of_ours)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    static const int others[] = {SIGTERM, SIGINT, SIGCHLD, SIGALRM, SIGPROF, SIGUSR1, SIGPIPE};
    sigset_t mask;
    pthread_t thread;
    cr_assert_eq(thread_start("reader", 0, read_mask, &mask, &thread), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
        cr_expect_not(sigismember(&mask, faults[i]), "%d", faults[i]);
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        cr_expect(sigismember(&mask, others[i]), "%d", others[i]);
}
