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
    const char *device, *memory, *clients; /**< NULL: not said. */
};

static const struct verb_option serve_options[] = {
    {"device", "NAME", "Offer only the device that its driver calls so.",
     OPTION_VALUE(struct serve, device)},
    {"memory", "SIZE", "What the process of each client may have of addresses, such as 64GiB.",
     OPTION_VALUE(struct serve, memory)},
    {"clients", "NUMBER", "Turn clients away beyond as many. Default: 256.",
     OPTION_VALUE(struct serve, clients)},
    {0},
};

static int run(struct call *call)
{
    const struct serve *serve = call->options;
    char path[PATH_MAX];
    const char *words[10] = {path, "--listen", call->words[0]};
    size_t count = 3;
    const struct {
        const char *name, *value;
    } options[] = {
        {"--device", serve->device}, {"--memory", serve->memory}, {"--clients", serve->clients}};

    if (paths_server(path))
        return output_fail(&call->output, ERR_FAILED, "reseat-serve is not beside this binary: %s",
                           path);
    for (size_t i = 0; i < ARRAY_SIZE(options); i++)
        if (options[i].value) {
            words[count++] = options[i].name;
            words[count++] = options[i].value;
        }
    fflush(stdout);
    execv(path, (char *const *)words);
    return output_fail(&call->output, ERR_FAILED, "%s cannot be run: %s", path, strerror(errno));
}

const struct verb verb_serve = {
    .name = "serve",
    .arguments = "ADDRESS",
    .summary = "Offer this machine's devices to programs through the driver libreseat-remote.so.",
    .text = "ADDRESS is unix:PATH, in a folder that is yours alone; programs name it in "
            "RESEAT_SERVER. Each has a process of its own there, in which its drivers are opened. "
            "See reseat-serve(8).",
    .options = serve_options,
    .size = sizeof(struct serve),
    .plain = true,
    .run = run,
};
