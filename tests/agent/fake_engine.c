#include "tests/agent/fake_engine.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/protocol/protocol.h"
#include "interpose/aware/aware.h"
#include "interpose/control/control.h"
#include "state/base/memory/pages.h"
#include "state/base/span.h"
#include "state/base/threads/work.h"
#include "state/command/power.h"
#include "state/image/checkpoint.h"
#include "state/image/lease_renewer.h"
#include "state/image/park.h"
#include "state/image/snapshot.h"
#include "state/image/stored.h"
#include "state/move/elastic.h"
#include "state/move/status.h"
#include "state/object/lost.h"
#include "state/recovery/protect.h"

#define TOTAL_BYTES (64u << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t started = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t one_move = PTHREAD_MUTEX_INITIALIZER;
static struct vdev_status vdevs[PROTOCOL_VDEVS_MAX];
static uint32_t vdev_count;
static struct ready_status ready[STATUS_READY_MAX];
static uint32_t ready_count;
static uint64_t spread_sets; /* how often it was told where launches are done */

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* It always has launches to give, which end at once. */
static struct power_state power;

void power_set(bool capped, uint64_t grant_ns)
{
    pthread_mutex_lock(&lock);
    power = (struct power_state){.runs = grant_ns != 0, .wants = capped && grant_ns == 0};
    pthread_mutex_unlock(&lock);
}

void power_read(struct power_state *ret_state)
{
    pthread_mutex_lock(&lock);
    *ret_state = power;
    pthread_mutex_unlock(&lock);
}

void power_set_waker(void (*wake)(void))
{
    (void)wake;
}

static struct protect_status protection;

/* Where the agent is there and says nothing it has some time to do so, as the engine has. */
static void *seek(void *unused)
{
    (void)unused;
    unsigned alone = 0;

    for (bool seeks = true; seeks && alone < 20; usleep(20000)) {
        bool found = control_agent_chooses();
        pthread_mutex_lock(&lock);
        seeks = protection.recovery == RECOVERY_CHOOSING;
        pthread_mutex_unlock(&lock);
        alone = found ? 0 : alone + 1;
    }
    pthread_mutex_lock(&lock);
    if (protection.recovery == RECOVERY_CHOOSING)
        (void)!snprintf(vdevs[0].device.device, sizeof(vdevs[0].device.device), "its own choice");
    protection.recovery = RECOVERY_RUNNING;
    pthread_mutex_unlock(&lock);
    return NULL;
}

void fake_engine_start(const struct device_key *devices, uint32_t count)
{
    pthread_mutex_lock(&lock);
    vdev_count = count;
    for (uint32_t i = 0; i < count; i++) {
        vdevs[i].device = devices[i];
        vdevs[i].device_bytes = TOTAL_BYTES;
        vdevs[i].contexts = 1;
        vdevs[i].queues = 2;
    }
    bool seeks = getenv("FAKE_SEEKS") != NULL;
    protection.recovery = seeks ? RECOVERY_CHOOSING : RECOVERY_RUNNING;
    pthread_cond_broadcast(&started);
    pthread_mutex_unlock(&lock);
    pthread_t thread;
    if (seeks && pthread_create(&thread, NULL, seek, NULL) == 0)
        pthread_detach(thread);
}

bool move_await_start(uint64_t deadline_ns, struct move_report *ret_report)
{
    (void)deadline_ns, (void)ret_report; /* no test waits that long */
    pthread_mutex_lock(&lock);
    while (vdev_count == 0)
        pthread_cond_wait(&started, &lock);
    pthread_mutex_unlock(&lock);
    return true;
}

static enum move_result end_of(const struct move_request *request, const char *how,
                               struct move_report *report)
{
    unsigned steps = 10;
    const char *colon = strchr(how, ':');
    unsigned step_us = (colon ? (unsigned)atoi(colon + 1) : 50) * 1000 / steps;
    bool late = strncmp(how, "late", 4) == 0, adjusted = strncmp(how, "adjusted", 8) == 0;
    bool slow = strncmp(how, "slow", 4) == 0 || late || adjusted;
    const struct move_change *change = request->change;

