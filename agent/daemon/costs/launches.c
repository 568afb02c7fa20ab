#include <stdlib.h>
#include <string.h>

#include "agent/daemon/agent_messages.h"
#include "agent/daemon/costs/costs_priv.h"
#include "agent/daemon/devices/device_list.h"
#include "agent/daemon/peers.h"
#include "agent/daemon/power/power.h"

/* Learns from the launches that programs report, and tells programs and the policy what is known.
 */

#define MEASURED_MS  1000  /* lifetime of an answer to the policy */
#define FADE_MS      30000 /* half-life of a program's use of a kernel */
#define SAMPLES_MOST 256   /* accepted from one program in a second; the library sends 64 */
#define TELL_MS      5000  /* between two messages about power to one program */
#define RAN_MOST_NS  10000000000000 /* counted of one sample: more than a span can have */
#define SPAN_MS      2000           /* of which a program's share of a device is */

static void costs_fade_use(struct kernel_use *use, uint64_t now_ms)
{
    for (; use->at_ms + FADE_MS <= now_ms && use->busy_ns != 0; use->at_ms += FADE_MS)
        use->busy_ns /= 2;
}

static void costs_note_use(struct program_costs *costs, const struct cost_sample *sample,
                           uint32_t device, uint64_t now_ms)
{
    struct kernel_use *least = NULL;

    for (uint32_t i = 0; i < costs->count; i++) {
        struct kernel_use *use = &costs->uses[i];
        costs_fade_use(use, now_ms);
        if (use->device == device && strcmp(use->id, sample->id) == 0) {
            use->items = sample->items;
            use->busy_ns += sample->busy_ns < UINT64_MAX / 4 ? sample->busy_ns : UINT64_MAX / 4;
            use->busy_ns = use->busy_ns < UINT64_MAX / 4 ? use->busy_ns : UINT64_MAX / 4;
            return;
        }
        if (!least || use->busy_ns < least->busy_ns)
            least = use;
    }
    if (costs->count < USES_MOST)
        least = &costs->uses[costs->count++];
    else if (least->busy_ns >= sample->busy_ns)
        return;
    *least = (struct kernel_use){
        .device = device, .items = sample->items, .busy_ns = sample->busy_ns, .at_ms = now_ms};
    memcpy(least->id, sample->id, sizeof(least->id));
}

uint32_t costs_device(const struct agent *agent, const struct device_key *key)
{
    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        const struct inventory_entry *entry = devices_entry(agent, i);
        if (entry && device_key_equal(&entry->key, key))
            return i;
    }
    return LEDGER_NONE;
}

static bool costs_are_alike(const struct cost_interval *one, const struct cost_interval *other)
{
    return strcmp(one->id, other->id) == 0 && one->items / 2 <= other->items &&
           other->items / 2 <= one->items;
}

/* Those of the program on @device; with @add a free entry if there is none. Or NULL. */
static struct cost_intervals *costs_intervals_on(struct program_costs *costs, uint32_t device,
                                                 bool add)
{
    struct cost_intervals *unused = NULL;

    for (size_t i = 0; i < INTERVALS; i++) {
        struct cost_intervals *on = &costs->intervals[i];
        bool used = on->now.busy_ns || on->last.busy_ns;
        if (used && on->device == device)
            return on;
        unused = used ? unused : on;
    }
    if (!add || !unused)
        return NULL;
    *unused = (struct cost_intervals){.device = device};
    return unused;
}

static void costs_note_interval(struct program_costs *costs, const struct cost_sample *sample,
                                uint32_t device)
{
    struct cost_intervals *on = costs_intervals_on(costs, device, true);
    struct cost_interval now = {.items = sample->items};

    if (!on)
        return;
    memcpy(now.id, sample->id, sizeof(now.id));
    now.mixed = on->now.mixed || (on->now.busy_ns && !costs_are_alike(&on->now, &now));
    now.busy_ns = on->now.busy_ns + (sample->busy_ns < UINT64_MAX / 4 ? sample->busy_ns : 0);
    on->now = now;
}

/** Start a new span when the present one is long enough. */
static void costs_span_end(struct cost_ran *ran, uint64_t now_ms)
{
    uint64_t span_ms = now_ms - ran->since_ms;

    if (span_ms < SPAN_MS)
        return;
    uint64_t share = ran->ns / 1000 / span_ms; /* microseconds a millisecond */
    ran->share = share < 1000 ? (uint32_t)share : 1000;
    ran->ns = 0;
    ran->since_ms = now_ms;
}

