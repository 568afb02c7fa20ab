#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "remote/identity/certificate.h"
#include "remote/link/socket.h"
#include "remote/link/tls_priv.h"

/* Limit for a peer's certificate; ours have 600 bytes. */
#define CERTIFICATE_BYTES_MAX (8u << 10)
/* How much is read from the kernel at a time after authentication. */
#define READ_BYTES (128u << 10)
/* The byte by which the server says that a client is admitted. */
#define ADMITTED 'R'

/* With AES-GCM, a key is safe for 2^24.5 records (RFC 8446, 5.5). */
#define RECORDS_MAX (1u << 23)

/* ---- OpenSSL's I/O: never blocks, raises no signal, uses no descriptor that is not ours ---- */

static int tls_handshake_bio_write(BIO *bio, const char *bytes, int size)
{
    struct tls_link *tls = BIO_get_data(bio);

    BIO_clear_retry_flags(bio);
    /* Only a peer that asks for new keys again and again makes OpenSSL write more than fits. */
    if (size <= 0 || (size_t)size > TLS_OUT_MAX - tls->out_used)
        return -1;
    memcpy(tls->out + tls->out_used, bytes, (size_t)size);
    tls->out_used += (size_t)size;
    return size;
}

static int tls_handshake_bio_read(BIO *bio, char *bytes, int size)
{
    struct tls_link *tls = BIO_get_data(bio);
    size_t most = size > 0 ? (size_t)size : 0;
    int fd = owned_fd(&tls->socket);
    ssize_t count;

    BIO_clear_retry_flags(bio);
    most = most < tls->budget ? most : tls->budget;
    if (!most || fd < 0) {
        tls->ended = fd < 0 ? -EBADF : -EPROTO;
        return -1;
    }
    do
        count = recv(fd, bytes, most, MSG_DONTWAIT);
    while (count < 0 && errno == EINTR);
    if (count > 0) {
        if (tls->budget != SIZE_MAX)
            tls->budget -= (size_t)count;
        return (int)count;
    }
    if (count < 0 && errno == EAGAIN)
        BIO_set_retry_read(bio);
    else
        tls->ended = count ? socket_error(errno) : -EPIPE;
    return -1;
}

static long tls_handshake_bio_control(BIO *bio, int what, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return what == BIO_CTRL_FLUSH;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static BIO_METHOD *method;
static int tls_index;

static void tls_handshake_make_method(void)
{
    BIO_METHOD *made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "reseat");

    tls_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, NULL);
    if (made && tls_index >= 0 && BIO_meth_set_write(made, tls_handshake_bio_write) &&
        BIO_meth_set_read(made, tls_handshake_bio_read) &&
        BIO_meth_set_ctrl(made, tls_handshake_bio_control))
        method = made;
    else
        BIO_meth_free(made);
}

/* ---- authentication ---- */

/** The client's certificate is the authority's: check that it is not revoked, and read its grant.
 */
static int tls_handshake_admit(struct tls_link *tls, const X509 *certificate)
{
    char problem[FOLDER_PROBLEM_MAX] = "";
    struct tm until;

    if (certificate_name(certificate, tls->link.peer) ||
        certificate_serial(certificate, tls->serial) ||
        !ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &until)) {
        snprintf(tls->reason, sizeof(tls->reason), "its certificate has no valid client name");
        return -EPERM;
    }
    tls->until = timegm(&until);
    int error = revoked_check(tls->revoked, tls->serial, problem);
    if (error) {
        snprintf(tls->reason, sizeof(tls->reason), "%.64s: %.180s", tls->link.peer,
                 error == -EKEYREVOKED ? "the certificate is revoked" : problem);
        return error;
    }
    error = certificate_grant(certificate, &tls->grant);
    if (error)
        snprintf(tls->reason, sizeof(tls->reason),
                 "%.64s: the certificate has no grant that this server understands",
                 tls->link.peer);
    return error;
}

