#include "remote/server/session/resume.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "remote/link/link_unix.h"
#include "state/base/clock.h"
#include "state/base/log.h"

/* A new link takes a welcome at once, or it is none. */
#define WELCOME_NS NS_PER_S
/* The session's own thread has so much longer to notice that its time is over. */
#define STUCK_NS (5 * NS_PER_S)

static struct {
    int process; /* -1: there is none any more. The thread's, as that calls. */
    struct server *server;
    struct session_key key;
    uint32_t patience_s;
    char peer[LINK_PEER_MAX];
    pthread_mutex_t lock; /* Before a stream's. */
    pthread_cond_t changed;
    /* Guarded by lock: */
    int next;          /* The newest link that came and was not taken; -1. */
    uint64_t received; /* Frames that its client has. */
    bool gone;         /* The client's process has ended. */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ---- in the thread ---- */

void resume_link(int fd, uint64_t received)
{
    pthread_mutex_lock(&state.lock);
    if (state.next >= 0)
        close(state.next);
    state.next = fd;
    state.received = received;
    /* The client would not have come if the old one were of use. Nobody has taken the new one,
       which this must not break. */
    stream_interrupt(&state.server->stream);
    pthread_cond_signal(&state.changed);
    pthread_mutex_unlock(&state.lock);
}

int resume_process(void)
{
    return state.process;
}

void resume_process_ended(void)
{
    close(state.process);
    state.process = -1;
    pthread_mutex_lock(&state.lock);
    state.gone = true;
    stream_interrupt(&state.server->stream);
    pthread_cond_signal(&state.changed);
    pthread_mutex_unlock(&state.lock);
}

static uint64_t resume_patience(void)
{
    return state.gone ? 0 : state.patience_s * NS_PER_S;
}

void resume_look(void)
{
    uint64_t since = stream_broken_since(&state.server->stream);
    pthread_mutex_lock(&state.lock);
    uint64_t limit = resume_patience() + STUCK_NS;
    bool comes = state.next >= 0;
    pthread_mutex_unlock(&state.lock);
    if (since == 0 || clock_now_ns() < since + limit)
        return;
    log_warn("the session of %s was ended: %s, and a driver does not return", state.peer,
             comes ? "its client is back" : "its client is gone");
    _exit(0);
}

void resume_init(struct server *server, const struct guest *guest)
{
    state.server = server;
    state.process = guest->process;
    state.key = guest->key;
    state.patience_s = guest->patience_s;
    memcpy(state.peer, guest->peer, sizeof(state.peer));
    state.next = -1;
}

/* ---- in the session's thread ---- */

/* The next link, while the session is patient. Of the client: what it has. */
static int resume_await_next(uint64_t since_ns, int *ret_fd, uint64_t *ret_received)
{
    int error = 0;
    pthread_mutex_lock(&state.lock);
    while (error == 0 && state.next < 0)
        error = resume_patience() == 0
                    ? EPIPE
                    : clock_wait(&state.changed, &state.lock, since_ns + resume_patience());
    if (state.next >= 0)
        error = 0;
    *ret_fd = state.next;
    *ret_received = state.received;
    state.next = -1;
    pthread_mutex_unlock(&state.lock);
    return -error;
}

static int resume_go_on(struct server *server, int fd, uint64_t received)
{
    struct link *link = NULL;
    int error = link_unix_of(fd, &link);
    if (error)
        return error;
    error = greeting_welcome(link, &state.key, state.patience_s, 0, server->stream.received,
                             clock_now_ns() + WELCOME_NS);
    if (error == 0 && !stream_attach(&server->stream, link, received))
        error = -EPROTO;
    if (error) {
        link->ops->destroy(link);
        return error;
    }
    /* One that came meanwhile is newer, and had nothing to break. */
    pthread_mutex_lock(&state.lock);
    if (state.next >= 0 || state.gone)
        stream_interrupt(&server->stream);
    pthread_mutex_unlock(&state.lock);
    return 0;
}

int resume_session(struct server *server)
{
    stream_detach(&server->stream);
    uint64_t since = clock_now_ns();
    if (state.patience_s)
        log_info("the link of %s is broken", state.peer);
    for (;;) {
        uint64_t received = 0;
        int fd = -1;
        int error = resume_await_next(since, &fd, &received);
        if (error)
            return error;
        if (resume_go_on(server, fd, received) == 0)
            break;
    }
    log_info("the session of %s goes on over another link", state.peer);
    return 0;
}
