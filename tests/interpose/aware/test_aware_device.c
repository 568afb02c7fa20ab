#include "interpose/aware/aware.h"
#include "interpose/entry/reseat_api.h"
#include "state/budget/budget.h"
#include "tests/interpose/aware/test_aware.h"

/* What the program keeps, uses and is told. */

#define MIB ((size_t)1 << 20)

#define SOURCE                                                                                     \
    "__kernel void add(__global uint *words, uint value)\n"                                        \
    "{ words[get_global_id(0)] += value; }\n"

/* Adds up, in work-groups as large as the device has, over as much memory as it is given. */
struct work {
    struct engine_program engine;
    cl_mem buffer, kept;
    cl_kernel add;
    cl_uint *saved; /* the checkpoint */
    size_t words, group, saved_words;
    cl_uint sum;
};

static void work_launch(struct work *work, cl_uint value)
{
    cl_kernel add = work->add;
    ARGS(add, work->buffer, value);
    OK(clEnqueueNDRangeKernel(work->engine.queue, add, 1, NULL, &work->words, &work->group, 0, NULL,
                              NULL));
    work->sum += value;
}

static void work_make(struct work *work, size_t bytes, size_t group)
{
    work->words = bytes / sizeof(cl_uint);
    work->group = group;
    work->buffer = engine_buffer(work->engine.context, CL_MEM_READ_WRITE, bytes, NULL);
    work->add = engine_kernel(work->engine.program, "add");
}

static void work_read(struct work *work, cl_uint *ret_words, size_t count)
{
    OK(clEnqueueReadBuffer(work->engine.queue, work->buffer, CL_TRUE, 0, count * sizeof(cl_uint),
                           ret_words, 0, NULL, NULL));
}

static void save(struct aware_program *program, const struct reseat_change *change)
{
    struct work *work = program->own;
    (void)change;
    work->saved_words = 1024;
    work_read(work, work->saved, work->saved_words);
}

static void let_go(struct aware_program *program, const struct reseat_change *change)
{
    struct work *work = program->own;
    (void)change;
    RELEASE(work->buffer, work->add);
    work->buffer = NULL;
}

static void make_again(struct aware_program *program, const struct reseat_change *change)
{
    struct work *work = program->own;
    cr_assert_eq(change->to->limits.work_group_size, aware_group(program));
    cr_assert_eq(change->to->limits.memory, aware_info(program, CL_DEVICE_GLOBAL_MEM_SIZE));
    work_make(work, change->to->limits.allocation, aware_group(program));
    OK(clEnqueueWriteBuffer(work->engine.queue, work->buffer, CL_TRUE, 0,
                            work->saved_words * sizeof(cl_uint), work->saved, 0, NULL, NULL));
}

static struct work the_work;

static void work_close(void)
{
    (void)reseat_unregister();
    if (!the_work.engine.queue)
        return;
    OK(clFinish(the_work.engine.queue));
    if (the_work.buffer)
        OK(clReleaseMemObject(the_work.buffer));
    OK(clReleaseKernel(the_work.add));
    engine_program_close(&the_work.engine);
    free(the_work.saved);
}

TestSuite(aware_device, .fini = work_close, .timeout = 120);

static struct work *work_open(struct aware_program *program, size_t bytes)
{
    cl_uint zero = 0;
    engine_program_open(&program->rig, 0, SOURCE, &the_work.engine);
    the_work.saved = calloc(1024, sizeof(cl_uint));
    cr_assert_not_null(the_work.saved);
    work_make(&the_work, bytes, 128);
    OK(clEnqueueFillBuffer(the_work.engine.queue, the_work.buffer, &zero, sizeof(zero), 0, bytes, 0,
                           NULL, NULL));
    work_launch(&the_work, 7);
    program->own = &the_work;
    return &the_work;
}

static void work_check(struct work *work)
{
    cl_uint words[1024];
    work_launch(work, 5);
    work_read(work, words, 1024);
    for (size_t i = 0; i < 1024; i++)
        cr_assert_eq(words[i], work->sum, "word %zu is %u", i, words[i]);
}