/** OpenSSL's callback for each certificate of the chain; @good is OpenSSL's own verdict. */
static int tls_handshake_verify(int good, X509_STORE_CTX *store)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct tls_link *tls = SSL_get_ex_data(ssl, tls_index);

    if (!good) {
        snprintf(tls->reason, sizeof(tls->reason), "%s",
                 X509_verify_cert_error_string(X509_STORE_CTX_get_error(store)));
        tls->refusal = -EPERM;
        return 0;
    }
    if (!tls->serves || X509_STORE_CTX_get_error_depth(store) != 0)
        return 1;
    tls->refusal = tls_handshake_admit(tls, X509_STORE_CTX_get_current_cert(store));
    if (tls->refusal)
        X509_STORE_CTX_set_error(store, tls->refusal == -EKEYREVOKED
                                            ? X509_V_ERR_CERT_REVOKED
                                            : X509_V_ERR_APPLICATION_VERIFICATION);
    return tls->refusal == 0;
}

/** Allow one protocol version, few algorithms, and no resumption. */
static bool tls_handshake_restrict_context(SSL_CTX *context)
{
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_NO_AUTO_CHAIN);
    SSL_CTX_set_max_cert_list(context, CERTIFICATE_BYTES_MAX);
    return SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) &&
           SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) &&
           SSL_CTX_set_num_tickets(context, 0) && SSL_CTX_set_max_early_data(context, 0) &&
           SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"
                                             "TLS_CHACHA20_POLY1305_SHA256") &&
           SSL_CTX_set1_groups_list(context, "X25519") &&
           SSL_CTX_set1_sigalgs_list(context, "ed25519") &&
           SSL_CTX_set1_client_sigalgs_list(context, "ed25519");
}

/** Trust only certificates that the authority itself has signed; NULL: trust none. */
static bool tls_handshake_believe(SSL_CTX *context, X509 *authority)
{
    X509_VERIFY_PARAM *rules = SSL_CTX_get0_param(context);

    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       tls_handshake_verify);
    SSL_CTX_set_verify_depth(context, 0);
    return X509_VERIFY_PARAM_set_flags(rules, X509_V_FLAG_X509_STRICT) &&
           (!authority || X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority));
}

/** Accept only the server name for which the credentials were made. */
static bool tls_handshake_expect_server(SSL *ssl, const char *name)
{
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    return SSL_set1_host(ssl, name);
}

static bool tls_handshake_set_up(struct tls_link *tls, const struct credentials *credentials,
                                 SSL_CTX *context)
{
    /* With a ticket no certificate is trusted. */
    if (!tls_handshake_restrict_context(context) ||
        !tls_handshake_believe(context, credentials ? credentials->authority : NULL) ||
        !(tls->ssl = SSL_new(context)))
        return false;
    BIO *bio = BIO_new(method);
    if (!bio)
        return false;
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->ssl, bio, bio);
    /* Large buffers are allocated only after authentication. */
    SSL_set_mode(tls->ssl, SSL_MODE_RELEASE_BUFFERS);
    if (!SSL_set_ex_data(tls->ssl, tls_index, tls) || !tls_ticket_prepare(tls))
        return false;
    if (credentials && (SSL_use_certificate(tls->ssl, credentials->certificate) != 1 ||
                        SSL_use_PrivateKey(tls->ssl, credentials->key) != 1))
        return false;
    if (tls->serves)
        SSL_set_accept_state(tls->ssl);
    else
        SSL_set_connect_state(tls->ssl);
    return tls->serves || !credentials ||
           tls_handshake_expect_server(tls->ssl, credentials->server);
}

int tls_prepare(struct tls_link *tls, const struct credentials *credentials)
{
    char problem[CRYPTO_PROBLEM_MAX];

    pthread_once(&once, tls_handshake_make_method);
    SSL_CTX *context = method ? SSL_CTX_new_ex(crypto_context(), NULL, TLS_method()) : NULL;
    tls->records_max = RECORDS_MAX;
    tls->budget = TLS_STRANGER_BYTES;
    bool done = context && tls_handshake_set_up(tls, credentials, context);
    SSL_CTX_free(context);
    if (done)
        return 0;
    crypto_problem(problem);
    snprintf(tls->reason, sizeof(tls->reason), "OpenSSL cannot be used: %s", problem);
    return -ENOSYS;
}

