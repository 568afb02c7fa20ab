#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "remote/rings/area.h"
#include "remote/rings/bell.h"
#include "state/base/bytes/text.h"
#include "state/base/clock.h"
#include "state/base/compiler.h"
#include "state/base/files/file.h"
#include "stream/worker/choose.h"
#include "stream/worker/device.h"
#include "stream/worker/tune.h"
#include "stream/worker/worker.h"

/*
 * For measurements, from the environment of `reseat stream serve`:
 *
 * RESEAT_STREAM_TRACE=FILE  a line is appended for each payload of a device's stage that has ended:
 *     STAGE BEGIN_NS END_NS FIRST RECORDS    (write, compute or read; the device's clock)
 * and for payloads that were chosen, in records:
 *     chosen PACK WRITE COMPUTE READ UNPACK
 * RESEAT_STREAM_PAYLOADS=PACK,WRITE,COMPUTE,READ,UNPACK  use these, and choose nothing; or one
 *     number for all.
 */

#define LINE_MAX_BYTES 160

static const char *const names[CHOOSE_STAGES] = {"pack", "write", "compute", "read", "unpack"};

/* One write to a file opened for appending: lines of several workers do not mix. */
static void worker_trace_line(const char *format, ...) PRINTF(1, 2);
static void worker_trace_line(const char *format, ...)
{
    static int fd = -2;
    char line[LINE_MAX_BYTES];
    const char *path = getenv("RESEAT_STREAM_TRACE");
    if (fd == -2)
        fd = path && *path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (length > 0 && length < (int)sizeof(line))
        (void)!write(fd, line, (size_t)length);
}

static void worker_trace_payload(enum choose_stage stage, uint64_t begin_ns, uint64_t end_ns,
                                 uint64_t first, uint64_t records)
{
    worker_trace_line("%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", names[stage],
                      begin_ns, end_ns, first, records);
}

static void worker_trace_chosen(const uint32_t payloads[CHOOSE_STAGES])
{
    worker_trace_line("chosen %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 "\n",
                      payloads[CHOOSE_PACK], payloads[CHOOSE_WRITE], payloads[CHOOSE_COMPUTE],
                      payloads[CHOOSE_READ], payloads[CHOOSE_UNPACK]);
}

/** True if the environment says what to use. */
static bool worker_trace_payloads(uint32_t ret_payloads[CHOOSE_STAGES])
{
    const char *text = getenv("RESEAT_STREAM_PAYLOADS");
    uint32_t last = 0;
    for (size_t i = 0; i < CHOOSE_STAGES; i++) {
        char *end = NULL;
        unsigned long records = text && *text ? strtoul(text, &end, 10) : last;
        if (records == 0 || records > UINT32_MAX)
            return false;
        ret_payloads[i] = last = (uint32_t)records;
        if (end && *end && *end != ',')
            return false;
        if (end)
            text = *end == ',' ? end + 1 : "";
    }
    return true;
}

/*
 * reseat-stream-worker AREA DOORBELL JOB READY: an OpenCL program that makes the answers of one
 * stream. The arguments are descriptors: the area, the socket of its client, the body of OPEN, and
 * a pipe that gets a byte when the kernel is built.
 */

/* Most bytes of the device's rings, and the share of the device's memory that they may be. */
#define RINGS_MOST  (64u << 20)
#define RINGS_SHARE 16
/* How often the bytes around the answers are checked while answers flow. */
#define GUARD_NS (20 * NS_PER_MS)
/* How often commands are looked at while the worker sleeps: drivers report ends late, or never. */
#define LATE_MS 20

struct worker {
    struct stream_description description;
    struct stream_open open;
    struct stream_body job;
    struct stream_area area;
    int doorbell, ready;
    uint64_t sent, taken, answered; /* Ours: the client can write to those in the area. */
    uint64_t guarded_ns;
    struct device device;
    struct choose choose;
    struct tune tune;   /* From when it has chosen. */
    bool told_payloads; /* The environment says which: nothing is chosen. */
    struct bell_spin for_client, for_device;
};

/* ---- set-up ---- */

