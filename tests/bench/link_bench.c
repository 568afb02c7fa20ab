#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "remote/identity/ca.h"
#include "remote/link/link.h"
#include "remote/link/tls.h"
#include "state/base/clock.h"
#include "tests/scratch.h"

/*
 * What a link over TCP on this machine carries beside a plain stream of OpenSSL's between two
 * processes, with the same cipher and blocking sockets: in turn, in one run. Each carries messages
 * of 64 MiB from memory to memory, of which each is answered, as a program's blocking writes are.
 *
 * link_bench [MIB [RUNS]]: by default 512 MiB, 5 runs. Prints GB/s of each, the ratio of each pair,
 * and their median; and the processors' time for a byte, which depends less on what else runs, of
 * the process that sends and of the one that receives.
 */

#define MIB     (1u << 20)
#define MESSAGE (64 * MIB)

static char message[MESSAGE];

static void fail(const char *what)
{
    fprintf(stderr, "link_bench: %s: %s %s\n", what, strerror(errno), tls_reason());
    exit(1);
}

static void ok(bool good, const char *what)
{
    if (!good)
        fail(what);
}

/** An end of either kind. */
struct end {
    struct link *link;
    SSL *ssl;
};

static void end_send(struct end *end, const void *bytes, size_t size)
{
    struct iovec iov = {(void *)(uintptr_t)bytes, size};

    if (end->link)
        ok(end->link->ops->send(end->link, &iov, 1, UINT64_MAX) == 0, "send");
    else
        ok(SSL_write(end->ssl, bytes, (int)size) == (int)size, "SSL_write");
}

static size_t end_receive(struct end *end, void *bytes, size_t size)
{
    size_t count = 0;

    if (end->link)
        ok(end->link->ops->receive(end->link, bytes, size, UINT64_MAX, &count) == 0, "receive");
    else
        ok(SSL_read_ex(end->ssl, bytes, size, &count) == 1, "SSL_read");
    return count;
}

/* Bytes are not looked at: both would do it alike. */
static void take_all(struct end *end, size_t size)
{
    memset(message, 1, sizeof(message)); /* Its pages are there. */
    for (size_t some; size; size -= some) {
        some = size < MESSAGE ? size : MESSAGE;
        for (size_t at = 0; at < some;)
            at += end_receive(end, message + at, some - at);
        end_send(end, "", 1);
    }
}

/* Returns GB/s of all, and of the fastest message. */
static double give_all(struct end *end, size_t size, double *ret_best)
{
    uint64_t begin = clock_now_ns(), begun = begin;
    char word;

    *ret_best = 0;
    for (size_t at = 0, some; at < size; at += some) {
        some = size - at < MESSAGE ? size - at : MESSAGE;
        end_send(end, message, some);
        (void)end_receive(end, &word, 1);
        uint64_t now = clock_now_ns();
        double speed = (double)some / (double)(now - begun);
        *ret_best = speed > *ret_best ? speed : *ret_best;
        begun = now;
    }
    return (double)size / (double)(begun - begin);
}

/** A stream as any program would make one, with what OpenSSL does by itself. */
static SSL *plain(int fd, const struct credentials *credentials, bool serves)
{
    static const int on = 1;
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    SSL *ssl;

    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256");
    SSL_CTX_use_certificate(context, credentials->certificate);
    SSL_CTX_use_PrivateKey(context, credentials->key);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), credentials->authority);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    ssl = SSL_new(context);
    SSL_set_fd(ssl, fd);
    ok((serves ? SSL_accept(ssl) : SSL_connect(ssl)) == 1, "handshake");
    return ssl;
}

/** In a process of its own: one connection of either kind. */
static void serve(int listener, bool ours, const struct credentials *credentials, size_t size)
{
    struct pollfd poll_for = {.fd = listener, .events = POLLIN};
    struct end end = {NULL, NULL};

    ok(poll(&poll_for, 1, 60000) == 1, "nobody connects");
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | (ours ? SOCK_NONBLOCK : 0));
    ok(fd >= 0, "accept");
    if (ours)
        ok(link_tcp.admit(fd, clock_now_ns() + 60 * NS_PER_S, &end.link) == 0, "admit");
    else
        end.ssl = plain(fd, credentials, true);
    take_all(&end, size);
    /* The other end closes first. */
    if (end.ssl)
        (void)SSL_read(end.ssl, message, 1);
    _exit(0);
}

