#include "remote/server/listener/authority.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "state/base/bytes/size.h"

static int authority_say(char *ret_text, int error, const char *format, ...) PRINTF(3, 4);
static int authority_say(char *ret_text, int error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(ret_text, AUTHORITY_TEXT_MAX, format, arguments);
    va_end(arguments);
    return error;
}

bool authority_is_asked(const struct authority_options *options)
{
    return options->init || options->issue || options->revoke;
}

/** This machine's host name without its domain, in lower case as server names must be. */
static int authority_own_name(char ret_name[ADDRESS_HOST_MAX])
{
    char name[ADDRESS_HOST_MAX] = "";

    if (gethostname(name, sizeof(name) - 1))
        return -errno;
    name[strcspn(name, ".")] = '\0';
    for (char *at = name; *at; at++)
        if (*at >= 'A' && *at <= 'Z')
            *at += 'a' - 'A';
    strcpy(ret_name, name);
    return 0;
}

static int authority_do_init(const struct authority_options *options, const char *folder,
                             char *ret_text)
{
    char name[ADDRESS_HOST_MAX], problem[FOLDER_PROBLEM_MAX];
    int error = 0;

    if (options->name)
        snprintf(name, sizeof(name), "%s", options->name);
    else
        error = authority_own_name(name);
    if (error || !address_is_name(name))
        return authority_say(ret_text, -EINVAL,
                             "\"%.64s\" is not a valid server name: use lower-case letters, "
                             "digits, dashes, and dots "
                             "between them; set another with --name",
                             error ? "" : name);
    error = ca_create(folder, name, time(NULL), problem);
    if (error)
        return authority_say(ret_text, error, "%s", problem);
    return authority_say(ret_text, 0,
                         "The authority of server %s is in %s. Keep it private: it lets anybody "
                         "be any client.",
                         name, folder);
}

/** Read the grant of a client's certificate from the options. */
static int authority_read_grant(const struct authority_options *options, struct grant *grant,
                                char *ret_text)
{
    char reason[GRANT_REASON_MAX];

    *grant = GRANT_ALL;
    if (options->devices && grant_set_devices(grant, options->devices, reason))
        return authority_say(ret_text, -EINVAL, "--devices: %s", reason);
    if (options->memory && size_parse(options->memory, &grant->memory, reason, sizeof(reason)))
        return authority_say(ret_text, -EINVAL, "--memory: %s", reason);
    if (!grant->memory)
        return authority_say(ret_text, -EINVAL, "--memory: must be above 0");
    if (options->sessions > GRANT_SESSIONS_MAX)
        return authority_say(ret_text, -EINVAL, "--sessions: " AUTHORITY_SESSIONS);
    if (options->sessions)
        grant->sessions = (uint32_t)options->sessions;
    if (options->share > GRANT_SHARE_MAX)
        return authority_say(ret_text, -EINVAL, "--share: " AUTHORITY_SHARE);
    if (options->share)
        grant->share = (uint32_t)options->share;
    return 0;
}

static int authority_do_issue(const struct authority_options *options, const char *folder,
                              char *ret_text)
{
    char file[PATH_MAX], problem[FOLDER_PROBLEM_MAX], text[GRANT_TEXT_MAX];
    struct ca_wish wish = {.name = options->issue, .server = options->for_server, .to_file = file};
    int length = options->out ? snprintf(file, sizeof(file), "%s", options->out)
                              : snprintf(file, sizeof(file), "%.255s.pem", options->issue);
    bool limited = options->devices || options->memory || options->sessions || options->share;

    if (length >= PATH_MAX)
        return authority_say(ret_text, -EINVAL, "--out: the name is too long");
    if (wish.server && limited)
        return authority_say(ret_text, -EINVAL,
                             "--for-server: a server's certificate has no limits");
    if (options->days > CA_DAYS_MAX)
        return authority_say(ret_text, -EINVAL, "--days: " AUTHORITY_DAYS);
    wish.days = options->days ? (unsigned)options->days : CA_DAYS;
    int error = authority_read_grant(options, &wish.grant, ret_text);
    if (error)
        return error;
    error = ca_issue(folder, &wish, time(NULL), problem);
    if (error)
        return authority_say(ret_text, error, "%s", problem);
    grant_format(&wish.grant, text);
    return authority_say(ret_text, 0,
                         "%s has the credentials of %s for %u days (%s). Keep it private.", file,
                         wish.name, wish.days, wish.server ? "a server" : strchr(text, ' ') + 1);
}

static int authority_do_revoke(const struct authority_options *options, const char *folder,
                               char *ret_text)
{
    char problem[FOLDER_PROBLEM_MAX];
    size_t count;
    int error = ca_revoke(folder, options->revoke, time(NULL), &count, problem);

    if (error)
        return authority_say(ret_text, error, "%s", problem);
    return authority_say(ret_text, 0, "%s is revoked; new connections are refused.",
                         options->revoke);
}

int authority_run(const struct authority_options *options, char ret_text[AUTHORITY_TEXT_MAX])
{
    char folder[PATH_MAX];
    int asked = options->init + (options->issue != NULL) + (options->revoke != NULL);

    if (asked != 1)
        return authority_say(ret_text, -EINVAL, "give only one of --init-ca, --issue and --revoke");
    int error = ca_folder(options->ca, folder);
    if (error)
        return authority_say(ret_text, error, "the authority's folder: %s", strerror(-error));
    if (options->init)
        return authority_do_init(options, folder, ret_text);
    return options->issue ? authority_do_issue(options, folder, ret_text)
                          : authority_do_revoke(options, folder, ret_text);
}
