#ifndef RESEAT_STREAM_AREA_H
#define RESEAT_STREAM_AREA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * The memory that a stream's client and its worker share: a ring of records, which the client
 * writes, and a ring of answers, which the worker writes. Three totals that only grow say how far
 * each is: taken <= answered <= sent, and neither ring has more than `capacity` of them.
 *
 * Neither process trusts the other: each keeps its own totals to itself, and checks what it reads
 * of the other's. The sizes of the rings never come from the area.
 *
 * Who waits sets its `sleeps`, looks once more, and waits for a byte on the socket, the doorbell.
 * Who advances a total sends one if the other sleeps.
 */

#define STREAM_AREA_MAGIC  UINT64_C(0x314d414552545352) /**< "RSTREAM1". */
#define STREAM_AREA_HEADER 4096
#define STREAM_REASON_MAX  3072
#define STREAM_RECORD_MAX  (1u << 20)  /**< Most bytes of a record, and of an answer. */
#define STREAM_AREA_RING   (16u << 20) /**< Bytes of the larger ring, if records fit twice. */
#define STREAM_STAGES      3           /**< Of the worker: write, compute, read. */
#define STREAM_PAYLOADS    (STREAM_STAGES + 2)

struct stream_area_header {
    uint64_t magic;
    uint32_t input, output; /**< Bytes of a record, and of an answer. */
    uint64_t capacity;      /**< Records in each ring. */
    uint64_t input_at, output_at;
    /** Records: how many to pack, and to unpack, before the other is told. */
    _Atomic uint32_t pack_payload, unpack_payload;
    _Atomic uint32_t status; /**< 0, or an errno: the stream has failed, for `reason`. */
    _Atomic uint32_t reason_size;
    _Atomic uint32_t pack_ns, unpack_ns; /**< For a record, as the client measures; 0: unknown. */
    /** Of the worker's stages, for people: records of a payload, and payloads at a time. */
    _Atomic uint32_t payloads[STREAM_STAGES], depths[STREAM_STAGES];
    /** The best payloads that the worker knows, in the order in which records pass: to pack, of its
     * stages, to unpack. For the next worker. */
    _Atomic uint32_t best[STREAM_PAYLOADS];
    _Alignas(128) _Atomic uint64_t sent;     /**< The client's: records complete in their ring. */
    _Alignas(128) _Atomic uint64_t answered; /**< The worker's. */
    _Alignas(128) _Atomic uint64_t taken;    /**< The client's: answers that it needs no more. */
    _Alignas(128) _Atomic uint32_t client_sleeps;
    _Alignas(128) _Atomic uint32_t worker_sleeps;
    _Alignas(1024) char reason[STREAM_REASON_MAX];
};
_Static_assert(offsetof(struct stream_area_header, pack_payload) == 40, "the layout is a protocol");
_Static_assert(offsetof(struct stream_area_header, status) == 48, "the layout is a protocol");
_Static_assert(offsetof(struct stream_area_header, sent) == 128, "the layout is a protocol");
_Static_assert(offsetof(struct stream_area_header, answered) == 256, "the layout is a protocol");
_Static_assert(offsetof(struct stream_area_header, taken) == 384, "the layout is a protocol");
_Static_assert(offsetof(struct stream_area_header, client_sleeps) == 512, "it is a protocol");
_Static_assert(offsetof(struct stream_area_header, worker_sleeps) == 640, "it is a protocol");
_Static_assert(offsetof(struct stream_area_header, reason) == 1024, "the layout is a protocol");
_Static_assert(sizeof(struct stream_area_header) == STREAM_AREA_HEADER, "as above");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the layout is little-endian");

/** Where everything in an area is. */
struct stream_shape {
    uint32_t input, output;
    uint64_t capacity, input_at, output_at;
    size_t size; /**< Of the whole area: whole pages. */
};

/**
 * The shape of an area.
 *
 * @input, @output  1 to STREAM_RECORD_MAX.
 * @capacity        Records in each ring; 0: as many as STREAM_AREA_RING has room for.
 */
struct stream_shape stream_shape_of(uint32_t input, uint32_t output, uint64_t capacity);

/** A mapped area. */
struct stream_area {
    struct stream_area_header *header;
    struct stream_shape shape;
};

/** Write the header of a new area, whose bytes are all 0. */
void stream_area_init(struct stream_area *area, char *bytes, const struct stream_shape *shape);

/** The record at this position, and how many from there on lie together in the ring. */
char *stream_area_input(const struct stream_area *area, uint64_t at, uint64_t *ret_together);
char *stream_area_output(const struct stream_area *area, uint64_t at, uint64_t *ret_together);

/**
 * Read a total that the other process writes.
 *
 * @total       Our copy, from the last time; advanced on success.
 * @from, @to   Where it may be.
 * Returns 0 or -EPROTO: it went back, or is where it cannot be.
 */
MUST_CHECK int stream_area_look(const _Atomic uint64_t *word, uint64_t to, uint64_t *total);

/** Publish a total, and ring if the other sleeps. @doorbell: the socket; -1: none. */
void stream_area_advance(_Atomic uint64_t *word, uint64_t total, _Atomic uint32_t *other_sleeps,
                         int doorbell);
/** Take all bytes that have come from the doorbell. False: the other has hung up. */
bool stream_area_hear(int doorbell);

/** The stream has failed: say so to the client. The first reason stays. */
void stream_area_fail(const struct stream_area *area, int error, const char *reason, int doorbell);
/** 0; or -errno and the reason, made safe to print: the stream has failed. */
MUST_CHECK int stream_area_failure(const struct stream_area *area, char *ret_reason, size_t size);

#endif
