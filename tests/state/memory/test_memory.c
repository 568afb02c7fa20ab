#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "state/memory/mapping.h"
#include "tests/state/memory/test_invariants_common.h"

/* How memory objects end, and what the program may do with its own memory then. */

#define MANY ((size_t)16 << 20)

static const char *const slow =
    "[one] name=one link_mb_s=50 [three] name=three type=cpu host_unified=yes";

struct last_words {
    pthread_mutex_t lock;
    pthread_cond_t said;
    char order[8];
    size_t count;
    const volatile cl_uint *seen_at; /* looked at by the first call */
    cl_uint seen;
};
#define LAST_WORDS                                                                                 \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER, .said = PTHREAD_COND_INITIALIZER                        \
    }

static void say(struct last_words *words, char what)
{
    pthread_mutex_lock(&words->lock);
    if (words->count == 0 && words->seen_at)
        words->seen = *words->seen_at;
    if (words->count < sizeof(words->order) - 1)
        words->order[words->count++] = what;
    pthread_cond_broadcast(&words->said);
    pthread_mutex_unlock(&words->lock);
}

static void CL_CALLBACK say_a(cl_mem memory, void *words)
{
    (void)memory;
    say(words, 'a');
}

static void CL_CALLBACK say_b(cl_mem memory, void *words)
{
    (void)memory;
    say(words, 'b');
}

static void CL_CALLBACK say_c(cl_mem memory, void *words)
{
    (void)memory;
    say(words, 'c');
}

static void expect_words(struct last_words *words, const char *order)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    pthread_mutex_lock(&words->lock);
    while (words->count < strlen(order) &&
           pthread_cond_timedwait(&words->said, &words->lock, &until) == 0)
        ;
    cr_expect_str_eq(words->order, order);
    pthread_mutex_unlock(&words->lock);
}

static void ask_for_words(cl_mem memory, struct last_words *words)
{
    OK(clSetMemObjectDestructorCallback(memory, say_a, words));
    OK(clSetMemObjectDestructorCallback(memory, say_b, words));
    OK(clSetMemObjectDestructorCallback(memory, say_c, words));
}

static const char *const long_source =
    "__kernel void finally(__global uint *words, uint rounds)\n"
    "{ uint x = words[0]; for (uint i = 0; i < rounds; i++) x = x * 1664525u + (x >> 7) + i;\n"
    "  words[1] = x; words[0] = 1; }\n";

