#include "state/base/threads/callback.h"
#include "state/memory/registered.h"
#include "state/object/pinned.h"
#include "tests/support/engine_rig.h"

/* Devices with memory of their own, where what the program maps is a copy of it: as GPUs have it.
 */

#define BYTES ((size_t)4 << 20)
#define WORDS (BYTES / sizeof(cl_uint))

static const char config[] =
    "[one] name=one base=1 own_memory=yes [two] name=two base=1 own_memory=yes "
    "[three] name=three base=1 host_unified=yes";
static const char source[] =
    "__kernel void add(__global uint *a, uint k) { a[get_global_id(0)] += k + get_global_id(0); }"
    "__kernel void late(__global const uint *a, __global uint *out, uint turns, uint words) {"
    "    uint x = turns;"
    "    for (uint i = 0; i < turns; i++) x = x * 1664525u + (x >> 7);"
    "    for (uint i = 0; i < words; i++) out[i] = a[i] + (x == turns);"
    "}";

struct own {
    struct engine_rig rig;
    struct engine_program program;
    cl_mem buffer;
    cl_uint *want;
};

static void own_open(struct own *o, size_t size)
{
    engine_rig_open(&o->rig, config);
    engine_program_open(&o->rig, 0, source, &o->program);
    o->want = malloc(size);
    cr_assert_not_null(o->want);
    for (size_t i = 0; i < size / sizeof(cl_uint); i++)
        o->want[i] = (cl_uint)i * 2654435761u;
    o->buffer = engine_buffer(o->program.context, CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR,
                              size, o->want);
}

/* A plain buffer: the driver maps it elsewhere than in its host copy. */
static void own_open_plain(struct own *o, size_t size)
{
    own_open(o, size);
    OK(clReleaseMemObject(o->buffer));
    o->buffer = engine_buffer(o->program.context, CL_MEM_COPY_HOST_PTR, size, o->want);
}

static int64_t own_buffers(const struct own *o, const char *device)
{
    return emu_shared_live(o->rig.emu, device, EMU_MEM);
}

static void own_close(struct own *o)
{
    OK(clReleaseMemObject(o->buffer));
    free(o->want);
    engine_program_close(&o->program);
}

static void own_check(const struct own *o, size_t size, const char *when)
{
    char *got = malloc(size);
    cr_assert_not_null(got);
    OK(clEnqueueReadBuffer(o->program.queue, o->buffer, CL_TRUE, 0, size, got, 0, NULL, NULL));
    cr_assert(memcmp(got, o->want, size) == 0, "%s", when);
    free(got);
}

static void *own_map(const struct own *o, cl_map_flags flags, size_t offset, size_t size)
{
    void *map = MADE(clEnqueueMapBuffer, o->program.queue, o->buffer, CL_TRUE, flags, offset, size,
                     0, NULL, NULL);
    return map;
}

/* A driver that has nothing to fetch says at once that it mapped: what is queued before has not
 * come to the bytes yet. */
