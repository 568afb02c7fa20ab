#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/cli/verb.h"
#include "agent/config/paths.h"

/* It becomes the device server, which is a program of its own: no part of this one opens drivers.
 */

struct serve {
    const char *ca, *device, *memory, *clients; /**< NULL: not said. */
    const char *name, *issue, *out, *days, *devices, *sessions, *revoke;
    const char *reserve, *share, *local_memory, *local_sessions, *local_share;
    bool init, for_server, announce, no_sandbox;
};

static const struct verb_option serve_options[] = {
    {"device", "NAME", "Offer only the device that its driver calls so.",
     OPTION_VALUE(struct serve, device)},
    {"memory", "SIZE",
     "What the process of each client may have of addresses, such as 64GiB. With --issue: what "
     "each "
     "of its sessions may have of the devices' memory.",
     OPTION_VALUE(struct serve, memory)},
    {"clients", "NUMBER", "Turn clients away beyond as many. Default: 256.",
     OPTION_VALUE(struct serve, clients)},
    {"announce", NULL,
     "Announce the server in the local network (mDNS), where Avahi runs, by the names of machine "
     "and "
     "port. That lets nobody in who has no certificate.",
     OPTION_VALUE(struct serve, announce)},
    {"ca", "FOLDER", "The private authority's folder. Default: ~/.config/reseat/ca.",
     OPTION_VALUE(struct serve, ca)},
    {"init-ca", NULL, "Make this server's private authority, which tcp and vsock need.",
     OPTION_VALUE(struct serve, init)},
    {"name", "NAME", "With --init-ca: what the server is called. Default: as the machine.",
     OPTION_VALUE(struct serve, name)},
    {"issue", "NAME", "Make a client's certificate and write its credentials to NAME.pem.",
     OPTION_VALUE(struct serve, issue)},
    {"out", "FILE", "With --issue: write them there.", OPTION_VALUE(struct serve, out)},
    {"days", "NUMBER", "With --issue: how long it counts. Default: 365.",
     OPTION_VALUE(struct serve, days)},
    {"devices", "LIST", "With --issue: the devices it is for, such as gpu0,gpu1. Default: all.",
     OPTION_VALUE(struct serve, devices)},
    {"sessions", "NUMBER", "With --issue: how many sessions it may have at once.",
     OPTION_VALUE(struct serve, sessions)},
    {"share", "NUMBER",
     "With --issue: its weight where clients compete for a device's time, 1 to 1000. Default: 100.",
     OPTION_VALUE(struct serve, share)},
    {"reserve", "SIZE",
     "Of each device's memory, what no client is promised. Default: a sixty-fourth.",
     OPTION_VALUE(struct serve, reserve)},
    {"local-memory", "SIZE", "Of each session by a Unix socket, as --memory of --issue.",
     OPTION_VALUE(struct serve, local_memory)},
    {"local-sessions", "NUMBER", "By Unix sockets, as many sessions of a user at once.",
     OPTION_VALUE(struct serve, local_sessions)},
    {"local-share", "NUMBER", "Of each session by a Unix socket, as --share of --issue.",
     OPTION_VALUE(struct serve, local_share)},
    {"no-sandbox", NULL,
     "Let sessions' processes do what you may, for a driver that needs it: reseat-serve(8).",
     OPTION_VALUE(struct serve, no_sandbox)},
    {"for-server", NULL, "With --issue: it is for another server, not a client.",
     OPTION_VALUE(struct serve, for_server)},
    {"revoke", "NAME", "Let a certificate not count any more, and end the sessions that it has.",
     OPTION_VALUE(struct serve, revoke)},
    {0},
};

static int serve_run(struct call *call)
{
    const struct serve *serve = call->options;
    const struct {
        const char *name, *value;
    } options[] = {
        {"--listen", call->count ? call->words[0] : NULL},
        {"--device", serve->device},
        {"--memory", serve->memory},
        {"--clients", serve->clients},
        {"--ca", serve->ca},
        {"--name", serve->name},
        {"--issue", serve->issue},
        {"--out", serve->out},
        {"--days", serve->days},
        {"--devices", serve->devices},
        {"--sessions", serve->sessions},
        {"--revoke", serve->revoke},
        {"--share", serve->share},
        {"--reserve", serve->reserve},
        {"--local-memory", serve->local_memory},
        {"--local-sessions", serve->local_sessions},
        {"--local-share", serve->local_share},
    };
    char path[PATH_MAX];
    const char *words[2 * ARRAY_SIZE(options) + 6] = {path};
    size_t count = 1;

    if (paths_server(path))
        return output_fail(&call->output, ERR_FAILED, "reseat-serve is not beside this binary: %s",
                           path);
    for (size_t i = 0; i < ARRAY_SIZE(options); i++)
        if (options[i].value) {
            words[count++] = options[i].name;
            words[count++] = options[i].value;
        }
    if (serve->init)
        words[count++] = "--init-ca";
    if (serve->announce)
        words[count++] = "--announce";
    if (serve->no_sandbox)
        words[count++] = "--no-sandbox";
    if (serve->for_server)
        words[count++] = "--for-server";
    fflush(stdout);
    execv(path, (char *const *)words);
    return output_fail(&call->output, ERR_FAILED, "%s cannot be run: %s", path, strerror(errno));
}

const struct verb verb_serve = {
    .name = "serve",
    .arguments = "[ADDRESS]",
    .summary = "Offer this machine's devices to programs through the driver libreseat-remote.so.",
    .text = "ADDRESS is unix:PATH, in a folder that is yours alone, tcp:HOST:PORT or "
            "vsock:CID:PORT; programs name it in RESEAT_SERVER. Each has a process of its own "
            "there, in which its drivers are opened. Without ADDRESS it does one thing for the "
            "private authority: --init-ca, --issue or --revoke. See reseat-serve(8).",
    .options = serve_options,
    .size = sizeof(struct serve),
    .plain = true,
    .run = serve_run,
};
