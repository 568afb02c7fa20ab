#include "remote/server/listener/serve.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "remote/link/link.h"
#include "state/base/bytes/size.h"
#include "state/base/option_rows.h"

#define CLIENTS_MAX  65536
#define LINGER_MAX_S 86400
/* The longest time for which a session waits for its client to reconnect: a week. */
#define PATIENCE_MAX_S (7 * 24 * 3600)

int options_usage(void)
{
    fprintf(stderr, "usage: reseat-serve [--ca FOLDER] [--listen ADDRESS]... [--device NAME]...\n"
                    "                    [--memory SIZE] [--clients NUMBER] [--patience TIME]\n"
                    "                    [--reserve SIZE] [--local-memory SIZE] [--local-sessions "
                    "NUMBER]\n"
                    "                    [--local-share NUMBER] [--no-sandbox] [--linger TIME]\n"
                    "                    [--inherit DESCRIPTOR] [--while PROCESS] [--announce]\n"
                    "                    [--show-denied] [--metrics PATH] [--metrics-port PORT]\n"
                    "       reseat-serve [--ca FOLDER] --init-ca [--name NAME]\n"
                    "       reseat-serve [--ca FOLDER] --issue NAME [--out FILE] [--days NUMBER]\n"
                    "                    [--devices LIST] [--memory SIZE] [--sessions NUMBER] "
                    "[--share NUMBER]\n"
                    "                    [--for-server]\n"
                    "       reseat-serve [--ca FOLDER] --revoke NAME\n");
    return 2;
}

#define VALUE(member) OPTION_VALUE(struct serve_options, member)
#define TEXTS(member, number)                                                                      \
    .kind = OPTION_TEXTS, VALUE(member), .count = offsetof(struct serve_options, number)
#define SIZE(member)             .kind = OPTION_SIZE, VALUE(member)
#define NUMBER(member, from, to) .kind = OPTION_NUMBER, VALUE(member), .least = from, .most = to
#define TIME(member, from, to)   OPTION_SECONDS(struct serve_options, member, 0, from, to)

static const struct option_row rows[] = {
    {"listen", "ADDRESS", TEXTS(addresses, count)},
    {"device", "NAME", TEXTS(devices, limits.device_count)},
    {"memory", "SIZE", VALUE(authority.memory)}, /* Of a session; with --issue, granted. */
    {"reserve", "SIZE", SIZE(reserve_bytes)},
    {"clients", "NUMBER", NUMBER(clients_max, 1, CLIENTS_MAX)},
    {"patience", "TIME", TIME(limits.patience_s, 0, PATIENCE_MAX_S)},
    {"local-memory", "SIZE", SIZE(limits.local.memory)},
    {"local-sessions", "NUMBER", NUMBER(limits.local.sessions, 1, GRANT_SESSIONS_MAX)},
    {"local-share", "NUMBER", NUMBER(limits.local.share, 1, GRANT_SHARE_MAX)},
    {"linger", "TIME", TIME(linger_s, 1, LINGER_MAX_S)},
    {"inherit", "DESCRIPTOR", NUMBER(inherited, 1, INT_MAX)},
    {"while", "PROCESS", NUMBER(of_process, 1, INT_MAX)},
    {"metrics", "PATH", VALUE(metrics)},
    {"metrics-port", "PORT", NUMBER(metrics_port, 1, UINT16_MAX)},
    {"announce", NULL, VALUE(announces)},
    {"show-denied", NULL, VALUE(limits.shows_denied)},
    {"no-sandbox", NULL, VALUE(limits.open)},
    {"ca", "FOLDER", VALUE(authority.ca)},
    {"init-ca", NULL, VALUE(authority.init)},
    {"name", "NAME", VALUE(authority.name)},
    {"issue", "NAME", VALUE(authority.issue)},
    {"for-server", NULL, VALUE(authority.for_server)},
    {"devices", "LIST", VALUE(authority.devices)},
    {"sessions", "NUMBER", NUMBER(authority.sessions, 1, AUTHORITY_SESSIONS_MAX)},
    {"share", "NUMBER", NUMBER(authority.share, 1, AUTHORITY_SHARE_MAX)},
    {"days", "NUMBER", NUMBER(authority.days, 1, AUTHORITY_DAYS_MAX)},
    {"out", "FILE", VALUE(authority.out)},
    {"revoke", "NAME", VALUE(authority.revoke)},
    {NULL},
};

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
    char reason[OPTION_REASON_MAX];
    if (option_rows_read(rows, options, argc, argv, reason)) {
        fprintf(stderr, "reseat-serve: %s\n", reason);
        return false;
    }
    struct session_limits *limits = &options->limits;
    for (size_t i = 0; i < limits->device_count; i++)
        snprintf(limits->devices[i], sizeof(limits->devices[i]), "%s", options->devices[i]);
    struct authority_options *authority = &options->authority;
    bool of_authority = authority->name || authority->for_server || authority->devices ||
                        authority->sessions || authority->share || authority->days ||
                        authority->out;
    if (authority_is_asked(authority))
        return optind == argc && !options->count && !limits->device_count && !options->announces;
    if (authority->memory &&
        size_parse(authority->memory, &limits->memory, reason, sizeof(reason))) {
        fprintf(stderr, "reseat-serve: --memory: %s\n", reason);
        return false;
    }
    /* A server of isolated programs stands in for their own processes, where drivers are not
     * confined either. Only those programs connect to it. */
    limits->isolates = options->inherited || options->of_process;
    limits->open |= limits->isolates;
    if (limits->isolates && !options_are_local(options)) {
        fprintf(stderr, "reseat-serve: --inherit and --while allow only unix: addresses\n");
        return false;
    }
    return optind == argc && (options->count || options->inherited) && !of_authority;
}
