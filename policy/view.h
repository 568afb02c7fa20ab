#ifndef RESEAT_POLICY_VIEW_H
#define RESEAT_POLICY_VIEW_H

#include "policy/decide.h"
#include "policy/visits.h"

/*
 * A world as one decision sees it: who goes before whom, who is first in the queue, what a program
 * needs, and which devices could hold that. Lives on the stack of one decision; allocates nothing.
 */

/** Bytes that programs of one rank could have on a device at most, in addition to what they have.
 */
struct policy_reach {
    bool known;
    int64_t rank;
    uint64_t most; /* On any device that takes programs. */
};

/** Bytes of devices, as one asks for them of all at once. */
enum policy_measure {
    POLICY_FREE,   /**< Free, of those that take programs. */
    POLICY_MEMORY, /**< In use or not, of those that take programs. */
    POLICY_CLOSED, /**< In use or not, of all. */
    POLICY_LIFTED, /**< As if nobody had limited a device, of all. */
    POLICY_MEASURES
};

/** So many devices are sorted by their bytes; those behind them are looked at one by one. */
#define POLICY_SORTED 1024

struct view {
    const struct policy_world *world;
    const struct policy_settings *settings;
    struct policy_settings near; /* Those by which a little less has to speak for a move. */
    unsigned ways;               /* Of settings.order. */
    uint64_t memory_max;         /* Of the largest device that takes programs. */
    uint64_t free_max;           /* Of the one with the most room. */
    uint32_t open;               /* Devices that take programs. */
    uint32_t placed;             /* Programs on devices. */
    bool any_gives;              /* Some of them wait, or are about to leave. */
    int64_t lowest_rank;         /* Of those of them that could be displaced. */
    uint32_t head; /* First in the queue of those that some device could hold, or NONE. */
    bool kept;     /* The two below are known: see room_for(). */
    uint32_t head_device;
    uint64_t head_bytes; /* Kept on head_device for it: what is free there, and more if need be. */
    struct policy_reach reach[2]; /* By the rank's last bit: see could_make_room(). */
    /* Visits of devices, and of programs there, that are left to be spent on programs behind the
     * head of the queue and on moves that nobody asked for: what bounds a decision where everything
     * waits. */
    uint64_t visits;
    uint32_t reader; /* Whose owner reads what is said; NONE: that of whom a step concerns. */
    bool asked;      /* Somebody asked for the moves: programs may go back where they were. */
    bool quiet;      /* Why somebody goes on waiting does not matter: words take long. */
    /* Devices as bits: in row 0 all, in row n those with 2^(n-1) bytes or more. */
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

/** The name of @program, for the owner of @concerned, or of who reads it instead. */
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

static inline bool device_open(const struct policy_device *device)
{
    return !device->closed && !device->drains;
}

static inline bool program_barred(const struct policy_program *program, uint32_t device)
{
    return program->barred && program->barred[device / 64] >> (device % 64) & 1;
}

/** Policy had it leave @device, and does not move it back yet. */
static inline bool program_stays_away(const struct view *view, const struct policy_program *program,
                                      uint32_t device)
{
    return program->visits && !view->asked &&
           visits_bar_s(program->visits, device, view->settings->return_s, view->world->now_s);
}

/** All that it has, and what its call waits for. */
static inline uint64_t program_full(const struct policy_program *program)
{
    return most_of(program->wanted, program->need);
}

/** What most devices lack: it is another one, takes programs, and has all of it free. */
static inline bool has_space(const struct view *view, const struct policy_program *program,
                             uint32_t device)
{
    const struct policy_device *d = device_at(view, device);

    return device_free(d) >= program_full(program) && device_open(d) && device != program->device;
}

static inline bool program_queues(const struct policy_program *program)
{
    return program->state == POLICY_WAITING || program->state == POLICY_SUSPENDED;
}

static inline unsigned ways_of(const struct view *view, const struct policy_program *program)
{
    return program->pinned ? 0 : view->ways & program->ways;
}

/** Of one priority, what is preemptible goes last: the others would displace it at once. */
static inline int64_t rank_of(const struct policy_program *program)
{
    return 2 * (int64_t)program->priority + !program->preemptible;
}

/** With what waiting has earned it. */
static inline int64_t rank_waited(const struct view *view, const struct policy_program *program)
{
    uint64_t age_s = view->settings->age_s;

    /* Most have not waited for so long, and a division is slow. */
    if (!age_s || program->waited_s < age_s)
        return rank_of(program);
    return rank_of(program) + (int64_t)least_of(program->waited_s / age_s, INT32_MAX) * 2;
}

/** Whether one of @rank, who waits, may displace @victim. Waiting brings nobody forward against
 * those that run, or all would take turns; but whom it has brought forward has its stay before a
 * higher priority takes the place back. */
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

/** Whether any device but @except that @program may use has @bytes. */
bool device_has(const struct view *view, enum policy_measure measure,
                const struct policy_program *program, uint64_t bytes, uint32_t except);

enum could_flag {
    COULD_CLOSED = 1 << 0, /**< Counting devices that take no program just now. */
    COULD_LEAVE = 1 << 1,  /**< Counting those that it reaches by being suspended. */
    COULD_LIFTED = 1 << 2, /**< These too, and as if nobody had limited a device or the program. */
};
/** Whether some device that @program may use has @bytes at all, in use or not. */
bool could_hold(const struct view *view, uint32_t program, uint64_t bytes, unsigned flags);
/** Whether what @program waits for can come to be without anybody making it so but operators, who
 * close devices and limit them: then it is not refused, unless it has that said of new memory. */
static inline unsigned could_in_time(const struct policy_program *program)
{
    bool waits = program->owns || program->ways & (POLICY_WAIT | POLICY_SUSPEND);
    return COULD_CLOSED | (waits ? COULD_LIFTED : 0u);
}

/** Whether it would go to another device that has room: one that waits before it moves does not. */
bool would_leave(const struct view *view, const struct policy_program *program);
/** Whether it goes on with a part before it waits, or since waiting would be in vain. */
bool spills_first(const struct view *view, uint32_t program);
/** Of @bytes, those that it would have to be granted on @device in addition. */
uint64_t bytes_more(const struct view *view, uint32_t program, uint32_t device, uint64_t bytes);
/** The least that it would go on with. */
uint64_t bytes_at_least(const struct view *view, const struct policy_program *program);

#endif
