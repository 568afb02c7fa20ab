#include "tests/state/image/snapshot_play.h"

static const char source[] =
    "__kernel void add(__global uint *words, uint value) { words[get_global_id(0)] += value; }\n";

struct play play;

void play_open(const char *config)
{
    if (config)
        engine_rig_open(&play.rig, config);
    else
        engine_rig_open_pocl(&play.rig, "basic pthread");
    engine_program_open(&play.rig, 0, source, &play.program);
    play.add = engine_kernel(play.program.program, "add");
}

void play_close(void)
{
    OK(clReleaseKernel(play.add));
    engine_program_close(&play.program);
    snapshot_forget();
    cr_assert_eq(snapshot_bytes(), 0);
    if (play.rig.emu)
        engine_rig_ends_empty(&play.rig);
    free(play.rig.devices);
}

void add(cl_mem buffer, size_t words, cl_uint value)
{
    ARGS(play.add, buffer, value);
    OK(clEnqueueNDRangeKernel(play.program.queue, play.add, 1, NULL, &words, NULL, 0, NULL, NULL));
}

cl_uint word_of(size_t i)
{
    return (cl_uint)(i * 7 + i / 1021);
}

cl_mem filled(size_t size)
{
    cl_uint *words = malloc(size);
    for (size_t i = 0; i < size / sizeof(*words); i++)
        words[i] = word_of(i);
    cl_mem buffer = engine_buffer(play.program.context, CL_MEM_READ_WRITE, size, NULL);
    OK(clEnqueueWriteBuffer(play.program.queue, buffer, CL_TRUE, 0, size, words, 0, NULL, NULL));
    free(words);
    return buffer;
}

struct snapshot_report made(void)
{
    struct snapshot_request request = {0};
    struct snapshot_report report;
    cr_assert_eq(snapshot_make(&request, &report), 0, "%s", report.reason);
    return report;
}

size_t index_of(const struct snapshot *snapshot, cl_mem buffer)
{
    size_t index = snapshot_find(snapshot, memory_get(buffer));
    cr_assert_neq(index, SIZE_MAX);
    return index;
}

void read_point(const struct snapshot *snapshot, cl_mem buffer, size_t offset, size_t size,
                void *ret_bytes)
{
    struct snapshot_run run;
    size_t index = index_of(snapshot, buffer);
    cr_assert_leq(offset + size, snapshot_root(snapshot, index).size);
    for (size_t at = offset; at < offset + size; at = run.range.end) {
        cr_assert(snapshot_run(snapshot, index, at, &run));
        cr_assert(run.range.begin <= at && at < run.range.end);
        size_t end = run.range.end < offset + size ? run.range.end : offset + size;
        char *to = (char *)ret_bytes + (at - offset);
        if (run.bytes)
            memcpy(to, run.bytes + (at - run.range.begin), end - at);
        else
            memset(to, 0xee, end - at);
    }
}

void has_added(const struct snapshot *snapshot, cl_mem buffer, size_t size, cl_uint added)
{
    cl_uint *words = malloc(size);
    read_point(snapshot, buffer, 0, size, words);
    for (size_t i = 0; i < size / sizeof(*words); i++)
        if (words[i] != word_of(i) + added)
            cr_assert_fail("word %zu is %u, not %u more than %u", i, words[i], added, word_of(i));
    free(words);
}

void fails(const struct snapshot_request *request, int error, const struct snapshot *before)
{
    struct snapshot_report report;
    int given = snapshot_make(request, &report);
    cr_assert_eq(given, error, "%d: %s", given, report.reason);
    cr_assert_eq(report.error, error);
    cr_assert_neq(report.reason[0], '\0');
    struct snapshot *now = snapshot_pin();
    cr_assert_eq(now, before);
    snapshot_unpin(now);
}
