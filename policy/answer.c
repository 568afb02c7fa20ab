#include "policy/policy_priv.h"

#include <inttypes.h>

/* The answer to one program that waits or is queued. */
struct question {
    struct view *view;
    uint32_t program;
    const struct policy_program *p;
    struct policy_step *step;
    unsigned ways;
    uint64_t full;  /* Bytes of all its objects, on the device or not. */
    uint64_t least; /* The smallest grant with which it can go on. */
};

static void answer_refuse(struct question *q)
{
    step_set(q->step, POLICY_DO_REFUSE, q->program, q->p->device, 0);
}

/* "no other device", counting only devices that it may use. */
static void answer_say_nowhere(struct question *q)
{
    if (q->p->state == POLICY_WAITING && !(q->ways & POLICY_UPGRADE))
        step_say(q->step, "; it does not move");
    else
        step_say(q->step, "; no %sdevice has %s free for it",
                 q->p->device == POLICY_NONE ? "" : "other ", size_text(q->full).text);
}

/* Append why no device has room now. */
static void answer_say_impossible(struct question *q)
{
    const struct policy_program *p = q->p;

    if (q->least > p->quota)
        step_say(q->step, "%s needs %s%s, its quota is %s", p->name, size_text(q->least).text,
                 q->least < q->full ? " at once" : "", size_text(p->quota).text);
    else if (q->least > q->view->memory_max)
        step_say(q->step, "%s needs %s%s, the largest device that takes programs has %s", p->name,
                 size_text(q->least).text, q->least < q->full ? " at once" : "",
                 size_text(q->view->memory_max).text);
    else
        step_say(q->step, "%s needs %s: no device that it may use has that much memory", p->name,
                 size_text(q->least).text);
}

static void answer_refuse_impossible(struct question *q)
{
    answer_refuse(q);
    if (!q->view->quiet || q->p->need)
        answer_say_impossible(q);
}

/* Whether a way that takes @ms is better than to wait. */
static bool answer_takes_less(struct question *q, uint64_t ms)
{
    return ms < expect_wait_ms(q->view, q->program);
}

static void answer_wait_for_room(struct question *q, const struct room *room)
{
    const struct view *view = q->view;

    if (is_overdue(view, q->p)) {
        answer_refuse(q);
        step_say_lack(view, q->program, q->step);
        step_say(q->step, "; it has waited %" PRIu64 " s, the deadline is %" PRIu64 " s",
                 q->p->waited_s, view->settings->wait_deadline_s);
        return;
    }
    step_set(q->step, POLICY_DO_WAIT, q->program, q->p->device, 0);
    if (view->quiet)
        return;
    if (!could_hold(q->view, q->program, q->least, COULD_CLOSED | COULD_LEAVE)) {
        answer_say_impossible(q);
        return;
    }
    step_say_lack(view, q->program, q->step);
    if (room && room->victim != POLICY_NONE)
        step_say(q->step, "; it is expected to wait %" PRIu64 " s, less than it takes to make room",
                 expect_wait_ms(q->view, q->program) / 1000);
    else if (room && room->device != POLICY_NONE && !room->missing)
        step_say(q->step, "; room is being made on %s", device_at(view, room->device)->name);
    else if (waits_behind_head(view, q->program))
        step_say(q->step, "; it waits behind %s", name_for(view, view->head, q->program));
    else if (room && room->device != POLICY_NONE)
        step_say(q->step, "; it waits for %s more on %s", size_text(room->missing).text,
                 device_at(view, room->device)->name);
    else
        step_say(q->step, "; every suitable device is closed to programs now");
}

/* Make others release room, unless a program that runs would lose more than this one by waiting.
 * Returns true if a step was written, which may be to wait for a release under way. */
static bool answer_make_room_as(struct question *q, const struct room *room)
{
    if (room->device == POLICY_NONE || room->missing)
        return false;
    if (room->victim != POLICY_NONE) {
        uint64_t own_ms = q->p->device == room->device ? 0 : program_move_ms(q->view, q->p);

        displace(q->view, q->program, room, q->step);
        return !room->outranked ||
               answer_takes_less(q,
                                 own_ms + expect_displaced_ms(q->view, q->program, room, q->step));
    }
    if (!room->count)
        return false;
    answer_wait_for_room(q, room);
    return true;
}

static bool answer_make_room(struct question *q, uint64_t bytes, bool from_waiters)
{
    struct room room;

    if (bytes > q->p->quota || (!from_waiters && !could_outrank(q->view, q->program)))
        return false;
    room = find_room(q->view, q->program, bytes, from_waiters);
    return answer_make_room_as(q, &room);
}

