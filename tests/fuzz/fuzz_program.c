#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "state/command/power.h"
#include "state/image/checkpoint.h"
#include "state/image/snapshot.h"
#include "state/image/stored.h"
#include "state/move/elastic.h"
#include "state/move/move.h"
#include "state/move/status.h"
#include "state/recovery/protect.h"
#include "tests/fuzz/fuzz.h"

/*
 * The program's end of the control connection, with whatever an agent may say to it: the input is
 * what comes from the socket. The real control.c, on a pair of sockets and on this thread alone:
 * what it would start as a thread is run at once.
 */

#include "interpose/control/control.c" /* NOLINT(bugprone-suspicious-include) */

#define SIZE_MAX_INPUT 60000 /* What both sockets hold. */

static bool no_threads;
static unsigned moves_run;

int thread_start(const char *name, size_t stack, void *(*run)(void *), void *data,
                 pthread_t *ret_thread)
{
    (void)name, (void)stack, (void)ret_thread;
    if (no_threads)
        return -EAGAIN;
    run(data);
    return 0;
}

int thread_stay_all(uint64_t deadline_ns)
{
    (void)deadline_ns;
    return 0;
}

/* ---- the engine ---- */

enum { VDEVS_HERE = 2 };

static struct vdev_status vdevs[VDEVS_HERE];

static void use_key(const struct device_key *key)
{
    EXPECT(strnlen(key->icd, sizeof(key->icd)) < sizeof(key->icd) && key->icd[0]);
    EXPECT(strnlen(key->platform, sizeof(key->platform)) < sizeof(key->platform));
    EXPECT(strnlen(key->device, sizeof(key->device)) < sizeof(key->device) && key->device[0]);
    EXPECT(strnlen(key->uuid, sizeof(key->uuid)) < sizeof(key->uuid));
    EXPECT(strnlen(key->pci, sizeof(key->pci)) < sizeof(key->pci));
}

bool move_await_start(uint64_t deadline_ns, struct move_report *ret_report)
{
    (void)deadline_ns, (void)ret_report;
    return true;
}

void move_run(const struct move_request *request, struct move_report *ret_report)
{
    struct move_progress progress = {MOVE_COPY, 1, 2};
    struct move_report report = {.reached = MOVE_RESUME, .bytes = request->deadline_ns};
    moves_run++;
    if (request->target)
        use_key(request->target);
    request->progress(request->data, &progress);
    if (atomic_load(request->cancel)) {
        report.result = MOVE_CANCELED;
    } else if (request->dry_run) {
        report.result = MOVE_REFUSED;
        memset(report.reason, '\n', sizeof(report.reason) - 1);
    } else {
        EXPECT(request->vdev < VDEVS_HERE);
        struct vdev_status *vdev = &vdevs[request->vdev];
        vdev->suspended = request->target == NULL;
        if (request->target)
            vdev->device = *request->target;
        vdev->moves++;
    }
    *ret_report = report;
}

int move_cool(const struct device_key *target, uint64_t deadline_ns)
{
    (void)deadline_ns;
    if (target)
        use_key(target);
    return target ? 0 : -ENOENT;
}

/* What goes to an image is asked for by a path. */
void stored_put(const struct image_request *request, struct image_report *ret_report)
{
    EXPECT(request->folder[0] == '/' && strlen(request->folder) < PATH_MAX);
    *ret_report = (struct image_report){.result = MOVE_ROLLED_BACK};
    memset(ret_report->reason, '\n', sizeof(ret_report->reason) - 1);
}

int park_begin(uint64_t deadline_ns, char *ret_reason, size_t size)
{
    (void)deadline_ns;
    memset(ret_reason, '\n', size - 1);
    ret_reason[size - 1] = '\0';
    return -EBUSY;
}

void park_end(void)
{
    EXPECT(!"it was not parked");
}

void checkpoint_make(const struct image_request *request, struct image_report *ret_report)
{
    EXPECT(request->folder[0] == '/' && strlen(request->folder) < PATH_MAX);
    *ret_report = (struct image_report){.result = MOVE_DONE};
    memset(ret_report->image, 'i', sizeof(ret_report->image) - 1);
}

void checkpoint_end(void)
{
}

uint64_t stored_bytes(void)
{
    return UINT64_MAX;
}

static bool is_protected;