Test(aware_device, goes_where_what_it_used_before_would_not_fit)
{
    struct aware_program *program = aware_program_open_idle();
    struct work *work = work_open(program, 32 * MIB);
    struct move_report report;
    /* As any other program it has used too much. */
    cr_assert_eq(aware_program_move(program, "small", MOVE_ASKED, &report), MOVE_REFUSED);
    program->acts[CHECKPOINT] = save;
    program->acts[CLEAN_UP] = let_go;
    program->acts[CONFIGURE] = make_again;
    cr_assert_eq(reseat_register(&program->program), RESEAT_OK);
    cr_assert_eq(aware_program_move(program, "small", MOVE_ASKED, &report), MOVE_DONE, "%s",
                 report.reason);
    /* What it released was not copied. */
    cr_assert_lt(report.bytes, MIB);
    cr_assert_eq(work->group, 64);
    cr_assert_eq(work->words * sizeof(cl_uint), 8 * MIB);
    work_check(work);
    /* What it did on the large one is past, also for a move that it is not asked about. */
    cr_assert_eq(aware_program_move(program, "other", MOVE_NEEDED, &report), MOVE_DONE, "%s",
                 report.reason);
    aware_program_await(program, RESUME, 2);
    cr_assert_eq(work->group, 128);
    work_check(work);
    cr_assert_eq(aware_program_move(program, "big", MOVE_ASKED, &report), MOVE_DONE);
    cr_assert_eq(work->group, 256);
    work_check(work);
}

Test(aware_device, stays_when_what_it_kept_does_not_fit)
{
    struct aware_program *program = aware_program_open_idle();
    struct work *work = work_open(program, 32 * MIB);
    struct move_report report;
    cr_assert_eq(reseat_register(&program->program), RESEAT_OK);
    cr_assert_eq(aware_program_move(program, "small", MOVE_ASKED, &report), MOVE_REFUSED);
    cr_assert_not_null(strstr(report.reason, "bytes of device memory"), "%s", report.reason);
    aware_program_expect(program, "checkpoint big>small, clean_up big>small, cancel big>big~, "
                                  "configure big>big~, resume big>big~");
    work_check(work);
    /* And what it used has not been forgotten. */
    cr_assert_eq(reseat_unregister(), RESEAT_OK);
    OK(clReleaseMemObject(work->buffer));
    work->buffer = NULL;
    OK(clFinish(work->engine.queue));
    cr_assert_eq(aware_program_move(program, "small", MOVE_ASKED, &report), MOVE_REFUSED);
    cr_assert_not_null(strstr(report.reason, "has used"), "%s", report.reason);
}

