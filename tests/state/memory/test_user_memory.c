#include <sys/mman.h>

#include "state/memory/memory.h"
#include "tests/support/engine_rig.h"

/*
 * The program's own memory (CL_MEM_USE_HOST_PTR) is written by its commands only (L4): here it is
 * read-only, or gone, while the program is moved. A wrong access ends the test by a signal.
 */

#define PAGE  ((size_t)4096)
#define WORDS (16u * 1024)
#define BYTES (WORDS * sizeof(cl_uint))
/* Devices as GPUs are, as CPUs are, and one that never takes a pointer. */
#define CONFIG                                                                                     \
    "[one] name=one base=1 own_memory=yes [two] name=two base=1 own_memory=yes "                   \
    "[three] name=three base=1 type=cpu host_unified=yes "                                         \
    "[four] name=four base=1 type=cpu host_unified=yes"

struct user_memory {
    struct engine_rig rig;
    struct engine_program program;
    cl_kernel copy, twice;
    cl_mem out;
    cl_uint *words; /* the program's */
    cl_uint want[WORDS];
};

static void *pages(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(at, MAP_FAILED);
    return at;
}

static void user_memory_open(struct user_memory *l)
{
    static const char source[] =
        "kernel void copy(global const uint *in, global uint *out)\n"
        "{ out[get_global_id(0)] = in[get_global_id(0)]; }\n"
        "kernel void twice(global uint *words) { words[get_global_id(0)] *= 2; }\n";
    engine_rig_open(&l->rig, CONFIG);
    engine_program_open(&l->rig, 0, source, &l->program);
    l->copy = engine_kernel(l->program.program, "copy");
    l->twice = engine_kernel(l->program.program, "twice");
    l->out = engine_buffer(l->program.context, CL_MEM_READ_WRITE, BYTES, NULL);
    l->words = pages(BYTES);
    for (cl_uint i = 0; i < WORDS; i++)
        l->want[i] = l->words[i] = i * 2654435761u;
}

static void run(struct user_memory *l, cl_kernel kernel, cl_mem buffer)
{
    const size_t items = WORDS;
    OK(clSetKernelArg(kernel, 0, sizeof(buffer), &buffer));
    if (kernel == l->copy)
        OK(clSetKernelArg(kernel, 1, sizeof(l->out), &l->out));
    OK(clEnqueueNDRangeKernel(l->program.queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
}

static void check(struct user_memory *l, cl_mem buffer, const char *when)
{
    static cl_uint got[WORDS];
    run(l, l->copy, buffer);
    OK(clEnqueueReadBuffer(l->program.queue, l->out, CL_TRUE, 0, BYTES, got, 0, NULL, NULL));
    cr_assert(memcmp(got, l->want, BYTES) == 0, "%s: a kernel saw other bytes", when);
    OK(clEnqueueReadBuffer(l->program.queue, buffer, CL_TRUE, 0, BYTES, got, 0, NULL, NULL));
    cr_assert(memcmp(got, l->want, BYTES) == 0, "%s: other bytes were read", when);
}

/* Nothing is written there for a map that reads what is there. */
static void check_map(struct user_memory *l, cl_mem buffer)
{
    cl_uint *map = MADE(clEnqueueMapBuffer, l->program.queue, buffer, CL_TRUE, CL_MAP_READ, PAGE,
                        BYTES - PAGE, 0, NULL, NULL);
    cr_assert_eq((char *)map, (char *)l->words + PAGE);
    cr_assert(memcmp(map, (char *)l->want + PAGE, BYTES - PAGE) == 0);
    OK(clEnqueueUnmapMemObject(l->program.queue, buffer, map, 0, NULL, NULL));
}

/* From each place to each other, through all of them. */
static const char *const ways[] = {"three", NULL,    "one", "two",  "one", "three", "four", "one",
                                   NULL,    "three", NULL,  "four", "two", NULL,    "two",  "one"};

Test(memory_user_memory, read_only_memory_goes_everywhere, .timeout = 60)
{
    static struct user_memory l;
    static const cl_mem_flags flags[] = {CL_MEM_READ_ONLY, 0};
    user_memory_open(&l);
    OK(mprotect(l.words, BYTES, PROT_READ));
    for (size_t f = 0; f < ARRAY_SIZE(flags); f++) {
        cl_mem buffer =
            engine_buffer(l.program.context, CL_MEM_USE_HOST_PTR | flags[f], BYTES, l.words);
        for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
            engine_rig_moves(&l.rig, ways[i]);
            if (ways[i])
                check(&l, buffer, ways[i]);
            if (ways[i] && flags[f] == CL_MEM_READ_ONLY)
                check_map(&l, buffer);
        }
        OK(clReleaseMemObject(buffer));
    }
}

/* Of an object that only reads nothing has to be copied for a suspension, or spilling. */
Test(memory_user_memory, what_an_object_was_made_from_needs_no_copy, .timeout = 60)
{
    static struct user_memory l;
    struct move_report report;
    user_memory_open(&l);
    cl_mem buffer =
        engine_buffer(l.program.context, CL_MEM_USE_HOST_PTR | CL_MEM_READ_ONLY, BYTES, l.words);
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT32};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 64, .image_height = BYTES / 64 / 16};
    cl_mem image = MADE(clCreateImage, l.program.context, CL_MEM_USE_HOST_PTR | CL_MEM_READ_ONLY,
                        &format, &desc, l.words);
    OK(mprotect(l.words, BYTES, PROT_READ));
    check(&l, buffer, "made");
    OK(clReleaseMemObject(l.out));
    cr_assert_eq(engine_rig_move(&l.rig, NULL, &report), MOVE_DONE, "%s", report.reason);
    cr_assert_eq(report.bytes, 0, "%llu bytes were copied", (unsigned long long)report.bytes);
    RELEASE(buffer, image);
}

