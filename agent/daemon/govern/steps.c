#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/daemon/govern/govern_priv.h"
#include "agent/daemon/peers.h"

/* Steps of the policy, carried out: as messages to programs and as requests, like operators'. */

#define SHRINK_MS   10000
#define TRIM_MS     1000
#define FRESH_MS    1000
#define REST_MS     1000
#define REST_MS_MAX 60000
/* One that makes programs all the time is tried again after so long at first, then after twice...
 */
#define BUILD_MS      60000
#define BUILD_DOUBLED 6
#define STEP_MS       600000 /* A move that takes longer is given up. */

static const struct policy_program *program_of(const struct agent *agent, uint32_t index)
{
    return &agent->governor->world.programs[index];
}

static void note(const struct group *group, const struct policy_step *step)
{
    struct program *program = group->program;

    memcpy(program->governed.why, step->reason, sizeof(program->governed.why));
    agent_log("%s: policy: %s: %s", program->id, policy_action_name(step->action), step->reason);
}

void step_rest(struct agent *agent, struct program *program)
{
    struct governed *governed = &program->governed;

    governed->rest_ms = governed->rest_ms ? governed->rest_ms * 2 : REST_MS;
    governed->rest_ms = governed->rest_ms < REST_MS_MAX ? governed->rest_ms : REST_MS_MAX;
    governed->rest_until_ms = uv_now(&agent->loop) + governed->rest_ms;
}

/** What a build there depends on and that another driver changes. */
static uint64_t driver_of(const struct agent *agent, uint32_t device)
{
    const struct inventory_entry *entry = govern_entry(agent, device);
    const cl_device_info names[] = {CL_DRIVER_VERSION, CL_DEVICE_VERSION};
    uint64_t hash = 1469598103934665603u;

    for (size_t i = 0; entry && i < ARRAY_SIZE(names); i++) {
        for (const char *at = devinfo_string(&entry->info, names[i]); at && *at; at++) {
            hash = (hash ^ (unsigned char)*at) * 1099511628211u;
        }
    }
    return hash;
}

bool step_barred(const struct agent *agent, const struct program *program,
                 const struct program_bar *bar)
{
    bool time = uv_now(&agent->loop) < bar->until_ms;

    switch (bar->cause) {
    case BAR_REFUSED:
        return bar->uses == program_uses(program);
    case BAR_BUILD:
        return bar->driver == driver_of(agent, bar->device) &&
               (time || bar->uses == program_uses(program));
    case BAR_FAILED:
        break;
    }
    return time;
}

void step_bar(struct agent *agent, struct program *program, uint32_t device,
              enum program_bar_cause cause, const char *reason)
{
    struct governed *governed = &program->governed;
    unsigned at = 0, tries = 0;

    while (at < governed->bar_count && governed->bars[at].device != device) {
        at++;
    }
    if (at == PROGRAM_BARS_MAX) {
        at = 0;
    } else if (at == governed->bar_count) {
        governed->bar_count++;
    } else if (governed->bars[at].cause == cause) {
        tries = governed->bars[at].tries + 1;
    }
    if (cause == BAR_FAILED) {
        governed->rest_ms = governed->rest_ms ? governed->rest_ms * 2 : REST_MS;
        governed->rest_ms = governed->rest_ms < REST_MS_MAX ? governed->rest_ms : REST_MS_MAX;
    }
    uint64_t build_ms = (uint64_t)BUILD_MS << (tries < BUILD_DOUBLED ? tries : BUILD_DOUBLED);
    governed->bars[at] = (struct program_bar){
        .device = device,
        .cause = cause,
        .tries = tries,
        .uses = program_uses(program),
        .driver = driver_of(agent, device),
        .until_ms = uv_now(&agent->loop) + (cause == BAR_BUILD ? build_ms : governed->rest_ms),
    };
    snprintf(governed->bars[at].reason, sizeof(governed->bars[at].reason), "%s", reason);
}