Test(aware_device, is_told_of_the_device_that_it_has)
{
    struct aware_program *program = aware_program_open_idle();
    struct reseat_device device = {.size = sizeof(device)};
    struct engine_program engine;
    cl_int error;
    cr_assert_eq(reseat_current(program->rig.device, &device), RESEAT_OK);
    cr_assert_str_eq(device.name, "big");
    cr_assert_eq(device.kind, RESEAT_GPU);
    cr_assert_eq(device.limits.memory, 64 * MIB);
    cr_assert_eq(device.limits.allocation, 32 * MIB);
    cr_assert_eq(device.limits.local_memory, 32768);
    cr_assert_eq(device.limits.work_group_size, 256);
    cr_assert_eq(device.limits.compute_units, 8);
    cr_assert_eq(device.granted, UINT64_MAX);
    budget_grant(0, 20 * MIB);
    cr_assert_eq(reseat_current(program->rig.device, &device), RESEAT_OK);
    cr_assert_eq(device.granted, 20 * MIB);
    cr_assert_eq(device.limits.memory, 64 * MIB);
    /* A program that does not register is told nothing new. */
    cr_assert_eq(aware_program_move(program, "small", MOVE_ASKED, NULL), MOVE_DONE);
    cr_assert_eq(aware_group(program), 256);
    cr_assert_eq(reseat_register(&program->program), RESEAT_OK);
    cr_assert_eq(aware_group(program), 64);
    cr_assert_eq(aware_info(program, CL_DEVICE_GLOBAL_MEM_SIZE), 16 * MIB);
    cr_assert_eq(aware_info(program, CL_DEVICE_MAX_MEM_ALLOC_SIZE), 8 * MIB);
    cr_assert_eq(aware_info(program, CL_DEVICE_LOCAL_MEM_SIZE), 16384);
    cr_assert_eq((cl_uint)aware_info(program, CL_DEVICE_MAX_COMPUTE_UNITS), 2);
    cr_assert_eq(reseat_current(NULL, &device), RESEAT_OK);
    cr_assert_str_eq(device.name, "small");
    cr_assert_eq(device.kind, RESEAT_CPU);
    /* And held to it. */
    engine_program_open(&program->rig, 0, NULL, &engine);
    cr_assert_null(clCreateBuffer(engine.context, 0, 9 * MIB, NULL, &error));
    cr_assert_eq(error, CL_INVALID_BUFFER_SIZE);
    engine_program_close(&engine);
    cr_assert_eq(reseat_unregister(), RESEAT_OK);
    cr_assert_eq(aware_group(program), 256);
    cr_assert_eq(aware_info(program, CL_DEVICE_GLOBAL_MEM_SIZE), 64 * MIB);
}

Test(aware_device, tells_as_much_as_the_caller_has_room_for)
{
    struct aware_program *program = aware_program_open_idle();
    unsigned char bytes[sizeof(struct reseat_device) + 64];
    struct reseat_device device = {.size = offsetof(struct reseat_device, limits) + 8};
    memset(bytes, 0x5a, sizeof(bytes));
    memcpy(bytes, &device, sizeof(device.size));
    cr_assert_eq(reseat_current(program->rig.device, (void *)bytes), RESEAT_OK);
    for (size_t i = device.size; i < sizeof(bytes); i++)
        cr_assert_eq(bytes[i], 0x5a, "byte %zu", i);
    /* A later header's: what this library knows is filled, and said so. */
    device.size = sizeof(bytes);
    memcpy(bytes, &device, sizeof(device.size));
    cr_assert_eq(reseat_current(program->rig.device, (void *)bytes), RESEAT_OK);
    memcpy(&device, bytes, sizeof(device));
    cr_assert_eq(device.size, sizeof(device));
    cr_assert_eq(device.limits.compute_units, 8);
    cr_assert_eq(bytes[sizeof(device)], 0x5a);
    device.size = 4;
    cr_assert_eq(reseat_current(NULL, &device), RESEAT_INVALID);
    device.size = sizeof(device);
    cr_assert_eq(reseat_current((cl_device_id)program, &device), RESEAT_NO_DEVICE);
    cr_assert_eq(reseat_current(NULL, NULL), RESEAT_INVALID);
}

Test(aware_device, speaks_one_major_version)
{
    struct aware_program *program = aware_program_open_idle();
    union {
        struct reseat_program program;
        unsigned char bytes[sizeof(struct reseat_program) + 128];
    } later = {.bytes = {0}};
    cr_assert_null(reseat_api(RESEAT_API_VERSION + (1u << 16)));
    cr_assert_null(reseat_api(0));
    cr_assert_not_null(reseat_api(RESEAT_API_VERSION + 5));
    cr_assert_eq(reseat_register(NULL), RESEAT_INVALID);
    /* Smaller than the first version's. */
    program->program.size = offsetof(struct reseat_program, save_ms) - 8;
    cr_assert_eq(reseat_register(&program->program), RESEAT_INVALID);
    program->program.size = sizeof(program->program);
    program->program.resume_ms = 600001;
    cr_assert_eq(reseat_register(&program->program), RESEAT_INVALID);
    program->program.resume_ms = 0;
    program->program.minimum.memory = 2;
    program->program.preferred.memory = 1;
    cr_assert_eq(reseat_register(&program->program), RESEAT_INVALID);
    program->program.preferred.memory = 0;
    cr_assert_eq(reseat_wish(NULL, NULL), RESEAT_UNREGISTERED);
    later.program = program->program;
    later.program.size = sizeof(later);
    cr_assert_eq(reseat_register(&later.program), RESEAT_OK);
    cr_assert_eq(
        reseat_wish(&(struct reseat_limits){.memory = 3}, &(struct reseat_limits){.memory = 2}),
        RESEAT_INVALID);
    cr_assert_eq(aware_program_move(program, "other", MOVE_ASKED, NULL), MOVE_DONE);
    aware_program_expect(program, "checkpoint big>other, clean_up big>other, configure big>other, "
                                  "resume big>other");
}

