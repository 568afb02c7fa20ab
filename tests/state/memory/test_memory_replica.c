#include <pthread.h>

#include "state/base/memory/pages.h"
#include "state/budget/budget.h"
#include "state/memory/mapping.h"
#include "state/memory/replica.h"
#include "tests/support/engine_rig.h"

/* What may be copied while the program runs, and what has to end before. Two virtual devices. */

#define WORDS ((size_t)1 << 21)
#define BYTES (WORDS * sizeof(cl_uint))
#define PART  ((size_t)4096)

struct pair {
    struct engine_rig rig;
    cl_context context;
    cl_command_queue queues[2];
    cl_kernel set, late;
    cl_mem buffer;
    struct memory *root;
    cl_uint *got;
};

static void pair_open(struct pair *p, const char *config)
{
    static const char *const source =
        "kernel void set(global uint *a, uint v) { a[get_global_id(0)] = v; }\n"
        "kernel void late(global uint *a, uint v, uint turns) {\n"
        "    uint x = v;\n"
        "    for (uint i = 0; i < turns; i++) x = x * 1664525u + (x >> 7) + i;\n"
        "    a[0] = v; a[1] = x;\n"
        "}\n";
    engine_rig_open(&p->rig, config);
    const cl_device_id vdevs[] = {p->rig.device, engine_rig_vdev(&p->rig, "two")};
    p->context = MADE(clCreateContext, NULL, 2, vdevs, NULL, NULL);
    for (int i = 0; i < 2; i++)
        p->queues[i] = MADE(clCreateCommandQueue, p->context, vdevs[i], 0);
    cl_program program = BUILT(p->context, source, "");
    p->set = engine_kernel(program, "set");
    p->late = engine_kernel(program, "late");
    p->got = calloc(1, BYTES);
    cr_assert_not_null(p->got);
    p->buffer = engine_buffer(p->context, CL_MEM_COPY_HOST_PTR, BYTES, p->got);
    p->root = memory_get(p->buffer);
    OK(clSetKernelArg(p->set, 0, sizeof(cl_mem), &p->buffer));
    OK(clSetKernelArg(p->late, 0, sizeof(cl_mem), &p->buffer));
}

static void set(struct pair *p, int queue, cl_uint value, size_t count)
{
    OK(clSetKernelArg(p->set, 1, sizeof(value), &value));
    OK(clEnqueueNDRangeKernel(p->queues[queue], p->set, 1, NULL, &count, NULL, 0, NULL, NULL));
}

/* As a mover copies ahead: what it reads is to be @version. */
static uint64_t copy_ahead(struct pair *p, uint8_t to, uint64_t version)
{
    const struct replica_batch batch = {
        .context = (struct context *)p->context,
        .from = 0,
        .to = to,
        .roots = &p->root,
        .versions = &version,
        .count = 1,
    };
    uint64_t bytes = 0;
    cl_int error = CL_SUCCESS;
    cr_assert_eq(replica_refresh(&batch, &bytes, &error), 0);
    return bytes;
}

/* A place that a mover prepares: nobody else looks there. */
static void prepare(struct pair *p, const char *name)
{
    struct context *context = (struct context *)p->context;
    struct device *device;
    cl_int error;
    cr_assert_eq(driver_open_device(engine_rig_key(&p->rig, name), &device), 0);
    cr_assert_eq(gate_close(0), 0);
    cr_assert_eq(residence_create(context, device, &context->at[2], &error), 0);
    OK(memory_make_real(p->root, context->at[2], 2));
    gate_open();
}

#define CONFIG                                                                                     \
    "[one] name=one base=1 own_memory=yes [two] name=two base=1 own_memory=yes [three] "           \
    "name=three base=1 own_memory=yes"

/* Both places have the buffer, and the first alone the latest bytes. */
static uint64_t write_in_first(struct pair *p)
{
    set(p, 0, 1, WORDS);
    set(p, 1, 2, WORDS);
    OK(clFinish(p->queues[1]));
    set(p, 0, 3, WORDS);
    OK(clFinish(p->queues[0]));
    cr_assert(replica_is_latest(p->root, 0) && !replica_is_latest(p->root, 1));
    return atomic_load(&p->root->version);
}