Test(memory, a_map_that_invalidates_waits_for_what_was_queued, .timeout = 60)
{
    enum { FEW = 256, SIZE = FEW * 4 };
    const cl_uint turns = 200000000, words = FEW;
    const size_t single = 1;
    static struct own o;
    cl_uint got[FEW];
    own_open(&o, SIZE);
    cl_kernel late = engine_kernel(o.program.program, "late");
    cl_mem out = engine_buffer(o.program.context, CL_MEM_READ_WRITE, SIZE, NULL);
    ARGS(late, o.buffer, out, turns, words);
    cl_uint *map = own_map(&o, CL_MAP_WRITE, 0, SIZE);
    for (size_t i = 0; i < FEW; i++)
        o.want[i] = map[i] = (cl_uint)i * 7 + 1;
    OK(clEnqueueUnmapMemObject(o.program.queue, o.buffer, map, 0, NULL, NULL));
    OK(clEnqueueNDRangeKernel(o.program.queue, late, 1, NULL, &single, NULL, 0, NULL, NULL));
    OK(clFlush(o.program.queue));
    map = own_map(&o, CL_MAP_WRITE_INVALIDATE_REGION, 0, SIZE);
    memset(map, 0xee, SIZE);
    OK(clEnqueueUnmapMemObject(o.program.queue, o.buffer, map, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(o.program.queue, out, CL_TRUE, 0, SIZE, got, 0, NULL, NULL));
    cr_assert(memcmp(got, o.want, SIZE) == 0, "the kernel saw what was mapped after it");
    memset(o.want, 0xee, SIZE);
    own_check(&o, SIZE, "unmapped");
    RELEASE(out, late);
    own_close(&o);
}

/* What says that the map has ended cannot be made: then nothing is mapped, and the next map works.
 */
Test(memory, a_map_whose_end_cannot_be_told_is_none, .timeout = 60)
{
    enum { SIZE = 1024 };
    static struct own o;
    cl_int error;
    cl_uint count = 1;
    own_open(&o, SIZE);
    cr_assert_eq(
        emu_shared_arm(o.rig.emu, "one", 1, "clEnqueueMarkerWithWaitList", CL_INVALID_OPERATION),
        0);
    cr_assert_null(clEnqueueMapBuffer(o.program.queue, o.buffer, CL_TRUE,
                                      CL_MAP_WRITE_INVALIDATE_REGION, 0, SIZE, 0, NULL, NULL,
                                      &error));
    cr_assert_eq(error, CL_INVALID_OPERATION);
    OK(clGetMemObjectInfo(o.buffer, CL_MEM_MAP_COUNT, sizeof(count), &count, NULL));
    cr_assert_eq(count, 0);
    void *map = own_map(&o, CL_MAP_WRITE_INVALIDATE_REGION, 0, SIZE);
    memset(map, 0x77, SIZE);
    memset(o.want, 0x77, SIZE);
    OK(clEnqueueUnmapMemObject(o.program.queue, o.buffer, map, 0, NULL, NULL));
    own_check(&o, SIZE, "mapped after all");
    engine_rig_moves(&o.rig, "two");
    own_check(&o, SIZE, "moved");
    own_close(&o);
}

/* Mapped in each way at odd places, and not at all, while it goes from each device to each other.
 */
Test(memory, copies_are_there_before_they_are_copied_on, .timeout = 120)
{
    static const char *const places[] = {"one", "two", "three"};
    static const cl_map_flags ways[] = {0, CL_MAP_READ, CL_MAP_WRITE,
                                        CL_MAP_WRITE_INVALIDATE_REGION};
    const size_t global = WORDS;
    static struct own o;
    unsigned at = 0;
    own_open(&o, BYTES);
    cl_kernel add = engine_kernel(o.program.program, "add");
    OK(clSetKernelArg(add, 0, sizeof(cl_mem), &o.buffer));
    for (cl_uint step = 0; step < 48; step++) {
        const cl_map_flags way = ways[step % 4];
        const bool writes = way & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION);
        const size_t offset = (size_t)555 * step + step / 4, size = BYTES / 2 + step;
        char *map = NULL, when[64];
        OK(clSetKernelArg(add, 1, sizeof(step), &step));
        OK(clEnqueueNDRangeKernel(o.program.queue, add, 1, NULL, &global, NULL, 0, NULL, NULL));
        for (cl_uint i = 0; i < WORDS; i++)
            o.want[i] += step + i;
        if (way)
            map = own_map(&o, way, offset, size);
        if (way == CL_MAP_READ || way == CL_MAP_WRITE)
            cr_assert(memcmp(map, (char *)o.want + offset, size) == 0, "step %u: mapped", step);
        if (writes)
            memset(map, (int)step, size / 2);
        unsigned to = (at + 1 + step / 4 % 2) % 3;
        if (step / 4 % 3 == 2)
            engine_rig_moves(&o.rig, NULL);
        engine_rig_moves(&o.rig, places[to]);
        snprintf(when, sizeof(when), "step %u, from %s to %s", step, places[at], places[to]);
        at = to;
        if (writes) {
            memset(map + size / 2, (int)step, size - size / 2);
            memset((char *)o.want + offset, (int)step, size);
        }
        if (way == CL_MAP_READ)
            cr_assert(memcmp(map, (char *)o.want + offset, size) == 0, "%s: kept", when);
        if (map)
            OK(clEnqueueUnmapMemObject(o.program.queue, o.buffer, map, 0, NULL, NULL));
        own_check(&o, BYTES, when);
    }
    OK(clReleaseKernel(add));
    own_close(&o);
}

