#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "remote/rings/area.h"
#include "state/base/clock.h"
#include "state/base/files/file.h"
#include "stream/worker/device.h"
#include "stream/worker/worker.h"

/*
 * reseat-stream-worker AREA DOORBELL JOB READY: an OpenCL program that makes the answers of one
 * stream. The arguments are descriptors: the area, the socket of its client, the body of OPEN, and
 * a pipe that gets a byte when the kernel is built.
 */

/* Bytes of a payload, and payloads at a time, of each stage. */
#define PAYLOAD (256u << 10)
#define DEPTH   2
/* How often the bytes around the answers are checked while answers flow. */
#define GUARD_NS (20 * NS_PER_MS)

struct worker {
    struct stream_description description;
    struct stream_open open;
    struct stream_body job;
    struct stream_area area;
    int doorbell, ready;
    uint64_t sent, taken, answered; /* Ours: the client can write to those in the area. */
    uint64_t guarded_ns;
    struct device device;
};

/* ---- set-up ---- */

/* Tell the client why there will be no more answers. Returns the exit status. */
static int worker_fail(struct worker *worker, int error, const char *reason)
{
    fprintf(stderr, "reseat-stream-worker: %s\n", reason);
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

static uint32_t worker_records(uint32_t bytes, uint32_t record)
{
    return bytes > record ? bytes / record : 1;
}

static int worker_make_rings(struct worker *worker)
{
    const struct stream_description *description = &worker->description;
    struct stream_area_header *header = worker->area.header;
    uint32_t larger =
        description->input > description->output ? description->input : description->output;
    uint32_t payloads[STREAM_STAGES], depths[STREAM_STAGES];
    for (size_t i = 0; i < STREAM_STAGES; i++) {
        payloads[i] = worker_records(PAYLOAD, larger);
        depths[i] = DEPTH;
        atomic_store(&header->payloads[i], payloads[i]);
        atomic_store(&header->depths[i], depths[i]);
    }
    atomic_store(&header->pack_payload, payloads[DEVICE_WRITE]);
    atomic_store(&header->unpack_payload, payloads[DEVICE_READ]);
    return device_make_rings(&worker->device, payloads, depths, worker->answered);
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
    count = ready - at < room ? ready - at : room;
    count = device_can_start(&worker->device, stage, count);
    count = count < together ? count : together;
    if (count == 0)
        return 0;
    if (stage == DEVICE_READ) {
        uint64_t now = clock_now_ns();
        guard = at + count == worker->sent || now - worker->guarded_ns >= GUARD_NS;
        worker->guarded_ns = guard ? now : worker->guarded_ns;
    }
    *ret_any = true;
    return device_start(&worker->device, stage, count, host, guard);
}

/* Take back and start what is possible. @ret_any: was there anything? */
static int worker_step(struct worker *worker, bool *ret_any)
{
    int error = worker_reap(worker, ret_any);
    for (int stage = 0; !error && stage < STREAM_STAGES; stage++)
        error = worker_start(worker, stage, ret_any);
    return error;
}

/* Wait for the client or the device. Returns false when the client has hung up. */
static bool worker_wait(struct worker *worker)
{
    struct stream_area_header *header = worker->area.header;
    struct pollfd polls[] = {{.fd = worker->doorbell, .events = POLLIN},
                             {.fd = worker->device.bell, .events = POLLIN}};
    uint64_t sent = worker->sent, taken = worker->taken, count;
    bool here = true;
    atomic_store(&header->worker_sleeps, 1);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load(&header->sent) == sent && atomic_load(&header->taken) == taken)
        (void)!poll(polls, 2, -1);
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
    if (write(worker.ready, "", 1) != 1)
        return 2;
    return worker_flow(&worker);
}