Test(replica, what_is_written_meanwhile_is_left_for_later, .timeout = 60)
{
    static struct pair p;
    pair_open(&p, CONFIG);
    uint64_t version = write_in_first(&p);
    set(&p, 0, 4, WORDS);
    OK(clFinish(p.queues[0]));
    prepare(&p, "three");
    for (uint8_t to = 1; to <= 2; to++) {
        cr_assert_eq(copy_ahead(&p, to, version), 0, "to place %u", to);
        cr_assert(!replica_is_latest(p.root, to));
        cr_assert_eq(copy_ahead(&p, to, atomic_load(&p.root->version)), BYTES);
        cr_assert(replica_is_latest(p.root, to));
    }
}

Test(replica, what_is_mapped_is_left_for_later, .timeout = 60)
{
    static struct pair p;
    pair_open(&p, CONFIG);
    uint64_t version = write_in_first(&p);
    void *map = MADE(clEnqueueMapBuffer, p.queues[0], p.buffer, CL_TRUE, CL_MAP_READ, 0, PART, 0,
                     NULL, NULL);
    prepare(&p, "three");
    cr_assert_eq(copy_ahead(&p, 1, version), 0);
    cr_assert_eq(copy_ahead(&p, 2, version), 0);
    OK(clEnqueueUnmapMemObject(p.queues[0], p.buffer, map, 0, NULL, NULL));
    OK(clFinish(p.queues[0]));
    cr_assert_eq(copy_ahead(&p, 1, version), BYTES);
    cr_assert_eq(copy_ahead(&p, 2, version), BYTES);
}

struct writing {
    struct pair *pair;
    unsigned after_ms;
};

static void *write_later(void *data)
{
    const struct writing *writing = data;
    engine_rig_sleep(writing->after_ms);
    set(writing->pair, 0, 5, WORDS);
    OK(clFinish(writing->pair->queues[0]));
    return NULL;
}

/* The copy has the bytes from before, in part at least: it may not pass for the latest. */
Test(replica, a_copy_is_of_the_version_that_was_read_before_it, .timeout = 60)
{
    static struct pair p;
    struct writing writing = {&p, 20};
    pthread_t thread;
    pair_open(&p, "[one] name=one base=1 own_memory=yes link_mb_s=50 [two] name=two base=1 "
                  "own_memory=yes");
    uint64_t version = write_in_first(&p);
    cr_assert_eq(pthread_create(&thread, NULL, write_later, &writing), 0);
    (void)copy_ahead(&p, 1, version);
    pthread_join(thread, NULL);
    cr_assert(!replica_is_latest(p.root, 1));
    engine_read_there(p.queues[1], p.buffer, 0, BYTES, p.got);
    for (size_t i = 0; i < WORDS; i++)
        cr_assert_eq(p.got[i], 5, "word %zu is %u", i, p.got[i]);
}

/* The program's bytes in the host copy go along with the others of the device. */
Test(replica, what_is_mapped_to_be_written_goes_past_by_the_host_copy, .timeout = 60)
{
    static struct pair p;
    uint64_t bytes;
    cl_int error;
    pair_open(&p, CONFIG);
    (void)write_in_first(&p);
    cl_uint *map = MADE(clEnqueueMapBuffer, p.queues[0], p.buffer, CL_TRUE, CL_MAP_WRITE, PART,
                        PART, 0, NULL, NULL);
    memset(map, 0x77, PART);
    const struct replica_batch batch = {.context = ((struct context *)p.context),
                                        .from = 0,
                                        .to = 1,
                                        .quiet = true,
                                        .roots = &p.root,
                                        .count = 1};
    cr_assert_eq(gate_close(0), 0);
    cr_assert_eq(replica_refresh(&batch, &bytes, &error), 0);
    struct residence *to = ((struct context *)p.context)->at[1];
    OK(to->cl->clEnqueueReadBuffer(to->io, p.root->real[1], CL_TRUE, 0, BYTES, p.got, 0, NULL,
                                   NULL));
    gate_open();
    for (size_t i = 0; i < WORDS; i++) {
        bool mapped = i >= PART / 4 && i < 2 * PART / 4;
        cr_assert_eq(p.got[i], mapped ? 0x77777777u : 3, "word %zu is %x", i, p.got[i]);
    }
    OK(clEnqueueUnmapMemObject(p.queues[0], p.buffer, map, 0, NULL, NULL));
    OK(clFinish(p.queues[0]));
}

/* One device waits for what the other had been given; what that is given meanwhile ends, too,
 * before it is copied. */
static void *read_there(void *data)
{
    struct pair *p = data;
    engine_read_there(p->queues[1], p->buffer, 0, PART, p->got);
    return NULL;
}

