#include <string.h>
#include <unistd.h>

#include "agent/daemon/peers.h"
#include "agent/daemon/programs/registry.h"
#include "agent/protocol/agent_messages.h"
#include "state/base/files/access.h"
#include "state/base/files/file.h"
#include "state/base/memory/host_memory.h"

/* Default of a program's warm memory, as a share of the host's memory and at most in bytes. */
#define WARM_SHARE 16
#define WARM_MOST  (UINT64_C(1) << 30)

/* The state of a program that outlives the agent, and the configuration's settings for it. */

int program_file(const struct agent *agent, const struct program *program, char ret[PATH_MAX])
{
    return paths_join(agent->programs_folder, program->id, ret);
}

void program_put_images(const struct program *program, struct frame *frame)
{
    const struct program_images *images = &program->images;

    if (!images->every_ms)
        return;
    frame_map(frame, "images");
    put_images(frame, images);
    frame_end(frame);
}

void program_take_images(const struct agent *agent, struct program *program,
                         const msgpack_object *map)
{
    const msgpack_object *from = field_get(map, "images");
    struct program_images *images = &program->images;

    *images = (struct program_images){.every_ms = 0};
    take_images(from, images);
    if (images->folder[0] != '/') {
        images->every_ms = 0;
        return;
    }
    images->due_ms = uv_now(&agent->loop);
}

/*
 * Write the earlier devices of a program, so that the policy of a later agent does not send it back
 * to them either. The clock continues from one agent to the next.
 */
static void program_saved_put_visits(const struct agent *agent, const struct program *program,
                                     struct frame *frame)
{
    frame_array(frame, "visits");
    for (size_t i = 0; i < program->vdev_count; i++) {
        const struct program_device *vdev = &program->vdevs[i];
        frame_map(frame, NULL);
        frame_u64(frame, "move_ms", vdev->move_ms);
        frame_u64(frame, "returns", vdev->visits.returns);
        frame_array(frame, "devices");
        for (uint32_t j = 0; j < vdev->visits.count; j++) {
            const struct policy_visit *visit = &vdev->visits.visits[j];
            frame_map(frame, NULL);
            frame_string(frame, "name", agent->ledger.devices[visit->device].name);
            frame_u64(frame, "busy", visit->busy);
            frame_u64(frame, "left_s", visit->left_s);
            frame_u64(frame, "bar_s", visit->bar_s);
            frame_bool(frame, "by_policy", visit->by_policy);
            frame_end(frame);
        }
        frame_end(frame);
        frame_end(frame);
    }
    frame_end(frame);
}

static uint64_t program_saved_number(const msgpack_object *map, const char *key, uint64_t most)
{
    uint64_t value = field_u64(map, key, 0);

    return value < most ? value : most;
}

/** The ledger's index of the device that the field @key names; LEDGER_NONE if there is none. */
static uint32_t program_saved_device(struct agent *agent, const msgpack_object *map,
                                     const char *key)
{
    char name[sizeof(agent->ledger.devices->name)];
    uint32_t device;

    return field_string(map, key, name, sizeof(name)) && name[0] &&
                   !ledger_device(&agent->ledger, name, &device)
               ? device
               : LEDGER_NONE;
}

static void program_saved_take_visit(struct agent *agent, struct policy_visits *visits,
                                     const msgpack_object *map)
{
    uint64_t now_s = uv_now(&agent->loop) / 1000;
    struct policy_visit visit = {.busy = (uint32_t)program_saved_number(map, "busy", UINT32_MAX),
                                 .left_s = field_u64(map, "left_s", 0),
                                 .bar_s = program_saved_number(map, "bar_s", UINT32_MAX),
                                 .by_policy = field_bool(map, "by_policy", false)};

    if (visit.left_s > now_s || visits->count == POLICY_VISITS_MAX ||
        (visit.device = program_saved_device(agent, map, "name")) == LEDGER_NONE)
        return;
    visits->visits[visits->count++] = visit;
}

void program_take_visits(struct agent *agent, struct program *program, const msgpack_object *map)
{
    const msgpack_object *items, *devices;
    size_t count = field_array(map, "visits", &items);

    for (size_t i = 0; i < count && i < program->vdev_count; i++) {
        struct program_device *vdev = &program->vdevs[i];
        size_t visited = field_array(&items[i], "devices", &devices);
        vdev->move_ms = (uint32_t)program_saved_number(&items[i], "move_ms", UINT32_MAX);
        vdev->visits = (struct policy_visits){
            .returns = (uint32_t)program_saved_number(&items[i], "returns", POLICY_RETURNS_MAX)};
        for (size_t j = 0; j < visited; j++)
            program_saved_take_visit(agent, &vdev->visits, &devices[j]);
    }
}

static const char *program_saved_name(const struct agent *agent, uint32_t device)
{
    return device == LEDGER_NONE ? "" : agent->ledger.devices[device].name;
}

void program_put_moves(const struct agent *agent, const struct program *program,
                       struct frame *frame)
{
    const struct managed *managed = &program->managed;

    frame_u64(frame, "policy_moved", managed->moved);
    frame_array(frame, "policy_moves");
    for (unsigned i = 0; i < managed->moved && i < PROGRAM_MOVES_MAX; i++) {
        const struct program_move *move =
            &managed->moves[(managed->moved - 1 - i) % PROGRAM_MOVES_MAX];
        frame_map(frame, NULL);
        frame_u64(frame, "age_ms", uv_now(&agent->loop) - move->at_ms);
        frame_string(frame, "from", program_saved_name(agent, move->from));
        frame_string(frame, "to", program_saved_name(agent, move->to));
        frame_string(frame, "reason", move->why);
        frame_end(frame);
    }
    frame_end(frame);
}

