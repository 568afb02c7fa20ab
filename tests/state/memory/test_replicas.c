#include <fcntl.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/budget/budget.h"
#include "state/memory/memory.h"
#include "state/move/move_priv.h"
#include "state/object/lost.h"
#include "state/transfer/transfer.h"
#include "tests/support/engine_rig.h"
#include "tests/support/every.h"

/*
 * R1 to R4 against a model: a program of one or two virtual devices does random things to its
 * buffers, while it is moved, suspended and spilled, and loses a device. The model is one array of
 * bytes for each buffer. A random sequence that fails is shrunk: steps are left out as long as it
 * fails, each attempt in a process of its own, and what remains is printed.
 */

#define BYTES   ((size_t)8192)
#define PARTS   4
#define MAPS    4
#define BUFFERS 5
#define BLOCK   ((size_t)64) /* offsets and sizes are multiples of it */
#define STEPS   400          /* of a random sequence, at most */

/* Devices that copy, and one that works on the host's bytes in place. */
static const char plain_devices[] = "[one] name=one [two] name=two [three] name=three type=cpu "
                                    "host_unified=yes";
static const char *const source =
    "__kernel void add(__global uint *words, uint value)\n"
    "{ words[get_global_id(0)] += value + (uint)get_global_id(0); }\n"
    "__kernel void sum(__global uint *out, __global uint *in, __constant uint *table)\n"
    "{ size_t i = get_global_id(0); out[i] = in[i] + table[i]; }\n";

/* What a step does; the letters are what scenarios choose from. */
enum verb {
    WRITE = 'w',
    READ = 'r',
    FILL = 'f',
    COPY = 'c',
    ADD = 'a', /* a kernel that reads and writes */
    SUM = 's', /* one that writes what it reads elsewhere */
    MAP = 'm',
    UNMAP = 'u',
    PART = 'p', /* another sub-buffer */
    HELD = 'h', /* a read waits for a user event until another device has written */
    MOVE = 'M', /* also suspends, and resumes */
    LIMIT = 'L',
    LOSE = 'V', /* a device vanishes, and its virtual device moves on */
    CHECK = '=',
};

/* One step; all that is random about it, so that it does the same whichever steps are left out. */
struct step {
    char verb;
    uint8_t vdev, buffer, part, to_buffer, to_part;
    uint32_t a, b, c, d;
};
enum place { ONE, TWO, THREE, HOST }; /* .a of MOVE */
static const char *const places[] = {"one", "two", "three", NULL};

struct map {
    cl_mem memory;
    size_t at, size;
    bool write;
    cl_uchar *pointer; /* or NULL */
};

/* A buffer and what it must hold. */
struct buffer {
    cl_mem parts[PARTS]; /* the first is the whole */
    size_t origin[PARTS], size[PARTS];
    cl_mem_flags flags;
    cl_uchar *host; /* the program's memory */
    cl_uchar want[BYTES];
    bool known[BYTES]; /* false: never written, so it may hold anything */
    struct map maps[MAPS];
};

struct scenario {
    const char *devices;
    unsigned vdevs;
    const char *second; /* where the second virtual device begins */
    const char *verbs;  /* one is picked: what is there twice, twice as often */
    bool on_demand;
    bool passes; /* the devices have a way to each other, which copies take */
};

/* Bytes of writes that may still be in flight. */
#define STAGES 8

static struct world {
    const struct scenario *scenario;
    struct engine_rig rig;
    cl_context context;
    cl_command_queue queues[2];
    cl_program program;
    cl_kernel add[2], sum[2];
    struct buffer buffers[BUFFERS];
    cl_uchar stages[2][STAGES][BYTES];
    unsigned staged[2];
    bool suspended[2];
    bool lost, over; /* some device was lost; and with it latest bytes */
    unsigned last_vdev;
} world;

static _Thread_local const struct step *doing;
static _Thread_local size_t doing_number;

static void step_print(FILE *file, const struct step *s)
{
    fprintf(file, "{'%c', %u, %u, %u, %u, %u, %#x, %#x, %#x, %#x},\n", s->verb, s->vdev, s->buffer,
            s->part, s->to_buffer, s->to_part, s->a, s->b, s->c, s->d);
}

