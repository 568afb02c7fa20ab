#ifndef RESEAT_STATE_MEMORY_EXTENTS_H
#define RESEAT_STATE_MEMORY_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/opencl/image.h"

/*
 * Which bytes of a root are the latest where (invariants R1 to R4, for each extent).
 *
 * Most roots are whole: one version and one writer say it of all their bytes (memory.h), and
 * threads inside the gate read and write that without a lock. A root is told apart, with the gate
 * closed, by who makes a second replica of it or of a part: from then on a table has its extents,
 * which commands that write a part of it split. The table is bounded, so that what cannot be split
 * is counted outward, to whole extents, and neighbours are joined, which may make replicas count as
 * stale that are not, never the other way round. Once one replica alone has the latest bytes of all
 * of it, it is whole again.
 *
 * Extents of an image begin where a row does, or a slice where it has several.
 *
 * Every function is thread-safe and blocks on the tables' lock alone.
 */

struct memory;

/** Of a root's `writer`: it has a table of extents (told apart). */
#define WRITER_APART 0xfe

/** At most so many extents has one root. */
#define EXTENTS_MAX 64

/** Bytes that have one version and the same holders. */
struct extent {
    struct range range;
    uint64_t version; /**< 0: never written. */
    uint32_t latest;  /**< Bit p: residence p (RESIDENCE_HOST too) has the latest bytes. */
    uint8_t writer;   /**< The residence that wrote last or claimed it (extents_claim), or none. */
};

/** The extent that has byte @at of @root, which may be whole. What it says may change at once where
 *  the gate is open. */
struct extent extent_at(const struct memory *root, size_t at);

/** True when @residence_index has the latest bytes of all of @range, or writes all of it. For a
 * root that is whole: of all its bytes. */
bool extents_latest(const struct memory *root, uint8_t residence_index, struct range range);
bool extents_written_by(const struct memory *root, uint8_t residence_index, struct range range);
/** Bytes of @range that @residence_index lacks and one of @sources (bits) has. */
uint64_t extents_lacking(const struct memory *root, uint8_t residence_index, uint32_t sources,
                         struct range range);

/**
 * A command that was just given to @residence_index writes @range, the latest bytes of whose
 * extents @residence_index has: a new version, held there alone. Inside the gate. Cannot fail.
 */
void extents_written(struct memory *root, uint8_t residence_index, struct range range);
/**
 * Tell @root apart, with an extent that begins and one that ends where @range does, if there is
 * room for them. Gate closed. Returns the extents that @range is in: all of @root without memory.
 */
struct range extents_part(struct memory *root, struct range range);
/** @range outward to whole rows or slices of an image; of a buffer as it is. Wait-free. */
struct range extents_units(const struct memory *root, struct range range);
/** @residence_index, which has the latest bytes of @range, writes it from now on. Gate closed. */
void extents_claim(struct memory *root, uint8_t residence_index, struct range range);
/** @residence_index has the bytes that the extents inside @range had at @version: those that were
 * written since stay as they are, and so do those that @range has a part of, if they cannot be
 * split. Neighbours are joined by extents_settle alone, so that several ranges can be refreshed. */
void extents_refreshed(struct memory *root, uint8_t residence_index, struct range range,
                       uint64_t version);
/** Join neighbours that agree. */
void extents_settle(struct memory *root);
/** The replica at @residence_index is no more (R4: the caller knows that others have its bytes). */
void extents_dropped(struct memory *root, uint8_t residence_index);

/**
 * A mover copies what @root has now, with the program running: what is written from now on is kept
 * apart from what is not, until extents_unwatch. One mover at a time. Gate closed.
 * Returns the version of now.
 */
uint64_t extents_watch(struct memory *root);
void extents_unwatch(struct memory *root);

#endif
