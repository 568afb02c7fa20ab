#ifndef RESEAT_REMOTE_WIRE_WIRE_H
#define RESEAT_REMOTE_WIRE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * The protocol between the driver and a device server (doc/remote.md). remote/wire/messages.txt
 * describes the messages; this file has what they consist of.
 */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are sent as they lie in memory");

#define WIRE_VERSION 1
/** Feature of a greeting: messages are sent through rings in shared memory. */
#define FEATURE_RINGS UINT64_C(1)
/** The client's first message gives the working directory and environment in which drivers are
 * opened. */
#define FEATURE_ENVIRONMENT UINT64_C(2)
/** The server keeps binaries, takes them in parts from its client and from other servers, and gives
 * them to others while they come. (4 was the same of whole ones.) */
#define FEATURE_BINARIES UINT64_C(16)
/** The server answers whether its driver made a memory object (ask_memory). */
#define FEATURE_ASK_MEMORY UINT64_C(8)
/** The client only asks who is there: the session ends after the welcome, and no driver is opened.
 */
#define FEATURE_LOOK (UINT64_C(1) << 63)
/** All features. */
#define WIRE_FEATURES                                                                              \
    (FEATURE_RINGS | FEATURE_ENVIRONMENT | FEATURE_BINARIES | FEATURE_ASK_MEMORY | FEATURE_LOOK)

/** Limits of a session: shared areas at a time, size of each, and bytes of all. */
#define WIRE_AREAS_MAX  256u
#define WIRE_AREA_SIZE  (UINT64_C(8) << 20)
#define WIRE_BULK_BYTES (UINT64_C(8) << 30)

/** Bytes of the longest message. */
#define WIRE_MESSAGE_MAX (UINT64_C(1) << 34)
/** Objects of one type in a session. */
#define WIRE_OBJECTS_MAX (1u << 20)
#define WIRE_SECRET_SIZE 16
/** The longest kernel argument passed by value; no device takes more. */
#define WIRE_VALUE_MAX 4096u

/**
 * The name of an object in a session, chosen by the client: its type, the generation of its place,
 * and the place in a table for that type. 0: no object.
 */
enum id_type {
    ID_NONE,
    ID_DEVICE, /**< The place is the index in the inventory. */
    ID_CONTEXT,
    ID_QUEUE,
    ID_MEMORY,
    ID_SAMPLER,
    ID_PROGRAM,
    ID_KERNEL,
    ID_EVENT,
    ID_CALL, /**< A call that waits for its reply. */
    ID_TYPES
};

static inline uint64_t id_make(enum id_type type, uint32_t generation, uint32_t place)
{
    return (uint64_t)type << 56 | (uint64_t)(generation & 0xffffff) << 32 | place;
}
static inline enum id_type id_type(uint64_t id)
{
    return id >> 56 < ID_TYPES ? (enum id_type)(id >> 56) : ID_NONE;
}
static inline uint32_t id_place(uint64_t id)
{
    return (uint32_t)id;
}

/** Flags of a command: what its event is needed for. */
#define COMMAND_NAMED UINT32_C(1) /**< Others can wait for it: kept until released. */
#define COMMAND_TELL  UINT32_C(2) /**< Tell the client when the command ends. */

/** In msg_launch: which of its arrays are used. */
#define LAUNCH_OFFSET UINT32_C(1)
#define LAUNCH_LOCAL  UINT32_C(2)

/** In msg_give and msg_take: how the two ends of a peer copy connect. */
enum transfer_way {
    TRANSFER_HERE,       /**< Both are in this session. */
    TRANSFER_DESCRIPTOR, /**< Over a socket that comes with the message. */
    TRANSFER_CONNECT,    /**< This server connects, with the ticket. */
    TRANSFER_AWAIT,      /**< This server awaits a connection with the ticket. */
    TRANSFER_WAYS
};
/** In place of an OpenCL error: the other server cannot be reached, or refuses. */
#define TRANSFER_UNREACHED (-1100)
/** In place of an OpenCL error: the server does not have the named binary. */
#define BINARY_LACKING (-1101)
/** Binaries of these sizes are kept under their content hash (content_hash.h). Smaller ones are
 * sent each time, which is cheaper than to ask. */
#define WIRE_BINARY_MIN (UINT64_C(64) << 10)
#define WIRE_BINARY_MAX (UINT64_C(256) << 20)
/** Peer copies of a session that have not ended. */
#define WIRE_TRANSFERS_MAX 1024

/** Entry @n of a list of ids in a message; it may be unaligned. */
static inline uint64_t id_at(const void *ids, size_t n)
{
    uint64_t id;
    memcpy(&id, (const char *)ids + n * sizeof(id), sizeof(id));
    return id;
}

/** The body of a message that is being written. After a failure the rest is ignored. Small bodies
 * need no allocation. */
struct pack {
    unsigned char *bytes; /**< `small`, or on the heap. */
    size_t used, room;
    bool failed;
    unsigned char small[512];
};

void pack_init(struct pack *pack);
void pack_finish(struct pack *pack);
void pack_bytes(struct pack *pack, const void *bytes, size_t size);
/** A count, and that many elements of @size bytes. */
void pack_list(struct pack *pack, const void *list, size_t count, size_t size);

/** A message that is being read. After an error everything reads as 0. */
struct unpack {
    const unsigned char *at, *end;
    bool bad;
};

/** The next @size bytes, in place, or NULL. */
const void *unpack_bytes(struct unpack *unpack, uint64_t size);
uint32_t unpack_u32(struct unpack *unpack);
uint64_t unpack_u64(struct unpack *unpack);
void unpack_size3(struct unpack *unpack, uint64_t ret[3]);
uint64_t unpack_id(struct unpack *unpack, enum id_type type, bool optional);
const void *unpack_ids(struct unpack *unpack, enum id_type type, uint32_t *ret_count);
const void *unpack_list(struct unpack *unpack, uint32_t *ret_size);
const char *unpack_text(struct unpack *unpack);
const void *unpack_tail(struct unpack *unpack, uint64_t *ret_size);

#endif
