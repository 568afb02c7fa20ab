#ifndef RESEAT_AGENT_DAEMON_GOVERN_GOVERN_PRIV_H
#define RESEAT_AGENT_DAEMON_GOVERN_GOVERN_PRIV_H

#include "agent/daemon/devices/history.h"
#include "agent/daemon/govern/govern.h"
#include "agent/daemon/govern/requests.h"
#include "agent/daemon/programs/registry.h"
#include "policy/decide.h"
#include "policy/settings.h"

/** A thread of a program that is blocked until there is room. */
struct need {
    struct need *next; /**< In the order in which they came. */
    struct program *program;
    uint32_t seat;
    uint64_t id;
    uint64_t total;         /**< Bytes that it must be granted in all. */
    uint64_t least, wanted; /**< As MSG_NEED says. */
    bool owns;              /**< It needs them for what it has already. */
    bool failed;            /**< The driver had no more, whatever was granted. */
    uint64_t ticket;
    uint64_t since_ms;
};

/** The virtual devices of a program that are on one device, or one that is on none. */
struct group {
    struct program *program;
    uint32_t seat;  /**< The first. */
    unsigned seats; /**< All, as bits. */
};

/** The world as it was last told, with whose each of its programs is. */
struct world {
    struct policy_world policy;
    struct policy_device *devices;
    struct policy_program *programs;
    struct group *groups;
    uint32_t *queue;
    uint64_t *barred;             /**< Of each program, as many words as there are devices for. */
    struct reseat_limits *offers; /**< Of each device. */
};

/** A client that follows a drain or a rebalance. */
struct follower {
    struct follower *next;
    struct peer *client;
    bool drains;     /**< Else it balances. */
    uint32_t device; /**< That drains. */
    unsigned done, failed;
    uint64_t quiet_ms; /**< Since when there is nothing to be seen. */
};

/** A program that ended, and what it needed. */
#define ENDED_MAX 32
struct ended {
    char id[32], name[64], device[32];
    uint64_t wanted_peak, held_peak, granted_peak, own, waits, waited_ms;
};

#define GOVERN_MOVES_MAX 1024

struct resume;

struct governor {
    struct ledger ledger;
    struct resume *resumes;
    struct history *histories; /**< Of the ledger's devices. */
    uint32_t history_count;
    struct need *needs;
    uint64_t tickets;
    uint64_t events;         /**< Announcements and wishes, to tell which was first. */
    uint64_t await_until_ms; /**< From then on programs of an agent before are not waited for. */
    uint64_t moved_ms[GOVERN_MOVES_MAX]; /**< When a program was last moved by policy. */
    unsigned moved;
    struct world world;
    struct follower *followers;
    struct ended ended[ENDED_MAX];
    unsigned ended_count;
    char state_path[PATH_MAX];
    bool dirty, running, automatic;
    uint64_t ticked_ms;
};

/* govern_world.c */
MUST_CHECK int world_build(struct agent *agent);
void world_finish(struct world *world);
/** The program of the world that @seat of @program is in, or POLICY_NONE. */
uint32_t world_find(const struct world *world, const struct program *program, uint32_t seat);

/* govern_needs.c */
/** MSG_NEED. */
void need_take(struct agent *agent, struct program *program, const msgpack_object *message);
/** The oldest of those of @program on those seats (as bits), or NULL. */
struct need *need_of(const struct governor *governor, const struct program *program,
                     unsigned seats);
void need_drop(struct governor *governor, struct need *need);
/** All of @program, unanswered. */
void needs_drop(struct governor *governor, const struct program *program);
/** Tell the program how its call goes on (WAY_...), and forget it. */
void need_answer(struct agent *agent, struct need *need, const char *way, const char *reason);
/** Answer what @program waits for on those seats. */
void needs_answer(struct agent *agent, const struct program *program, unsigned seats,
                  const char *way, const char *reason);
/* govern_steps.c */
/** Do one step of the world as it is; false when nothing came of it. */
bool step_do(struct agent *agent, const struct policy_step *step);
/** Have those who do not use what they were granted return it, where @program needs it. */
bool step_trim(struct agent *agent, uint32_t program);
/** MSG_GRANT, and so much more in its account. */
void step_grant(struct agent *agent, struct program *program, uint32_t seat, uint64_t bytes);
/** Have one that has more than its quota give back what is too much. False: there is none. */
bool step_quota(struct agent *agent);
/** Its step failed: leave it alone for a while. */
void step_rest(struct agent *agent, struct program *program);
void step_bar(struct agent *agent, struct program *program, uint32_t device,
              enum program_bar_cause cause, const char *reason);
/** Whether that still keeps @program off the device. */
bool step_barred(const struct agent *agent, const struct program *program,
                 const struct program_bar *bar);
/** False where a device has less than @program asked for at least, with the reason: 256 bytes. */
bool govern_device_suffices(const struct agent *agent, const struct program *program,
                            uint32_t device, char *ret_reason, size_t size);
/** Tell programs where there is more of a device than @before (bytes, as ledger_lasting()). */
void govern_more(const struct agent *agent, const struct ledger_device *device, uint64_t before);
unsigned policy_moves_since(const uint64_t *times, unsigned count, unsigned size, uint64_t since);

/* govern_watch.c */
void follow_tick(struct agent *agent);
/** A move by policy began (NULL result) or ended. */
void follow_step(struct agent *agent, const struct request *request, const char *result,
                 const char *reason);
void follow_handle(struct peer *client, const msgpack_object *message);
/** @client follows a drain of @device, or (@drains false) a rebalance; told of the end of it. */
void follow_begin(struct peer *client, bool drains, uint32_t device);
/** Who follows the drain of @device is told that there is none any more. */
void follow_undone(struct agent *agent, uint32_t device);

/* govern_drain.c */
void drain_handle(struct peer *client, const msgpack_object *message);
/** Drains that were announced and whose time has come. */
void drain_tick(struct agent *agent);
/** Tell a program of what was announced before it could be told. */
void drain_notify(const struct agent *agent, const struct program *program);
/** True where @program said, since the drain was announced, that now is a good time to leave. */
bool drain_leaves(const struct agent *agent, const struct program *program, uint32_t device);
/** Nanoseconds until a drain that was announced; 0: there is none. */
uint64_t drain_in_ns(const struct agent *agent, const struct ledger_device *device);

/* govern_resume.c */
/** As time passes, and things change. */
void resume_tick(struct agent *agent);
/** @program ended. */
void resume_forget(struct agent *agent, const struct program *program);
void resume_finish(struct governor *governor);

/* govern_limits.c */
int limits_load(struct agent *agent);
void limits_handle(struct peer *client, const msgpack_object *message);
int limits_save(const struct agent *agent);
/** Set what @program may have, of all devices together, and tell it so with @text. */
void limits_set_quota(struct agent *agent, struct program *program, uint64_t bytes,
                      const char *text);

/* govern_tell.c */
void tell_explain(struct peer *client, const msgpack_object *message);
void tell_use(struct peer *client, const msgpack_object *message);

/* govern_settings.c */
/** What the configuration says of a device, over what it says of itself. */
void settings_device(const struct agent *agent, const struct inventory_entry *entry,
                     struct policy_device *device);
/** Bytes that the configuration leaves of a device. */
uint64_t settings_memory(const struct agent *agent, const struct inventory_entry *entry);

#endif