/* Tell the client why there will be no more answers. Returns the exit status. */
static int worker_fail(struct worker *worker, int error, const char *reason)
{
    /* The reason may have lines of a stranger's kernel. */
    char safe[STREAM_REASON_MAX];
    text_make_safe(safe, sizeof(safe), reason, strlen(reason));
    fprintf(stderr, "reseat-stream-worker: %s\n", safe);
    if (error == -EIO)
        return WORKER_AGAIN;
    stream_area_fail(&worker->area, error, reason, worker->doorbell);
    return WORKER_FAILED;
}

static int worker_read_job(struct worker *worker, int fd)
{
    char problem[STREAM_PROBLEM_MAX];
    int error = file_load(fd, STREAM_FRAME_MAX * 2, &worker->job.bytes, &worker->job.size);
    error = error ? error : stream_open_get(&worker->job, &worker->open);
    return error ? error
                 : stream_description_parse(worker->open.description.bytes, &worker->description,
                                            problem);
}

static int worker_map(struct worker *worker, int fd)
{
    worker->area.shape = stream_shape_of(worker->description.input, worker->description.output, 0);
    char *bytes = NULL;
    int error = area_check(fd, worker->area.shape.size);
    error = error ? error : area_map(fd, worker->area.shape.size, &bytes);
    worker->area.header = (struct stream_area_header *)bytes;
    return error;
}

/* Where a former worker ended. Records from `answered` on are done again. */
static int worker_find_position(struct worker *worker)
{
    struct stream_area_header *header = worker->area.header;
    uint64_t capacity = worker->area.shape.capacity;
    worker->answered = worker->sent = atomic_load(&header->answered);
    worker->taken = atomic_load(&header->taken);
    if (worker->answered - worker->taken > capacity)
        return -EPROTO;
    return stream_area_look(&header->sent, worker->answered + capacity, &worker->sent);
}

static unsigned worker_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) ? 1 : (unsigned)CPU_COUNT(&set);
}

/* From now on each stage has these payloads. */
static void worker_use_payloads(struct worker *worker, const uint32_t payloads[CHOOSE_STAGES])
{
    struct stream_area_header *header = worker->area.header;
    for (size_t i = 0; i < STREAM_STAGES; i++) {
        worker->device.stages[i].payload = payloads[CHOOSE_WRITE + i];
        atomic_store(&header->payloads[i], payloads[CHOOSE_WRITE + i]);
        atomic_store(&header->depths[i], CHOOSE_DEPTH);
    }
    atomic_store(&header->pack_payload, payloads[CHOOSE_PACK]);
    atomic_store(&header->unpack_payload, payloads[CHOOSE_UNPACK]);
    if (!worker->choose.chosen || tune_differs(&worker->tune))
        return;
    for (size_t i = 0; i < CHOOSE_STAGES; i++)
        atomic_store(&header->best[i], payloads[i]);
    worker_trace_chosen(payloads);
}

/* A former worker of the stream, or the kernel's last stream, ended with payloads. */
static void worker_use_former(struct worker *worker)
{
    uint32_t payloads[CHOOSE_STAGES];
    for (size_t i = 0; i < CHOOSE_STAGES; i++) {
        payloads[i] = atomic_load(&worker->area.header->best[i]);
        if (payloads[i] == 0)
            return;
    }
    choose_adopt(&worker->choose, payloads);
    tune_begin(&worker->tune, &worker->choose, clock_now_ns());
}

/* Rings for the largest payloads that may be chosen. */
static int worker_make_rings(struct worker *worker)
{
    cl_device_type type = 0;
    cl_ulong memory = 0;
    uint32_t payloads[STREAM_STAGES], depths[STREAM_STAGES];
    clGetDeviceInfo(worker->device.id, CL_DEVICE_TYPE, sizeof(type), &type, NULL);
    clGetDeviceInfo(worker->device.id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(memory), &memory, NULL);
    memory /= RINGS_SHARE;
    const struct choose_world world = {.input = worker->description.input,
                                       .output = worker->description.output,
                                       .capacity = worker->area.shape.capacity,
                                       .device_memory = memory < RINGS_MOST ? memory : RINGS_MOST,
                                       .cpu = type & CL_DEVICE_TYPE_CPU,
                                       .cores = worker_cores()};
    choose_init(&worker->choose, &world);
    worker->told_payloads = worker_trace_payloads(worker->choose.payloads);
    if (!worker->told_payloads)
        worker_use_former(worker);
    for (size_t i = 0; i < STREAM_STAGES; i++) {
        enum choose_stage stage = CHOOSE_WRITE + i;
        payloads[i] = worker->told_payloads ? worker->choose.payloads[stage]
                                            : choose_most(&worker->choose, stage);
        depths[i] = CHOOSE_DEPTH;
    }
    int error = device_make_rings(&worker->device, payloads, depths, worker->answered);
    worker_use_payloads(worker, worker->choose.payloads);
    return error;
}

