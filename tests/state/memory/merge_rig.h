#ifndef RESEAT_TESTS_STATE_MEMORY_MERGE_RIG_H
#define RESEAT_TESTS_STATE_MEMORY_MERGE_RIG_H

#include "state/memory/merge.h"

/*
 * One buffer that is real in two residences, for tests of merges: no engine stands behind it. What
 * either place has, and what the share began with, is kept beside it on the host, and what a merge
 * has to leave is computed from that, byte by byte.
 */

enum { MERGE_HOME, MERGE_AWAY };

struct merge_rig {
    struct context context;
    struct memory root;
    struct residence *at[2];
    struct device *_Atomic ready[2];
    cl_mem real[2];
    _Atomic uint64_t held[2];
    size_t size;
    size_t unit; /**< 8, where a test does not say. */
    unsigned seed;
    bool loses; /**< A device may be lost: then what is written there does not matter. */
    unsigned char *home, *away, *began; /**< As they are to be. @began: away, when it began. */
    unsigned char *got;
};

/** @flags  CL_MEM_READ_WRITE or CL_MEM_WRITE_ONLY. Each place has its own random bytes in a tenth
 *          of all units, and the same in the others. */
void merge_rig_open(struct merge_rig *rig, struct device *home, struct device *away, size_t size,
                    cl_mem_flags flags, unsigned seed);
/** @rig has its buffer in the residences of @other, which ends after it, instead of its own. */
void merge_rig_share(struct merge_rig *rig, const struct merge_rig *other);
/** Both residences end. */
void merge_rig_close(struct merge_rig *rig);

/** Below @below, at random. */
size_t merge_rig_pick(struct merge_rig *rig, size_t below);
/** Somebody writes at @residence_index: on the device, and in the model. */
void merge_rig_write(struct merge_rig *rig, int residence_index, size_t at, const void *bytes,
                     size_t size);
/** The share begins: what away has now is what it began with. */
void merge_rig_begins(struct merge_rig *rig);
/** merge_fetch, and merge_find after it. */
MUST_CHECK int merge_rig_find(struct merge *merge, const struct transfer_limits *limits,
                              bool *ret_overlaps, uint64_t *ret_bytes);
/** What merge_find has to say of @range. */
bool merge_rig_overlaps(const struct merge_rig *rig, struct range range);
uint64_t merge_rig_written(const struct merge_rig *rig, struct range range);
/** Home is to have what the share wrote in @range. */
void merge_rig_merged(struct merge_rig *rig, struct range range);
/** Fails the test when a byte that is at home is not what it is to be. */
void merge_rig_check(struct merge_rig *rig, const char *when);

/** A merge from begin to end, with @writes at random places of both, most at away. Fails the test
 * where it does not do what the model does. Returns true when it was applied. */
bool merge_rig_play(struct merge_rig *rig, struct range range, unsigned writes);
/** Many of them, of ranges and writes of all kinds. Returns how many were applied. */
unsigned merge_rig_plays(struct merge_rig *rig, unsigned count);

#endif