    /* "fail1": only virtual device 1. */
    if (strncmp(how, "fail", 4) == 0 && how[4] >= '0' && how[4] <= '9' &&
        request->vdev != (uint32_t)(how[4] - '0'))
        how = "done";

    if (strncmp(how, "failtwo", 7) == 0 &&
        (!request->target || strcmp(request->target->device, "Fake two") != 0))
        how = "done";

    /* "strand": what is suspended stays so. */
    if (strncmp(how, "strand", 6) == 0 && vdevs[request->vdev].suspended)
        how = "fail";

    if (strncmp(how, "refuse", 6) == 0) {
        snprintf(report->reason, sizeof(report->reason), "work-group size: 1024 used, 256 offered");
        return MOVE_REFUSED;
    }
    if (strncmp(how, "pinned", 6) == 0) {
        snprintf(report->reason, sizeof(report->reason),
                 "the program is pinned to its device: it uses pipes");
        return MOVE_REFUSED;
    }
    for (unsigned i = 0; i <= steps || slow; i++) {
        struct move_progress progress = {.phase = late    ? MOVE_RESUME
                                                  : i < 3 ? MOVE_PREPARE
                                                          : MOVE_COPY,
                                         .bytes_done = (uint64_t)TOTAL_BYTES * (i % 11) / steps,
                                         .bytes_total = TOTAL_BYTES};
        report->reached = progress.phase;
        if (request->progress)
            request->progress(request->data, &progress);
        if (request->cancel && atomic_load(request->cancel))
            return MOVE_CANCELED;
        if (adjusted && atomic_load(&change->bandwidth) && atomic_load(&change->max_downtime_ns))
            return MOVE_DONE;
        if (request->deadline_ns && now_ns() > request->deadline_ns) {
            snprintf(report->reason, sizeof(report->reason), "the deadline passed");
            return MOVE_EXPIRED;
        }
        if (strncmp(how, "die", 3) == 0 && i == steps / 2)
            _exit(9);
        usleep(step_us ? step_us : 1000);
    }
    if (strncmp(how, "fail", 4) == 0) {
        snprintf(report->reason, sizeof(report->reason), "building\na program failed: -11");
        return MOVE_ROLLED_BACK;
    }
    return MOVE_DONE;
}

static void commit(const struct move_request *request)
{
    struct vdev_status *vdev = &vdevs[request->vdev];

    pthread_mutex_lock(&lock);
    protection.recovery = RECOVERY_RUNNING;
    vdev->suspended = request->target == NULL;
    if (request->target)
        vdev->device = *request->target;
    vdev->device_bytes = request->target ? TOTAL_BYTES : 0;
    vdev->moves++;
    vdev->last_downtime_ns = 12000000;
    vdev->to_fetch = request->fetch == MOVE_FETCH_AUTO ? 0 : 8 << 20;
    vdev->fetched = vdev->to_fetch ? 3 << 20 : 0;
    ready_count = 0;
    pthread_mutex_unlock(&lock);
}

static uint32_t ready_index(const struct device_key *target)
{
    uint32_t i = 0;

    while (i < ready_count && !device_key_equal(&ready[i].device, target))
        i++;
    return i;
}

static void make_ready(const struct device_key *target)
{
    pthread_mutex_lock(&lock);
    uint32_t i = ready_index(target);
    if (i == ready_count && ready_count < STATUS_READY_MAX)
        ready[ready_count++].device = *target;
    pthread_mutex_unlock(&lock);
}

int move_cool(const struct device_key *target, uint64_t deadline_ns)
{
    (void)deadline_ns;
    pthread_mutex_lock(&lock);
    uint32_t before = ready_count, i = target ? ready_index(target) : 0;
    if (!target)
        ready_count = 0;
    else if (i < ready_count)
        ready[i] = ready[--ready_count];
    bool any = ready_count != before;
    pthread_mutex_unlock(&lock);
    return any ? 0 : -ENOENT;
}

