#include "tests/agent/puppet.h"

#include "tests/support/cases.h"
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "policy/decide.h"
#include "state/base/clock.h"
#include "state/driver/device_key.h"
#include "tests/agent/harness.h"
#include "tests/support/patience.h"

#define PUPPETS_MAX 24
#define SOON_MS     10000

static struct puppet *all[PUPPETS_MAX];

/** The key that fake_lister gives to a device. */
static void key_of(const char *device, char *ret_text)
{
    struct device_key key = {.icd = "libfake.so", .platform = "Fake \xe2\x84\xa2"};
    const char *name = strchr(device, ':') + 1;

    snprintf(key.device, sizeof(key.device), "%s", name);
    if (strncmp(device, "gpu", 3) == 0) {
        snprintf(key.uuid, sizeof(key.uuid), "%08zx001122334455667788990abc",
                 strlen(name) * 0x01010101);
        snprintf(key.pci, sizeof(key.pci), "0000:%02x:00.0", (unsigned)(strlen(name) & 0xff));
    }
    device_key_format(&key, ret_text);
}

/* ---- its process ---- */

/** Connects whenever it is told to, and hands the socket over: the agent takes it for its own. */
static void process(int control)
{
    char byte;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int fd = 3; fd < 256; fd++)
        if (fd != control)
            close(fd);
    while (recv(control, &byte, 1, 0) == 1) {
        int fd = harness_connect();
        if (fd < 0)
            _exit(1); /* No agent. */
        harness_send_fd(control, fd);
        close(fd);
    }
    _exit(0);
}

static int connection(struct puppet *puppet)
{
    char byte = 0;

    cr_assert_eq(send(puppet->process, &byte, 1, MSG_NOSIGNAL), 1);
    return harness_receive_fd(puppet->process);
}

/* ---- what it says ---- */

void puppet_send(struct puppet *puppet, struct frame *frame)
{
    cr_assert(harness_tell(puppet->fd, frame));
}

static void put_source(const struct puppet_vdev *vdev, struct frame *frame)
{
    char key[DEVICE_KEY_TEXT_MAX];

    frame_array(frame, "sources");
    if (vdev->source) {
        key_of(vdev->source, key);
        frame_map(frame, NULL);
        frame_string(frame, "device", key);
        frame_u64(frame, "bytes", vdev->source_bytes);
        frame_end(frame);
    }
    frame_end(frame);
}

static void put_loss(const struct puppet_vdev *vdev, struct frame *frame)
{
    char key[DEVICE_KEY_TEXT_MAX];

    if (!vdev->lost)
        return;
    key_of(vdev->device, key);
    frame_map(frame, "loss");
    frame_string(frame, "device", key);
    frame_string(frame, "reason", "the test says so");
    frame_u64(frame, "count", vdev->losses_before + 1);
    frame_bool(frame, "isolated", vdev->isolated);
    frame_bool(frame, "works", vdev->works);
    frame_end(frame);
}

static void put_vdevs(const struct puppet *puppet, struct frame *frame)
{
    char key[DEVICE_KEY_TEXT_MAX];

    frame_array(frame, "vdevs");
    for (unsigned i = 0; i < puppet->vdev_count; i++) {
        const struct puppet_vdev *vdev = &puppet->vdevs[i];
        key_of(vdev->device, key);
        frame_map(frame, NULL);
        frame_u64(frame, "vdev", i);
        frame_string(frame, "device", key);
        frame_bool(frame, "suspended", vdev->suspended);
        frame_bool(frame, "lost", vdev->lost);
        frame_u64(frame, "device_bytes", vdev->suspended ? 0 : vdev->held);
        frame_u64(frame, "granted", vdev->granted);
        frame_u64(frame, "wanted", vdev->wanted);
        frame_u64(frame, "least", vdev->least);
        frame_u64(frame, "spilled", vdev->spilled);
        frame_u64(frame, "fetched", vdev->fetched);
        frame_u64(frame, "to_fetch", vdev->to_fetch);
        put_source(vdev, frame);
        frame_u64(frame, "busy", puppet->busy);
        frame_u64(frame, "from_bytes_s", puppet->from_bytes_s);
        frame_u64(frame, "to_bytes_s", puppet->to_bytes_s);
        frame_u64(frame, "moves", puppet->moved);
        frame_u64(frame, "last_downtime_ns", puppet->downtime_ns);
        frame_string(frame, "pinned", puppet->pinned ? puppet->pinned : "");
        frame_end(frame);
    }
    frame_end(frame);
}

