#ifndef RESEAT_STATE_IMAGE_SNAPSHOT_STORE_H
#define RESEAT_STATE_IMAGE_SNAPSHOT_STORE_H

#include "state/image/snapshot.h"
#include "state/memory/digest.h"

/* The storage of snapshots: chunks of bytes, which several snapshots share. */

#define CHUNK_PARTS (SNAPSHOT_CHUNK / DIGEST_CHUNK)

/**
 * A chunk. Its bytes are written while a snapshot is made and only that snapshot has it; never
 * afterwards.
 *
 * A chunk of which few parts changed has only those parts (of DIGEST_CHUNK bytes), each a chunk,
 * and refers for the others to the chunk before, which has all bytes itself: so no byte is more
 * than one reference away.
 */
struct chunk {
    _Atomic uint32_t refs;
    size_t size;
    uint64_t since;       /**< Serial of the first snapshot that has it. */
    struct slab *slab;    /**< The slab that `bytes` are in; NULL: allocated by pages_take. */
    char *bytes;          /**< NULL: it has parts, and... */
    struct chunk *under;  /**< ...this chunk has the bytes of all other parts. A reference. */
    struct chunk **parts; /**< CHUNK_PARTS of them, or NULL. References; owned. */
    /** Owned: known digests of its bytes, which are in host memory of ours; or NULL. Guarded by the
     * movers' lock. */
    struct digest *digests;
};

/** A chunk with one reference of the caller's and undefined bytes; NULL without memory. */
struct chunk *chunk_create(size_t size, uint64_t since);
struct chunk *chunk_ref(struct chunk *chunk); /**< The same for NULL. */
void chunk_unref(struct chunk *chunk);        /**< NULL is allowed. */
/** A chunk with the bytes of @of, prepared to get parts of its own; it shares the parts that @of
 * has. */
struct chunk *chunk_of_parts(struct chunk *of, uint64_t since);
/** Give a chunk with parts its own part @part, with undefined bytes, unless it has one of this
 * @since already. 0 or -ENOMEM. */
MUST_CHECK int chunk_own_part(struct chunk *chunk, size_t part, uint64_t since);
/** Bits of the parts that it has itself. */
uint32_t chunk_own_parts(const struct chunk *chunk);
/** Bits of all parts of a chunk of @size bytes. */
static inline uint32_t chunk_all_parts(size_t size)
{
    size_t count = digest_chunks(size);
    return count >= CHUNK_PARTS ? UINT32_MAX : (UINT32_C(1) << count) - 1;
}
/** True when a chunk of @size bytes may have @parts of its own and share the rest: above a limit
 * the snapshots that share chunks would need much more memory than with whole chunks. */
bool chunk_parts_are_few(uint32_t parts, size_t size);

/** Consecutive bytes of a chunk that first appeared in the same snapshot. */
struct chunk_run {
    char *bytes;
    size_t end; /**< Offset in the chunk. */
    uint64_t since;
};
/** The run from byte @at on. */
struct chunk_run chunk_run(const struct chunk *chunk, size_t at);
/** Runs to be digested together; zeroed: empty. */
struct digest_runs {
    struct digest_run *runs; /**< Owned. */
    size_t count;
};
/** Add the runs of @chunk that have no digests. 0 or -ENOMEM. */
MUST_CHECK int chunk_unlearned(struct chunk *chunk, struct digest_runs *runs);
/** Forget the digests of bytes [@begin, @end), which are about to be written. */
void chunk_written(struct chunk *chunk, size_t begin, size_t end);

/** One root in a snapshot. */
struct kept {
    struct snapshot_root root;
    struct image_shape shape; /**< For an image: what root.image points to. */
    size_t chunk;             /**< Bytes of each chunk but the last. */
    size_t count;
    struct chunk **chunks; /**< Owned; NULL: never written. */
    uint64_t
        *versions; /**< Owned: the latest version of any byte of each chunk. 0: it has no bytes. */
    /** While the snapshot is made: bytes that the last round had to read although all that counted
     * as written was compared; UINT64_MAX: nothing was compared. */
    uint64_t differed;
};

struct snapshot {
    _Atomic uint32_t refs;
    uint64_t serial;
    size_t count;
    struct kept *kept; /**< Owned; sorted by their objects' addresses. */
};

/** An empty snapshot with one reference; NULL without memory. */
struct snapshot *snapshot_create(uint64_t serial);
/** Add @memory, which is held, with the chunks of @from, or NULL. 0 or -ENOMEM. Roots must be added
 * in the order of their addresses. */
MUST_CHECK int snapshot_add(struct snapshot *snapshot, struct memory *memory,
                            const struct kept *from);

/** The range of chunk @i. */
struct range kept_range(const struct kept *kept, size_t i);

#endif
