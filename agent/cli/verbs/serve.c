#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/cli/verb.h"

/* Executes a server, which is a separate program: this one opens no drivers. */

/** The server's command line. Its options have the same names and are passed on unchanged. */
struct serve {
    const char *words[64]; /**< After the path; NULL at the end. */
    size_t count;
};

static void serve_add(struct serve *serve, const char *word)
{
    if (serve->count + 1 < ARRAY_SIZE(serve->words))
        serve->words[serve->count++] = word;
}

static int serve_take(struct call *call, const struct option_row *option, const char *text)
{
    struct serve *serve = call->options;
    char *name;

    if (asprintf(&name, "--%s", option->name) < 0)
        return output_usage(&call->output, "too many options");
    serve_add(serve, name);
    if (text)
        serve_add(serve, text);
    return 0;
}

/** Execute the server at @path. */
static int serve_execute(struct call *call, const char *path)
{
    struct serve *serve = call->options;
    const char *words[ARRAY_SIZE(serve->words) + 1] = {path};

    for (size_t i = 0; i < call->count; i++) {
        serve_add(serve, "--listen");
        serve_add(serve, call->words[i]);
    }
    if (serve->count + 1 == ARRAY_SIZE(serve->words))
        return output_usage(&call->output, "too many options");
    memcpy(words + 1, serve->words, serve->count * sizeof(*words));
    fflush(stdout);
    execv(path, (char *const *)words);
    return output_fail(&call->output, ERR_FAILED, "%s cannot be run: %s", path, strerror(errno));
}

static const struct option_row serve_options[] = {
    {"device", "NAME", "Offer only the device with this driver name."},
    {"memory", "SIZE",
     "Address space of each client's process, such as 64GiB. With --issue: device memory of each "
     "of its sessions."},
    {"clients", "NUMBER", "Clients at once. Default: 256."},
    {"announce", NULL,
     "Announce the server in the local network (mDNS, by Avahi) under the names of machine and "
     "port. Clients still need a certificate."},
    {"ca", "FOLDER", "Folder of the private authority. Default: ~/.config/reseat/ca."},
    {"init-ca", NULL, "Create this server's private authority, which tcp and vsock need."},
    {"name", "NAME", "With --init-ca: name of the server. Default: the machine's."},
    {"issue", "NAME", "Create a certificate for a client, and write its credentials to NAME.pem."},
    {"out", "FILE", "With --issue: the file for them."},
    {"days", "NUMBER", "With --issue: validity in days. Default: 365."},
    {"devices", "LIST", "With --issue: the devices it may use, such as gpu0,gpu1. Default: all."},
    {"sessions", "NUMBER", "With --issue: sessions that it may have at once."},
    {"share", "NUMBER",
     "With --issue: weight, 1 to 1000, when clients compete for a device's time. Default: 100."},
    {"reserve", "SIZE", "Memory of each device that no client gets. Default: one sixty-fourth."},
    {"local-memory", "SIZE", "Device memory of each session by a Unix socket."},
    {"local-sessions", "NUMBER", "Sessions by Unix sockets that a user may have at once."},
    {"local-share", "NUMBER", "Weight of each session by a Unix socket, as --share."},
    {"no-sandbox", NULL,
     "Do not confine the processes of sessions, for a driver that cannot run confined: "
     "reseat-serve(8)."},
    {"for-server", NULL, "With --issue: the certificate is for another server."},
    {"revoke", "NAME", "Revoke a certificate, and end its sessions."},
    {0},
};

static int serve_run(struct call *call)
{
    char path[PATH_MAX];

    return paths_of(PATHS_SERVER, path)
               ? output_fail(&call->output, ERR_FAILED,
                             "reseat-serve is not installed beside this binary; reinstall reseat, "
                             "or name it in RESEAT_SERVE")
               : serve_execute(call, path);
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
    .take = serve_take,
    .size = sizeof(struct serve),
    .plain = true,
    .run = serve_run,
};

static const struct option_row stream_serve_options[] = {
    {"kernels", "FOLDER",
     "A folder of kernels: NAME.stream and NAME.cl. May be given several times; searched before "
     "those that are installed."},
    {"ca", "FOLDER", "Folder of the private authority, for tcp. Default: ~/.config/reseat/ca."},
    {"streams", "NUMBER", "Streams at once. Default: 64."},
    {"ready", "TIME",
     "How long a stream may take to open its device and to build its kernel. Default: 120."},
    {"patience", "TIME",
     "How long a client with a certificate may stop in the middle of a frame. Default: 600."},
    {"linger", "TIME",
     "End after so long without a client. Default: never; 60 where reseat stream run started it."},
    {0},
};

static int serve_run_stream(struct call *call)
{
    struct serve *serve = call->options;
    char service[PATH_MAX], worker[PATH_MAX], own[PATH_MAX], kernels[PATH_MAX];

    if (paths_own(own) || paths_of(PATHS_STREAM, service) || paths_of(PATHS_STREAM_WORKER, worker))
        return output_fail(&call->output, ERR_FAILED,
                           "reseat-streamd and reseat-stream-worker are not installed beside this "
                           "binary");
    const char *const words[] = {"--reseat", own, "--worker", worker};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        serve_add(serve, words[i]);
    if (!paths_of(PATHS_KERNELS, kernels)) {
        serve_add(serve, "--kernels");
        serve_add(serve, kernels);
    }
    return serve_execute(call, service);
}

const struct verb verb_stream_serve = {
    .name = "stream serve",
    .arguments = "[ADDRESS...]",
    .summary = "Offer kernels as streams of records to programs that know no OpenCL.",
    .text = "ADDRESS is unix:PATH, in a folder that is yours alone, or tcp:HOST:PORT, for clients "
            "with a certificate (reseat serve --issue). Default: unix:stream.sock in the runtime "
            "folder, or RESEAT_STREAM. Each stream is a program of its own: reseat ps, move, "
            "suspend, drain, limit and explain work on it.",
    .options = stream_serve_options,
    .take = serve_take,
    .size = sizeof(struct serve),
    .plain = true,
    .run = serve_run_stream,
};
