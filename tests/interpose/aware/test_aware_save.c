#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "interpose/entry/reseat_api.h"
#include "state/checkpoint/checkpoint.h"
#include "state/image/image_read.h"
#include "state/point/protect.h"
#include "state/restore/restore.h"
#include "tests/support/engine_rig.h"
#include "tests/support/folder.h"

/* Programs that give their progress for an image, and a process that goes on from one. */

TestSuite(aware_save, .timeout = 120);

#define DEVICES "[one] name=one base=1 own_memory=yes [two] name=two base=1"
#define COUNT   ((size_t)3 << 18) /* of numbers: more than one chunk */
#define BYTES   (COUNT * sizeof(cl_uint))

static const char source[] = "kernel void add(global uint *a) { a[get_global_id(0)]++; }";

static struct {
    struct engine_rig rig;
    struct engine_program program;
    cl_mem buffer;
    cl_kernel kernel;
    cl_uint steps; /* that were given; guarded by lock */
    pthread_mutex_t lock;
    char above[SCRATCH_MAX], folder[SCRATCH_MAX + 16];
    struct checkpoint_report report;
    int result;      /* what the callback returns */
    int saved;       /* what reseat_save() returned */
    unsigned called; /* the callback */
} f = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int on_save(void *data, const struct reseat_change *change)
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

static void take_part(int (*save)(void *, const struct reseat_change *), uint32_t patience_ms)
{
    const struct reseat_program program = {
        .size = sizeof(program), .save = save, .save_ms = patience_ms};
    cr_assert_eq(reseat_register(&program), RESEAT_OK);
}

