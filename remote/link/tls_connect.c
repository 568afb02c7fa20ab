#include "remote/link/tls.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "state/base/log.h"

/** 0 or -EINVAL, which is logged. */
static int tls_connect_read_address(const char *scheme, const char *where,
                                    struct address *ret_address)
{
    char text[PATH_MAX], problem[ADDRESS_REASON_MAX];

    /* An address that does not fit must not be cut: the part could be another valid address. */
    if (snprintf(text, sizeof(text), "%s:%s", scheme, where) >= (int)sizeof(text))
        return -EINVAL;
    int error = address_parse(text, ret_address, problem);
    if (error)
        log_warn("%s", problem);
    return error;
}

static int tls_connect_find_credentials(const struct address *address,
                                        struct credentials *ret_credentials)
{
    char path[PATH_MAX], problem[FOLDER_PROBLEM_MAX], text[ADDRESS_TEXT_MAX];
    int error = credentials_find(address, path);

    address_format(address, text);
    if (error) {
        log_warn("%s: %s", text,
                 error == -ENOTUNIQ ? "there are several credentials, and none is named after it"
                                    : "no credentials were found");
        return error == -ENOENT || error == -ENOTUNIQ ? -ENOKEY : error;
    }
    error = credentials_load(path, ret_credentials, problem);
    if (error)
        log_warn("%s: %s", text, problem);
    return error;
}

int tls_connect_to(const char *scheme, const char *where, tls_dial dial, uint64_t deadline_ns,
                   struct link **ret_link)
{
    struct credentials credentials;
    struct address address;
    struct owned socket;
    int error = tls_connect_read_address(scheme, where, &address);

    error = error ? error : tls_connect_find_credentials(&address, &credentials);
    if (error)
        return error;
    error = dial(&address, deadline_ns, &socket);
    error = error ? error : tls_connect(&socket, &credentials, deadline_ns, ret_link);
    credentials_finish(&credentials);
    return error;
}

int tls_connect_ticket_to(const char *scheme, const char *where, tls_dial dial,
                          const struct ticket *ticket, uint64_t deadline_ns, struct link **ret_link)
{
    struct address address;
    struct owned socket;
    int error = tls_connect_read_address(scheme, where, &address);

    error = error ? error : dial(&address, deadline_ns, &socket);
    return error ? error : tls_connect_ticket(&socket, ticket, deadline_ns, ret_link);
}

int tls_listen_address(const char *scheme, const char *where, struct address *ret_address)
{
    if (!tls_server_is_open()) {
        log_error("%s needs an authority: make one with reseat serve --init-ca", scheme);
        return -EPERM;
    }
    return tls_connect_read_address(scheme, where, ret_address);
}