/* As destructors do it: the memory goes, then the object. What is there next stays as it is. */
static void give_back(struct user_memory *l, const char *from, const char *to, bool written,
                      bool reused)
{
    engine_rig_move(&l->rig, from, &(struct move_report){0});
    l->words = pages(BYTES);
    memcpy(l->words, l->want, BYTES);
    cl_mem buffer = engine_buffer(l->program.context, CL_MEM_USE_HOST_PTR, BYTES, l->words);
    if (written) {
        run(l, l->twice, buffer);
        for (cl_uint i = 0; i < WORDS; i++)
            l->want[i] *= 2;
    }
    check(l, buffer, "before");
    /* Gone for whoever looks, but nobody else's by chance. */
    if (reused)
        memset(l->words, 0x5a, BYTES);
    else
        OK(mprotect(l->words, BYTES, PROT_NONE));
    engine_rig_moves(&l->rig, to);
    if (!to)
        engine_rig_moves(&l->rig, from);
    OK(clReleaseMemObject(buffer));
    for (size_t i = 0; reused && i < BYTES; i++)
        cr_assert_eq(((unsigned char *)l->words)[i], 0x5a, "from %s to %s: byte %zu", from,
                     to ? to : "host memory", i);
    munmap(l->words, BYTES);
}

Test(memory_user_memory, is_not_touched_once_it_is_gone, .timeout = 120)
{
    static const char *const froms[] = {"one", "three"};
    static const char *const tos[] = {"two", "four", NULL};
    static struct user_memory l;
    user_memory_open(&l);
    for (size_t f = 0; f < ARRAY_SIZE(froms); f++)
        for (size_t t = 0; t < ARRAY_SIZE(tos); t++)
            for (int written = 0; written < 2; written++)
                for (int reused = 0; reused < 2; reused++)
                    give_back(&l, froms[f], tos[t], written, reused);
}

struct writing {
    struct user_memory *l;
    cl_mem buffer;
    bool written;
};

/* Once everything was made in the target, with the program running. */
static void write_late(void *data, const struct move_progress *progress)
{
    struct writing *writing = data;
    if (progress->phase != MOVE_PAUSE || writing->written)
        return;
    writing->written = true;
    run(writing->l, writing->l->twice, writing->buffer);
}

/* Made over it in the target while the program runs, and written in the source after that: it is
 * made anew beside it, with what was made from it. The program's memory stays as it was. */
Test(memory_user_memory, what_is_written_during_a_move_goes_beside_it, .timeout = 60)
{
    static struct user_memory l;
    user_memory_open(&l);
    cl_mem buffer = engine_buffer(l.program.context, CL_MEM_USE_HOST_PTR, BYTES, l.words);
    const cl_buffer_region half = {BYTES / 2, BYTES / 2};
    cl_mem part = MADE(clCreateSubBuffer, buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &half);
    OK(mprotect(l.words, BYTES, PROT_READ));
    struct memory *root = memory_get(buffer);
    engine_rig_moves(&l.rig, "three");
    cr_assert_neq(root->backed, 0, "it works on the program's memory");
    engine_rig_moves(&l.rig, "one");
    struct writing writing = {&l, buffer, false};
    const struct move_request request = {
        .target = engine_rig_key(&l.rig, "three"), .progress = write_late, .data = &writing};
    struct move_report report;
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert(writing.written);
    for (cl_uint i = 0; i < WORDS; i++)
        l.want[i] *= 2;
    cr_assert_eq(root->backed, 0, "it would have to write there");
    check(&l, buffer, "beside");
    const size_t items = WORDS / 2;
    OK(clSetKernelArg(l.twice, 0, sizeof(part), &part));
    OK(clEnqueueNDRangeKernel(l.program.queue, l.twice, 1, NULL, &items, NULL, 0, NULL, NULL));
    for (cl_uint i = WORDS / 2; i < WORDS; i++)
        l.want[i] *= 2;
    check(&l, buffer, "through a part");
    for (cl_uint i = 0; i < WORDS; i++)
        cr_assert_eq(l.words[i], i * 2654435761u);
    OK(mprotect(l.words, BYTES, PROT_READ | PROT_WRITE));
    cl_uint *map = MADE(clEnqueueMapBuffer, l.program.queue, buffer, CL_TRUE, CL_MAP_READ, 0, BYTES,
                        0, NULL, NULL);
    cr_assert_eq(map, l.words);
    cr_assert(memcmp(map, l.want, BYTES) == 0, "a map brings them");
    OK(clEnqueueUnmapMemObject(l.program.queue, buffer, map, 0, NULL, NULL));
    RELEASE(part, buffer);
}