/* ---- messages ---- */

void step_grant(struct agent *agent, struct program *program, uint32_t index, uint64_t bytes)
{
    struct program_device *seat = &program->seats[index];
    struct frame frame;

    ledger_set_granted(&agent->governor->ledger, &seat->account, seat->account.granted + bytes);
    seat->exchanged_ms = seat->granted_ms = uv_now(&agent->loop);
    frame_init(&frame, MSG_GRANT);
    frame_u64(&frame, "seat", index);
    frame_u64(&frame, "bytes", bytes);
    peer_send(program->peer, &frame);
}

static void shrink(struct agent *agent, struct program *program, uint32_t seat, uint64_t bytes,
                   uint64_t patience_ms)
{
    struct frame frame;

    frame_init(&frame, MSG_SHRINK);
    frame_u64(&frame, "seat", seat);
    frame_u64(&frame, "bytes", bytes);
    peer_send(program->peer, &frame);
    program->seats[seat].exchanged_ms = uv_now(&agent->loop);
    program->governed.shrinks = true;
    program->governed.trims = patience_ms < SHRINK_MS;
    program->governed.shrink_to = bytes;
    program->governed.shrink_until_ms = uv_now(&agent->loop) + patience_ms;
}

/* ---- steps ---- */

static uint64_t granted_of(const struct group *group)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < group->program->seat_count; i++) {
        bytes += group->seats & (1u << i) ? ledger_reserved(&group->program->seats[i].account) : 0;
    }
    return bytes;
}

/** With a step's worth more than it needs, where there is plenty. */
static bool do_grant(struct agent *agent, const struct group *group, const struct policy_step *step)
{
    struct need *need = need_of(agent->governor, group->program, group->seats);
    const struct program_device *seat = &group->program->seats[group->seat];
    uint64_t granted = granted_of(group), quota = group->program->policy.quota;

    if (seat->account.device == LEDGER_NONE || (!need && !step->bytes)) {
        return false;
    }
    const struct ledger_device *device = &agent->governor->ledger.devices[seat->account.device];
    uint64_t bytes = ledger_round(device, step->bytes), room = ledger_free(device);
    if (group->program->governed.displaces && bytes < ledger_step(device)) {
        /* What others gave for it is not left to be given back, and asked for again. */
        bytes = room < ledger_step(device) ? room : ledger_step(device);
        bytes = bytes > step->bytes ? bytes : step->bytes;
    }
    group->program->governed.displaces = false;
    if (bytes > step->bytes && granted + bytes > quota) {
        bytes = granted + step->bytes > quota ? step->bytes : quota - granted;
    }
    step_grant(agent, group->program, group->seat, bytes);
    if (need) {
        need_answer(agent, need, WAY_AGAIN, step->reason);
    }
    return true;
}

/** It keeps to so much in all. One whose call waits for that goes on by making room itself. */
static bool do_spill(struct agent *agent, const struct group *group, const struct policy_step *step)
{
    struct need *need = need_of(agent->governor, group->program, group->seats);
    uint64_t granted = granted_of(group);

    if (!need && step->bytes >= granted) {
        return false;
    }
    if (step->bytes > granted) {
        step_grant(agent, group->program, group->seat, step->bytes - granted);
    } else if (step->bytes < granted) {
        for (uint32_t i = 0; i < group->program->seat_count; i++) {
            if (group->seats & (1u << i)) {
                shrink(agent, group->program, i, step->bytes, SHRINK_MS);
            }
        }
    }
    if (need) {
        need_answer(agent, need, WAY_SPILL, step->reason);
    }
    return true;
}

