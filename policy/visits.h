#ifndef RESEAT_POLICY_VISITS_H
#define RESEAT_POLICY_VISITS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The devices a program was on before, and how busy it kept them: a prediction for a device that
 * the program was on need not rest on nominal speeds. And the policy does not undo its own moves
 * soon: not before the move has paid back what it took, and not before a time that doubles with
 * each return. The caller of the policy keeps one history for each program and records its moves.
 * Times are seconds of policy_world.now_s.
 */

#define POLICY_VISITS_MAX 8
/** The time to return doubles at most so often; by then it is years. */
#define POLICY_RETURNS_MAX 20

struct policy_visit {
    uint32_t device;
    uint32_t busy;   /**< Thousandths of its time that the program used before it left. */
    uint64_t left_s; /**< When it left. */
    uint64_t bar_s;  /**< It may not return for so long: until the move away has paid back. */
    bool by_policy;  /**< It left by an upgrade or downgrade. */
};

struct policy_visits {
    struct policy_visit visits[POLICY_VISITS_MAX]; /**< The last visit of each device. */
    uint32_t count;
    uint32_t returns; /**< At most POLICY_RETURNS_MAX: consecutive returns, each as soon as it was
                         allowed. */
    uint32_t settled; /**< Thousandths of its current device's time that it uses; see is_settled. */
    bool is_settled;  /**< It has been there long enough for `settled` to be measured. */
};

/** The visit of @device, or NULL. @visits may be NULL. */
const struct policy_visit *visits_find(const struct policy_visits *visits, uint32_t device);

/** Seconds from @now_s until the policy may move the program back to @device; 0 if it may now.
 * @return_s  settings.return_s. */
uint64_t visits_bar_s(const struct policy_visits *visits, uint32_t device, uint64_t return_s,
                      uint64_t now_s);

/** Record a move from the device of @from to @to. @from->left_s is now, @from->bar_s the step's
 * payback_s. */
void visits_moved(struct policy_visits *visits, const struct policy_visit *from, uint32_t to,
                  uint64_t return_s);

/** Record that it has been on its device for @stayed_s and uses @busy. Call every few seconds. */
void visits_stayed(struct policy_visits *visits, uint32_t busy, uint64_t stayed_s);

/** Thousandths of @device's time that it used on its last visit. False if there was none, or if
 * the program behaves differently now: it uses @busy of its own device. */
bool visits_load(const struct policy_visits *visits, uint32_t device, uint32_t busy,
                 uint32_t *ret_load);

#endif
