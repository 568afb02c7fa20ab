#include "remote/identity/ca.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "remote/identity/certificate.h"
#include "remote/identity/credentials.h"
#include "state/base/cleanup.h"
#include "state/base/files/file.h"

#define ISSUED     "issued"
#define LOCK       "lock"
#define LIST_MAX   (1u << 20)
#define DAY_S      (24 * 3600)
#define LINE_BYTES (CERTIFICATE_SERIAL_MAX + ADDRESS_HOST_MAX + 32)

static int ca_refuse_error(char *ret_problem, int error, const char *what)
{
    return folder_refuse(ret_problem, error, what, strerror(-error));
}

static int ca_refuse_crypto(char *ret_problem, const char *what)
{
    char why[CRYPTO_PROBLEM_MAX];

    crypto_problem(why);
    return folder_refuse(ret_problem, -EIO, what, why);
}

int ca_folder(const char *named, char ret_folder[PATH_MAX])
{
    char home[PATH_MAX];

    if (named)
        return snprintf(ret_folder, PATH_MAX, "%s", named) < PATH_MAX ? 0 : -ENAMETOOLONG;
    int error = folder_home("XDG_CONFIG_HOME", ".config", home);
    if (error)
        return error;
    /* Failures are not checked here: the first use of the folder reports them. */
    char *slash = strrchr(home, '/');
    *slash = '\0';
    (void)mkdir(home, 0700);
    *slash = '/';
    (void)mkdir(home, 0700);
    return ca_file(home, "ca", ret_folder);
}

