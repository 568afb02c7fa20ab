#include <errno.h>
#include <openssl/err.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "remote/link/socket.h"
#include "remote/link/tls_priv.h"

int tls_outcome(struct tls_link *tls, int result)
{
    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return tls->ended ? tls->ended : -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return -EPIPE;
    default:
        return tls->ended ? tls->ended : -EPROTO;
    }
}

/** Give bytes to the kernel. */
static int tls_stream_send_bytes(struct tls_link *tls, const unsigned char *bytes, size_t size,
                                 uint64_t deadline_ns)
{
    while (size) {
        if (atomic_load(&tls->down))
            return -ECANCELED;
        int fd = owned_fd(&tls->socket);
        if (fd < 0)
            return -EBADF;
        ssize_t count = send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count >= 0) {
            bytes += count;
            size -= (size_t)count;
        } else if (errno == EAGAIN) {
            int error = socket_wait(&tls->socket, POLLOUT, deadline_ns);
            if (error)
                return error;
        } else if (errno != EINTR) {
            int error = socket_error(errno);
            return atomic_load(&tls->down) ? -ECANCELED : error;
        }
    }
    return 0;
}

int tls_flush(struct tls_link *tls, uint64_t deadline_ns)
{
    for (;;) {
        pthread_mutex_lock(&tls->lock);
        unsigned char *bytes = tls->out;
        size_t size = tls->out_used;
        tls->out = tls->sending;
        tls->out_used = 0;
        tls->sending = bytes;
        pthread_mutex_unlock(&tls->lock);
        if (!size)
            return 0;
        int error = tls_stream_send_bytes(tls, bytes, size, deadline_ns);
        if (error)
            return error;
    }
}

/** Encrypt at most TLS_PLAIN_MAX bytes. */
static int tls_stream_seal(struct tls_link *tls, const void *bytes, size_t size)
{
    size_t written;
    int error = 0;

    pthread_mutex_lock(&tls->lock);
    ERR_clear_error();
    tls->records += (size + TLS_STAGING - 1) / TLS_STAGING;
    if (tls->records > tls->records_max) {
        tls->records = 0;
        if (SSL_key_update(tls->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1)
            error = -EPROTO;
    }
    /* The records always fit in `out`, so that OpenSSL either takes all or fails for good. */
    if (!error && SSL_write_ex(tls->ssl, bytes, size, &written) != 1)
        error = -EPROTO;
    pthread_mutex_unlock(&tls->lock);
    return error;
}

/**
 * Take the next bytes to encrypt from @iov: large pieces in place, small ones gathered in
 * `staging`. Returns how many; 0: none are left.
 */
static size_t tls_stream_next_bytes(struct tls_link *tls, struct iovec **iov, size_t *count,
                                    const void **ret_bytes)
{
    size_t staged = 0;

    while (*count && staged < TLS_STAGING) {
        struct iovec *first = *iov;
        size_t room = staged || first->iov_len < TLS_STAGING ? TLS_STAGING - staged : TLS_PLAIN_MAX;
        size_t size = first->iov_len < room ? first->iov_len : room;
        *ret_bytes = first->iov_base;
        if (room == TLS_STAGING - staged && size) {
            memcpy(tls->staging + staged, first->iov_base, size);
            staged += size;
        }
        first->iov_base = (char *)first->iov_base + size;
        first->iov_len -= size;
        if (!first->iov_len) {
            (*iov)++;
            (*count)--;
        }
        if (size && !staged)
            return size;
    }
    *ret_bytes = tls->staging;
    return staged;
}

static int tls_stream_send(struct link *link, struct iovec *iov, size_t count, uint64_t deadline_ns)
{
    struct tls_link *tls = (struct tls_link *)link;
    const void *bytes;
    size_t size;

    while (!tls->send_error && (size = tls_stream_next_bytes(tls, &iov, &count, &bytes)) > 0) {
        tls->send_error = atomic_load(&tls->down) ? -ECANCELED : tls_stream_seal(tls, bytes, size);
        if (!tls->send_error)
            tls->send_error = tls_flush(tls, deadline_ns);
    }
    return tls->send_error;
}

/** Decrypt at most @size bytes of what has arrived; -EAGAIN: nothing has. */
static int tls_stream_open_records(struct tls_link *tls, char *bytes, size_t size,
                                   size_t *ret_received)
{
    size_t received = 0, count;
    int error = 0;

    pthread_mutex_lock(&tls->lock);
    while (received < size && !error) {
        ERR_clear_error();
        int result = SSL_read_ex(tls->ssl, bytes + received, size - received, &count);
        if (result == 1)
            received += count;
        else
            error = tls_outcome(tls, result);
    }
    pthread_mutex_unlock(&tls->lock);
    /* Bytes that came before an error are returned first. */
    if (error && error != -EAGAIN)
        tls->receive_error = error;
    *ret_received = received;
    return received ? 0 : error;
}

static int tls_stream_receive(struct link *link, void *bytes, size_t size, uint64_t deadline_ns,
                              size_t *ret_received)
{
    struct tls_link *tls = (struct tls_link *)link;
    size_t received = 0;

    /* The lock is not held longer than it takes to copy so much, as the sender may need it. */
    size = size < TLS_PLAIN_MAX ? size : TLS_PLAIN_MAX;
    for (;;) {
        if (atomic_load(&tls->down))
            return -ECANCELED;
        int error = tls->receive_error;
        error = error ? error : tls_stream_open_records(tls, bytes, size, &received);
        if (error == -EAGAIN) {
            error = socket_wait(&tls->socket, POLLIN, deadline_ns);
            if (!error)
                continue;
        }
        if (error)
            return error == -EPIPE && atomic_load(&tls->down) ? -ECANCELED : error;
        *ret_received = received;
        return 0;
    }
}

static void tls_stream_shut_down(struct link *link)
{
    struct tls_link *tls = (struct tls_link *)link;
    int fd = owned_fd(&tls->socket);

    atomic_store(&tls->down, true);
    if (fd >= 0)
        (void)shutdown(fd, SHUT_RDWR);
}

static void tls_stream_destroy(struct link *link)
{
    struct tls_link *tls = (struct tls_link *)link;

    if (!tls)
        return;
    if (tls->maker != getpid()) {
        /* A thread of the parent may have been in the middle of a call: all but the descriptor is
         * left alone. */
        owned_close(&tls->socket);
        return;
    }
    /* A child of a fork may have the descriptor as well, so closing it would not end the
     * connection. */
    tls_stream_shut_down(link);
    owned_close(&tls->socket);
    SSL_free(tls->ssl);
    pthread_mutex_destroy(&tls->lock);
    free(tls->out);
    free(tls->sending);
    free(tls->staging);
    free(tls);
}

const struct link_ops tls_ops = {
    .send = tls_stream_send,
    .receive = tls_stream_receive,
    .shut_down = tls_stream_shut_down,
    .destroy = tls_stream_destroy,
};