/* A folder whose name says so is on a full disk. */
static bool is_full(const char *folder)
{
    return strstr(folder, "full") != NULL;
}

/* As the environment says: a driver that stays, or a word of why it cannot be. */
int driver_may_leave(char *ret_reason, size_t size)
{
    const char *driver = getenv("FAKE_STAYS");
    if (driver)
        (void)!snprintf(ret_reason, size, "the driver %s stays", driver);
    return driver ? -EPERM : 0;
}

int park_begin(uint64_t deadline_ns, char *ret_reason, size_t size)
{
    const char *why = getenv("FAKE_BUSY");
    (void)deadline_ns;
    if (why)
        (void)!snprintf(ret_reason, size, "%s", why);
    return why ? -EBUSY : 0;
}

void park_end(void)
{
}

bool work_is_over(void)
{
    return false;
}

void stored_put(const struct image_request *request, struct image_report *ret_report)
{
    *ret_report = (struct image_report){.bytes = TOTAL_BYTES, .written = 1 << 20};
    if (is_full(request->folder)) {
        ret_report->result = MOVE_ROLLED_BACK;
        (void)!snprintf(ret_report->reason, sizeof(ret_report->reason), "no room in %s",
                        request->folder);
        return;
    }
    ret_report->freed = TOTAL_BYTES;
    (void)!snprintf(ret_report->image, sizeof(ret_report->image), "20260101T000000.000-1");
}

static unsigned checkpoints; /* since the last end */

/* A disk that takes so long that others say something meanwhile. */
static bool is_slow(const char *folder)
{
    return strstr(folder, "slow") != NULL;
}

void checkpoint_make(const struct image_request *request, struct image_report *ret_report)
{
    if (is_slow(request->folder))
        usleep(1500000);
    *ret_report = (struct image_report){.bytes = TOTAL_BYTES,
                                        .total_ns = 5000000,
                                        .downtime_ns = request->move.max_downtime_ns,
                                        .written = checkpoints++,
                                        .copied = request->keeps};
    if (is_full(request->folder)) {
        ret_report->result = MOVE_ROLLED_BACK;
        (void)!snprintf(ret_report->reason, sizeof(ret_report->reason), "no room in %s",
                        request->folder);
        return;
    }
    (void)!snprintf(ret_report->image, sizeof(ret_report->image), "20260101T000000.%03u-2",
                    checkpoints % 1000);
    if (request->keep == 77)
        (void)!snprintf(ret_report->not_removed, sizeof(ret_report->not_removed), "they are used");
}

void checkpoint_end(void)
{
    checkpoints = 0;
}

/* Protection: what was said last is how many bytes the snapshot has, and FAKE_PROTECT is why there
 * can be none. */

int protect_begin(const struct protect_settings *settings)
{
    pthread_mutex_lock(&lock);
    protection.on = true;
    protection.since_ns = now_ns();
    protection.broken = getenv("FAKE_PROTECT");
    protection.snapshot_bytes = settings->bytes ? settings->bytes : settings->interval_ns / 1000;
    pthread_mutex_unlock(&lock);
    return 0;
}

void protect_end(void)
{
    pthread_mutex_lock(&lock);
    protection.on = false;
    pthread_mutex_unlock(&lock);
}

int protect_snapshot(const struct snapshot_request *wanted, struct snapshot_report *ret_report)
{
    (void)wanted;
    *ret_report = (struct snapshot_report){.total_ns = 7000000, .downtime_ns = 3000000};
    pthread_mutex_lock(&lock);
    protection.snapshots++;
    protection.at_ns = now_ns();
    protection.paused_ns += ret_report->downtime_ns;
    pthread_mutex_unlock(&lock);
    return 0;
}

