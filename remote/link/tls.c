#include "remote/link/tls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "remote/identity/ca.h"
#include "remote/identity/certificate.h"
#include "remote/link/tls_priv.h"
#include "state/base/log.h"

static _Thread_local char reason[TLS_REASON_MAX];

/* Set before there are threads; constant until the process serves one client. */
static struct {
    bool open;
    struct credentials credentials;
    char revoked[PATH_MAX];
    tls_ticket_finder find;
    void *find_data;
} server;

const char *tls_reason(void)
{
    return reason;
}

int tls_server_open(const char *ca_folder, char ret_problem[FOLDER_PROBLEM_MAX])
{
    char path[PATH_MAX], revoked[PATH_MAX];

    if (ca_file(ca_folder, CA_SERVER, path) || ca_file(ca_folder, CA_REVOKED, revoked))
        return folder_refuse(ret_problem, -ENAMETOOLONG, ca_folder, "is too long a path");
    /* A list that cannot be read is an error at once, rather than at the first client. */
    int error = revoked_check(revoked, "", ret_problem);
    struct credentials credentials;
    error = error ? error : credentials_load(path, &credentials, ret_problem);
    if (error)
        return error;
    tls_server_close();
    server.open = true;
    server.credentials = credentials;
    strcpy(server.revoked, revoked);
    return 0;
}

void tls_server_close(void)
{
    if (server.open)
        credentials_finish(&server.credentials);
    server.open = false;
}

static struct tls_link *tls_create(struct owned *socket)
{
    struct tls_link *tls = calloc(1, sizeof(*tls));

    if (!tls)
        return NULL;
    tls->link.ops = &tls_ops;
    tls->socket = *socket;
    *socket = OWNED_NONE;
    tls->maker = getpid();
    pthread_mutex_init(&tls->lock, NULL);
    tls->out = malloc(TLS_OUT_MAX);
    tls->sending = malloc(TLS_OUT_MAX);
    tls->staging = malloc(TLS_STAGING);
    if (tls->out && tls->sending && tls->staging)
        return tls;
    tls_ops.destroy(&tls->link);
    return NULL;
}

/** @revoked: NULL at the client's end, which has either credentials or a ticket. */
static int tls_begin(struct owned *socket, const struct credentials *credentials,
                     const struct ticket *ticket, const char *revoked, uint64_t deadline_ns,
                     struct link **ret_link)
{
    struct tls_link *tls = tls_create(socket);

    if (!tls) {
        owned_close(socket);
        return -ENOMEM;
    }
    tls->serves = revoked != NULL;
    tls->revoked = revoked;
    tls->ticket = ticket;
    tls->find = revoked ? server.find : NULL;
    tls->find_data = server.find_data;
    int error = tls_prepare(tls, credentials);
    error = error ? error : tls_handshake(tls, deadline_ns);
    if (error) {
        memcpy(reason, tls->reason, sizeof(reason)); /* For tls_reason(), as the link is gone. */
        log_warn("TLS with a %s: %s", revoked ? "client" : "server", reason);
        tls_ops.destroy(&tls->link);
        return error;
    }
    if (tls->ticketed)
        snprintf(tls->link.peer, sizeof(tls->link.peer), "a ticket");
    else if (!revoked)
        snprintf(tls->link.peer, sizeof(tls->link.peer), "%.*s", LINK_PEER_MAX - 1,
                 credentials->server);
    *ret_link = &tls->link;
    return 0;
}

int tls_connect(struct owned *socket, const struct credentials *credentials,
                const struct ticket *ticket, uint64_t deadline_ns, struct link **ret_link)
{
    reason[0] = '\0';
    return tls_begin(socket, ticket ? NULL : credentials, ticket, NULL, deadline_ns, ret_link);
}

void tls_server_tickets(tls_ticket_finder find, void *data)
{
    server.find = find;
    server.find_data = data;
}

int tls_admit(struct owned *socket, uint64_t deadline_ns, struct link **ret_link)
{
    reason[0] = '\0';
    if (!server.open) {
        owned_close(socket);
        snprintf(reason, sizeof(reason), "the server has no authority");
        return -EPERM;
    }
    return tls_begin(socket, &server.credentials, NULL, server.revoked, deadline_ns, ret_link);
}

static const struct tls_link *tls_admitted(const struct link *link)
{
    const struct tls_link *tls = (const struct tls_link *)link;

    return link->ops == &tls_ops && tls->serves && !tls->ticketed ? tls : NULL;
}

bool tls_has_ticket(const struct link *link)
{
    return link->ops == &tls_ops && ((const struct tls_link *)link)->ticketed;
}

int tls_grant(const struct link *link, struct grant *ret_grant)
{
    const struct tls_link *tls = tls_admitted(link);

    if (!tls)
        return -ENOENT;
    *ret_grant = tls->grant;
    return 0;
}

int tls_until(const struct link *link, int64_t *ret_until)
{
    const struct tls_link *tls = tls_admitted(link);

    if (!tls)
        return -ENOENT;
    *ret_until = tls->until;
    return 0;
}

int tls_check_again(const struct link *link, time_t now)
{
    const struct tls_link *tls = tls_admitted(link);
    char problem[FOLDER_PROBLEM_MAX];

    if (!tls)
        return -ENOENT;
    return tls->until < now ? -EKEYEXPIRED : revoked_check(server.revoked, tls->serial, problem);
}

/* ---- the kinds of links under TLS ---- */

/** 0 or -EINVAL, which is logged. */
static int tls_read_address(const char *scheme, const char *where, struct address *ret_address)
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

static int tls_find_credentials(const struct address *address, struct credentials *ret_credentials)
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

int tls_connect_to(const char *scheme, const char *where, tls_dial dial,
                   const struct ticket *ticket, uint64_t deadline_ns, struct link **ret_link)
{
    struct credentials credentials = {0};
    struct address address;
    struct owned socket;
    int error = tls_read_address(scheme, where, &address);

    if (!error && !ticket)
        error = tls_find_credentials(&address, &credentials);
    if (error)
        return error;
    error = dial(&address, deadline_ns, &socket);
    error = error ? error : tls_connect(&socket, &credentials, ticket, deadline_ns, ret_link);
    credentials_finish(&credentials);
    return error;
}

int tls_listen_address(const char *scheme, const char *where, struct address *ret_address)
{
    if (!server.open) {
        log_error("%s needs an authority: make one with reseat serve --init-ca", scheme);
        return -EPERM;
    }
    return tls_read_address(scheme, where, ret_address);
}
