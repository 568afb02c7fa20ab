#include "remote/rings/lookout.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

#include "state/base/threads/thread.h"

#define LOOK_MS 1000

struct lookout {
    struct bell_peer *peer;
    void (*wake)(void *data);
    void *data;
    pthread_t thread;
    sem_t begun;
    int error; /* Why the thread could not start; read before `begun` is posted to. */
    atomic_bool over;
};

/* Keep no other descriptor of the program open in the thread: a copy of the write end of a pipe
 * would keep its reader waiting. */
static int lookout_have_alone(const struct owned *socket, int *ret_fd)
{
    if (unshare(CLONE_FILES) != 0)
        return -ENOSYS;
    int fd = owned_fd(socket);
    if (fd < 0)
        return -EBADF;
    if ((fd > 0 && close_range(0, (unsigned)fd - 1, 0) != 0) ||
        close_range((unsigned)fd + 1, ~0u, 0) != 0)
        return -ENOSYS;
    *ret_fd = fd;
    return 0;
}

static void *lookout_look(void *data)
{
    struct lookout *lookout = data;
    const short over = POLLHUP | POLLRDHUP | POLLERR | POLLNVAL;
    struct pollfd socket = {.events = POLLRDHUP};
    int error = lookout_have_alone(&lookout->peer->socket, &socket.fd);
    lookout->error = error;
    sem_post(&lookout->begun);
    while (error == 0 && !atomic_load(&lookout->over)) {
        if (poll(&socket, 1, LOOK_MS) > 0 && (socket.revents & over)) {
            bell_peer_end(lookout->peer, -EPIPE);
            lookout->wake(lookout->data);
            break;
        }
    }
    return NULL;
}

int lookout_create(struct bell_peer *peer, void (*wake)(void *data), void *data,
                   struct lookout **ret_lookout)
{
    struct lookout *lookout = calloc(1, sizeof(*lookout));
    if (!lookout)
        return -ENOMEM;
    lookout->peer = peer;
    lookout->wake = wake;
    lookout->data = data;
    sem_init(&lookout->begun, 0, 0);
    int error = thread_start("reseat-lookout", 0, lookout_look, lookout, &lookout->thread);
    if (error == 0) {
        while (sem_wait(&lookout->begun) != 0)
            ;
        error = lookout->error;
        if (error != 0)
            pthread_join(lookout->thread, NULL);
    }
    if (error != 0) {
        sem_destroy(&lookout->begun);
        free(lookout);
        return error;
    }
    peer->watched = true;
    *ret_lookout = lookout;
    return 0;
}

void lookout_destroy(struct lookout *lookout)
{
    if (!lookout)
        return;
    atomic_store(&lookout->over, true);
    pthread_join(lookout->thread, NULL);
    sem_destroy(&lookout->begun);
    free(lookout);
}
