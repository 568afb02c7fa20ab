#ifndef RESEAT_STREAM_WORKER_DEVICE_H
#define RESEAT_STREAM_WORKER_DEVICE_H

#include <CL/cl.h>
#include <stdbool.h>
#include <stdint.h>

#include "state/base/compiler.h"
#include "stream/area.h"
#include "stream/description.h"
#include "stream/frame.h"

/*
 * A stream's kernel on its device: a ring of records and a ring of answers in device memory, and
 * three in-order queues, one for each stage. A command of one stage waits for that of the stage
 * before by its event, so the host is not needed between them. The three commands of a small
 * payload that finds the device idle go to one queue, which takes less time than events between
 * queues.
 */

#define DEVICE_DEPTH_MAX 8
/** Bytes behind the last answer, and at most before the first, in which a kernel must not write. */
#define DEVICE_GUARD 1024

enum device_stage { DEVICE_WRITE, DEVICE_COMPUTE, DEVICE_READ };

/** A command under way, and the records that it is for. */
struct device_payload {
    cl_event event;
    uint64_t end;        /**< The position behind its last record. */
    uint64_t count;      /**< Records. */
    bool rings;          /**< The bell will be rung at its end. */
    uint64_t started_ns; /**< When it was given to the device, by clock_now_ns(). */
    bool guarded;        /**< `guard` is read with it. */
    unsigned char guard[2 * DEVICE_GUARD];
};

struct device_queue {
    cl_command_queue queue;
    uint32_t payload, depth; /**< Records of a payload, and payloads at a time. */
    uint64_t issued, done;   /**< Positions. */
    unsigned first, count;   /**< In `payloads`. */
    struct device_payload payloads[DEVICE_DEPTH_MAX];
    /** The last that have ended: until which position, and when. */
    struct device_end {
        uint64_t position, ns;
    } ends[DEVICE_DEPTH_MAX];
    unsigned last; /**< In `ends`. */
};

struct device {
    const struct stream_description *description;
    cl_context context;
    cl_device_id id;
    cl_program program;
    cl_kernel kernel;
    cl_mem input, output, constants[STREAM_CONSTANTS_MAX];
    size_t local;   /**< Work-items of a work-group; 0: the driver's. */
    uint64_t slots; /**< Records in each ring; slot 0 of both is none of them. */
    int bell;       /**< An eventfd: device_ring_at_end(). */
    uint64_t alone; /**< The end of the last such payload; 0: none. */
    struct device_queue stages[STREAM_STAGES];
    char problem[STREAM_REASON_MAX];
};

/**
 * Build the kernel on the first device.
 *
 * @source  With a NUL.
 * Returns 0, -EINVAL (the kernel is wrong: `problem` says why, and no device will do), or -EIO (the
 * device failed; `problem` says how).
 */
MUST_CHECK int device_open(struct device *device, const struct stream_description *description,
                           const struct stream_open *open);
/** Make the rings for these payloads and depths, which may be less if memory is short, and begin at
 * @position. No command may be under way. Returns as device_open(). */
MUST_CHECK int device_make_rings(struct device *device, const uint32_t payloads[STREAM_STAGES],
                                 const uint32_t depths[STREAM_STAGES], uint64_t position);

/** How many records a stage may start on now, of @available from `issued` on. 0: none. */
uint64_t device_can_start(const struct device *device, enum device_stage stage, uint64_t available);
/** Start a command for @count records. @host: where they are, or where the answers go; NULL for
 * DEVICE_COMPUTE. @guard: check the bytes around the answers. Returns as device_open(). */
MUST_CHECK int device_start(struct device *device, enum device_stage stage, uint64_t count,
                            char *host, bool guard);
/** The oldest command of a stage, if it has ended; NULL: none has. @ret_error: of device_open(). */
struct device_payload *device_ended(struct device *device, enum device_stage stage, int *ret_error);
/** Is any stage's oldest command one that has ended? */
bool device_has_ended(const struct device *device);
bool device_is_idle(const struct device *device);
/** Have the bell rung when a stage's oldest command ends, or has ended. */
void device_ring_at_end(struct device *device);
/** When it could begin, after the payloads that it had to wait for, and when it ended: by the
 * device's clock, or the host's if that tells nothing. Asked once, before device_forget(). */
void device_times(struct device *device, enum device_stage stage,
                  const struct device_payload *payload, uint64_t *ret_begin_ns,
                  uint64_t *ret_end_ns);
/** Forget it. */
void device_forget(struct device *device, enum device_stage stage);
/** Are the bytes around the answers as they were when this payload was read? */
bool device_guard_is_whole(const struct device *device, const struct device_payload *payload);

#endif
