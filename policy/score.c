#include "policy/decide_priv.h"

#define WHOLE 1000

bool program_light(const struct view *view, const struct policy_program *program)
{
    return program->device != POLICY_NONE && program->busy < view->settings->busy_low;
}

uint64_t program_load_on(const struct view *view, const struct policy_program *program,
                         uint32_t device)
{
    uint64_t here, there;

    if (program->device == POLICY_NONE)
        return program->busy ? program->busy : WHOLE;
    here = device_at(view, program->device)->speed;
    there = most_of(device_at(view, device)->speed, 1);
    return program->busy * here / there;
}

/*
 * Speed as far as the program can use it, and what is there of what it said that it would make use
 * of (all of it counts as much as the speed of the reference device), less what the device costs.
 * What keeps a device busy spreads over devices, and what does not packs: so memory in use counts
 * against a device or for it.
 */
int64_t score_of(const struct view *view, const struct policy_program *program, uint32_t device,
                 uint64_t bytes)
{
    const struct policy_settings *s = view->settings;
    const struct policy_device *d = device_at(view, device);
    bool light = program_light(view, program);
    uint64_t load = d->busy + program_load_on(view, program, device);
    uint64_t speed = (uint64_t)d->speed * WHOLE / most_of(load, WHOLE);
    double share = d->memory ? (double)(d->reserved + bytes) / (double)d->memory : 1;
    int64_t fill = (int64_t)(share * WHOLE);

    if (light) {
        uint64_t middle = most_of((s->busy_low + s->busy_high) / 2, 1);

        speed = least_of(speed, (uint64_t)device_at(view, program->device)->speed * program->busy /
                                    middle);
    }
    if (program->prefers)
        speed += prefer_part(view, program, device);
    return (int64_t)(s->weight_speed * speed) - (int64_t)s->weight_price * d->price +
           (light ? 1 : -1) * (int64_t)s->weight_fill * fill;
}

uint64_t room_for(struct view *view, uint32_t program, uint32_t device)
{
    uint64_t free = device_free(device_at(view, device));

    if (free && is_kept(view, program, device))
        return free > view->head_bytes ? free - view->head_bytes : 0;
    return free;
}

static void spend(struct view *view)
{
    view->looks -= least_of(view->looks, view->world->device_count);
}

uint32_t pick_fitting(struct view *view, uint32_t program, uint64_t bytes)
{
    const struct policy_program *p = program_at(view, program);
    uint32_t best = POLICY_NONE;
    int64_t best_score = 0;

    if (bytes > view->free_max || bytes > p->quota)
        return POLICY_NONE;
    spend(view);
    for (uint32_t i = 0; i < view->world->device_count; i++) {
        const struct policy_device *d = device_at(view, i);
        int64_t score;

        if (!device_open(d) || i == p->device || device_free(d) < bytes || program_barred(p, i) ||
            room_for(view, program, i) < bytes)
            continue;
        score = score_of(view, p, i, bytes);
        if (best != POLICY_NONE) {
            const struct policy_device *b = device_at(view, best);

            if (score < best_score ||
                (score == best_score && (d->residents > b->residents ||
                                         (d->residents == b->residents && d->kind >= b->kind))))
                continue;
        }
        best = i;
        best_score = score;
    }
    return best;
}

uint32_t pick_roomiest(struct view *view, uint32_t program, uint64_t least, uint64_t full)
{
    const struct policy_program *p = program_at(view, program);
    uint32_t best = POLICY_NONE;
    uint64_t best_room = 0;
    int64_t best_score = 0;

    if (least > view->free_max || least > p->quota)
        return POLICY_NONE;
    spend(view);
    for (uint32_t i = 0; i < view->world->device_count; i++) {
        uint64_t room;
        int64_t score;

        if (!device_open(device_at(view, i)) || i == p->device || program_barred(p, i))
            continue;
        room = least_of(room_for(view, program, i), full);
        if (room < least)
            continue;
        score = score_of(view, p, i, room);
        if (best == POLICY_NONE || room > best_room || (room == best_room && score > best_score)) {
            best = i;
            best_room = room;
            best_score = score;
        }
    }
    return best;
}