static void put_limits(struct frame *frame, const char *key, const struct reseat_limits *limits)
{
    frame_map(frame, key);
    frame_u64(frame, "memory", limits->memory);
    frame_u64(frame, "allocation", limits->allocation);
    frame_u64(frame, "local_memory", limits->local_memory);
    frame_u64(frame, "work_group_size", limits->work_group_size);
    frame_u64(frame, "compute_units", limits->compute_units);
    frame_u64(frame, "features", limits->features);
    frame_end(frame);
}

static void put_aware(const struct puppet *puppet, struct frame *frame)
{
    if (puppet->aware) {
        frame_map(frame, "aware");
        put_limits(frame, "minimum", &puppet->minimum);
        put_limits(frame, "preferred", &puppet->preferred);
        frame_end(frame);
    }
}

void puppet_wish(struct puppet *puppet)
{
    struct frame frame;

    frame_init(&frame, MSG_WISH);
    put_aware(puppet, &frame);
    puppet_send(puppet, &frame);
}

void puppet_say(struct puppet *puppet)
{
    struct frame frame;

    frame_init(&frame, MSG_STATUS);
    if (puppet->objective) {
        frame_string(&frame, "objective", puppet->objective);
        frame_u64(&frame, "slice_ns", 1000000);
    }
    put_vdevs(puppet, &frame);
    frame_array(&frame, "ready");
    if (puppet->ready[0]) {
        frame_map(&frame, NULL);
        frame_string(&frame, "device", puppet->ready);
        frame_u64(&frame, "behind", puppet->behind);
        frame_end(&frame);
    }
    frame_end(&frame);
    frame_map(&frame, "protect");
    frame_bool(&frame, "seeks", puppet->vdevs[0].seeks);
    frame_end(&frame);
    put_loss(&puppet->vdevs[0], &frame);
    frame_array(&frame, "whole");
    for (unsigned i = 0; puppet->whole && i < PUPPET_WHOLE; i++) {
        frame_map(&frame, NULL);
        frame_string(&frame, "kernel", puppet->whole);
        frame_string(&frame, "reason", "it uses a pipe");
        frame_end(&frame);
    }
    frame_end(&frame);
    puppet_send(puppet, &frame);
}

void puppet_need(struct puppet *puppet, unsigned vdev, uint64_t bytes, bool failed)
{
    struct frame frame;
    static uint64_t id;

    frame_init(&frame, MSG_NEED);
    frame_u64(&frame, "id", ++id);
    frame_u64(&frame, "vdev", vdev);
    uint64_t granted = 0;
    for (unsigned i = 0; i < puppet->vdev_count; i++) {
        granted += strcmp(puppet->vdevs[i].device, puppet->vdevs[vdev].device) == 0
                       ? puppet->vdevs[i].granted
                       : 0;
    }
    frame_u64(&frame, "total", bytes < UINT64_MAX - granted ? granted + bytes : UINT64_MAX);
    frame_bool(&frame, "owns", puppet->launches);
    frame_u64(&frame, "least", puppet->vdevs[vdev].least);
    frame_u64(&frame, "wanted", puppet->vdevs[vdev].granted + bytes);
    frame_bool(&frame, "failed", failed);
    puppet_send(puppet, &frame);
}

void puppet_return(struct puppet *puppet, unsigned vdev, uint64_t bytes)
{
    struct frame frame;

    puppet->vdevs[vdev].granted -= bytes;
    frame_init(&frame, MSG_RETURN);
    frame_u64(&frame, "vdev", vdev);
    frame_u64(&frame, "bytes", bytes);
    puppet_send(puppet, &frame);
}