/* ---- the handshake ---- */

/** Repeat @step until it is done, sending and receiving what it needs. */
static int tls_handshake_advance(struct tls_link *tls, uint64_t deadline_ns, int (*step)(SSL *ssl))
{
    for (;;) {
        ERR_clear_error();
        int result = step(tls->ssl);
        int error = result == 1 ? 0 : tls_outcome(tls, result);
        /* Send also the alert for a peer that is refused. */
        int sent = tls_flush(tls, deadline_ns);
        if (error != -EAGAIN)
            return error ? error : sent;
        error = sent ? sent : socket_wait(&tls->socket, POLLIN, deadline_ns);
        if (error)
            return error;
    }
}

/** Read the byte that says we are admitted, or the alert that refuses us. */
static int tls_handshake_await_admission(SSL *ssl)
{
    char word = 0;
    size_t size;
    int result = SSL_read_ex(ssl, &word, 1, &size);

    return result == 1 && word != ADMITTED ? -1 : result;
}

static int tls_handshake_confirm_admission(SSL *ssl)
{
    static const char word = ADMITTED;
    size_t size;

    return SSL_write_ex(ssl, &word, 1, &size);
}

/** Translate a failure, and give it a reason in words if it has none yet. */
static int tls_handshake_explain(struct tls_link *tls, int error)
{
    unsigned long said = ERR_peek_error();
    bool alert = ERR_GET_LIB(said) == ERR_LIB_SSL && ERR_GET_REASON(said) >= SSL_AD_REASON_OFFSET;
    char problem[CRYPTO_PROBLEM_MAX];

    if (error == -EPROTO && tls->refusal) {
        error = -EPERM;
    } else if (error == -EPROTO &&
               ERR_GET_REASON(said) == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
        snprintf(tls->reason, sizeof(tls->reason), "it sent no certificate");
        error = -EPERM;
    } else if (error == -EPROTO && alert && !tls->serves) {
        crypto_problem(problem);
        snprintf(tls->reason, sizeof(tls->reason), "the server refuses us: %s", problem);
        error = -EACCES;
    } else if (error == -EPROTO && said) {
        crypto_problem(problem);
        snprintf(tls->reason, sizeof(tls->reason), "%s", problem);
    } else if (!tls->reason[0]) {
        snprintf(tls->reason, sizeof(tls->reason), "%s",
                 error == -EPIPE    ? "the connection was closed during the handshake"
                 : error == -EPROTO ? "its TLS is not compatible with ours"
                                    : strerror(-error));
    }
    ERR_clear_error();
    return error;
}

/* Drop what only the handshake needs, and allow large reads. */
static void tls_handshake_settle(struct tls_link *tls)
{
    tls->budget = SIZE_MAX;
    SSL_certs_clear(tls->ssl);
    tls->revoked = NULL;
    tls->ticket = NULL;
    SSL_clear_mode(tls->ssl, SSL_MODE_RELEASE_BUFFERS);
    SSL_set_default_read_buffer_len(tls->ssl, READ_BYTES);
    SSL_set_read_ahead(tls->ssl, 1);
}

int tls_handshake(struct tls_link *tls, uint64_t deadline_ns)
{
    int error = tls_handshake_advance(tls, deadline_ns, SSL_do_handshake);

    /* A reused session is always a ticket, as resumption is off. */
    tls->ticketed = !error && SSL_session_reused(tls->ssl);
    if (!error && tls->ticket && !tls->ticketed) {
        snprintf(tls->reason, sizeof(tls->reason), "it does not have the ticket");
        error = -EPERM;
    }
    if (!error)
        error = tls_handshake_advance(tls, deadline_ns,
                                      tls->serves ? tls_handshake_confirm_admission
                                                  : tls_handshake_await_admission);
    if (error)
        return tls_handshake_explain(tls, error);
    tls_handshake_settle(tls);
    return 0;
}
