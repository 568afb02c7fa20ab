#ifndef RESEAT_INTERPOSE_CONTROL_CONTROL_FRAMES_H
#define RESEAT_INTERPOSE_CONTROL_CONTROL_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/protocol/protocol.h"
#include "interpose/aware/aware.h"
#include "interpose/control/control_job.h"
#include "state/checkpoint/lease_renewer.h"
#include "state/move/move.h"
#include "state/move/status.h"
#include "state/object/lost.h"
#include "state/recovery/protect.h"

/* The frames that a program sends. Each begins @frame; the caller seals, sends and finishes it. */

/** @name, @id  What `reseat run` gave the program, or NULL. */
void control_frame_hello(struct frame *frame, const char *name, const char *id,
                         const struct aware_wish *wish);

void control_frame_wish(struct frame *frame, const struct aware_wish *wish);
/** The times of launches. */
void control_frame_costs(struct frame *frame, const struct pace_sample *samples, uint32_t count);

/** Begin a status; follow with control_frame_vdev() for each virtual device and frame_end(). */
void control_frame_status(struct frame *frame, const struct spread_status *spread);

void control_frame_vdev(struct frame *frame, uint32_t vdev, const struct vdev_status *status);

/** More fields of a status. @as: how the program is protected, in the agent's words. */
void control_frame_protect(struct frame *frame, const char *as,
                           const struct protect_status *status);
/** The last loss of a device, if there was one. */
void control_frame_loss(struct frame *frame, const struct loss *loss);
/** Whether the program has its lease, or is fenced. */
void control_frame_lease(struct frame *frame, const struct lease_renewer_status *lease);
/** Kernels whose launches are never given in pieces. */
void control_frame_whole(struct frame *frame, const struct pace_refusal *whole, uint32_t count);
/** The devices that are ready for the program. */
void control_frame_ready(struct frame *frame, const struct ready_status *ready, uint32_t count);
void control_frame_progress(struct frame *frame, uint64_t request,
                            const struct move_progress *progress);
void control_frame_report(struct frame *frame, uint64_t request,
                          const struct control_report *report);

#endif