/* Make room: for the head of the queue by moves that cost nobody anything, then by displacing
 * programs that it outranks. */
static bool answer_have_way_made(struct question *q)
{
    if (q->full > q->p->quota)
        return false;
    return (q->view->head == q->program && answer_takes_less(q, program_move_ms(q->view, q->p)) &&
            shift_for(q->view, q->program, q->full, q->step)) ||
           answer_make_room(q, q->full, false);
}

static bool answer_grant_in_place(struct question *q)
{
    const struct policy_program *p = q->p;
    const struct policy_device *d = device_at(q->view, p->device);
    uint64_t more = p->need > p->granted ? p->need - p->granted : 0;

    if (p->need > p->quota || (d->drains && !p->pinned) ||
        more > room_for(q->view, q->program, p->device))
        return false;
    step_set(q->step, POLICY_GRANT, q->program, p->device, more);
    step_say(q->step, "%s has %s free of %s: %s gets %s more", d->name,
             size_text(device_free(d)).text, size_text(d->memory).text, p->name,
             size_text(more).text);
    return true;
}

static bool answer_upgrade(struct question *q)
{
    uint32_t to =
        q->ways & POLICY_UPGRADE ? pick_fitting(q->view, q->program, q->full) : POLICY_NONE;

    if (to == POLICY_NONE || !answer_takes_less(q, program_move_ms(q->view, q->p)))
        return false;
    step_set(q->step, POLICY_DO_MOVE, q->program, to, q->full);
    step_say_lack(q->view, q->program, q->step);
    step_say(q->step, "; %s fits, it has %s free", device_at(q->view, to)->name,
             size_text(device_free(device_at(q->view, to))).text);
    return true;
}

/* Serve it on its device with what is free there, or on a device with more room. */
static bool answer_spill(struct question *q)
{
    const struct policy_program *p = q->p;
    const struct policy_device *d = device_at(q->view, p->device);
    uint64_t here = least_of(p->granted + room_for(q->view, q->program, p->device),
                             least_of(p->need, p->quota));
    uint32_t to = POLICY_NONE;

    if (!d->drains && here >= q->least) {
        step_set(q->step, POLICY_DO_SPILL, q->program, p->device, here);
    } else {
        if (q->ways & POLICY_UPGRADE)
            to = pick_roomiest(q->view, q->program, q->least, least_of(q->full, p->quota));
        if (to == POLICY_NONE)
            return false;
        step_set(q->step, POLICY_DO_MOVE, q->program, to,
                 least_of(room_for(q->view, q->program, to), least_of(q->full, p->quota)));
    }
    if (p->need > p->quota)
        step_say(q->step, "%s needs %s, its quota is %s", p->name, size_text(p->need).text,
                 size_text(p->quota).text);
    else
        step_say_lack(q->view, q->program, q->step);
    step_say(q->step, "; it spills, with %s of %s on %s", size_text(q->step->bytes).text,
             size_text(q->full).text, device_at(q->view, q->step->device)->name);
    return true;
}

/* Nothing is free for it and it does not spill: take what others can release, or wait. Returns
 * false if waiting for @bytes cannot succeed. */
static bool answer_wait_or_take(struct question *q, uint64_t bytes)
{
    struct room room;

    if (!could_hold(q->view, q->program, bytes, 0))
        return false;
    if (q->view->head != q->program) {
        answer_wait_for_room(q, NULL);
        return true;
    }
    room = find_room(q->view, q->program, bytes, true);
    /* Displace programs for a part of @bytes only if the program takes that part and goes on.
     * Otherwise they would get it back while it waits, and release it again. */
    if (!answer_make_room_as(q, &room) &&
        !(q->least < bytes && q->ways & POLICY_SPILL && answer_make_room(q, q->least, true)))
        answer_wait_for_room(q, &room);
    return true;
}

static void answer_pinned(struct question *q)
{
    if (answer_have_way_made(q) ||
        (q->view->head == q->program && answer_make_room(q, q->full, true)))
        return;
    answer_refuse(q);
    if (q->p->need > q->p->quota)
        step_say(q->step, "%s needs %s, its quota is %s", q->p->name, size_text(q->p->need).text,
                 size_text(q->p->quota).text);
    else
        step_say_lack(q->view, q->program, q->step);
    step_say(q->step, "; it is pinned there and neither spills nor waits");
}

