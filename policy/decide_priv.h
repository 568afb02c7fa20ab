#ifndef RESEAT_POLICY_DECIDE_PRIV_H
#define RESEAT_POLICY_DECIDE_PRIV_H

#include "policy/decide.h"

#define LIKE_PRINTF(at, first) __attribute__((format(printf, at, first)))

/* Devices that there are tables for; worlds with more are looked through each time. */
#define TABLE_DEVICES 1024
#define TABLE_WORDS   (TABLE_DEVICES / 64)
#define MARKS         16384 /* Programs that marks are kept of; of others it is asked again. */

/* Visits of devices, and of programs there, that one decision may spend on programs behind the head
 * of the queue, or on moves that nobody asked for: what bounds a decision where everything waits.
 */
#define LOOKS_MIN   32768
#define LOOKS_TIMES 8  /* Or so many times all devices, whichever is more. */
#define LOOKS_PART  32 /* An answer costs that part of all devices at least. */

/* Who is on devices. */
struct crowd {
    bool known;
    bool gives;     /* Some wait, or are about to leave. */
    uint32_t count; /* Programs. */
    int64_t lowest; /* Rank of those that could be displaced. */
};

/* Of devices: their memory, or what is free there. */
enum shelf_kind {
    SHELF_MEMORY, /* Of those that take programs. */
    SHELF_ALL,    /* Memory of all. */
    SHELF_ROOM,   /* Free on those that take programs. */
    SHELF_COUNT,
};
#define SHELF_STEP  16
#define SHELF_MARKS (TABLE_DEVICES / SHELF_STEP)

/* Devices in the order of their bytes, the most first. */
struct shelf {
    uint32_t count;
    uint16_t devices[TABLE_DEVICES];
    uint64_t bytes[TABLE_DEVICES];
    uint64_t first[SHELF_MARKS + 1][TABLE_WORDS]; /* One bit a device: the first so many steps. */
    /* Those that were asked for last: many want as much as others do. */
    uint64_t asked_bytes;
    bool asked;
    uint64_t with[TABLE_WORDS];
};

/* What those on a device could be made to give to one that needs room. */
struct offer {
    uint64_t give, come;    /* Bytes: in all, and of those that are about to leave. */
    int64_t lowest, second; /* The two lowest ranks among them, as harm. */
    uint64_t low_give, low_largest, rest_largest; /* Of the lowest rank; of the rest, of one. */
    uint32_t low_count;
};

/* What one decision finds out once, on its stack: a fifth of a MiB. Not initialized: the view says
 * what of it is known. */
struct tables {
    struct shelf shelves[SHELF_COUNT];
    struct offer offers[2][TABLE_DEVICES]; /* For others than the head, and for the head. */
    uint64_t unheld[MARKS / 64];           /* Marks: no device could hold what queues there. */
    uint64_t reach[2][TABLE_DEVICES]; /* Bytes that a rank could have on a device: see reach_of. */
};

/* A world as one decision sees it. */
struct view {
    const struct policy_world *world;
    const struct policy_settings *settings;
    unsigned ways;       /* Of settings.order. */
    uint64_t memory_max; /* Of the largest device that takes programs. */
    uint64_t free_max;   /* Of the one with the most room. */
    uint32_t head;       /* First in the queue of those that some device could hold, or NONE. */
    bool kept;           /* The two below are known: see is_kept. */
    uint32_t head_device;
    uint64_t head_bytes; /* Kept on head_device for it: what is free there, and more if need be. */
    uint64_t looks;      /* Device visits left. */
    struct crowd crowd;  /* Once it was asked for. */
    bool quiet;          /* Why somebody goes on waiting does not matter: words take long. */
    uint32_t open;       /* Devices that take programs. */
    uint32_t asked;      /* The last that is_kept was asked of, or NONE. */
    bool asked_behind;   /* It waits behind the head. */
    unsigned vain;       /* Devices were looked through so often to no end. */
    struct tables *tables;
    bool shelf_known[SHELF_COUNT];
    struct offered {
        uint32_t program; /* Whom the offers are for, or NONE. */
        int64_t rank;
        bool from_waiters; /* And those of who only waits. */
    } offered[2];
    bool reach_known[2]; /* By preemptible. */
    int64_t reach_rank[2];
    uint64_t reach_most[2]; /* On any device. */
};

