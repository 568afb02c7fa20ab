#include <errno.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "remote/identity/credentials.h"
#include "remote/link/link.h"
#include "state/base/files/file.h"
#include "tests/remote/link/tls_rig.h"
#include "tests/support/leaks.h"

/* Who gets past a handshake, and what becomes of everybody else. */

TestSuite(admission, .fini = leaks_check, .timeout = 240);

#define DAY_S (24 * 3600)

static void expect_refused(const struct credentials *credentials, const char *why)
{
    struct ends ends = ends_make(credentials);

    cr_expect_eq(ends.admitted, -EPERM, "%d", ends.admitted);
    cr_expect_not_null(strstr(ends.server_reason, why), "%s", ends.server_reason);
    cr_expect_eq(ends.connected, -EACCES, "%d: %s", ends.connected, ends.client_reason);
    cr_expect_not_null(strstr(ends.client_reason, "the server refuses us"), "%s",
                       ends.client_reason);
    ends_finish(&ends);
}

static void expect_not_believed(const struct credentials *credentials, const char *why)
{
    struct ends ends = ends_make(credentials);

    cr_expect_eq(ends.connected, -EPERM, "%d", ends.connected);
    cr_expect_not_null(strstr(ends.client_reason, why), "%s", ends.client_reason);
    cr_expect_neq(ends.admitted, 0);
    ends_finish(&ends);
}

Test(admission, both_ends_know_each_other_over_tcp)
{
    char where[64], bytes[6] = "";
    struct link *client = NULL;
    struct grant grant;
    struct rig rig;

    rig_init(&rig);
    rig_listen(&rig);
    struct admission admission = {.fd = -1, .listener = rig.listener, .deadline_ns = rig_soon()};
    admission_begin(&admission);
    snprintf(where, sizeof(where), "localhost:%u", rig.port);
    cr_assert_eq(link_tcp.connect(where, NULL, rig_soon(), &client), 0, "%s", tls_reason());
    cr_assert_eq(admission_end(&admission), 0, "%s", admission.reason);
    cr_expect_str_eq(client->peer, "gpuhost");
    cr_expect_str_eq(admission.link->peer, "laptop");
    cr_assert_eq(tls_grant(admission.link, &grant), 0);
    cr_expect_eq(grant.sessions, 7);
    cr_expect_eq(tls_grant(client, &grant), -ENOENT);
    /* The key is not needed for what is admitted. */
    tls_server_close();
    cr_assert_eq(rig_send(client, "hello", 6, rig_soon()), 0);
    cr_assert_eq(rig_receive(admission.link, bytes, 6, rig_soon()), 0);
    cr_expect_str_eq(bytes, "hello");
    client->ops->destroy(client);
    cr_expect_eq(rig_receive(admission.link, bytes, 1, rig_soon()), -EPIPE);
    admission.link->ops->destroy(admission.link);
    rig_finish(&rig);
}

Test(admission, another_authoritys_client_is_refused)
{
    struct credentials ours, theirs, mixed;
    struct rig rig, other;

    rig_init(&other);
    theirs = rig_load(other.client);
    rig_init(&rig);
    ours = rig_load(rig.client);
    /* A client that believes our server, with another's certificate. */
    mixed = theirs;
    mixed.authority = ours.authority;
    expect_refused(&mixed, "unable to get local issuer certificate");
    /* And one that believes another's server. */
    expect_not_believed(&theirs, "unable to get local issuer certificate");
    credentials_finish(&ours);
    credentials_finish(&theirs);
    rig_finish(&rig);
}

Test(admission, a_certificate_counts_between_its_two_times)
{
    char path[RIG_NAME_MAX];
    struct rig rig;

    rig_init(&rig);
    rig_issue(&rig, "old", time(NULL) - 31 * DAY_S, path);
    struct credentials credentials = rig_load(path);
    expect_refused(&credentials, "certificate has expired");
    credentials_finish(&credentials);
    rig_issue(&rig, "early", time(NULL) + DAY_S, path);
    credentials = rig_load(path);
    expect_refused(&credentials, "not yet valid");
    credentials_finish(&credentials);
    rig_finish(&rig);
}

