#include "agent/client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/config.h"

#define HELLO_MS 5000

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int say_hello(struct client *client)
{
    struct message message;
    struct frame frame;

    frame_init(&frame, MSG_HELLO);
    frame_u64(&frame, "version", PROTOCOL_VERSION);
    frame_string(&frame, "role", "client");
    int result = client_send(client, &frame);
    if (result) {
        return result;
    }
    result = client_receive(client, HELLO_MS, -1, &message);
    if (result != 1) {
        return result ? result : -EPROTO;
    }
    result = field_is(&message.root, "type", MSG_WELCOME) ? 0 : -EPROTO;
    field_string(&message.root, "message", client->problem, sizeof(client->problem));
    message_finish(&message);
    return result;
}

int client_connect(const struct paths *paths, struct client *ret_client)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct client client = {.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};

    frame_reader_init(&client.reader);
    if (client.fd < 0) {
        return -errno;
    }
    memcpy(address.sun_path, paths->socket, sizeof(address.sun_path));
    int result = 0;
    if (connect(client.fd, (const struct sockaddr *)&address, sizeof(address))) {
        result = -errno;
    }
    if (!result) {
        result = say_hello(&client);
    }
    if (result) {
        client_close(&client);
    }
    *ret_client = client;
    return result;
}

void client_close(struct client *client)
{
    if (client->fd >= 0) {
        close(client->fd);
    }
    client->fd = -1;
    frame_reader_finish(&client->reader);
}

int client_send(struct client *client, struct frame *frame)
{
    int result = frame_seal(frame);
    size_t sent = 0;

    while (!result && sent < frame->buffer.size) {
        ssize_t count =
            send(client->fd, frame->buffer.data + sent, frame->buffer.size - sent, MSG_NOSIGNAL);
        if (count < 0 && errno != EINTR) {
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
    int64_t until = now_ms() + timeout_ms;

    for (;;) {
        char bytes[16384];
        int result = frame_reader_next(&client->reader, ret_message);
        if (result) {
            return result == 1 ? 1 : -EPROTO;
        }
        int64_t left = timeout_ms < 0 ? -1 : until - now_ms();
        if (timeout_ms >= 0 && left <= 0) {
            return -ETIMEDOUT;
        }
        struct pollfd polled[2] = {{.fd = client->fd, .events = POLLIN},
                                   {.fd = other, .events = POLLIN}};
        if (poll(polled, 2, (int)left) < 0 && errno != EINTR) {
            return -errno;
        }
        if (polled[1].revents) {
            return 0;
        }
        if (!polled[0].revents) {
            continue;
        }
        ssize_t count = recv(client->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (count == 0 || (count < 0 && errno == ECONNRESET)) {
            return -EPIPE;
        }
        if (count < 0 && errno != EAGAIN && errno != EINTR) {
            return -errno;
        }
        if (count > 0 && frame_reader_feed(&client->reader, bytes, (size_t)count)) {
            return -ENOMEM;
        }
    }
}

/** It says so in its log; what its user wrote is worth more than the place of that. */
static void say_why(int result, char *ret_why, size_t size)
{
    struct config_error error;
    struct config config;

    if (config_load_effective(NULL, 0, &config, &error)) {
        config_error_format(&error, ret_why, size);
        return;
    }
    config_finish(&config);
    snprintf(ret_why, size, "%s", strerror(-result));
}

static int launch(void)
{
    char path[PATH_MAX];
    char daemon[] = "--daemon";
    char *arguments[] = {path, daemon, NULL};
    posix_spawn_file_actions_t actions;
    int status;
    pid_t child;
    int error = paths_agent(path);

    if (error) {
        return error;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    error = -posix_spawn(&child, path, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error) {
        return error;
    }
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            return -errno;
        }
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

int client_launch_agent(char *ret_why, size_t why_size)
{
    int result = launch();

    if (result) {
        say_why(result, ret_why, why_size);
    }
    return result;
}
