#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "remote/server/session/server.h"
#include "state/base/clock.h"

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
