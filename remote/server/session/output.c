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

/* With so much on its way to the client, what kernels print stays in the pipe, and then they wait.
 */
#define PRINTED_MAX (4u << 20)
#define LOOK_NS     (5 * NS_PER_MS)

/*
 * What kernels print (printf), a driver writes to the standard output of its process. Here that is
 * a pipe, and what comes out of it goes to the client: at the latest before it is told that the
 * command has ended, so that it is in its place among what the program prints.
 */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* What is read is posted in that order. */
static int capacity;                                     /* Bytes of the pipe. */
static int output = -1;                                  /* The end that is read; never blocks. */

void server_print(struct server *server)
{
    char bytes[4096];
    ssize_t count;
    if (output < 0)
        return;
    pthread_mutex_lock(&lock);
    /* No more than there was: another kernel may print all the time. */
    for (int left = capacity; left > 0 && (count = read(output, bytes, sizeof(bytes))) > 0;
         left -= (int)count)
        (void)!post_printed(&server->stream,
                            &(struct msg_printed){.bytes = bytes, .bytes_size = (uint64_t)count});
    pthread_mutex_unlock(&lock);
}

/* So that no kernel waits for somebody to read, unless its client does not. */
static void *output_read_output(void *data)
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
    return thread_start("reseat-output", 0, output_read_output, server, NULL);
}

#define WAIT_NS       (10 * NS_PER_S)
#define VARIABLES_MAX 4096

/* What is this server's stays: its own settings, and where its log goes. */
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

/* The folder, and then variables. Each is whole: the last one, too, ends with NUL. */
static int environment_take(const char *text, uint64_t size)
{
    const char *end = text + size;
    size_t count = 0;
    if (size == 0 || end[-1] != '\0' || text[0] != '/')
        return -EPROTO;
    /* A folder that is not there any more is none that options could name. */
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
    server_wrong(server, "it says twice where drivers are opened");
}
