#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/recovery/protect.h"
#include "tests/interpose/aware/save_program.h"

/* Programs that give their progress for an image. */

TestSuite(aware_save, .fini = close_program, .timeout = 120);

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
}

static void *set_event(void *event)
{
    engine_rig_sleep(100);
    OK(clSetUserEventStatus(event, CL_COMPLETE));
    return NULL;
}

Test(aware_save, what_is_held_may_go_while_the_program_stands)
{
    pthread_t thread;
    const size_t items = COUNT;
    open_program();
    take_part(on_save, 0);
    cl_event event = MADE(clCreateUserEvent, f.program.context);
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
}

Test(aware_save, canceled_while_the_callback_runs)
{
    static atomic_bool cancel;
    open_program();
    atomic_store(&hangs, true);
    take_part(save_late, 60000);
    const struct image_request request = {
        .folder = f.folder,
        .move = {.cancel = &cancel, .deadline_ns = engine_rig_now() + 200000000}};
    checkpoint_make(&request, &f.report);
    cr_assert_eq(f.report.result, MOVE_EXPIRED, "%s", f.report.reason);
    comes_back();
    makes();
}

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
}

Test(aware_save, a_name_is_one_living_object_s)
{
    char longest[RESEAT_NAME_MAX + 1];
    open_program();
    cl_mem other = engine_buffer(f.program.context, CL_MEM_READ_WRITE, 64, NULL);
    const cl_buffer_region region = {0, 16};
    cl_mem part = MADE(clCreateSubBuffer, other, 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
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
    RELEASE(part, other);
    cr_assert_eq(reseat_name(f.buffer, "a", NULL), RESEAT_OK, "the other one is gone");
}