/** Of one connection; the times are of who sends and of who receives, and of how they begin. */
struct result {
    double speed, best;         /**< GB/s, of all and of the fastest message. */
    double send_ns, receive_ns; /**< For each byte. */
};

static double used_ns(const struct rusage *usage)
{
    return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * (double)NS_PER_S +
           (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * 1e3;
}

static struct result run(int listener, uint16_t port, bool ours, const struct credentials *client,
                         const struct credentials *server, size_t size)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct end end = {NULL, NULL};
    struct rusage before, after, other;
    char where[32];
    int status = 0, fd = -1;
    pid_t child = fork();

    ok(child >= 0, "fork");
    if (child == 0)
        serve(listener, ours, server, size);
    getrusage(RUSAGE_SELF, &before);
    if (ours) {
        snprintf(where, sizeof(where), "127.0.0.1:%u", port);
        ok(link_tcp.connect(where, NULL, clock_now_ns() + 60 * NS_PER_S, &end.link) == 0,
           "connect");
    } else {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ok(connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0, "connect");
        end.ssl = plain(fd, client, false);
    }
    double best, speed = give_all(&end, size, &best);
    if (ours)
        end.link->ops->destroy(end.link);
    else
        close(fd);
    getrusage(RUSAGE_SELF, &after);
    ok(wait4(child, &status, 0, &other) == child && status == 0, "the other process");
    return (struct result){speed, best, (used_ns(&after) - used_ns(&before)) / (double)size,
                           used_ns(&other) / (double)size};
}

static int compare(const void *a, const void *b)
{
    double of_a = *(const double *)a, of_b = *(const double *)b;

    return (of_a > of_b) - (of_a < of_b);
}

int main(int argc, char **argv)
{
    size_t size = (argc > 1 ? strtoull(argv[1], NULL, 10) : 512) * MIB;
    size_t runs = argc > 2 ? strtoull(argv[2], NULL, 10) : 5;
    char folder[SCRATCH_MAX], ca[SCRATCH_MAX + 8], file[SCRATCH_MAX + 16], own[PATH_MAX];
    char problem[FOLDER_PROBLEM_MAX];
    struct ca_wish wish = {.name = "client", .grant = GRANT_ALL, .days = 1, .to_file = file};
    struct credentials client, server;
    struct sockaddr_in address = {.sin_port = 0};
    socklen_t length = sizeof(address);
    int listener;

    memset(message, 1, sizeof(message));
    if (!size || !runs || runs > 100)
        return 2;
    ok(mkdtemp(scratch(folder, "link")) != NULL, "mkdtemp");
    snprintf(ca, sizeof(ca), "%s/ca", folder);
    snprintf(file, sizeof(file), "%s/client.pem", folder);
    ok(ca_create(ca, "server", time(NULL), problem) == 0 &&
           ca_issue(ca, &wish, time(NULL), problem) == 0 && ca_file(ca, CA_SERVER, own) == 0 &&
           credentials_load(file, &client, problem) == 0 &&
           credentials_load(own, &server, problem) == 0 && tls_server_open(ca, problem) == 0,
       "the authority");
    setenv("RESEAT_CREDENTIALS", file, 1);
    ok(link_tcp.listen("127.0.0.1:0", &listener) == 0, "listen");
    ok(getsockname(listener, (struct sockaddr *)&address, &length) == 0, "getsockname");
    double ratios[100];
    for (size_t i = 0; i < runs; i++) {
        uint16_t port = ntohs(address.sin_port);
        struct result plainly = run(listener, port, false, &client, &server, size);
        struct result ours = run(listener, port, true, &client, &server, size);
        ratios[i] = ours.speed / plainly.speed;
        printf("%zu MiB: plain %.2f GB/s, link %.2f GB/s, ratio %.3f; the fastest message %.3f and "
               "%.3f GB/s; ns a byte of who sends and who receives: %.2f %.2f, %.2f %.2f\n",
               size / MIB, plainly.speed, ours.speed, ratios[i], plainly.best, ours.best,
               plainly.send_ns, plainly.receive_ns, ours.send_ns, ours.receive_ns);
        fflush(stdout);
    }
    qsort(ratios, runs, sizeof(*ratios), compare);
    printf("median of %zu: %.3f\n", runs, ratios[runs / 2]);
    credentials_finish(&client);
    credentials_finish(&server);
    tls_server_close();
    char command[SCRATCH_MAX + 16];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command) ? 1 : 0;
}