static void say_hello(int fd, const char *role, const struct puppet *puppet, bool again)
{
    struct frame frame;

    frame_init(&frame, MSG_HELLO);
    frame_u64(&frame, "version", PROTOCOL_VERSION);
    frame_string(&frame, "role", role);
    frame_string(&frame, "name", puppet->name);
    frame_string(&frame, "id", puppet->id);
    frame_string(&frame, "program", puppet->name);
    put_aware(puppet, &frame);
    if (again)
        put_vdevs(puppet, &frame);
    cr_assert(harness_tell(fd, &frame));
}

static unsigned ways_of(const char *letters)
{
    unsigned ways = 0;

    for (; *letters; letters++) {
        ways |= *letters == 'u'   ? POLICY_UPGRADE
                : *letters == 'p' ? POLICY_SPILL
                : *letters == 'w' ? POLICY_WAIT
                                  : POLICY_SUSPEND;
    }
    return ways;
}

static void enroll(struct puppet *puppet, const struct puppet_kind *kind)
{
    struct frame_reader reader;
    const msgpack_object *devices;
    struct message message;
    struct frame frame;
    int fd = connection(puppet);

    frame_reader_init(&reader);
    say_hello(fd, "client", puppet, false);
    cr_assert(harness_hear(fd, &reader, &message, SOON_MS));
    message_finish(&message);
    frame_init(&frame, MSG_REGISTER);
    frame_string(&frame, "name", puppet->name);
    frame_bool(&frame, "named", true);
    frame_u64(&frame, "count", puppet->vdev_count);
    frame_array(&frame, "devices");
    for (unsigned i = 0; kind->device && i < puppet->vdev_count; i++)
        frame_string(&frame, NULL, strchr(puppet->vdevs[i].device, ':') + 1);
    frame_end(&frame);
    frame_array(&frame, "environment");
    char variable[512];
    snprintf(variable, sizeof(variable), "POCL_FAKE_DEVICES=%s", getenv("POCL_FAKE_DEVICES"));
    frame_string(&frame, NULL, variable);
    frame_end(&frame);
    if (kind->priority)
        frame_string(&frame, "priority", kind->priority);
    if (kind->preemptible)
        frame_bool(&frame, "preemptible", true);
    if (kind->ways)
        frame_u64(&frame, "ways", ways_of(kind->ways));
    if (kind->quota)
        frame_u64(&frame, "quota", kind->quota);
    cr_assert(harness_tell(fd, &frame));
    cr_assert(harness_hear(fd, &reader, &message, SOON_MS));
    cr_assert(field_is(&message.root, "type", MSG_REGISTER), "%s is not registered", puppet->name);
    field_string(&message.root, "id", puppet->id, sizeof(puppet->id));
    if (field_array(&message.root, "devices", &devices))
        object_string(devices, puppet->start, sizeof(puppet->start));
    message_finish(&message);
    frame_reader_finish(&reader);
    close(fd);
}

static void greet(struct puppet *puppet, bool again)
{
    const msgpack_object *grants;
    struct message message;

    puppet->fd = connection(puppet);
    frame_reader_init(&puppet->reader);
    say_hello(puppet->fd, "program", puppet, again);
    cr_assert(harness_hear(puppet->fd, &puppet->reader, &message, SOON_MS));
    cr_assert(field_is(&message.root, "type", MSG_WELCOME));
    size_t count = field_array(&message.root, "grants", &grants);
    for (size_t i = 0; i < count && i < puppet->vdev_count; i++)
        puppet->vdevs[i].granted += grants[i].via.u64;
    message_finish(&message);
    puppet_say(puppet);
}

struct puppet *puppet_start(const char *name, const struct puppet_kind *kind)
{
    struct puppet *puppet = calloc(1, sizeof(*puppet));
    int ends[2];
    unsigned slot = 0;