/* A host copy that is mapped again and again is registered with the driver, for its copies to run
 * at the link's speed; it takes no memory of the device, and is let go of with a move, a suspend
 * and the buffer. */
Test(memory, a_host_copy_is_registered_where_it_is_mapped_again, .timeout = 120)
{
    static const char *const places[] = {"two", "one", NULL, "two", "three", "one"};
    static struct own o;
    const char *at = "one";
    own_open_plain(&o, BYTES);
    int64_t plain = own_buffers(&o, "one");
    uint64_t bytes = emu_shared_bytes(o.rig.emu, "one");
    for (unsigned i = 0; i < ARRAY_SIZE(places); i++) {
        for (unsigned k = 0; k < 3; k++) {
            char *map = own_map(&o, k == 1 ? CL_MAP_READ : CL_MAP_WRITE, 0, BYTES);
            cr_assert(memcmp(map, o.want, BYTES) == 0, "map %u in %s", k, at);
            if (k != 1)
                o.want[i * 1000 + k] = ((cl_uint *)map)[i * 1000 + k] = i + k;
            OK(clEnqueueUnmapMemObject(o.program.queue, o.buffer, map, 0, NULL, NULL));
            OK(clFinish(o.program.queue));
            /* "three" works in the host copy itself. */
            bool registers = strcmp(at, "three") != 0 && (i > 0 || k > 0);
            cr_assert_eq(own_buffers(&o, at), plain + registers, "map %u in %s", k, at);
        }
        if (strcmp(at, "three") != 0)
            cr_assert_eq(emu_shared_bytes(o.rig.emu, at), bytes, "%s has room for it", at);
        char *map = own_map(&o, CL_MAP_WRITE, 0, BYTES);
        engine_rig_moves(&o.rig, places[i]);
        cr_assert_eq(own_buffers(&o, at), 0, "%s keeps nothing", at);
        if (!places[i])
            engine_rig_moves(&o.rig, "one");
        at = places[i] ? places[i] : "one";
        cr_assert(memcmp(map, o.want, BYTES) == 0, "mapped across a move to %s", at);
        o.want[i] = ((cl_uint *)map)[i] = ~i;
        OK(clEnqueueUnmapMemObject(o.program.queue, o.buffer, map, 0, NULL, NULL));
        own_check(&o, BYTES, at);
    }
    OK(clRetainContext(o.program.context));
    cl_context context = o.program.context;
    own_close(&o);
    cr_assert_eq(own_buffers(&o, "one"), 0);
    OK(clReleaseContext(context));
}

static atomic_bool may_return;

static void CL_CALLBACK stay(cl_event event, cl_int status, void *returned)
{
    (void)event, (void)status;
    while (!atomic_load(&may_return))
        engine_rig_sleep(1);
    atomic_fetch_add((atomic_uint *)returned, 1);
}

/* The drivers of both devices say that they let go of the host copy before a thread can hear the
 * first: the callbacks of the program that come before stay for long. */
Test(memory, a_registered_host_copy_of_two_devices_ends_once, .timeout = 60)
{
    enum { CALLBACKS = 24, SETTLES_MS = 20000 };
    static struct own o;
    static atomic_uint returned;
    engine_rig_open(&o.rig, config);
    const cl_device_id devices[] = {o.rig.device, engine_rig_vdev(&o.rig, "two")};
    cl_context context = MADE(clCreateContext, NULL, 2, devices, NULL, NULL);
    o.program.context = context;
    o.program.queue = MADE(clCreateCommandQueue, context, devices[0], 0);
    cl_command_queue other = MADE(clCreateCommandQueue, context, devices[1], 0);
    o.want = calloc(1, BYTES);
    cr_assert_not_null(o.want);
    o.buffer = engine_buffer(context, CL_MEM_COPY_HOST_PTR, BYTES, o.want);
    for (int i = 0; i < 3; i++)
        OK(clEnqueueUnmapMemObject(o.program.queue, o.buffer, own_map(&o, CL_MAP_READ, 0, BYTES), 0,
                                   NULL, NULL));
    cl_uint word;
    engine_read_there(other, o.buffer, 0, sizeof(word), &word);
    OK(clFinish(o.program.queue));
    OK(clFinish(other));
    cr_assert(registered_is(memory_get(o.buffer)->root->host_copy));
    for (int i = 0; i < CALLBACKS; i++) {
        cl_event user = MADE(clCreateUserEvent, context);
        OK(clSetEventCallback(user, CL_COMPLETE, stay, &returned));
        OK(clSetUserEventStatus(user, CL_COMPLETE));
        OK(clReleaseEvent(user));
    }
    OK(clReleaseMemObject(o.buffer));
    atomic_store(&may_return, true);
    callback_settle(SETTLES_MS);
    cr_assert_eq(atomic_load(&returned), CALLBACKS);
    cr_assert_eq(own_buffers(&o, "one"), 0);
    cr_assert_eq(own_buffers(&o, "two"), 1, "by which the word was read");
    RELEASE(other, o.program.queue, context);
    free(o.want);
}

