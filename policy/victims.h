#ifndef RESEAT_POLICY_VICTIMS_H
#define RESEAT_POLICY_VICTIMS_H

#include "policy/view.h"

/*
 * Who on a device could make room for another program, and what with.
 */

/** What one device could give to a program, and at whose cost. */
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
    uint64_t missing; /* Bytes that nobody there can be made to give; 0: all of it can be had. */
};

/** A search for room. */
struct search {
    struct view *view;
    uint32_t program;  /* For whom. */
    bool from_waiters; /* Who waits behind it gives all that it holds. */
    bool leaves;       /* It may go to other devices. */
    bool gives;        /* Somebody might make room for it. */
};

/** Whom it takes on @room's device to have @lack bytes there, or how many are missing then. */
void weigh_victims(const struct search *search, uint64_t lack, struct room *room);
/** Once that room is the best: spare who need not be displaced first. */
void spare_victims(const struct search *search, struct room *room);

/** Whether there is anybody whom it might outrank. */
static inline bool could_outrank(const struct view *view, uint32_t program)
{
    return rank_of(program_at(view, program)) > view->lowest_rank;
}
/** Whether a search for those that it outranks, to have all it needs, might find any. */
bool could_make_room(struct view *view, uint32_t program);

#endif
