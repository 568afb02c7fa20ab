#ifndef RESEAT_INTERPOSE_CONTROL_CONTROL_FRAMES_H
#define RESEAT_INTERPOSE_CONTROL_CONTROL_FRAMES_H

#include "agent/protocol/protocol.h"
#include "interpose/aware/aware.h"
#include "interpose/control/control_job.h"
#include "state/image/lease_renewer.h"
#include "state/move/status.h"
#include "state/object/lost.h"
#include "state/recovery/protect.h"

/* The frames that a program sends. Each begins @frame; the caller sends and finishes it. */

struct control_hello {
    const char *name, *id; /**< What `reseat run` gave the program; or "". */
    const char *program;
    struct aware_wish wish;
};

struct control_status {
    uint64_t warm; /**< Bytes of host memory that are kept ready. */
    struct spread_status spread;
    uint32_t vdev_count, ready_count, whole_count;
    struct vdev_status *vdevs; /**< Of each virtual device. */
    struct ready_status ready[STATUS_READY_MAX];
    struct pace_refusal whole[STATUS_WHOLE_MAX];
    bool protects;        /**< The next five are known. */
    struct protection as; /**< How the program is to be protected. */
    bool seeks;           /**< It waits for another device. */
    const char *recovery; /**< What a recovery under way does; or "". */
    struct protect_status protect;
    struct loss loss;
    uint64_t stored; /**< Bytes that are in an image only. */
    struct lease_renewer_status lease;
};

/** MSG_WELCOME. */
struct control_welcome {
    struct device_key devices[PROTOCOL_VDEVS_MAX]; /**< Where the program starts. */
    size_t device_count, grant_count;
    struct control_lease {
        char folder[PATH_MAX]; /**< Absolute; or "". */
        char id[LEASE_ID_MAX];
    } lease;
    bool alive;  /**< The agent answers MSG_ALIVE. */
    bool places; /**< It chooses devices for programs that lost theirs. */
    bool learns; /**< It keeps launch times. */
    bool capped; /**< A power cap concerns the program. */
    uint64_t grants[PROTOCOL_VDEVS_MAX];
};

/** Power: what the agent said last, and what it was told last. */
struct control_power {
    uint64_t turn; /**< Number of the agent's message; 0: there was none. */
    bool capped, granted;
    bool timed;      /**< The grant ends after for_ms; an older agent's does not. */
    uint64_t for_ms; /**< How long launches are granted. */
    bool runs, wants;
};

void control_frame_hello(struct frame *frame, const struct control_hello *hello);
void control_frame_wish(struct frame *frame, const struct aware_wish *wish);
/** The program's present state. */
void control_frame_status(struct frame *frame);
/** The times of launches. */
void control_frame_costs(struct frame *frame, const struct pace_sample *samples, uint32_t count);
void control_frame_progress(struct frame *frame, uint64_t request,
                            const struct move_progress *progress);
void control_frame_report(struct frame *frame, uint64_t request,
                          const struct control_report *report);

#endif