__attribute__((noreturn, format(printf, 1, 2))) static void fails(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "step %zu: ", doing_number);
    vfprintf(stderr, format, list);
    fputs("\n", stderr);
    if (doing)
        step_print(stderr, doing);
    va_end(list);
    _Exit(1);
}

#define HOLDS(expression, ...)                                                                     \
    do {                                                                                           \
        if (!(expression))                                                                         \
            fails(__VA_ARGS__);                                                                    \
    } while (0)
#undef CALLS_FAIL
#define CALLS_FAIL(call, error) fails("%s: %d", call, error)

static cl_uchar byte_of(uint32_t seed, size_t i)
{
    uint32_t x = seed + (uint32_t)i * 2654435761u;
    return (cl_uchar)((x ^ x >> 15) * 2246822519u >> 24);
}

static struct memory *root_of(const struct buffer *b)
{
    return memory_get(b->parts[0])->root;
}

static uint64_t version_of(const struct buffer *b)
{
    return atomic_load(&root_of(b)->version);
}

static void wants(struct buffer *b, size_t at, size_t size, const cl_uchar *bytes)
{
    memcpy(b->want + at, bytes, size);
    memset(b->known + at, 1, size);
}

static void has(const struct buffer *b, size_t at, size_t size, const cl_uchar *got,
                const char *where)
{
    for (size_t i = 0; i < size; i++)
        HOLDS(got[i] == b->want[at + i] || !b->known[at + i],
              "%s: buffer %td has %u at %zu, not %u", where, b - world.buffers, got[i], at + i,
              b->want[at + i]);
}

/* No map is in the way of a command that reads, or with @write writes, [at, at + size). */
static bool is_free(const struct buffer *b, size_t at, size_t size, bool write)
{
    for (int i = 0; i < MAPS; i++)
        if (b->maps[i].pointer && (write || b->maps[i].write) &&
            at < b->maps[i].at + b->maps[i].size && b->maps[i].at < at + size)
            return false;
    return true;
}

