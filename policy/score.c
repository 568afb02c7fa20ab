#include "policy/policy_priv.h"

#define WHOLE 1000
/* Of a program's busy time so much must have been measured for the rest to count as alike. */
#define COVERED 500
/* The least factor by which the speed of a device is taken to be wrong that was guessed from its
 * compute units and clock. */
#define GUESS_OFF 8000
#define OFF_MOST  1000000
/* Loads are compared within these bounds: a full device may lack any amount. */
#define LOAD_MIN 25
#define LOAD_MAX 975
/* What a move is expected to cost by its bytes: opening the device and building the programs there,
 * and the copies off one device and onto the other, by this many bytes a millisecond where the link
 * is unknown. */
#define OPEN_MS 500
#define COPY    (1 << 20)

bool program_is_measured(const struct policy_program *program, uint32_t device)
{
    return program->measured && program->measured[device].covered >= COVERED &&
           program->measured[device].speed;
}

uint64_t program_speed_on(const struct view *view, const struct policy_program *program,
                          uint32_t device)
{
    if (program_is_measured(program, device))
        return program->measured[device].speed;
    return (uint64_t)device_at(view, device)->speed * WHOLE /
           most_of(device_at(view, program->device)->speed, 1);
}

uint64_t program_move_ms(const struct view *view, const struct policy_program *program)
{
    uint64_t own = program->device == POLICY_NONE ? 0 : device_at(view, program->device)->link;
    uint64_t link = own ? own : view->world->link ? view->world->link : COPY;
    uint64_t ms = OPEN_MS + program_full(program) / most_of(link / 2, 1);

    if (!program->move_ms)
        return ms;
    /* The last move may have gone over a slower link. */
    return own ? least_of(program->move_ms, ms) : program->move_ms;
}

/* Time that a program waits for its device, per time that it does not. */
static double score_work(uint32_t load)
{
    double busy = (double)least_of(most_of(load, LOAD_MIN), LOAD_MAX);

    return busy / (WHOLE - busy);
}

/* How fast @device was for the program, in thousandths of its speed where it is: measured, or else
 * from how busy it kept both; 0: unknown. */
static double score_shown(const struct policy_program *program, uint32_t device)
{
    const struct policy_visits *visits = program->visits;
    uint32_t load;

    if (program_is_measured(program, device))
        return (double)program->measured[device].speed;
    if (!visits || !visits->is_settled || !visits_load(visits, device, program->busy, &load))
        return 0;
    return WHOLE * score_work(visits->settled) / score_work(load);
}

uint64_t program_speed_off(const struct view *view, const struct policy_program *program,
                           uint32_t device)
{
    const struct policy_device *own = device_at(view, program->device);
    double off = own->guessed || device_at(view, device)->guessed ? GUESS_OFF : WHOLE;
    uint32_t count = program->measured ? view->world->device_count
                     : program->visits ? program->visits->count
                                       : 0;
    uint32_t load;

    if (device == program->device || program_is_measured(program, device) ||
        visits_load(program->visits, device, program->busy, &load))
        return WHOLE;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t other = program->measured ? i : program->visits->visits[i].device;
        double shown, wrong;

        if (other == program->device || other >= view->world->device_count)
            continue;
        shown = score_shown(program, other);
        if (shown <= 0)
            continue;
        wrong = shown * own->speed / most_of(device_at(view, other)->speed, 1);
        wrong = wrong < WHOLE ? WHOLE * WHOLE / wrong : wrong;
        off = wrong > off ? wrong : off;
    }
    return off < OFF_MOST ? (uint64_t)off : OFF_MOST;
}

uint64_t program_risk_ms(const struct view *view, const struct policy_program *program,
                         uint32_t device)
{
    uint64_t speed = most_of(program_speed_on(view, program, device), 1);
    uint64_t off = program_speed_off(view, program, device);

    return off <= speed
               ? 0
               : least_of(program->busy, WHOLE) * (off - speed) / speed * view->settings->return_s;
}

bool program_light(const struct view *view, const struct policy_program *program)
{
    return program->device != POLICY_NONE && program->busy < view->settings->busy_low;
}

uint64_t program_load_on(const struct view *view, const struct policy_program *program,
                         uint32_t device)
{
    uint32_t load;

    if (program->device == POLICY_NONE)
        return program->busy ? program->busy : WHOLE;
    if (visits_load(program->visits, device, program->busy, &load))
        return load;
    return program->busy * WHOLE / most_of(program_speed_on(view, program, device), 1);
}

uint64_t program_load_at_worst(const struct view *view, const struct policy_program *program,
                               uint32_t device)
{
    return program_load_on(view, program, device) * program_speed_off(view, program, device) /
           WHOLE;
}

/* Of a device for the program, where 1000 is the reference device. */
static uint64_t score_speed(const struct view *view, const struct policy_program *program,
                            uint32_t device)
{
    if (program->device == POLICY_NONE || !program_is_measured(program, device))
        return device_at(view, device)->speed;
    return (uint64_t)device_at(view, program->device)->speed * program->measured[device].speed /
           WHOLE;
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
    uint64_t speed = score_speed(view, program, device) * WHOLE / most_of(load, WHOLE);
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
    uint64_t busy = program_load_on(view, p, device), load = to_busy + busy;

    if (program_light(view, p) && busy <= (s->busy_low + s->busy_high) / 2 &&
        to_busy + most_of(busy, p->busy) <= s->busy_high)
        return true;
    return program_speed_on(view, p, device) * most_of(from_busy, WHOLE) >=
           WHOLE * most_of(load, WHOLE);
}
