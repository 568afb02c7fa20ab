#include "policy/decide.h"

#include "policy/policy_priv.h"

#define ANSWER_PART                                                                                \
    32 /* An answer to one in the queue costs that part of all devices at least.                   \
        */

/* The step if nothing is free for it. */
static bool decide_would_only_wait(const struct view *view, const struct policy_program *p)
{
    return p->state == POLICY_SUSPENDED ||
           (p->state == POLICY_WAITING && ways_of(view, p) & POLICY_WAIT);
}

/* For a program on no device that no open device could hold. It is not refused. */
static bool decide_goes_on_queuing(struct view *view, uint32_t program)
{
    const struct policy_program *p = program_at(view, program);

    return !p->need || (!is_overdue(view, p) &&
                        could_hold(view, program, bytes_at_least(view, p), could_in_time(p)));
}

/* Tells without looking at each device whether a program behind the head has to wait. */
static bool decide_surely_waits(struct view *view, uint32_t program)
{
    const struct policy_program *p = program_at(view, program);
    uint64_t least = bytes_at_least(view, p);
    bool leaves = p->device == POLICY_NONE || ways_of(view, p) & POLICY_UPGRADE;

    if (p->busy_moving || p->state == POLICY_STOPPED)
        return true;
    /* No device could hold the programs in front of the head. */
    if (p->state == POLICY_SUSPENDED &&
        (!waits_behind_head(view, program) || !could_hold(view, program, least, 0)))
        return decide_goes_on_queuing(view, program);
    if ((leaves && least <= view->free_max) || least > view->memory_max || least > p->quota ||
        !decide_would_only_wait(view, p))
        return false;
    if (p->device != POLICY_NONE &&
        bytes_more(view, program, p->device, least) <= room_for(view, program, p->device))
        return false;
    return !is_overdue(view, p) && !could_make_room(view, program);
}

static bool decide_acts(const struct view *view, const struct policy_step *step)
{
    if (step->action == POLICY_DO_REFUSE)
        return program_at(view, step->program)->need > 0;
    return step->action != POLICY_NOTHING && step->action != POLICY_DO_WAIT;
}

/* The answer to @program, unless it is to wait on. */
static bool decide_answer_acts(struct view *view, uint32_t program, struct policy_step *ret_step)
{
    view->quiet = true;
    answer(view, program, ret_step);
    view->quiet = false;
    return decide_acts(view, ret_step);
}

/* Refuse or suspend programs whose wait cannot succeed, so that they hold no memory. */
static bool decide_end_vain_waits(struct view *view, struct policy_step *ret_step)
{
    const struct policy_world *world = view->world;

    for (uint32_t i = 0; i < world->queue_count; i++) {
        const struct policy_program *p = program_at(view, world->queue[i]);

        if (p->state == POLICY_WAITING && !p->busy_moving &&
            !could_hold(view, world->queue[i], bytes_at_least(view, p), 0) &&
            decide_answer_acts(view, world->queue[i], ret_step))
            return true;
    }
    return false;
}

/*
 * Serve the head first, then programs that fit beside the memory reserved for it. While the head
 * stays the same, no program behind it gets that memory, so small programs cannot starve it.
 *
 * Proof that this never stops with everyone waiting. Let the head H be the first program that some
 * device could hold. Programs that no device could hold are refused or suspended first, so they
 * hold nothing. All other waiting programs are behind H, so find_room counts all they hold, and
 * they are suspended as H needs it. Pinned programs never wait. So if no program runs, a device
 * that could hold H is emptied and H goes on. If some run, they end, release memory or ask for
 * more, and the ones that ask are in the queue. Tickets of one rank are served in order, and each
 * becomes the head in its turn, so every program goes on.
 */
static bool decide_serve_queue(struct view *view, struct policy_step *ret_step)
{
    const struct policy_world *world = view->world;

    if (decide_end_vain_waits(view, ret_step))
        return true;
    if (view->head != POLICY_NONE && decide_answer_acts(view, view->head, ret_step))
        return true;
    for (uint32_t i = 0; i < world->queue_count && view->visits; i++) {
        uint32_t p = world->queue[i];

        if (p == view->head || decide_surely_waits(view, p))
            continue;
        spend_visits(view, world->device_count / ANSWER_PART);
        if (decide_answer_acts(view, p, ret_step))
            return true;
    }
    return false;
}

static void decide_nothing(struct policy_step *ret_step)
{
    step_set(ret_step, POLICY_NOTHING, POLICY_NONE, POLICY_NONE, 0);
}

void policy_answer(const struct policy_world *world, const struct policy_settings *settings,
                   uint32_t program, struct policy_step *ret_step)
{
    struct view view;

    view_init(&view, world, settings);
    answer(&view, program, ret_step);
}

void policy_next(const struct policy_world *world, const struct policy_settings *settings,
                 struct policy_step *ret_step)
{
    struct view view;

    view_init(&view, world, settings);
    if (operator_next_drain(&view, ret_step) || operator_next_limit(&view, ret_step) ||
        decide_serve_queue(&view, ret_step) || operator_next_unfit(&view, ret_step) ||
        automatic_next_regrow(&view, ret_step))
        return;
    if (settings->automatic && world->recent_moves < settings->budget &&
        (automatic_next_up(&view, true, ret_step) || automatic_next_prefer(&view, true, ret_step) ||
         automatic_next_down(&view, true, ret_step)))
        return;
    if (settings->prewarm && (next_ready_queued(&view, ret_step) ||
                              (settings->automatic && automatic_next_ready(&view, ret_step))))
        return;
    decide_nothing(ret_step);
}

void policy_rebalance(const struct policy_world *world, const struct policy_settings *settings,
                      struct policy_step *ret_step)
{
    struct view view;

    view_init(&view, world, settings);
    view.asked = true;
    if (!automatic_next_up(&view, false, ret_step) &&
        !automatic_next_prefer(&view, false, ret_step) &&
        !automatic_next_down(&view, false, ret_step))
        decide_nothing(ret_step);
}