/* What one device could give to a program, and at whose cost. */
struct room {
    uint32_t device; /* NONE: no device. */
    uint32_t victim; /* To be displaced next; NONE: room is being made, or there already. */
    uint64_t amount; /* Bytes that the victim has to give. */
    bool outranked;  /* The victim runs, or could; it does not only wait behind. */
    /* The harm, compared in this order. */
    int64_t rank; /* Highest of those displaced. */
    uint32_t count;
    uint64_t bytes;
    int64_t score; /* Once it is needed. */
    bool scored;
    uint64_t more;    /* Bytes that are granted there in addition. */
    uint64_t lack;    /* Of them, what victims that are still to be named have to give. */
    uint64_t missing; /* Bytes that nobody there can be made to give; 0: all of it can be had. */
};

/* A search for room. */
struct search {
    struct view *view;
    uint32_t program; /* For whom. */
    int64_t rank, rank_waited;
    bool from_waiters; /* Who waits behind it gives all that it holds. */
    bool leaves;       /* It may go to other devices. */
    bool gives;        /* Somebody might make room for it. */
};

/* score.c: what a device is worth to a program, and whether it fits. */
static inline const struct policy_device *device_at(const struct view *view, uint32_t device)
{
    return &view->world->devices[device];
}

static inline const struct policy_program *program_at(const struct view *view, uint32_t program)
{
    return &view->world->programs[program];
}

/* For loops over the queue, whose programs are anywhere: those that are next but some. */
#define AHEAD 8
static inline void prefetch_queued(const struct view *view, uint32_t at)
{
    const struct policy_program *p;

    if (at + AHEAD >= view->world->queue_count)
        return;
    __builtin_prefetch(program_at(view, view->world->queue[at + AHEAD]));
    p = program_at(view, view->world->queue[at + AHEAD / 2]);
    if (p->barred)
        __builtin_prefetch(p->barred);
}

static inline uint64_t least_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t most_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
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

/* All that it has, and what its call waits for. */
static inline uint64_t program_full(const struct policy_program *program)
{
    return most_of(program->wanted, program->need);
}

/* What most devices lack: it is another one, takes programs, and has all of it free. */
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

/* Of one priority, what is preemptible goes last: the others would displace it at once. */
static inline int64_t rank_of(const struct policy_program *program)
{
    return 2 * (int64_t)program->priority + !program->preemptible;
}

static inline int64_t rank_earned(const struct view *view, const struct policy_program *program)
{
    uint64_t age_s = view->settings->age_s;

    /* Most have not waited for so long, and a division is slow. */
    if (!age_s || program->waited_s < age_s)
        return 0;
    return (int64_t)least_of(program->waited_s / age_s, INT32_MAX) * 2;
}

static inline int64_t rank_waited(const struct view *view, const struct policy_program *program)
{
    return rank_of(program) + rank_earned(view, program);
}

/* rank_waited() less @rank, by its sign alone: without a division, for loops over all programs. */
static inline int rank_waited_less(const struct view *view, const struct policy_program *program,
                                   int64_t rank)
{
    int64_t lack = rank - rank_of(program), steps = (lack + 1) / 2;
    uint64_t age_s = view->settings->age_s;

    if (lack < 0)
        return 1;
    if (!age_s)
        return lack ? -1 : 0;
    if (steps > INT32_MAX || program->waited_s < age_s * (uint64_t)steps)
        return -1;
    if (lack % 2)
        return 1;
    return steps == INT32_MAX || program->waited_s < age_s * (uint64_t)(steps + 1) ? 0 : 1;
}

