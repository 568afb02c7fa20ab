#ifndef RESEAT_POLICY_VISITS_H
#define RESEAT_POLICY_VISITS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * What is remembered of the devices that a program was on. Speeds of devices are nominal: what a
 * program did to a device while it was there says more, and a program that policy moved to and fro
 * is moved back later each time. Whoever feeds the policy keeps one of these for each program and
 * says when it moves; times are seconds of any one clock, that of policy_world.now_s.
 */

#define POLICY_VISITS_MAX 8

struct policy_visit {
    uint32_t device;
    uint32_t busy;   /**< Thousandths of its time that the program kept it busy when it left. */
    uint64_t left_s; /**< When. */
    bool by_policy;  /**< Unasked, and not because it had to: the way back is barred for a while. */
};

struct policy_visits {
    struct policy_visit visits[POLICY_VISITS_MAX]; /**< One a device, the last of each. */
    uint32_t count;
    uint32_t returns; /**< How often in a row policy moved it back as soon as that was allowed. */
    uint32_t settled; /**< Thousandths that it keeps its device busy since it settled there... */
    bool is_settled;  /**< ...if it has. */
};

/** The visit of @device, or NULL. @visits may be NULL. */
const struct policy_visit *visits_find(const struct policy_visits *visits, uint32_t device);

/** Seconds from @now_s until policy may move the program back to @device; 0: now, or it never had
 * it leave there. @return_s  settings.return_s. */
uint64_t visits_bar_s(const struct policy_visits *visits, uint32_t device, uint64_t return_s,
                      uint64_t now_s);

/** It moved from @from, which it kept @busy, to @to. */
void visits_moved(struct policy_visits *visits, uint32_t from, uint32_t to, uint32_t busy,
                  bool by_policy, uint64_t return_s, uint64_t now_s);

/** It has been on its device for @stayed_s and keeps it @busy. To be called every few seconds. */
void visits_stayed(struct policy_visits *visits, uint32_t busy, uint64_t stayed_s);

/** Thousandths that it would keep @device busy if it did there what it did last time; false: that
 * is not known, or it does something else by now, as it keeps its own device @busy. */
bool visits_load(const struct policy_visits *visits, uint32_t device, uint32_t busy,
                 uint32_t *ret_load);

#endif
