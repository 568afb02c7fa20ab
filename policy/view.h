#ifndef RESEAT_POLICY_VIEW_H
#define RESEAT_POLICY_VIEW_H

#include "policy/decide.h"
#include "policy/visits.h"

/*
 * What one decision derives from the world: ranks, the head of the queue, what a program needs, and
 * which devices could hold it. On the stack of one decision; allocates nothing.
 */

/** Upper bound of the bytes that a program of one rank could gain on any open device. */
struct policy_reach {
    bool known;
    int64_t rank;
    uint64_t most;
};

/** What expect_room_ms() said last. */
struct policy_expected {
    uint32_t program; /**< POLICY_NONE: nothing yet. */
    uint64_t bytes, ms;
};

/** Which bytes of which devices device_has() compares. */
enum policy_measure {
    POLICY_FREE,   /**< Free memory of open devices. */
    POLICY_MEMORY, /**< All memory of open devices. */
    POLICY_CLOSED, /**< All memory of all devices. */
    POLICY_LIFTED, /**< All memory of all devices without operators' limits. */
    POLICY_MEASURES
};

/** Devices that are indexed by their bytes; the others are looked at one by one. */
#define POLICY_SORTED 1024

struct view {
    const struct policy_world *world;
    const struct policy_settings *settings;
    struct policy_settings near; /* With half the gain: for prewarming, which costs less. */
    uint64_t memory_max;         /* Of the largest open device. */
    uint64_t free_max;           /* Most free memory of an open device. */
    uint32_t open;               /* Number of open devices. */
    uint32_t placed;             /* Number of programs on devices. */
    bool any_gives;              /* One of them waits or is about to leave. */
    int64_t lowest_rank;         /* Of the programs that could be displaced. */
    uint32_t head; /* First program in the queue that some device could hold, or NONE. */
    bool kept;     /* The next two are computed: see room_for(). */
    uint32_t head_device;
    uint64_t head_bytes; /* Reserved for the head on head_device; may exceed what is free there. */
    struct policy_reach reach[2]; /* By the rank's last bit: see could_make_room(). */
    struct policy_expected expected;
    /* How many more devices and programs may be looked at for programs behind the head and for
     * moves nobody asked for: bounds the time of a decision in which everything waits. */
    uint64_t visits;
    uint32_t reader; /* The program whose owner reads the reasons; NONE: the step's own program. */
    bool asked;      /* An operator asked for the moves: visits bar no device. */
    bool quiet;      /* Leave out the reason for waiting on: text takes time. */
    /* Bit sets of devices. Row 0: all; row n: those with 2^(n-1) bytes or more. */
    uint64_t sorted[POLICY_MEASURES][66][POLICY_SORTED / 64];
};

void view_init(struct view *view, const struct policy_world *world,
               const struct policy_settings *settings);

static inline const struct policy_device *device_at(const struct view *view, uint32_t device)
{
    return &view->world->devices[device];
}

static inline const struct policy_program *program_at(const struct view *view, uint32_t program)
{
    return &view->world->programs[program];
}

/** The name of @program if the owner of @concerned (or of view->reader) may know it. */
static inline const char *name_for(const struct view *view, uint32_t program, uint32_t concerned)
{
    uint32_t reader = view->reader != POLICY_NONE ? view->reader : concerned;
    const struct policy_program *p = program_at(view, program);
    bool may = view->world->for_all || p->owner == program_at(view, reader)->owner;
    return may ? p->name : "another user's program";
}

static inline uint64_t least_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t most_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline void spend_visits(struct view *view, uint64_t visits)
{
    view->visits -= least_of(view->visits, visits);
}

static inline uint64_t device_free(const struct policy_device *device)
{
    return device->reserved < device->memory ? device->memory - device->reserved : 0;
}

static inline bool device_is_open(const struct policy_device *device)
{
    return !device->closed && !device->drains;
}

static inline bool program_barred(const struct policy_program *program, uint32_t device)
{
    return program->barred && program->barred[device / 64] >> (device % 64) & 1;
}