/* Whether one of @rank, who waits, may displace @victim. Waiting brings nobody forward against
 * those that run, or all would take turns; but whom it has brought forward has its stay before a
 * higher priority takes the place back. */
static inline bool rank_outranks(const struct view *view, int64_t rank,
                                 const struct policy_program *victim)
{
    return rank > rank_of(victim) &&
           (victim->stayed_s >= view->settings->stay_s || rank_waited_less(view, victim, rank) < 0);
}

static inline bool outranks(const struct view *view, const struct policy_program *program,
                            const struct policy_program *victim)
{
    return rank_outranks(view, rank_of(program), victim);
}

/* It does most of its work elsewhere: less busy than settings.busy_low. */
bool program_light(const struct view *view, const struct policy_program *program);
/* Thousandths of @device's time that the program would keep it busy. */
uint64_t program_load_on(const struct view *view, const struct policy_program *program,
                         uint32_t device);
int64_t score_of(const struct view *view, const struct policy_program *program, uint32_t device,
                 uint64_t bytes);
/* Bytes free for @program on a device: what the head of the queue waits for is not. */
uint64_t room_for(struct view *view, uint32_t program, uint32_t device);
/* The best other device with room for @bytes, or POLICY_NONE. */
uint32_t pick_fitting(struct view *view, uint32_t program, uint64_t bytes);
/* The other device with the most room, at least for @least and at most @full; or POLICY_NONE. */
uint32_t pick_roomiest(struct view *view, uint32_t program, uint64_t least, uint64_t full);

/* shelf.c */
/* Whether a device of that kind has @bytes, is not among @barred (may be NULL) and none of @except
 * (or NONE). For worlds of TABLE_DEVICES at most. */
bool shelf_has(struct view *view, enum shelf_kind kind, uint64_t bytes, const uint64_t *barred,
               const uint32_t except[2]);

/* view.c: who goes first, and what is kept for it. */
/* @tables  Anything; to live as long as the view. */
void view_init(struct view *view, struct tables *tables, const struct policy_world *world,
               const struct policy_settings *settings);
bool goes_before(const struct view *view, uint32_t a, uint32_t b);
bool waits_behind_head(const struct view *view, uint32_t program);
/* Whether @device is the one that the head waits for, and @program is behind it. */
bool is_kept(struct view *view, uint32_t program, uint32_t device);
/* That device, or NONE. */
uint32_t kept_from(struct view *view, uint32_t program);
/* Whether some device that @program may use has @bytes at all, in use or not. */
enum could_flag {
    COULD_CLOSED = 1 << 0, /* Counting devices that take no program just now. */
    COULD_LEAVE = 1 << 1,  /* Counting those that it reaches by being suspended. */
    COULD_LIFTED = 1 << 2, /* As if nobody had limited a device or the program. */
};
bool could_hold(struct view *view, uint32_t program, uint64_t bytes, unsigned flags);
/* Whether what @program waits for can come to be without anybody making it so but operators, who
 * close devices and limit them: then it is not refused. */
static inline unsigned could_in_time(const struct policy_program *program)
{
    return COULD_CLOSED | (program->owns ? COULD_LIFTED : 0u);
}
/* As it was seen while the head was looked for: could_hold() says no to the least it needs. */
static inline bool is_unheld(const struct view *view, uint32_t program)
{
    return program < MARKS && view->tables->unheld[program / 64] >> program % 64 & 1;
}
/* Whether it would go to another device that has room: one that waits before it moves does not. */
bool would_leave(const struct view *view, const struct policy_program *program);
/* Whether it goes on with a part before it waits, or since waiting would be in vain. */
bool spills_first(struct view *view, uint32_t program);
/* Of @bytes, those that it would have to be granted on @device in addition. */
uint64_t bytes_more(const struct view *view, uint32_t program, uint32_t device, uint64_t bytes);
/* The least that it would go on with. */
uint64_t bytes_at_least(const struct view *view, const struct policy_program *program);