const char *recovery_state_text(enum recovery_state state)
{
    return state == RECOVERY_CHOOSING ? "another device is being chosen" : "";
}

void protect_forget(void)
{
}

void protect_read(struct protect_status *ret_status)
{
    pthread_mutex_lock(&lock);
    *ret_status = protection;
    pthread_mutex_unlock(&lock);
}

/* FAKE_LOSS: one device was lost, and why. */
void lost_last(struct loss *ret_loss)
{
    static const struct device device = {.key = {.icd = "libfake.so", .device = "Fake lost"}};

    *ret_loss = (struct loss){.count = getenv("FAKE_LOSS") ? 1 : 0,
                              .device = &device,
                              .reason = getenv("FAKE_LOSS"),
                              .at_ns = 1};
}

/* FAKE_FENCED: a file; while it is there it cannot run, for what that says. */
void lease_renewer_read(struct lease_renewer_status *ret_status)
{
    const char *path = getenv("FAKE_FENCED");
    FILE *file = path ? fopen(path, "re") : NULL;

    *ret_status = (struct lease_renewer_status){.fenced = file != NULL};
    if (getenv("FAKE_RIGHT")) {
        (void)!snprintf(ret_status->path, sizeof(ret_status->path), "%s", getenv("FAKE_RIGHT"));
        strcpy(ret_status->id, "0123456789abcdef");
    }
    if (file && !fgets(ret_status->problem, sizeof(ret_status->problem), file))
        ret_status->problem[0] = '\0';
    if (file)
        fclose(file);
}

int lease_renewer_follow(const char *path, const char *id)
{
    if (!getenv("FAKE_RIGHT")) {
        printf("right %s %s\n", path, id);
        fflush(stdout);
    }
    return 0;
}

void lease_renewer_restored(void)
{
}

/* FAKE_STORED: what is suspended is in an image. */
uint64_t stored_bytes(void)
{
    pthread_mutex_lock(&lock);
    bool is = getenv("FAKE_STORED") && vdevs[0].suspended;
    pthread_mutex_unlock(&lock);
    return is ? TOTAL_BYTES : 0;
}

uint32_t pace_samples_take(struct pace_sample *ret_samples, uint32_t most)
{
    (void)ret_samples, (void)most;
    return 0;
}

uint32_t status_whole(struct pace_refusal ret_whole[STATUS_WHOLE_MAX])
{
    ret_whole[0] = (struct pace_refusal){"loop\x1bs", "it may wait for another work-group"};
    return 1;
}

/* Devices are made ready as if a launch were spread over them at once. */
int elastic_set(const struct device_key *devices, size_t count)
{
    if (count && !getenv("RESEAT_SLICE"))
        return -ENOTSUP;
    pthread_mutex_lock(&lock);
    ready_count = 0;
    for (size_t i = 0; i < count && i < STATUS_READY_MAX; i++)
        ready[ready_count++] = (struct ready_status){.device = devices[i]};
    spread_sets++;
    pthread_mutex_unlock(&lock);
    return 0;
}

/* With an objective it has run launches on its own device and on the first other one. */
static struct place_status placed_status(void)
{
    static struct device home, other;
    const char *text = getenv("RESEAT_OBJECTIVE");
    struct place_status status = {.objective = 0};

    if (!text || strcmp(text, "energy") != 0)
        return status;
    home.key = vdevs[0].device;
    other.key = ready[0].device;
    status.objective = 1 + SCHEDULE_ENERGY;
    status.stayed = "its power is capped";
    status.counts[0] = (struct place_count){.device = &home, .launches = 1};
    status.counts[1] = (struct place_count){.device = &other, .launches = 30};
    status.count = ready_count ? 2 : 0;
    return status;
}

void status_spread(struct spread_status *ret_status)
{
    const char *slice = getenv("RESEAT_SLICE");

    pthread_mutex_lock(&lock);
    *ret_status =
        (struct spread_status){.slice_ns = slice ? strtoull(slice, NULL, 10) * 1000000 : 0,
                               .launches = spread_sets,
                               .items = 64 * spread_sets,
                               .placed = placed_status()};
    pthread_mutex_unlock(&lock);
}

