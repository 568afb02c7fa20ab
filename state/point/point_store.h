#ifndef RESEAT_STATE_POINT_POINT_STORE_H
#define RESEAT_STATE_POINT_POINT_STORE_H

#include "state/memory/digest.h"
#include "state/point/point.h"

/*
 * What a point has: chunks of bytes, which several points share.
 */

/** Its bytes are written by who makes a point, while no other has it; never afterwards. */
struct chunk {
    _Atomic uint32_t refs;
    size_t size;
    uint64_t since;    /**< The serial of the first point that has it. */
    struct slab *slab; /**< That `bytes` are in; NULL: they are its own, of pages_take. */
    char *bytes;
    /** Owned: of `bytes`, which are in host memory of ours, as far as they are known; or NULL. Of
     * who has the mover's lock. */
    struct digest *digests;
};

/** NULL without memory. One reference, the caller's. Its bytes may be anything. */
struct chunk *chunk_create(size_t size, uint64_t since);
struct chunk *chunk_ref(struct chunk *chunk); /**< NULL is allowed. */
void chunk_unref(struct chunk *chunk);        /**< NULL is allowed. */
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
    struct point_root root;
    struct image_shape shape; /**< root.image is it; of an image. */
    size_t chunk;             /**< Bytes of each but the last. */
    size_t count;
    struct chunk **chunks; /**< Owned; NULL: never written. */
    uint64_t *versions;    /**< Owned: the latest that some byte of each had. 0: it has no bytes. */
    /** While the point is made: bytes of it that the last round had to read though all that counted
     * as written was compared; UINT64_MAX: nothing was. */
    uint64_t differed;
};

struct point {
    _Atomic uint32_t refs;
    uint64_t serial, moment_ns;
    size_t count;
    struct kept *kept; /**< Owned; in the order of their objects' addresses. */
};

/** An empty one with one reference; NULL without memory. */
struct point *point_create(uint64_t serial);
/** Add @memory, which is held; with the chunks of @from, or NULL. 0 or -ENOMEM. Roots come in the
 *  order of their addresses. */
MUST_CHECK int point_add(struct point *point, struct memory *memory, const struct kept *from);
/** Leave out the root at @index. */
void point_remove(struct point *point, size_t index);

/** The bytes of chunk @i. */
struct range kept_range(const struct kept *kept, size_t i);

#endif
