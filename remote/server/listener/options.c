#include "remote/server/listener/options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "remote/link/link.h"
#include "state/base/bytes/size.h"

#define CLIENTS_MAX  65536
#define LINGER_MAX_S 86400
/* The longest time for which a session waits for its client to reconnect: a week. */
#define PATIENCE_MAX_S (7 * 24 * 3600)
#define FIRST_ROW      256 /* getopt_long() returns this for the first row; above all characters. */

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

enum row_kind { ROW_FLAG, ROW_TEXT, ROW_TEXTS, ROW_NUMBER, ROW_SIZE };

/* An option, and the member of struct serve_options that it sets. */
struct row {
    const char *name;
    enum row_kind kind;
    size_t offset, size;
    uint64_t least, most; /* Limits of a number. */
    size_t count;         /* For ROW_TEXTS: the offset of the counter, a size_t. */
};

#define VALUE(member)                                                                              \
    offsetof(struct serve_options, member), sizeof(((struct serve_options *)NULL)->member)
#define TEXTS(member, number)                                                                      \
    ROW_TEXTS, VALUE(member), .count = offsetof(struct serve_options, number)

static const struct row rows[] = {
    {"listen", TEXTS(addresses, count)},
    {"device", TEXTS(devices, limits.device_count)},
    {"memory", ROW_TEXT, VALUE(authority.memory)}, /* Of a session; with --issue, granted. */
    {"reserve", ROW_SIZE, VALUE(reserve_bytes)},
    {"clients", ROW_NUMBER, VALUE(clients_max), 1, CLIENTS_MAX},
    {"patience", ROW_NUMBER, VALUE(limits.patience_s), 0, PATIENCE_MAX_S},
    {"local-memory", ROW_SIZE, VALUE(limits.local.memory)},
    {"local-sessions", ROW_NUMBER, VALUE(limits.local.sessions), 1, GRANT_SESSIONS_MAX},
    {"local-share", ROW_NUMBER, VALUE(limits.local.share), 1, GRANT_SHARE_MAX},
    {"linger", ROW_NUMBER, VALUE(linger_s), 1, LINGER_MAX_S},
    {"inherit", ROW_NUMBER, VALUE(inherited), 1, INT_MAX},
    {"while", ROW_NUMBER, VALUE(of_process), 1, INT_MAX},
    {"announce", ROW_FLAG, VALUE(announces)},
    {"show-denied", ROW_FLAG, VALUE(limits.shows_denied)},
    {"no-sandbox", ROW_FLAG, VALUE(limits.open)},
    {"ca", ROW_TEXT, VALUE(authority.ca)},
    {"init-ca", ROW_FLAG, VALUE(authority.init)},
    {"name", ROW_TEXT, VALUE(authority.name)},
    {"issue", ROW_TEXT, VALUE(authority.issue)},
    {"for-server", ROW_FLAG, VALUE(authority.for_server)},
    {"devices", ROW_TEXT, VALUE(authority.devices)},
    {"sessions", ROW_NUMBER, VALUE(authority.sessions), 1, AUTHORITY_SESSIONS_MAX},
    {"share", ROW_NUMBER, VALUE(authority.share), 1, AUTHORITY_SHARE_MAX},
    {"days", ROW_NUMBER, VALUE(authority.days), 1, AUTHORITY_DAYS_MAX},
    {"out", ROW_TEXT, VALUE(authority.out)},
    {"revoke", ROW_TEXT, VALUE(authority.revoke)},
};

static bool options_read_number(const struct row *row, const char *text, void *ret_value)
{
    char *end = NULL;
    errno = 0;
    uint64_t number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || number < row->least || number > row->most)
        return false;
    uint32_t narrow = (uint32_t)number;
    memcpy(ret_value, row->size == sizeof(narrow) ? (void *)&narrow : &number, row->size);
    return true;
}

static bool options_read_size(const char *option, const char *text, uint64_t *ret_bytes)
{
    char reason[128];
    if (!size_parse(text, ret_bytes, reason, sizeof(reason)))
        return true;
    fprintf(stderr, "reseat-serve: --%s %s: %s\n", option, text, reason);
    return false;
}

static bool options_take(struct serve_options *options, const struct row *row)
{
    void *value = (char *)options + row->offset;
    size_t *count = (size_t *)((char *)options + row->count);
    switch (row->kind) {
    case ROW_FLAG:
        return *(bool *)value = true;
    case ROW_TEXT:
        *(const char **)value = optarg;
        return true;
    case ROW_TEXTS:
        if (*count == row->size / sizeof(optarg))
            return false;
        ((const char **)value)[(*count)++] = optarg;
        return true;
    case ROW_NUMBER:
        return options_read_number(row, optarg, value);
    case ROW_SIZE:
        return options_read_size(row->name, optarg, value);
    }
    return false;
}

static bool options_take_all(int argc, char **argv, struct serve_options *options)
{
    struct option known[ARRAY_SIZE(rows) + 1] = {{NULL}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        known[i] = (struct option){rows[i].name,
                                   rows[i].kind == ROW_FLAG ? no_argument : required_argument, NULL,
                                   FIRST_ROW + (int)i};
    for (int which; (which = getopt_long(argc, argv, "", known, NULL)) != -1;)
        if (which < FIRST_ROW || !options_take(options, &rows[which - FIRST_ROW]))
            return false;
    return true;
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
    if (!options_take_all(argc, argv, options))
        return false;
    struct session_limits *limits = &options->limits;
    for (size_t i = 0; i < limits->device_count; i++)
        snprintf(limits->devices[i], sizeof(limits->devices[i]), "%s", options->devices[i]);
    struct authority_options *authority = &options->authority;
    bool of_authority = authority->name || authority->for_server || authority->devices ||
                        authority->sessions || authority->share || authority->days ||
                        authority->out;
    if (authority_is_asked(authority))
        return optind == argc && !options->count && !limits->device_count && !options->announces;
    if (authority->memory && !options_read_size("memory", authority->memory, &limits->memory))
        return false;
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
