#ifndef RESEAT_POLICY_POLICY_PRIV_H
#define RESEAT_POLICY_POLICY_PRIV_H

#include "policy/view.h"

/* What the files of the policy offer each other, a section a file. */

/* ---- step.c ---- */

/*
 * Building a step and the text of its reason.
 */

#define LIKE_PRINTF(at, first) __attribute__((format(printf, at, first)))

struct size_text {
    char text[24];
};
/** "1.5 GiB". */
struct size_text size_text(uint64_t bytes);
/** Set all but the reason, which becomes empty. */
void step_set(struct policy_step *ret_step, enum policy_action action, uint32_t program,
              uint32_t device, uint64_t bytes);
/** Append to the reason; text that does not fit is cut. */
void step_say(struct policy_step *step, const char *format, ...) LIKE_PRINTF(2, 3);
/** "gpu0 has 1.2 GiB free of 8 GiB, x264 needs 3 GiB more". */
void step_say_lack(const struct view *view, uint32_t program, struct policy_step *step);

/* ---- score.c ---- */

/*
 * What a device is worth to a program.
 */

/** It uses less of its device than settings.busy_low. */
bool program_light(const struct view *view, const struct policy_program *program);
/** Most of the program's time was measured on its device and on @device. */
bool program_is_measured(const struct policy_program *program, uint32_t device);
/** How fast the program would run alone on @device, in thousandths of its speed where it is:
 * measured, or else the ratio of the devices' nominal speeds. The program is on a device. */
uint64_t program_speed_on(const struct view *view, const struct policy_program *program,
                          uint32_t device);
/** Thousandths of @device's time that the program would use: seen on its last visit, or else what
 * follows from program_speed_on(). */
uint64_t program_load_on(const struct view *view, const struct policy_program *program,
                         uint32_t device);
/** The same if the nominal speeds are as wrong as they may be, and @device is slower for it. */
uint64_t program_load_at_worst(const struct view *view, const struct policy_program *program,
                               uint32_t device);
/** By which factor, in thousandths, program_speed_on() may be wrong: 1000 where it was measured;
 * elsewhere as wrong as nominal speeds were for the program on the devices where it was. */
uint64_t program_speed_off(const struct view *view, const struct policy_program *program,
                           uint32_t device);
int64_t score_of(const struct view *view, const struct policy_program *program, uint32_t device,
                 uint64_t bytes);
/** Milliseconds that a move of the program takes: as its last one, but no longer than its bytes
 * need where the link of its device was measured; before its first move, what its bytes need. */
uint64_t program_move_ms(const struct view *view, const struct policy_program *program);
/** Milliseconds of work that the program loses on @device before the policy may move it back, if
 * the device is as much slower than its nominal speed as it may be. */
uint64_t program_risk_ms(const struct view *view, const struct policy_program *program,
                         uint32_t device);
/** Seconds after which a move that makes the program's work shorter, or cheaper, by @gain
 * thousandths has made up for @cost_ms; UINT64_MAX: never. */
static inline uint64_t program_payback_s(uint64_t cost_ms, uint64_t gain)
{
    return gain ? cost_ms / gain : UINT64_MAX;
}
/** It is expected to run long enough for that: as long again as it has run. How long a program
 * still runs is unknown, and run times have heavy tails, in which age is the best estimate
 * (Harchol- Balter and Downey, Exploiting Process Lifetime Distributions for Dynamic Load
 * Balancing, 1997). */
static inline bool program_pays_back(const struct view *view, const struct policy_program *program,
                                     uint64_t payback_s)
{
    return payback_s != UINT64_MAX && (view->asked || payback_s <= program->age_s);
}
/** Moving the program to @device does not slow it down. @from_busy, @to_busy: how busy its device
 * and @device are while it is where it is. */
bool is_no_worse(const struct view *view, const struct policy_program *program, uint32_t device,
                 uint64_t from_busy, uint64_t to_busy);

/* ---- preference.c ---- */

