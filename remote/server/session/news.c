#include "remote/server/session/news.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "remote/link/link.h"
#include "remote/server/listener/channel.h"
#include "remote/server/session/binary.h"
#include "remote/server/session/pacing.h"
#include "remote/server/session/peer_copy.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/thread.h"

#define LAST_MESSAGE_NS NS_PER_S
#define LOOK_MS         1000
/* A new link takes a welcome at once, or it is none. */
#define WELCOME_NS NS_PER_S
/* The session's own thread has so much longer to notice that its time is over. */
#define STUCK_NS (5 * NS_PER_S)

static struct {
    int process; /* What hangs up when the client's process ends; -1: nothing. The thread's. */
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

/* ---- in the thread that hears ---- */

/* The listening process handed a link over, which is the session's from now on. */
static void news_link(int fd, uint64_t received)
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

static void news_process_ended(void)
{
    close(state.process);
    state.process = -1;
    pthread_mutex_lock(&state.lock);
    state.gone = true;
    stream_interrupt(&state.server->stream);
    pthread_cond_signal(&state.changed);
    pthread_mutex_unlock(&state.lock);
}

static uint64_t news_patience(void)
{
    return state.gone ? 0 : state.patience_s * NS_PER_S;
}

/* End a session that should have ended, and cannot. */
static void news_look(void)
{
    uint64_t since = stream_broken_since(&state.server->stream);
    pthread_mutex_lock(&state.lock);
    uint64_t limit = news_patience() + STUCK_NS;
    bool comes = state.next >= 0;
    pthread_mutex_unlock(&state.lock);
    if (since == 0 || clock_now_ns() < since + limit)
        return;
    log_warn("the session of %s was ended: %s, and a driver does not return", state.peer,
             comes ? "its client is back" : "its client is gone");
    _exit(0);
}

static _Noreturn void news_end_session(struct server *server, uint64_t why)
{
    const char *reason = endings[why < ENDINGS ? why : ENDED_BY_OPERATOR];
    uint64_t deadline = clock_now_ns() + LAST_MESSAGE_NS;
    if (!post_ended(&server->stream, &(struct msg_ended){.reason = reason})) {
        stream_flush(&server->stream);
        while (!stream_is_sent(&server->stream) && clock_now_ns() < deadline)
            clock_sleep(NS_PER_MS);
    }
    log_info("the session ended: %s", reason);
    _exit(0);
}

static void news_tell_free(struct server *server, const struct channel_message *message)
{
    if (!atomic_load(&server->told))
        return;
    for (uint32_t i = 0; i < server->device_count; i++)
        if (server->numbers[i] == message->device)
            (void)!post_free_memory(&server->stream,
                                    &(struct msg_free_memory){.device = id_make(ID_DEVICE, 0, i),
                                                              .bytes = message->bytes});
}

static void news_take(struct server *server, const struct channel_message *message)
{
    switch ((enum channel_kind)message->kind) {
    case CHANNEL_PROMISE:
        server_promised(server, message);
        return;
    case CHANNEL_FREE:
        news_tell_free(server, message);
        return;
    case CHANNEL_KEPT:
        binary_told(message, -1);
        return;
    case CHANNEL_TIMESLICE:
    case CHANNEL_RECALL:
    case CHANNEL_LOST:
        pacing_hear(server, message);
        return;
    case CHANNEL_END:
        news_end_session(server, message->why);
    default:
        return;
    }
}

static void news_take_message(struct server *server)
{
    struct channel_message message;
    int fd = -1;
    int error = channel_receive(server->channel, &message, sizeof(message), &fd);
    if (error == -EAGAIN)
        return;
    if (error)
        _exit(1); /* The server is gone, and so are its devices. */
    if (fd < 0)
        news_take(server, &message);
    else if (message.kind == CHANNEL_LINK)
        news_link(fd, message.received);
    else if (message.kind == CHANNEL_TICKET)
        peer_copy_meet(fd);
    else if (message.kind == CHANNEL_KEPT)
        binary_told(&message, fd);
    else
        close(fd);
}

static void *news_hear_one(void *data)
{
    struct server *server = data;
    for (;;) {
        struct pollfd polls[] = {{.fd = server->channel, .events = POLLIN},
                                 {.fd = state.process, .events = POLLIN}};
        int soon = pacing_tick();
        if (poll(polls, ARRAY_SIZE(polls), soon < 0 ? LOOK_MS : soon) > 0) {
            if (polls[0].revents)
                news_take_message(server);
            if (polls[1].revents)
                news_process_ended();
        }
        news_look();
    }
    return NULL;
}

int news_hear(struct server *server, const struct guest *guest)
{
    state.server = server;
    state.process = guest->process;
    state.key = guest->key;
    state.patience_s = guest->patience_s;
    memcpy(state.peer, guest->peer, sizeof(state.peer));
    state.next = -1;
    return thread_start("reseat-news", 0, news_hear_one, server, NULL);
}

/* ---- in the session's thread ---- */

/* The next link, while the session is patient. Of the client: what it has. */
static int news_await_next(uint64_t since_ns, int *ret_fd, uint64_t *ret_received)
{
    int error = 0;
    pthread_mutex_lock(&state.lock);
    while (error == 0 && state.next < 0)
        error = news_patience() == 0
                    ? EPIPE
                    : clock_wait(&state.changed, &state.lock, since_ns + news_patience());
    if (state.next >= 0)
        error = 0;
    *ret_fd = state.next;
    *ret_received = state.received;
    state.next = -1;
    pthread_mutex_unlock(&state.lock);
    return -error;
}

static int news_go_on(struct server *server, int fd, uint64_t received)
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

int news_resume(struct server *server)
{
    stream_detach(&server->stream);
    uint64_t since = clock_now_ns();
    if (state.patience_s)
        log_info("the link of %s is broken", state.peer);
    for (;;) {
        uint64_t received = 0;
        int fd = -1;
        int error = news_await_next(since, &fd, &received);
        if (error)
            return error;
        if (news_go_on(server, fd, received) == 0)
            break;
    }
    log_info("the session of %s goes on over another link", state.peer);
    return 0;
}