static void step(void)
{
    const size_t items = COUNT;
    OK(clEnqueueNDRangeKernel(f.program.queue, f.kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
    f.steps++;
}

static void open_program(void)
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

static void close_program(void)
{
    OK(clReleaseKernel(f.kernel));
    OK(clReleaseMemObject(f.buffer));
    engine_program_close(&f.program);
    engine_rig_ends_empty(&f.rig);
}

static enum move_result checkpoint(void)
{
    const struct checkpoint_request request = {.folder = f.folder};
    checkpoint_make(&request, &f.report);
    return f.report.result;
}

static void makes(void)
{
    cr_assert_eq(checkpoint(), MOVE_DONE, "%s", f.report.reason);
}

static void fails(enum move_result result, const char *why)
{
    cr_assert_eq(checkpoint(), result, "%s", f.report.reason);
    cr_assert(strstr(f.report.reason, why), "%s", f.report.reason);
    cr_assert_str_empty(f.report.image);
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

static cl_uint progress_of_image(void)
{
    cl_uint steps;
    const struct image_record *progress = image_manifest_find(&manifest, IMAGE_PROGRESS);
    cr_assert_not_null(progress);
    cr_assert_eq(progress->progress->bytes.size, sizeof(steps));
    memcpy(&steps, progress->progress->bytes.bytes, sizeof(steps));
    return steps;
}

/* What every number of the buffer is. */
static cl_uint contents_of_image(void)
{
    cl_uint *numbers = malloc(BYTES);
    const struct image_sink sink = {.contents =
                                        image_manifest_contents(&manifest, (uintptr_t)f.buffer),
                                    .bytes = (char *)numbers};
    const struct image_reading reading = {.sinks = &sink, .count = 1};
    cr_assert_not_null(sink.contents);
    cr_assert_eq(image_read(folder, &reading, problem), 0, "%s", problem);
    for (size_t i = 1; i < COUNT; i++)
        cr_assert_eq(numbers[i], numbers[0], "at %zu", i);
    cl_uint number = numbers[0];
    free(numbers);
    return number;
}

/* ---- giving progress ---- */

static atomic_bool over;

/* Without a finish: what it gave is still to be done when it is asked. */
static void *run_steps(void *data)
{
    (void)data;
    while (!atomic_load(&over)) {
        pthread_mutex_lock(&f.lock);
        step();
        if (f.steps % 16 == 0)
            OK(clFinish(f.program.queue));
        pthread_mutex_unlock(&f.lock);
        sched_yield();
    }
    OK(clFinish(f.program.queue));
    return NULL;
}

Test(aware_save, progress_and_contents_are_of_one_moment)
{
    pthread_t thread;
    cl_uint before = 0;
    open_program();
    take_part(on_save, 60000);
    cr_assert_eq(pthread_create(&thread, NULL, run_steps, NULL), 0);
    for (unsigned i = 0; i < 10; i++) {
        makes();
        open_image();
        cl_uint steps = progress_of_image();
        cr_assert_eq(steps, contents_of_image());
        cr_assert_geq(steps, before);
        cr_assert_eq(f.saved, RESEAT_OK);
        before = steps;
        close_image();
    }
    cr_assert_eq(f.called, 10);
    cr_assert_gt(before, 0);
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    cr_assert_eq(reseat_unregister(), RESEAT_OK);
    close_program();
}

Test(aware_save, says_how_it_was_started_and_no_secrets)
{
    open_program();
    take_part(on_save, 0);
    makes();
    open_image();
    const struct image_record *record = image_manifest_find(&manifest, IMAGE_COMMAND);
    cr_assert_not_null(record);
    const struct image_command *command = record->command;
    char here[PATH_MAX];
    cr_assert_not_null(getcwd(here, sizeof(here)));
    cr_assert_eq(command->directory.size, strlen(here));
    cr_assert_arr_eq((char *)command->directory.bytes, here, strlen(here));
    cr_assert(memmem(command->executable.bytes, command->executable.size, "/test_aware_save", 16));
    char line[4096];
    FILE *own = fopen("/proc/self/cmdline", "re");
    cr_assert_not_null(own);
    size_t length = fread(line, 1, sizeof(line), own);
    fclose(own);
    cr_assert_eq(command->arguments.size, length);
    cr_assert_arr_eq((char *)command->arguments.bytes, line, length);
    /* Set by its meson.build: one that is kept, one that is named in RESEAT_KEPT_VARIABLES, and one
     * that nobody asked for. */
    cr_assert(memmem(command->environment.bytes, command->environment.size, "POCL_DEVICES=", 13));
    cr_assert(memmem(command->environment.bytes, command->environment.size, "TEST_KEPT=yes", 13));
    cr_assert_not(memmem(command->environment.bytes, command->environment.size, "secret", 6));
    char path[PATH_MAX];
    struct stat stat_buffer;
    snprintf(path, sizeof(path), "%s/%s/%s", f.folder, f.report.image, IMAGE_MANIFEST);
    cr_assert_eq(stat(path, &stat_buffer), 0);
    cr_assert_eq(stat_buffer.st_mode & 07777, 0600);
    close_image();
    close_program();
}

static int save_nothing(void *data, const struct reseat_change *change)
{
    (void)data, (void)change;
    return f.result;
}

static int save_too_much(void *data, const struct reseat_change *change)
{
    char *bytes = calloc(1, RESEAT_PROGRESS_MAX + 1);
    (void)data, (void)change;
    f.saved = reseat_save(bytes, RESEAT_PROGRESS_MAX + 1);
    free(bytes);
    return f.saved;
}

static int save_all_there_may_be(void *data, const struct reseat_change *change)
{
    char *bytes = calloc(1, RESEAT_PROGRESS_MAX);
    (void)data, (void)change;
    f.saved = reseat_save(bytes, RESEAT_PROGRESS_MAX);
    free(bytes);
    return 0;
}

Test(aware_save, there_is_no_image_when_the_callback_fails)
{
    open_program();
    take_part(save_nothing, 0);
    f.result = 7;
    fails(MOVE_ROLLED_BACK, "save callback failed (7)");
    f.result = 0;
    fails(MOVE_ROLLED_BACK, "save callback saved nothing");
    cr_assert_eq(reseat_unregister(), RESEAT_OK);
    take_part(save_too_much, 0);
    fails(MOVE_ROLLED_BACK, "more than the 16777216 bytes");
    cr_assert_eq(f.saved, RESEAT_TOO_LARGE);
    cr_assert_eq(reseat_unregister(), RESEAT_OK);
    take_part(save_all_there_may_be, 0);
    makes();
    cr_assert_eq(reseat_unregister(), RESEAT_OK);
    close_program();
}

static atomic_bool hangs;
static atomic_int late;

static int save_late(void *data, const struct reseat_change *change)
{
    (void)data, (void)change;
    while (atomic_load(&hangs))
        engine_rig_sleep(1);
    atomic_store(&late, reseat_save(NULL, 0));
    return 0;
}

static void await_late(void)
{
    for (unsigned i = 0; i < 20000 && atomic_load(&late) == INT_MAX; i++)
        engine_rig_sleep(1);
}

/* Too late. */
static void comes_back(void)
{
    atomic_store(&late, INT_MAX);
    atomic_store(&hangs, false);
    await_late();
    cr_assert_eq(atomic_load(&late), RESEAT_NOT_ASKED);
    atomic_store(&late, INT_MAX);
}

Test(aware_save, there_is_no_image_when_the_callback_is_late)
{
    open_program();
    atomic_store(&hangs, true);
    take_part(save_late, 50);
    fails(MOVE_ROLLED_BACK, "save callback has not returned");
    /* Nor a move, until it is back. */
    struct move_report moved;
    cr_assert_neq(engine_rig_move(&f.rig, "two", &moved), MOVE_DONE);
    cr_assert(strstr(moved.reason, "save callback"), "%s", moved.reason);
    fails(MOVE_ROLLED_BACK, "save callback has not returned");
    comes_back();
    makes();
    await_late();
    cr_assert_eq(atomic_load(&late), RESEAT_OK);
    engine_rig_moves(&f.rig, "two");
    close_program();
}

Test(aware_save, the_callback_is_told_when_there_is_no_image)
{
    cl_int error;
    open_program();
    take_part(on_save, 0);
    cl_event event = clCreateUserEvent(f.program.context, &error);
    const size_t items = COUNT;
    OK(error);
    OK(clEnqueueNDRangeKernel(f.program.queue, f.kernel, 1, NULL, &items, NULL, 1, &event, NULL));
    fails(MOVE_ROLLED_BACK, "wait for an event of its own");
    pthread_mutex_lock(&f.lock);
    cr_assert_eq(f.saved, RESEAT_NOT_MADE);
    pthread_mutex_unlock(&f.lock);
    OK(clSetUserEventStatus(event, CL_COMPLETE));
    OK(clFinish(f.program.queue));
    makes();
    OK(clReleaseEvent(event));
    close_program();
}

static void *set_event(void *event)
{
    engine_rig_sleep(100);
    OK(clSetUserEventStatus(event, CL_COMPLETE));
    return NULL;
}

Test(aware_save, what_is_held_may_go_while_the_program_stands)
{
    cl_int error;
    pthread_t thread;
    const size_t items = COUNT;
    open_program();
    take_part(on_save, 0);
    cl_event event = clCreateUserEvent(f.program.context, &error);
    OK(error);
    OK(clEnqueueNDRangeKernel(f.program.queue, f.kernel, 1, NULL, &items, NULL, 1, &event, NULL));
    f.steps = 1;
    cr_assert_eq(pthread_create(&thread, NULL, set_event, event), 0);
    makes();
    open_image();
    cr_assert_eq(progress_of_image(), 1);
    cr_assert_eq(contents_of_image(), 1);
    close_image();
    pthread_join(thread, NULL);
    OK(clReleaseEvent(event));
    close_program();
}

Test(aware_save, a_program_without_a_device_is_not_asked)
{
    open_program();
    take_part(on_save, 0);
    engine_rig_moves(&f.rig, NULL);
    fails(MOVE_ROLLED_BACK, "it has no device");
    cr_assert_eq(f.called, 0);
    engine_rig_moves(&f.rig, "one");
    makes();
    close_program();
}

Test(aware_save, a_program_without_a_callback_has_an_image_without_progress)
{
    open_program();
    cr_assert_eq(reseat_save("", 1), RESEAT_NOT_ASKED);
    take_part(NULL, 0);
    makes();
    open_image();
    cr_assert_null(image_manifest_find(&manifest, IMAGE_PROGRESS));
    cr_assert_null(image_manifest_find(&manifest, IMAGE_COMMAND));
    close_image();
    close_program();
}

Test(aware_save, programs_of_the_first_version_register_still)
{
    struct reseat_program program = {.save = save_nothing, .save_ms = UINT32_MAX};
    open_program();
    cr_assert_eq(reseat_api(RESEAT_API_MAJOR << 16)->size, sizeof(struct reseat_api));
    program.size = offsetof(struct reseat_program, save_ms) - 1;
    cr_assert_eq(reseat_register(&program), RESEAT_INVALID);
    program.size = sizeof(program);
    cr_assert_eq(reseat_register(&program), RESEAT_INVALID, "no callback may take so long");
    program.size = offsetof(struct reseat_program, save_ms);
    cr_assert_eq(reseat_register(&program), RESEAT_OK);
    makes();
    close_program();
}

Test(aware_save, canceled_while_the_callback_runs)
{
    static atomic_bool cancel;
    open_program();
    atomic_store(&hangs, true);
    take_part(save_late, 60000);
    const struct checkpoint_request request = {
        .folder = f.folder, .cancel = &cancel, .deadline_ns = engine_rig_now() + 200000000};
    checkpoint_make(&request, &f.report);
    cr_assert_eq(f.report.result, MOVE_EXPIRED, "%s", f.report.reason);
    comes_back();
    makes();
    close_program();
}

/* ---- names ---- */

/* The device vanishes under it the first time, so that its read waits for a recovery. */
static int save_with_a_loss(void *data, const struct reseat_change *change)
{
    cl_uint number;
    (void)data, (void)change;
    if (f.called++ == 0)
        cr_assert_eq(emu_shared_arm(f.rig.emu, "one", 1, "clEnqueueReadBuffer", EMU_ERROR_VANISH),
                     0);
    OK(clEnqueueReadBuffer(f.program.queue, f.buffer, CL_TRUE, 0, sizeof(number), &number, 0, NULL,
                           NULL));
    cr_assert_eq(number, f.steps);
    f.saved = reseat_save(&f.steps, sizeof(f.steps));
    return 0;
}

Test(aware_save, a_loss_while_the_callback_runs_is_recovered_from_first)
{
    const struct protect_settings settings = {.interval_ns = UINT64_C(3600000000000)};
    open_program();
    cr_assert_eq(protect_begin(&settings), 0);
    cr_assert_eq(protect_now(), 0);
    for (unsigned i = 0; i < 5; i++)
        step();
    take_part(save_with_a_loss, 20000);
    makes();
    cr_assert_eq(f.called, 2);
    cr_assert_eq(f.saved, RESEAT_OK);
    open_image();
    cr_assert_eq(progress_of_image(), 5);
    cr_assert_eq(contents_of_image(), 5);
    close_image();
    protect_end();
    cr_assert_eq(reseat_unregister(), RESEAT_OK);
    close_program();
}

Test(aware_save, a_name_is_one_living_object_s)
{
    char longest[RESEAT_NAME_MAX + 1];
    cl_int error;
    open_program();
    cl_mem other = engine_buffer(f.program.context, CL_MEM_READ_WRITE, 64, NULL);
    const cl_buffer_region region = {0, 16};
    cl_mem part = clCreateSubBuffer(other, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
    OK(error);
    memset(longest, 'x', sizeof(longest) - 1);
    longest[RESEAT_NAME_MAX] = '\0';
    cr_assert_eq(reseat_name(other, NULL, NULL), RESEAT_INVALID);
    cr_assert_eq(reseat_name(other, "", NULL), RESEAT_INVALID);
    cr_assert_eq(reseat_name(other, "\x1b[2J", NULL), RESEAT_INVALID);
    cr_assert_eq(reseat_name(other, longest, NULL), RESEAT_INVALID);
    longest[RESEAT_NAME_MAX - 1] = '\0';
    cr_assert_eq(reseat_name(other, longest, NULL), RESEAT_OK);
    cr_assert_eq(reseat_name(NULL, "a", NULL), RESEAT_INVALID);
    cr_assert_eq(reseat_name((cl_mem)f.kernel, "a", NULL), RESEAT_INVALID);
    cr_assert_eq(reseat_name(part, "a", NULL), RESEAT_INVALID);
    int filled = 5;
    cr_assert_eq(reseat_name(f.buffer, "a", &filled), RESEAT_OK);
    cr_assert_eq(filled, 0);
    cr_assert_eq(reseat_name(other, "a", NULL), RESEAT_ALREADY);
    cr_assert_eq(reseat_name(f.buffer, "b", NULL), RESEAT_OK);
    cr_assert_eq(reseat_name(other, "a", NULL), RESEAT_OK);
    take_part(on_save, 0);
    makes();
    open_image();
    size_t names = 0;
    for (size_t i = 0; i < manifest.count; i++) {
        const struct image_name *name = manifest.records[i].name;
        if (manifest.records[i].kind != IMAGE_NAME)
            continue;
        names++;
        cr_assert_str_eq(name->name, name->id == (uintptr_t)other ? "a" : "b");
    }
    cr_assert_eq(names, 2);
    close_image();
    OK(clReleaseMemObject(part));
    OK(clReleaseMemObject(other));
    cr_assert_eq(reseat_name(f.buffer, "a", NULL), RESEAT_OK, "the other one is gone");
    close_program();
}

/* ---- a new process ---- */

/* Objects of each kind, as two processes make them. */
struct objects {
    cl_mem fresh, begun, lent, image, none;
    char begun_bytes[300], lent_bytes[4096];
};

static cl_mem make_image2d(size_t width)
{
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = width, .image_height = 7};
    cl_int error;
    cl_mem image =
        clCreateImage(f.program.context, CL_MEM_READ_WRITE, &format, &desc, NULL, &error);
    OK(error);
    return image;
}

static void make_objects(struct objects *o, int byte)
{
    memset(o->begun_bytes, byte, sizeof(o->begun_bytes));
    memset(o->lent_bytes, byte + 1, sizeof(o->lent_bytes));
    o->fresh = engine_buffer(f.program.context, CL_MEM_READ_WRITE, BYTES, NULL);
    o->begun = engine_buffer(f.program.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                             sizeof(o->begun_bytes), o->begun_bytes);
    o->lent = engine_buffer(f.program.context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                            sizeof(o->lent_bytes), o->lent_bytes);
    o->image = make_image2d(5);
    o->none = engine_buffer(f.program.context, CL_MEM_READ_WRITE, 64, NULL);
}

static void release_objects(struct objects *o)
{
    OK(clReleaseMemObject(o->fresh));
    OK(clReleaseMemObject(o->begun));
    OK(clReleaseMemObject(o->lent));
    OK(clReleaseMemObject(o->image));
    OK(clReleaseMemObject(o->none));
}

static void is_filled(cl_mem memory, const char *name)
{
    int filled = 0, error = reseat_name(memory, name, &filled);
    cr_assert_eq(error, RESEAT_OK, "%s: %s", name, reseat_error_text(error));
    cr_assert_eq(filled, 1, "%s", name);
}

static void all_are(cl_mem memory, size_t size, int byte, const char *name)
{
    char *bytes = malloc(size);
    engine_read_there(f.program.queue, memory, 0, size, bytes);
    for (size_t i = 0; i < size; i++)
        cr_assert_eq(bytes[i], (char)byte, "%s: byte %zu is %d, not %d", name, i, bytes[i], byte);
    free(bytes);
}

static const size_t origin[3] = {0, 0, 0}, region[3] = {5, 7, 1};

static void name_all(const struct objects *o)
{
    cr_assert_eq(reseat_name(o->fresh, "fresh", NULL), RESEAT_OK);
    cr_assert_eq(reseat_name(o->begun, "begun", NULL), RESEAT_OK);
    cr_assert_eq(reseat_name(o->lent, "lent", NULL), RESEAT_OK);
    cr_assert_eq(reseat_name(o->image, "image", NULL), RESEAT_OK);
    cr_assert_eq(reseat_name(o->none, "none", NULL), RESEAT_OK);
}

static void make_image_of_all(void)
{
    static char pixels[7 * 5 * 4];
    const char forty = 40;
    struct objects o;
    open_program();
    make_objects(&o, 10);
    name_all(&o);
    memset(pixels, 30, sizeof(pixels));
    OK(clEnqueueWriteImage(f.program.queue, o.image, CL_TRUE, origin, region, 0, 0, pixels, 0, NULL,
                           NULL));
    OK(clEnqueueFillBuffer(f.program.queue, o.fresh, &forty, 1, 0, BYTES, 0, NULL, NULL));
    f.steps = 77;
    take_part(on_save, 0);
    makes();
}

static void make_image_without_progress(void)
{
    open_program();
    makes();
}

static void make_image_of_another(void)
{
    static char other[] = "other";
    program_invocation_short_name = other;
    make_image_of_all();
}

/* Another process makes an image, before this one begins. */
static void have_image(void (*make)(void))
{
    int status, ends[2];
    folder_make(f.above);
    cr_assert_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        make();
        bool told = write(ends[1], f.report.image, IMAGE_NAME_MAX) == IMAGE_NAME_MAX;
        _exit(told ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    cr_assert_eq(read(ends[0], f.report.image, IMAGE_NAME_MAX), IMAGE_NAME_MAX);
    close(ends[0]);
    close(ends[1]);
    open_program();
}

static void begin_from(const char *image)
{
    char path[sizeof(f.folder) + IMAGE_NAME_MAX + 1];
    snprintf(path, sizeof(path), "%s/%s", f.folder, image);
    cr_assert_eq(setenv(RESTORE_ENV, path, 1), 0);
}

static int restored(void)
{
    struct reseat_restored told = {.size = sizeof(told)};
    int error = reseat_restored(&told);
    snprintf(problem, sizeof(problem), "%s", told.problem);
    if (error == RESEAT_OK) {
        cr_assert_eq(told.count, sizeof(f.steps));
        memcpy(&f.steps, told.bytes, sizeof(f.steps));
        cr_assert_gt(told.saved_ms, 0);
    }
    return error;
}

Test(aware_save, a_new_process_gets_the_progress_and_the_bytes)
{
    struct objects o;
    have_image(make_image_of_all);
    f.steps = 0;
    begin_from(f.report.image);
    cr_assert_eq(restored(), RESEAT_OK, "%s", problem);
    cr_assert_eq(f.steps, 77);
    cr_assert_str_empty(getenv(RESTORE_ENV), "its children begin at their beginnings");
    make_objects(&o, 90);
    is_filled(o.fresh, "fresh");
    is_filled(o.begun, "begun");
    is_filled(o.lent, "lent");
    is_filled(o.image, "image");
    is_filled(o.none, "none");
    for (size_t i = 0; i < sizeof(o.lent_bytes); i++)
        cr_assert_eq(o.lent_bytes[i], 91, "the program's memory is written by its commands");
    all_are(o.fresh, BYTES, 40, "fresh");
    all_are(o.begun, sizeof(o.begun_bytes), 10, "begun");
    all_are(o.lent, sizeof(o.lent_bytes), 11, "lent");
    char pixels[7 * 5 * 4];
    OK(clEnqueueReadImage(f.program.queue, o.image, CL_TRUE, origin, region, 0, 0, pixels, 0, NULL,
                          NULL));
    for (size_t i = 0; i < sizeof(pixels); i++)
        cr_assert_eq(pixels[i], 30);
    /* Once: what is made again has what the program gives it. */
    OK(clReleaseMemObject(o.begun));
    o.begun = engine_buffer(f.program.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                            sizeof(o.begun_bytes), o.begun_bytes);
    int filled = 1;
    cr_assert_eq(reseat_name(o.begun, "begun", &filled), RESEAT_OK);
    cr_assert_eq(filled, 0);
    all_are(o.begun, sizeof(o.begun_bytes), 90, "begun");
    engine_rig_moves(&f.rig, "two");
    all_are(o.fresh, BYTES, 40, "fresh");
    release_objects(&o);
    close_program();
}

Test(aware_save, what_does_not_fit_is_told_and_nothing_is_lost)
{
    struct objects o;
    have_image(make_image_of_all);
    begin_from(f.report.image);
    make_objects(&o, 90);
    cr_assert_eq(reseat_name(o.begun, "image", NULL), RESEAT_DIFFERENT, "another type");
    cr_assert_eq(reseat_name(o.begun, "lent", NULL), RESEAT_DIFFERENT, "another size");
    cr_assert_eq(reseat_name(o.begun, "other", NULL), RESEAT_MISSING);
    OK(clReleaseMemObject(o.image));
    o.image = make_image2d(6);
    cr_assert_eq(reseat_name(o.image, "image", NULL), RESEAT_DIFFERENT, "another shape");
    all_are(o.begun, sizeof(o.begun_bytes), 90, "begun");
    cr_assert_eq(reseat_name(o.begun, "begun", NULL), RESEAT_BUSY, "it was used");
    all_are(o.begun, sizeof(o.begun_bytes), 90, "begun");
    OK(clReleaseMemObject(o.begun));
    o.begun = engine_buffer(f.program.context, CL_MEM_READ_WRITE, sizeof(o.begun_bytes), NULL);
    is_filled(o.begun, "begun");
    all_are(o.begun, sizeof(o.begun_bytes), 10, "begun");
    release_objects(&o);
    close_program();
}

/* Damage a file of the image's folder, at a byte or at its end. */
static void damage(const char *path, long at)
{
    FILE *file = fopen(path, "r+e");
    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fseek(file, at, SEEK_SET), 0);
    int byte = fgetc(file);
    cr_assert_eq(fseek(file, at, SEEK_SET), 0);
    fputc(byte ^ 1, file);
    fclose(file);
}

Test(aware_save, damaged_contents_are_not_given)
{
    struct objects o;
    char path[PATH_MAX], name[IMAGE_CHUNK_NAME];
    have_image(make_image_of_all);
    open_image();
    for (size_t i = 0; i < manifest.count; i++) {
        const struct image_contents *contents = manifest.records[i].contents;
        if (manifest.records[i].kind != IMAGE_CONTENTS || contents->size != sizeof(o.lent_bytes))
            continue;
        const struct image_digest digest = image_contents_digest(contents, 0);
        image_chunk_name(&digest, name);
    }
    close_image();
    snprintf(path, sizeof(path), "%s/chunks/%s", f.folder, name);
    damage(path, IMAGE_CHUNK_HEADER + 1);
    begin_from(f.report.image);
    cr_assert_eq(restored(), RESEAT_OK, "%s", problem);
    make_objects(&o, 90);
    cr_assert_eq(reseat_name(o.lent, "lent", NULL), RESEAT_DAMAGED);
    all_are(o.lent, sizeof(o.lent_bytes), 91, "lent");
    is_filled(o.fresh, "fresh");
    release_objects(&o);
    close_program();
}

Test(aware_save, a_damaged_manifest_is_not_read)
{
    struct objects o;
    char path[PATH_MAX];
    have_image(make_image_of_all);
    snprintf(path, sizeof(path), "%s/%s/%s", f.folder, f.report.image, IMAGE_MANIFEST);
    damage(path, 100);
    begin_from(f.report.image);
    cr_assert_eq(restored(), RESEAT_DAMAGED);
    cr_assert(strstr(problem, "it is damaged"), "%s", problem);
    make_objects(&o, 90);
    cr_assert_eq(reseat_name(o.fresh, "fresh", NULL), RESEAT_DAMAGED);
    release_objects(&o);
    close_program();
}

Test(aware_save, another_program_s_image_is_not_read)
{
    have_image(make_image_of_another);
    begin_from(f.report.image);
    cr_assert_eq(restored(), RESEAT_DIFFERENT);
    cr_assert(strstr(problem, "it is of the program other"), "%s", problem);
    close_program();
}

Test(aware_save, an_image_without_progress_is_not_gone_on_from)
{
    have_image(make_image_without_progress);
    begin_from(f.report.image);
    cr_assert_eq(restored(), RESEAT_DIFFERENT);
    cr_assert(strstr(problem, "it has no progress"), "%s", problem);
    close_program();
}

Test(aware_save, a_folder_that_others_can_enter_is_not_read)
{
    have_image(make_image_of_all);
    cr_assert_eq(chmod(f.folder, 0755), 0);
    begin_from(f.report.image);
    cr_assert_eq(restored(), RESEAT_DAMAGED);
    cr_assert(strstr(problem, "only you can enter"), "%s", problem);
    close_program();
}

Test(aware_save, without_an_image_a_program_begins_at_its_beginning)
{
    struct reseat_restored told = {.size = offsetof(struct reseat_restored, problem) - 1};
    open_program();
    cr_assert_eq(reseat_restored(&told), RESEAT_INVALID);
    cr_assert_eq(reseat_restored(NULL), RESEAT_INVALID);
    cr_assert_eq(restored(), RESEAT_NO_IMAGE);
    cr_assert_str_empty(problem);
    close_program();
}

Test(aware_save, a_path_that_is_no_image_s_is_not_read)
{
    open_program();
    begin_from("../../etc/passwd");
    cr_assert_eq(restored(), RESEAT_DAMAGED);
    cr_assert(strstr(problem, "no image has such a path"), "%s", problem);
    close_program();
}

Test(aware_save, the_child_of_a_fork_is_not_restored)
{
    int status;
    have_image(make_image_of_all);
    begin_from(f.report.image);
    cr_assert_eq(restored(), RESEAT_OK);
    pid_t child = fork();
    if (child == 0)
        _exit(restored() == RESEAT_NO_IMAGE ? 0 : 1);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    close_program();
}