/* ---- flow ---- */

static int worker_wrong_counters(struct worker *worker)
{
    return worker_fail(worker, -EPROTO,
                       "the client has set a counter of the shared area to where it cannot be");
}

/* Read how far the client is. 0 or -EPROTO. */
static int worker_look(struct worker *worker)
{
    struct stream_area_header *header = worker->area.header;
    int error = stream_area_look(&header->taken, worker->answered, &worker->taken);
    return error ? error
                 : stream_area_look(&header->sent, worker->answered + worker->area.shape.capacity,
                                    &worker->sent);
}

/* Publish the answers of a payload that was read. */
static int worker_publish(struct worker *worker, const struct device_payload *payload)
{
    struct stream_area_header *header = worker->area.header;
    if (!device_guard_is_whole(&worker->device, payload)) {
        snprintf(worker->device.problem, sizeof(worker->device.problem),
                 "the kernel wrote outside its answers: check its index, and the sizes in its "
                 "description");
        return -EFAULT;
    }
    worker->answered = payload->end;
    stream_area_advance(&header->answered, payload->end, &header->client_sleeps, worker->doorbell);
    return 0;
}

/* What a payload took says which to use. */
static void worker_learn(struct worker *worker, enum device_stage stage,
                         const struct device_payload *payload)
{
    struct stream_area_header *header = worker->area.header;
    const uint32_t client_ns[2] = {atomic_load(&header->pack_ns), atomic_load(&header->unpack_ns)};
    uint64_t begin, end;
    device_times(&worker->device, stage, payload, &begin, &end);
    worker_trace_payload(CHOOSE_WRITE + stage, begin, end, payload->end - payload->count,
                         payload->count);
    if (worker->told_payloads)
        return;
    uint64_t now = clock_now_ns();
    if (!tune_differs(&worker->tune) &&
        choose_seen(&worker->choose, CHOOSE_WRITE + stage, payload->count,
                    (double)(end - begin) / NS_PER_S, now, client_ns)) {
        if (worker->choose.chosen)
            tune_begin(&worker->tune, &worker->choose, now);
        worker_use_payloads(worker, worker->choose.payloads);
    } else if (worker->choose.chosen && stage == DEVICE_READ &&
               tune_answered(&worker->tune, payload->count, now)) {
        if (memcmp(worker->choose.payloads, worker->tune.best, sizeof(worker->tune.best)) != 0)
            choose_adopt(&worker->choose, worker->tune.best);
        worker_use_payloads(worker, worker->tune.payloads);
    }
}

/* Take back the commands that have ended. */
static int worker_reap(struct worker *worker, bool *ret_any)
{
    for (int stage = 0; stage < STREAM_STAGES; stage++) {
        struct device_payload *payload;
        int error = 0;
        while ((payload = device_ended(&worker->device, stage, &error))) {
            if (!error && stage == DEVICE_READ)
                error = worker_publish(worker, payload);
            if (error)
                return error;
            worker_learn(worker, stage, payload);
            device_forget(&worker->device, stage);
            *ret_any = true;
        }
    }
    return 0;
}