/** The policy moved it off @device too recently to move it back. */
static inline bool program_stays_away(const struct view *view, const struct policy_program *program,
                                      uint32_t device)
{
    return program->visits && !view->asked &&
           visits_bar_s(program->visits, device, view->settings->return_s, view->world->now_s);
}

/** Bytes of all its objects and of its blocked call. */
static inline uint64_t program_full(const struct policy_program *program)
{
    return most_of(program->wanted, program->need);
}

/** @device is another one, open, and has room for all of it. Tested first: most devices fail. */
static inline bool has_space(const struct view *view, const struct policy_program *program,
                             uint32_t device)
{
    const struct policy_device *d = device_at(view, device);

    return device_free(d) >= program_full(program) && device_is_open(d) &&
           device != program->device;
}

static inline bool program_queues(const struct policy_program *program)
{
    return program->state == POLICY_WAITING || program->state == POLICY_SUSPENDED;
}

static inline unsigned ways_of(const struct view *view, const struct policy_program *program)
{
    return program->pinned ? 0 : view->settings->ways & program->ways;
}

/** Within a priority preemptible programs rank lower: the others would displace them at once. */
static inline int64_t rank_of(const struct policy_program *program)
{
    return 2 * (int64_t)program->priority + !program->preemptible;
}

/** The rank raised by the time it has waited (settings.age_s). */
static inline int64_t rank_waited(const struct view *view, const struct policy_program *program)
{
    uint64_t age_s = view->settings->age_s;

    /* Most have not waited for so long, and a division is slow. */
    if (!age_s || program->waited_s < age_s)
        return rank_of(program);
    return rank_of(program) + (int64_t)least_of(program->waited_s / age_s, INT32_MAX) * 2;
}

/** Whether a waiting program of @rank may displace @victim. Time spent waiting does not raise a
 * rank against running programs, or all would take turns. But a program that was placed because it
 * had waited keeps its place for the minimum stay. */
static inline bool rank_outranks(const struct view *view, int64_t rank,
                                 const struct policy_program *victim)
{
    return rank > rank_of(victim) &&
           (victim->stayed_s >= view->settings->stay_s || rank_waited(view, victim) < rank);
}

bool goes_before(const struct view *view, uint32_t a, uint32_t b);
bool waits_behind_head(const struct view *view, uint32_t program);
/** Its call waited for as long as settings.wait_deadline_s allows. */
bool is_overdue(const struct view *view, const struct policy_program *program);

/** Whether a device other than @except that @program may use has @bytes. */
bool device_has(const struct view *view, enum policy_measure measure,
                const struct policy_program *program, uint64_t bytes, uint32_t except);

enum could_flag {
    COULD_CLOSED = 1 << 0, /**< Include closed devices. */
    COULD_LEAVE = 1 << 1,  /**< Include devices it can only reach by being suspended. */
    COULD_LIFTED = 1 << 2, /**< As COULD_CLOSED, and ignore operators' limits and quotas. */
};
/** Whether a device that @program may use has @bytes, free or in use. */
bool could_hold(const struct view *view, uint32_t program, uint64_t bytes, unsigned flags);
/** The flags of could_hold() that say whether waiting can succeed once operators open devices or
 * raise limits: then the program is not refused. Limits count only if it may wait, or if its call
 * needs memory it already has. */
static inline unsigned could_in_time(const struct policy_program *program)
{
    bool waits = program->owns || program->ways & (POLICY_WAIT | POLICY_SUSPEND);
    return COULD_CLOSED | (waits ? COULD_LIFTED : 0u);
}

/** Whether it may move to another device. */
bool would_leave(const struct view *view, const struct policy_program *program);
/** How much its grant on @device would have to grow to reach @bytes. */
uint64_t bytes_more(const struct view *view, uint32_t program, uint32_t device, uint64_t bytes);
/** The smallest grant with which it can go on. */
uint64_t bytes_at_least(const struct view *view, const struct policy_program *program);

#endif