/* To register all of a large buffer for small parts of it does not pay. */
Test(memory, a_host_copy_of_which_little_is_mapped_is_not_registered, .timeout = 60)
{
    static struct own o;
    own_open_plain(&o, BYTES);
    int64_t plain = own_buffers(&o, "one");
    for (size_t i = 0; i < 64; i++) {
        char *map = own_map(&o, CL_MAP_READ, i * 8192, 8192);
        cr_assert(memcmp(map, (char *)o.want + i * 8192, 8192) == 0);
        OK(clEnqueueUnmapMemObject(o.program.queue, o.buffer, map, 0, NULL, NULL));
    }
    cr_assert_eq(own_buffers(&o, "one"), plain);
    own_close(&o);
}

/* A driver that refuses is not asked again, and maps work. */
Test(memory, a_host_copy_that_cannot_be_registered_is_mapped_all_the_same, .timeout = 60)
{
    static struct own o;
    own_open_plain(&o, BYTES);
    int64_t plain = own_buffers(&o, "one");
    for (cl_uint i = 0; i < 6; i++) {
        if (i == 1)
            cr_assert_eq(emu_shared_arm(o.rig.emu, "one", 1, "clCreateBuffer", CL_OUT_OF_RESOURCES),
                         0);
        cl_uint *map = own_map(&o, CL_MAP_READ | CL_MAP_WRITE, 0, BYTES);
        cr_assert(memcmp(map, o.want, BYTES) == 0);
        o.want[i] = map[i] = i;
        OK(clEnqueueUnmapMemObject(o.program.queue, o.buffer, map, 0, NULL, NULL));
        own_check(&o, BYTES, "unmapped");
    }
    cr_assert_eq(emu_shared_fired(o.rig.emu, "one"), 1);
    cr_assert_eq(own_buffers(&o, "one"), plain);
    own_close(&o);
}

/* A few bytes that the program waits for are read into registered memory, of which a residence has
 * one piece. It goes with the residence. */