/** What each of a group's virtual devices gets of @bytes, by what they want. */
static void share_out(const struct group *group, uint64_t bytes, uint64_t *ret_grants)
{
    uint64_t wanted = 0, given = 0;

    for (uint32_t i = 0; i < group->program->seat_count; i++) {
        ret_grants[i] = 0;
        wanted += group->seats & (1u << i) ? group->program->seats[i].wanted : 0;
    }
    for (uint32_t i = 0; i < group->program->seat_count; i++) {
        if (group->seats & (1u << i) && wanted) {
            ret_grants[i] = (uint64_t)((double)bytes *
                                       ((double)group->program->seats[i].wanted / (double)wanted));
            ret_grants[i] = ret_grants[i] < bytes - given ? ret_grants[i] : bytes - given;
            given += ret_grants[i];
        }
    }
    ret_grants[group->seat] += bytes - given;
}

/** One request for each of its virtual devices; the program does them one after another. */
static bool ask(struct agent *agent, const struct group *group, const struct policy_step *step,
                const char *verb)
{
    const struct inventory_entry *target = govern_entry(agent, step->device);
    uint64_t grants[PROTOCOL_SEATS_MAX];
    bool any = false;

    if (strcmp(verb, MSG_SUSPEND) && !target) {
        return false;
    }
    share_out(group, step->bytes, grants);
    for (uint32_t i = 0; i < group->program->seat_count; i++) {
        struct request wish = {.program = group->program,
                               .seats = 1u << i,
                               .seat = i,
                               .target = target ? step->device : LEDGER_NONE,
                               .chosen = group->program->seats[i].only == step->device &&
                                         step->device != LEDGER_NONE,
                               .ours = true};
        wish.grants[i] = grants[i];
        if (!(group->seats & wish.seats)) {
            continue;
        }
        snprintf(wish.verb, sizeof(wish.verb), "%s", verb);
        memcpy(wish.why, step->reason, sizeof(wish.why));
        if (requests_begin(agent, &wish, target, STEP_MS)) {
            continue;
        }
        if (target) {
            ledger_keep(&agent->governor->ledger, &group->program->seats[i].account, step->device,
                        grants[i]);
        }
        any = true;
    }
    return any;
}

bool step_do(struct agent *agent, const struct policy_step *step)
{
    const struct world *world = &agent->governor->world;

    if (step->program >= world->policy.program_count) {
        return false;
    }
    struct group group = world->groups[step->program];
    if (!group.program->peer || program_of(agent, step->program)->busy_moving) {
        return false;
    }
    if (step->action == POLICY_DO_REFUSE && !need_of(agent->governor, group.program, group.seats)) {
        /* What is in its way may pass: it goes on queueing. */
        memcpy(group.program->governed.why, step->reason, sizeof(group.program->governed.why));
        return false;
    }
    note(&group, step);
    switch (step->action) {
    case POLICY_GRANT:
        return do_grant(agent, &group, step);
    case POLICY_DO_SPILL:
        return do_spill(agent, &group, step);
    case POLICY_DO_MOVE:
        return ask(agent, &group, step, MSG_MOVE);
    case POLICY_DO_RESUME:
        return ask(agent, &group, step, MSG_RESUME);
    case POLICY_DO_SUSPEND:
        return ask(agent, &group, step, MSG_SUSPEND);
    case POLICY_DO_REFUSE:
        need_answer(agent, need_of(agent->governor, group.program, group.seats), WAY_REFUSE,
                    step->reason);
        return true;
    case POLICY_NOTHING:
    case POLICY_DO_WAIT:
        break;
    }
    return false;
}

/* ---- what is granted and not used ---- */

/** What @program could give back of @device without having to spill. */
static uint64_t slack_of(const struct agent *agent, const struct program *program, uint32_t device)
{
    uint64_t now = uv_now(&agent->loop), slack = 0;

    if (!program->peer || program->unresponsive || program->governed.waiting ||
        program_moving(program) ||
        (program->governed.trimmed_ms && now - program->governed.trimmed_ms < TRIM_MS)) {
        return 0;
    }
    for (size_t i = 0; i < program->seat_count; i++) {
        const struct program_device *seat = &program->seats[i];
        if (seat->granted_ms && now - seat->granted_ms < FRESH_MS) {
            return 0; /* It is about to use it. */
        }
        if (seat->account.device == device && seat->limited &&
            seat->account.target == LEDGER_NONE) {
            slack += seat->account.granted - (seat->account.held < seat->account.granted
                                                  ? seat->account.held
                                                  : seat->account.granted);
        }
    }
    return slack;
}