    while (slot < PUPPETS_MAX && all[slot])
        slot++;
    cr_assert(puppet && slot < PUPPETS_MAX);
    all[slot] = puppet;
    puppet->fd = -1;
    puppet->move = RESULT_DONE;
    snprintf(puppet->name, sizeof(puppet->name), "%s", name);
    puppet->vdev_count = kind->second ? 2 : 1;
    puppet->aware = kind->minimum || kind->preferred;
    puppet->minimum = kind->minimum ? *kind->minimum : (struct reseat_limits){0};
    puppet->preferred = kind->preferred ? *kind->preferred : (struct reseat_limits){0};
    snprintf(puppet->vdevs[0].device, sizeof(puppet->vdevs[0].device), "%s",
             kind->device ? kind->device : "gpu:one");
    if (kind->second)
        snprintf(puppet->vdevs[1].device, sizeof(puppet->vdevs[1].device), "%s", kind->second);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    fflush(NULL);
    puppet->pid = fork();
    cr_assert_geq(puppet->pid, 0);
    if (puppet->pid == 0)
        process(ends[1]);
    close(ends[1]);
    puppet->process = ends[0];
    enroll(puppet, kind);
    greet(puppet, false);
    return puppet;
}

void puppet_hang_up(struct puppet *puppet)
{
    if (puppet->fd >= 0) {
        close(puppet->fd);
        frame_reader_finish(&puppet->reader);
    }
    puppet->fd = -1;
}

void puppet_connect(struct puppet *puppet)
{
    puppet_hang_up(puppet);
    greet(puppet, true);
}

void puppet_kill(struct puppet *puppet)
{
    for (unsigned i = 0; i < PUPPETS_MAX; i++) {
        if (all[i] && all[i] == puppet) {
            all[i] = NULL;
            kill(puppet->pid, SIGKILL);
            harness_wait(puppet->pid);
            puppet_hang_up(puppet);
            close(puppet->process);
            free(puppet);
            return;
        }
    }
}

void puppet_finish_all(void)
{
    for (unsigned i = 0; i < PUPPETS_MAX; i++)
        if (all[i])
            puppet_kill(all[i]);
}

void puppets_begin(const char *devices)
{
    harness_init();
    setenv("RESEAT_AUTOMATIC", "no", 1);
    setenv("POCL_FAKE_DEVICES", devices, 1);
}

void puppets_finish(void)
{
    puppet_finish_all();
    harness_finish();
}

/* ---- what it is told ---- */

void puppet_measured(struct puppet *puppet, const char *name, const char *device, uint64_t items,
                     uint64_t ns)
{
    char key[DEVICE_KEY_TEXT_MAX], id[33];
    struct frame frame;

    key_of(device, key);
    unsigned hash = 0;
    for (const char *letter = name; *letter; letter++)
        hash = hash * 31 + (unsigned char)*letter;
    snprintf(id, sizeof(id), "%032x", hash);
    frame_init(&frame, MSG_COSTS);
    frame_array(&frame, "samples");
    frame_map(&frame, NULL);
    frame_string(&frame, "id", id);
    frame_string(&frame, "name", name);
    frame_string(&frame, "device", key);
    frame_u64(&frame, "items", items);
    frame_u64(&frame, "ns", ns);
    frame_u64(&frame, "busy_ns", ns);
    frame_end(&frame);
    frame_end(&frame);
    puppet_send(puppet, &frame);
}

/** "kind:name" of a key. */
static void device_of(const char *text, char *ret, size_t size)
{
    struct device_key key;

    cr_assert_eq(device_key_parse(text, &key), 0, "%s", text);
    snprintf(ret, size, "%s:%s", key.uuid[0] ? "gpu" : "cpu", key.device);
}