int ca_file(const char *folder, const char *name, char ret[PATH_MAX])
{
    return snprintf(ret, PATH_MAX, "%s/%s", folder, name) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/** The contents of a list file, followed by a NUL. `bytes` is NULL until the list is read. */
struct list {
    char *bytes;
    size_t size;
};

/** An authority that a command has opened and locked. */
struct ca {
    char folder[PATH_MAX]; /**< Symbolic links are resolved. */
    int lock;
    struct list issued, revoked;
};

static void ca_close(struct ca *ca)
{
    private_file_free(ca->issued.bytes, ca->issued.size);
    private_file_free(ca->revoked.bytes, ca->revoked.size);
    if (ca->lock >= 0)
        close(ca->lock);
}

static int ca_lock(struct ca *ca, char *ret_problem)
{
    char path[PATH_MAX];

    if (ca_file(ca->folder, LOCK, path))
        return ca_refuse_error(ret_problem, -ENAMETOOLONG, ca->folder);
    ca->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (ca->lock < 0 || flock(ca->lock, LOCK_EX | LOCK_NB))
        return errno == EWOULDBLOCK
                   ? folder_refuse(ret_problem, -EBUSY, ca->folder, "is in use by another command")
                   : ca_refuse_error(ret_problem, -errno, path);
    return 0;
}

/** Make a path absolute and remove slashes at its end. */
static int ca_absolute(const char *folder, char ret[PATH_MAX])
{
    char current[PATH_MAX] = "";
    bool relative = folder[0] != '/';

    if (relative && !getcwd(current, sizeof(current)))
        return -errno;
    int length = snprintf(ret, PATH_MAX, "%s%s%s", current, relative ? "/" : "", folder);
    if (length >= PATH_MAX)
        return -ENAMETOOLONG;
    while (length > 1 && ret[length - 1] == '/')
        ret[--length] = '\0';
    return 0;
}

/** @make: create the folder if it is missing. The caller calls ca_close() after a failure too. */
static int ca_open(const char *folder, bool make, struct ca *ca, char *ret_problem)
{
    char wanted[PATH_MAX];
    int error = ca_absolute(folder, wanted);

    *ca = (struct ca){.lock = -1};
    if (error)
        return ca_refuse_error(ret_problem, error, folder);
    if (!crypto_context())
        return folder_refuse(ret_problem, -ENOSYS, "OpenSSL", "cannot be used here");
    if (!make && access(wanted, F_OK))
        return folder_refuse(ret_problem, -ENOENT, folder, "has no authority");
    error = folder_make_private(wanted, ca->folder, ret_problem);
    return error ? error : ca_lock(ca, ret_problem);
}

static int ca_read_list(const struct ca *ca, const char *name, struct list *ret_list,
                        char *ret_problem)
{
    char path[PATH_MAX];

    if (ca_file(ca->folder, name, path))
        return ca_refuse_error(ret_problem, -ENAMETOOLONG, ca->folder);
    return private_file_read(path, LIST_MAX, &ret_list->bytes, &ret_list->size, ret_problem);
}

static int ca_read_lists(struct ca *ca, char *ret_problem)
{
    int error = ca_read_list(ca, ISSUED, &ca->issued, ret_problem);

    return error ? error : ca_read_list(ca, CA_REVOKED, &ca->revoked, ret_problem);
}

/** Replace the file @name by the contents of @list followed by @lines. */
static int ca_replace_list(const struct ca *ca, const char *name, const struct list *list,
                           const char *lines, char *ret_problem)
{
    char path[PATH_MAX];
    size_t more = strlen(lines);
    CLEANUP(cleanup_free) char *bytes = malloc(list->size + more + 1);

    if (!bytes || ca_file(ca->folder, name, path))
        return ca_refuse_error(ret_problem, bytes ? -ENAMETOOLONG : -ENOMEM, name);
    if (list->size + more > LIST_MAX)
        return folder_refuse(ret_problem, -EFBIG, path, "would be too long");
    if (list->size)
        memcpy(bytes, list->bytes, list->size);
    memcpy(bytes + list->size, lines, more + 1);
    int error = file_replace_path(path, bytes, list->size + more);
    return error ? ca_refuse_error(ret_problem, error, path) : 0;
}

/** One line of the list of issued certificates. */
struct issued {
    char serial[CERTIFICATE_SERIAL_MAX];
    time_t until;
    char name[ADDRESS_HOST_MAX];
};

/** Read the line at *@at and advance *@at to the next one. Returns 1, 0 (no more lines) or -EINVAL.
 */
static int ca_next_issued(const char **at, struct issued *ret)
{
    char line[LINE_BYTES];
    size_t length = strcspn(*at, "\n");
    long long until;
    int end = 0;

    if (!**at)
        return 0;
    if (length >= sizeof(line) || (*at)[length] != '\n')
        return -EINVAL;
    memcpy(line, *at, length);
    line[length] = '\0';
    if (sscanf(line, "%40[0-9a-f] %18lld %255[A-Za-z0-9._-]%n", ret->serial, &until, ret->name,
               &end) != 3 ||
        (size_t)end != length)
        return -EINVAL;
    ret->until = (time_t)until;
    *at += length + 1;
    return 1;
}

typedef int (*issued_visit)(void *data, const struct issued *issued);

/** Call @visit with each certificate of @name that is neither expired at @now nor revoked. Stops at
 *  the first visit that does not return 0, and returns its result. Returns 0, or -EINVAL if a list
 *  is damaged. */
static int ca_each_that_counts(const struct ca *ca, const char *name, time_t now,
                               issued_visit visit, void *data, char *ret_problem)
{
    const char *at = ca->issued.bytes;
    struct issued issued;
    int result;

    while ((result = ca_next_issued(&at, &issued)) == 1) {
        if (strcmp(issued.name, name) != 0 || issued.until <= now)
            continue;
        int revoked = revoked_find(ca->revoked.bytes, ca->revoked.size, issued.serial);
        if (revoked == -EINVAL)
            return folder_refuse(ret_problem, -EINVAL, ca->folder,
                                 "has a damaged list \"" CA_REVOKED "\"");
        result = revoked ? 0 : visit(data, &issued);
        if (result)
            return result;
    }
    return result ? folder_refuse(ret_problem, -EINVAL, ca->folder,
                                  "has a damaged list \"" ISSUED "\"")
                  : 0;
}

static int ca_load_authority(const struct ca *ca, struct credentials *ret, char *ret_problem)
{
    char path[PATH_MAX];
    int error = ca_file(ca->folder, CA_KEY, path);

    return error ? ca_refuse_error(ret_problem, error, ca->folder)
                 : credentials_load(path, ret, ret_problem);
}

/** Write credentials to a new file. -EEXIST if the file exists. */
static int ca_write_credentials(const char *path, const struct credentials *credentials,
                                char *ret_problem)
{
    char *bytes;
    size_t size;
    int error = credentials_print(credentials, &bytes, &size);

    if (!error) {
        error = file_make(NULL, path, &(struct file_part){bytes, size}, 1);
        private_file_free(bytes, size);
    }
    return error == -EEXIST ? folder_refuse(ret_problem, error, path, "already exists")
           : error          ? ca_refuse_error(ret_problem, error, path)
                            : 0;
}

static int ca_write_in_folder(const struct ca *ca, const char *name,
                              const struct credentials *credentials, char *ret_problem)
{
    char path[PATH_MAX];
    int error = ca_file(ca->folder, name, path);

    return error ? ca_refuse_error(ret_problem, error, name)
                 : ca_write_credentials(path, credentials, ret_problem);
}

/** Make a key and its certificate, signed by @authority. NULL makes a self-signed certificate. */
static int ca_make(const struct certificate_wish *wish, const struct credentials *authority,
                   struct credentials *ret, char *ret_problem)
{
    struct credentials made = {.key = certificate_new_key()};

    if (made.key)
        made.certificate =
            certificate_make(wish, made.key, authority ? authority->certificate : NULL,
                             authority ? authority->key : NULL);
    if (!made.certificate) {
        credentials_finish(&made);
        return ca_refuse_crypto(ret_problem, "no certificate can be made:");
    }
    made.authority = authority ? authority->certificate : made.certificate;
    X509_up_ref(made.authority);
    *ret = made;
    return 0;
}

static int ca_record(const struct ca *ca, const struct credentials *made, const char *name,
                     time_t until, char *ret_problem)
{
    char serial[CERTIFICATE_SERIAL_MAX], line[LINE_BYTES];

    if (certificate_serial(made->certificate, serial))
        return folder_refuse(ret_problem, -EINVAL, name, "could not get a serial number");
    snprintf(line, sizeof(line), "%s %lld %s\n", serial, (long long)until, name);
    return ca_replace_list(ca, ISSUED, &ca->issued, line, ret_problem);
}

static int ca_create_in(const struct ca *ca, const char *server, time_t now, char *ret_problem)
{
    char common[CERTIFICATE_NAME_MAX], key[PATH_MAX], own[PATH_MAX];
    const time_t from = now - CA_CLOCKS_S, until = now + (time_t)CA_DAYS_MAX * DAY_S;
    const struct certificate_wish root = {CERTIFICATE_AUTHORITY, common, NULL, from, until};
    const struct certificate_wish leaf = {CERTIFICATE_SERVER, server, NULL, from, until};
    struct credentials authority = {.key = NULL}, made = {.key = NULL};

    if (ca_file(ca->folder, CA_KEY, key) || ca_file(ca->folder, CA_SERVER, own))
        return ca_refuse_error(ret_problem, -ENAMETOOLONG, ca->folder);
    /* Check both files: the operator may have moved the key away. */
    if (access(key, F_OK) == 0 || access(own, F_OK) == 0)
        return folder_refuse(ret_problem, -EEXIST, ca->folder, "already has an authority");
    snprintf(common, sizeof(common), "reseat %.50s", server);
    int error = ca_make(&root, NULL, &authority, ret_problem);
    error = error ? error : ca_make(&leaf, &authority, &made, ret_problem);
    snprintf(authority.server, sizeof(authority.server), "%s", server);
    snprintf(made.server, sizeof(made.server), "%s", server);
    error = error ? error : ca_replace_list(ca, CA_REVOKED, &ca->revoked, "", ret_problem);
    error = error ? error : ca_record(ca, &made, server, until, ret_problem);
    error = error ? error : ca_write_in_folder(ca, CA_SERVER, &made, ret_problem);
    error = error ? error : ca_write_in_folder(ca, CA_KEY, &authority, ret_problem);
    credentials_finish(&made);
    credentials_finish(&authority);
    return error;
}

int ca_create(const char *folder, const char *server, time_t now,
              char ret_problem[FOLDER_PROBLEM_MAX])
{
    struct ca ca;

    if (!address_is_name(server))
        return folder_refuse(ret_problem, -EINVAL, server, "is not a valid server name");
    int error = ca_open(folder, true, &ca, ret_problem);
    error = error ? error : ca_create_in(&ca, server, now, ret_problem);
    ca_close(&ca);
    return error;
}

static int ca_refuse_second(void *data, const struct issued *issued)
{
    (void)data, (void)issued;
    return -EEXIST;
}

/* A certificate that is not in the list cannot be revoked. The list is therefore written before the
 * credentials, and restored if the credentials cannot be written. */
static int ca_hand_out(const struct ca *ca, const struct credentials *made,
                       const struct ca_wish *wish, time_t until, char *ret_problem)
{
    char ignored[FOLDER_PROBLEM_MAX];
    int error = ca_record(ca, made, wish->name, until, ret_problem);

    if (error)
        return error;
    error = ca_write_credentials(wish->to_file, made, ret_problem);
    if (error)
        (void)ca_replace_list(ca, ISSUED, &ca->issued, "", ignored);
    return error;
}

static int ca_issue_in(struct ca *ca, const struct ca_wish *wish, time_t now, char *ret_problem)
{
    const time_t until = now + (time_t)wish->days * DAY_S;
    const struct certificate_wish leaf = {
        .kind = wish->server ? CERTIFICATE_SERVER : CERTIFICATE_CLIENT,
        .name = wish->name,
        .grant = wish->server ? NULL : &wish->grant,
        .from = now - CA_CLOCKS_S,
        .until = until,
    };
    struct credentials authority, made = {.key = NULL};
    int error = ca_read_lists(ca, ret_problem);

    error = error ? error : ca_load_authority(ca, &authority, ret_problem);
    if (error)
        return error;
    error = ca_each_that_counts(ca, wish->name, now, ca_refuse_second, NULL, ret_problem);
    if (error == -EEXIST)
        folder_refuse(ret_problem, error, wish->name, "already has a certificate; revoke it first");
    error = error ? error : ca_make(&leaf, &authority, &made, ret_problem);
    snprintf(made.server, sizeof(made.server), "%s", wish->server ? wish->name : authority.server);
    error = error ? error : ca_hand_out(ca, &made, wish, until, ret_problem);
    credentials_finish(&made);
    credentials_finish(&authority);
    return error;
}

int ca_issue(const char *folder, const struct ca_wish *wish, time_t now,
             char ret_problem[FOLDER_PROBLEM_MAX])
{
    struct ca ca;

    if (wish->server ? !address_is_name(wish->name) : !certificate_name_is_valid(wish->name))
        return folder_refuse(ret_problem, -EINVAL, wish->name, "is not a valid name");
    int error = ca_open(folder, false, &ca, ret_problem);
    error = error ? error : ca_issue_in(&ca, wish, now, ret_problem);
    ca_close(&ca);
    return error;
}

/** Lines to add to the list of revoked certificates. */
struct revoking {
    char *lines;
    size_t size, count;
};

static int ca_revoke_one(void *data, const struct issued *issued)
{
    struct revoking *revoking = data;
    char line[LINE_BYTES];
    size_t length = (size_t)snprintf(line, sizeof(line), "%s %s\n", issued->serial, issued->name);
    char *lines = realloc(revoking->lines, revoking->size + length + 1);

    if (!lines)
        return -ENOMEM;
    memcpy(lines + revoking->size, line, length + 1);
    revoking->lines = lines;
    revoking->size += length;
    revoking->count++;
    return 0;
}

static int ca_revoke_in(struct ca *ca, const char *name, time_t now, size_t *ret_count,
                        char *ret_problem)
{
    struct revoking revoking = {.count = 0};
    int error = ca_read_lists(ca, ret_problem);

    error =
        error ? error : ca_each_that_counts(ca, name, now, ca_revoke_one, &revoking, ret_problem);
    if (!error && !revoking.count)
        error = folder_refuse(ret_problem, -ESRCH, name, "has no valid certificate");
    error =
        error ? error : ca_replace_list(ca, CA_REVOKED, &ca->revoked, revoking.lines, ret_problem);
    if (!error)
        *ret_count = revoking.count;
    free(revoking.lines);
    return error;
}

int ca_revoke(const char *folder, const char *name, time_t now, size_t *ret_count,
              char ret_problem[FOLDER_PROBLEM_MAX])
{
    struct ca ca;
    int error = ca_open(folder, false, &ca, ret_problem);

    error = error ? error : ca_revoke_in(&ca, name, now, ret_count, ret_problem);
    ca_close(&ca);
    return error;
}
