#include "remote/watch/watch.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "messages.h"
#include "remote/identity/credentials.h"
#include "remote/link/link.h"
#include "remote/link/tls.h"
#include "remote/wire/stream.h"
#include "state/base/bytes/text.h"
#include "state/base/clock.h"

/* Record a problem. Returns false, so that a check can end with `return contact_wrong(...)`. */
PRINTF(3, 4)
static bool contact_wrong(struct server_news *contact, const char *code, const char *format, ...)
{
    char text[sizeof(contact->problem)];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    snprintf(contact->code, sizeof(contact->code), "%s", code);
    /* The text can quote what an untrusted server sent. */
    text_make_safe(contact->problem, sizeof(contact->problem), text, strlen(text));
    return false;
}

/* ---- our credentials ---- */

static void contact_day_of(const ASN1_TIME *time, char ret[32])
{
    struct tm day;

    if (!ASN1_TIME_to_tm(time, &day) || !strftime(ret, 32, "%Y-%m-%d %H:%M UTC", &day))
        strcpy(ret, "an unknown day");
}

/** Check our certificate's dates: the server would reject an invalid one without a clear reason. */
static bool contact_counts_now(const X509 *certificate, struct server_news *contact)
{
    char day[32];

    if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
        contact_day_of(X509_get0_notBefore(certificate), day);
        return contact_wrong(
            contact, "clock",
            "our certificate begins at %s, which is later than this machine's clock says: "
            "this clock or the server's is wrong",
            day);
    }
    if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
        contact_day_of(X509_get0_notAfter(certificate), day);
        return contact_wrong(
            contact, "expired",
            "our certificate ended at %s; on the server, reseat serve --revoke NAME and "
            "--issue NAME make another",
            day);
    }
    return true;
}

static bool contact_has_credentials(const struct address *address, struct server_news *contact)
{
    char path[PATH_MAX], problem[FOLDER_PROBLEM_MAX], name[ADDRESS_TEXT_MAX];
    struct credentials credentials;
    int error = credentials_find(address, path);

    if (address->kind == ADDRESS_TCP)
        snprintf(name, sizeof(name), "%s", address->host);
    else
        snprintf(name, sizeof(name), "vsock-%u", address->cid);
    if (error == -ENOENT || error == -ENOTUNIQ) {
        if (folder_home("XDG_CONFIG_HOME", ".config", path))
            strcpy(path, "~/.config/reseat");
        return contact_wrong(
            contact, "no-credentials",
            "there are no credentials for it; reseat serve --issue NAME on its host makes "
            "some, which belong here as %.300s/servers/%s.pem",
            path, name);
    }
    if (error)
        return contact_wrong(contact, "credentials", "its credentials: %s", strerror(-error));
    error = credentials_load(path, &credentials, problem);
    if (error)
        return contact_wrong(contact, "credentials", "%s", problem);
    bool counts = contact_counts_now(credentials.certificate, contact);
    credentials_finish(&credentials);
    return counts;
}

/* ---- the server ---- */

/** Record the problem that @error, which link_kind's connect() returned, stands for. */
static bool contact_not_connected(const struct address *address, int error,
                                  struct server_news *contact)
{
    const char *said = address->kind == ADDRESS_UNIX ? "" : tls_reason();

    switch (error) {
    case -EACCES:
        if (strstr(said, "revoked"))
            return contact_wrong(contact, "revoked",
                                 "the server has revoked our certificate "
                                 "(reseat serve --issue makes another)");
        return contact_wrong(contact, "refused", "the server does not admit us: %s", said);
    case -EPERM:
        if (address->kind == ADDRESS_UNIX)
            return contact_wrong(
                contact, "permission",
                "the socket there is owned by another user: a socket is for the devices of the "
                "same user, in a folder that is theirs alone (mode 0700)");
        return contact_wrong(contact, "unbelieved",
                             "the server there is not the one that our credentials are for: %s",
                             said);
    case -EPROTO:
    case -EPIPE:
        return contact_wrong(contact, "protocol", "what answers there is not a device server: %s",
                             said);
    case -ETIMEDOUT:
        if (said[0])
            return contact_wrong(contact, "silent",
                                 "something accepts connections there and says nothing");
        break;
    default:
        break;
    }
    return contact_wrong(contact, "unreachable", "cannot connect: %s",
                         error == -ENOENT ? "there is no such host or socket" : strerror(-error));
}

static bool contact_greet(struct link *link, uint64_t deadline_ns, struct server_news *contact)
{
    unsigned char buffer[STREAM_GREETING_MAX];
    struct message message;
    struct msg_refused refused;
    struct msg_welcome welcome;
    struct pack pack;
    uint64_t asked = clock_now_ns();

    pack_init(&pack);
    pack_hello(&pack, &(struct msg_hello){.version = WIRE_VERSION, .features = FEATURE_LOOK});
    int error = greeting_send(link, MSG_HELLO, pack.bytes, pack.used, deadline_ns);
    pack_finish(&pack);
    if (!error)
        error = greeting_receive(link, buffer, deadline_ns, &message);
    if (error == -ETIMEDOUT)
        return contact_wrong(contact, "silent", "it accepts connections and says nothing");
    if (error)
        return contact_wrong(contact, "protocol", "it ended the connection: %s", strerror(-error));
    contact->round_trip_ns = clock_now_ns() - asked;
    struct unpack body = {message.body, message.body + message.size, false};
    if (message.type == MSG_REFUSED && unpack_refused(&body, &refused))
        return contact_wrong(contact, strstr(refused.reason, "version") ? "version" : "busy",
                             "the server refuses: %.300s", refused.reason);
    if (message.type != MSG_WELCOME || !unpack_welcome(&body, &welcome))
        return contact_wrong(contact, "protocol", "what answers there is not a device server");
    if (welcome.version != WIRE_VERSION)
        return contact_wrong(contact, "version",
                             "it speaks version %u of the protocol, and we version %u",
                             welcome.version, WIRE_VERSION);
    return true;
}

void contact_look(const char *address, uint64_t deadline_ns, struct server_news *ret_news)
{
    struct server_news contact = {.code = ""};
    struct address parsed;
    char reason[ADDRESS_REASON_MAX];
    const char *where = NULL;
    const struct link_kind *kind = link_kind_of(address, &where);
    struct link *link = NULL;
    bool good = kind && !address_parse(address, &parsed, reason);

    if (!good) {
        contact_wrong(&contact, "address", "%s",
                      kind ? reason : "it must begin with unix:, tcp: or vsock:");
    } else if (parsed.kind == ADDRESS_UNIX || contact_has_credentials(&parsed, &contact)) {
        int error = kind->connect(where, NULL, deadline_ns, &link);
        if (error)
            contact_not_connected(&parsed, error, &contact);
        else
            contact_greet(link, deadline_ns, &contact);
    }
    if (link)
        link->ops->destroy(link);
    *ret_news = contact;
}