int protect_begin(const struct protect_settings *settings)
{
    EXPECT(settings->interval_ns <= PROTECTION_SECONDS_MAX * NS_PER_S);
    EXPECT(settings->interval_ns == 0 || settings->bytes == 0);
    is_protected = true;
    return no_threads ? -EAGAIN : 0;
}

void protect_end(void)
{
    is_protected = false;
}

int protect_snapshot(const struct snapshot_request *wanted, struct snapshot_report *ret_report)
{
    (void)wanted;
    *ret_report = (struct snapshot_report){.error = -EPERM};
    memset(ret_report->reason, '\n', sizeof(ret_report->reason) - 1);
    return ret_report->error;
}

void protect_forget(void)
{
}

const char *recovery_state_text(enum recovery_state state)
{
    EXPECT(state == RECOVERY_RUNNING);
    return "";
}

void protect_read(struct protect_status *ret_status)
{
    *ret_status = (struct protect_status){.on = is_protected, .broken = "", .at_ns = UINT64_MAX};
}

void power_set(bool capped, uint64_t grant_ns)
{
    (void)capped, (void)grant_ns;
}

void power_read(struct power_state *ret_state)
{
    *ret_state = (struct power_state){.runs = true};
}

void power_set_waker(void (*wake)(void))
{
    (void)wake;
}

void lost_last(struct loss *ret_loss)
{
    static const struct device device;

    *ret_loss = (struct loss){.count = UINT64_MAX, .device = &device, .reason = ""};
}

uint32_t status_whole(struct pace_refusal ret_whole[STATUS_WHOLE_MAX])
{
    ret_whole[0] = (struct pace_refusal){.reason = ""};
    return 1;
}

int elastic_set(const struct device_key *devices, size_t count)
{
    for (size_t i = 0; i < count; i++)
        use_key(&devices[i]);
    return count > 1 ? -ENOTSUP : 0;
}

void status_spread(struct spread_status *ret_status)
{
    *ret_status = (struct spread_status){UINT64_MAX, 1, UINT64_MAX};
}

uint32_t status_ready(struct ready_status ret_ready[STATUS_READY_MAX])
{
    ret_ready[0] = (struct ready_status){.device = vdevs[0].device, .behind = UINT32_MAX};
    return vdevs[0].device.icd[0] ? 1 : 0;
}

const char *move_phase_name(enum move_phase phase)
{
    return phase == MOVE_COPY ? "copy" : "other";
}

uint64_t status_host_need(void)
{
    return 0;
}

void status_vdev(uint32_t index, struct vdev_status *ret_status)
{
    EXPECT(index < PROTOCOL_VDEVS_MAX);
    *ret_status = index < VDEVS_HERE ? vdevs[index] : (struct vdev_status){0};
}

uint32_t status_vdev_count(void)
{
    return VDEVS_HERE;
}

/* What was granted and was not given back, modulo 2^64. */
static uint64_t granted[PROTOCOL_VDEVS_MAX];
static bool limited[PROTOCOL_VDEVS_MAX];

void budget_set_policy(enum budget_answer (*ask)(const struct budget_need *need))
{
    EXPECT(ask != NULL);
}

void budget_grant(uint32_t vdev, uint64_t bytes)
{
    EXPECT(vdev < PROTOCOL_VDEVS_MAX);
    granted[vdev] += bytes;
    limited[vdev] = true;
}

uint64_t budget_shrink(uint32_t vdev, uint64_t bytes)
{
    EXPECT(vdev < PROTOCOL_VDEVS_MAX);
    uint64_t gone = granted[vdev] > bytes ? granted[vdev] - bytes : 0;
    granted[vdev] -= gone;
    return gone;
}

uint64_t budget_slack(uint32_t vdev)
{
    EXPECT(vdev < PROTOCOL_VDEVS_MAX);
    return 0;
}

void budget_read(uint32_t vdev, struct budget_use *ret_use)
{
    EXPECT(vdev < PROTOCOL_VDEVS_MAX);
    *ret_use = (struct budget_use){.granted = granted[vdev], .limited = limited[vdev]};
}

/* ---- a program that registered ---- */

void aware_wish(struct aware_wish *ret_wish)
{
    *ret_wish = (struct aware_wish){.edition = moves_run, .registered = moves_run % 2 == 1};
}

