#include "state/base/threads/thread.h"

#include <signal.h>

/* Signals that an instruction raises in its own thread. If they were blocked, the kernel would end
 * the process instead of running the program's handler, which may repair the fault. */
static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

int thread_start(const char *name, size_t stack, void *(*run)(void *), void *data,
                 pthread_t *ret_thread)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t blocked, before;
    int error = pthread_attr_init(&attributes);
    if (error != 0)
        return -error;
    if (stack != 0)
        (void)pthread_attr_setstacksize(&attributes, stack);
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    error = pthread_create(&thread, &attributes, run, data);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error != 0)
        return -error;
    (void)pthread_setname_np(thread, name);
    if (ret_thread)
        *ret_thread = thread;
    else
        pthread_detach(thread);
    return 0;
}
