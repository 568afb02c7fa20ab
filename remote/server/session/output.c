#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "remote/server/session/server.h"
#include "state/base/clock.h"
#include "state/base/threads/thread.h"

/* Bytes queued for the client above which kernels' output is left in the pipe. When the pipe is
   full, too, kernels that print block. */
#define PRINTED_MAX (4u << 20)
#define LOOK_NS     (5 * NS_PER_MS)

/*
 * A driver writes the output of printf() in kernels to the standard output of its process. In a
 * session that is a pipe, whose contents are sent to the client. The output of a command is sent
 * before the message that the command has ended, so that it appears in the right order with the
 * program's own output.
 */

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* Keeps the order of reads in the posts. */
static int capacity;           /* Of the pipe, in bytes. */
static int output = -1;        /* Read end of the pipe; does not block. */

void server_print(struct server *server)
{
    char bytes[4096];
    ssize_t count;
    if (output < 0)
        return;
    pthread_mutex_lock(&lock);
    /* Read at most one full pipe: another kernel may print without end. */
    for (int left = capacity; left > 0 && (count = read(output, bytes, sizeof(bytes))) > 0;
         left -= (int)count)
        (void)!post_printed(&server->stream,
                            &(struct msg_printed){.bytes = bytes, .bytes_size = (uint64_t)count});
    pthread_mutex_unlock(&lock);
}

/* Drain the pipe all the time, so that a kernel blocks only when the client does not read. */
static void *output_read(void *data)
{
    struct server *server = data;
    struct pollfd ready = {.fd = output, .events = POLLIN};
    while (poll(&ready, 1, -1) >= 0 || errno == EINTR)
        if (stream_waiting(&server->stream) < PRINTED_MAX)
            server_print(server);
        else
            clock_sleep(LOOK_NS);
    return NULL;
}

int server_catch_output(struct server *server)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return -errno;
    if (dup2(ends[1], STDOUT_FILENO) < 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK))
        return -errno;
    close(ends[1]);
    capacity = fcntl(ends[0], F_GETPIPE_SZ);
    output = ends[0];
    return thread_start("reseat-output", 0, output_read, server, NULL);
}

#define WAIT_NS       (10 * NS_PER_S)
#define VARIABLES_MAX 4096

/* Clear the environment, but keep the server's own settings (RESEAT_...). */
static void environment_forget(void)
{
    char *kept[64] = {0};
    size_t count = 0;
    for (char **at = environ; *at && count < ARRAY_SIZE(kept); at++)
        if (strncmp(*at, "RESEAT_", strlen("RESEAT_")) == 0)
            kept[count++] = *at;
    clearenv();
    for (size_t i = 0; i < count; i++)
        putenv(kept[i]);
}

/* @text is the client's working directory and then its variables. Each string, also the last one,
   ends with NUL. */
static int environment_take(const char *text, uint64_t size)
{
    const char *end = text + size;
    size_t count = 0;
    if (size == 0 || end[-1] != '\0' || text[0] != '/')
        return -EPROTO;
    /* If the directory no longer exists, no build option can refer to files in it. */
    (void)!chdir(text);
    environment_forget();
    while ((text += strlen(text) + 1) < end) {
        const char *value = strchr(text, '=');
        if (!value || value == text || ++count > VARIABLES_MAX)
            return -EPROTO;
        char *name = strndup(text, (size_t)(value - text));
        int error = name && setenv(name, value + 1, 1) == 0 ? 0 : -ENOMEM;
        free(name);
        if (error)
            return error;
    }
    return 0;
}

int server_take_environment(struct server *server)
{
    struct msg_environment environment;
    struct message message;
    int error = stream_receive(&server->stream, WAIT_NS, &message);
    if (error)
        return error;
    struct unpack body = {message.body, message.body + message.size, false};
    if (message.type != MSG_ENVIRONMENT || !unpack_environment(&body, &environment))
        return -EPROTO;
    return environment_take(environment.texts, environment.texts_size);
}

void server_environment(struct server *server, const struct msg_environment *message)
{
    (void)message;
    server_wrong(server, "it sent a second environment");
}
