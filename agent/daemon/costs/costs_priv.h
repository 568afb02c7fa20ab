#ifndef RESEAT_AGENT_DAEMON_COSTS_COSTS_PRIV_H
#define RESEAT_AGENT_DAEMON_COSTS_COSTS_PRIV_H

/* If memory runs out, uthash does not add the element and leaves its hh.tbl NULL. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "agent/daemon/costs/costs.h"
#include "agent/daemon/costs/store.h"
#include "agent/daemon/programs/registry.h"

/* What costs.c (the table), launches.c (programs) and profile.c (clients) share. */

#define USES_MOST 32 /* kernels remembered for one program */
#define INTERVALS                                                                                  \
    8 /* devices for which a program's launches are attributed to meters, or added up */

/* Costs of one kernel on one device, for one user. */
struct cost_entry {
    struct cost_entry *next; /* of the same kernel, on another device */
    struct device_key device;
    bool dirty; /* not written to disk yet */
    struct costs costs;
};

struct cost_kernel {
    struct cost_kernel_key {
        uid_t uid;
        char id[COST_ID_SIZE];
    } key; /* padding is zero: the key is hashed as bytes */
    char name[COST_NAME_SIZE];
    int64_t used_s;
    struct cost_entry *entries;
    UT_hash_handle hh;
};

/* Peak device memory of one user's programs of one name. */
struct cost_peak {
    struct cost_peak_key {
        uid_t uid;
        char name[COST_NAME_SIZE];
    } key; /* padding is zero: the key is hashed as bytes */
    bool dirty;
    int64_t used_s;
    uint64_t bytes;
    UT_hash_handle hh;
};

/* All costs in memory. */
struct cost_table {
    struct cost_store *store;
    struct cost_kernel *kernels; /* uthash */
    struct cost_peak *peaks;     /* uthash */
    size_t count;                /* of entries */
    size_t dirty;                /* number of dirty entries and peaks */
    uint64_t write_ms;           /* uv_now() of the next write */
    struct cost_job job;         /* belongs to the job's thread while `busy` */
    bool busy;
    uv_async_t ended;           /* signalled by the thread when the job has ended */
    struct cost_query *waiting; /* queries for the next job */
};

/* Recent launches of one kernel by one program on one device of the ledger. */
struct kernel_use {
    char id[COST_ID_SIZE];
    uint32_t device;
    uint64_t items;   /* of the latest launch */
    uint64_t busy_ns; /* halved every FADE_MS */
    uint64_t at_ms;
};

/* Launches on one device that a program reported during one interval of its meter. */
struct cost_interval {
    char id[COST_ID_SIZE];
    uint64_t items, busy_ns; /* busy_ns 0: no launches */
    bool mixed;              /* launches differed in kernel or size */
};

/* The time for which a program's measured launches ran on one device. */
struct cost_ran {
    uint32_t device;       /* of the ledger */
    uint32_t share;        /* thousandths of the span of time before `since_ms` */
    uint64_t ns, since_ms; /* reported since then */
};

struct program_costs {
    struct cost_ran ran[INTERVALS];
    uint32_t ran_count;
    struct cost_intervals {
        uint32_t device;                /* of the ledger */
        struct cost_interval now, last; /* the current one and the one before; none: free */
    } intervals[INTERVALS];
    struct kernel_use uses[USES_MOST];
    uint32_t count;
    struct policy_measured *measured; /* latest answer to the policy, indexed as the ledger */
    uint32_t measured_count, measured_on;
    uint64_t measured_ms;
    uint64_t second; /* the second of uv_now() that `samples` counts */
    uint32_t samples;
    uint32_t told;    /* kernels in `uses` when the program was told their power last */
    uint64_t tell_ms; /* when it is told again */
};

/* NULL: it is not in memory. */
struct cost_kernel *costs_find(const struct cost_table *table, uid_t uid, const char *id);
/* @kernel may be NULL. */
struct cost_entry *costs_entry_on(const struct cost_kernel *kernel,
                                  const struct device_key *device);
/* Get a kernel's entry on a device and mark it dirty. NULL: no room or memory. */
struct cost_entry *costs_change(struct cost_table *table, uid_t uid, const char *id,
                                const char *name, const struct device_key *device);
/* Start a job that writes dirty entries and answers queries; does nothing while one is running. */
void costs_start(struct agent *agent);
/* The device of the ledger, or LEDGER_NONE. */
uint32_t costs_device(const struct agent *agent, const struct device_key *key);
/* Answer a query; @result: of writing the rows before it. */
void profile_answer(const struct agent *agent, const struct cost_query *query, int result);

#endif