uint32_t status_ready(struct ready_status ret_ready[STATUS_READY_MAX])
{
    pthread_mutex_lock(&lock);
    uint32_t count = ready_count;
    memcpy(ret_ready, ready, count * sizeof(ready[0]));
    pthread_mutex_unlock(&lock);
    return count;
}

static void put_span(enum span_track track, uint32_t of, const char *name, uint64_t begin_ns,
                     uint64_t end_ns)
{
    struct span span = {.category = "fake",
                        .begin_ns = begin_ns,
                        .end_ns = end_ns,
                        .track = (uint8_t)track,
                        .of = of};

    (void)!snprintf(span.name, sizeof(span.name), "%s", name);
    span_put(&span);
}

/** Chunks and pieces that lie beside each other. */
static void put_spans(uint64_t begin_ns, uint64_t end_ns)
{
    uint64_t middle_ns = begin_ns + (end_ns - begin_ns) / 2;

    for (uint32_t of = 0; of < 2; of++) {
        put_span(SPAN_CHUNK, of << 16, "read", begin_ns, middle_ns);
        put_span(SPAN_CHUNK, of << 16, "write", middle_ns, end_ns);
        put_span(SPAN_CHUNK, of << 16, "chunk", begin_ns, end_ns);
    }
    put_span(SPAN_QUEUE, 7, "piece", begin_ns, middle_ns);
    put_span(SPAN_QUEUE, 7, "piece", begin_ns, end_ns);
    put_span(SPAN_QUEUE, 9, "kernel", begin_ns, end_ns);
    put_span(SPAN_LAUNCH, 9, "launch", begin_ns, end_ns);
}

void move_run(const struct move_request *request, struct move_report *ret_report)
{
    const char *how = getenv("FAKE_MOVE");
    struct move_report report = {.reached = MOVE_PLAN};
    uint64_t begin = now_ns();
    uint64_t whole = span_begin(), part = span_begin();

    if (request->vdev >= vdev_count) {
        *ret_report = (struct move_report){.result = MOVE_REFUSED};
        (void)!snprintf(ret_report->reason, sizeof(ret_report->reason), "no such device");
        return;
    }
    span_end(part, "move", "plan", NULL, 0);
    pthread_mutex_lock(&one_move);
    pthread_mutex_lock(&lock);
    vdevs[request->vdev].moving = true;
    pthread_mutex_unlock(&lock);
    report.result = end_of(request, how ? how : "done", &report);
    if (report.result == MOVE_DONE) {
        report.reached = MOVE_RESUME;
        report.arrived_ns = 13000000;
        report.downtime_ns = 12000000;
        report.bytes = TOTAL_BYTES;
        /* What was asked for, told as what came of it. */
        report.predicted_ns = request->max_downtime_ns;
        report.rounds = (request->strict ? 10 : 20) + (uint32_t)request->fetch;
        report.rounds += request->spreads ? 100 : 0;
        if (request->bandwidth)
            report.bytes = request->bandwidth;
        if (request->change && atomic_load(&request->change->bandwidth)) {
            report.predicted_ns = atomic_load(&request->change->max_downtime_ns);
            report.bytes = atomic_load(&request->change->bandwidth);
        }
        /* "long": it built for long, and then had to wait for a launch. */
        if (how && strncmp(how, "long", 4) == 0) {
            report.built = 9;
            report.build_ns = 12100000000;
            report.downtime_ns = 17700000000;
            report.drain_ns = 17600000000;
            strcpy(report.waited_for, "smooth, sum");
            report.aim_ns = 50000000;
            report.bytes = 0;
        }
        if (request->prewarm)
            make_ready(request->target);
        else if (!request->dry_run)
            commit(request);
    }
    pthread_mutex_lock(&lock);
    vdevs[request->vdev].moving = false;
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&one_move);
    report.total_ns = now_ns() - begin;
    put_spans(begin, begin + report.total_ns);
    span_end(whole, "move", "move", "bytes", report.bytes);
    *ret_report = report;
}