static struct cost_ran *costs_ran_on(struct program_costs *costs, uint32_t device)
{
    for (uint32_t i = 0; i < costs->ran_count; i++)
        if (costs->ran[i].device == device)
            return &costs->ran[i];
    return NULL;
}

static void costs_note_ran(struct program_costs *costs, const struct cost_sample *sample,
                           uint32_t device, uint64_t now_ms)
{
    struct cost_ran *ran = costs_ran_on(costs, device);

    if (!ran && costs->ran_count == INTERVALS)
        return;
    if (!ran) {
        ran = &costs->ran[costs->ran_count++];
        *ran = (struct cost_ran){.device = device, .since_ms = now_ms};
    }
    costs_span_end(ran, now_ms);
    ran->ns += sample->busy_ns < RAN_MOST_NS ? sample->busy_ns : RAN_MOST_NS;
}

uint32_t costs_share(const struct agent *agent, const struct program *program, uint32_t device)
{
    struct cost_ran *ran = program->costs ? costs_ran_on(program->costs, device) : NULL;

    if (!ran)
        return 0;
    costs_span_end(ran, uv_now(&agent->loop));
    return ran->share;
}

static void costs_learn(struct agent *agent, struct program *program,
                        const struct cost_sample *sample)
{
    uint32_t index = sample->has_device ? costs_device(agent, &sample->device) : LEDGER_NONE;

    if (index == LEDGER_NONE || strlen(sample->id) != COST_ID_SIZE - 1 || !sample->items ||
        !sample->ns)
        return;
    costs_note_ran(program->costs, sample, index, uv_now(&agent->loop));
    struct cost_entry *entry =
        costs_change(agent->costs, program->uid, sample->id, sample->name, &sample->device);
    if (!entry)
        return;
    costs_add(&entry->costs, sample->items, sample->ns);
    costs_note_interval(program->costs, sample, index);
    costs_note_use(program->costs, sample, index, uv_now(&agent->loop));
}

/*
 * True if launches of one kernel and size filled both intervals. Reports arrive up to a second
 * late, so one interval alone does not show what ran during it.
 */
static bool costs_fill(const struct cost_intervals *on, uint64_t interval_ns)
{
    const struct cost_interval *now = &on->now, *last = &on->last;
    uint64_t busy = now->busy_ns / 2 + last->busy_ns / 2;

    return now->busy_ns && last->busy_ns && !now->mixed && !last->mixed &&
           costs_are_alike(now, last) && busy >= interval_ns / 10 * 9;
}

void costs_power(struct agent *agent, uint32_t device, const struct program *alone,
                 uint64_t above_mw, uint64_t interval_ns)
{
    for (struct program *program = agent->programs; program; program = program->next) {
        struct cost_intervals *on =
            program->costs ? costs_intervals_on(program->costs, device, false) : NULL;
        if (!on)
            continue;
        struct cost_kernel *kernel = program == alone && costs_fill(on, interval_ns)
                                         ? costs_find(agent->costs, program->uid, on->now.id)
                                         : NULL;
        const struct inventory_entry *there = devices_entry(agent, device);
        struct cost_entry *entry = there ? costs_entry_on(kernel, &there->key) : NULL;
        if (entry) {
            costs_add_power(&entry->costs, on->now.items, above_mw);
            agent->costs->dirty += !entry->dirty;
            entry->dirty = true;
        }
        on->last = on->now;
        on->now = (struct cost_interval){0};
    }
}

/* Limit the samples of a program in a second; further ones are ignored. */
static bool costs_may_tell(struct program_costs *costs, uint64_t second)
{
    if (costs->second != second)
        costs->samples = 0;
    costs->second = second;
    return costs->samples++ < SAMPLES_MOST;
}

void costs_handle(struct peer *peer, struct message *message)
{
    const msgpack_object *items;
    size_t count = field_array(&message->root, "samples", &items);
    uint64_t second = uv_now(&peer->agent->loop) / 1000;

    if (!peer->program->costs)
        peer->program->costs = calloc(1, sizeof(*peer->program->costs));
    if (!peer->program->costs)
        return;
    for (size_t i = 0; i < count && i < PROTOCOL_SAMPLES_MAX; i++) {
        if (!costs_may_tell(peer->program->costs, second))
            return;
        struct cost_sample sample = {.has_device = false};
        take_sample(&items[i], &sample);
        costs_learn(peer->agent, peer->program, &sample);
    }
}