Test(admission, who_is_revoked_is_out_from_the_next_handshake_on)
{
    char problem[FOLDER_PROBLEM_MAX], path[PATH_MAX];
    struct rig rig;
    size_t count;

    rig_init(&rig);
    struct credentials credentials = rig_load(rig.client);
    struct ends ends = ends_made(&rig);
    cr_assert_eq(ca_revoke(rig.ca, "laptop", time(NULL), &count, problem), 0);
    expect_refused(&credentials, "laptop: the certificate is revoked");
    ends_finish(&ends);
    credentials_finish(&credentials);
    /* A list that is gone lets nobody in, not everybody. */
    rig_issue(&rig, "second", time(NULL), path);
    credentials = rig_load(path);
    ends = ends_make(&credentials);
    cr_expect_eq(ends.connected + ends.admitted, 0);
    ends_finish(&ends);
    cr_assert_eq(ca_file(rig.ca, CA_REVOKED, path), 0);
    cr_assert_eq(unlink(path), 0);
    expect_refused(&credentials, "cannot be read");
    credentials_finish(&credentials);
    rig_finish(&rig);
}

Test(admission, a_server_has_the_name_that_was_meant)
{
    struct rig rig;

    rig_init(&rig);
    struct credentials credentials = rig_load(rig.client);
    static const char *const names[] = {"other", "gpuhost.example", "host", "gpuhos"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        strcpy(credentials.server, names[i]);
        expect_not_believed(&credentials, "hostname mismatch");
    }
    credentials_finish(&credentials);
    rig_finish(&rig);
}

Test(admission, a_client_is_no_server_and_a_server_no_client)
{
    char path[PATH_MAX], problem[FOLDER_PROBLEM_MAX], *bytes;
    struct rig rig;
    size_t size;

    rig_init(&rig);
    cr_assert_eq(ca_file(rig.ca, CA_SERVER, path), 0);
    struct credentials credentials = rig_load(path);
    expect_refused(&credentials, "certificate purpose");
    credentials_finish(&credentials);
    /* Whoever has a client's credentials sets a server up with them. */
    cr_assert_eq(private_file_read(rig.client, 65536, &bytes, &size, problem), 0);
    cr_assert_eq(file_replace_path(path, bytes, size), 0);
    private_file_free(bytes, size);
    cr_assert_eq(tls_server_open(rig.ca, problem), 0, "%s", problem);
    credentials = rig_load(rig.client);
    strcpy(credentials.server, "laptop");
    expect_not_believed(&credentials, "certificate purpose");
    credentials_finish(&credentials);
    rig_finish(&rig);
}

/** Sign a certificate with the authority's key. */
static struct credentials signed_by(const struct rig *rig, const struct certificate_wish *wish,
                                    const struct credentials *signer)
{
    char path[PATH_MAX];
    struct credentials authority, made = {.key = certificate_new_key()};

    cr_assert_eq(ca_file(rig->ca, CA_KEY, path), 0);
    authority = rig_load(path);
    if (!signer)
        signer = &authority;
    made.certificate = certificate_make(wish, made.key, signer->certificate, signer->key);
    cr_assert_not_null(made.certificate);
    made.authority = authority.certificate;
    X509_up_ref(made.authority);
    strcpy(made.server, "gpuhost");
    credentials_finish(&authority);
    return made;
}

Test(admission, a_certificate_without_a_grant_or_a_name_grants_nothing)
{
    const struct certificate_wish bare = {CERTIFICATE_CLIENT, "bare", NULL, time(NULL) - 60,
                                          time(NULL) + DAY_S};
    const struct grant all = GRANT_ALL;
    const struct certificate_wish odd = {CERTIFICATE_CLIENT, "no name", &all, time(NULL) - 60,
                                         time(NULL) + DAY_S};
    struct rig rig;

    rig_init(&rig);
    struct credentials credentials = signed_by(&rig, &bare, NULL);
    expect_refused(&credentials, "bare: the certificate has no grant");
    credentials_finish(&credentials);
    credentials = signed_by(&rig, &odd, NULL);
    expect_refused(&credentials, "no valid client name");
    credentials_finish(&credentials);
    rig_finish(&rig);
}

/* A client's key could sign certificates, if only anybody took them. */
Test(admission, a_client_cannot_make_clients)
{
    const struct grant all = GRANT_ALL;
    const struct certificate_wish wish = {CERTIFICATE_CLIENT, "friend", &all, time(NULL) - 60,
                                          time(NULL) + DAY_S};
    struct rig rig;

    rig_init(&rig);
    struct credentials laptop = rig_load(rig.client);
    struct credentials credentials = signed_by(&rig, &wish, &laptop);
    expect_refused(&credentials, "unable to get local issuer certificate");
    credentials_finish(&credentials);
    credentials_finish(&laptop);
    rig_finish(&rig);
}

