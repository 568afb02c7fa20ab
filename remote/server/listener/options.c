#include "remote/server/listener/options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "remote/link/link.h"
#include "state/base/bytes/size.h"

#define CLIENTS_MAX  65536
#define LINGER_MAX_S 86400
/* Sessions never wait longer than a week for another link. */
#define PATIENCE_MAX_S (7 * 24 * 3600)

int options_usage(void)
{
    fprintf(stderr, "usage: reseat-serve [--ca FOLDER] [--listen ADDRESS]... [--device NAME]...\n"
                    "                    [--memory SIZE] [--clients NUMBER] [--patience SECONDS]\n"
                    "                    [--reserve SIZE] [--local-memory SIZE] [--local-sessions "
                    "NUMBER]\n"
                    "                    [--local-share NUMBER] [--no-sandbox] [--linger SECONDS]\n"
                    "                    [--inherit DESCRIPTOR] [--while PROCESS] [--announce]\n"
                    "                    [--show-denied]\n"
                    "       reseat-serve [--ca FOLDER] --init-ca [--name NAME]\n"
                    "       reseat-serve [--ca FOLDER] --issue NAME [--out FILE] [--days NUMBER]\n"
                    "                    [--devices LIST] [--memory SIZE] [--sessions NUMBER] "
                    "[--share NUMBER]\n"
                    "                    [--for-server]\n"
                    "       reseat-serve [--ca FOLDER] --revoke NAME\n");
    return 2;
}

enum {
    LISTEN = 1,
    DEVICE,
    PATIENCE,
    MEMORY,
    CLIENTS,
    CA,
    INIT,
    NAME,
    ISSUE,
    FOR_SERVER,
    DEVICES,
    SESSIONS,
    DAYS,
    OUT,
    REVOKE,
    RESERVE,
    SHARE,
    LOCAL_MEMORY,
    LOCAL_SESSIONS,
    LOCAL_SHARE,
    NO_SANDBOX,
    LINGER,
    INHERIT,
    WHILE,
    ANNOUNCE,
    SHOW_DENIED
};

static const struct option rows[] = {
    {"listen", required_argument, NULL, LISTEN},
    {"device", required_argument, NULL, DEVICE},
    {"memory", required_argument, NULL, MEMORY},
    {"clients", required_argument, NULL, CLIENTS},
    {"patience", required_argument, NULL, PATIENCE},
    {"ca", required_argument, NULL, CA},
    {"init-ca", no_argument, NULL, INIT},
    {"name", required_argument, NULL, NAME},
    {"issue", required_argument, NULL, ISSUE},
    {"for-server", no_argument, NULL, FOR_SERVER},
    {"devices", required_argument, NULL, DEVICES},
    {"sessions", required_argument, NULL, SESSIONS},
    {"days", required_argument, NULL, DAYS},
    {"out", required_argument, NULL, OUT},
    {"revoke", required_argument, NULL, REVOKE},
    {"reserve", required_argument, NULL, RESERVE},
    {"share", required_argument, NULL, SHARE},
    {"local-memory", required_argument, NULL, LOCAL_MEMORY},
    {"local-sessions", required_argument, NULL, LOCAL_SESSIONS},
    {"local-share", required_argument, NULL, LOCAL_SHARE},
    {"no-sandbox", no_argument, NULL, NO_SANDBOX},
    {"linger", required_argument, NULL, LINGER},
    {"inherit", required_argument, NULL, INHERIT},
    {"while", required_argument, NULL, WHILE},
    {"announce", no_argument, NULL, ANNOUNCE},
    {"show-denied", no_argument, NULL, SHOW_DENIED},
    {NULL},
};

/* A number from 0 to @most. */
static bool options_read_any_number(const char *text, uint64_t most, uint64_t *ret_number)
{
    char *end = NULL;
    errno = 0;
    *ret_number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && errno == 0 && *ret_number <= most;
}

static bool options_read_number(const char *text, uint64_t most, uint64_t *ret_number)
{
    return options_read_any_number(text, most, ret_number) && *ret_number;
}

