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
    content_hash_of(binary->bytes, binary->size, own);
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
        content_hash_of(binary.bytes, size, name);
        binary_say_keep(server, &binary, name);
    }
    binary_close(&binary);
}

/* ---- in parts ---- */

/*
 * A binary that comes from the client or from another server, or one that is kept; both can be
 * given to other servers, the first while it comes. Who receives it alone writes the bytes. Those
 * who give it read them from the memory file, since it is mapped anew when it is sealed.
 */
struct coming {
    struct coming *next; /* In the list of those that come; guarded by lock, with... */
    unsigned holders;
    uint64_t arrived; /* ...the bytes that are there... */
    bool over;
    cl_int error; /* ...and how it ended. */
    bool counts;  /* In coming_bytes. */
    bool sent;    /* By the client. */
    struct binary binary;
    size_t size;
    unsigned char name[CONTENT_HASH_SIZE];
};

static struct coming *comings;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
/* Bytes that are being received: at most as much as is kept for one client. */
static _Atomic uint64_t coming_bytes;

static void coming_unref(struct coming *coming)
{
    pthread_mutex_lock(&lock);
    bool last = --coming->holders == 0;
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    if (coming->counts)
        atomic_fetch_sub(&coming_bytes, coming->size);
    binary_close(&coming->binary);
    free(coming);
}

static struct coming *coming_create(const unsigned char name[CONTENT_HASH_SIZE], size_t size)
{
    struct coming *coming = calloc(1, sizeof(*coming));
    if (!coming)
        return NULL;
    coming->holders = 1;
    coming->size = size;
    coming->binary.fd = -1;
    memcpy(coming->name, name, sizeof(coming->name));
    return coming;
}