static void enqueue_late(struct pair *p, cl_uint value)
{
    const cl_uint turns = 150000000;
    const size_t one = 1;
    OK(clSetKernelArg(p->late, 1, sizeof(value), &value));
    OK(clSetKernelArg(p->late, 2, sizeof(turns), &turns));
    OK(clEnqueueNDRangeKernel(p->queues[0], p->late, 1, NULL, &one, &one, 0, NULL, NULL));
    OK(clFlush(p->queues[0]));
}

Test(replica, what_others_write_meanwhile_has_ended_before_it_is_copied, .timeout = 60)
{
    static struct pair p;
    pthread_t thread;
    pair_open(&p, CONFIG);
    (void)write_in_first(&p);
    struct budget *budget = &((struct context *)p.context)->at[0]->device->budget;
    enqueue_late(&p, 6);
    cr_assert_eq(pthread_create(&thread, NULL, read_there, &p), 0);
    while (atomic_load(&budget->waiting) == 0) /* for the first one */
        engine_rig_sleep(1);
    enqueue_late(&p, 7);
    pthread_join(thread, NULL);
    OK(clFinish(p.queues[0]));
    engine_read_there(p.queues[1], p.buffer, 0, PART, p.got);
    cr_assert_eq(p.got[0], 7, "%u of before the second one stayed there", p.got[0]);
}