void aware_notice(uint32_t what, uint32_t vdev, uint64_t in_ns, uint64_t value, const char *text)
{
    (void)in_ns;
    (void)value;
    EXPECT(what >= RESEAT_DEVICE_ADDED && what <= RESEAT_QUOTA);
    EXPECT(vdev < PROTOCOL_VDEVS_MAX || vdev == UINT32_MAX);
    EXPECT(strlen(text) < PROTOCOL_TEXT_MAX);
}

/* ---- the agent ---- */

struct seen {
    unsigned asked;           /* moves, suspends and resumes after the welcome */
    unsigned reports, others; /* frames of the program */
};

/* What the program is to make of the same bytes. */
static void expect_from(const uint8_t *data, size_t size, struct seen *seen)
{
    struct frame_reader reader;
    struct message message;
    bool welcome = false, broken = false;
    frame_reader_init(&reader);
    EXPECT(frame_reader_feed(&reader, data, size) == 0);
    while (!broken && frame_reader_next(&reader, &message) == 1) {
        bool request = field_is(&message.root, "type", MSG_MOVE) ||
                       field_is(&message.root, "type", MSG_SUSPEND) ||
                       field_is(&message.root, "type", MSG_RESUME) ||
                       field_is(&message.root, "type", MSG_PREWARM);
        if (field_is(&message.root, "type", MSG_WELCOME))
            welcome = true;
        else if (!welcome)
            broken = true;
        else if (request)
            seen->asked++;
        message_finish(&message);
    }
    frame_reader_finish(&reader);
}

static void hear(int fd, struct seen *seen)
{
    struct frame_reader reader;
    struct message message;
    char bytes[65536];
    ssize_t count;
    frame_reader_init(&reader);
    while ((count = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
        EXPECT(frame_reader_feed(&reader, bytes, (size_t)count) == 0);
    int got;
    while ((got = frame_reader_next(&reader, &message)) == 1) {
        char reason[PROTOCOL_TEXT_MAX];
        bool report = field_is(&message.root, "type", MSG_REPORT);
        seen->reports += report;
        seen->others += !report;
        EXPECT(!report || field_string(&message.root, "reason", reason, sizeof(reason)));
        EXPECT(!report || field_get(&message.root, "request"));
        message_finish(&message);
    }
    EXPECT(got == 0);
    frame_reader_finish(&reader);
}

static void converse(struct link *link, int agent, const uint8_t *data, size_t size,
                     struct seen *seen)
{
    size_t sent = 0;
    while (wire_is_open(&link->wire) && sent < size) {
        size_t most = size - sent < 16384 ? size - sent : 16384;
        ssize_t count = send(agent, data + sent, most, MSG_DONTWAIT | MSG_NOSIGNAL);
        EXPECT(count > 0);
        sent += (size_t)count;
        control_link_receive(link);
        control_serve_jobs(link);
        if (wire_is_open(&link->wire) && link->welcome)
            control_send_status(link);
        if (wire_is_open(&link->wire) && link->welcome)
            control_budget_serve(false, link, control_send_frame);
        hear(agent, seen);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct link *link = &control.link;
    struct input input = {data, size < SIZE_MAX_INPUT ? size : SIZE_MAX_INPUT};
    struct seen wanted = {0}, seen = {0};
    int ends[2];
    uint8_t flags = input_byte(&input);

    no_threads = flags & 1;
    moves_run = 0;
    for (size_t i = 0; i < VDEVS_HERE; i++)
        vdevs[i] = (struct vdev_status){.contexts = 1};
    *link = (struct link){.wire.socket = OWNED_NONE};
    control.device_count = 0;
    control.resolved = false;
    control.connection++;
    control_budget_start(control_wake_thread);
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    link->wire.socket = owned_of(ends[0]);
    frame_reader_init(&link->wire.reader);
    msgpack_sbuffer_init(&link->wire.out);

    expect_from(input.at, input.left, &wanted);
    converse(link, ends[1], input.at, input.left, &seen);
    /* Every request is answered exactly once, while there is somebody to answer to. */
    if (wire_is_open(&link->wire))
        EXPECT(seen.reports == wanted.asked);
    EXPECT(seen.reports <= wanted.asked);
    EXPECT(moves_run <= wanted.asked * VDEVS_HERE && (!no_threads || moves_run == 0));
    EXPECT(control.job_count == 0 && !control.jobs);
    EXPECT(control.device_count <= PROTOCOL_VDEVS_MAX);
    for (size_t i = 0; i < control.device_count; i++)
        use_key(&control.devices[i]);
    control_link_drop(link);
    close(ends[1]);
    return 0;
}
