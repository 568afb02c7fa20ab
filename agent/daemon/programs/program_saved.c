#include <string.h>
#include <unistd.h>

#include "agent/daemon/agent_messages.h"
#include "agent/daemon/peers.h"
#include "agent/daemon/programs/registry.h"
#include "state/base/array.h"
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

/** Check the devices where a program was; agents count time by the same clock. */
static void program_saved_check_visits(struct policy_visits *visits, uint64_t now_s)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < visits->count; i++)
        if (visits->visits[i].left_s <= now_s && visits->visits[i].device != LEDGER_NONE)
            visits->visits[kept++] = visits->visits[i];
    visits->count = kept;
    if (visits->returns > POLICY_RETURNS_MAX)
        visits->returns = POLICY_RETURNS_MAX;
}

void program_take_images(const struct agent *agent, struct program *program,
                         const msgpack_object *map)
{
    struct program_images images = {.every_ms = 0};

    take_images(map, &images);
    bool asks =
        images.folder[0] == '/' && images.every_ms && images.every_ms <= PROGRAM_IMAGES_MS_MAX;
    images = asks ? images : (struct program_images){.every_ms = 0};
    images.due_ms = uv_now(&agent->loop) + images.every_ms;
    if ((asks || program->images) && array_allot(&program->images, 1, sizeof(images)))
        *program->images = images;
}

void program_take_saved(struct agent *agent, struct program *program, const msgpack_object *map)
{
    const msgpack_object *items;
    const struct program_policy before = program->policy;
    uint64_t now = uv_now(&agent->loop);
    size_t count = message_items(map, "devices", &items, PROTOCOL_VDEVS_MAX);

    if (!program_set_vdev_count(agent, program, count ? count : 1))
        agent_log("%s: no memory for its virtual devices; it reports them again", program->id);
    take_saved(agent, map, program);
    if (!field_get(map, "quota"))
        program->policy = before; /* The file has no policy: a quota of 0 would allow nothing. */
    program_check_policy(&program->policy);
    program->awaited = program->connected;
    count = message_items(map, "displaced", &items, PROTOCOL_VDEVS_MAX);
    for (size_t i = 0; i < program->vdev_count; i++) {
        struct program_device *vdev = &program->vdevs[i];
        vdev->has_device = vdev->device.icd[0] != '\0';
        if (i < count)
            message_item_u64(&items[i], &vdev->ticket);
        vdev->displaced = vdev->ticket != 0;
        /* Agents share one clock as long as the machine is not restarted. */
        if (!vdev->queued_ms || vdev->queued_ms > now)
            vdev->queued_ms = now;
        if (vdev->ticket > agent->tickets)
            agent->tickets = vdev->ticket;
        program_saved_check_visits(&vdev->visits, now / 1000);
    }
    program_take_images(agent, program, field_get(map, "images"));
    if (program->images)
        program->images->due_ms = now;
}

void program_take_moves(struct agent *agent, struct program *program, const msgpack_object *map)
{
    const msgpack_object *items;
    struct managed *managed = &program->managed;
    size_t count = field_array(map, "moved_ages_ms", &items);
    uint64_t saved_ms = message_number(map, "saved_ms", uv_now(&agent->loop));

    managed->moved = (unsigned)message_number(map, "policy_moved", UINT32_MAX);
    for (unsigned i = 0; i < managed->moved && i < PROGRAM_MOVES_MAX; i++) {
        uint64_t age = saved_ms;
        if (i < count)
            message_item_u64(&items[i], &age);
        managed->moved_ms[(managed->moved - 1 - i) % PROGRAM_MOVES_MAX] =
            saved_ms - (age < saved_ms ? age : saved_ms);
    }
}

/** On failure a later agent learns most of it from the program when it connects. */
void programs_save(const struct agent *agent, const struct program *program)
{
    const struct managed *managed = &program->managed;
    char path[PATH_MAX];
    struct frame frame;

    frame_init(&frame, "app");
    frame_u64(&frame, "version", PROTOCOL_VERSION);
    put_identity(&frame, program);
    frame_u64(&frame, "start", program->start);
    frame_u64(&frame, "uid", program->uid);
    put_saved(&frame, agent, program);
    frame_u64(&frame, "saved_ms", uv_now(&agent->loop)); /* The ages of moves count from then. */
    frame_u64(&frame, "policy_moved", managed->moved);
    frame_array(&frame, "moved_ages_ms"); /* The newest first. */
    for (unsigned i = 0; i < managed->moved && i < PROGRAM_MOVES_MAX; i++)
        frame_u64(&frame, NULL,
                  uv_now(&agent->loop) -
                      managed->moved_ms[(managed->moved - 1 - i) % PROGRAM_MOVES_MAX]);
    frame_end(&frame);
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
static struct program_policy program_saved_configured(struct agent *agent,
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
    bool others = !access_may_manage(geteuid(), program->uid);
    if (!(policy.overrides & OVERRIDE_DEVICES) || (others && said.device[0]))
        snprintf(policy.pinned_to, sizeof(policy.pinned_to), "%s", said.device);
    /* Another user may set lower limits than the configuration, but no higher ones. */
    if (others) {
        policy.priority = policy.priority < said.priority ? policy.priority : said.priority;
        policy.quota = policy.quota < said.quota ? policy.quota : said.quota;
        uint64_t cap_mw = said.cap_w * 1000ull;
        if (cap_mw && (!policy.cap_mw || policy.cap_mw > cap_mw))
            policy.cap_mw = cap_mw;
    }
    agent->capped = agent->capped || policy.cap_mw;
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
