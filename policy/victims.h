#ifndef RESEAT_POLICY_VICTIMS_H
#define RESEAT_POLICY_VICTIMS_H

#include "policy/view.h"

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

#endif
