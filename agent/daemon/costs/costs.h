#ifndef RESEAT_AGENT_DAEMON_COSTS_COSTS_H
#define RESEAT_AGENT_DAEMON_COSTS_COSTS_H

#include "agent/daemon/agent.h"
#include "policy/decide.h"
#include "state/driver/device_key.h"

/*
 * What launches cost, as programs measure it (state/program/pace.h), learnt for each user, kernel
 * and device (policy/costs.h) and kept on disk (store.h). The programs of one user never teach
 * about another user's: times that lie hurt only their own user. All of it belongs to the agent's
 * thread.
 */

#define COST_ID_SIZE   33 /**< 32 hexadecimal digits. */
#define COST_NAME_SIZE 64

/** What one launch took, as a program reports it. */
struct cost_sample {
    char id[COST_ID_SIZE]; /**< Stands for the kernel, wherever it runs. */
    char name[COST_NAME_SIZE];
    bool has_device;
    struct device_key device;
    uint64_t items, ns; /**< Work-items of the launch, and how long it took. */
    uint64_t busy_ns;   /**< How long all launches took that it stands for. */
};

/** Open what was learnt before, in @folder; NULL: nothing is kept. Returns 0 or -ENOMEM;
 * costs_finish() follows either way. */
MUST_CHECK int costs_init(struct agent *agent, const char *folder);
/** Write what was not written yet; blocks on the disk. */
void costs_finish(struct agent *agent);
/** Write what is new, every few seconds, on a thread. Call about once a second. */
void costs_tick(struct agent *agent);
/**
 * The most device memory that @uid's programs called @name needed in former runs; 0: unknown. A run
 * that needed less lowers it by a quarter of the difference.
 */
uint64_t costs_peak(struct agent *agent, uid_t uid, const char *name);
/** One of them ended, which had needed @bytes at most. */
void costs_note_peak(struct agent *agent, uid_t uid, const char *name, uint64_t bytes);
/** Free what is kept of one program. */
void costs_forget(struct program *program);

/** MSG_COSTS of a program. */
void costs_handle(struct peer *peer, struct message *message);
/** MSG_PROFILE of a client. */
void profile_handle(struct peer *client, struct message *message);

/**
 * How fast the work that @program did last on @device (of the ledger) would go on each device of
 * the ledger. NULL: nothing is known. Borrowed until the next call for this program.
 */
const struct policy_measured *costs_measured(struct agent *agent, struct program *program,
                                             uint32_t device);

#endif