/* displace.c: room for one at the cost of others. */
struct room find_room(struct view *view, uint32_t program, uint64_t bytes, bool from_waiters);
void displace(struct view *view, uint32_t program, const struct room *room,
              struct policy_step *ret_step);

/* victims.c: who could make room, and what with. */
struct search search_for(struct view *view, uint32_t program, bool from_waiters);
/* Whether there is anybody who might make room for it. */
bool gives_any(const struct search *search);
/* Whether there is anybody whom it might outrank. */
bool could_outrank(struct view *view, uint32_t program);
/* Whether a search for those that it outranks, to have all it needs, might find any. */
bool could_make_room(struct view *view, uint32_t program);
struct offer offer_on(const struct search *search, uint32_t device);
/* More harm than @best for sure, where @lack has to be given. */
bool offer_is_worse(const struct offer *offer, uint64_t lack, const struct room *best);
/* Those on @room's device that give its lack between them: the harm. */
void weigh_victims(const struct search *search, const struct offer *offer, struct room *room);
/* And whom to begin with. */
void name_victim(const struct search *search, struct room *room);

/* shift.c: room for the head of the queue by moving others that are no worse off then. */
/* It is as fast there, or uses so little that it makes no difference, where its device and that one
 * are that busy with it here. */
bool is_no_worse(const struct view *view, const struct policy_program *p, uint32_t device,
                 uint64_t from_busy, uint64_t to_busy);
bool shift_for(struct view *view, uint32_t program, uint64_t bytes, struct policy_step *ret_step);

/* answer.c */
void answer(struct view *view, uint32_t program, struct policy_step *ret_step);

/* operator.c: what operators ask for. False: nothing to do. */
bool next_drain(struct view *view, struct policy_step *ret_step);
bool next_limit(struct view *view, struct policy_step *ret_step);
bool next_unfit(struct view *view, struct policy_step *ret_step);

/* automatic.c: what nobody asks for. */
bool next_regrow(struct view *view, struct policy_step *ret_step);
bool next_up(struct view *view, bool held, struct policy_step *ret_step);
bool next_down(struct view *view, bool held, struct policy_step *ret_step);
/* Whether it may be moved without being asked for; @held: by stay, budget and its operator. */
bool may_move(const struct view *view, const struct policy_program *p, bool held);
/* Whether @device is open to it and has room for all of it. */
bool may_take(struct view *view, uint32_t program, uint32_t device);

/* preference.c: what programs would make use of. But for the first two, of those that said so. */
/* No less of it there than where the program is. */
bool prefer_keeps(const struct view *view, const struct policy_program *program, uint32_t device);
bool next_prefer(struct view *view, bool held, struct policy_step *ret_step);
/* No less of anything there, and more of something, by the gain. */
bool prefer_better(const struct view *view, const struct policy_program *program, uint32_t device);
/* All of it is there. */
bool prefer_met(const struct view *view, const struct policy_program *program, uint32_t device);
/* Thousandths of it, on average, that are there. */
uint32_t prefer_part(const struct view *view, const struct policy_program *program,
                     uint32_t device);
/* Bytes that have to be free there so that it could make use of them. */
uint64_t prefer_room(const struct view *view, const struct policy_program *program,
                     uint32_t device);
/* The best of those that are better, or NONE; @now: that it may go to. */
uint32_t prefer_best(struct view *view, uint32_t program, bool now);
struct prefer_text {
    char text[160];
};
/* What is missing where it is, or all where nothing is: "8 GiB and fp64". */
struct prefer_text prefer_text(const struct view *view, const struct policy_program *program);

/* step.c */
struct size_text {
    char text[24];
};
struct size_text size_text(uint64_t bytes);
void step_set(struct policy_step *ret_step, enum policy_action action, uint32_t program,
              uint32_t device, uint64_t bytes);
void step_say(struct policy_step *step, const char *format, ...) LIKE_PRINTF(2, 3);
/* "gpu0 has 1.2 GiB free of 8 GiB, x264 needs 3 GiB more". */
void step_say_lack(const struct view *view, uint32_t program, struct policy_step *step);

#endif