static int worker_start(struct worker *worker, enum device_stage stage, bool *ret_any)
{
    struct device_queue *stages = worker->device.stages;
    uint64_t at = stages[stage].issued, together = UINT64_MAX, room = UINT64_MAX, count;
    uint64_t ready = stage == DEVICE_WRITE ? worker->sent : stages[stage - 1].issued;
    char *host = NULL;
    bool guard = false;
    if (stage == DEVICE_WRITE)
        host = stream_area_input(&worker->area, at, &together);
    if (stage == DEVICE_READ) {
        host = stream_area_output(&worker->area, at, &together);
        room = worker->taken + worker->area.shape.capacity - at;
    }
    /* Few records may take as long as many, so a launch waits for those that will be written next.
     * It gets them: a full ring has a whole payload. */
    if (stage == DEVICE_COMPUTE && ready - at < stages[stage].payload && ready != worker->sent)
        return 0;
    count = ready - at < room ? ready - at : room;
    count = device_can_start(&worker->device, stage, count);
    count = count < together ? count : together;
    if (count == 0)
        return 0;
    if (stage == DEVICE_READ) {
        /* A record alone need not wait for it each time. */
        bool last = at + count == worker->sent && at + count != worker->device.alone;
        uint64_t now = clock_now_ns();
        guard = last || now - worker->guarded_ns >= GUARD_NS;
        worker->guarded_ns = guard ? now : worker->guarded_ns;
    }
    *ret_any = true;
    return device_start(&worker->device, stage, count, host, guard);
}

/* Take back the payloads that have ended and start those that can start. *ret_any is set if there
 * was any. */
static int worker_step(struct worker *worker, bool *ret_any)
{
    int error = worker_reap(worker, ret_any);
    for (int stage = 0; !error && stage < STREAM_STAGES; stage++)
        error = worker_start(worker, stage, ret_any);
    return error;
}

static bool worker_has_news(void *data)
{
    const struct worker *worker = data;
    const struct stream_area_header *header = worker->area.header;
    return atomic_load(&header->sent) != worker->sent ||
           atomic_load(&header->taken) != worker->taken || device_has_ended(&worker->device);
}

/* Wait for the client or the device. Returns false when the client has hung up. */
static bool worker_wait(struct worker *worker)
{
    struct stream_area_header *header = worker->area.header;
    struct pollfd polls[] = {{.fd = worker->doorbell, .events = POLLIN},
                             {.fd = worker->device.bell, .events = POLLIN}};
    uint64_t count;
    bool here = true;
    if (bell_spin_until(device_is_idle(&worker->device) ? &worker->for_client : &worker->for_device,
                        worker_has_news, worker))
        return true;
    device_ring_at_end(&worker->device);
    atomic_store(&header->worker_sleeps, 1);
    if (!worker_has_news(worker))
        (void)!poll(polls, 2, device_is_idle(&worker->device) ? -1 : LATE_MS);
    atomic_store(&header->worker_sleeps, 0);
    if (polls[0].revents)
        here = stream_area_hear(worker->doorbell);
    if (polls[1].revents)
        (void)!read(worker->device.bell, &count, sizeof(count));
    return here;
}

static int worker_flow(struct worker *worker)
{
    for (;;) {
        bool any = false;
        if (worker_look(worker))
            return worker_wrong_counters(worker);
        int error = worker_step(worker, &any);
        if (error)
            return worker_fail(worker, error, worker->device.problem);
        if (!any && !worker_wait(worker))
            return 0;
    }
}

int main(int argc, char **argv)
{
    static struct worker worker;
    int fds[4];
    file_hold_standard();
    if (argc != 5) {
        fprintf(stderr, "reseat-stream-worker is started by reseat stream serve\n");
        return 2;
    }
    for (int i = 0; i < 4; i++) {
        fds[i] = atoi(argv[1 + i]);
        if (fcntl(fds[i], F_SETFD, FD_CLOEXEC))
            return 2;
    }
    worker.doorbell = fds[1];
    worker.ready = fds[3];
    if (worker_read_job(&worker, fds[2]) || worker_map(&worker, fds[0]))
        return 2;
    if (worker_find_position(&worker))
        return worker_wrong_counters(&worker);
    int error = device_open(&worker.device, &worker.description, &worker.open);
    error = error ? error : worker_make_rings(&worker);
    if (error)
        return worker_fail(&worker, error, worker.device.problem);
    /* To be woken takes as long as many a kernel: a record alone should find the worker awake. */
    bell_spin_init(&worker.for_client, BELL_SPIN_DEVICE);
    bell_spin_init(&worker.for_device, BELL_SPIN_DEVICE);
    if (write(worker.ready, "", 1) != 1)
        return 2;
    return worker_flow(&worker);
}
