#ifndef RESEAT_AGENT_METERS_METERS_H
#define RESEAT_AGENT_METERS_METERS_H

#include <stdbool.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Meters of the energy that devices consume and of their use. A driver or a kernel interface may be
 * slow or hang: a thread for each meter reads it once a second, and no function here waits for that
 * thread.
 *
 *   nvml:PCI     An NVIDIA GPU, by PCI bus id. libnvidia-ml.so.1 is opened at run time. If the GPU
 *                has no energy counter, its power is integrated over time.
 *   sysfs:PCI    A GPU of another vendor, by PCI bus id: what its Linux driver shows in sysfs
 *                (hwmon) and of the processes that use it (DRM fdinfo), as far as we may read that.
 *   rapl:N       Processor package N, from powercap in sysfs, which only root can read. No gauges.
 */

struct meter;

/**
 * Start to read the meter called @name. A device that does not exist is not an error here:
 * meter_read() then has no reading.
 *
 * Returns 0, -EINVAL (no such kind, or too long), -ENOMEM or -EAGAIN (no thread). The caller owns
 * @ret_meter.
 */
MUST_CHECK int meter_create(const char *name, struct meter **ret_meter);
/** Does not block: a thread that hangs in a driver frees it later. NULL is allowed. */
void meter_destroy(struct meter *meter);

/**
 * Get the latest reading: microjoules since the meter was created, and the time in nanoseconds at
 * which they were measured (clock_boot_ns()). Any thread.
 *
 * Returns false without a valid reading in the last METER_OLD_MS.
 */
bool meter_read(struct meter *meter, uint64_t *ret_uj, uint64_t *ret_at_ns);

#define METER_OLD_MS 5000

/** What a meter may show beside energy. */
enum meter_gauge {
    METER_BUSY,        /**< Share of recent time in which the device was at work, in thousandths. */
    METER_TEMPERATURE, /**< Degrees Celsius. */
    METER_CLOCK,       /**< Of its compute units, in MHz. */
    METER_FROM,        /**< Bytes a second over its link to the host, from the device... */
    METER_TO,          /**< ...and to it. */
    METER_GAUGES
};
#define METER_UNKNOWN UINT64_MAX
struct meter_gauges {
    uint64_t values[METER_GAUGES]; /**< METER_UNKNOWN: not shown, or wrong. */
};

/**
 * Get the latest gauges. Those that are costly to read (struct meter_kind) are known only when this
 * function was called in the minute before. Any thread.
 */
void meter_look(struct meter *meter, struct meter_gauges *ret_gauges);

/** A kind of meter. Tests define their own. */
struct meter_kind {
    const char *name; /**< "rapl" */
    /** Called on the meter's thread. NULL: there is no such device. */
    void *(*open)(const char *which);
    void (*close)(void *device);
    /**
     * Take one reading: a running total in microjoules, which wraps after @ret_most (0: it does
     * not), or, with @ret_power set, the present power in milliwatts. Returns 0 or -errno.
     */
    int (*read)(void *device, uint64_t *ret_value, uint64_t *ret_most, bool *ret_power);
    /** Write the gauges that are known. Called after `read`; NULL: it has none. */
    void (*look)(void *device, struct meter_gauges *gauges);
    /** The same for gauges that are costly to read. NULL: it has none. */
    void (*scan)(void *device, struct meter_gauges *gauges);
};
extern const struct meter_kind meter_nvml, meter_rapl, meter_sysfs;

/** Read a number from a file. Returns 0, -ENAMETOOLONG, -EIO (it is none) or -errno. */
MUST_CHECK int meter_number(const char *folder, const char *name, uint64_t *ret_number);
/** @variable, which tests set to another root, or @root. */
const char *meter_root(const char *variable, const char *root);

/** A running total in microjoules, computed from readings that may wrap or be wrong. */
struct meter_total {
    uint64_t uj, at_ns; /**< The total and the time of it; at_ns 0: not valid. */
    uint64_t value, mw; /**< The previous reading. */
    uint64_t value_ns;  /**< Its time; 0: there was none. */
};
/** A reading that implies more power than this is rejected as wrong. */
#define METER_MOST_MW 100000000u
/** Add a reading of a counter. After a reset or leap, at_ns is 0 until the next reading. */
void meter_total_add(struct meter_total *total, uint64_t value, uint64_t most, uint64_t now_ns);
/** Add a reading of power. Energy is the mean of two readings times the time between them. */
void meter_power_add(struct meter_total *total, uint64_t mw, uint64_t now_ns);

#endif