/** A client of OpenSSL's own making on a TCP connection, which says what it received. */
static ssize_t foreign_client(int fd, const struct credentials *credentials, int version)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl;
    char word;

    SSL_CTX_set_min_proto_version(context, version);
    SSL_CTX_set_max_proto_version(context, version);
    SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
    if (credentials) {
        SSL_CTX_use_certificate(context, credentials->certificate);
        SSL_CTX_use_PrivateKey(context, credentials->key);
    }
    ssl = SSL_new(context);
    SSL_set_fd(ssl, fd);
    ssize_t result = SSL_connect(ssl) == 1 ? SSL_read(ssl, &word, 1) : -1;
    cr_expect(result <= 0 || word == 'R');
    SSL_free(ssl);
    SSL_CTX_free(context);
    return result == 1 ? 1 : -1;
}

Test(admission, nobody_without_a_certificate_or_with_an_old_version_gets_in)
{
    struct rig rig;

    rig_init(&rig);
    rig_listen(&rig);
    struct credentials credentials = rig_load(rig.client);
    const struct {
        const struct credentials *credentials;
        int version, error;
        const char *why;
        ssize_t received;
    } rows[] = {
        {NULL, TLS1_3_VERSION, -EPERM, "it sent no certificate", -1},
        {&credentials, TLS1_2_VERSION, -EPROTO, "unsupported protocol", -1},
        {&credentials, TLS1_3_VERSION, 0, "", 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct admission admission = {
            .fd = -1, .listener = rig.listener, .deadline_ns = rig_soon()};
        admission_begin(&admission);
        int fd = rig_dial(rig.port);
        cr_expect_eq(foreign_client(fd, rows[i].credentials, rows[i].version), rows[i].received,
                     "%zu", i);
        cr_expect_eq(admission_end(&admission), rows[i].error, "%zu: %s", i, admission.reason);
        cr_expect_str_eq(admission.reason, rows[i].why);
        if (admission.link)
            admission.link->ops->destroy(admission.link);
        close(fd);
    }
    credentials_finish(&credentials);
    rig_finish(&rig);
}

Test(admission, what_is_not_tls_is_no_client)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: gpuhost\r\n\r\n";
    static const char zeros[512];
    char noise[512];
    struct rig rig;

    rig_init(&rig);
    rig_listen(&rig);
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (char)rig_byte(i, 5);
    const struct {
        const char *bytes;
        size_t size;
        int error;
    } rows[] = {{http, sizeof(http) - 1, -EPROTO},
                {zeros, sizeof(zeros), -EPROTO},
                {noise, sizeof(noise), -EPROTO},
                {"\x16\x03\x01", 3, -EPIPE},
                {"", 0, -EPIPE}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct admission admission = {
            .fd = -1, .listener = rig.listener, .deadline_ns = rig_soon()};
        admission_begin(&admission);
        int fd = rig_dial(rig.port);
        cr_assert_eq(send(fd, rows[i].bytes, rows[i].size, MSG_NOSIGNAL), (ssize_t)rows[i].size);
        shutdown(fd, SHUT_WR);
        cr_expect_eq(admission_end(&admission), rows[i].error, "%zu: %s", i, admission.reason);
        cr_expect_neq(admission.reason[0], '\0');
        close(fd);
    }
    rig_finish(&rig);
}

