/** How memory objects end: callbacks, references, and whose the host's memory is afterwards. */
#include "memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { CALLBACKS = 3, HOSTED = 10 << 20, WAIT_SECONDS = 60 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t called = PTHREAD_COND_INITIALIZER;

/* What the callbacks of one object say; guarded by the lock. */
struct obituary {
    unsigned order[CALLBACKS + 1], count;
    void *memory; /* given back by the last one; or NULL */
    size_t size;
};
struct notice {
    struct obituary *obituary;
    unsigned number;
};

static void CL_CALLBACK object_ended(cl_mem memory, void *data)
{
    const struct notice *notice = data;
    struct obituary *o = notice->obituary;
    (void)memory;
    pthread_mutex_lock(&lock);
    if (o->count <= CALLBACKS)
        o->order[o->count] = notice->number;
    o->count++;
    if (o->count == CALLBACKS && o->memory)
        munmap(o->memory, o->size);
    pthread_cond_broadcast(&called);
    pthread_mutex_unlock(&lock);
}

static void watch(cl_mem memory, struct obituary *o, struct notice notices[CALLBACKS])
{
    for (unsigned i = 0; i < CALLBACKS; i++) {
        notices[i] = (struct notice){o, i};
        OK(clSetMemObjectDestructorCallback(memory, object_ended, &notices[i]));
    }
}

static void expect_end(struct obituary *o)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_SECONDS;
    pthread_mutex_lock(&lock);
    while (o->count < CALLBACKS && pthread_cond_timedwait(&called, &lock, &until) == 0)
        ;
    if (o->count != CALLBACKS)
        prog_fail("%u of %d callbacks", o->count, CALLBACKS);
    for (unsigned i = 0; i < CALLBACKS; i++)
        REQUIRE(o->order[i] == CALLBACKS - 1 - i);
    pthread_mutex_unlock(&lock);
}

static void *program_memory(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    return memory;
}

/* The memory goes in the callback: with commands in flight when the object was released. */
static void ends_in_a_callback(struct memory_run *run)
{
    struct obituary o = {.size = 16384};
    struct notice notices[CALLBACKS];
    o.memory = program_memory(o.size);
    cl_mem buffer = prog_buffer(run->prog.context, CL_MEM_USE_HOST_PTR, o.size, o.memory);
    cl_kernel kernel = prog_kernel(run->program, "mix_bytes");
    cl_uchar key = (cl_uchar)rng_below(&run->rng, 256);
    watch(buffer, &o, notices);
    prog_arg(kernel, 0, sizeof buffer, &buffer);
    prog_arg(kernel, 1, sizeof key, &key);
    for (int i = 0; i < 8; i++)
        memory_launch(run->prog.queue, kernel, (const size_t[3]){o.size, 1, 1});
    OK(clFlush(run->prog.queue));
    RELEASE(buffer, kernel);
    OK(clFinish(run->prog.queue));
    expect_end(&o);
}

/* The memory goes after the release, without anybody being asked. */
static void ends_at_once(struct memory_run *run)
{
    unsigned char *memory = program_memory(HOSTED), bytes[64];
    uint32_t value = (uint32_t)rng_next(&run->rng), got[4];
    cl_mem buffer = prog_buffer(run->prog.context, CL_MEM_USE_HOST_PTR, HOSTED, memory);
    OK(clEnqueueFillBuffer(run->prog.queue, buffer, &value, sizeof value, 0, HOSTED, 0, NULL,
                           NULL));
    size_t at = rng_below(&run->rng, HOSTED / 64 - 1) * (size_t)64;
    prog_read(run->prog.queue, buffer, at, sizeof got, got);
    for (int i = 0; i < 4; i++)
        REQUIRE(got[i] == value);
    /* What the host writes in a map is what the device has. */
    unsigned char *map = MADE(clEnqueueMapBuffer, run->prog.queue, buffer, CL_TRUE, CL_MAP_WRITE,
                              at, sizeof bytes, 0, NULL, NULL);
    REQUIRE(map == memory + at);
    rng_fill(&run->rng, map, sizeof bytes);
    memcpy(bytes, map, sizeof bytes);
    OK(clEnqueueUnmapMemObject(run->prog.queue, buffer, map, 0, NULL, NULL));
    map = MADE(clEnqueueMapBuffer, run->prog.queue, buffer, CL_TRUE, CL_MAP_READ, 0, HOSTED, 0,
               NULL, NULL);
    prog_same("the program's own memory", memory + at, bytes, sizeof bytes);
    OK(clEnqueueUnmapMemObject(run->prog.queue, buffer, map, 0, NULL, NULL));
    OK(clFinish(run->prog.queue));
    sum_bytes(&run->sum, bytes, sizeof bytes);
    OK(clReleaseMemObject(buffer));
    munmap(memory, HOSTED);
}

