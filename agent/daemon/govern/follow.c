#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/daemon/govern/govern_priv.h"
#include "agent/daemon/govern/request_report.h"
#include "agent/daemon/peers.h"
#include "agent/wire/access.h"

/* Clients that follow a drain or a rebalance: told of each step, and of the end. */

#define BALANCE_MAX 256 /* Steps of one rebalance. */

static void drop(struct governor *governor, struct watch *watch)
{
    for (struct watch **at = &governor->watches; *at; at = &(*at)->next) {
        if (*at == watch) {
            *at = watch->next;
            break;
        }
    }
    free(watch);
}

void govern_client_gone(struct agent *agent, const struct peer *client)
{
    struct watch *next;

    for (struct watch *watch = agent->governor->watches; watch; watch = next) {
        next = watch->next;
        if (watch->client == client) {
            drop(agent->governor, watch);
        }
    }
}

static bool concerns(const struct agent *agent, const struct watch *watch,
                     const struct request *request)
{
    const char *name = agent->governor->ledger.devices[watch->device].name;
    const char *at = watch->drains ? strstr(request->from, name) : request->from;
    size_t length = watch->drains ? strlen(name) : 0;

    return at && (!watch->drains || ((at == request->from || at[-1] == ',') &&
                                     (at[length] == '\0' || at[length] == ',')));
}

void watch_step(struct agent *agent, const struct request *request, const char *result,
                const char *reason)
{
    for (struct watch *watch = agent->governor->watches; watch; watch = watch->next) {
        struct frame frame;
        if (!concerns(agent, watch, request)) {
            continue;
        }
        bool done = strcmp(result, RESULT_DONE) == 0;
        watch->done += done;
        watch->failed += strcmp(result, RESULT_ROLLED_BACK) == 0 ||
                         strcmp(result, RESULT_EXPIRED) == 0 ||
                         strcmp(result, RESULT_CANCELED) == 0;
        frame_init(&frame, MSG_STEP);
        report_put_app(&frame, request->app);
        frame_string(&frame, "from", request->from);
        frame_string(&frame, "to", request->to);
        frame_string(&frame, "result", result);
        frame_string(&frame, "reason", done ? request->why : reason);
        peer_send(watch->client, &frame);
    }
}

/** Why it is not asked, or is off other devices, where that is known, else of its last step. */
static const char *stay_reason(const struct agent *agent, const struct app *app)
{
    const struct app_fate *fate = &app->fate;
    const char *reason = fate->why[0] ? fate->why : "no other device has room for it";

    if (!app->peer) {
        return "it has not found this agent yet";
    }
    if (app->silent) {
        return "it does not answer (is it stopped?)";
    }
    for (unsigned i = 0; i < fate->bar_count; i++) {
        reason = step_barred(agent, app, &fate->bars[i]) ? fate->bars[i].reason : reason;
    }
    return reason;
}

/** Who is left on a device that drains, and why. */
static unsigned put_left(const struct agent *agent, uint32_t device, struct frame *frame)
{
    unsigned count = 0;

    frame_array(frame, "left");
    for (const struct app *app = agent->apps; app; app = app->next) {
        bool there = false;
        const char *pinned = "";
        for (size_t i = 0; i < app->seat_count; i++) {
            if (app->seats[i].account.device == device) {
                there = true;
                pinned = pinned[0] ? pinned : app->seats[i].pinned;
            }
        }
        if (!there) {
            continue;
        }
        frame_map(frame, NULL);
        report_put_app(frame, app);
        frame_string(frame, "reason", pinned[0] ? pinned : stay_reason(agent, app));
        frame_end(frame);
        count++;
    }
    frame_end(frame);
    return count;
}

static bool busy_there(const struct agent *agent, const struct watch *watch)
{
    for (const struct request *request = agent->requests; request; request = request->next) {
        if (concerns(agent, watch, request)) {
            return true;
        }
    }
    for (const struct app *app = agent->apps; app; app = app->next) {
        if (app->fate.shrinks) {
            return true;
        }
    }
    return false;
}

static void finish(struct agent *agent, struct watch *watch)
{
    struct frame frame;

    frame_init(&frame, watch->drains ? MSG_DRAIN : MSG_BALANCE);
    if (watch->drains) {
        frame_string(&frame, "device", agent->governor->ledger.devices[watch->device].name);
        frame_bool(&frame, "drained", true);
        put_left(agent, watch->device, &frame);
    }
    frame_u64(&frame, "moved", watch->done);
    frame_u64(&frame, "failed", watch->failed);
    peer_send(watch->client, &frame);
    drop(agent->governor, watch);
}

