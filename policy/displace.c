#include "policy/displace.h"

#include "policy/step.h"

/* The victim moves, or else spills, or else is suspended: in the order of what that takes of its
 * time. A victim that waits releases all it has. */
static void displace_how(struct view *view, const struct room *room, struct policy_step *ret_step)
{
    const struct policy_program *v = program_at(view, room->victim);
    unsigned ways = ways_of(view, v);
    bool enough = v->granted >= v->least && v->granted - v->least >= room->amount;
    uint32_t to = room->outranked && ways & POLICY_UPGRADE
                      ? pick_fitting(view, room->victim, program_full(v))
                      : POLICY_NONE;

    if (to != POLICY_NONE) {
        step_set(ret_step, POLICY_DO_MOVE, room->victim, to, program_full(v));
    } else if (room->outranked && ways & POLICY_SPILL && enough) {
        uint64_t gives = most_of(room->amount, device_at(view, room->device)->step);

        step_set(ret_step, POLICY_DO_SPILL, room->victim, room->device,
                 v->granted - least_of(gives, v->granted - v->least));
    } else if (room->outranked && !(ways & POLICY_SUSPEND)) {
        step_set(ret_step, POLICY_DO_SPILL, room->victim, room->device, v->least);
    } else {
        step_set(ret_step, POLICY_DO_SUSPEND, room->victim, POLICY_NONE, 0);
    }
}

void displace(struct view *view, uint32_t program, const struct room *room,
              struct policy_step *ret_step)
{
    const struct policy_program *p = program_at(view, program), *v;
    const struct policy_device *d = device_at(view, room->device);
    const char *victim = name_for(view, room->victim, room->victim);

    v = program_at(view, room->victim);
    displace_how(view, room, ret_step);
    step_say(ret_step,
             "%s needs %s on %s, which has %s free of %s: ", name_for(view, program, room->victim),
             size_text(most_of(p->need, p->wanted)).text, d->name, size_text(device_free(d)).text,
             size_text(d->memory).text);
    if (ret_step->action == POLICY_DO_MOVE)
        step_say(ret_step, "%s moves to %s", victim, device_at(view, ret_step->device)->name);
    else if (ret_step->action == POLICY_DO_SPILL)
        step_say(ret_step, "%s keeps %s there", victim, size_text(ret_step->bytes).text);
    else
        step_say(ret_step, "%s is suspended", victim);
    if (!room->outranked)
        step_say(ret_step, ", it waits behind");
    else if (v->priority < p->priority)
        step_say(ret_step, ", its priority is %d against %d", v->priority, p->priority);
    else
        step_say(ret_step, ", it is preemptible");
}
