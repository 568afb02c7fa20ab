#include "agent/cli/client.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "state/base/files/access.h"

#define HELLO_MS 5000
#define SEND_MS  5000
#define RETRY_MS 20

int client_say_hello(const struct paths *paths, struct client *ret_client)
{
    struct client client = {.fd = agent_connect(paths->socket, paths->user)};
    int result = client.fd < 0 ? client.fd : 0;
    struct frame frame;

    frame_reader_init(&client.reader);
    if (!result) {
        frame_init(&frame, MSG_HELLO);
        frame_u64(&frame, "version", PROTOCOL_VERSION);
        frame_string(&frame, "role", "client");
        result = client_send(&client, &frame);
    }
    if (result)
        client_close(&client);
    *ret_client = client;
    return result;
}

static int client_await_welcome(struct client *client, int64_t until)
{
    struct message message;
    int result = client_receive(client, (int)(until - clock_now_ms()), -1, &message);

    if (result != 1)
        return result ? result : -EPROTO;
    result = field_is(&message.root, "type", MSG_WELCOME) ? 0 : -EPROTO;
    field_text(&message.root, "message", client->problem, sizeof(client->problem));
    message_finish(&message);
    return result;
}

int client_connect(const struct paths *paths, struct client *ret_client)
{
    int64_t until = clock_now_ms() + HELLO_MS;
    int result;

    /* Nothing signals that a full backlog has room again: poll. */
    while ((result = client_say_hello(paths, ret_client)) == -EAGAIN && clock_now_ms() < until)
        clock_sleep(RETRY_MS * NS_PER_MS);
    if (!result)
        result = client_await_welcome(ret_client, until);
    if (result)
        client_close(ret_client);
    return result == -EAGAIN ? -ETIMEDOUT : result;
}

void client_close(struct client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    client->fd = -1;
    frame_reader_finish(&client->reader);
}

/** Wait until one of @polled is ready. 0 (also when interrupted), -ETIMEDOUT or -errno. */
static int client_wait_for(struct pollfd polled[2], int64_t until)
{
    int64_t left = until - clock_now_ms();

    if (left <= 0)
        return -ETIMEDOUT;
    return poll(polled, 2, (int)left) < 0 && errno != EINTR ? -errno : 0;
}

int client_send(struct client *client, struct frame *frame)
{
    int64_t until = clock_now_ms() + SEND_MS;
    int result = frame_seal(frame);
    size_t sent = 0;

    while (!result && sent < frame->buffer.size) {
        ssize_t count =
            send(client->fd, frame->buffer.data + sent, frame->buffer.size - sent, MSG_NOSIGNAL);
        if (count < 0 && errno == EAGAIN) {
            struct pollfd polled[2] = {{.fd = client->fd, .events = POLLOUT}, {.fd = -1}};
            result = client_wait_for(polled, until);
        } else if (count < 0 && errno != EINTR) {
            result = errno == ECONNRESET ? -EPIPE : -errno;
        } else if (count > 0) {
            sent += (size_t)count;
        }
    }
    frame_finish(frame);
    return result;
}

int client_receive(struct client *client, int timeout_ms, int other, struct message *ret_message)
{
    int64_t until = clock_now_ms() + timeout_ms;

    for (;;) {
        char bytes[16384];
        int result = frame_reader_next(&client->reader, ret_message);
        if (result)
            return result == 1 ? 1 : -EPROTO;
        struct pollfd polled[2] = {{.fd = client->fd, .events = POLLIN},
                                   {.fd = other, .events = POLLIN}};
        result = client_wait_for(polled, until);
        if (result)
            return result;
        if (polled[1].revents)
            return 0;
        if (!polled[0].revents)
            continue;
        ssize_t count = recv(client->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (count == 0 || (count < 0 && errno == ECONNRESET))
            return -EPIPE;
        if (count < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
        if (count > 0 && frame_reader_feed(&client->reader, bytes, (size_t)count))
            return -ENOMEM;
    }
}

int client_follow(struct client *client, int patience_ms, int other, struct message *ret_message)
{
    int64_t until = clock_now_ms() + patience_ms;

    for (;;) {
        struct frame frame;
        int result = client_receive(client, patience_ms / 4, other, ret_message);
        if (result == 1 && field_is(&ret_message->root, "type", MSG_AGENT)) {
            message_finish(ret_message);
            until = clock_now_ms() + patience_ms;
            continue;
        }
        if (result != -ETIMEDOUT || clock_now_ms() >= until)
            return result;
        frame_init(&frame, MSG_AGENT);
        result = client_send(client, &frame);
        if (result)
            return result;
    }
}

int client_ask(const struct paths *paths, struct frame *frame, int timeout_ms,
               struct client *ret_client, struct message *ret_message)
{
    int result = client_connect(paths, ret_client);

    if (result)
        frame_finish(frame);
    else
        result = client_send(ret_client, frame);
    return result ? result : client_receive(ret_client, timeout_ms, -1, ret_message);
}
