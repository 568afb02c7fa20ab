#include "remote/server/session/binary.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "remote/server/listener/channel.h"
#include "remote/server/listener/clients.h"
#include "remote/server/session/peer_copy.h"
#include "state/base/clock.h"
#include "state/base/log.h"

/* Go on without a binary if the listening process does not answer in this time. */
#define PATIENCE_NS (10 * NS_PER_S)
#define SEALS       (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

static void binary_name_bytes(const void *bytes, size_t size,
                              unsigned char ret_name[CONTENT_HASH_SIZE])
{
    struct content_hash hash;
    content_hash_begin(&hash);
    content_hash_bytes(&hash, bytes, size);
    content_hash_end(&hash, ret_name);
}

void binary_close(struct binary *binary)
{
    if (binary->bytes)
        munmap(binary->bytes, binary->size);
    if (binary->fd >= 0)
        close(binary->fd);
    *binary = (struct binary){.fd = -1};
}

/* ---- what is kept ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* Guards what follows. */
static pthread_cond_t answered = PTHREAD_COND_INITIALIZER;
static unsigned char asked[CONTENT_HASH_SIZE];
static bool asking;
static int answer = -1;

void binary_told(const struct channel_message *message, int passed)
{
    pthread_mutex_lock(&lock);
    if (asking && !memcmp(asked, message->name, sizeof(asked))) {
        answer = passed;
        asking = false;
        pthread_cond_signal(&answered);
    } else if (passed >= 0) {
        close(passed); /* The request timed out, or was for another binary. */
    }
    pthread_mutex_unlock(&lock);
}

static int binary_ask(struct server *server, const unsigned char name[CONTENT_HASH_SIZE])
{
    struct channel_message message = {.kind = CHANNEL_SEEK};
    uint64_t deadline = clock_now_ns() + PATIENCE_NS;
    memcpy(message.name, name, sizeof(message.name));
    pthread_mutex_lock(&lock);
    memcpy(asked, name, sizeof(asked));
    asking = true;
    answer = -1;
    channel_tell(server->channel, &message);
    while (asking && clock_wait(&answered, &lock, deadline) == 0)
        ;
    asking = false;
    int fd = answer;
    answer = -1;
    pthread_mutex_unlock(&lock);
    return fd;
}

/* The seals guarantee that the bytes that are verified are those that are used. */
static int binary_map_sealed(struct binary *binary)
{
    binary->size = kept_check(binary->fd);
    if (binary->size == 0)
        return -ENOENT;
    void *bytes = mmap(NULL, binary->size, PROT_READ, MAP_SHARED, binary->fd, 0);
    if (bytes == MAP_FAILED)
        return -errno;
    binary->bytes = bytes;
    return 0;
}

static bool binary_has_name(const struct binary *binary,
                            const unsigned char name[CONTENT_HASH_SIZE])
{
    unsigned char own[CONTENT_HASH_SIZE];
    binary_name_bytes(binary->bytes, binary->size, own);
    return memcmp(own, name, sizeof(own)) == 0;
}

int binary_find(struct server *server, const unsigned char name[CONTENT_HASH_SIZE],
                struct binary *ret_binary)
{
    struct binary binary = {.fd = binary_ask(server, name)};
    if (binary.fd < 0)
        return -ENOENT;
    int error = binary_map_sealed(&binary);
    if (error == 0 && !binary_has_name(&binary, name)) {
        log_warn("a kept binary does not match its hash, and is not used");
        error = -ENOENT;
    }
    if (error)
        binary_close(&binary);
    else
        *ret_binary = binary;
    return error;
}

/* Make a writable memory file. 0 or -ENOMEM. */
static int binary_make(size_t size, struct binary *ret_binary)
{
    struct binary binary = {.size = size};
    binary.fd = memfd_create("reseat-binary", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (binary.fd < 0 || ftruncate(binary.fd, (off_t)size))
        goto failed;
    void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, binary.fd, 0);
    if (bytes == MAP_FAILED)
        goto failed;
    binary.bytes = bytes;
    *ret_binary = binary;
    return 0;
failed:
    binary_close(&binary);
    return -ENOMEM;
}

/* The binary is complete: make it read-only. */
static int binary_seal(struct binary *binary)
{
    munmap(binary->bytes, binary->size);
    binary->bytes = NULL;
    if (fcntl(binary->fd, F_ADD_SEALS, SEALS))
        return -errno;
    return binary_map_sealed(binary);
}

static void binary_say_keep(const struct server *server, const struct binary *binary,
                            const unsigned char name[CONTENT_HASH_SIZE])
{
    struct channel_message message = {.kind = CHANNEL_KEEP};
    memcpy(message.name, name, sizeof(message.name));
    channel_tell_with(server->channel, &message, binary->fd);
}

