#ifndef RESEAT_AGENT_DAEMON_POWER_POWER_H
#define RESEAT_AGENT_DAEMON_POWER_POWER_H

#include "agent/daemon/programs/registry.h"
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

/*
 * How much of devices is used, by all programs and by one. Nothing is measured for this: meters are
 * read once a second anyway, and programs report what they know from launches that end.
 */

/** The use of @device. */
struct device_use utilisation_of_device(const struct agent *agent, uint32_t device);
/**
 * The share of recent time, in thousandths, in which @program used @device: in which a thread of it
 * waited for the device, or in which its measured launches ran there, whichever is more. Each
 * misses something: a program may not wait, and short launches are measured now and then.
 */
uint32_t utilisation_of_program(const struct agent *agent, const struct program *program,
                                uint32_t device);

/** Put the use of @device into an open map, for `reseat devices` and `reseat explain`. */
void utilisation_put_device(const struct agent *agent, uint32_t device, struct frame *frame);

/*
 * Power caps of programs, devices and the host. policy/power.h chooses the programs that may
 * launch. This file describes the current state to it, reads meters, learns peaks, and tells
 * programs. A program holds its power until it was told to stop and has reported that its launches
 * have ended, or does not answer for long.
 */

/** Returns 0 or -ENOMEM. */
MUST_CHECK int power_init(struct agent *agent);
void power_finish(struct agent *agent);

/** Choose which programs may launch and tell them of changes; nothing without a cap. */
void power_run(struct agent *agent);
/** Read the meters, then power_run(). */
void power_tick(struct agent *agent);

/** True when there is a cap, or programs were told of one. */
bool power_is_at_work(const struct agent *agent);

/** A program has connected: find out whether a cap concerns it, as its welcome says. */
void power_welcome(const struct agent *agent, struct program *program);
/** Send the program its first MSG_POWER, after its welcome. */
void power_connected(struct agent *agent, struct program *program);
/** Handle a program's MSG_POWER. */
void power_handle(struct peer *peer, struct message *message);

/** True when @program owes an answer to the end of its grant: its launches may go on. */
bool power_awaits(const struct program *program);

/** True when a cap keeps @program off @device, and it would fit on another device. */
bool power_bars(const struct agent *agent, const struct program *program, uint32_t device);

/**
 * Check a new cap: of @program, on any device; of @device, if @program is NULL; or of a program
 * that is not known yet, if @program is NULL and @device is LEDGER_NONE.
 *
 * Returns false, with the reason and the lowest possible cap in @ret_reason, where nothing could
 * run.
 */
bool power_allows(struct agent *agent, const struct program *program, uint32_t device,
                  uint64_t cap_mw, char *ret_reason, size_t size);

/** Check a new cap of the host, as power_allows(). */
bool power_allows_host(struct agent *agent, uint64_t cap_mw, char *ret_reason, size_t size);

/**
 * Power that launches of @program draw on @device above idle, as long as nothing is known of the
 * kernel: the program's learnt peak, or what the configuration says that the device draws at most.
 * 0: not known.
 */
uint64_t power_expected(const struct agent *agent, const struct program *program, uint32_t device);
/** What @device draws while it is idle; 0: not known. */
uint64_t power_idle(const struct agent *agent, uint32_t device);
/** True when readings of @device are computed, because it has no meter. */
bool power_is_modelled(const struct agent *agent, uint32_t device);
/** The power that @device drew, as last read or computed, in mW. False: it is not known. */
bool power_reading(const struct agent *agent, uint32_t device, uint64_t *ret_mw);
/** Add the fields for `reseat devices` and `reseat ps`. */
void power_put_device(const struct agent *agent, uint32_t device, struct frame *frame);
void power_put_program(const struct program *program, struct frame *frame);
/** Write the line for `reseat explain`; nothing where no cap concerns the program. */
void power_explain(const struct agent *agent, const struct program *program, char *ret_line,
                   size_t size);

#endif
