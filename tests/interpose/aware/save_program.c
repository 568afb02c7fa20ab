#include "tests/interpose/aware/save_program.h"

#include <string.h>

#define DEVICES "[one] name=one base=1 own_memory=yes [two] name=two base=1"

static const char source[] = "kernel void add(global uint *a) { a[get_global_id(0)]++; }";

struct save_program f = {.lock = PTHREAD_MUTEX_INITIALIZER};

int on_save(void *data, const struct reseat_change *change)
{
    (void)data;
    cr_expect_eq(change->reason, RESEAT_IMAGE);
    cr_expect_str_eq(change->to->name, "one");
    pthread_mutex_lock(&f.lock);
    f.called++;
    f.saved = reseat_save(&f.steps, sizeof(f.steps));
    pthread_mutex_unlock(&f.lock);
    return f.result;
}

void take_part(int (*save)(void *, const struct reseat_change *), uint32_t patience_ms)
{
    const struct reseat_program program = {
        .size = sizeof(program), .save = save, .save_ms = patience_ms};
    cr_assert_eq(reseat_register(&program), RESEAT_OK);
}

void step(void)
{
    const size_t items = COUNT;
    OK(clEnqueueNDRangeKernel(f.program.queue, f.kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
    f.steps++;
}

void open_program(void)
{
    cl_uint zero = 0;
    if (!f.above[0])
        folder_make(f.above);
    snprintf(f.folder, sizeof(f.folder), "%s/images", f.above);
    engine_rig_open(&f.rig, DEVICES);
    engine_program_open(&f.rig, 0, source, &f.program);
    f.buffer = engine_buffer(f.program.context, CL_MEM_READ_WRITE, BYTES, NULL);
    f.kernel = engine_kernel(f.program.program, "add");
    OK(clSetKernelArg(f.kernel, 0, sizeof(f.buffer), &f.buffer));
    OK(clEnqueueFillBuffer(f.program.queue, f.buffer, &zero, sizeof(zero), 0, BYTES, 0, NULL,
                           NULL));
    OK(clFinish(f.program.queue));
}

void close_program(void)
{
    RELEASE(f.kernel, f.buffer);
    engine_program_close(&f.program);
    engine_rig_ends_empty(&f.rig);
}

static enum move_result checkpoint(void)
{
    const struct image_request request = {.folder = f.folder};
    checkpoint_make(&request, &f.report);
    return f.report.result;
}

void makes(void)
{
    cr_assert_eq(checkpoint(), MOVE_DONE, "%s", f.report.reason);
}

void fails(enum move_result result, const char *why)
{
    cr_assert_eq(checkpoint(), result, "%s", f.report.reason);
    cr_assert(strstr(f.report.reason, why), "%s", f.report.reason);
    cr_assert_str_empty(f.report.image);
}

struct image_folder *folder;
struct image_manifest manifest;
char problem[IMAGE_PROBLEM_MAX];

void open_image(void)
{
    cr_assert_eq(image_folder_open(f.folder, IMAGE_TO_READ, &folder, problem), 0, "%s", problem);
    cr_assert_eq(image_folder_manifest(folder, f.report.image, &manifest, problem), 0, "%s",
                 problem);
}

void close_image(void)
{
    image_manifest_finish(&manifest);
    image_folder_close(folder);
}
