#ifndef RESEAT_STATE_MEMORY_EXTENTS_H
#define RESEAT_STATE_MEMORY_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/opencl/image.h"

/*
 * Which replicas have the latest bytes of each range of a root (invariants R1 to R4, by extents).
 *
 * Most roots are whole: all their bytes have one version and one writer (memory.h), which threads
 * inside the gate read and write without a lock. A root is told apart, with the gate closed, when a
 * second replica of it or of a part is made. From then on it has a table of extents, which is split
 * by commands that write a part of the root. The table is bounded. Where it is full, a range is
 * widened to whole extents, or neighbours are joined; then an up-to-date replica may count as
 * stale, but never a stale one as up to date. The root is whole again once a single replica has the
 * latest bytes of all of it.
 *
 * Extents of an image begin where a row does, or a slice where it has several.
 *
 * Every function is thread-safe and blocks on the tables' lock alone.
 */

struct memory;

/** Of a root's `writer`: it has a table of extents (told apart). */
#define WRITER_APART 0xfe

/** The most extents that one root has. */
#define EXTENTS_MAX 64

/** Bytes that have one version and the same holders. */
struct extent {
    struct range range;
    uint64_t version; /**< 0: never written. */
    uint64_t latest;  /**< Bit p: residence p (RESIDENCE_HOST too) has the latest bytes. */
    uint8_t writer;   /**< The residence that wrote last or claimed it (extents_claim), or none. */
};

/** The extent that has byte @at of @root, which may be whole. While the gate is open the answer may
 * be out of date at once. */
struct extent extent_at(const struct memory *root, size_t at);

/** True when @residence_index has the latest bytes of all of @range, or is the writer of all of it.
 * Of a whole root, of all its bytes. */
bool extents_latest(const struct memory *root, uint8_t residence_index, struct range range);
bool extents_written_by(const struct memory *root, uint8_t residence_index, struct range range);
/** Bytes of @range that @residence_index lacks and one of @sources (bits) has. */
uint64_t extents_lacking(const struct memory *root, uint8_t residence_index, uint64_t sources,
                         struct range range);

/**
 * A command that was just given to @residence_index writes @range: only that residence has the new
 * version. It had the latest bytes of the extents before. Inside the gate. Cannot fail.
 */
void extents_written(struct memory *root, uint8_t residence_index, struct range range);
/**
 * Tell @root apart, and split its extents at the ends of @range if there is room. Gate closed.
 * Returns the extents that cover @range; all of @root without memory.
 */
struct range extents_part(struct memory *root, struct range range);
/** @range widened to whole rows or slices of an image; a buffer's range unchanged. Wait-free. */
struct range extents_units(const struct memory *root, struct range range);
/** Make @residence_index, which has the latest bytes of @range, its writer. Gate closed. */
void extents_claim(struct memory *root, uint8_t residence_index, struct range range);
/** @residence_index was brought the bytes that @range had at @version. Extents that were written
 * since are not changed, nor are those that @range covers in part and that cannot be split.
 * Neighbours are joined only by extents_settle, so that several ranges can be refreshed before. */
void extents_refreshed(struct memory *root, uint8_t residence_index, struct range range,
                       uint64_t version);
/** Join neighbours that agree. */
void extents_settle(struct memory *root);
/** The replica at @residence_index is gone (R4: the caller knows that others have its bytes). */
void extents_dropped(struct memory *root, uint8_t residence_index);

/**
 * A mover begins to copy @root while the program runs: until extents_unwatch, extents that are
 * written from now on are not joined with others. One mover at a time. Gate closed. Returns the
 * present version.
 */
uint64_t extents_watch(struct memory *root);
void extents_unwatch(struct memory *root);

#endif
