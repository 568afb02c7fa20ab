#ifndef RESEAT_STREAM_WORKER_CHOOSE_H
#define RESEAT_STREAM_WORKER_CHOOSE_H

#include <stdbool.h>
#include <stdint.h>

#include "state/driver/cost.h"

/*
 * The payloads of a stream's stages. What each stage needs for a payload is learnt from those that
 * flow: their sizes are doubled while a record gets cheaper; then cost_payloads() chooses. If what
 * was chosen takes a quarter more or less than was predicted from other sizes, it chooses again.
 * When the slowest stage's time later differs by a quarter, its device or link has changed, and it
 * is learnt again; what differs by less is tune.h's. Pure: no clock, no blocking; of one thread.
 */

/** In the order in which records pass. The first and last are the client's. */
enum choose_stage {
    CHOOSE_PACK,
    CHOOSE_WRITE,
    CHOOSE_COMPUTE,
    CHOOSE_READ,
    CHOOSE_UNPACK,
    CHOOSE_STAGES
};

#define CHOOSE_SIZES 22 /**< Payloads of 1 << 0 to 1 << 21 records. */
/** Payloads that a stage of the device has at a time: one is worked on, one waits. */
#define CHOOSE_DEPTH 2

struct choose_size {
    double seconds; /**< A running mean. */
    unsigned seen;
};

struct choose_figures {
    struct choose_size sizes[CHOOSE_SIZES];
    unsigned size;         /**< Of its payload: records are 1 << size. */
    unsigned tried;        /**< Payloads since it has this size, or since `sum` began. */
    bool known;            /**< Its figures are complete. */
    double predicted, sum; /**< Seconds of a payload that was chosen; of all that were tried. */
    bool settled;          /**< `predicted` was measured with the chosen payload. */
};

struct choose {
    struct cost_flow flow; /**< All but payloads; memory in records of the rings. */
    /** Sizes: the least and most that may be chosen, and the first to try. */
    unsigned least[CHOOSE_STAGES], most[CHOOSE_STAGES], first[CHOOSE_STAGES];
    struct choose_figures stages[CHOOSE_STAGES]; /**< Of the device's. */
    uint32_t payloads[CHOOSE_STAGES];            /**< Records: what to use now. */
    bool chosen;
    unsigned corrections;           /**< Choices since it was learnt whose prediction was wrong. */
    uint64_t again_ns, patience_ns; /**< When it may be learnt again; the time until then. */
};

/** What it depends on. */
struct choose_world {
    uint32_t input, output; /**< Bytes of a record, and of an answer. */
    uint64_t capacity;      /**< Records in each of the client's rings. */
    uint64_t device_memory; /**< Bytes for the device's rings. */
    bool cpu;               /**< The device computes on the host's cores. */
    unsigned cores;
};

void choose_init(struct choose *choose, const struct choose_world *world);

/** Use @payloads, which were tried, within the bounds, in place of choosing. */
void choose_adopt(struct choose *choose, const uint32_t payloads[CHOOSE_STAGES]);

/** The largest payload in records that a stage may ever be given. */
uint32_t choose_most(const struct choose *choose, enum choose_stage stage);

/**
 * A payload has passed a stage of the device.
 *
 * @seconds  From when it could begin: after the stage before it, and after the payload before it.
 * @pack_ns, @unpack_ns  What the client needs for a record, as it says; 0: unknown.
 * Returns true when @choose->payloads have changed.
 */
bool choose_seen(struct choose *choose, enum choose_stage stage, uint64_t records, double seconds,
                 uint64_t now_ns, const uint32_t pack_unpack_ns[2]);

#endif
