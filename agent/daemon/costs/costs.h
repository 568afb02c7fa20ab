#ifndef RESEAT_AGENT_DAEMON_COSTS_COSTS_H
#define RESEAT_AGENT_DAEMON_COSTS_COSTS_H

#include "agent/daemon/agent.h"
#include "agent/protocol/request.h"
#include "policy/costs.h"
#include "policy/decide.h"

/*
 * Costs of launches, which programs measure (state/program/pace.h) and the agent learns by user,
 * kernel and device (policy/costs.h) and stores on disk (store.h). A program's reports affect only
 * the costs of its own user, so that false reports harm no other user. All functions run on the
 * agent's thread.
 */

/** One launch, as a program reports it. */
struct cost_sample {
    char id[COST_ID_SIZE]; /**< Identifies the kernel on every device. */
    char name[COST_NAME_SIZE];
    bool has_device;
    struct device_key device;
    uint64_t items, ns; /**< Work-items and duration of the launch. */
    uint64_t busy_ns;   /**< Total duration of all launches that this sample represents. */
};

/** The power that launches of a kernel draw on a device above idle, as a program is told. */
struct cost_drawn {
    char id[COST_ID_SIZE];
    struct device_key device;
    uint64_t items, power_mw;
};

/** Load costs from @folder; NULL: store nothing. 0 or -errno; costs_finish() in any case. */
MUST_CHECK int costs_init(struct agent *agent, const char *folder);
/** Stop answering clients, before the loop is closed. Blocks on the disk. */
void costs_stop(struct agent *agent);
/** Write what is not written yet and free everything. Blocks on the disk. After costs_stop(). */
void costs_finish(struct agent *agent);
/** Start a thread that writes new costs, every few seconds. Call about once a second. */
void costs_tick(struct agent *agent);
/** Tell a program that chooses devices by energy the power of its kernels. */
void costs_look(struct agent *agent, struct program *program);
/**
 * Peak device memory of @uid's programs called @name in earlier runs; 0: not known. A run with a
 * lower peak lowers the value by a quarter of the difference.
 */
uint64_t costs_peak(struct agent *agent, uid_t uid, const char *name);
/** Record that such a program ended with a peak of @bytes. */
void costs_note_peak(struct agent *agent, uid_t uid, const char *name, uint64_t bytes);
/** Free the costs kept for one program. */
void costs_forget(struct program *program);

/** Handle a program's MSG_COSTS. Where it has an energy objective it is told the power of new
 * kernels soon, and of all again every few seconds. */
void costs_handle(struct peer *peer, struct message *message);
/** Handle a client's MSG_PROFILE or MSG_IMPORT. The answer is sent later. */
void profile_handle(struct peer *client, struct message *message);
void import_handle(struct peer *client, struct message *message);
/**
 * Learn a kernel's power: @device drew @above_mw above idle during the last @interval_ns. This is
 * attributed to a kernel only if @alone was the only program there, and launches of one kernel and
 * size took almost all of this interval and of the one before.
 *
 * @alone  NULL: no or several programs were there, or the device's idle power is not known.
 */
void costs_power(struct agent *agent, uint32_t device, const struct program *alone,
                 uint64_t above_mw, uint64_t interval_ns);
/** Thousandths of recent time (2 s or more) for which @program's launches ran on @device. */
uint32_t costs_share(const struct agent *agent, const struct program *program, uint32_t device);
/** Discard answers for @client. */
void costs_client_closed(struct peer *client);

/**
 * Compare, for each device of the ledger, the speed of @program's recent work with that on @device.
 * NULL: not known. Borrowed until the next call for this program.
 */
const struct policy_measured *costs_measured(struct agent *agent, struct program *program,
                                             uint32_t device);

#endif