static void trim(struct agent *agent, struct program *program, uint32_t device)
{
    uint64_t held = 0;

    for (size_t i = 0; i < program->seat_count; i++) {
        held += program->seats[i].account.device == device ? program->seats[i].account.held : 0;
    }
    for (uint32_t i = 0; i < program->seat_count; i++) {
        const struct ledger_account *account = &program->seats[i].account;
        if (account->device == device && account->granted > account->held) {
            shrink(agent, program, i, held, TRIM_MS / 2);
        }
    }
    program->governed.trimmed_ms = uv_now(&agent->loop);
}

/** True when @bytes would be free on @device with what others do not use, and were asked back. */
static bool trim_device(struct agent *agent, const struct program *program, uint32_t device,
                        uint64_t bytes)
{
    const struct ledger_device *own = &agent->governor->ledger.devices[device];
    uint64_t room = ledger_free(own), slack = 0;
    bool under_way = false;

    if (room >= bytes || own->reserved > ledger_capacity(own)) {
        return false;
    }
    for (const struct program *other = agent->programs; other; other = other->next) {
        slack += other == program ? 0 : slack_of(agent, other, device);
        for (size_t i = 0; other != program && i < other->seat_count; i++) {
            under_way =
                under_way || (other->governed.shrinks && other->seats[i].account.device == device);
        }
    }
    if (under_way) {
        return true;
    }
    if (room + slack < bytes) {
        return false;
    }
    for (struct program *other = agent->programs; other && room < bytes; other = other->next) {
        uint64_t own_slack = other == program ? 0 : slack_of(agent, other, device);
        if (own_slack) {
            trim(agent, other, device);
            room += own_slack;
        }
    }
    return true;
}

bool step_trim(struct agent *agent, uint32_t index)
{
    const struct world *world = &agent->governor->world;
    const struct policy_program *one = &world->programs[index];
    const struct program *program = world->groups[index].program;

    if (one->device != POLICY_NONE) {
        return one->need <= one->quota &&
               trim_device(agent, program, one->device,
                           one->need > one->granted ? one->need - one->granted : 0);
    }
    uint64_t bytes = one->wanted > one->need ? one->wanted : one->need;
    for (uint32_t i = 0; i < world->policy.device_count; i++) {
        if (ledger_free(&agent->governor->ledger.devices[i]) >= bytes &&
            !world->devices[i].closed && !(one->barred[i / 64] & 1ull << (i % 64))) {
            return false;
        }
    }
    for (uint32_t i = 0; i < world->policy.device_count; i++) {
        if (!world->devices[i].closed && !(one->barred[i / 64] & 1ull << (i % 64)) &&
            trim_device(agent, program, i, bytes)) {
            return true;
        }
    }
    return false;
}

/** Programs of which the operator lowered what they may have, which the policy leaves to us. */
bool step_quota(struct agent *agent)
{
    const struct world *world = &agent->governor->world;

    for (uint32_t i = 0; i < world->policy.program_count; i++) {
        const struct policy_program *one = &world->programs[i];
        const struct group *group = &world->groups[i];
        if (one->granted <= one->quota || one->busy_moving || one->pinned ||
            !(one->ways & POLICY_SPILL)) {
            continue;
        }
        snprintf(group->program->governed.why, sizeof(group->program->governed.why),
                 "it has more than its limit allows and keeps to that");
        for (uint32_t seat = 0; seat < group->program->seat_count; seat++) {
            if (group->seats & (1u << seat)) {
                shrink(agent, group->program, seat, one->quota, SHRINK_MS);
            }
        }
        return true;
    }
    return false;
}
