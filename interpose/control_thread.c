#include "interpose/control_thread.h"

#include <pthread.h>
#include <signal.h>

int control_thread_start(void *(*entry)(void *), void *data, size_t stack)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, old;
    int error = pthread_attr_init(&attributes);

    if (error) {
        return -error;
    }
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (stack) {
        pthread_attr_setstacksize(&attributes, stack);
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&thread, &attributes, entry, data);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return -error;
}
