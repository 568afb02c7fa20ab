#include "policy/score.h"

#include "policy/preference.h"

#define WHOLE 1000

bool program_light(const struct view *view, const struct policy_program *program)
{
    return program->device != POLICY_NONE && program->busy < view->settings->busy_low;
}

uint64_t program_load_on(const struct view *view, const struct policy_program *program,
                         uint32_t device)
{
    uint64_t here, there;
    uint32_t load;

    if (program->device == POLICY_NONE)
        return program->busy ? program->busy : WHOLE;
    if (visits_load(program->visits, device, program->busy, &load))
        return load;
    here = device_at(view, program->device)->speed;
    there = most_of(device_at(view, device)->speed, 1);
    return program->busy * here / there;
}

/*
 * Score: the speed that the program can use, plus how well the device matches its preferences (a
 * full match counts like the speed of the reference device), minus the price. Busy programs should
 * spread over devices and light ones should share them: so memory in use lowers the score for busy
 * programs and raises it for light ones.
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

bool is_no_worse(const struct view *view, const struct policy_program *p, uint32_t device,
                 uint64_t from_busy, uint64_t to_busy)
{
    const struct policy_settings *s = view->settings;
    const struct policy_device *from = device_at(view, p->device), *to = device_at(view, device);
    uint64_t busy = program_load_on(view, p, device), load = to_busy + busy;

    if (program_light(view, p) && busy <= (s->busy_low + s->busy_high) / 2 &&
        to_busy + most_of(busy, p->busy) <= s->busy_high)
        return true;
    return to->speed * most_of(from_busy, 1000) >= from->speed * most_of(load, 1000);
}