void program_take_moves(struct agent *agent, struct program *program, const msgpack_object *map)
{
    const msgpack_object *items;
    struct managed *managed = &program->managed;
    size_t count = field_array(map, "policy_moves", &items);
    uint64_t saved_ms = program_saved_number(map, "saved_ms", uv_now(&agent->loop));

    managed->moved = (unsigned)program_saved_number(map, "policy_moved", UINT32_MAX);
    for (unsigned i = 0; i < managed->moved && i < PROGRAM_MOVES_MAX; i++) {
        const msgpack_object *item = i < count ? &items[i] : NULL;
        struct program_move *move = &managed->moves[(managed->moved - 1 - i) % PROGRAM_MOVES_MAX];
        move->at_ms = saved_ms - program_saved_number(item, "age_ms", saved_ms);
        move->from = program_saved_device(agent, item, "from");
        move->to = program_saved_device(agent, item, "to");
        (void)field_text(item, "reason", move->why, sizeof(move->why));
    }
}

/**
 * Write the state that a later agent needs. A failure is not fatal: a connected program reports
 * most of it again.
 */
void programs_save(const struct agent *agent, const struct program *program)
{
    char path[PATH_MAX];
    struct frame frame;

    frame_init(&frame, "app");
    frame_u64(&frame, "version", PROTOCOL_VERSION);
    program_put_identity(program, &frame);
    frame_u64(&frame, "start", program->start);
    frame_u64(&frame, "uid", program->uid);
    frame_bool(&frame, "named", program->named);
    frame_bool(&frame, "connected", program->connected);
    frame_string(&frame, "inventory", program->inventory);
    program_put_devices(program, &frame);
    program_put_policy(program, &frame);
    program_put_spread(program, &frame);
    program_put_images(program, &frame);
    program_put_queued(agent, program, &frame);
    program_saved_put_visits(agent, program, &frame);
    frame_u64(&frame, "saved_ms", uv_now(&agent->loop)); /* The ages of moves count from then. */
    program_put_moves(agent, program, &frame);
    int error;
    if ((error = frame_seal(&frame)) || (error = program_file(agent, program, path)) ||
        (error = file_replace_path(path, frame.buffer.data, frame.buffer.size))) {
        agent_log("%s: cannot note the program (%s); the next agent will not know it until it "
                  "connects",
                  program->id, strerror(-error));
    }
    frame_finish(&frame);
}

void program_set_quota(struct agent *agent, struct program *program, uint64_t bytes,
                       const char *text)
{
    program->policy.quota = bytes;
    programs_save(agent, program);
    program_notify(program, PROGRAM_ALL_VDEVS, NOTICE_QUOTA, 0, bytes, text);
    agent->changed = true;
}

/** The configuration's settings for a program, except those that a command has overridden. */
static struct program_policy program_saved_configured(const struct agent *agent,
                                                      const struct program *program)
{
    struct program_policy policy = program->policy;
    struct config_program said;

    config_program(&agent->config, program->name, &said);
    if (!(policy.overrides & OVERRIDE_PRIORITY))
        policy.priority = said.priority;
    if (!(policy.overrides & OVERRIDE_PREEMPTIBLE))
        policy.preemptible = said.preemptible;
    if (!(policy.overrides & OVERRIDE_WAYS))
        policy.ways = said.ways;
    if (!(policy.overrides & OVERRIDE_QUOTA))
        policy.quota = said.quota;
    if (!(policy.overrides & OVERRIDE_CAP))
        policy.cap_mw = said.cap_w * 1000ull;
    if (!(policy.overrides & OVERRIDE_PROTECT))
        policy.protect = said.protect;
    snprintf(policy.pinned_to, sizeof(policy.pinned_to), "%s", said.device);
    /* Another user may set lower limits than the configuration, but no higher ones. */
    if (!access_may_manage(geteuid(), program->uid)) {
        policy.priority = policy.priority < said.priority ? policy.priority : said.priority;
        policy.quota = policy.quota < said.quota ? policy.quota : said.quota;
        uint64_t cap_mw = said.cap_w * 1000ull;
        if (cap_mw && (!policy.cap_mw || policy.cap_mw > cap_mw))
            policy.cap_mw = cap_mw;
    }
    return policy;
}

void program_named(struct agent *agent, struct program *program)
{
    program->policy.overrides = 0;
    program->policy = program_saved_configured(agent, program);
}

void program_tell_warm(const struct agent *agent, const struct program *program)
{
    struct config_program said;
    struct host_memory host;
    struct frame frame;

    if (!program->peer)
        return;
    config_program(&agent->config, program->name, &said);
    if (said.warm == CONFIG_UNLIMITED) {
        said.warm = host_memory_read(&host) == 0 ? host.total / WARM_SHARE : 0;
        said.warm = said.warm < WARM_MOST ? said.warm : WARM_MOST;
    }
    frame_init(&frame, MSG_WARM);
    frame_u64(&frame, "bytes", said.warm);
    peer_send(program->peer, &frame);
}

void program_configure(struct agent *agent, struct program *program)
{
    uint64_t quota = program->policy.quota;

    program->policy = program_saved_configured(agent, program);
    if (program->policy.quota != quota)
        program_set_quota(agent, program, program->policy.quota, "the configuration set its limit");
    else
        programs_save(agent, program);
    program_tell_warm(agent, program);
}
