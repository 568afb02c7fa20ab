#ifndef RESEAT_TESTS_POLICY_POLICY_EXPECT_H
#define RESEAT_TESTS_POLICY_POLICY_EXPECT_H

#include "tests/support/cases.h"

#include "tests/policy/policy_world.h"

/* Asks twice: the same world has the same answer. */
static inline struct policy_step ask(struct world *w, const struct policy_program *p)
{
    struct policy_step step, again;

    memset(&step, 0x5a, sizeof(step));
    memset(&again, 0xa5, sizeof(again));
    policy_answer(&w->world, &w->settings, world_id(w, p), &step);
    policy_answer(&w->world, &w->settings, world_id(w, p), &again);
    cr_expect_eq(step.action, again.action);
    cr_expect_eq(step.program, again.program);
    cr_expect_eq(step.bytes, again.bytes);
    cr_expect_str_eq(step.reason, again.reason);
    return step;
}

/* What it does of itself. */
static inline struct policy_step next(struct world *w)
{
    struct policy_step step;

    policy_next(&w->world, &w->settings, &step);
    return step;
}

/* Returns @step. */
static inline struct policy_step expect_step(struct policy_step step, enum policy_action action,
                                             uint32_t program, uint32_t device, uint64_t mib)
{
    cr_expect_str_eq(policy_action_name(step.action), policy_action_name(action), "%s: %s",
                     policy_action_name(step.action), step.reason);
    if (action == POLICY_NOTHING)
        return step;
    cr_expect_eq(step.program, program, "of %u: %s", step.program, step.reason);
    if (action != POLICY_DO_REFUSE && action != POLICY_DO_WAIT)
        cr_expect_eq(step.device, device, "on %u: %s", step.device, step.reason);
    cr_expect_eq(step.bytes, mib * MIB, "%lu MiB: %s", step.bytes / MIB, step.reason);
    return step;
}

static inline void expect_answer(struct world *w, const struct policy_program *p,
                                 enum policy_action action, uint32_t device, uint64_t mib)
{
    expect_step(ask(w, p), action, world_id(w, p), device, mib);
}

static inline void set_ways(struct world *w, const char *order)
{
    char reason[POLICY_REASON];

    cr_assert_eq(settings_set(&w->settings, settings_find("ways"), order, reason, sizeof(reason)),
                 0);
}

#endif
