#include "remote/driver/servers/servers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "state/base/log.h"
#include "state/base/threads/thread.h"

/* Sessions with the servers that RESEAT_SERVER names: servers are separated by blanks, several
 * addresses of one server by commas. Each platform of each server is a platform here, since a
 * program may make a context of all devices of a platform, which devices of different servers or
 * drivers cannot share. */

#define SERVER_ENV  "RESEAT_SERVER"
#define SERVERS_MAX 64

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct platform **all; /* Written once, as is... */
static cl_uint all_count;     /* ...this. */

/* A server that is being connected to. */
struct opening {
    struct client *client; /* NULL: there is no session. */
    const char *address;
    pthread_t thread;
    bool threaded;
};

/* Blocks until the server has told its devices: its drivers may take seconds to start. */
static void *servers_open_server(void *data)
{
    struct opening *opening = data;
    if (client_open(opening->address, NULL, &opening->client))
        opening->client = NULL;
    return NULL;
}

static void servers_add_platforms(const struct client *client)
{
    if (client->platform_count == 0) /* An allocation of 0 bytes may be NULL. */
        return;
    struct platform **more =
        reallocarray(all, all_count + client->platform_count, sizeof(struct platform *));
    if (!more) {
        log_warn("no devices of %s: %s", client->address, strerror(ENOMEM));
        return;
    }
    all = more;
    for (cl_uint i = 0; i < client->platform_count; i++)
        all[all_count++] = &client->platforms[i];
}

/* Connect to all servers at once. Their platforms are listed in the order of the servers. */
static void servers_connect_all(void)
{
    const char *text = getauxval(AT_SECURE) ? NULL : getenv(SERVER_ENV);
    char *copy = text ? strdup(text) : NULL, *rest = copy;
    struct opening openings[SERVERS_MAX] = {0};
    size_t count = 0;
    if (!copy)
        return;
    for (char *word = strsep(&rest, " "); word && count < SERVERS_MAX; word = strsep(&rest, " "))
        if (*word)
            openings[count++] = (struct opening){.address = word};
    for (size_t i = 0; i < count; i++) {
        struct opening *opening = &openings[i];
        opening->threaded = count > 1 && thread_start("reseat-connect", 0, servers_open_server,
                                                      opening, &opening->thread) == 0;
        if (!opening->threaded)
            servers_open_server(opening);
    }
    for (size_t i = 0; i < count; i++) {
        if (openings[i].threaded)
            pthread_join(openings[i].thread, NULL);
        if (openings[i].client)
            servers_add_platforms(openings[i].client);
    }
    free(copy);
}

cl_uint clients_platforms(struct platform ***ret_platforms)
{
    pthread_once(&once, servers_connect_all);
    *ret_platforms = all;
    return all_count;
}

static int servers_open(const char *server, const char *icd, cl_uint room,
                        cl_platform_id *ret_platforms, cl_uint *ret_count)
{
    struct client *client = NULL;
    int error = client_open(server, icd, &client);
    if (error)
        return error;
    cl_uint count = client->platform_count < room ? client->platform_count : room;
    for (cl_uint i = 0; i < count; i++)
        ret_platforms[i] = (cl_platform_id)&client->platforms[i];
    *ret_count = count;
    return 0;
}

int isolate_open(const char *server, const char *icd, cl_uint room, cl_platform_id *ret_platforms,
                 cl_uint *ret_count)
{
    int error = servers_open(server, icd, room, ret_platforms, ret_count);
    return error ? error : *ret_count ? 0 : -ENODEV;
}

void isolate_standby(cl_platform_id platform, bool wanted)
{
    const struct platform *known = platform_get(platform);
    if (known)
        client_keep_standby(known->client, wanted);
}

int plug_open(const char *address, cl_uint room, cl_platform_id *ret_platforms, cl_uint *ret_count)
{
    if (!address || !ret_platforms || room == 0)
        return -EINVAL;
    return servers_open(address, NULL, room, ret_platforms, ret_count);
}

bool plug_ended(cl_platform_id platform)
{
    const struct platform *known = platform_get(platform);
    return !known || client_state(known->client) != CL_SUCCESS;
}

cl_int clIcdGetPlatformIDsKHR(cl_uint num_entries, cl_platform_id *platforms,
                              cl_uint *num_platforms)
{
    struct platform **known = NULL;
    if ((!platforms && !num_platforms) || (platforms && num_entries == 0))
        return CL_INVALID_VALUE;
    cl_uint count = clients_platforms(&known);
    for (cl_uint i = 0; platforms && i < count && i < num_entries; i++)
        platforms[i] = (cl_platform_id)known[i];
    if (num_platforms)
        *num_platforms = count;
    return count ? CL_SUCCESS : CL_PLATFORM_NOT_FOUND_KHR;
}