const char *move_phase_name(enum move_phase phase)
{
    static const char *const names[] = {"plan", "prepare", "pause", "copy", "commit", "resume"};

    return names[phase];
}

const char *move_result_name(enum move_result result)
{
    static const char *const names[] = {"done", "rolled back", "refused", "expired", "canceled"};

    return names[result];
}

uint32_t status_vdev_count(void)
{
    pthread_mutex_lock(&lock);
    uint32_t count = vdev_count;
    pthread_mutex_unlock(&lock);
    return count;
}

bool device_key_equal(const struct device_key *a, const struct device_key *b)
{
    return !strcmp(a->device, b->device) && a->ordinal == b->ordinal;
}

/* As a resume does, it gives host memory back. */
uint64_t status_host_need(void)
{
    const size_t size = 16u << 20;
    char *memory = pages_take(size, PAGES_ANY);

    if (memory)
        memset(memory, 1, size);
    pages_give(memory, size);
    return 0;
}

void status_vdev(uint32_t index, struct vdev_status *ret_status)
{
    pthread_mutex_lock(&lock);
    *ret_status = vdevs[index];
    pthread_mutex_unlock(&lock);
}

/* What is granted is kept, and given back when asked; the fake uses what it ever uses. */

void budget_set_policy(enum budget_answer (*ask)(const struct budget_need *need))
{
    (void)ask;
}

void budget_grant(uint32_t vdev, uint64_t bytes)
{
    pthread_mutex_lock(&lock);
    vdevs[vdev].room.limited = true;
    vdevs[vdev].room.granted += bytes;
    pthread_mutex_unlock(&lock);
}

uint64_t budget_shrink(uint32_t vdev, uint64_t bytes)
{
    uint64_t gone = 0;

    pthread_mutex_lock(&lock);
    if (vdevs[vdev].room.granted > bytes) {
        gone = vdevs[vdev].room.granted - bytes;
        vdevs[vdev].room.granted = bytes;
    }
    pthread_mutex_unlock(&lock);
    return gone;
}

uint64_t budget_slack(uint32_t vdev)
{
    (void)vdev;
    return 0;
}

void budget_read(uint32_t vdev, struct budget_use *ret_use)
{
    pthread_mutex_lock(&lock);
    *ret_use = vdevs[vdev].room;
    pthread_mutex_unlock(&lock);
}

/* ---- a program that registered ---- */

static struct aware_wish wish;

void fake_engine_wish(uint64_t memory, uint64_t preferred)
{
    pthread_mutex_lock(&lock);
    wish.edition++;
    wish.registered = preferred != 0;
    wish.minimum = (struct reseat_limits){.memory = memory,
                                          .local_memory = 32768,
                                          .work_group_size = 64,
                                          .features = RESEAT_FP64 | RESEAT_IMAGES};
    wish.preferred = (struct reseat_limits){.memory = preferred, .compute_units = 8};
    pthread_mutex_unlock(&lock);
    control_wake();
}

void aware_wish(struct aware_wish *ret_wish)
{
    pthread_mutex_lock(&lock);
    *ret_wish = wish;
    pthread_mutex_unlock(&lock);
}

void aware_notice(uint32_t what, uint32_t vdev, uint64_t in_ns, uint64_t value, const char *text)
{
    printf("notice %u %d %llu %llu %s\n", what, (int)vdev, (unsigned long long)in_ns,
           (unsigned long long)value, text);
    fflush(stdout);
}

void place_learn_power(const struct place_power *learnt)
{
    printf("power of %s: %llu mW\n", learnt->id, (unsigned long long)learnt->power_mw);
    fflush(stdout);
}

void place_set_idle(uint64_t idle_mw)
{
    (void)idle_mw;
}
