#ifndef RESEAT_INTERPOSE_CONTROL_CONTROL_JOB_H
#define RESEAT_INTERPOSE_CONTROL_CONTROL_JOB_H

#include "agent/protocol/protection.h"
#include "agent/protocol/protocol.h"
#include "state/checkpoint/checkpoint.h"
#include "state/move/move.h"
#include "state/move/stored.h"

/*
 * What an operator asks of a program, which may have several virtual devices: each moves in a
 * transaction of its own, one after another, until one does not.
 */

#define CONTROL_ALL_VDEVS UINT32_MAX

struct control_request {
    struct move_request move; /**< Without target and virtual device. */
    uint64_t id;              /**< What it is answered with. */
    uint32_t vdev;            /**< Or CONTROL_ALL_VDEVS. */
    bool suspend, resume;     /**< Else a move. */
    bool checkpoint;          /**< An image of it is made where it is. */
    bool keeps, ends;         /**< Of that: another one follows; none does. */
    bool parks;               /**< Of that: of its process (park.h). */
    uint64_t keep;            /**< So many of its images stay; 0: all. */
    uint64_t lease_ms;        /**< It says that it lives; 0: it does not, unless it does already. */
    bool drop;                /**< Let go of what move.prewarm made. */
    bool protect;             /**< It is protected so from now on: */
    struct protection protection;
    uint64_t order;                      /**< Of that: control_protect_order. */
    bool limited;                        /**< `grants` were said. */
    uint64_t grants[PROTOCOL_VDEVS_MAX]; /**< Bytes that each may have on its target. */
    uint64_t wanted[PROTOCOL_VDEVS_MAX]; /**< What each had when that was decided. */
    char folder[PATH_MAX];               /**< Of these: where an image goes; or
                                              "". */
    struct device_key
        targets[PROTOCOL_VDEVS_MAX]; /**< Of each virtual device; not for a suspend. To drop:
                                          the first is meant, with "" all are. */
};

struct control_report {
    struct move_report whole; /**< Sums, and how the last one ended. */
    bool again;               /**< RESULT_AGAIN. */
    bool already;             /**< There was nothing to do. */
    bool stores;              /**< It was to go into an image: */
    struct image_report image;
    bool protects;           /**< It was to be protected, or not any more. */
    char not_protected[512]; /**< Why it is not, though it is to be; or "". */
    bool parked;    /**< It is, by this thread: control_park_wait() and park_end() follow. */
    uint64_t box;   /**< Then: where who asked says when it is to go on. */
    uint32_t count; /**< Of those that were tried. */
    struct {
        uint32_t vdev;
        struct move_report report;
    } each[PROTOCOL_VDEVS_MAX];
};

/**
 * Read what the agent asks.
 *
 * @ret_request  Its callbacks and its cancel flag are the caller's to set.
 * Returns NULL, or what is wrong with it.
 */
const char *control_request_read(const msgpack_object *map, struct control_request *ret_request);

/**
 * Virtual devices that are already where they are to be are left out.
 * Blocks as move_run.
 */
void control_job_run(const struct control_request *request, struct control_report *ret_report);

/** The devices of CONTROL_ENV_DEVICE, which reseat run separates with spaces; at most
 *  PROTOCOL_VDEVS_MAX. Returns how many. */
uint32_t control_environment_devices(struct device_key *ret_keys);

#endif