/* Each callback uses OpenCL as it likes, a blocking call included. */
static void use(struct aware_program *program, const struct reseat_change *change)
{
    struct work *work = program->own;
    cl_uint words[1024];
    (void)change;
    size_t group = work->group;
    work->group = aware_group(program);
    work_launch(work, 3);
    work->group = group;
    work_read(work, words, 1024);
    for (size_t i = 0; i < 1024; i++)
        cr_assert_eq(words[i], work->sum, "word %zu is %u", i, words[i]);
    OK(clFinish(work->engine.queue));
}

Test(aware_device, may_use_opencl_in_every_callback)
{
    struct aware_program *program = aware_program_open_idle();
    struct move_report report;
    (void)work_open(program, MIB);
    for (int stage = 0; stage < STAGES; stage++)
        program->acts[stage] = use;
    cr_assert_eq(reseat_register(&program->program), RESEAT_OK);
    cr_assert_eq(aware_program_move(program, "other", MOVE_ASKED, &report), MOVE_DONE, "%s",
                 report.reason);
    program->fails[CONFIGURE] = 1;
    cr_assert_eq(aware_program_move(program, "big", MOVE_ASKED, &report), MOVE_ROLLED_BACK, "%s",
                 report.reason);
    aware_program_await(program, RESUME, 2);
    engine_rig_sleep(30);
    cr_assert_str_eq(aware_program_place(), "other");
    use(program, NULL);
}

/* What a callback must not wait for: another thread's call that cannot end. Here the device. */
static void *read_when_it_can(void *data)
{
    struct work *work = ((struct aware_program *)data)->own;
    cl_uint word;
    work_read(work, &word, 1);
    cr_assert_eq(word, work->sum);
    return NULL;
}

