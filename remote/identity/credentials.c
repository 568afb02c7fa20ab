#include "remote/identity/credentials.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/base/cleanup.h"
#include "state/base/files/access.h"
#include "state/base/files/file.h"

#define UNREADABLE "cannot be read"

/** Returns 0 for a regular file of at most @limit bytes that only this user can access. */
static int private_file_check(int fd, const char *path, size_t limit, char *ret_problem)
{
    struct stat stat;

    if (fstat(fd, &stat))
        return folder_refuse_error(ret_problem, -errno, path, UNREADABLE);
    if (!S_ISREG(stat.st_mode))
        return folder_refuse(ret_problem, -EPERM, path, "is not a file");
    if (!access_same_user(stat.st_uid, geteuid()))
        return folder_refuse(ret_problem, -EPERM, path, "belongs to another user");
    if (stat.st_mode & 077)
        return folder_refuse(ret_problem, -EPERM, path,
                             "can be used by others: its mode must be 0600");
    if ((uintmax_t)stat.st_size > limit)
        return folder_refuse(ret_problem, -EFBIG, path, "is too large");
    return 0;
}

int private_file_read(const char *path, size_t limit, char **ret_bytes, size_t *ret_size,
                      char ret_problem[FOLDER_PROBLEM_MAX])
{
    char real[PATH_MAX], above[PATH_MAX];

    if (!realpath(path, real))
        return folder_refuse_error(ret_problem, -errno, path, UNREADABLE);
    const char *slash = strrchr(real, '/');
    snprintf(above, sizeof(above), "%.*s", slash > real ? (int)(slash - real) : 1, real);
    int error = folder_check_above(above, ret_problem);
    if (error)
        return error;
    CLEANUP(cleanup_close) int fd = open(real, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return folder_refuse_error(ret_problem, -errno, path, UNREADABLE);
    error = private_file_check(fd, path, limit, ret_problem);
    if (error)
        return error;
    error = file_load(fd, limit, ret_bytes, ret_size);
    return error ? folder_refuse_error(ret_problem, error, path, UNREADABLE) : 0;
}

void private_file_free(char *bytes, size_t size)
{
    if (bytes)
        explicit_bzero(bytes, size);
    free(bytes);
}

#define FILE_MAX (64u << 10)
#define HEADER   "reseat-server: "
#define SUFFIX   ".pem"

/** Read the server's name from the first line. */
static bool credentials_read_server(const char *bytes, char ret_server[ADDRESS_HOST_MAX])
{
    size_t header = strlen(HEADER), length = strcspn(bytes, "\n");

    if (strncmp(bytes, HEADER, header) != 0 || length - header >= ADDRESS_HOST_MAX)
        return false;
    snprintf(ret_server, ADDRESS_HOST_MAX, "%.*s", (int)(length - header), bytes + header);
    return address_is_name(ret_server);
}

/** Returns NULL, or the reason why the file is refused. */
static const char *credentials_read_parts(const char *bytes, size_t size,
                                          struct credentials *credentials)
{
    CLEANUP(cleanup_bio) BIO *keys = BIO_new_mem_buf(bytes, (int)size);
    CLEANUP(cleanup_bio) BIO *certificates = BIO_new_mem_buf(bytes, (int)size);

    if (!keys || !certificates)
        return "does not fit in memory";
    if (!credentials_read_server(bytes, credentials->server))
        return "does not begin with \"" HEADER "NAME\"";
    if (!(credentials->key = certificate_read_key(keys)))
        return "has no private key";
    if (!(credentials->certificate = certificate_read(certificates)) ||
        !(credentials->authority = certificate_read(certificates)))
        return "lacks a certificate: after the key, it needs its own and its authority's";
    if (X509_check_private_key(credentials->certificate, credentials->key) != 1)
        return "has a key that does not belong to its certificate";
    if (X509_verify(credentials->certificate, X509_get0_pubkey(credentials->authority)) != 1)
        return "has a certificate that its authority did not sign";
    return NULL;
}

int credentials_parse(const char *name, const char *bytes, size_t size,
                      struct credentials *ret_credentials, char ret_problem[FOLDER_PROBLEM_MAX])
{
    struct credentials credentials = {.key = NULL};

    if (!crypto_context())
        return folder_refuse(ret_problem, -ENOSYS, name,
                             "needs OpenSSL, which cannot be used here");
    const char *why =
        size > FILE_MAX ? "is too large" : credentials_read_parts(bytes, size, &credentials);
    ERR_clear_error();
    if (why) {
        credentials_finish(&credentials);
        return folder_refuse(ret_problem, -EINVAL, name, why);
    }
    *ret_credentials = credentials;
    return 0;
}

int credentials_load(const char *path, struct credentials *ret_credentials,
                     char ret_problem[FOLDER_PROBLEM_MAX])
{
    char *bytes;
    size_t size;
    int error = private_file_read(path, FILE_MAX, &bytes, &size, ret_problem);

    if (error)
        return error;
    error = credentials_parse(path, bytes, size, ret_credentials, ret_problem);
    private_file_free(bytes, size);
    return error;
}

int credentials_print(const struct credentials *credentials, char **ret_bytes, size_t *ret_size)
{
    /* OpenSSL wipes this BIO's memory when it frees or grows it: it contains the private key. */
    CLEANUP(cleanup_bio) BIO *to = BIO_new(BIO_s_secmem());
    char *at;

    if (!to || BIO_printf(to, HEADER "%s\n", credentials->server) <= 0 ||
        !certificate_write_key(to, credentials->key) ||
        !certificate_write(to, credentials->certificate) ||
        !certificate_write(to, credentials->authority)) {
        ERR_clear_error();
        return -ENOMEM;
    }
    long size = BIO_get_mem_data(to, &at);
    char *bytes = size > 0 ? malloc((size_t)size) : NULL;
    if (!bytes)
        return -ENOMEM;
    memcpy(bytes, at, (size_t)size);
    *ret_bytes = bytes;
    *ret_size = (size_t)size;
    return 0;
}

void credentials_finish(struct credentials *credentials)
{
    EVP_PKEY_free(credentials->key);
    X509_free(credentials->certificate);
    X509_free(credentials->authority);
    *credentials = (struct credentials){.key = NULL};
}

/** Find the only file of credentials in a folder. Returns -ENOENT or -ENOTUNIQ if there is not one.
 */
static int credentials_find_only(const char *folder, char ret_path[PATH_MAX])
{
    DIR *listing = opendir(folder);
    int found = 0, length = 0;

    if (!listing)
        return -errno;
    for (const struct dirent *entry; (entry = readdir(listing));) {
        const char *suffix = strrchr(entry->d_name, '.');
        if (entry->d_name[0] == '.' || !suffix || strcmp(suffix, SUFFIX) != 0)
            continue;
        found++;
        length = snprintf(ret_path, PATH_MAX, "%s/%s", folder, entry->d_name);
    }
    closedir(listing);
    return found == 0 ? -ENOENT : found > 1 ? -ENOTUNIQ : length >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* Saved by credentials_remember(). NULL: read the environment at each use. */
static struct environment {
    const char *named;
    int error; /* 0, or -errno if `home` is not known. */
    char home[PATH_MAX];
} * remembered;

static void credentials_look(struct environment *environment)
{
    environment->named = secure_getenv("RESEAT_CREDENTIALS");
    environment->error = folder_home("XDG_CONFIG_HOME", ".config", environment->home);
}

int credentials_remember(void)
{
    struct environment *environment = calloc(1, sizeof(*environment));

    if (!environment)
        return -ENOMEM;
    credentials_look(environment);
    if (environment->named && !(environment->named = strdup(environment->named))) {
        free(environment);
        return -ENOMEM;
    }
    remembered = environment;
    return 0;
}

int credentials_find(const struct address *address, char ret_path[PATH_MAX])
{
    struct environment environment;
    char folder[PATH_MAX];
    int length;

    if (remembered)
        environment = *remembered;
    else
        credentials_look(&environment);
    const char *named = environment.named, *home = environment.home;

    if (named && *named) {
        length = snprintf(ret_path, PATH_MAX, "%s", named);
        return named[0] != '/' ? -EINVAL : length >= PATH_MAX ? -ENAMETOOLONG : 0;
    }
    if (environment.error)
        return environment.error;
    if (snprintf(folder, sizeof(folder), "%s/servers", home) >= (int)sizeof(folder))
        return -ENAMETOOLONG;
    /* address_parse() refuses slashes in a host, so the path stays in the folder. */
    length = address->kind == ADDRESS_TCP
                 ? snprintf(ret_path, PATH_MAX, "%s/%s" SUFFIX, folder, address->host)
                 : snprintf(ret_path, PATH_MAX, "%s/vsock-%u" SUFFIX, folder, address->cid);
    if (length >= PATH_MAX)
        return -ENAMETOOLONG;
    return access(ret_path, F_OK) == 0 ? 0 : credentials_find_only(folder, ret_path);
}
