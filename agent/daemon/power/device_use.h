#ifndef RESEAT_AGENT_DAEMON_POWER_DEVICE_USE_H
#define RESEAT_AGENT_DAEMON_POWER_DEVICE_USE_H

#include "agent/meters/meters.h"

/** The use of one device. Where its meter does not show a value, that of all programs counts. */
struct device_use {
    uint64_t busy_permil;  /**< Share of recent time in which it was at work, in thousandths. */
    uint64_t wanted_bytes; /**< Memory that its programs would use. */
    uint64_t from_bytes_s, to_bytes_s;    /**< Transferred from it and to it, in a second. */
    bool busy_metered, transfers_metered; /**< The meter shows them. */
    struct meter_gauges gauges;
};

/** True when the meter shows @gauge. */
static inline bool utilisation_shows(const struct device_use *use, enum meter_gauge gauge)
{
    return use->gauges.values[gauge] != METER_UNKNOWN;
}

#endif