static void go(struct puppet *puppet, struct puppet_vdev *vdev, const msgpack_object *map)
{
    char key[DEVICE_KEY_TEXT_MAX];

    if (field_is(map, "type", MSG_SUSPEND)) {
        vdev->suspended = true;
        vdev->granted = vdev->held = 0;
        puppet->suspends++;
        return;
    }
    if (field_is(map, "type", MSG_PREWARM)) {
        bool drops = field_bool(map, "drop", false);
        field_string(map, "device", puppet->ready, sizeof(puppet->ready));
        puppet->ready[0] = drops ? '\0' : puppet->ready[0];
        puppet->behind = 0;
        puppet->drops += drops;
        puppet->prewarms += !drops;
        return;
    }
    puppet->ready[0] = '\0';
    vdev->suspended = vdev->lost = vdev->seeks = false;
    if (field_string(map, "device", key, sizeof(key)) && key[0])
        device_of(key, vdev->device, sizeof(vdev->device));
    vdev->granted = field_u64(map, "grant", 0);
    vdev->held = vdev->wanted < vdev->granted ? vdev->wanted : vdev->granted;
    vdev->spilled = vdev->wanted - vdev->held;
    if (vdev->loses_again) {
        vdev->loses_again = false;
        vdev->losses_before++;
        vdev->lost = vdev->seeks = true;
    }
    puppet->moves += field_is(map, "type", MSG_MOVE);
    puppet->resumes += field_is(map, "type", MSG_RESUME);
}

static void report(struct puppet *puppet, const msgpack_object *map)
{
    uint64_t which = field_u64(map, "vdev", UINT64_MAX);
    bool again = puppet->outgrows != 0 && field_get(map, "wanted");
    bool done = !again && strcmp(puppet->move, RESULT_DONE) == 0;
    bool dry = field_bool(map, "dry_run", false);
    struct frame frame;

    puppet->last_grant = field_u64(map, "grant", 0);
    (void)field_string(map, "manner", puppet->manner, sizeof(puppet->manner));
    if (again) {
        puppet->outgrows--;
        puppet->vdevs[0].wanted += puppet->more;
        puppet->vdevs[0].held += puppet->more;
    }
    for (unsigned i = 0; i < puppet->vdev_count; i++)
        if (done && !dry && (which == UINT64_MAX || which == i))
            go(puppet, &puppet->vdevs[i], map);
    puppet_say(puppet);
    if (done && !dry) { /* Its last phase, whatever it was asked for. */
        frame_init(&frame, MSG_PROGRESS);
        frame_u64(&frame, "request", field_u64(map, "request", 0));
        frame_string(&frame, "phase", "resume");
        puppet_send(puppet, &frame);
    }
    frame_init(&frame, MSG_REPORT);
    frame_u64(&frame, "request", field_u64(map, "request", 0));
    frame_string(&frame, "result", again ? RESULT_AGAIN : puppet->move);
    frame_string(&frame, "reached", "plan");
    frame_string(&frame, "reason", done ? "" : "local memory: 64 KiB used, 32 KiB offered");
    frame_u64(&frame, "bytes", done ? PUPPET_COPIED : 0);
    frame_bool(&frame, "lasting", !done && puppet->lasting);
    puppet->refusals += !done;
    puppet_send(puppet, &frame);
}

static void shrink(struct puppet *puppet, const msgpack_object *map)
{
    struct puppet_vdev *vdev = &puppet->vdevs[field_u64(map, "vdev", 0)];
    uint64_t bytes = field_u64(map, "bytes", 0);
    uint64_t gives = vdev->granted > bytes && !puppet->stubborn ? vdev->granted - bytes : 0;

    puppet->shrinks++;
    if (vdev->held > vdev->granted - gives)
        vdev->held = vdev->granted - gives;
    vdev->spilled = vdev->wanted > vdev->held ? vdev->wanted - vdev->held : 0;
    puppet_return(puppet, (unsigned)field_u64(map, "vdev", 0), gives);
    if (!puppet->greedy)
        puppet_say(puppet);
}

static void take_notice(struct puppet *puppet, const msgpack_object *map)
{
    struct puppet_notice *notice = &puppet->notice;

    field_string(map, "what", notice->what, sizeof(notice->what));
    field_string(map, "text", notice->text, sizeof(notice->text));
    notice->vdev = field_u64(map, "vdev", UINT64_MAX);
    notice->in_ns = field_u64(map, "in_ns", 0);
    notice->value = field_u64(map, "value", 0);
    puppet->notices++;
}

