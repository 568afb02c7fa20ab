#ifndef RESEAT_STATE_MEMORY_MERGE_DEVICE_H
#define RESEAT_STATE_MEMORY_MERGE_DEVICE_H

#include "state/memory/device_tool.h"
#include "state/memory/digest.h"

/*
 * What merging (merge.h) has devices do with chunks. Each function gives commands to the io queue
 * of the residence of @work; their buffers and host memory stay until these have ended.
 */

/** What a device says of chunks, one word each. */
struct chunk_flags {
    cl_mem real;
    cl_uint *words; /**< Where they are read to. */
};
/** True when the device said something of each of the first @count. */
bool chunk_flags_valid(const struct chunk_flags *flags, size_t count);

/** Build what it takes. Blocks, the first time for as long as a compiler. 0, -ENOTSUP, -EIO (the
 *  device is lost), -ETIMEDOUT, -ECANCELED. @limits  As digest_host(). */
MUST_CHECK int merge_device_begin(struct residence *residence,
                                  const struct transfer_limits *limits);

/** Bytes of a buffer beside what they were. */
struct merge_look {
    cl_mem now;
    size_t origin; /**< The buffer's byte that @now begins with, a multiple of 8. */
    cl_mem before;
    size_t base, end; /**< Of @before likewise, and where it ends: nothing else is looked at. */
};
/** Whether chunks [first, first + count) of the buffer differ, in flags [0, count). */
void merge_device_differs(struct device_work *work, const struct merge_look *look, size_t first,
                          size_t count, const struct chunk_flags *flags);

/** Chunks beside each other, at home: as the share began with them, as it left them, and, of some
 * of these, as home has them. */
struct merge_stage {
    cl_mem before, after, now;
    cl_mem chunks; /**< Which they are: numbers of 64 bits. */
};
/** Whether @after and @now differ from @before and from each other in one aligned group of @unit
 *  bytes (1, 2, 4 or 8), of @count chunks: from number @first on of @before and @after, all of
 *  @now. */
void merge_device_overlaps(struct device_work *work, const struct merge_stage *stage, size_t first,
                           size_t count, size_t unit, const struct chunk_flags *flags);
/** Store the bytes in which @after differs from @before, and no other, to where the first @count
 *  chunks are in @real. */
void merge_device_apply(struct device_work *work, const struct merge_stage *stage, size_t count,
                        cl_mem real);

#endif