Test(memory, few_bytes_that_are_waited_for_are_read_by_registered_memory, .timeout = 120)
{
    static struct own o;
    cl_event event;
    own_open_plain(&o, BYTES);
    int64_t plain = own_buffers(&o, "one");
    char *got = calloc(1, BYTES);
    cr_assert_not_null(got);
    OK(clEnqueueReadBuffer(o.program.queue, o.buffer, CL_FALSE, 4, 64, got, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(o.program.queue, o.buffer, CL_TRUE, 0, 64, got, 0, NULL, &event));
    OK(clReleaseEvent(event));
    OK(clEnqueueReadBuffer(o.program.queue, o.buffer, CL_TRUE, 0, PINNED_SLOT + 1, got, 0, NULL,
                           NULL));
    cr_assert_eq(own_buffers(&o, "one"), plain, "none of these goes that way");
    for (unsigned i = 0; i < 3; i++) {
        size_t size = i == 0 ? 1 : i == 1 ? PINNED_SLOT : 4097, offset = 1000 * i;
        memset(got, 0x5a, BYTES);
        OK(clEnqueueReadBuffer(o.program.queue, o.buffer, CL_TRUE, offset, size, got, 0, NULL,
                               NULL));
        cr_assert_eq(own_buffers(&o, "one"), plain + 1);
        cr_assert(memcmp(got, (char *)o.want + offset, size) == 0, "%zu bytes", size);
        cr_assert_eq(got[size], 0x5a, "not a byte more");
    }
    engine_rig_moves(&o.rig, "two");
    cr_assert_eq(own_buffers(&o, "one"), 0);
    own_check(&o, 32, "moved");
    engine_rig_moves(&o.rig, "three"); /* Its memory is the host's. */
    int64_t before = own_buffers(&o, "three");
    own_check(&o, 32, "moved again");
    cr_assert_eq(own_buffers(&o, "three"), before);
    engine_rig_moves(&o.rig, "one");
    /* A driver that refuses is not asked again. */
    OK(emu_shared_arm(o.rig.emu, "one", 1, "clCreateBuffer", CL_OUT_OF_RESOURCES));
    before = own_buffers(&o, "one");
    for (unsigned i = 0; i < 3; i++)
        own_check(&o, 32, "plain");
    cr_assert_eq(emu_shared_fired(o.rig.emu, "one"), 1);
    cr_assert_eq(own_buffers(&o, "one"), before);
    free(got);
    own_close(&o);
}

struct reading {
    const struct own *own;
    unsigned from;
    atomic_bool *over;
};

static void *read_all_the_time(void *data)
{
    const struct reading *reading = data;
    const struct own *o = reading->own;
    cl_command_queue queue = MADE(clCreateCommandQueue, o->program.context, o->rig.device, 0);
    cl_uint got[512];
    for (unsigned i = reading->from; !atomic_load(reading->over); i = (i + 7919) % (WORDS - 512)) {
        OK(clEnqueueReadBuffer(queue, o->buffer, CL_TRUE, i * 4, sizeof(got), got, 0, NULL, NULL));
        cr_assert(memcmp(got, o->want + i, sizeof(got)) == 0, "at %u", i);
    }
    OK(clReleaseCommandQueue(queue));
    return NULL;
}

/* More threads than there are slots, while the residence changes. */
Test(memory, many_threads_read_few_bytes_at_once, .timeout = 120)
{
    static const char *const places[] = {"two", "one", NULL, "one", "three", "two", "one"};
    enum { THREADS = 12 };
    static struct own o;
    atomic_bool over = false;
    pthread_t threads[THREADS];
    struct reading readings[THREADS];
    own_open_plain(&o, BYTES);
    for (unsigned i = 0; i < THREADS; i++) {
        readings[i] = (struct reading){&o, i * 1000, &over};
        cr_assert_eq(pthread_create(&threads[i], NULL, read_all_the_time, &readings[i]), 0);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(places); i++) {
        engine_rig_sleep(50);
        engine_rig_moves(&o.rig, places[i]);
    }
    atomic_store(&over, true);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    own_close(&o);
}

/* Something may still write to the slot of a read that failed: nobody gets it again. */
Test(memory, a_read_that_fails_leaves_its_slot_and_the_programs_memory, .timeout = 60)
{
    static struct own o;
    cl_uint got = 0x5a5a5a5a;
    own_open_plain(&o, BYTES);
    const struct context *context = memory_get(o.buffer)->context;
    struct residence *residence = context->at[atomic_load(&context->residence_index[0])];
    cl_event failed = MADE(clCreateUserEvent, o.program.context);
    OK(clSetUserEventStatus(failed, -1));
    cr_assert_neq(clEnqueueReadBuffer(o.program.queue, o.buffer, CL_TRUE, 0, sizeof(got), &got, 1,
                                      &failed, NULL),
                  CL_SUCCESS);
    cr_assert_eq(got, 0x5a5a5a5a);
    char *slots[8];
    unsigned count = 0;
    while (count < ARRAY_SIZE(slots) && (slots[count] = pinned_slot_take(residence)))
        count++;
    cr_assert_eq(count, 7);
    own_check(&o, 32, "without a slot");
    for (unsigned i = 0; i < count; i++)
        pinned_slot_give(residence, slots[i]);
    own_check(&o, 32, "with one");
    OK(clReleaseEvent(failed));
    own_close(&o);
}
