#ifndef RESEAT_REMOTE_DRIVER_COPY_H
#define RESEAT_REMOTE_DRIVER_COPY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "state/base/compiler.h"

/* Threads that copy between the program's memory and blocks (session.h), since one thread copies at
 * a fraction of a link's speed: 8.6 of 55 GB/s (doc/performance.md). On few processors there are
 * none, and the thread that transfers or receives copies everything. */

/** Embedded in the caller's record. */
struct copy {
    struct copy *next;
    /** Does not wait; may free the copy. With no lock. */
    void (*run)(struct copy *copy);
};

/** So many at most. */
#define COPY_THREADS_MAX 7
/** Fewer bytes are not worth another thread. */
#define COPY_LEAST ((size_t)256 << 10)

/** How many there may be. */
unsigned copy_threads(void);
/** Have a copying thread run @copy. False: there is none. */
MUST_CHECK bool copy_post(struct copy *copy);

/** Copying threads that help with work of several pieces. */
struct copy_team {
    /** Do the next piece. False: all are done, or being done. Several threads call it. */
    bool (*next)(struct copy_team *team);
    atomic_uint helpers;
    unsigned asked;
    struct copy_helper {
        struct copy copy;
        struct copy_team *team;
    } helping[COPY_THREADS_MAX];
};
/** Have copying threads begin with the work; no more of them than @pieces. */
void copy_team_begin(struct copy_team *team, bool (*next)(struct copy_team *team), size_t pieces);
/** When next() has returned false: wait until no helper is in it, for one piece at most. */
void copy_team_end(struct copy_team *team);

/** Have @copy done of each of @count pieces, in any order, by the caller and by others. */
void copy_pieces(void (*copy)(void *data, size_t piece), void *data, size_t count);

/** How bytes lie in the program's memory: rows of slices. */
struct layout {
    size_t row, rows, slices; /**< Bytes of a row, and how many. */
    size_t row_pitch, slice_pitch;
};

/** Of a box of bytes with these pitches, 0: the least. */
static inline struct layout layout_of_box(const size_t region[3], size_t row, size_t slice)
{
    row = row ? row : region[0];
    return (struct layout){region[0], region[1], region[2], row, slice ? slice : row * region[1]};
}

/** Bytes of a layout, packed; false: it does not fit in 64 bits. */
bool layout_size(const struct layout *layout, size_t *ret_size);
bool layout_is_packed(const struct layout *layout);
/** Between packed bytes and the program's memory. */
void layout_gather(const struct layout *layout, void *packed, const void *memory);
void layout_scatter(const struct layout *layout, const void *packed, void *memory);
/** The same, but what is there already is not written. */
void layout_refresh(const struct layout *layout, const void *packed, void *memory);

#endif