static bool options_take(struct serve_options *options, int which)
{
    struct authority_options *authority = &options->authority;
    const char **const texts[] = {
        [MEMORY] = &options->memory,
        [CA] = &authority->ca,
        [NAME] = &authority->name,
        [ISSUE] = &authority->issue,
        [OUT] = &authority->out,
        [REVOKE] = &authority->revoke,
        [DEVICES] = &authority->devices,
        [RESERVE] = &options->reserve,
        [LOCAL_MEMORY] = &options->local_memory,
    };
    uint64_t number = 0;
    switch (which) {
    case LISTEN:
        if (options->count == LISTEN_MAX)
            return false;
        options->addresses[options->count++] = optarg;
        return true;
    case DEVICE:
        if (options->limits.device_count == DEVICES_MAX)
            return false;
        options->devices[options->limits.device_count++] = optarg;
        return true;
    case CLIENTS:
        return options_read_number(optarg, CLIENTS_MAX, &options->clients_max);
    case PATIENCE:
        if (!options_read_any_number(optarg, PATIENCE_MAX_S, &number))
            return false;
        options->limits.patience_s = (uint32_t)number;
        return true;
    case SESSIONS:
        return options_read_number(optarg, AUTHORITY_SESSIONS_MAX, &authority->sessions);
    case DAYS:
        return options_read_number(optarg, AUTHORITY_DAYS_MAX, &authority->days);
    case SHARE:
        return options_read_number(optarg, AUTHORITY_SHARE_MAX, &authority->share);
    case LOCAL_SESSIONS:
        if (!options_read_number(optarg, GRANT_SESSIONS_MAX, &number))
            return false;
        options->limits.local.sessions = (uint32_t)number;
        return true;
    case LOCAL_SHARE:
        if (!options_read_number(optarg, GRANT_SHARE_MAX, &number))
            return false;
        options->limits.local.share = (uint32_t)number;
        return true;
    case LINGER:
        return options_read_number(optarg, LINGER_MAX_S, &options->linger_s);
    case INHERIT:
        return options_read_number(optarg, INT_MAX, &options->inherited);
    case WHILE:
        return options_read_number(optarg, INT_MAX, &options->of_process);
    case ANNOUNCE:
        return options->announces = true;
    case SHOW_DENIED:
        return options->limits.shows_denied = true;
    case NO_SANDBOX:
        return options->limits.open = true;
    case INIT:
        return authority->init = true;
    case FOR_SERVER:
        return authority->for_server = true;
    default:
        if (which < 0 || (size_t)which >= ARRAY_SIZE(texts) || !texts[which])
            return false;
        *texts[which] = optarg;
        return true;
    }
}

/* One that is not said stays as it is. */
static bool options_read_size(const char *option, const char *text, uint64_t *ret_bytes)
{
    char reason[128];
    if (!text || !size_parse(text, ret_bytes, reason, sizeof(reason)))
        return true;
    fprintf(stderr, "reseat-serve: --%s %s: %s\n", option, text, reason);
    return false;
}

static bool options_are_local(const struct serve_options *options)
{
    for (size_t i = 0; i < options->count; i++) {
        const char *where = NULL;
        const struct link_kind *kind = link_kind_of(options->addresses[i], &where);
        if (kind && kind->anyone)
            return false;
    }
    return true;
}

bool options_read(int argc, char **argv, struct serve_options *options)
{
    for (int which; (which = getopt_long(argc, argv, "", rows, NULL)) != -1;)
        if (!options_take(options, which))
            return false;
    struct authority_options *authority = &options->authority;
    bool of_authority = authority->name || authority->for_server || authority->devices ||
                        authority->sessions || authority->share || authority->days ||
                        authority->out;
    if (authority_is_asked(authority)) {
        authority->memory = options->memory;
        return optind == argc && !options->count && !options->limits.device_count &&
               !options->announces;
    }
    if (!options_read_size("memory", options->memory, &options->limits.memory) ||
        !options_read_size("reserve", options->reserve, &options->reserve_bytes) ||
        !options_read_size("local-memory", options->local_memory, &options->limits.local.memory))
        return false;
    /* One of isolated programs stands for their own processes, where nothing is kept from a driver.
       Nobody else comes there. */
    options->limits.isolates = options->inherited || options->of_process;
    options->limits.open |= options->limits.isolates;
    if (options->limits.isolates && !options_are_local(options)) {
        fprintf(stderr, "reseat-serve: --inherit and --while go with unix: alone\n");
        return false;
    }
    return optind == argc && (options->count || options->inherited) && !of_authority;
}