static cl_uint refs_of(cl_mem memory)
{
    cl_uint refs = 0;
    OK(clGetMemObjectInfo(memory, CL_MEM_REFERENCE_COUNT, sizeof refs, &refs, NULL));
    return refs;
}

/* A part keeps its buffer; a released kernel argument of a command in flight is kept by that. */
static void parts_outlive(struct memory_run *run)
{
    struct obituary whole = {0}, part = {0};
    struct notice notices[2][CALLBACKS];
    unsigned char bytes[8192], got[8192];
    const cl_buffer_region region = {4096, 4096};
    cl_mem owner = NULL;
    rng_fill(&run->rng, bytes, sizeof bytes);
    cl_mem buffer = prog_buffer(run->prog.context, CL_MEM_COPY_HOST_PTR, sizeof bytes, bytes);
    cl_mem sub = MADE(clCreateSubBuffer, buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
    watch(buffer, &whole, notices[0]);
    watch(sub, &part, notices[1]);
    REQUIRE(refs_of(sub) == 1);
    OK(clRetainMemObject(sub));
    REQUIRE(refs_of(sub) == 2);
    RELEASE(buffer, sub);
    OK(clGetMemObjectInfo(sub, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof owner, &owner, NULL));
    REQUIRE(owner == buffer);
    prog_read(run->prog.queue, sub, 0, 4096, got);
    prog_same("a part of a released buffer", got, bytes + 4096, 4096);
    REQUIRE(whole.count == 0 && part.count == 0);
    OK(clReleaseMemObject(sub));
    expect_end(&part);
    expect_end(&whole);
}

/* Released while the command that uses it waits for the program. */
static void ends_behind_an_event(struct memory_run *run)
{
    struct obituary o = {0};
    struct notice notices[CALLBACKS];
    unsigned char bytes[4096], got[4096];
    cl_int err;
    cl_event gate = clCreateUserEvent(run->prog.context, &err), read;
    OK(err);
    rng_fill(&run->rng, bytes, sizeof bytes);
    cl_mem buffer = prog_buffer(run->prog.context, CL_MEM_COPY_HOST_PTR, sizeof bytes, bytes);
    watch(buffer, &o, notices);
    OK(clEnqueueReadBuffer(run->other, buffer, CL_FALSE, 0, sizeof got, got, 1, &gate, &read));
    OK(clReleaseMemObject(buffer));
    pthread_mutex_lock(&lock);
    REQUIRE(o.count == 0);
    pthread_mutex_unlock(&lock);
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clWaitForEvents(1, &read));
    prog_same("a read of a released buffer", got, bytes, sizeof got);
    OK(clFinish(run->other));
    RELEASE(read, gate);
    expect_end(&o);
}

void memory_ends(struct memory_run *run)
{
    ends_in_a_callback(run);
    for (int i = 0; i < 3; i++)
        ends_at_once(run);
    parts_outlive(run);
    ends_behind_an_event(run);
}