static void wait_for_a_thread(struct aware_program *program, const struct reseat_change *change)
{
    pthread_t thread;
    (void)change;
    cr_assert_eq(pthread_create(&thread, NULL, read_when_it_can, program), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
}

Test(aware_device, a_late_callback_that_needs_a_device_waits_for_one)
{
    struct aware_program *program = aware_program_open_idle();
    struct move_report report;
    work_open(program, MIB);
    program->program.checkpoint_ms = 100;
    cr_assert_eq(reseat_register(&program->program), RESEAT_OK);
    atomic_store(&program->hangs[CHECKPOINT], true);
    /* Taken away whole, while the checkpoint still runs. */
    cr_assert_eq(aware_program_move(program, NULL, MOVE_TAKEN, &report), MOVE_DONE, "%s",
                 report.reason);
    cr_assert_str_eq(aware_program_place(), "");
    atomic_store(&program->hangs[CHECKPOINT], false);
    /* One that comes to it now: the device is gone, and is back. */
    program->acts[CONFIGURE] = wait_for_a_thread;
    cr_assert_eq(aware_program_move(program, "other", MOVE_ASKED, &report), MOVE_DONE, "%s",
                 report.reason);
    aware_program_expect(program,
                         "checkpoint big>none!, checkpoint big>other^, clean_up big>other^, "
                         "configure big>other^, resume big>other^");
}

static void suspended_read(struct aware_program *program, const struct reseat_change *change)
{
    /* Asked again where it is by then, it has nothing to wait for. */
    while (change->reason == RESEAT_TAKEN && aware_program_place()[0] != '\0')
        engine_rig_sleep(1);
    read_when_it_can(program);
}

Test(aware_device, a_callback_that_waits_for_its_own_device_ends_when_it_is_back)
{
    struct aware_program *program = aware_program_open_idle();
    struct move_report report;
    work_open(program, MIB);
    program->program.checkpoint_ms = 100;
    program->acts[CHECKPOINT] = suspended_read;
    cr_assert_eq(reseat_register(&program->program), RESEAT_OK);
    cr_assert_eq(aware_program_move(program, NULL, MOVE_TAKEN, &report), MOVE_DONE, "%s",
                 report.reason);
    /* It reads, and is held until the program has a device again, which does not wait for it. */
    cr_assert_eq(aware_program_move(program, "other", MOVE_ASKED, &report), MOVE_DONE, "%s",
                 report.reason);
    aware_program_expect(program,
                         "checkpoint big>none!, checkpoint big>other^, clean_up big>other^, "
                         "configure big>other^, resume big>other^");
}

static struct {
    pthread_mutex_t lock;
    unsigned count;
    struct reseat_notice last;
    char text[64];
} noticed = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void notify(void *data, const struct reseat_notice *notice)
{
    (void)data;
    pthread_mutex_lock(&noticed.lock);
    noticed.count++;
    noticed.last = *notice;
    strncpy(noticed.text, notice->text, sizeof(noticed.text) - 1);
    pthread_mutex_unlock(&noticed.lock);
}

Test(aware_device, is_notified)
{
    struct aware_program *program = aware_program_open_idle();
    aware_notice(RESEAT_QUOTA, 0, 0, 1, "nobody is registered");
    program->program.notify = notify;
    cr_assert_eq(reseat_register(&program->program), RESEAT_OK);
    aware_notice(RESEAT_DEVICE_ADDED, UINT32_MAX, 0, 0, "gpu1");
    aware_notice(RESEAT_DEVICE_TAKEN, 0, 30000000000u, 0, "gpu0 is wanted");
    unsigned count = 0;
    for (int i = 0; i < 10000 && count < 2; i++) {
        engine_rig_sleep(1);
        pthread_mutex_lock(&noticed.lock);
        count = noticed.count;
        pthread_mutex_unlock(&noticed.lock);
    }
    cr_assert_eq(count, 2);
    cr_assert_eq(noticed.last.what, RESEAT_DEVICE_TAKEN);
    cr_assert_eq(noticed.last.device, program->rig.device);
    cr_assert_eq(noticed.last.in_ns, 30000000000u);
    cr_assert_str_eq(noticed.text, "gpu0 is wanted");
    cr_assert_eq(reseat_unregister(), RESEAT_OK);
    aware_notice(RESEAT_POWER, 0, 0, 1, "nobody is registered");
    engine_rig_sleep(30);
    cr_assert_eq(noticed.count, 2);
}

static struct aware_program *the_program;

static enum budget_answer have_it_moved(const struct budget_need *need)
{
    cr_assert_eq(need->vdev, 0);
    cr_assert_eq(aware_program_move(the_program, "other", MOVE_ASKED, NULL), MOVE_DONE);
    return BUDGET_AGAIN;
}

/* Its thread waits for memory, and the answer is a move: nobody is there to checkpoint. */
Test(aware_device, is_asked_afterwards_when_a_thread_of_it_waits_for_the_move)
{
    struct engine_program engine;
    the_program = aware_program_open();
    engine_program_open(&the_program->rig, 0, NULL, &engine);
    budget_set_policy(have_it_moved);
    budget_grant(0, MIB);
    cl_mem buffer = engine_buffer(engine.context, CL_MEM_READ_WRITE, 2 * MIB, NULL);
    cr_assert_str_eq(aware_program_place(), "other");
    aware_program_expect(the_program, "checkpoint big>other^, clean_up big>other^, configure "
                                      "big>other^, resume big>other^");
    OK(clReleaseMemObject(buffer));
    engine_program_close(&engine);
}
