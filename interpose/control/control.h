#ifndef RESEAT_INTERPOSE_CONTROL_CONTROL_H
#define RESEAT_INTERPOSE_CONTROL_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "state/driver/driver.h"

/*
 * The program's end of the control connection: one thread that tells the agent how the program is
 * and serves its requests, and one more for each move that runs. The program never waits for the
 * agent, and does not notice when it goes away or comes back.
 */

/** Environment that `reseat run` sets. */
#define CONTROL_ENV_SOCKET "RESEAT_SOCKET" /**< Path of the agent's socket. */
#define CONTROL_ENV_DEVICE "RESEAT_DEVICE" /**< device_key_format() of each device to start on. */
#define CONTROL_ENV_NAME   "RESEAT_NAME"   /**< What the operator calls the program. */
#define CONTROL_ENV_ID     "RESEAT_ID"     /**< What the agent calls it. */

/**
 * Start the control thread. Called at the first use of OpenCL; later calls return at once.
 *
 * Does not block on the agent. Thread-safe. After fork() it starts a new thread in the child, when
 * the child calls it. Without CONTROL_ENV_SOCKET there is nobody to talk to and nothing starts.
 *
 * Returns 0, or -errno when no thread or descriptor could be had; the program goes on without.
 */
int control_start(void);

/**
 * Have the control thread send now what the agent has to be told. Never blocks.
 * Returns whether an agent is connected.
 */
bool control_wake(void);

/**
 * The devices on which the program is to start, one for each of its virtual ones: what the agent
 * says now (the operator may have moved the program since `reseat run`), or CONTROL_ENV_DEVICE
 * where no agent answers within @timeout_ms (the answer usually takes well under one).
 *
 * @ret_keys  PROTOCOL_VDEVS_MAX.
 * Calls control_start(). Thread-safe. Returns how many; 0 when neither names one.
 */
uint32_t control_start_devices(unsigned timeout_ms, struct device_key *ret_keys);

/** True when an agent is connected that chooses devices for programs that lost theirs. It is sent
 *  the program's status now. Never blocks. */
bool control_agent_chooses(void);

/** The devices of CONTROL_ENV_DEVICE, which reseat run separates with spaces; at most
 *  PROTOCOL_VDEVS_MAX. Returns how many. */
uint32_t control_environment_devices(struct device_key *ret_keys);

/** True when @text, a value of the environment or NULL, asks for protection. */
bool control_protect_is_wanted(const char *text);
/**
 * At the start, before an agent is heard.
 *
 * @places  Where it may go when its device is lost and no agent says where; copied.
 * @text    Of the environment, or NULL: not protected.
 */
void control_protect_start(const struct device_key *places, size_t count, const char *text);
/** The virtual devices have devices now: give them the agent's initial grants. */
void control_budget_begin(void);

#endif
