#ifndef RESEAT_TESTS_AGENT_PUPPET_H
#define RESEAT_TESTS_AGENT_PUPPET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/protocol/protocol.h"
#include "policy/reseat.h"

/*
 * Programs that speak the protocol and do as the test says. Each has a process of its own, which
 * the agent knows by its pid; what is said on its connection is said by the test.
 */

#define MIB           (1ull << 20)
#define PUPPET_COPIED 4096 /* Bytes that each says it copied to get where it is. */
#define PUPPET_WHOLE  20   /* So often it names a kernel: more than are heard. */

/** What `reseat run` would say of it; zero is the default of each. */
struct puppet_kind {
    const char *device; /**< "gpu:one", as POCL_FAKE_DEVICES has it: where it starts. */
    const char *second; /**< Of a second virtual device, or NULL. */
    const char *priority;
    bool preemptible;
    const char *ways; /**< "ws": upgrade, pill (p), wait, suspend by letter; "" none; NULL: all. */
    uint64_t quota;
    const struct reseat_limits *minimum, *preferred; /**< Either: it registered with reseat.h. */
};

/** What it was last told. */
struct puppet_notice {
    char what[32], text[256];
    uint64_t vdev, in_ns, value; /**< UINT64_MAX for the virtual device: none. */
};

struct puppet_vdev {
    char device[160]; /**< "kind:name". */
    bool suspended;
    bool lost;        /**< It says that its device is gone. */
    bool seeks;       /**< And that it waits for another one, where it goes on. */
    bool isolated;    /**< And that its driver was in a process of its own. */
    bool works;       /**< And that it works: only this program cannot go on there. */
    bool loses_again; /**< It loses the next device too, and says so before it reports the move. */
    unsigned losses_before; /**< Losses that it counts beside the one that it says. */
    uint64_t granted, held, wanted, least, spilled;
    const char *source;         /**< "kind:name" of what it left on demand, or NULL. */
    uint64_t source_bytes;      /**< What it has there still. */
    uint64_t fetched, to_fetch; /**< As it says. */
};

struct puppet {
    pid_t pid;
    int process; /**< To its process. */
    int fd;      /**< Its connection; -1: none. */
    struct frame_reader reader;
    char name[32], id[32];
    char start[512]; /**< The key of the device on which it would start. */
    struct puppet_vdev vdevs[2];
    unsigned vdev_count;
    const char *move; /**< What becomes of moves: RESULT_..., or NULL: it does not answer. */
    const char *pinned;
    bool stopped;      /**< As by SIGSTOP: it takes nothing from its connection. */
    bool stubborn;     /**< It gives nothing back. */
    bool lasting;      /**< It says that a move that fails would fail again. */
    bool launches;     /**< What it needs is for what it has already. */
    bool greedy;       /**< It gives back, and says so only when puppet_say() is called. */
    unsigned refusals; /**< Requests that it did not do. */
    unsigned moves, suspends, resumes, shrinks, grants, answers;
    unsigned alive;            /**< How often the agent said that it is there. */
    char way[32], reason[512]; /**< Of the last answer. */
    uint64_t last_grant;       /**< "grant" of the last request. */
    char manner[16];           /**< Of that. */
    unsigned outgrows;         /**< Of the next requests it says that it has `more` by now. */
    uint64_t more;
    uint64_t busy;                     /**< Thousandths. */
    uint64_t from_bytes_s, to_bytes_s; /**< Of each of its virtual devices. */
    uint64_t moved, downtime_ns;       /**< Of each of its virtual devices, as it says. */
    char ready[2048];                  /**< The key of the device that it is ready for, or "". */
    uint64_t behind;                   /**< What it says it built since. */
    const char *whole; /**< A kernel that it says it cannot give in pieces, or NULL. */
    unsigned prewarms, drops;
    /* Under a power cap it always has launches to give, which end at once. */
    bool granted_power;    /**< As it was last told. */
    unsigned power_told;   /**< How often it was told. */
    const char *objective; /**< For which it says that it places launches, or NULL. */
    unsigned powers_told;  /**< How often it was told the power of kernels... */
    uint64_t drawn[2];     /**< ...in mW on its own device, and on gpu1; 0: not known. */
    uint64_t idle_mw;
    bool aware;
    struct reseat_limits minimum, preferred;
    unsigned notices;
    struct puppet_notice notice;
};

/** At the begin of a test: as harness_init(). The policy moves nothing by itself; @devices are as
 * POCL_FAKE_DEVICES has them. */
void puppets_begin(const char *devices);
/** At its end: all puppets are killed, then as harness_finish(). */
void puppets_finish(void);
void puppet_finish_all(void);

/** Register and connect. */
struct puppet *puppet_start(const char *name, const struct puppet_kind *kind);
/** Kill its process and close what it had. NULL is let be. */
void puppet_kill(struct puppet *puppet);
/** Close its connection; its process lives. */
void puppet_hang_up(struct puppet *puppet);
/** Connect again, saying what it has. */
void puppet_connect(struct puppet *puppet);

/** Send its status. */
void puppet_say(struct puppet *puppet);
/** Ask for @bytes more than it was granted, as if an allocation needed them. */
void puppet_need(struct puppet *puppet, unsigned vdev, uint64_t bytes, bool failed);
void puppet_return(struct puppet *puppet, unsigned vdev, uint64_t bytes);
/** Tell the agent what it asks for now. */
void puppet_wish(struct puppet *puppet);
void puppet_send(struct puppet *puppet, struct frame *frame);
/** Report that a launch of kernel @name took @ns on "kind:name", for @items work-items; its id is
 * made from the name. */
void puppet_measured(struct puppet *puppet, const char *name, const char *device, uint64_t items,
                     uint64_t ns);

/** Have all of them do what they are told until @done says so; false after @ms. */
bool puppets_run(bool (*done)(void *data), void *data, unsigned ms);
/** For so long, whatever happens. */
void puppets_for(unsigned ms);
/** Ask for memory until the answer is there, hold it, and say so. False: not answered within @ms.
 */
bool puppet_allocate(struct puppet *puppet, uint64_t bytes, unsigned ms);
/** Until it has had that many answers. */
bool puppet_answered(struct puppet *puppet, unsigned answers, unsigned ms);

/** Until it has had that many notices. */
bool puppet_told(struct puppet *puppet, unsigned notices, unsigned ms);

/** A number of `reseat devices --json` or `reseat ps --json`; UINT64_MAX where there is none. */
uint64_t devices_say(const char *device, const char *field);
uint64_t ps_says(const char *app, const char *field);
/** Until the agent says that, with puppets doing what they are told. False after @ms. */
bool devices_come_to(const char *device, const char *field, uint64_t value, unsigned ms);
bool state_comes_to(const char *app, const char *state, unsigned ms);
/** As harness_run() of `reseat`, with puppets doing what they are told meanwhile. */
struct result *puppets_reseat(const char *first, ...) __attribute__((sentinel));
#define PUPPETS_RESEAT(...) puppets_reseat(__VA_ARGS__, (char *)NULL)
/** `reseat limit` of a device or a program, which succeeds. */
void puppets_limit(const char *what, const char *memory);

#endif