/*
 * How well devices match what programs prefer (policy_program.prefers). All but prefer_keeps() need
 * a program that has preferences.
 */

/** @device matches no worse than the program's device. */
bool prefer_keeps(const struct view *view, const struct policy_program *program, uint32_t device);
/** @device has no less of anything preferred, and more of something by settings.gain. */
bool prefer_better(const struct view *view, const struct policy_program *program, uint32_t device);
/** @device has everything preferred. */
bool prefer_met(const struct view *view, const struct policy_program *program, uint32_t device);
/** Average match in thousandths. */
uint32_t prefer_part(const struct view *view, const struct policy_program *program,
                     uint32_t device);
/** Bytes that must be free on @device for the program to use what it prefers. */
uint64_t prefer_room(const struct view *view, const struct policy_program *program,
                     uint32_t device);
struct prefer_text {
    char text[160];
};
/** What its device lacks, or everything preferred if it lacks nothing: "8 GiB and fp64". */
struct prefer_text prefer_text(const struct view *view, const struct policy_program *program);

/* ---- victims.c ---- */

/*
 * Which programs on a device could make room for another one, and how many bytes each.
 */

/** Room that could be made on one device, and the harm it does. */
struct room {
    uint32_t device; /* NONE: no device. */
    uint32_t count;  /* Programs that are displaced, or on their way. */
    uint32_t victim; /* To be displaced next; NONE: room exists or is already being made. */
    uint64_t amount; /* Bytes the victim has to release. */
    bool outranked;  /* The victim is outranked; false: it only waits behind the program. */
    /* The harm, compared in this order. */
    int64_t rank;     /* Highest rank among the displaced. */
    uint64_t cost_ms; /* Their way off the device and back. */
    int64_t score;    /* Valid if `scored`. */
    bool scored;
    uint64_t more;    /* Bytes that are granted in addition. */
    uint64_t missing; /* Bytes that cannot be freed; 0: all can. */
};

/** A search for room. */
struct search {
    struct view *view;
    uint32_t program;  /* The program that needs room. */
    bool from_waiters; /* Programs waiting behind it release all they hold. */
    bool leaves;       /* It may move to other devices. */
    bool gives;        /* Some program might make room for it. */
};

/** Find the programs to displace on @room's device to free @lack bytes; fills in the harm, or
 * `missing`. */
void weigh_victims(const struct search *search, uint64_t lack, struct room *room);
/** For the best room: choose the victim so that nobody is displaced needlessly. */
void spare_victims(const struct search *search, struct room *room);

/** Whether it might outrank any program. */
static inline bool could_outrank(const struct view *view, uint32_t program)
{
    return rank_of(program_at(view, program)) > view->lowest_rank;
}
/** Whether displacing the programs it outranks might give it all it needs. */
bool could_make_room(struct view *view, uint32_t program);

/* ---- find_room.c ---- */

/*
 * Devices with room for a program, and devices where other programs could make room. Memory that is
 * reserved for the head of the queue does not count as free for programs behind it.
 */

/** Free bytes on @device that @program may have. */
uint64_t room_for(struct view *view, uint32_t program, uint32_t device);
/** The device whose memory is reserved for the head, or NONE. There is a head. */
uint32_t device_kept(struct view *view);
/** Whether any device has room for @bytes. For programs that may not stay on their own device. */
bool has_room(struct view *view, uint32_t program, uint64_t bytes);
/** The best other device with room for @bytes, of those with room for the peak of its former runs
 * if there are any; or POLICY_NONE. */
uint32_t pick_fitting(struct view *view, uint32_t program, uint64_t bytes);
/** The other device with the most room, at least @least, counted up to @full; or POLICY_NONE. */
uint32_t pick_roomiest(struct view *view, uint32_t program, uint64_t least, uint64_t full);
/** Whether @program may go to @device and all of it fits there, also at its peak. */
bool may_take(struct view *view, uint32_t program, uint32_t device);
/**
 * The room for @bytes that does the least harm, or with the fewest bytes missing. For a program
 * behind the head, the device that the head waits for is left out.
 */
