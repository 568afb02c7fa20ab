#ifndef RESEAT_AGENT_METERS_METERS_H
#define RESEAT_AGENT_METERS_METERS_H

#include <stdbool.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Meters of the energy that a device takes. A driver or a kernel interface may be slow, or hang:
 * each meter is read by a thread of its own once a second, and meter_read() never waits for it.
 *
 *   nvml:PCI     a GPU of NVIDIA's by its PCI bus id; libnvidia-ml.so.1 is opened at run time.
 * Where it has no total energy, its power is summed up over time. rapl:N       package N of the
 * processors, from powercap in sysfs, which only root may read.
 */

struct meter;

/**
 * Begin to read the meter called @name. Returns 0, -EINVAL (no such kind), -ENOMEM or -EAGAIN (no
 * thread). Whether there is such a device shows when it is read.
 */
MUST_CHECK int meter_create(const char *name, struct meter **ret_meter);
/** Does not wait: a thread that hangs in a driver stays, and ends when that returns. NULL is
 *  allowed. */
void meter_destroy(struct meter *meter);

/**
 * The last reading: microjoules since the meter was created, and the nanosecond for which they hold
 * (clock_boot_ns()). Any thread.
 *
 * False: it has said nothing yet, not for METER_OLD_MS, or nothing that can be.
 */
bool meter_read(struct meter *meter, uint64_t *ret_uj, uint64_t *ret_at_ns);

#define METER_OLD_MS 5000

/** A meter's kind: tests bring their own. */
struct meter_kind {
    const char *name; /**< "rapl" */
    /** Called on the meter's thread. NULL: there is no such device. */
    void *(*open)(const char *which);
    void (*close)(void *device);
    /**
     * One reading: a running total that begins anew after @ret_most (0: it does not), or with
     * @ret_power the milliwatts that are drawn now. Returns 0 or -errno.
     */
    int (*read)(void *device, uint64_t *ret_value, uint64_t *ret_most, bool *ret_power);
};
extern const struct meter_kind meter_rapl, meter_nvml;

/** A running total in microjoules, from readings that may begin anew or be wrong. Pure. */
struct meter_total {
    uint64_t uj, at_ns; /**< The total, and when; at_ns 0: nothing is known. */
    uint64_t value, mw; /**< The last reading. */
    uint64_t value_ns;  /**< When; 0: none. */
};
/** More than this is no power that a device draws: the reading is not believed. */
#define METER_MOST_MW 100000000u
/** A reading of a running total. A total that went back or leapt begins anew: at_ns is 0 then. */
void meter_total_add(struct meter_total *total, uint64_t value, uint64_t most, uint64_t now_ns);
/** A reading of power; energy is the mean of two readings times the time between. */
void meter_power_add(struct meter_total *total, uint64_t mw, uint64_t now_ns);

#endif
