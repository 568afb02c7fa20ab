#ifndef RESEAT_AGENT_DAEMON_POWER_POWER_PRIV_H
#define RESEAT_AGENT_DAEMON_POWER_POWER_PRIV_H

#include "agent/config/config.h"
#include "agent/daemon/power/power.h"

/* What power.c (caps) and power_meters.c (readings) share. */

#define MW_PER_W 1000u
/** Readings of a program before its peak is used; until then the maximum of its device is used. */
#define POWER_SAMPLES 4

/** The power of one device. */
struct metered {
    uint64_t idle_mw, most_mw;       /**< 0: not known. */
    uint64_t reading_mw, foreign_mw; /**< As of the latest reading. */
    bool read;                       /**< There was a reading. */
    bool modelled;   /**< No meter shows its energy: readings are computed (power_model()). */
    bool idle_known; /**< Configured, or measured while no program was on the device. */
    uint64_t read_ms, exceeded; /**< Time of the latest reading; readings above the device's cap. */
    uint64_t uj, at_ns;         /**< The meter's latest total and its time; at_ns 0: no value. */
    struct meter *meter;        /**< NULL for a meter that is a file, or without a meter. */
    char meter_name[CONFIG_NAME_MAX];
};

struct power {
    struct metered *devices; /**< Indexed as the ledger's devices. */
    uint32_t count;
    bool tells;        /**< The latest power_run() found a program that a cap concerns. */
    uint64_t exceeded; /**< Readings of all devices together that exceeded the host's cap. */
};

/** Have a struct metered for each device of the ledger. Returns false when out of memory. */
bool power_grow(struct agent *agent);
/** The peak on @device; NULL: there is none yet. */
struct program_peak *power_peak_of(struct program_power *power, uint32_t device);
/**
 * False when @program may not launch, and its launches have ended. A program that does not answer
 * is stopped: its grant has ended by itself, and its launches are taken to have ended too. If they
 * have not, the meter shows them as power of others.
 */
bool power_may_run(const struct program *program);
/** Read all meters. Returns the sum of the latest readings of all devices, in mW. */
uint64_t power_read_all(struct agent *agent);

#endif
