#ifndef RESEAT_STATE_SNAPSHOT_SNAPSHOT_STORE_H
#define RESEAT_STATE_SNAPSHOT_SNAPSHOT_STORE_H

#include "state/memory/digest.h"
#include "state/snapshot/snapshot.h"

/*
 * What a snapshot has: chunks of bytes, which several snapshots share.
 */

#define CHUNK_PARTS (SNAPSHOT_CHUNK / DIGEST_CHUNK)

/**
 * Its bytes are written by who makes a snapshot, while no other has it; never afterwards.
 *
 * One of which a little changed since has those parts itself, of DIGEST_CHUNK, each a chunk, and
 * the others in the chunk that it was: which has all of its own, so that nothing is further away.
 */
struct chunk {
    _Atomic uint32_t refs;
    size_t size;
    uint64_t since;       /**< The serial of the first snapshot that has it. */
    struct slab *slab;    /**< That `bytes` are in; NULL: they are its own, of pages_take. */
    char *bytes;          /**< NULL: in parts, and... */
    struct chunk *under;  /**< ...this has what is in none of them. A reference. */
    struct chunk **parts; /**< CHUNK_PARTS of them, or NULL. References; owned. */
    /** Owned: of its bytes, which are in host memory of ours, as far as they are known; or NULL. Of
     * who has the mover's lock. */
    struct digest *digests;
};

/** NULL without memory. One reference, the caller's. Its bytes may be anything. */
struct chunk *chunk_create(size_t size, uint64_t since);
void chunk_unref(struct chunk *chunk); /**< NULL is allowed. */
/** One of the bytes of @of, to have parts of its own: as many of those as @of has. */
struct chunk *chunk_of_parts(struct chunk *of, uint64_t since);
/** A part of a chunk that has parts becomes its own, with bytes that may be anything, if that is
 * not of this @since already. 0 or -ENOMEM. */
MUST_CHECK int chunk_own_part(struct chunk *chunk, size_t part, uint64_t since);
/** Bits: the parts that it has itself. */
uint32_t chunk_own_parts(const struct chunk *chunk);
/** Of a chunk of @size bytes so few parts may be its own: snapshots that share the rest then never
 * have much more than one that is whole. */
bool chunk_parts_are_few(uint32_t parts, size_t size);

/** Bytes of a chunk that lie side by side, and are since one snapshot. */
struct chunk_run {
    char *bytes;
    size_t end; /**< In the chunk. */
    uint64_t since;
};
/** From byte @at on. */
struct chunk_run chunk_run(const struct chunk *chunk, size_t at);
/** To be digested together; zeroed, none. */
struct digest_runs {
    struct digest_run *runs; /**< Owned. */
    size_t count;
};
/** Add what of it has no digests. 0 or -ENOMEM. */
MUST_CHECK int chunk_unlearned(struct chunk *chunk, struct digest_runs *runs);
/** Bytes [@begin, @end) of it are about to be written. */
void chunk_written(struct chunk *chunk, size_t begin, size_t end);

/** One root's part. */
struct kept {
    struct snapshot_root root;
    struct image_shape shape; /**< root.image is it; of an image. */
    size_t chunk;             /**< Bytes of each but the last. */
    size_t count;
    struct chunk **chunks; /**< Owned; NULL: never written. */
    uint64_t *versions;    /**< Owned: the latest that some byte of each had. 0: it has no bytes. */
    /** While the snapshot is made: bytes of it that the last round had to read though all that
     * counted as written was compared; UINT64_MAX: nothing was. */
    uint64_t differed;
};

struct snapshot {
    _Atomic uint32_t refs;
    uint64_t serial, moment_ns;
    size_t count;
    struct kept *kept; /**< Owned; in the order of their objects' addresses. */
};

/** An empty one with one reference; NULL without memory. */
struct snapshot *snapshot_create(uint64_t serial);
/** Add @memory, which is held; with the chunks of @from, or NULL. 0 or -ENOMEM. Roots come in the
 *  order of their addresses. */
MUST_CHECK int snapshot_add(struct snapshot *snapshot, struct memory *memory,
                            const struct kept *from);

/** The bytes of chunk @i. */
struct range kept_range(const struct kept *kept, size_t i);

#endif