/* Begin to receive one. NULL: there is no room. */
static struct coming *coming_begin(const unsigned char name[CONTENT_HASH_SIZE], size_t size,
                                   bool sent)
{
    struct coming *coming = coming_create(name, size);
    if (!coming)
        return NULL;
    coming->counts = true;
    coming->sent = sent;
    if (atomic_fetch_add(&coming_bytes, size) + size > KEPT_OWNER_BYTES ||
        binary_make(size, &coming->binary)) {
        coming_unref(coming);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    coming->next = comings;
    comings = coming;
    pthread_mutex_unlock(&lock);
    return coming;
}

/* One that comes, held for the caller; the last that began, or the client's with @sent. NULL: there
 * is none. */
static struct coming *coming_find(const unsigned char name[CONTENT_HASH_SIZE], bool sent)
{
    pthread_mutex_lock(&lock);
    struct coming *coming = comings;
    while (coming &&
           (memcmp(coming->name, name, sizeof(coming->name)) != 0 || (sent && !coming->sent)))
        coming = coming->next;
    if (coming)
        coming->holders++;
    pthread_mutex_unlock(&lock);
    return coming;
}

static void coming_write(struct coming *coming, uint64_t offset, const void *bytes, size_t size)
{
    memcpy(coming->binary.bytes + offset, bytes, size);
    pthread_mutex_lock(&lock);
    coming->arrived = offset + size;
    pthread_cond_broadcast(&arrived);
    pthread_mutex_unlock(&lock);
}

/* Nothing more comes. It is kept only if all came, and if it matches its name. Returns the error.
 */
static cl_int coming_end(struct server *server, struct coming *coming, cl_int error)
{
    if (error == CL_SUCCESS && binary_seal(&coming->binary))
        error = CL_OUT_OF_RESOURCES;
    if (error == CL_SUCCESS && !binary_has_name(&coming->binary, coming->name)) {
        log_warn("a binary that was received does not match its hash, and is refused");
        error = CL_INVALID_BINARY;
    }
    if (error == CL_SUCCESS)
        binary_say_keep(server, &coming->binary, coming->name);
    pthread_mutex_lock(&lock);
    struct coming **at = &comings;
    while (*at != coming)
        at = &(*at)->next;
    *at = coming->next;
    coming->over = true;
    coming->error = error;
    pthread_cond_broadcast(&arrived);
    pthread_mutex_unlock(&lock);
    return error;
}

void server_send_binary(struct server *server, const struct msg_send_binary *message)
{
    if (!server->keeps || message->name_size != CONTENT_HASH_SIZE ||
        message->size < WIRE_BINARY_MIN || message->size > WIRE_BINARY_MAX ||
        message->offset > message->size || message->part_size > message->size - message->offset) {
        server_wrong(server, "a part of a binary is invalid");
        return;
    }
    bool first = message->offset == 0;
    struct coming *coming = coming_find(message->name, true);
    cl_int error = CL_OUT_OF_RESOURCES;
    if (coming && (first || coming->size != message->size || coming->arrived != message->offset)) {
        /* The client does not send the rest of what it began: who is given that is told. */
        (void)coming_end(server, coming, error);
        coming_unref(coming);
        coming_unref(coming); /* The reference of the one that began. */
        coming = NULL;
    }
    if (first)
        coming = coming_begin(message->name, message->size, true);
    if (coming) {
        coming_write(coming, message->offset, message->part, message->part_size);
        error = CL_SUCCESS;
    }
    bool whole = coming && coming->arrived == coming->size;
    if (whole)
        error = coming_end(server, coming, CL_SUCCESS);
    if (coming && !first)
        coming_unref(coming);
    if (whole) /* The reference of the one that began. */
        coming_unref(coming);
    server_reply(server, message->call, error, NULL, 0);
}

/* ---- from server to server ---- */

struct handing {
    struct server *server;
    struct coming *coming; /* A reference. */
    uint64_t call;
    bool takes;
};

static void binary_handing_destroy(struct handing *handing)
{
    coming_unref(handing->coming);
    free(handing);
}

static cl_int binary_read(void *data, uint64_t offset, unsigned char *bytes, size_t size,
                          size_t *ret_size)
{
    struct coming *coming = ((struct handing *)data)->coming;
    uint64_t until = clock_now_ns() + NS_PER_S;
    pthread_mutex_lock(&lock);
    while (coming->arrived <= offset && !coming->over && clock_wait(&arrived, &lock, until) == 0)
        ;
    uint64_t there = coming->arrived - offset;
    cl_int error = coming->error;
    pthread_mutex_unlock(&lock);
    size_t some = there < size ? (size_t)there : size;
    if (error) /* It will never be here. */
        return BINARY_LACKING;
    if (pread(coming->binary.fd, bytes, some, (off_t)offset) != (ssize_t)some)
        return CL_OUT_OF_RESOURCES;
    *ret_size = some;
    return CL_SUCCESS;
}

static void binary_write(void *data, uint64_t offset, const unsigned char *bytes, size_t size)
{
    coming_write(((struct handing *)data)->coming, offset, bytes, size);
}

/* In the peer copy's thread. */
static void binary_handed(void *data, cl_int error)
{
    struct handing *handing = data;
    struct server *server = handing->server;
    uint64_t call = handing->call;
    if (handing->takes)
        error = coming_end(server, handing->coming, error);
    if (handing->takes && error == CL_SUCCESS)
        log_info("received a binary of %zu bytes from another server", handing->coming->size);
    binary_handing_destroy(handing); /* Its room is free again before the client is answered. */
    server_reply(server, call, error, NULL, 0);
}

static bool binary_is_meeting(struct server *server, uint32_t name_size, uint32_t way)
{
    bool good = server->keeps && name_size == CONTENT_HASH_SIZE &&
                (way == TRANSFER_CONNECT || way == TRANSFER_AWAIT);
    if (!good)
        server_wrong(server, "the name or way of a binary's transfer is invalid");
    return good;
}

/* Takes the reference to @coming, NULL: there is no room. */
static void binary_begin(struct server *server, uint64_t call, struct coming *coming, bool takes,
                         const struct msg_peer *peer)
{
    static const struct peer_copy_bytes bytes = {binary_read, binary_write, binary_handed};
    struct handing *handing = coming ? calloc(1, sizeof(*handing)) : NULL;
    cl_int error = coming ? CL_OUT_OF_HOST_MEMORY : CL_OUT_OF_RESOURCES;
    if (handing) {
        *handing = (struct handing){server, coming, call, takes};
        const struct peer_copy_wish wish = {
            .server = server, .gives = !takes, .size = coming->size, .peer = peer};
        error = peer_copy_begin_bytes(&wish, &bytes, handing);
    }
    if (error == CL_SUCCESS)
        return;
    if (coming && takes)
        (void)coming_end(server, coming, error);
    if (coming)
        coming_unref(coming);
    free(handing);
    server_reply(server, call, error, NULL, 0);
}

/* One that is kept, as one that has come. */
static struct coming *binary_find_whole(struct server *server,
                                        const unsigned char name[CONTENT_HASH_SIZE])
{
    struct coming *coming = coming_create(name, 0);
    if (coming && binary_find(server, name, &coming->binary)) {
        coming_unref(coming);
        return NULL;
    }
    if (coming)
        coming->size = coming->arrived = coming->binary.size;
    return coming;
}

void server_give_binary(struct server *server, const struct msg_give_binary *message)
{
    if (!binary_is_meeting(server, message->name_size, message->peer.way))
        return;
    struct coming *coming = coming_find(message->name, false);
    if (!coming)
        coming = binary_find_whole(server, message->name);
    if (coming)
        binary_begin(server, message->call, coming, false, &message->peer);
    else
        server_reply(server, message->call, BINARY_LACKING, NULL, 0);
}

void server_take_binary(struct server *server, const struct msg_take_binary *message)
{
    if (message->size < WIRE_BINARY_MIN || message->size > WIRE_BINARY_MAX) {
        server_wrong(server, "the size of a binary's transfer is invalid");
        return;
    }
    if (binary_is_meeting(server, message->name_size, message->peer.way))
        binary_begin(server, message->call, coming_begin(message->name, message->size, false), true,
                     &message->peer);
}
