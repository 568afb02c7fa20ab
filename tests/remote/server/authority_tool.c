#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "remote/server/listener/authority.h"

/*
 * What `reseat serve` does for its authority, alone: for scripts and tests that need certificates
 * and no server. Exit status 0, 1, or 2 for options that do not go together.
 */

enum { CA = 1, INIT, NAME, ISSUE, FOR_SERVER, DEVICES, MEMORY, SESSIONS, DAYS, OUT, REVOKE };

static const struct option rows[] = {
    {"ca", required_argument, NULL, CA},           {"init-ca", no_argument, NULL, INIT},
    {"name", required_argument, NULL, NAME},       {"issue", required_argument, NULL, ISSUE},
    {"for-server", no_argument, NULL, FOR_SERVER}, {"devices", required_argument, NULL, DEVICES},
    {"memory", required_argument, NULL, MEMORY},   {"sessions", required_argument, NULL, SESSIONS},
    {"days", required_argument, NULL, DAYS},       {"out", required_argument, NULL, OUT},
    {"revoke", required_argument, NULL, REVOKE},   {NULL},
};

static int take(struct authority_options *options, int which)
{
    const char **const texts[] = {
        [CA] = &options->ca,           [NAME] = &options->name,     [ISSUE] = &options->issue,
        [DEVICES] = &options->devices, [MEMORY] = &options->memory, [OUT] = &options->out,
        [REVOKE] = &options->revoke};

    if (which == INIT)
        options->init = true;
    else if (which == FOR_SERVER)
        options->for_server = true;
    else if (which == SESSIONS)
        options->sessions = strtoull(optarg, NULL, 10);
    else if (which == DAYS)
        options->days = strtoull(optarg, NULL, 10);
    else if (which > 0 && which <= REVOKE)
        *texts[which] = optarg;
    else
        return -EINVAL;
    return 0;
}

int main(int argc, char **argv)
{
    struct authority_options options = {.ca = NULL};
    char text[AUTHORITY_TEXT_MAX];
    int which;

    while ((which = getopt_long(argc, argv, "", rows, NULL)) != -1)
        if (take(&options, which))
            return 2;
    int error = authority_run(&options, text);
    fprintf(error ? stderr : stdout, "%s\n", text);
    return error == 0 ? 0 : error == -EINVAL ? 2 : 1;
}