/** NULL: not known, or only on disk because no program of the user ran the kernel recently. */
static const struct costs *costs_of(const struct agent *agent, uid_t uid, const char *id,
                                    uint32_t device)
{
    const struct inventory_entry *there = devices_entry(agent, device);
    const struct cost_entry *entry =
        there ? costs_entry_on(costs_find(agent->costs, uid, id), &there->key) : NULL;

    return entry ? &entry->costs : NULL;
}

/* ---- power, to programs ---- */

/* The first one of its kernel: it may have run on several devices. */
static bool costs_is_first_use(const struct program_costs *costs, uint32_t index)
{
    uint32_t i = 0;

    while (i < index && strcmp(costs->uses[i].id, costs->uses[index].id) != 0)
        i++;
    return i == index;
}

static void costs_put_device(const struct agent *agent, const struct program *program,
                             uint32_t device, struct frame *frame)
{
    const struct program_costs *costs = program->costs;
    struct cost_drawn drawn = {.device = devices_entry(agent, device)->key};

    for (uint32_t i = 0; i < costs->count; i++) {
        const struct kernel_use *use = &costs->uses[i];
        const struct costs *known = costs_of(agent, program->uid, use->id, device);
        struct cost_guess guess;
        /* As learnt, or else what is known of the program or the device. */
        drawn.power_mw = known && costs_guess(known, use->items, &guess) && guess.power_samples > 0
                             ? guess.power_mw
                             : power_expected(agent, program, device);
        if (!drawn.power_mw || !costs_is_first_use(costs, i))
            continue;
        memcpy(drawn.id, use->id, sizeof(drawn.id));
        drawn.items = use->items;
        frame_map(frame, NULL);
        put_drawn(frame, &drawn);
        frame_end(frame);
    }
}

static void costs_tell(const struct agent *agent, struct program *program)
{
    struct frame frame;
    uint64_t idle_mw = 0;

    program->costs->told = program->costs->count;
    program->costs->tell_ms = uv_now(&agent->loop) + TELL_MS;
    frame_init(&frame, MSG_COSTS);
    frame_array(&frame, "powers");
    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        if (!devices_entry(agent, i) || !program_launches_on(program, i))
            continue;
        costs_put_device(agent, program, i, &frame);
        idle_mw += power_idle(agent, i);
    }
    frame_end(&frame);
    frame_u64(&frame, "idle_mw", idle_mw);
    peer_send(program->peer, &frame);
}

void costs_look(struct agent *agent, struct program *program)
{
    const struct program_costs *costs = program->costs;
    bool asks = costs && program->peer && strncmp(program->status.objective, "energy", 6) == 0;

    if (asks && (costs->count > costs->told || uv_now(&agent->loop) >= costs->tell_ms))
        costs_tell(agent, program);
}

void costs_forget(struct program *program)
{
    if (program->costs)
        free(program->costs->measured);
    free(program->costs);
    program->costs = NULL;
}

/* ---- answers to the policy ---- */

static struct policy_measured
costs_compare(const struct agent *agent, const struct program *program, uint32_t from, uint32_t to)
{
    const struct program_costs *costs = program->costs;
    struct costs_use uses[USES_MOST];
    uint32_t count = 0;

    for (uint32_t i = 0; i < costs->count; i++) {
        const struct kernel_use *use = &costs->uses[i];
        if (use->device == from && use->busy_ns != 0)
            uses[count++] = (struct costs_use){.here = costs_of(agent, program->uid, use->id, from),
                                               .there = costs_of(agent, program->uid, use->id, to),
                                               .items = use->items,
                                               .busy_ns = use->busy_ns};
    }
    return costs_relative(uses, count);
}

const struct policy_measured *costs_measured(struct agent *agent, struct program *program,
                                             uint32_t device)
{
    struct program_costs *costs = program->costs;
    uint64_t now = uv_now(&agent->loop);

    if (!costs || device >= agent->ledger.count)
        return NULL;
    if (costs->measured && costs->measured_on == device &&
        costs->measured_count == agent->ledger.count && now < costs->measured_ms + MEASURED_MS)
        return costs->measured;
    struct policy_measured *measured =
        realloc(costs->measured, agent->ledger.count * sizeof(*measured));
    if (!measured)
        return NULL;
    costs->measured = measured;
    costs->measured_count = agent->ledger.count;
    costs->measured_on = device;
    costs->measured_ms = now;
    for (uint32_t i = 0; i < costs->count; i++)
        costs_fade_use(&costs->uses[i], now);
    for (uint32_t i = 0; i < agent->ledger.count; i++)
        measured[i] = costs_compare(agent, program, device, i);
    return measured;
}