/* 5.5.1: not before the commands that use the object have ended. */
Test(memory_end, callbacks_come_after_the_last_command, .timeout = 300)
{
    static struct engine_rig rig;
    struct engine_program p;
    struct last_words words = LAST_WORDS;
    const cl_uint rounds = 300000000;
    const size_t one = 1;
    engine_rig_open_pocl(&rig, "pthread");
    engine_program_open(&rig, 0, long_source, &p);
    cl_uint *host = aligned_alloc(4096, 4096);
    cr_assert_not_null(host);
    memset(host, 0, 4096);
    cl_mem buffer = engine_buffer(p.context, CL_MEM_USE_HOST_PTR, 4096, host);
    cl_kernel kernel = engine_kernel(p.program, "finally");
    words.seen_at = host;
    ask_for_words(buffer, &words);
    ARGS(kernel, buffer, rounds);
    OK(clEnqueueNDRangeKernel(p.queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
    OK(clFlush(p.queue));
    RELEASE(buffer, kernel);
    OK(clFinish(p.queue));
    expect_words(&words, "cba");
    cr_expect_eq(words.seen, 1, "the kernel still ran when the first callback came");
    free(host);
    engine_program_close(&p);
}

/* Buffers, a view of one, an image: each its own, once, also after moves. */
Test(memory_end, callbacks_come_once_for_each_object, .timeout = 300)
{
    static struct engine_rig rig;
    struct engine_program p;
    struct last_words words[3] = {LAST_WORDS, LAST_WORDS, LAST_WORDS};
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 16, .image_height = 4};
    const cl_buffer_region region = {0, 128};
    const size_t zero[3] = {0}, all[3] = {16, 4, 1};
    const cl_uint pattern[4] = {5, 6, 7, 8};
    engine_rig_open(&rig, config);
    engine_program_open(&rig, 0, NULL, &p);
    cl_mem buffer = engine_buffer(p.context, 0, 4096, NULL);
    cl_mem part = MADE(clCreateSubBuffer, buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
    cl_mem image = MADE(clCreateImage, p.context, 0, &format, &desc, NULL);
    ask_for_words(buffer, &words[0]);
    ask_for_words(part, &words[1]);
    ask_for_words(image, &words[2]);
    OK(clEnqueueFillBuffer(p.queue, part, pattern, 16, 0, 128, 0, NULL, NULL));
    OK(clEnqueueFillImage(p.queue, image, pattern, zero, all, 0, NULL, NULL));
    engine_rig_moves(&rig, "two");
    engine_rig_moves(&rig, "three");
    OK(clEnqueueFillBuffer(p.queue, part, pattern, 16, 0, 128, 0, NULL, NULL));
    RELEASE(buffer, image);
    OK(clFinish(p.queue));
    expect_words(&words[2], "cba");
    cr_expect_eq(words[0].count, 0, "a part of it is in use");
    OK(clReleaseMemObject(part));
    expect_words(&words[1], "cba");
    expect_words(&words[0], "cba");
    engine_program_close(&p);
}

static void CL_CALLBACK say_context(cl_context context, void *words)
{
    (void)context;
    say(words, 'x');
}

/* A context ends after all that is in it. */
Test(memory_end, callbacks_come_before_those_of_the_context, .timeout = 300)
{
    static struct engine_rig rig;
    struct engine_program p;
    struct last_words words = LAST_WORDS;
    const cl_uint rounds = 300000000;
    const size_t one = 1;
    engine_rig_open_pocl(&rig, "pthread");
    engine_program_open(&rig, 0, long_source, &p);
    cl_mem buffer = engine_buffer(p.context, CL_MEM_READ_WRITE, 4096, NULL);
    cl_kernel kernel = engine_kernel(p.program, "finally");
    ask_for_words(buffer, &words);
    OK(clSetContextDestructorCallback(p.context, say_context, &words));
    ARGS(kernel, buffer, rounds);
    OK(clEnqueueNDRangeKernel(p.queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    OK(clFlush(p.queue));
    RELEASE(kernel, buffer);
    engine_program_close(&p);
    expect_words(&words, "cbax");
}

static void *release_it(void *buffer)
{
    OK(clReleaseMemObject(buffer));
    return NULL;
}

/* 5.5.1: after the last release its memory is the program's again, and nobody's business. */
Test(memory_end, host_memory_is_not_given_back_under_a_mover, .timeout = 300)
{
    static struct engine_rig rig;
    struct engine_program p;
    struct last_words words = LAST_WORDS;
    pthread_t thread;
    engine_rig_open(&rig, config);
    engine_program_open(&rig, 0, NULL, &p);
    void *host = aligned_alloc(4096, 4096);
    cr_assert_not_null(host);
    cl_mem buffer = engine_buffer(p.context, CL_MEM_USE_HOST_PTR, 4096, host);
    struct memory *root = root_of(buffer);
    OK(clSetMemObjectDestructorCallback(buffer, say_a, &words));
    object_hold(root); /* as a mover does */
    cr_assert(map_visit(root));
    cr_assert_not(map_visit(root), "one visitor at a time");
    cr_assert_eq(pthread_create(&thread, NULL, release_it, buffer), 0);
    while (object_refs(root) != 0)
        engine_rig_sleep(1);
    engine_rig_sleep(30);
    cr_assert_eq(pthread_tryjoin_np(thread, NULL), EBUSY, "the program has its memory back");
    cr_assert_eq(words.count, 0);
    map_visit_end(root);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_not(map_visit(root), "the program has its memory back");
    object_unhold(root);
    expect_words(&words, "a");
    free(host);
    engine_program_close(&p);
}

static void *move_to_three(void *rig)
{
    engine_rig_moves(rig, "three");
    return NULL;
}

/* A map is the program's, whatever a move copies at the time: it copies ahead into the bytes that
 * the program maps next. */
Test(memory_end, no_move_overwrites_what_the_program_writes_in_a_map, .timeout = 300)
{
    static struct engine_rig rig;
    struct engine_program p;
    const cl_uint before = 0x51515151;
    pthread_t mover;
    engine_rig_open(&rig, slow);
    engine_program_open(&rig, 0, NULL, &p);
    cl_mem buffer = engine_buffer(p.context, 0, MANY, NULL);
    cl_uint *words = malloc(MANY);
    cr_assert_not_null(words);
    OK(clEnqueueFillBuffer(p.queue, buffer, &before, 4, 0, MANY, 0, NULL, NULL));
    OK(clFinish(p.queue));
    cr_assert_null(root_of(buffer)->host_copy);
    cr_assert_eq(pthread_create(&mover, NULL, move_to_three, &rig), 0);
    while (!root_of(buffer)->host_copy)
        engine_rig_sleep(1);
    cl_uint *map = MADE(clEnqueueMapBuffer, p.queue, buffer, CL_TRUE,
                        CL_MAP_WRITE_INVALIDATE_REGION, 0, MANY, 0, NULL, NULL);
    for (cl_uint i = 0; i < MANY / 4; i++)
        map[i] = i;
    cr_assert_eq(pthread_join(mover, NULL), 0);
    for (cl_uint i = 0; i < MANY / 4; i++)
        cr_assert_eq(map[i], i, "word %u became %x", i, map[i]);
    OK(clEnqueueUnmapMemObject(p.queue, buffer, map, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(p.queue, buffer, CL_TRUE, 0, MANY, words, 0, NULL, NULL));
    for (cl_uint i = 0; i < MANY / 4; i++)
        cr_assert_eq(words[i], i, "word %u is %x", i, words[i]);
    free(words);
    OK(clReleaseMemObject(buffer));
    engine_program_close(&p);
}

#define UNMAPS 20000
#define VISITS 100

static struct {
    struct memory *root;
    _Atomic uint64_t mapped; /* Its version while it is mapped for writing. */
    atomic_bool over;
    _Atomic uint64_t visits;
    uint64_t stale; /* The visitor's. */
} idle;

/* A mover that looks for host copies which nobody uses. */
static void *visit(void *unused)
{
    while (!atomic_load(&idle.over)) {
        uint64_t mapped = atomic_load(&idle.mapped);
        if (!map_visit(idle.root))
            continue;
        atomic_fetch_add(&idle.visits, 1);
        idle.stale += atomic_load(&idle.root->version) == mapped;
        map_visit_end(idle.root);
    }
    return unused;
}

/* R2: until its driver has them, the bytes that were mapped are in the host copy alone. */
Test(memory_end, what_is_unmapped_is_new_before_its_host_copy_is_idle, .timeout = 300)
{
    static struct engine_rig rig;
    struct engine_program p;
    pthread_t visitor;
    engine_rig_open_pocl(&rig, "pthread");
    engine_program_open(&rig, 0, NULL, &p);
    cl_mem buffer = engine_buffer(p.context, 0, 65536, NULL);
    idle.root = root_of(buffer);
    atomic_store(&idle.mapped, UINT64_MAX);
    cr_assert_eq(pthread_create(&visitor, NULL, visit, NULL), 0);
    for (int i = 0; i < UNMAPS || atomic_load(&idle.visits) < VISITS; i++) {
        /* The visitor may not have run yet, or never between an unmap and the next map. */
        if (i >= UNMAPS)
            sched_yield();
        void *map =
            MADE(clEnqueueMapBuffer, p.queue, buffer, CL_TRUE, CL_MAP_WRITE, 0, 64, 0, NULL, NULL);
        atomic_store(&idle.mapped, atomic_load(&idle.root->version));
        OK(clEnqueueUnmapMemObject(p.queue, buffer, map, 0, NULL, NULL));
    }
    atomic_store(&idle.over, true);
    pthread_join(visitor, NULL);
    cr_assert_eq(idle.stale, 0, "%llu of %llu visits met bytes that no version tells of",
                 (unsigned long long)idle.stale, (unsigned long long)idle.visits);
    OK(clReleaseMemObject(buffer));
    engine_program_close(&p);
}

/* What was mapped of a view goes with the view, not with the buffer. */
Test(memory_end, a_view_that_goes_takes_its_maps_along, .timeout = 300)
{
    static struct engine_rig rig;
    struct engine_program p;
    const cl_buffer_region region = {1024, 2048};
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_uchar bytes[4096], got[4096];
    engine_rig_open(&rig, config);
    engine_program_open(&rig, 0, NULL, &p);
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (cl_uchar)(i * 7 + 1);
    cl_mem buffer = engine_buffer(p.context, CL_MEM_COPY_HOST_PTR, sizeof(bytes), bytes);
    for (int round = 0; round < 3; round++) {
        static const char *const places[] = {"two", "three", "one"};
        const size_t zero[3] = {0}, some[3] = {64, 1, 1};
        size_t row;
        cl_mem part = MADE(clCreateSubBuffer, buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
        cl_image_desc desc = {
            .image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 256, .buffer = buffer};
        cl_mem image = MADE(clCreateImage, p.context, 0, &format, &desc, NULL);
        MADE(clEnqueueMapBuffer, p.queue, part, CL_TRUE, CL_MAP_READ, 0, 512, 0, NULL, NULL);
        MADE(clEnqueueMapImage, p.queue, image, CL_TRUE, CL_MAP_READ, zero, some, &row, NULL, 0,
             NULL, NULL);
        cr_assert_not_null(root_of(buffer)->mappings);
        RELEASE(image, part);
        OK(clFinish(p.queue));
        cr_assert_null(root_of(buffer)->mappings);
        engine_rig_moves(&rig, places[round]);
        OK(clEnqueueReadBuffer(p.queue, buffer, CL_TRUE, 0, sizeof(got), got, 0, NULL, NULL));
        cr_assert_arr_eq(got, bytes, sizeof(got));
    }
    OK(clReleaseMemObject(buffer));
    engine_program_close(&p);
}

/* What the program was told is more than its device has: only beyond that is a size wrong. */
Test(memory_sizes, a_size_that_the_program_was_told_is_not_wrong, .timeout = 300)
{
    static struct engine_rig rig;
    struct engine_program p;
    const cl_image_format format = {CL_RGBA, CL_FLOAT};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 512, .image_height = 512};
    cl_ulong memory = 0, object = 0;
    cl_int error;
    engine_rig_open_told(&rig, "[one] name=one memory=8MiB max_alloc=1MiB", "64MiB");
    engine_program_open(&rig, 0, NULL, &p);
    OK(clGetDeviceInfo(rig.device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(memory), &memory, NULL));
    OK(clGetDeviceInfo(rig.device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(object), &object, NULL));
    cr_expect_eq(memory, 64u << 20);
    cr_expect_eq(object, 32u << 20);
    cl_mem buffer = clCreateBuffer(p.context, 0, 32u << 20, NULL, &error);
    cr_expect_neq(error, CL_INVALID_BUFFER_SIZE);
    cr_expect_eq(!buffer, error != CL_SUCCESS);
    cl_mem image = clCreateImage(p.context, 0, &format, &desc, NULL, &error);
    cr_expect_neq(error, CL_INVALID_IMAGE_SIZE);
    cr_expect_eq(!image, error != CL_SUCCESS);
    cr_expect_null(clCreateBuffer(p.context, 0, (32u << 20) + 1, NULL, &error));
    cr_expect_eq(error, CL_INVALID_BUFFER_SIZE);
    if (buffer)
        OK(clReleaseMemObject(buffer));
    if (image)
        OK(clReleaseMemObject(image));
    engine_program_close(&p);
}

/* What is no size is as if nobody had said anything. */
Test(memory_sizes, memory_that_is_no_size_is_ignored, .timeout = 300)
{
    static struct engine_rig rig;
    cl_ulong memory = 0;
    engine_rig_open_told(&rig, "[one] name=one memory=8MiB", "64 MiB");
    OK(clGetDeviceInfo(rig.device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(memory), &memory, NULL));
    cr_expect_eq(memory, 8u << 20);
}