void binary_keep_bytes(struct server *server, const unsigned char *bytes, size_t size)
{
    unsigned char name[CONTENT_HASH_SIZE];
    struct binary binary;
    if (!server->keeps || size < WIRE_BINARY_MIN || size > WIRE_BINARY_MAX ||
        binary_make(size, &binary))
        return;
    memcpy(binary.bytes, bytes, size);
    if (binary_seal(&binary) == 0) {
        binary_name_bytes(binary.bytes, size, name);
        binary_say_keep(server, &binary, name);
    }
    binary_close(&binary);
}

/* ---- from server to server ---- */

/* Bytes that are being received from other servers: at most as much as is kept for one client. */
static _Atomic uint64_t coming;

struct handing {
    struct server *server;
    struct binary binary;
    uint64_t call;
    bool takes;
    unsigned char name[CONTENT_HASH_SIZE];
};

static void binary_handing_destroy(struct handing *handing)
{
    if (handing->takes)
        atomic_fetch_sub(&coming, handing->binary.size);
    binary_close(&handing->binary);
    free(handing);
}

/* In the peer copy's thread. A received binary is kept only if it matches its name. */
static void binary_handed(void *data, cl_int error)
{
    struct handing *handing = data;
    size_t size = handing->binary.size;
    if (error == CL_SUCCESS && handing->takes && binary_seal(&handing->binary))
        error = CL_OUT_OF_RESOURCES;
    if (error == CL_SUCCESS && handing->takes &&
        !binary_has_name(&handing->binary, handing->name)) {
        log_warn("a binary from another server does not match its hash, and is refused");
        error = CL_INVALID_BINARY;
    }
    if (error == CL_SUCCESS && handing->takes) {
        binary_say_keep(handing->server, &handing->binary, handing->name);
        log_info("received a binary of %zu bytes from another server", size);
    }
    /* binary_seal() sets it to 0 on failure, but `coming` counts the full size. */
    handing->binary.size = size;
    struct server *server = handing->server;
    uint64_t call = handing->call;
    binary_handing_destroy(handing); /* Its room is free again before the client is answered. */
    server_reply(server, call, error, NULL, 0);
}

static cl_int binary_begin(struct handing *handing, const struct msg_peer *peer)
{
    const struct peer_copy_wish wish = {.server = handing->server,
                                        .gives = !handing->takes,
                                        .size = handing->binary.size,
                                        .peer = peer};
    return peer_copy_begin_bytes(&wish, handing->binary.bytes, binary_handed, handing);
}

/* NULL: the session ends, or the call was answered. */
static struct handing *binary_handing_create(struct server *server, uint64_t call, const void *name,
                                             uint32_t name_size, uint32_t way)
{
    if (!server->keeps || name_size != CONTENT_HASH_SIZE ||
        (way != TRANSFER_CONNECT && way != TRANSFER_AWAIT)) {
        server_wrong(server, "the name or way of a binary's transfer is invalid");
        return NULL;
    }
    struct handing *handing = calloc(1, sizeof(*handing));
    if (!handing) {
        server_reply(server, call, CL_OUT_OF_HOST_MEMORY, NULL, 0);
        return NULL;
    }
    handing->server = server;
    handing->call = call;
    handing->binary.fd = -1;
    memcpy(handing->name, name, name_size);
    return handing;
}

static void binary_end(struct handing *handing, cl_int error)
{
    if (error == CL_SUCCESS)
        return;
    server_reply(handing->server, handing->call, error, NULL, 0);
    binary_handing_destroy(handing);
}

void server_give_binary(struct server *server, const struct msg_give_binary *message)
{
    struct handing *handing = binary_handing_create(server, message->call, message->name,
                                                    message->name_size, message->peer.way);
    if (!handing)
        return;
    int missing = binary_find(server, handing->name, &handing->binary);
    binary_end(handing, missing ? BINARY_LACKING : binary_begin(handing, &message->peer));
}

void server_take_binary(struct server *server, const struct msg_take_binary *message)
{
    if (message->size < WIRE_BINARY_MIN || message->size > WIRE_BINARY_MAX) {
        server_wrong(server, "the size of a binary's transfer is invalid");
        return;
    }
    struct handing *handing = binary_handing_create(server, message->call, message->name,
                                                    message->name_size, message->peer.way);
    if (!handing)
        return;
    handing->takes = true;
    handing->binary.size = message->size;
    if (atomic_fetch_add(&coming, message->size) + message->size > KEPT_OWNER_BYTES)
        binary_end(handing, CL_OUT_OF_RESOURCES);
    else if (binary_make(message->size, &handing->binary))
        binary_end(handing, CL_OUT_OF_HOST_MEMORY);
    else
        binary_end(handing, binary_begin(handing, &message->peer));
}
