#include "state/memory/mapping.h"
#include "state/memory/memory.h"
#include "tests/state/memory/test_invariants_common.h"

/* R3. */

struct versions {
    struct engine_rig rig;
    struct engine_program program;
    cl_mem out, in, table, image, target;
    cl_uint words[WORDS];
    uint64_t before[5];
};

static void versions_open(struct versions *v)
{
    const cl_image_format format = {CL_R, CL_UNSIGNED_INT32};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = WORDS, .image_height = 1};
    const cl_mem_flags copied = CL_MEM_COPY_HOST_PTR;
    engine_rig_open(&v->rig, config);
    engine_program_open(&v->rig, 0, source, &v->program);
    v->out = engine_buffer(v->program.context, CL_MEM_READ_WRITE | copied, SIZE, v->words);
    v->in = engine_buffer(v->program.context, CL_MEM_READ_ONLY | copied, SIZE, v->words);
    v->table = engine_buffer(v->program.context, CL_MEM_READ_WRITE | copied, SIZE, v->words);
    v->image = MADE(clCreateImage, v->program.context, CL_MEM_READ_WRITE | copied, &format, &desc,
                    v->words);
    v->target = MADE(clCreateImage, v->program.context, CL_MEM_READ_WRITE | copied, &format, &desc,
                     v->words);
}

static void versions_note(struct versions *v)
{
    const cl_mem mems[] = {v->out, v->in, v->table, v->image, v->target};
    for (size_t i = 0; i < ARRAY_SIZE(mems); i++)
        v->before[i] = version_of(mems[i]);
}

/* Only those named in @changed, of "oitIT", have a new version since versions_note. */
static void versions_check(struct versions *v, const char *changed, const char *what)
{
    static const char names[] = "oitIT";
    const cl_mem mems[] = {v->out, v->in, v->table, v->image, v->target};
    for (size_t i = 0; i < ARRAY_SIZE(mems); i++) {
        bool is_new = version_of(mems[i]) != v->before[i];
        cr_assert_eq(is_new, strchr(changed, names[i]) != NULL, "%s: '%c' has %s version", what,
                     names[i], is_new ? "a new" : "the old");
    }
    versions_note(v);
}

static void launch_all(struct versions *v)
{
    const size_t items = WORDS;
    cl_kernel sum = engine_kernel(v->program.program, "sum");
    cl_kernel look = engine_kernel(v->program.program, "look");
    ARGS(sum, v->out, v->in, v->table);
    versions_check(v, "", "setting arguments");
    OK(clEnqueueNDRangeKernel(v->program.queue, sum, 1, NULL, &items, NULL, 0, NULL, NULL));
    versions_check(v, "o", "a kernel with read-only and __constant arguments");
    ARGS(look, v->out, v->image, v->target);
    OK(clEnqueueNDRangeKernel(v->program.queue, look, 1, NULL, &items, NULL, 0, NULL, NULL));
    versions_check(v, "oT", "a kernel with images");
    RELEASE(sum, look);
}

static void map_all(struct versions *v)
{
    static const struct {
        cl_map_flags flags;
        const char *changed, *what;
    } maps[] = {
        {CL_MAP_READ, "", "unmapping what was mapped to read"},
        {CL_MAP_WRITE, "t", "unmapping what was mapped to write"},
        {CL_MAP_READ | CL_MAP_WRITE, "t", "unmapping what was mapped to read and write"},
        {CL_MAP_WRITE_INVALIDATE_REGION, "t", "unmapping what was mapped to be overwritten"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(maps); i++) {
        void *map = MADE(clEnqueueMapBuffer, v->program.queue, v->table, CL_TRUE, maps[i].flags, 0,
                         SIZE, 0, NULL, NULL);
        versions_check(v, "", "a map");
        OK(clEnqueueUnmapMemObject(v->program.queue, v->table, map, 0, NULL, NULL));
        versions_check(v, maps[i].changed, maps[i].what);
    }
}

Test(r3, only_what_may_write_makes_a_new_version)
{
    static struct versions v;
    const size_t origin[3] = {0}, region[3] = {WORDS, 1, 1};
    const cl_uint pattern[4] = {1};
    size_t size;
    versions_open(&v);
    versions_note(&v);
    OK(clGetMemObjectInfo(v.out, CL_MEM_SIZE, sizeof(size), &size, NULL));
    OK(clEnqueueReadBuffer(v.program.queue, v.out, CL_TRUE, 0, SIZE, v.words, 0, NULL, NULL));
    OK(clEnqueueReadImage(v.program.queue, v.image, CL_TRUE, origin, region, 0, 0, v.words, 0, NULL,
                          NULL));
    versions_check(&v, "", "reads and questions");
    launch_all(&v);
    map_all(&v);
    OK(clEnqueueWriteBuffer(v.program.queue, v.in, CL_TRUE, 0, 4, v.words, 0, NULL, NULL));
    versions_check(&v, "i", "a write");
    OK(clEnqueueCopyBuffer(v.program.queue, v.in, v.out, 0, 0, SIZE, 0, NULL, NULL));
    versions_check(&v, "o", "a copy");
    OK(clEnqueueCopyImage(v.program.queue, v.target, v.image, origin, origin, region, 0, NULL,
                          NULL));
    versions_check(&v, "I", "a copy of images");
    OK(clEnqueueCopyBufferToImage(v.program.queue, v.in, v.target, 0, origin, region, 0, NULL,
                                  NULL));
    versions_check(&v, "T", "a copy into an image");
    OK(clEnqueueCopyImageToBuffer(v.program.queue, v.target, v.out, origin, region, 0, 0, NULL,
                                  NULL));
    versions_check(&v, "o", "a copy out of an image");
    OK(clEnqueueFillBuffer(v.program.queue, v.table, pattern, 4, 0, SIZE, 0, NULL, NULL));
    versions_check(&v, "t", "a fill");
    OK(clEnqueueFillImage(v.program.queue, v.image, pattern, origin, region, 0, NULL, NULL));
    versions_check(&v, "I", "a fill of an image");
    OK(clEnqueueMigrateMemObjects(v.program.queue, 1, &v.in, 0, 0, NULL, NULL));
    versions_check(&v, "", "a migration");
    engine_rig_moves(&v.rig, "two");
    versions_check(&v, "", "a move");
    engine_rig_moves(&v.rig, NULL);
    engine_rig_moves(&v.rig, "three");
    versions_check(&v, "", "a suspend and a resume");
}

Test(r3, a_write_of_a_view_is_a_write_of_its_buffer)
{
    struct engine_rig rig;
    struct engine_program program;
    const cl_buffer_region region = {4096, SIZE};
    cl_uint words[WORDS] = {0};
    engine_rig_open(&rig, config);
    engine_program_open(&rig, 0, NULL, &program);
    cl_mem buffer = engine_buffer(program.context, CL_MEM_READ_WRITE, 8192, NULL);
    cl_mem sub = MADE(clCreateSubBuffer, buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
    uint64_t before = version_of(buffer);
    OK(clEnqueueWriteBuffer(program.queue, sub, CL_TRUE, 0, SIZE, words, 0, NULL, NULL));
    cr_assert_neq(version_of(buffer), before);
}
