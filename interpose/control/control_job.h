#ifndef RESEAT_INTERPOSE_CONTROL_CONTROL_JOB_H
#define RESEAT_INTERPOSE_CONTROL_CONTROL_JOB_H

#include "agent/protocol/request.h"
#include "state/image/checkpoint.h"
#include "state/image/stored.h"
#include "state/move/move.h"

/*
 * What an operator asks of a program, which may have several virtual devices: each moves in a
 * transaction of its own, one after another, until one does not.
 */

struct control_request {
    struct move_request move; /**< Without target and virtual device. */
    uint64_t id;              /**< The report has the same. */
    uint32_t vdev;            /**< Or REQUEST_ALL_VDEVS. */
    enum request_verb verb;
    bool keeps, ends;  /**< Of a checkpoint: another one follows; or there will be no more. */
    bool parks;        /**< Park the program, for an image of its process (park.h). */
    uint64_t keep;     /**< Number of images to retain; 0: all. */
    uint64_t lease_ms; /**< Duration of the lease that is to be renewed; 0: begin none. */
    uint64_t every_ms; /**< Interval of its images; 0: none follows. */
    bool drop;         /**< Release residences that move.prewarm made. */
    struct protection protection; /**< The new one. */
    uint64_t order;               /**< Number of this change: control_protect_order. */
    bool limited;                 /**< The request has `grants`. */
    uint64_t
        grants[PROTOCOL_VDEVS_MAX]; /**< Bytes that each virtual device may have on its target. */
    uint64_t wanted[PROTOCOL_VDEVS_MAX]; /**< Bytes that each wanted when the agent decided on
                                            `grants`. */
    char folder[PATH_MAX];               /**< Of these: where an image goes; or
                                              "". */
    struct device_key
        targets[PROTOCOL_VDEVS_MAX]; /**< Of each virtual device; not for a suspend. To drop:
                                          the first is meant, with "" all are. */
};

/** A result beside those of moves, as agent/protocol/messages.txt has them: RESULT_AGAIN. */
#define CONTROL_AGAIN ((enum move_result)(MOVE_ENDED + 1))

struct control_report {
    struct move_report whole; /**< Sums of all moves, and the result of the last one. */
    bool already;             /**< There was nothing to do. */
    bool stores;              /**< An image was to be written: */
    struct image_report image;
    bool protects;           /**< The protection was to be changed. */
    char not_protected[512]; /**< Why the program could not be protected; or "". */
    bool parked;    /**< This thread parked the program, and has to call control_park_wait() and
                       park_end(). */
    uint64_t box;   /**< If parked: address of the box by which the program is resumed. */
    uint32_t count; /**< Number of virtual devices that were tried. */
    struct control_tried {
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
 * Carry a request out. Virtual devices that are already where they are to be are left out.
 * Blocks as move_run.
 */
void control_job_run(const struct control_request *request, struct control_report *ret_report);

/** The devices of CONTROL_ENV_DEVICE, which reseat run separates with spaces; at most
 *  PROTOCOL_VDEVS_MAX. Returns how many. */
uint32_t control_environment_devices(struct device_key *ret_keys);

#endif
