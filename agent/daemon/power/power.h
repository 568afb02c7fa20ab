#ifndef RESEAT_AGENT_DAEMON_POWER_POWER_H
#define RESEAT_AGENT_DAEMON_POWER_POWER_H

#include "agent/daemon/programs/registry.h"

/*
 * Power caps of programs, devices and the host. policy/power.h chooses who may launch; here its
 * world is described, meters are read, peaks are learnt, and programs are told. A program is
 * granted power until it was told otherwise and has said that its launches have ended.
 */

/** Returns 0 or -ENOMEM. */
MUST_CHECK int power_init(struct agent *agent);
void power_finish(struct agent *agent);

/** Choose anew and tell programs. Cheap where there is no cap. */
void power_run(struct agent *agent);
/** Read the meters, and choose anew. */
void power_tick(struct agent *agent);

/** A program connected: @welcome says whether it has to wait for power. */
void power_welcome(struct agent *agent, struct program *program, struct frame *welcome);
/** Tell it at once, after its welcome. */
void power_connected(struct agent *agent, struct program *program);
/** MSG_POWER of a program. */
void power_handle(struct peer *peer, struct message *message);

/** True when @device is no place for @program because of a cap, but another device is. */
bool power_bars(const struct agent *agent, const struct program *program, uint32_t device);

/**
 * Check a cap before it is set: of @program on any device; without it of @device; of a program that
 * is not known yet (both NULL and LEDGER_NONE). False, with the reason and the least that would do
 * in @ret_reason, where nothing fits under it.
 */
bool power_allows(struct agent *agent, const struct program *program, uint32_t device,
                  uint64_t cap_mw, char *ret_reason, size_t size);

/** The same for a cap of the host. */
bool power_allows_host(struct agent *agent, uint64_t cap_mw, char *ret_reason, size_t size);

/** Fields for `reseat devices` and `reseat ps`. */
void power_put_device(const struct agent *agent, uint32_t device, struct frame *frame);
void power_put_program(const struct program *program, struct frame *frame);
/** A line for `reseat explain`; "" where power does not matter. */
void power_explain(const struct agent *agent, const struct program *program, char *ret_line,
                   size_t size);

#endif