/** True when a step of a rebalance was begun. */
static bool balance(struct agent *agent)
{
    struct governor *governor = agent->governor;
    struct policy_step step;

    if (world_build(agent)) {
        return false;
    }
    policy_rebalance(&governor->world.policy, config_policy(&agent->config), &step);
    return step.action != POLICY_NOTHING && step.action != POLICY_DO_WAIT && step_do(agent, &step);
}

void watch_tick(struct agent *agent)
{
    struct watch *next;

    for (struct watch *watch = agent->governor->watches; watch; watch = next) {
        next = watch->next;
        if (agent->governor->dirty || busy_there(agent, watch) ||
            (watch->drains && agent->governor->ledger.devices[watch->device].drains_ms)) {
            continue;
        }
        if (watch->drains || watch->done + watch->failed >= BALANCE_MAX || !balance(agent)) {
            finish(agent, watch);
        }
    }
}

void watch_begin(struct peer *client, bool drains, uint32_t device)
{
    struct governor *governor = client->agent->governor;
    struct watch *watch = calloc(1, sizeof(*watch));

    if (!watch) {
        peer_error(client, ERR_FAILED, "the agent has no memory for the request; try again");
        return;
    }
    *watch = (struct watch){.client = client, .drains = drains, .device = device};
    watch->next = governor->watches;
    governor->watches = watch;
    governor->dirty = true;
}

void watch_undone(struct agent *agent, uint32_t device)
{
    struct watch *next;

    for (struct watch *watch = agent->governor->watches; watch; watch = next) {
        next = watch->next;
        if (watch->drains && watch->device == device) {
            peer_error(watch->client, ERR_FAILED,
                       "the drain of %s was undone (reseat drain --undo) when %u had moved; it "
                       "takes programs again",
                       agent->governor->ledger.devices[device].name, watch->done);
            drop(agent->governor, watch);
        }
    }
}

/** Do in the copied world alone what a step would do, so that the next can be asked for. */
static void pretend(struct world *world, const struct policy_step *step)
{
    struct policy_program *program = &world->programs[step->program];
    uint32_t *at;

    if (program->device != POLICY_NONE) {
        struct policy_device *from = &world->devices[program->device];
        for (at = &from->first; *at != POLICY_NONE; at = &world->programs[*at].next) {
            if (*at == step->program) {
                *at = program->next;
                break;
            }
        }
        from->residents--;
        from->reserved -= program->granted;
        from->busy -= program->busy;
    }
    struct policy_device *to = &world->devices[step->device];
    program->device = step->device;
    program->granted = step->bytes;
    program->stayed_s = 0;
    program->next = to->first;
    to->first = step->program;
    to->residents++;
    to->reserved += step->bytes;
    to->busy += program->busy;
}

static void dry_run(struct peer *client)
{
    struct agent *agent = client->agent;
    struct world *world = &agent->governor->world;
    struct policy_step step;
    struct frame frame;
    unsigned count = 0;

    if (world_build(agent)) {
        peer_error(client, ERR_FAILED, "the agent has no memory for the request; try again");
        return;
    }
    for (; count < BALANCE_MAX; count++) {
        policy_rebalance(&world->policy, config_policy(&agent->config), &step);
        if (step.action != POLICY_DO_MOVE) {
            break;
        }
        const struct policy_program *program = &world->programs[step.program];
        bool placed = program->device != POLICY_NONE;
        frame_init(&frame, MSG_STEP);
        report_put_app(&frame, world->units[step.program].app);
        frame_string(&frame, "from", placed ? world->devices[program->device].name : "");
        frame_string(&frame, "to", world->devices[step.device].name);
        frame_string(&frame, "result", "");
        frame_string(&frame, "reason", step.reason);
        peer_send(client, &frame);
        pretend(world, &step);
    }
    frame_init(&frame, MSG_BALANCE);
    frame_u64(&frame, "moved", count);
    frame_u64(&frame, "failed", 0);
    peer_send(client, &frame);
}

void watch_handle(struct peer *client, const msgpack_object *message)
{
    govern_client_gone(client->agent, client); /* One thing at a time. */
    if (!access_may_operate(geteuid(), client->uid)) {
        peer_error(client, ERR_DENIED,
                   "only the agent's own user and root may drain devices and rebalance programs");
        return;
    }
    if (field_is(message, "type", MSG_DRAIN)) {
        drain_handle(client, message);
    } else if (field_bool(message, "dry_run", false)) {
        dry_run(client);
    } else {
        watch_begin(client, false, 0);
    }
}
