#include "remote/server/session/news.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "remote/server/listener/channel.h"
#include "remote/server/session/binary.h"
#include "remote/server/session/pacing.h"
#include "remote/server/session/peer_copy.h"
#include "remote/server/session/resume.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/thread.h"

#define LAST_MESSAGE_NS NS_PER_S
#define LOOK_MS         1000

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
        resume_link(fd, message.received);
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
                                 {.fd = resume_process(), .events = POLLIN}};
        int soon = pacing_tick();
        if (poll(polls, ARRAY_SIZE(polls), soon < 0 ? LOOK_MS : soon) > 0) {
            if (polls[0].revents)
                news_take_message(server);
            if (polls[1].revents)
                resume_process_ended();
        }
        resume_look();
    }
    return NULL;
}

int news_hear(struct server *server, const struct guest *guest)
{
    resume_init(server, guest);
    return thread_start("reseat-news", 0, news_hear_one, server, NULL);
}