static void make_part(struct buffer *b, unsigned i, uint32_t origin, uint32_t size)
{
    cl_buffer_region region = {.origin = origin % 7 * (size_t)1024};
    region.size = BLOCK + size % ((BYTES - region.origin) / BLOCK) * BLOCK;
    b->parts[i] = MADE(clCreateSubBuffer, b->parts[0], 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
    b->origin[i] = region.origin;
    b->size[i] = region.size;
}

static enum budget_answer spill(const struct budget_need *need)
{
    (void)need;
    return BUDGET_SPILL;
}

static void world_open(const struct scenario *scenario)
{
    static const cl_mem_flags flags[BUFFERS] = {0, CL_MEM_COPY_HOST_PTR, CL_MEM_USE_HOST_PTR,
                                                CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE};
    world.scenario = scenario;
    lost_patience_ns = 40000000;
    lost_answer_ns = 500000000;
    engine_rig_open(&world.rig, scenario->devices);
    budget_set_policy(spill);
    transfer_between_least = 1;
    if (scenario->passes)
        engine_between_play(&world.rig);
    cl_device_id vdevs[2] = {world.rig.device};
    if (scenario->vdevs == 2)
        vdevs[1] = engine_rig_vdev(&world.rig, scenario->second);
    world.context = MADE(clCreateContext, NULL, scenario->vdevs, vdevs, NULL, NULL);
    world.program =
        MADE(clCreateProgramWithSource, world.context, 1, (const char *[]){source}, NULL);
    OK(clBuildProgram(world.program, 0, NULL, "", NULL, NULL));
    for (unsigned i = 0; i < scenario->vdevs; i++) {
        world.queues[i] = MADE(clCreateCommandQueue, world.context, vdevs[i], 0);
        world.add[i] = engine_kernel(world.program, "add");
        world.sum[i] = engine_kernel(world.program, "sum");
    }
    for (unsigned k = 0; k < BUFFERS; k++) {
        struct buffer *b = &world.buffers[k];
        bool given = flags[k] & (CL_MEM_COPY_HOST_PTR | CL_MEM_USE_HOST_PTR);
        b->flags = flags[k];
        b->host = aligned_alloc(4096, BYTES);
        for (size_t i = 0; i < BYTES; i++)
            b->host[i] = byte_of(k, i);
        if (given)
            wants(b, 0, BYTES, b->host);
        b->parts[0] = engine_buffer(world.context, flags[k], BYTES, given ? b->host : NULL);
        b->size[0] = BYTES;
        /* The first two parts are halves that do not overlap. */
        for (unsigned i = 1; i < PARTS; i++)
            make_part(b, i, i == 2 ? 4 : 0, i < 3 ? 4096 / BLOCK - 1 : k * 37);
    }
}

/* 64 bytes or more of one part, in whole words. */
struct span {
    cl_mem memory;
    size_t offset, size, at;
};

static struct span span_of(const struct buffer *b, unsigned part, uint32_t offset, uint32_t size)
{
    struct span span = {.memory = b->parts[part % PARTS]};
    span.offset = offset % (b->size[part % PARTS] / BLOCK) * BLOCK;
    span.size = BLOCK + size % ((b->size[part % PARTS] - span.offset) / BLOCK) * BLOCK;
    span.at = b->origin[part % PARTS] + span.offset;
    return span;
}

static void finish(void)
{
    for (unsigned i = 0; i < world.scenario->vdevs; i++)
        if (!world.suspended[i])
            OK(clFinish(world.queues[i]));
}

static void do_write(struct buffer *b, const struct step *s)
{
    struct span to = span_of(b, s->part, s->a, s->b);
    cl_uchar *bytes = world.stages[s->vdev][world.staged[s->vdev]++ % STAGES];
    if (!is_free(b, to.at, to.size, true))
        return;
    if (world.staged[s->vdev] % STAGES == 0)
        OK(clFinish(world.queues[s->vdev]));
    for (size_t i = 0; i < to.size; i++)
        bytes[i] = byte_of(s->c, i);
    OK(clEnqueueWriteBuffer(world.queues[s->vdev], to.memory, s->d % 2, to.offset, to.size, bytes,
                            0, NULL, NULL));
    wants(b, to.at, to.size, bytes);
}

static void do_read(struct buffer *b, const struct step *s)
{
    struct span from = span_of(b, s->part, s->a, s->b);
    cl_uchar got[BYTES];
    if (!is_free(b, from.at, from.size, false))
        return;
    OK(clEnqueueReadBuffer(world.queues[s->vdev], from.memory, CL_TRUE, from.offset, from.size, got,
                           0, NULL, NULL));
    has(b, from.at, from.size, got, "a read");
}

static void do_fill(struct buffer *b, const struct step *s)
{
    struct span to = span_of(b, s->part, s->a, s->b);
    if (!is_free(b, to.at, to.size, true))
        return;
    OK(clEnqueueFillBuffer(world.queues[s->vdev], to.memory, &s->c, 4, to.offset, to.size, 0, NULL,
                           NULL));
    for (size_t i = 0; i < to.size; i += 4)
        wants(b, to.at + i, 4, (const cl_uchar *)&s->c);
}

static void do_copy(struct buffer *b, const struct step *s)
{
    struct buffer *other = &world.buffers[s->to_buffer % BUFFERS];
    struct span from = span_of(b, s->part, s->a, s->b), to = span_of(other, s->to_part, s->c, s->d);
    size_t size = from.size < to.size ? from.size : to.size;
    if (b == other || !is_free(b, from.at, size, false) || !is_free(other, to.at, size, true))
        return;
    OK(clEnqueueCopyBuffer(world.queues[s->vdev], from.memory, to.memory, from.offset, to.offset,
                           size, 0, NULL, NULL));
    memcpy(other->want + to.at, b->want + from.at, size);
    memcpy(other->known + to.at, b->known + from.at, size);
}

static void launch(cl_kernel kernel, unsigned vdev, size_t items)
{
    OK(clEnqueueNDRangeKernel(world.queues[vdev], kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
}

/* Bytes that are not known make words that are not known. */
static cl_uint word_at(const struct buffer *b, size_t at, bool *ret_known)
{
    cl_uint word;
    memcpy(&word, b->want + at, 4);
    *ret_known = b->known[at] && b->known[at + 1] && b->known[at + 2] && b->known[at + 3];
    return word;
}

static void put_word(struct buffer *b, size_t at, cl_uint word, bool known)
{
    memcpy(b->want + at, &word, 4);
    memset(b->known + at, known, 4);
}

static void do_add(struct buffer *b, const struct step *s)
{
    unsigned part = s->part % PARTS;
    size_t items = b->size[part] / 4;
    if (!is_free(b, b->origin[part], b->size[part], true))
        return;
    ARGS(world.add[s->vdev], b->parts[part], s->a);
    launch(world.add[s->vdev], s->vdev, items);
    for (cl_uint i = 0; i < items; i++) {
        size_t at = b->origin[part] + i * (size_t)4;
        bool known;
        cl_uint word = word_at(b, at, &known);
        put_word(b, at, word + s->a + i, known);
    }
}

static void do_sum(struct buffer *b, const struct step *s)
{
    struct buffer *out = &world.buffers[s->to_buffer % BUFFERS];
    unsigned from = s->part % PARTS, to = s->to_part % PARTS;
    size_t items = (b->size[from] < out->size[to] ? b->size[from] : out->size[to]) / 4;
    if (b == out || !is_free(b, b->origin[from], items * 4, false) ||
        !is_free(out, out->origin[to], out->size[to], true))
        return;
    ARGS(world.sum[s->vdev], out->parts[to], b->parts[from], b->parts[from]);
    launch(world.sum[s->vdev], s->vdev, items);
    for (size_t i = 0; i < items; i++) {
        bool known;
        cl_uint word = word_at(b, b->origin[from] + i * 4, &known);
        put_word(out, out->origin[to] + i * 4, 2 * word, known);
    }
}

static void do_map(struct buffer *b, const struct step *s)
{
    static const cl_map_flags kinds[] = {CL_MAP_READ, CL_MAP_WRITE, CL_MAP_READ | CL_MAP_WRITE,
                                         CL_MAP_WRITE_INVALIDATE_REGION};
    struct map *map = &b->maps[s->d % MAPS];
    cl_map_flags flags = kinds[s->c % ARRAY_SIZE(kinds)];
    struct span r = span_of(b, s->part, s->a, s->b);
    if (map->pointer || !is_free(b, r.at, r.size, flags != CL_MAP_READ))
        return;
    cl_uchar *pointer = MADE(clEnqueueMapBuffer, world.queues[s->vdev], r.memory, CL_TRUE, flags,
                             r.offset, r.size, 0, NULL, NULL);
    HOLDS(!(b->flags & CL_MEM_USE_HOST_PTR) || pointer == b->host + r.at,
          "the map is not in the program's memory");
    *map = (struct map){r.memory, r.at, r.size, flags != CL_MAP_READ, pointer};
    if (flags != CL_MAP_WRITE_INVALIDATE_REGION)
        has(b, r.at, r.size, pointer, "a map");
    for (size_t i = 0; map->write && i < r.size; i++)
        pointer[i] = byte_of(s->c, i);
    if (map->write)
        wants(b, r.at, r.size, pointer);
}

/* In any queue, not only the one that it was mapped in. */
static void do_unmap(struct buffer *b, const struct step *s)
{
    struct map *map = &b->maps[s->d % MAPS];
    if (!map->pointer)
        return;
    has(b, map->at, map->size, map->pointer, "a map that ends");
    for (size_t i = 0; map->write && i < map->size; i += 3)
        map->pointer[i] = b->want[map->at + i] = byte_of(s->c, i);
    OK(clEnqueueUnmapMemObject(world.queues[s->vdev], map->memory, map->pointer, 0, NULL, NULL));
    map->pointer = NULL;
}

static void do_part(struct buffer *b, const struct step *s)
{
    unsigned i = 1 + s->part % (PARTS - 1);
    for (int m = 0; m < MAPS; m++)
        if (b->maps[m].pointer && b->maps[m].memory == b->parts[i])
            return;
    OK(clReleaseMemObject(b->parts[i]));
    make_part(b, i, s->a, s->b);
}

static void do_held(struct buffer *b, const struct step *s)
{
    unsigned part = s->part % PARTS, other = 1 - s->vdev;
    cl_uchar got[BYTES];
    cl_event event;
    if (world.scenario->vdevs == 1 || world.suspended[other] ||
        !is_free(b, b->origin[part], b->size[part], true))
        return;
    cl_event user = MADE(clCreateUserEvent, world.context);
    OK(clEnqueueReadBuffer(world.queues[s->vdev], b->parts[part], CL_FALSE, 0, b->size[part], got,
                           1, &user, &event));
    struct step add = *s;
    add.vdev = (uint8_t)other;
    do_add(b, &add);
    OK(clFinish(world.queues[other]));
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    OK(clWaitForEvents(1, &event));
    has(b, b->origin[part], b->size[part], got, "a read that was held");
    RELEASE(event, user);
}

static void move(unsigned vdev, enum place to, const struct step *s)
{
    const char *name = places[to];
    bool later = world.scenario->on_demand && s->b % 4 != 0;
    const struct move_request request = {.target = name ? engine_rig_key(&world.rig, name) : NULL,
                                         .vdev = vdev,
                                         .fetch = later ? MOVE_FETCH_ON_DEMAND : MOVE_FETCH_WHOLE,
                                         .bandwidth = s->c % 2 ? 100000 : 0};
    struct move_report report;
    struct vdev_status before, after;
    status_vdev(vdev, &before);
    if (name ? !before.suspended && strcmp(before.device.device, name) == 0 : before.suspended)
        return;
    if (!name)
        finish();
    move_run(&request, &report);
    HOLDS(report.result == MOVE_DONE, "a move of %u to %s: %s", vdev, name ? name : "host memory",
          report.reason);
    world.suspended[vdev] = !name;
    status_vdev(vdev, &after);
    HOLDS(name || device_key_equal(&after.device, &before.device), "what was suspended was on %s",
          before.device.device);
}

static void do_limit(struct buffer *b, const struct step *s)
{
    (void)b;
    uint64_t bytes = (3 + s->a % 4) * BYTES;
    budget_grant(0, bytes);
    (void)budget_shrink(0, bytes);
}

/* The replica of @range at @index, past the engine. */
static void read_replica(struct memory *root, uint8_t index, struct range range, cl_uchar *ret)
{
    size_t size = range.end - range.begin;
    if (index == RESIDENCE_HOST) {
        memcpy(ret, memory_host_bytes(root) + range.begin, size);
        return;
    }
    struct residence *residence = root->context->at[index];
    OK(residence->cl->clEnqueueReadBuffer(residence->io, root->real[index], CL_TRUE, range.begin,
                                          size, ret, 0, NULL, NULL));
}

static bool has_replica(struct memory *root, uint8_t index)
{
    return index == RESIDENCE_HOST
               ? root->host_copy || root->shadow_copy
               : index < root->context->residences && root->context->at[index] && root->real[index];
}

/* R1: some replica has the latest bytes, and each that counts as the latest has them. */
static void check_replicas(const struct buffer *b)
{
    struct memory *root = root_of(b);
    for (size_t at = 0; version_of(b) != 0 && at < BYTES;) {
        struct extent extent = extent_at(root, at);
        unsigned holders = 0;
        for (uint8_t index = 0; index <= RESIDENCE_HOST; index++) {
            cl_uchar bytes[BYTES];
            if (!has_replica(root, index) || !replica_has(root, index, extent.range))
                continue;
            holders++;
            read_replica(root, index, extent.range, bytes);
            for (size_t i = extent.range.begin; i < extent.range.end; i++)
                /* What is mapped to be written is the program's until it is unmapped. */
                HOLDS(bytes[i - extent.range.begin] == b->want[i] || !b->known[i] ||
                          !is_free(b, i, 1, false),
                      "the replica of buffer %td at %u has %u at %zu, not %u", b - world.buffers,
                      index, bytes[i - extent.range.begin], i, b->want[i]);
        }
        HOLDS(holders > 0 || extent.version == 0, "no replica of buffer %td has the bytes at %zu",
              b - world.buffers, at);
        at = extent.range.end;
    }
    for (int i = 0; i < MAPS; i++)
        if (b->maps[i].pointer)
            has(b, b->maps[i].at, b->maps[i].size, b->maps[i].pointer, "a map");
}

/* R2: what each device reads, and what commands on it see. */
static void check_reads(const struct buffer *b, unsigned vdev)
{
    for (size_t at = 0; at < BYTES; at += BYTES / 2) {
        cl_uchar got[BYTES / 2];
        if (!is_free(b, at, sizeof(got), false))
            continue;
        OK(clEnqueueReadBuffer(world.queues[vdev], b->parts[0], CL_TRUE, at, sizeof(got), got, 0,
                               NULL, NULL));
        has(b, at, sizeof(got), got, "a device reads");
        engine_read_there(world.queues[vdev], b->parts[0], at, sizeof(got), got);
        has(b, at, sizeof(got), got, "a device has");
    }
}

/* With reads, which make replicas, every second time. */
static void check(bool reads)
{
    finish();
    move_lock(); /* what is fetched in the background is not, meanwhile */
    for (int k = 0; k < BUFFERS; k++)
        check_replicas(&world.buffers[k]);
    move_unlock();
    for (unsigned k = 0; reads && k < BUFFERS * world.scenario->vdevs; k++)
        if (!world.suspended[k / BUFFERS])
            check_reads(&world.buffers[k % BUFFERS], k / BUFFERS);
}

/* Is the residence at @index the only one with some latest bytes of @b? */
static bool only_there(const struct buffer *b, uint8_t index)
{
    struct memory *root = root_of(b);
    bool only = false;
    for (size_t at = 0; version_of(b) != 0 && at < BYTES && !only;) {
        struct extent extent = extent_at(root, at);
        only = extent.version != 0;
        for (uint8_t other = 0; only && other <= RESIDENCE_HOST; other++)
            only = other == index || !has_replica(root, other) ||
                   !replica_has(root, other, extent.range);
        at = extent.range.end;
    }
    return only;
}

/* R1 and R4 when a holder disappears: what has a replica elsewhere goes on, with the bytes of the
   model; what has none is refused for good. */
static void do_lose(struct buffer *b, const struct step *s)
{
    (void)b;
    enum place to = s->a % (HOST + 1);
    struct vdev_status from, other;
    struct move_report report;
    bool only = false;
    status_vdev(s->vdev, &from);
    status_vdev(1 - s->vdev, &other);
    if ((!other.suspended && strcmp(other.device.device, from.device.device) == 0) ||
        (places[to] && strcmp(places[to], from.device.device) == 0))
        return;
    check(s->b % 12 != 0); /* with all bytes on both, mostly */
    uint8_t index = ((struct context *)world.context)->residence_index[s->vdev];
    for (int k = 0; k < BUFFERS; k++)
        only = only || only_there(&world.buffers[k], index);
    HOLDS(emu_shared_vanish(world.rig.emu, from.device.device) == 0, "it does not vanish");
    (void)clFinish(world.queues[s->vdev]);
    HOLDS(vdev_is_lost(the_vdevs[s->vdev]), "the loss of %s is not seen", from.device.device);
    const struct move_request request = {
        .target = places[to] ? engine_rig_key(&world.rig, places[to]) : NULL, .vdev = s->vdev};
    move_run(&request, &report);
    HOLDS(report.result == (only ? MOVE_REFUSED : MOVE_DONE), "%s was lost%s: %s",
          from.device.device, only ? " with latest bytes" : "", report.reason);
    HOLDS(!only || (report.lasting && strstr(report.reason, " and with it the latest bytes of ")),
          "refused: %s", report.reason);
    HOLDS(emu_shared_restore(world.rig.emu, from.device.device) == 0, "it does not come back");
    world.suspended[s->vdev] = !places[to];
    world.lost = true;
    world.over = only;
}

static void do_move(struct buffer *b, const struct step *s)
{
    (void)b;
    move(s->vdev, s->a % (HOST + 1), s);
}

static void do_check(struct buffer *b, const struct step *s)
{
    (void)b;
    check(s->a % 2);
}

static void (*const acts[])(struct buffer *b, const struct step *s) = {
    [WRITE] = do_write, [READ] = do_read,   [FILL] = do_fill,   [COPY] = do_copy,  [ADD] = do_add,
    [SUM] = do_sum,     [MAP] = do_map,     [UNMAP] = do_unmap, [PART] = do_part,  [HELD] = do_held,
    [MOVE] = do_move,   [LIMIT] = do_limit, [LOSE] = do_lose,   [CHECK] = do_check};

static void step_run(const struct step *s)
{
    uint64_t versions[BUFFERS];
    /* R3: only what may write makes a new version. */
    bool watches = strchr("wfcasuh", s->verb) == NULL;
    doing = s;
    if (world.over)
        return;
    if (world.suspended[s->vdev] && s->verb != CHECK) {
        move(s->vdev, s->a % HOST, s); /* nothing else goes on there */
        return;
    }
    /* What the other device was told to do comes first. */
    if (world.last_vdev != s->vdev)
        finish();
    world.last_vdev = s->vdev;
    for (int k = 0; k < BUFFERS; k++)
        versions[k] = version_of(&world.buffers[k]);
    acts[(unsigned char)s->verb](&world.buffers[s->buffer % BUFFERS], s);
    for (int k = 0; watches && k < BUFFERS; k++)
        HOLDS(version_of(&world.buffers[k]) == versions[k], "buffer %d has a new version", k);
}

static void world_end(void)
{
    const struct step end = {.verb = CHECK, .a = 1};
    if (world.over)
        return;
    finish();
    doing = &end;
    for (uint8_t i = 0; i < world.scenario->vdevs; i++)
        if (world.suspended[i])
            move(i, THREE, &end);
    for (uint32_t k = 0; k < BUFFERS * MAPS; k++)
        do_unmap(&world.buffers[k % BUFFERS], &(struct step){.c = k, .d = k / BUFFERS});
    check(true);
    for (int k = 0; k < BUFFERS; k++)
        for (int i = PARTS - 1; i >= 0; i--) {
            cl_uint maps = 1;
            OK(clGetMemObjectInfo(world.buffers[k].parts[i], CL_MEM_MAP_COUNT, sizeof(maps), &maps,
                                  NULL));
            HOLDS(maps == 0, "buffer %d counts %u maps", k, maps);
            OK(clReleaseMemObject(world.buffers[k].parts[i]));
        }
    for (unsigned i = 0; i < world.scenario->vdevs; i++)
        RELEASE(world.add[i], world.sum[i], world.queues[i]);
    RELEASE(world.program, world.context);
    if (!world.lost) /* What was on a device that is lost is not released there. */
        engine_rig_ends_empty(&world.rig);
    for (int k = 0; k < BUFFERS; k++)
        free(world.buffers[k].host);
}

static void sequence_run(const void *of, const struct step *steps, size_t count)
{
    world_open(of);
    for (doing_number = 0; doing_number < count; doing_number++)
        step_run(&steps[doing_number]);
    world_end();
}

/* Random sequences. */

typedef void (*attempt)(const void *of, const struct step *steps, size_t count);

/* Whether it fails, in a process of its own. */
static bool attempt_fails(attempt run, const void *of, const struct step *steps, size_t count,
                          bool quiet)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        int null = quiet ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
        if (null >= 0)
            dup2(null, STDERR_FILENO);
        alarm(200); /* a hang is a failure */
        run(of, steps, count);
        _Exit(0);
    }
    cr_assert(child > 0 && waitpid(child, &status, 0) == child);
    return status != 0;
}

/* Leave out what it fails without: halves first, then less and less; returns how many remain. */
static size_t shrink(attempt run, const void *of, struct step *steps, size_t count)
{
    for (size_t size = (count + 1) / 2; size > 0; size = size > 1 ? (size + 1) / 2 : 0)
        for (size_t at = 0; at < count;) {
            struct step rest[STEPS];
            size_t out = size < count - at ? size : count - at;
            memcpy(rest, steps, at * sizeof(*rest));
            memcpy(rest + at, steps + at + out, (count - at - out) * sizeof(*rest));
            if (attempt_fails(run, of, rest, count - out, true)) {
                count -= out;
                memcpy(steps, rest, count * sizeof(*rest));
            } else {
                at += out;
            }
        }
    return count;
}

static struct step random_step(unsigned *seed, const struct scenario *scenario)
{
    uint32_t r[8];
    for (size_t i = 0; i < ARRAY_SIZE(r); i++)
        r[i] = (uint32_t)rand_r(seed);
    return (struct step){.verb = scenario->verbs[r[0] % strlen(scenario->verbs)],
                         .vdev = (uint8_t)(r[1] % scenario->vdevs),
                         .buffer = (uint8_t)(r[2] % BUFFERS),
                         .part = (uint8_t)(r[3] % PARTS),
                         .to_buffer = (uint8_t)(r[2] / BUFFERS % BUFFERS),
                         .to_part = (uint8_t)(r[3] / PARTS % PARTS),
                         .a = r[4],
                         .b = r[5],
                         .c = r[6],
                         .d = r[7]};
}

static void random_steps(const struct scenario *scenario, unsigned seed, size_t count)
{
    static struct step steps[STEPS];
    for (size_t i = 0, state = seed; i < count; i++) {
        unsigned next = (unsigned)state;
        steps[i] = random_step(&next, scenario);
        state = next;
    }
    if (!attempt_fails(sequence_run, scenario, steps, count, false))
        return;
    count = shrink(sequence_run, scenario, steps, count);
    fprintf(stderr, "seed %u fails with these %zu steps:\n", seed, count);
    for (size_t i = 0; i < count; i++)
        step_print(stderr, &steps[i]);
    (void)attempt_fails(sequence_run, scenario, steps, count, false);
    cr_assert_fail("seed %u", seed);
}

static const unsigned seeds[] = {1, 77, 4711};

static void random_sequences(const struct scenario *scenario)
{
    for (size_t i = 0; i < ARRAY_SIZE(seeds); i += every(3))
        random_steps(scenario, seeds[i], STEPS);
}

TestCall(replicas, of_one_device_hold_the_latest_bytes,
         random_sequences(&(struct scenario){plain_devices, 1, NULL, "wrfcasmmuupMMM====", false}));
TestCall(replicas, are_fetched_on_demand,
         random_sequences(&(struct scenario){plain_devices, 1, NULL, "wrfcasmmuupMMM====", true}));
TestCall(replicas, of_two_devices_hold_the_latest_bytes,
         random_sequences(&(struct scenario){plain_devices, 2, "two",
                                             "wrffcaasmmmuuphMM=", false}));
TestCall(replicas, of_two_devices_are_fetched_on_demand,
         random_sequences(&(struct scenario){plain_devices, 2, "three",
                                             "wrfcaasmmuuphMMM=", true}));
TestCall(replicas, of_two_devices_that_reach_each_other_hold_the_latest_bytes,
         random_sequences(&(struct scenario){plain_devices, 2, "two", "wrffcccaasmmuupMM=", false,
                                             true}));
TestCall(replicas, are_spilled,
         random_sequences(&(struct scenario){plain_devices, 1, NULL, "wrfcasmupLLLM==", false}));

/* Latest bytes that are lost end a sequence, so these are short, and many. */
Test(replicas, outlive_a_device_that_is_not_the_only_holder)
{
    const struct scenario scenario = {plain_devices, 2, "two", "wrfcasmuuuM==VVV", false};
    for (unsigned seed = 1; seed <= 16; seed++)
        random_steps(&scenario, seed, STEPS / 4);
}

/* Fails whenever both of two steps are there. */
static void two_steps_fail(const void *of, const struct step *steps, size_t count)
{
    unsigned found = 0;
    for (size_t i = 0; i < count; i++)
        found += steps[i].a == 13 || steps[i].a == 77;
    if (found == 2)
        _Exit(1);
    (void)of;
}

Test(shrinking, leaves_the_steps_that_fail)
{
    static struct step steps[100];
    for (uint32_t i = 0; i < ARRAY_SIZE(steps); i++)
        steps[i].a = i;
    cr_assert_eq(shrink(two_steps_fail, NULL, steps, ARRAY_SIZE(steps)), 2);
    cr_assert(steps[0].a == 13 && steps[1].a == 77);
}
