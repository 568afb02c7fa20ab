#ifndef RESEAT_STATE_MEMORY_MERGE_DEVICE_H
#define RESEAT_STATE_MEMORY_MERGE_DEVICE_H

#include "state/memory/device_tool.h"
#include "state/memory/digest.h"

/*
 * Device work of merging (merge.h). Each function enqueues commands on the io queue of @work's
 * residence; buffers and host memory that they use must stay until the commands have ended.
 */

/** A device's answers: one word for each chunk. */
struct chunk_flags {
    cl_mem real;
    cl_uint *words; /**< Host memory that they are read to. */
};
/** True when the device has answered for each of the first @count chunks. */
bool chunk_flags_valid(const struct chunk_flags *flags, size_t count);

/** Build the kernels. Blocks, the first time on the compiler. 0, -ENOTSUP, -EIO (the
 *  device is lost), -ETIMEDOUT, -ECANCELED. @limits  As digest_host(). */
MUST_CHECK int merge_device_begin(struct residence *residence,
                                  const struct transfer_limits *limits);

/** A buffer, and a copy of its bytes from before. */
struct merge_look {
    cl_mem now;
    size_t origin; /**< The buffer's byte that @now begins with, a multiple of 8. */
    cl_mem before;
    size_t base, end; /**< The buffer's bytes that @before has; only they are compared. */
};
/** Whether chunks [first, first + count) of the buffer differ, in flags [0, count). */
void merge_device_differs(struct device_work *work, const struct merge_look *look, size_t first,
                          size_t count, const struct chunk_flags *flags);

/** Chunks one after the other, at home: before the share, after it, and, for some of them, as home
 * has them. */
struct merge_stage {
    cl_mem before, after, now;
    cl_mem chunks; /**< Their numbers in the buffer, of 64 bits. */
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