static void take_power(struct puppet *puppet, const msgpack_object *map)
{
    struct frame frame;

    puppet->power_told++;
    puppet->granted_power = field_bool(map, "granted", false);
    frame_init(&frame, MSG_POWER);
    frame_u64(&frame, "turn", field_u64(map, "turn", 0));
    frame_bool(&frame, "runs", puppet->granted_power);
    frame_bool(&frame, "wants", !puppet->granted_power);
    puppet_send(puppet, &frame);
}

/* The power of the one kernel that it measured. */
static void take_costs(struct puppet *puppet, const msgpack_object *map)
{
    const msgpack_object *items;
    size_t count = field_array(map, "powers", &items);
    char key[DEVICE_KEY_TEXT_MAX], own[DEVICE_KEY_TEXT_MAX];

    key_of(puppet->vdevs[0].device, own);
    puppet->powers_told++;
    puppet->idle_mw = field_u64(map, "idle_mw", 0);
    puppet->drawn[0] = puppet->drawn[1] = 0;
    for (size_t i = 0; i < count; i++)
        if (field_string(&items[i], "device", key, sizeof(key)))
            puppet->drawn[strcmp(key, own) != 0] = field_u64(&items[i], "power_mw", 0);
}

static void obey(struct puppet *puppet, const msgpack_object *map)
{
    if (field_is(map, "type", MSG_GRANT)) {
        puppet->vdevs[field_u64(map, "vdev", 0)].granted += field_u64(map, "bytes", 0);
        puppet->grants++;
    } else if (field_is(map, "type", MSG_ANSWER)) {
        field_string(map, "way", puppet->way, sizeof(puppet->way));
        field_string(map, "reason", puppet->reason, sizeof(puppet->reason));
        puppet->answers++;
    } else if (field_is(map, "type", MSG_ALIVE)) {
        puppet->alive++;
    } else if (field_is(map, "type", MSG_NOTICE)) {
        take_notice(puppet, map);
    } else if (field_is(map, "type", MSG_SHRINK)) {
        shrink(puppet, map);
    } else if (field_is(map, "type", MSG_POWER)) {
        take_power(puppet, map);
    } else if (field_is(map, "type", MSG_COSTS)) {
        take_costs(puppet, map);
    } else if (field_is(map, "type", MSG_QUERY)) {
        puppet_say(puppet);
    } else if ((field_is(map, "type", MSG_MOVE) || field_is(map, "type", MSG_SUSPEND) ||
                field_is(map, "type", MSG_RESUME) || field_is(map, "type", MSG_PREWARM)) &&
               puppet->move) {
        report(puppet, map);
    }
}

static bool puppets_run_until(bool (*done)(void *data), void *data, int64_t until)
{
    for (;;) {
        bool quiet = true;
        for (unsigned i = 0; i < PUPPETS_MAX; i++) {
            struct message message;
            while (all[i] && !all[i]->stopped && all[i]->fd >= 0 &&
                   harness_hear(all[i]->fd, &all[i]->reader, &message, 0)) {
                obey(all[i], &message.root);
                message_finish(&message);
                quiet = false;
            }
            struct pollfd polled = {.fd = all[i] && !all[i]->stopped ? all[i]->fd : -1,
                                    .events = POLLIN};
            char bytes[8192];
            if (poll(&polled, 1, 0) == 1) {
                ssize_t count = recv(polled.fd, bytes, sizeof(bytes), MSG_DONTWAIT);
                if (count > 0) {
                    cr_assert_eq(frame_reader_feed(&all[i]->reader, bytes, (size_t)count), 0);
                    quiet = false;
                }
            }
        }
        if (done(data))
            return true;
        if (clock_now_ms() >= until)
            return false;
        if (quiet)
            usleep(2000);
    }
}

bool puppets_run(bool (*done)(void *data), void *data, unsigned ms)
{
    return puppets_run_until(done, data, clock_now_ms() + patience(ms));
}

static bool never(void *data)
{
    (void)data;
    return false;
}

void puppets_for(unsigned ms)
{
    (void)puppets_run_until(never, NULL, clock_now_ms() + ms);
}

void puppets_limit(const char *what, const char *memory)
{
    harness_ends(PUPPETS_RESEAT("limit", what, memory ? "--memory" : "--off", memory), 0);
}