static void answer_suspend_self(struct question *q)
{
    step_set(q->step, POLICY_DO_SUSPEND, q->program, POLICY_NONE, 0);
    if (could_hold(q->view, q->program, q->least, COULD_CLOSED | COULD_LEAVE)) {
        step_say_lack(q->view, q->program, q->step);
        answer_say_nowhere(q);
    } else {
        answer_say_impossible(q);
    }
    step_say(q->step, ": it gives %s back and queues for a device", size_text(q->p->granted).text);
}

/* Only an operator's limit or a closed device is in its way, which is not the program's error. If
 * its call needs memory it already has, suspend it whatever its ways, as lowering the limit would
 * have done. */
static bool answer_is_limited_out(struct question *q)
{
    const struct policy_device *d = device_at(q->view, q->p->device);

    if (could_hold(q->view, q->program, q->least, COULD_CLOSED | COULD_LEAVE))
        return false;
    if (!q->p->owns &&
        (!(q->ways & (POLICY_WAIT | POLICY_SUSPEND)) || q->least > most_of(d->whole, d->memory)))
        return false;
    return could_hold(q->view, q->program, q->least, could_in_time(q->p));
}

/*
 * The ways in the order of whom they slow down: nobody, others, the program itself. Where it may
 * wait, it does not move nor make others leave if that takes more than waiting is expected to take.
 * It spills rather than waits: it goes on meanwhile, and takes back what it spilled.
 */
static void answer_waiting(struct question *q)
{
    if (answer_grant_in_place(q))
        return;
    if (q->p->pinned) {
        answer_pinned(q);
        return;
    }
    if (answer_upgrade(q) || answer_have_way_made(q) ||
        (q->ways & POLICY_SPILL && answer_spill(q)) ||
        (q->ways & POLICY_WAIT &&
         (answer_wait_or_take(q, q->full) || answer_wait_or_take(q, q->least))))
        return;
    if (q->ways & POLICY_SUSPEND &&
        could_hold(q->view, q->program, q->least, COULD_CLOSED | COULD_LEAVE)) {
        answer_suspend_self(q);
        return;
    }
    if (answer_is_limited_out(q)) {
        answer_suspend_self(q);
        return;
    }
    if (!could_hold(q->view, q->program, q->least, COULD_LEAVE)) {
        answer_refuse_impossible(q);
        return;
    }
    answer_refuse(q);
    step_say_lack(q->view, q->program, q->step);
    answer_say_nowhere(q);
    step_say(q->step, ", and it may not wait");
}

static void answer_resume(struct question *q, uint32_t to, uint64_t bytes)
{
    const struct policy_device *d = device_at(q->view, to);

    step_set(q->step, POLICY_DO_RESUME, q->program, to, bytes);
    if (bytes < q->full)
        step_say(q->step, "%s spills, with %s of %s on %s", q->p->name, size_text(bytes).text,
                 size_text(q->full).text, d->name);
    else
        step_say(q->step, "%s has %s free of %s, %s needs %s", d->name,
                 size_text(device_free(d)).text, size_text(d->memory).text, q->p->name,
                 size_text(bytes).text);
}

static void answer_suspended(struct question *q)
{
    uint32_t to = pick_fitting(q->view, q->program, q->full);

    if (to != POLICY_NONE) {
        answer_resume(q, to, q->full);
        return;
    }
    if (answer_have_way_made(q))
        return;
    if (q->ways & POLICY_SPILL) {
        uint64_t most = least_of(q->full, q->p->quota);

        to = pick_roomiest(q->view, q->program, q->least, most);
        if (to != POLICY_NONE) {
            answer_resume(q, to, least_of(room_for(q->view, q->program, to), most));
            return;
        }
    }
    if (answer_wait_or_take(q, q->full) || answer_wait_or_take(q, q->least))
        return;
    if (could_hold(q->view, q->program, q->least, could_in_time(q->p)))
        answer_wait_for_room(q, NULL);
    else
        answer_refuse_impossible(q);
}

void answer(struct view *view, uint32_t program, struct policy_step *ret_step)
{
    const struct policy_program *p = program_at(view, program);
    struct question q = {.view = view,
                         .program = program,
                         .p = p,
                         .step = ret_step,
                         .ways = ways_of(view, p),
                         .full = program_full(p),
                         .least = bytes_at_least(view, p)};

    step_set(ret_step, POLICY_NOTHING, program, p->device, 0);
    if (!program_queues(p)) {
        step_say(ret_step, "%s neither waits nor queues", p->name);
    } else if (p->busy_moving) {
        step_set(ret_step, POLICY_DO_WAIT, program, p->device, 0);
        step_say(ret_step, "%s is being moved", p->name);
    } else if (p->state == POLICY_WAITING) {
        answer_waiting(&q);
    } else {
        answer_suspended(&q);
    }
}
