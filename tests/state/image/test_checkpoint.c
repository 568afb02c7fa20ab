#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/image/checkpoint.h"
#include "state/image/image_read.h"
#include "state/image/snapshot.h"
#include "state/image/stored.h"
#include "state/program/kernel.h"
#include "state/recipe/container.h"
#include "state/recovery/protect.h"
#include "tests/support/engine_rig.h"
#include "tests/support/folder.h"

/* Images of programs that run. */

#define DEVICES "[one] name=one base=1 [two] name=two base=1"
#define COUNT   ((size_t)3 << 20) /* of numbers */
#define SMALL   25

static const char source[] =
    "kernel void add(global uint *a, uint n) { a[get_global_id(0)] += n; }\n"
    "kernel void scale(global uint *a, local uint *l, uint n) { a[get_global_id(0)] *= n; }\n";

static struct {
    struct engine_rig rig;
    struct engine_program program;
    cl_mem large, small, part, unwritten;
    cl_kernel add, scale;
    cl_sampler sampler;
    char above[SCRATCH_MAX], folder[SCRATCH_MAX + 16];
    struct image_report report;
} f;

static cl_uint first_of(size_t i)
{
    return (cl_uint)(i * 2654435761u);
}

static void open_program(void)
{
    const cl_buffer_region region = {4096, 8192};
    cl_uint *numbers = malloc(COUNT * sizeof(*numbers));
    folder_make(f.above);
    snprintf(f.folder, sizeof(f.folder), "%s/images", f.above);
    engine_rig_open(&f.rig, DEVICES);
    engine_program_open(&f.rig, 0, source, &f.program);
    for (size_t i = 0; i < COUNT; i++)
        numbers[i] = first_of(i);
    f.large = engine_buffer(f.program.context, CL_MEM_READ_WRITE, COUNT * 4, NULL);
    f.small = engine_buffer(f.program.context, CL_MEM_READ_ONLY, SMALL, NULL);
    f.unwritten = engine_buffer(f.program.context, CL_MEM_READ_WRITE, 1 << 20, NULL);
    f.part = MADE(clCreateSubBuffer, f.large, 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
    OK(clEnqueueWriteBuffer(f.program.queue, f.large, CL_TRUE, 0, COUNT * 4, numbers, 0, NULL,
                            NULL));
    OK(clEnqueueWriteBuffer(f.program.queue, f.small, CL_TRUE, 0, SMALL, numbers, 0, NULL, NULL));
    free(numbers);
    f.add = engine_kernel(f.program.program, "add");
    f.scale = engine_kernel(f.program.program, "scale");
    f.sampler =
        MADE(clCreateSampler, f.program.context, CL_TRUE, CL_ADDRESS_REPEAT, CL_FILTER_NEAREST);
}

static void close_program(void)
{
    RELEASE(f.sampler, f.add, f.scale, f.part, f.large, f.small, f.unwritten);
    engine_program_close(&f.program);
    engine_rig_ends_empty(&f.rig);
}

TestSuite(checkpoint, .fini = close_program, .timeout = 120);

static void add(cl_uint n)
{
    const size_t items = COUNT;
    ARGS(f.add, f.large, n);
    OK(clEnqueueNDRangeKernel(f.program.queue, f.add, 1, NULL, &items, NULL, 0, NULL, NULL));
}

static uint64_t keep; /* so many images; 0: all */

static enum move_result checkpoint(bool keeps)
{
    const struct image_request request = {.folder = f.folder, .keeps = keeps, .keep = keep};
    checkpoint_make(&request, &f.report);
    return f.report.result;
}

static void makes(bool keeps)
{
    cr_assert_eq(checkpoint(keeps), MOVE_DONE, "%s", f.report.reason);
}

/* The image that was made last. */
static struct image_folder *folder;
static struct image_manifest manifest;
static char problem[IMAGE_PROBLEM_MAX];

static void open_image(void)
{
    cr_assert_eq(image_folder_open(f.folder, IMAGE_TO_READ, &folder, problem), 0, "%s", problem);
    cr_assert_eq(image_folder_manifest(folder, f.report.image, &manifest, problem), 0, "%s",
                 problem);
}

static void close_image(void)
{
    image_manifest_finish(&manifest);
    image_folder_close(folder);
}

static void read_object(cl_mem buffer, void *bytes, size_t size)
{
    const struct image_contents *contents = image_manifest_contents(&manifest, (uintptr_t)buffer);
    cr_assert_not_null(contents);
    cr_assert_eq(contents->size, size);
    const struct image_sink sink = {.contents = contents, .bytes = bytes};
    const struct image_reading reading = {.sinks = &sink, .count = 1};
    cr_assert_eq(image_read(folder, &reading, problem), 0, "%s", problem);
}

/* The large one is what it was at first, with so much added: the same everywhere. */
static cl_uint added(void)
{
    cl_uint *numbers = malloc(COUNT * sizeof(*numbers));
    read_object(f.large, numbers, COUNT * 4);
    cl_uint more = numbers[0] - first_of(0);
    for (size_t i = 0; i < COUNT; i++)
        cr_assert_eq(numbers[i], first_of(i) + more, "at %zu", i);
    free(numbers);
    return more;
}

static const struct image_record *record_of(enum image_record_kind kind, const void *handle)
{
    for (size_t i = 0; i < manifest.count; i++)
        /* Its id is the first of all that have one. */
        if (manifest.records[i].kind == kind &&
            *(const uint64_t *)manifest.records[i].body == (uintptr_t)handle)
            return &manifest.records[i];
    cr_assert_fail("%s %p is not in the image", image_record_name(kind), handle);
    abort();
}

Test(checkpoint, has_what_the_program_had_at_one_moment)
{
    char small[SMALL];
    cl_uint expected[SMALL];
    open_program();
    add(3);
    add(4);
    makes(false);
    add(100);
    OK(clFinish(f.program.queue));
    open_image();
    cr_expect_eq(added(), 7);
    read_object(f.small, small, SMALL);
    for (size_t i = 0; i < SMALL; i++)
        expected[i] = first_of(i);
    cr_expect_arr_eq(small, expected, SMALL);
    cr_expect_eq(image_manifest_contents(&manifest, (uintptr_t)f.unwritten)->written, 0);
    cr_expect_null(image_manifest_contents(&manifest, (uintptr_t)f.part), "it has no bytes");
    close_image();
}

Test(checkpoint, describes_every_object)
{
    const cl_uint seven = 7;
    open_program();
    add(1);
    OK(clSetKernelArg(f.scale, 1, 64, NULL));
    OK(clSetKernelArg(f.scale, 2, sizeof(seven), &seven));
    makes(false);
    open_image();
    cr_expect_str_eq(image_manifest_about(&manifest)->reason, "checkpoint");
    cr_expect_eq(image_manifest_about(&manifest)->pid, (uint64_t)getpid());
    const void *context = f.program.context;
    cr_expect_eq(record_of(IMAGE_CONTEXT, context)->context->vdevs, 1);
    cr_expect_eq(record_of(IMAGE_QUEUE, f.program.queue)->queue->context, (uintptr_t)context);
    const struct image_memory *part = record_of(IMAGE_MEMORY, f.part)->memory;
    cr_expect_eq(part->root, (uintptr_t)f.large);
    cr_expect_eq(part->origin, 4096);
    cr_expect_eq(part->size, 8192);
    const struct image_sampler *sampler = record_of(IMAGE_SAMPLER, f.sampler)->sampler;
    cr_expect(sampler->normalized == 1 && sampler->addressing == CL_ADDRESS_REPEAT &&
              sampler->filter == CL_FILTER_NEAREST);
    const struct image_program *program = record_of(IMAGE_PROGRAM, f.program.program)->program;
    struct recipe *recipe;
    cr_assert_eq(container_read(program->base.bytes, program->base.size, &recipe), 0);
    recipe_unref(recipe);
    cr_assert_eq(container_read(program->built.bytes, program->built.size, &recipe), 0);
    recipe_unref(recipe);
    cr_expect(memmem(program->base.bytes, program->base.size, source, strlen(source)));
    cr_expect_str_eq(record_of(IMAGE_KERNEL, f.add)->kernel->name, "add");
    cr_expect_eq(record_of(IMAGE_KERNEL, f.scale)->kernel->program, (uintptr_t)f.program.program);
    static const uint8_t kinds[] = {ARG_MEMORY, ARG_VALUE, ARG_UNSET, ARG_LOCAL, ARG_VALUE};
    size_t found = 0;
    for (size_t i = 0; i < manifest.count; i++) {
        const struct image_argument *argument = manifest.records[i].argument;
        if (manifest.records[i].kind != IMAGE_ARGUMENT)
            continue;
        size_t number = argument->index + (argument->kernel == (uintptr_t)f.scale ? 2 : 0);
        cr_assert_lt(number, sizeof(kinds));
        cr_expect_eq(argument->kind, kinds[number], "argument %zu", number);
        if (number == 0)
            cr_expect_eq(argument->object, (uintptr_t)f.large);
        if (number == 3)
            cr_expect_eq(argument->size, 64);
        if (number == 4)
            cr_expect(argument->value.size == 4 && !memcmp(argument->value.bytes, &seven, 4));
        found++;
    }
    cr_expect_eq(found, sizeof(kinds));
    close_image();
}

Test(checkpoint, is_the_point_of_a_protected_program_too)
{
    const struct protect_settings settings = {.interval_ns = UINT64_C(1000000000000)};
    struct protect_status before, after;
    open_program();
    add(1);
    OK(clFinish(f.program.queue));
    cr_assert_eq(protect_begin(&settings), 0);
    cr_assert_eq(protect_now(), 0);
    add(2);
    OK(clFinish(f.program.queue));
    protect_read(&before);
    cr_assert_gt(before.commands, 0);
    makes(false);
    protect_read(&after);
    cr_expect_eq(after.snapshots, before.snapshots + 1);
    cr_expect_eq(after.commands, 0, "what was given before is in the point");
    cr_expect_gt(snapshot_bytes(), 0, "the program is protected still");
    open_image();
    cr_expect_eq(added(), 3);
    close_image();
    protect_end();
    cr_expect_eq(snapshot_bytes(), 0);
}

/* The program goes on launching while images of it are made. */
static atomic_bool over;
static atomic_uint launched;
static void *launch(void *data)
{
    (void)data;
    while (!atomic_load(&over)) {
        add(1);
        OK(clFinish(f.program.queue));
        atomic_fetch_add(&launched, 1);
    }
    return NULL;
}

Test(checkpoint, is_of_one_moment_while_the_program_runs, .timeout = 240)
{
    pthread_t thread;
    cl_uint before = 0;
    open_program();
    add(0);
    OK(clFinish(f.program.queue));
    cr_assert_eq(pthread_create(&thread, NULL, launch, NULL), 0);
    for (unsigned i = 0; i < 8; i++) {
        unsigned least = atomic_load(&launched);
        makes(true);
        open_image();
        cl_uint now = added();
        close_image();
        cr_assert_geq(now, least, "what was done before is in it");
        cr_assert_geq(now, before);
        cr_assert_leq(now, atomic_load(&launched) + 1);
        before = now;
    }
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    checkpoint_end();
    cr_expect_eq(snapshot_bytes(), 0);
}

Test(checkpoint, writes_what_changed_since_the_one_before)
{
    cl_uint change[4] = {1, 2, 3, 4};
    open_program();
    makes(true);
    cr_expect_gt(snapshot_bytes(), 0, "another one follows");
    OK(clEnqueueWriteBuffer(f.program.queue, f.large, CL_TRUE, 5 << 20, sizeof(change), change, 0,
                            NULL, NULL));
    makes(true);
    cr_expect_leq(f.report.written, IMAGE_CHUNK_FILE_MAX);
    cr_expect_gt(f.report.written, 0);
    makes(false);
    cr_expect_eq(f.report.written, 0);
    cr_expect_eq(snapshot_bytes(), 0, "none follows");
}

/* What stays is whole, though chunks of it were first written for one that went. */
Test(checkpoint, removes_older_ones_when_it_is_there)
{
    struct file_names names;
    open_program();
    keep = 2;
    for (unsigned i = 0; i < 4; i++) {
        makes(true);
        cr_expect_str_eq(f.report.not_removed, "");
    }
    add(3);
    makes(false);
    OK(clFinish(f.program.queue));
    open_image();
    cr_assert_eq(image_folder_names(folder, &names), 0);
    cr_expect_eq(names.count, 2);
    file_names_finish(&names);
    cr_expect_eq(added(), 3);
    close_image();
}

Test(checkpoint, leaves_the_program_and_older_images_alone_when_it_fails)
{
    struct rlimit before, limit;
    open_program();
    add(5);
    makes(false);
    struct image_report good = f.report;
    add(6);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 1 << 20;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_expect_eq(checkpoint(false), MOVE_ROLLED_BACK);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    cr_expect(strstr(f.report.reason, "ulimit"), "%s", f.report.reason);
    cr_expect_eq(snapshot_bytes(), 0);
    static atomic_bool cancel = true;
    const struct image_request request = {.folder = f.folder, .move.cancel = &cancel};
    checkpoint_make(&request, &f.report);
    cr_expect_eq(f.report.result, MOVE_CANCELED, "%s", f.report.reason);
    f.report = good;
    open_image();
    cr_expect_eq(added(), 5);
    close_image();
    makes(false);
    open_image();
    cr_expect_eq(added(), 11);
    close_image();
}

Test(checkpoint, has_no_lease_where_the_program_could_not_be_started_again)
{
    open_program();
    const struct image_request request = {.folder = f.folder, .lease_ms = 60000};
    checkpoint_make(&request, &f.report);
    cr_expect_eq(f.report.result, MOVE_REFUSED);
    cr_expect(strstr(f.report.reason, "no save callback"), "%s", f.report.reason);
}

Test(checkpoint, is_called_as_its_operator_calls_the_program)
{
    setenv("RESEAT_NAME", "called so", 1);
    open_program();
    const struct image_request request = {.folder = f.folder};
    checkpoint_make(&request, &f.report);
    cr_assert_eq(f.report.result, MOVE_DONE, "%s", f.report.reason);
    open_image();
    cr_expect_str_eq(image_manifest_about(&manifest)->program, "called so");
    close_image();
}

Test(checkpoint, is_none_of_what_is_in_an_image_already)
{
    open_program();
    add(2);
    engine_rig_moves(&f.rig, NULL);
    makes(false);
    open_image();
    cr_expect_eq(added(), 2, "of a suspended program");
    close_image();
    const struct image_request request = {.folder = f.folder};
    struct image_report stored;
    stored_put(&request, &stored);
    cr_assert_eq(stored.result, MOVE_DONE, "%s", stored.reason);
    cr_expect_eq(stored.written, 0, "it shares all with the checkpoint");
    cr_expect_eq(checkpoint(false), MOVE_ROLLED_BACK);
    cr_expect(strstr(f.report.reason, "suspended to an image"), "%s", f.report.reason);
    engine_rig_moves(&f.rig, "two");
    makes(false);
    open_image();
    cr_expect_eq(added(), 2);
    close_image();
}