/* Both would keep a process of the server's for as long as they like. */
Test(admission, who_is_silent_or_slow_is_given_up)
{
    static const unsigned char hello[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    struct rig rig;

    rig_init(&rig);
    rig_listen(&rig);
    for (int speaks = 0; speaks < 2; speaks++) {
        int fds[2];
        cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        uint64_t deadline = rig_in_ms(300);
        struct owned socket = owned_of(fds[1]);
        struct link *link;
        if (speaks)
            cr_assert_eq(send(fds[0], hello, sizeof(hello) - 1, 0), sizeof(hello) - 1);
        cr_expect_eq(tls_admit(&socket, deadline, &link), -ETIMEDOUT, "%s", tls_reason());
        cr_expect_geq(clock_now_ns(), deadline);
        /* And its socket is closed. */
        char byte;
        cr_expect(recv(fds[0], &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET);
        close(fds[0]);
    }
    rig_finish(&rig);
}

/** One byte at a time, each long before any deadline of a single read. */
static void *drip(void *data)
{
    int fd = *(int *)data;
    static const unsigned char hello[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";

    for (size_t i = 0; i < 200; i++) {
        if (send(fd, &hello[i < sizeof(hello) - 1 ? i : 5], 1, MSG_NOSIGNAL) != 1)
            break;
        clock_sleep(20 * NS_PER_MS);
    }
    return NULL;
}

Test(admission, one_byte_at_a_time_does_not_prolong_it)
{
    pthread_t thread;
    struct link *link;
    struct rig rig;
    int fds[2];

    rig_init(&rig);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    cr_assert_eq(pthread_create(&thread, NULL, drip, &fds[0]), 0);
    struct owned socket = owned_of(fds[1]);
    uint64_t before = clock_now_ns();
    cr_expect_eq(tls_admit(&socket, rig_in_ms(400), &link), -ETIMEDOUT, "%s", tls_reason());
    /* It goes on for four seconds. */
    cr_expect_lt(clock_now_ns() - before, 3 * NS_PER_S);
    pthread_join(thread, NULL);
    close(fds[0]);
    rig_finish(&rig);
}

/* OpenSSL alone would take 128 KiB of a first message from anybody, and wait for the rest. */
Test(admission, a_stranger_is_not_read_for_long)
{
    /* Records of 4096 bytes, of one ClientHello of 100,000: more than is taken, and not all. */
    enum { RECORD = 5 + 4096 };
    static unsigned char flood[5 * RECORD];
    _Static_assert(sizeof(flood) > TLS_STRANGER_BYTES, "it is within the limit");
    struct link *link;
    struct rig rig;
    int fds[2];

    rig_init(&rig);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    for (size_t at = 0; at < sizeof(flood); at += RECORD)
        memcpy(flood + at, "\x16\x03\x01\x10\x00", 5);
    memcpy(flood + 5, "\x01\x01\x86\xa0\x03\x03", 6);
    cr_assert_eq(send(fds[0], flood, sizeof(flood), 0), sizeof(flood));
    struct owned socket = owned_of(fds[1]);
    cr_expect_eq(tls_admit(&socket, rig_in_ms(5000), &link), -EPROTO, "%s", tls_reason());
    close(fds[0]);
    rig_finish(&rig);
}

Test(admission, without_an_authority_nobody_listens)
{
    struct rig rig;
    struct link *link;
    int fd, fds[2];

    rig_init(&rig);
    tls_server_close();
    cr_expect_eq(link_tcp.listen("127.0.0.1:0", &fd), -EPERM);
    cr_expect_eq(link_vsock.listen("any:7460", &fd), -EPERM);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    struct owned socket = owned_of(fds[1]);
    cr_expect_eq(tls_admit(&socket, rig_soon(), &link), -EPERM);
    close(fds[0]);
    rig_finish(&rig);
}

Test(admission, addresses_that_lead_nowhere_are_said)
{
    char where[64], path[RIG_NAME_MAX];
    struct link *link;
    struct rig rig;
    int fd;

    rig_init(&rig);
    rig_listen(&rig);
    snprintf(where, sizeof(where), "127.0.0.1:%u", rig.port);
    cr_expect_eq(link_tcp.listen(where, &fd), -EADDRINUSE);
    cr_expect_eq(link_tcp.listen("nonsense", &fd), -EINVAL);
    cr_expect_eq(link_tcp.connect("127.0.0.1", NULL, rig_soon(), &link), -EINVAL);
    cr_expect_eq(link_tcp.connect("127.0.0.1:0", NULL, rig_soon(), &link), -EINVAL);
    cr_expect_eq(link_vsock.connect("any:1", NULL, rig_soon(), &link), -EINVAL);
    close(rig.listener);
    rig.listener = -1;
    cr_expect_eq(link_tcp.connect(where, NULL, rig_soon(), &link), -ECONNREFUSED);
    snprintf(path, sizeof(path), "%s/none.pem", rig.folder);
    setenv("RESEAT_CREDENTIALS", path, 1);
    cr_expect_eq(link_tcp.connect(where, NULL, rig_soon(), &link), -ENOENT);
    unsetenv("RESEAT_CREDENTIALS");
    setenv("XDG_CONFIG_HOME", rig.folder, 1);
    cr_expect_eq(link_tcp.connect(where, NULL, rig_soon(), &link), -ENOKEY);
    rig_finish(&rig);
}

/* Where the kernel has no vsock, what is above the socket is tested on pairs by all others here. */
Test(admission, both_ends_know_each_other_over_vsock)
{
    struct link *client;
    struct rig rig;
    int listener;

    rig_init(&rig);
    int error = link_vsock.listen("local:7460", &listener);
    if (error) {
        fprintf(stderr, "no vsock here: %s\n", strerror(-error));
        cr_expect(error == -EAFNOSUPPORT || error == -EADDRNOTAVAIL || error == -ENODEV, "%d",
                  error);
        rig_finish(&rig);
        return;
    }
    struct admission admission = {
        .kind = &link_vsock, .fd = -1, .listener = listener, .deadline_ns = rig_soon()};
    admission_begin(&admission);
    cr_assert_eq(link_vsock.connect("local:7460", NULL, rig_soon(), &client), 0, "%s",
                 tls_reason());
    cr_assert_eq(admission_end(&admission), 0);
    client->ops->destroy(client);
    admission.link->ops->destroy(admission.link);
    close(listener);
    rig_finish(&rig);
}