/* Of two maps at one address. */
Test(replica, an_unmap_ends_the_oldest_map, .timeout = 60)
{
    static struct pair p;
    pair_open(&p, CONFIG);
    (void)write_in_first(&p);
    char *all = MADE(clEnqueueMapBuffer, p.queues[0], p.buffer, CL_TRUE, CL_MAP_WRITE, 0, 2 * PART,
                     0, NULL, NULL);
    memset(all, 0x11, 2 * PART);
    void *part = MADE(clEnqueueMapBuffer, p.queues[0], p.buffer, CL_TRUE, CL_MAP_READ, 0, PART, 0,
                      NULL, NULL);
    cr_assert_eq(part, all);
    OK(clEnqueueUnmapMemObject(p.queues[0], p.buffer, part, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(p.queues[0], p.buffer, CL_TRUE, PART, PART, p.got, 0, NULL, NULL));
    for (size_t i = 0; i < PART / 4; i++)
        cr_assert_eq(p.got[i], 0x11111111u, "what the first one wrote is not back");
    OK(clEnqueueUnmapMemObject(p.queues[0], p.buffer, part, 0, NULL, NULL));
    OK(clFinish(p.queues[0]));
}

/*
 * Ranges of bytes.
 */

static void fill_part(struct pair *p, int queue, size_t i, cl_uint value)
{
    OK(clEnqueueFillBuffer(p->queues[queue], p->buffer, &value, sizeof(value), i * PART, PART, 0,
                           NULL, NULL));
    OK(clFinish(p->queues[queue]));
}

static uint64_t lacks(const struct pair *p, uint8_t residence_index)
{
    return extents_lacking(p->root, residence_index, UINT64_MAX, replica_whole(p->root));
}

/* A device reads it; what the program reads need not be brought. */
static void use(struct pair *p, int queue, size_t offset, size_t size)
{
    cl_mem copy = engine_buffer(p->context, 0, size, NULL);
    OK(clEnqueueCopyBuffer(p->queues[queue], p->buffer, copy, offset, 0, size, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(p->queues[queue], copy, CL_TRUE, 0, size, p->got, 0, NULL, NULL));
    OK(clReleaseMemObject(copy));
}

static void check_part(struct pair *p, int queue, size_t i, cl_uint value)
{
    use(p, queue, i * PART, PART);
    for (size_t at = 0; at < PART / sizeof(cl_uint); at++)
        cr_assert_eq(p->got[at], value, "word %zu of part %zu is %u, not %u", at, i, p->got[at],
                     value);
}

Test(replica, only_what_a_command_names_is_brought, .timeout = 60)
{
    static struct pair p;
    pair_open(&p, CONFIG);
    (void)write_in_first(&p);
    check_part(&p, 1, 7, 3);
    cr_assert_eq(lacks(&p, 1), BYTES - PART);
    OK(clEnqueueCopyBuffer(p.queues[1], p.buffer, p.buffer, 9 * PART, 7 * PART, PART / 2, 0, NULL,
                           NULL));
    OK(clFinish(p.queues[1]));
    cr_assert_eq(lacks(&p, 1), BYTES - PART - PART / 2);
    cr_assert_eq(lacks(&p, 0), PART / 2);
}

Test(replica, a_part_that_is_written_leaves_the_rest_as_it_is, .timeout = 60)
{
    static struct pair p;
    pair_open(&p, CONFIG);
    (void)write_in_first(&p);
    use(&p, 1, 0, BYTES);
    cr_assert_eq(lacks(&p, 1), 0);
    fill_part(&p, 0, 3, 33);
    cr_assert_eq(lacks(&p, 1), PART);
    cr_assert_eq(lacks(&p, 0), 0);
    check_part(&p, 1, 2, 3);
    cr_assert_eq(lacks(&p, 1), PART);
    check_part(&p, 1, 3, 33);
    cr_assert_eq(lacks(&p, 1), 0);
}

/* Each through a sub-buffer of its own: they are brought there once. */
Test(replica, two_devices_write_their_parts_without_copies_between, .timeout = 60)
{
    static struct pair p;
    static const char *const names[] = {"one", "two"};
    cl_mem halves[2];
    uint64_t calls = 0;
    const size_t items = BYTES / 2 / sizeof(cl_uint);
    pair_open(&p, CONFIG);
    (void)write_in_first(&p);
    for (size_t i = 0; i < 2; i++) {
        const cl_buffer_region region = {i * (BYTES / 2), BYTES / 2};
        halves[i] = MADE(clCreateSubBuffer, p.buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
    }
    for (cl_uint round = 0; round < 10; round++) {
        uint64_t now = 0;
        for (int i = 0; i < 2; i++) {
            const cl_uint value = 10 * round + (cl_uint)i;
            ARGS(p.set, halves[i], value);
            OK(clEnqueueNDRangeKernel(p.queues[i], p.set, 1, NULL, &items, NULL, 0, NULL, NULL));
            OK(clFinish(p.queues[i]));
        }
        for (int i = 0; i < 2; i++)
            now += emu_shared_calls(p.rig.emu, names[i], "clEnqueueReadBuffer") +
                   emu_shared_calls(p.rig.emu, names[i], "clEnqueueWriteBuffer");
        cr_assert(round == 0 ? now > 0 : now == calls, "round %u: %llu copies after %llu", round,
                  (unsigned long long)now, (unsigned long long)calls);
        calls = now;
    }
    cr_assert_eq(lacks(&p, 0), BYTES / 2);
    cr_assert_eq(lacks(&p, 1), BYTES / 2);
    check_part(&p, 1, 0, 90);
    check_part(&p, 0, BYTES / PART - 1, 91);
    for (size_t i = 0; i < 2; i++)
        OK(clReleaseMemObject(halves[i]));
}

/* The second pass of copying ahead. */
Test(replica, what_was_written_since_alone_is_copied_again, .timeout = 60)
{
    static struct pair p;
    pair_open(&p, CONFIG);
    (void)write_in_first(&p);
    prepare(&p, "three");
    for (cl_uint pass = 0; pass < 3; pass++) {
        cr_assert_eq(gate_close(0), 0);
        uint64_t version = extents_watch(p.root);
        gate_open();
        fill_part(&p, 0, pass, pass);
        fill_part(&p, 0, 100 + pass, pass);
        /* What was written while the mover copied is left for the next pass. */
        cr_assert_eq(copy_ahead(&p, 2, version), pass == 0 ? BYTES - 2 * PART : 2 * PART);
        extents_unwatch(p.root);
        cr_assert_eq(lacks(&p, 2), 2 * PART);
    }
    cr_assert_eq(copy_ahead(&p, 2, atomic_load(&p.root->version)), 2 * PART);
    struct residence *to = ((struct context *)p.context)->at[2];
    OK(to->cl->clEnqueueReadBuffer(to->io, p.root->real[2], CL_TRUE, 0, BYTES, p.got, 0, NULL,
                                   NULL));
    for (size_t i = 0; i < WORDS; i++) {
        size_t at = i / (PART / sizeof(cl_uint));
        cr_assert_eq(p.got[i], at % 100 < 3 && at < 103 ? at % 100 : 3, "word %zu is %u", i,
                     p.got[i]);
    }
}

/* Where the host has most of it only the rest is copied for a spill, and what a command names
 * comes back. */
Test(replica, of_what_spills_the_rest_is_copied, .timeout = 60)
{
    static struct pair p;
    uint64_t bytes;
    cl_int error = CL_SUCCESS;
    pair_open(&p, CONFIG);
    (void)write_in_first(&p);
    (void)budget_shrink(0, 0);
    cr_assert(replica_is_latest_whole(p.root, RESIDENCE_HOST) && !p.root->real[0]);
    fill_part(&p, 0, 1, 11);
    cr_assert_eq(lacks(&p, 0), BYTES - ((size_t)1 << 20), "%llu bytes are not there",
                 (unsigned long long)lacks(&p, 0));
    cr_assert_eq(lacks(&p, RESIDENCE_HOST), PART);
    const struct replica_batch batch = {.context = (struct context *)p.context,
                                        .to = RESIDENCE_HOST,
                                        .quiet = true,
                                        .roots = &p.root,
                                        .count = 1};
    cr_assert_eq(gate_close(0), 0);
    cr_assert_eq(replica_refresh(&batch, &bytes, &error), 0);
    cr_assert_eq(bytes, PART);
    gate_open();
    (void)budget_shrink(0, 0);
    cr_assert_not(p.root->real[0]);
    const cl_uint *host = (const cl_uint *)memory_host_bytes(p.root);
    for (size_t i = 0; i < WORDS; i++)
        cr_assert_eq(host[i], i / (PART / sizeof(cl_uint)) == 1 ? 11 : 3, "word %zu", i);
    check_part(&p, 0, 1, 11);
    check_part(&p, 0, 2, 3);
}

/* Of an image: rows where it is flat, slices where it is deep. */
static void image_by_layers(struct pair *p, cl_mem_object_type type)
{
    enum { WIDTH = 32, HEIGHT = 16, DEPTH = 8, ELEMENT = 4 };
    bool deep = type == CL_MEM_OBJECT_IMAGE3D;
    const cl_image_format format = {CL_R, CL_UNSIGNED_INT32};
    const cl_image_desc desc = {.image_type = type,
                                .image_width = WIDTH,
                                .image_height = HEIGHT,
                                .image_depth = deep ? DEPTH : 0};
    const size_t words = (size_t)WIDTH * HEIGHT * (deep ? DEPTH : 1);
    const size_t origin[3] = {3, 2, deep ? 5 : 0}, region[3] = {7, 4, deep ? 2 : 1};
    cl_uint bytes[(size_t)WIDTH * HEIGHT * DEPTH], box[7 * 4 * 2];
    cl_int error;
    for (size_t i = 0; i < words; i++)
        bytes[i] = (cl_uint)i * 31;
    for (size_t i = 0; i < ARRAY_SIZE(box); i++)
        box[i] = 1000000 + (cl_uint)i;
    cl_mem image = MADE(clCreateImage, p->context, CL_MEM_COPY_HOST_PTR, &format, &desc, bytes);
    struct memory *root = memory_get(image);
    struct replica_batch batch = {
        .context = root->context, .to = RESIDENCE_HOST, .quiet = true, .roots = &root, .count = 1};
    for (unsigned pass = 0; pass < 2; pass++) {
        uint64_t copied;
        if (pass == 1) {
            OK(clEnqueueWriteImage(p->queues[0], image, CL_TRUE, origin, region, 0, 0, box, 0, NULL,
                                   NULL));
            for (size_t i = 0; i < region[0] * region[1] * region[2]; i++)
                bytes[((origin[2] + i / 28) * HEIGHT + origin[1] + i / 7 % 4) * WIDTH + origin[0] +
                      i % 7] = box[i];
        }
        OK(clFinish(p->queues[0]));
        cr_assert_eq(gate_close(0), 0);
        cr_assert_eq(replica_refresh(&batch, &copied, &error), 0);
        gate_open();
        size_t layers = deep ? (size_t)2 * HEIGHT : 4;
        cr_assert_eq(copied, pass == 0 ? words * ELEMENT : layers * WIDTH * ELEMENT);
        cr_assert_arr_eq(memory_host_bytes(root), bytes, words * ELEMENT);
    }
    OK(clReleaseMemObject(image));
}

Test(replica, of_an_image_rows_or_slices_are_copied, .timeout = 60)
{
    static struct pair p;
    pair_open(&p, CONFIG);
    image_by_layers(&p, CL_MEM_OBJECT_IMAGE2D);
    image_by_layers(&p, CL_MEM_OBJECT_IMAGE3D);
}

/* L4: what the host lacks of the program's memory goes beside it, and what it has goes along. */
Test(replica, what_the_program_user_memory_is_kept_beside_it_with_all_its_bytes, .timeout = 60)
{
    static struct pair p;
    const cl_uint value = 77;
    struct move_report report;
    pair_open(&p, CONFIG);
    cl_uint *user_memory = aligned_alloc(4096, BYTES);
    cr_assert_not_null(user_memory);
    for (size_t i = 0; i < WORDS; i++)
        user_memory[i] = (cl_uint)i;
    cl_mem buffer = MADE(clCreateBuffer, p.context, CL_MEM_USE_HOST_PTR, BYTES, user_memory);
    struct memory *root = memory_get(buffer);
    /* The second device takes a part, so that it is told apart, and writes it. */
    OK(clEnqueueFillBuffer(p.queues[1], buffer, &value, sizeof(value), 5 * PART, PART, 0, NULL,
                           NULL));
    OK(clFinish(p.queues[1]));
    cr_assert(extents_latest(root, RESIDENCE_HOST, (struct range){0, 5 * PART}));
    struct move_request request = {.vdev = 1};
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    request.vdev = 0;
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert(replica_is_latest(root, RESIDENCE_HOST));
    cr_assert_not_null(root->shadow_copy);
    for (size_t i = 0; i < WORDS; i++) {
        bool written = i / (PART / sizeof(cl_uint)) == 5;
        cr_assert_eq(user_memory[i], i, "word %zu of the program's memory is %u", i,
                     user_memory[i]);
        cr_assert_eq(((const cl_uint *)root->shadow_copy)[i], written ? value : i);
    }
    OK(clReleaseMemObject(buffer));
    free(user_memory);
}

static void bring_to_host(struct memory *root, const struct range *range)
{
    const struct replica_batch batch = {.context = root->context,
                                        .to = RESIDENCE_HOST,
                                        .quiet = true,
                                        .roots = &root,
                                        .ranges = range,
                                        .count = 1};
    uint64_t bytes;
    cl_int error = CL_SUCCESS;
    cr_assert_eq(gate_close(0), 0);
    cr_assert_eq(replica_refresh(&batch, &bytes, &error), 0);
    gate_open();
}

/* Memory that was somebody else's is taken where every byte is written, and nowhere else. */
Test(replica, of_warm_memory_nothing_is_seen_that_was_there_before, .timeout = 60)
{
    enum { WIDTH = 2040, PITCH = 8192, HEIGHT = BYTES / PITCH };
    static struct pair p;
    static const unsigned char zeros[BYTES];
    const cl_image_format format = {CL_R, CL_UNSIGNED_INT32};
    const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D,
                                .image_width = WIDTH,
                                .image_height = HEIGHT,
                                .image_row_pitch = PITCH};
    const struct range part = {PART, 2 * PART};
    pair_open(&p, CONFIG);
    memset(p.got, 7, BYTES);
    cl_mem image = MADE(clCreateImage, p.context, CL_MEM_COPY_HOST_PTR, &format, &desc, p.got);
    cl_mem other = engine_buffer(p.context, CL_MEM_COPY_HOST_PTR, BYTES, p.got);
    pages_set_limit(2 * BYTES);
    char *dirty = pages_take(2 * BYTES, PAGES_ANY);
    cr_assert_not_null(dirty);
    memset(dirty, 0xa5, 2 * BYTES);
    pages_give(dirty, 2 * BYTES);

    bring_to_host(p.root, NULL);
    cr_assert_eq(pages_warm(), BYTES, "all of it is written");
    cr_assert_arr_eq(memory_host_bytes(p.root), zeros, BYTES);
    bring_to_host(memory_get(other), &part);
    bring_to_host(memory_get(image), NULL);
    cr_assert_eq(pages_warm(), BYTES, "not all of it is written");
    const char *bytes = memory_host_bytes(memory_get(other));
    for (size_t i = 0; i < BYTES; i++)
        cr_assert_eq(bytes[i], i >= part.begin && i < part.end ? 7 : 0, "byte %zu", i);
    bytes = memory_host_bytes(memory_get(image));
    for (size_t i = 0; i < BYTES; i++)
        cr_assert_eq(bytes[i], i % PITCH < sizeof(cl_uint) * WIDTH ? 7 : 0, "byte %zu", i);

    cr_assert_eq(gate_close(0), 0);
    memory_host_copy_drop(p.root, 0);
    gate_open();
    cr_assert_null(p.root->host_copy);
    cr_assert_eq(pages_warm(), 2 * BYTES, "what is dropped is warm");
}
