#include "remote/server/session/greeting.h"

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
/* A new link that does not take the welcome message in this time is dropped. */
#define WELCOME_NS NS_PER_S
/* Extra time for the session's thread to end the session itself after its patience is over. */
#define STUCK_NS (5 * NS_PER_S)

static struct {
    int process; /* The client's pidfd, or -1. Used only by the thread that receives. */
    struct server *server;
    struct session_key key;
    uint32_t patience_s;
    char peer[LINK_PEER_MAX];
    pthread_mutex_t lock; /* Taken before a stream's lock. */
    pthread_cond_t changed;
    /* Guarded by lock: */
    int next;          /* The newest link that was not taken yet, or -1. */
    uint64_t received; /* Frames that the client has received. */
    bool gone;         /* The client's process has ended. */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ---- in the thread that receives from the listening process ---- */

/* Take a new link from the listening process. The session owns @fd from now on. */
static void news_link(int fd, uint64_t received)
{
    pthread_mutex_lock(&state.lock);
    if (state.next >= 0)
        close(state.next);
    state.next = fd;
    state.received = received;
    /* The client connects again only when the old link is broken, so interrupt the stream. This
       cannot interrupt the new link: under the lock, the session's thread has not taken it yet. */
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

/* End the process if its session should have ended but its thread is stuck in a driver. */
static void news_look(void)
{
    uint64_t since = stream_broken_since(&state.server->stream);
    pthread_mutex_lock(&state.lock);
    uint64_t limit = news_patience() + STUCK_NS;
    bool comes = state.next >= 0;
    pthread_mutex_unlock(&state.lock);
    if (since == 0 || clock_now_ns() < since + limit)
        return;
    log_warn("the session of %s was ended: %s, and a driver call does not return", state.peer,
             comes ? "its client has reconnected" : "its client is gone");
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
        _exit(1); /* The listening process has ended, so the session has no right to devices. */
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

/* Wait for the next link, for as long as the session's patience. *ret_received is the number of
   frames that the client has received. */
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
    /* A newer link may have come before the stream was attached. Its interrupt had no effect on the
       detached stream, so interrupt the stream now. */
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
    log_info("the session of %s continues over another link", state.peer);
    return 0;
}
