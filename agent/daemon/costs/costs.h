#ifndef RESEAT_AGENT_DAEMON_COSTS_COSTS_H
#define RESEAT_AGENT_DAEMON_COSTS_COSTS_H

#include "agent/daemon/agent.h"
#include "policy/costs.h"
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

/** What is known of launches of one kernel and size on one device, as clients see it. */
struct cost_line {
    char id[COST_ID_SIZE];
    char name[COST_NAME_SIZE];
    bool has_device;
    struct device_key device;
    struct cost_record record;
};

/** Open what was learnt before, in @folder; NULL: nothing is kept. Returns 0 or -errno;
 *  costs_finish() may follow either way. */
MUST_CHECK int costs_init(struct agent *agent, const char *folder);
/** Before the loop is closed: answers no client any more. Blocks on the disk. */
void costs_stop(struct agent *agent);
/** Write what was not written yet; blocks on the disk. After costs_stop(). */
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
/** MSG_PROFILE and MSG_IMPORT of a client; answered later. */
void profile_handle(struct peer *client, struct message *message);
void import_handle(struct peer *client, struct message *message);
/**
 * A meter's interval of @interval_ns has ended, in which @device drew so much more than when it is
 * idle. Learnt is what kernel that was, if @alone ran there, and almost all of this interval and
 * the one before went to launches of one kernel and size.
 *
 * @alone  NULL: several programs were there, or none, or the power is unknown.
 */
void costs_power(struct agent *agent, uint32_t device, const struct program *alone,
                 uint64_t above_mw, uint64_t interval_ns);
/** @client gets no answer any more. */
void costs_client_closed(struct peer *client);

/** What is known of a user's kernel on a device of the ledger; NULL: nothing, or it is on disk
 *  alone: none of the user's programs ran it lately. Borrowed until the loop runs. */
const struct costs *costs_of(const struct agent *agent, uid_t uid, const char *id, uint32_t device);

/**
 * How fast the work that @program did last on @device (of the ledger) would go on each device of
 * the ledger. NULL: nothing is known. Borrowed until the next call for this program.
 */
const struct policy_measured *costs_measured(struct agent *agent, struct program *program,
                                             uint32_t device);

#endif