struct room find_room(struct view *view, uint32_t program, uint64_t bytes, bool from_waiters);

/* ---- expect.c ---- */

/*
 * Predicts how long a program must wait for memory, and what the alternatives cost. A program that
 * has run for a time t is expected to run for t again (see program_pays_back()) and to release its
 * grant at its end. Until then it is expected to grow to the peak of its earlier runs.
 */

/**
 * Milliseconds until @program can have @bytes in total without any program being displaced, either
 * on its own device or, including the move, on another one. Only for devices where they are not
 * free now. UINT64_MAX: the running programs would not release enough.
 */
uint64_t expect_room_ms(struct view *view, uint32_t program, uint64_t bytes);
/** The same for all memory that @program needs; UINT64_MAX if it may not wait. */
uint64_t expect_wait_ms(struct view *view, uint32_t program);
/**
 * Milliseconds lost by the programs displaced to make @room for @program: their moves off the
 * device and back and, if the first @step suspends its program, the time that it is suspended. That
 * time is halved for each step of priority by which @program is above the suspended one, so that
 * the program of higher priority does not wait forever.
 */
uint64_t expect_displaced_ms(struct view *view, uint32_t program, const struct room *room,
                             const struct policy_step *step);

/* ---- shift.c ---- */

/* How room is made: by moves that cost nobody anything, and by displacing a victim. */

/** Make room for @bytes of the head of the queue by moving programs that are no worse off
 * afterwards. Writes the first of the moves. Returns false if there are none. */
bool shift_for(struct view *view, uint32_t head, uint64_t bytes, struct policy_step *ret_step);

/** The step by which @room's victim makes room for @program. */
void displace(struct view *view, uint32_t program, const struct room *room,
              struct policy_step *ret_step);

/* ---- automatic.c ---- */

/*
 * Moves that nobody asked for. Each returns false if there is nothing to do. @held: respect the
 * minimum stay, the budget, and operators' placements.
 */

bool automatic_next_regrow(struct view *view, struct policy_step *ret_step);
bool automatic_next_up(struct view *view, bool held, struct policy_step *ret_step);
bool automatic_next_down(struct view *view, bool held, struct policy_step *ret_step);
bool automatic_next_prefer(struct view *view, bool held, struct policy_step *ret_step);

/** After how many seconds a move has made up for what it takes: by itself, and with the time that
 * the program loses if the device, which it has not tried, is slower than it is said to be. */
struct payback {
    uint64_t own_s, all_s;
};

/** The device to which one of the above would move @program if the move paid back within the time
 * that the program is expected to run, and when it would; or NONE. */
uint32_t automatic_next_unpaid(struct view *view, uint32_t program, struct payback *ret_payback);

/** Prewarm the first in the queue for the device whose memory is kept for it. */
bool next_ready_queued(struct view *view, struct policy_step *ret_step);
/** Prewarm a program for the device to which one of the above would move it but for minimum stay
 * and budget, or soon may. */
bool automatic_next_ready(struct view *view, struct policy_step *ret_step);

/** The best of the devices that match @program's preferences better, or NONE. @now: only devices
 * that it may go to at once. */
uint32_t prefer_best(struct view *view, uint32_t program, bool now);

/* ---- operator.c ---- */

/*
 * Steps that follow from operators' commands. Each returns false if there is nothing to do.
 */

/** Empty devices that drain or are about to be removed. */
bool operator_next_drain(struct view *view, struct policy_step *ret_step);
/** Enforce limits that were lowered. */
bool operator_next_limit(struct view *view, struct policy_step *ret_step);
/** Move programs off devices that they may not use any more. */
bool operator_next_unfit(struct view *view, struct policy_step *ret_step);

/* ---- answer.c ---- */

/** See policy_answer(). */
void answer(struct view *view, uint32_t program, struct policy_step *ret_step);

#endif
