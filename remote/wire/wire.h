#ifndef RESEAT_REMOTE_WIRE_WIRE_H
#define RESEAT_REMOTE_WIRE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "state/base/compiler.h"

/*
 * What the driver and a device server say to each other: doc/remote.md. Messages are described by
 * remote/wire/messages.txt; this is what they are made from.
 */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are sent as they lie in memory");

#define WIRE_VERSION 1
/** Of a greeting: messages go through rings in shared memory from then on. */
#define FEATURE_RINGS UINT64_C(1)
/** Its first message says where, and with which variables, drivers are opened for it. */
#define FEATURE_ENVIRONMENT UINT64_C(2)
/** Its server keeps binaries, and takes them from other servers. */
#define FEATURE_BINARIES UINT64_C(4)
/** It only looks who is there: after the welcome it ends, and no driver is opened. */
#define FEATURE_LOOK (UINT64_C(1) << 63)
/** All that there are. */
#define WIRE_FEATURES (FEATURE_RINGS | FEATURE_ENVIRONMENT | FEATURE_BINARIES | FEATURE_LOOK)

/** Areas of a session at a time, and their bytes. */
#define WIRE_AREAS_MAX  256u
#define WIRE_AREA_SIZE  (UINT64_C(8) << 20)
#define WIRE_BULK_BYTES (UINT64_C(8) << 30)

/** Bytes of the longest message. */
#define WIRE_MESSAGE_MAX (UINT64_C(1) << 34)
/** Objects of one type in a session. */
#define WIRE_OBJECTS_MAX (1u << 20)
#define WIRE_SECRET_SIZE 16
/** Bytes of a kernel's argument that is a value: more than any device's parameters have. */
#define WIRE_VALUE_MAX 4096u

/**
 * An object's name in a session, chosen by the client: its type, how often the place was used
 * before, and its place in a table of the type's. 0: none.
 */
enum id_type {
    ID_NONE,
    ID_DEVICE, /**< Its place is that in the inventory. */
    ID_CONTEXT,
    ID_QUEUE,
    ID_MEMORY,
    ID_SAMPLER,
    ID_PROGRAM,
    ID_KERNEL,
    ID_EVENT,
    ID_CALL, /**< Somebody who waits for a reply. */
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

/** Of a command: what its event is for. */
#define COMMAND_NAMED UINT32_C(1) /**< Others can wait for it: kept until it is released. */
#define COMMAND_TELL  UINT32_C(2) /**< The client is told of its end. */

/** Of msg_kernel_argument: what can be set as it. */
enum argument_kind {
    ARGUMENT_UNKNOWN, /**< The driver does not tell, nor what it makes of values that are none. */
    ARGUMENT_VALUE,
    ARGUMENT_BUFFER,
    ARGUMENT_IMAGE,
    ARGUMENT_OBJECT, /**< One of these two. */
    ARGUMENT_SAMPLER,
    ARGUMENT_LOCAL
};

/** Of msg_launch: which of its arrays count. */
#define LAUNCH_OFFSET UINT32_C(1)
#define LAUNCH_LOCAL  UINT32_C(2)

/** Of msg_give and msg_take: how the two ends of a transfer meet. */
enum transfer_way {
    TRANSFER_HERE,       /**< They are of one session. */
    TRANSFER_DESCRIPTOR, /**< By a socket that comes with the message. */
    TRANSFER_CONNECT,    /**< This one connects, with the ticket. */
    TRANSFER_AWAIT,      /**< This one is connected to, by who has the ticket. */
    TRANSFER_WAYS
};
/** In place of an OpenCL error: who was to be connected to is not there, or not let in. */
#define TRANSFER_UNREACHED (-1100)
/** The same: the server has not the binary that is named. */
#define BINARY_LACKING (-1101)
/** Bytes of a binary that has a name (content_hash.h) and is kept: smaller ones are sent each time,
 *  for less than asking costs. */
#define WIRE_BINARY_MIN (UINT64_C(64) << 10)
#define WIRE_BINARY_MAX (UINT64_C(256) << 20)
/** Transfers of a session that have not ended. */
#define WIRE_TRANSFERS_MAX 1024

/** The n-th of a list of ids in a message, which nothing aligns. */
static inline uint64_t id_at(const void *ids, size_t n)
{
    uint64_t id;
    memcpy(&id, (const char *)ids + n * sizeof(id), sizeof(id));
    return id;
}

/** A message's body being written. Failure is remembered. Small ones need no memory. */
struct pack {
    unsigned char *bytes; /**< `small`, or owned. */
    size_t used, room;
    bool failed;
    unsigned char small[512];
};

void pack_init(struct pack *pack);
void pack_finish(struct pack *pack);
void pack_bytes(struct pack *pack, const void *bytes, size_t size);
/** A count, or a length, and that many elements. */
void pack_list(struct pack *pack, const void *list, size_t count, size_t size);

/** One being read. What is wrong is remembered. */
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
