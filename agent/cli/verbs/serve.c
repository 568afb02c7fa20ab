#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/cli/verb.h"
#include "agent/config/paths.h"

/* Executes the device server, a separate program, because this program opens no drivers. */

/** The server's command line. Its options have the same names and are passed on unchanged. */
struct serve {
    const char *words[64]; /**< After the path; NULL at the end. */
    size_t count;
};

static int serve_take(struct call *call, const struct verb_option *option, const char *text)
{
    struct serve *serve = call->options;
    char *name;

    if (serve->count + 4 > ARRAY_SIZE(serve->words) || asprintf(&name, "--%s", option->name) < 0)
        return output_usage(&call->output, "too many options");
    serve->words[serve->count++] = name;
    if (text)
        serve->words[serve->count++] = text;
    return 0;
}

static const struct verb_option serve_options[] = {
    {"device", "NAME", "Offer only the device with this driver name.", .take = serve_take},
    {"memory", "SIZE",
     "Address space of each client's process, such as 64GiB. With --issue: device memory of each "
     "of its sessions.",
     .take = serve_take},
    {"clients", "NUMBER", "Clients at once. Default: 256.", .take = serve_take},
    {"announce", NULL,
     "Announce the server in the local network (mDNS, by Avahi) under the names of machine and "
     "port. Clients still need a certificate.",
     .take = serve_take},
    {"ca", "FOLDER", "Folder of the private authority. Default: ~/.config/reseat/ca.",
     .take = serve_take},
    {"init-ca", NULL, "Create this server's private authority, which tcp and vsock need.",
     .take = serve_take},
    {"name", "NAME", "With --init-ca: name of the server. Default: the machine's.",
     .take = serve_take},
    {"issue", "NAME", "Create a certificate for a client, and write its credentials to NAME.pem.",
     .take = serve_take},
    {"out", "FILE", "With --issue: the file for them.", .take = serve_take},
    {"days", "NUMBER", "With --issue: validity in days. Default: 365.", .take = serve_take},
    {"devices", "LIST", "With --issue: the devices it may use, such as gpu0,gpu1. Default: all.",
     .take = serve_take},
    {"sessions", "NUMBER", "With --issue: sessions that it may have at once.", .take = serve_take},
    {"share", "NUMBER",
     "With --issue: weight, 1 to 1000, when clients compete for a device's time. Default: 100.",
     .take = serve_take},
    {"reserve", "SIZE", "Memory of each device that no client gets. Default: one sixty-fourth.",
     .take = serve_take},
    {"local-memory", "SIZE", "Device memory of each session by a Unix socket.", .take = serve_take},
    {"local-sessions", "NUMBER", "Sessions by Unix sockets that a user may have at once.",
     .take = serve_take},
    {"local-share", "NUMBER", "Weight of each session by a Unix socket, as --share.",
     .take = serve_take},
    {"no-sandbox", NULL,
     "Do not confine the processes of sessions, for a driver that cannot run confined: "
     "reseat-serve(8).",
     .take = serve_take},
    {"for-server", NULL, "With --issue: the certificate is for another server.",
     .take = serve_take},
    {"revoke", "NAME", "Revoke a certificate, and end its sessions.", .take = serve_take},
    {0},
};

static int serve_run(struct call *call)
{
    struct serve *serve = call->options;
    const char *words[ARRAY_SIZE(serve->words) + 4];
    char path[PATH_MAX];
    size_t count = 0;

    if (paths_of(PATHS_SERVER, path))
        return output_fail(&call->output, ERR_FAILED, "reseat-serve is not beside this binary: %s",
                           path);
    words[count++] = path;
    if (call->count) {
        words[count++] = "--listen";
        words[count++] = call->words[0];
    }
    memcpy(words + count, serve->words, (serve->count + 1) * sizeof(*words));
    fflush(stdout);
    execv(path, (char *const *)words);
    return output_fail(&call->output, ERR_FAILED, "%s cannot be run: %s", path, strerror(errno));
}

const struct verb verb_serve = {
    .name = "serve",
    .arguments = "[ADDRESS]",
    .summary = "Offer this machine's devices to programs through the driver libreseat-remote.so.",
    .text =
        "ADDRESS is unix:PATH, in a folder that is yours alone, tcp:HOST:PORT or vsock:CID:PORT; "
        "programs name it in RESEAT_SERVER. The drivers of each client are opened in a process of "
        "its own. Without ADDRESS: one of --init-ca, --issue and --revoke. See reseat-serve(8).",
    .options = serve_options,
    .size = sizeof(struct serve),
    .plain = true,
    .run = serve_run,
};
