#include <stdlib.h>
#include <string.h>

#include "agent/daemon/govern/govern_priv.h"
#include "agent/daemon/peers.h"

/* Calls of programs that are blocked until there is room. */

#define NEEDS_MAX 256 /* Of one program: as many threads wait at once. */
#define TIGHT_MS  30000

struct need *need_of(const struct governor *governor, const struct app *app, unsigned seats)
{
    for (struct need *need = governor->needs; need; need = need->next) {
        if (need->app == app && seats & (1u << need->seat)) {
            return need;
        }
    }
    return NULL;
}

void need_drop(struct governor *governor, struct need *need)
{
    for (struct need **at = &governor->needs; *at; at = &(*at)->next) {
        if (*at == need) {
            *at = need->next;
            break;
        }
    }
    need->app->fate.waiting--;
    free(need);
}

static void refuse_at_once(struct app *app, uint64_t id, const char *reason)
{
    struct frame frame;

    frame_init(&frame, MSG_ANSWER);
    frame_u64(&frame, "id", id);
    frame_string(&frame, "way", WAY_REFUSE);
    frame_string(&frame, "reason", reason);
    peer_send(app->peer, &frame);
}

static uint64_t amount(const msgpack_object *message, const char *key)
{
    uint64_t bytes = field_u64(message, key, 0);

    return bytes < LEDGER_BYTES_MAX ? bytes : LEDGER_BYTES_MAX;
}

/** A driver that had no more: what is held there now is all that there is, for a while. */
static void note_failure(struct agent *agent, const struct app_seat *seat)
{
    if (seat->account.device != LEDGER_NONE) {
        struct ledger_device *device = &agent->governor->ledger.devices[seat->account.device];
        device->tight = device->held;
        device->tight_until_ms = uv_now(&agent->loop) + TIGHT_MS;
        agent_log("%s: its driver has no more memory, with %llu MiB held by programs here",
                  device->name, (unsigned long long)(device->held >> 20));
    }
}

void need_take(struct agent *agent, struct app *app, const msgpack_object *message)
{
    struct governor *governor = agent->governor;
    uint64_t seat = field_u64(message, "seat", 0), id = field_u64(message, "id", 0);

    if (seat >= app->seat_count || app->fate.waiting >= NEEDS_MAX) {
        refuse_at_once(app, id,
                       seat >= app->seat_count ? "the program has no such virtual device"
                                               : "too many calls of the program wait for memory");
        return;
    }
    struct need *need = calloc(1, sizeof(*need));
    if (!need) {
        refuse_at_once(app, id, "the agent has no memory to note that the call waits");
        return;
    }
    *need = (struct need){.app = app,
                          .seat = (uint32_t)seat,
                          .id = id,
                          .total = amount(message, "total"),
                          .least = amount(message, "least"),
                          .wanted = amount(message, "wanted"),
                          .owns = field_bool(message, "owns", false),
                          .failed = field_bool(message, "failed", false),
                          .ticket = ++governor->tickets,
                          .since_ms = uv_now(&agent->loop)};
    struct need **at = &governor->needs;
    while (*at) {
        at = &(*at)->next;
    }
    *at = need;
    app->fate.waiting++;
    if (need->failed) {
        note_failure(agent, &app->seats[seat]);
    }
    governor->dirty = true;
}

void needs_drop(struct governor *governor, const struct app *app)
{
    struct need *next;

    for (struct need *need = governor->needs; need; need = next) {
        next = need->next;
        if (need->app == app) {
            need_drop(governor, need);
        }
    }
}

void need_answer(struct agent *agent, struct need *need, const char *way, const char *reason)
{
    struct app_fate *fate = &need->app->fate;
    uint64_t waited = uv_now(&agent->loop) - need->since_ms;
    struct frame frame;

    frame_init(&frame, MSG_ANSWER);
    frame_u64(&frame, "id", need->id);
    frame_string(&frame, "way", way);
    frame_string(&frame, "reason", reason);
    peer_send(need->app->peer, &frame);
    need->app->seats[need->seat].earned_ms = waited;
    fate->waits++;
    fate->waited_ms += waited;
    fate->refusals += strcmp(way, WAY_REFUSE) == 0;
    need_drop(agent->governor, need);
}

void needs_answer(struct agent *agent, const struct app *app, unsigned seats, const char *way,
                  const char *reason)
{
    struct need *need;

    while ((need = need_of(agent->governor, app, seats))) {
        need_answer(agent, need, way, reason);
    }
}
