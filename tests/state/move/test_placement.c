#include <sys/wait.h>

#include "tests/state/move/placement_rig.h"

/* Which launches are placed, and which are not. */

/* Two devices of so many items a second. */
#define PAIR(one, two)                                                                             \
    "[one] items_per_s=" one " name=one type=cpu base=1 own_memory=yes "                           \
    "[two] items_per_s=" two " name=two type=cpu base=1 own_memory=yes"

/* Says of each kernel that was launched what it draws on both devices. */
static void tell_power(const struct engine_rig *rig, uint64_t home_mw, uint64_t helper_mw)
{
    struct pace_sample samples[64];
    uint32_t count = pace_samples_take(samples, 64);
    for (uint32_t i = 0; i < count; i++) {
        /* Of a launch of another size: what it draws is that of them all. */
        struct place_power power = {.items = 1, .has_device = true};
        memcpy(power.id, samples[i].id, sizeof(power.id));
        power.device = *engine_rig_key(rig, "one");
        power.power_mw = home_mw;
        place_learn_power(&power);
        power.device = *engine_rig_key(rig, "two");
        power.power_mw = helper_mw;
        place_learn_power(&power);
    }
}

/* A program of "blend" with the first of the model's buffers. */
static cl_kernel scene_open(struct engine_rig *rig, const char *config,
                            cl_command_queue_properties properties,
                            struct engine_program *ret_program, cl_mem *ret_buffers, unsigned count)
{
    setenv(START_ENV_SLICE, "4", 1);
    engine_rig_open(rig, config);
    engine_program_open(rig, properties, placement_source, ret_program);
    for (unsigned i = 0; i < count; i++)
        ret_buffers[i] =
            engine_buffer(ret_program->context, CL_MEM_COPY_HOST_PTR, sizeof(model[i]), model[i]);
    return engine_kernel(ret_program->program, "blend");
}

static void check_buffers(cl_command_queue queue, const cl_mem *buffers, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        OK(clEnqueueReadBuffer(queue, buffers[i], CL_TRUE, 0, sizeof(words), words, 0, NULL, NULL));
        cr_assert_eq(memcmp(words, model[i], sizeof(words)), 0, "buffer %u", i);
    }
}

/* Long launches, so that the time of a busy machine to wake a thread is little. */
static void run_two_chains(bool two_queues, cl_command_queue_properties properties)
{
    static struct engine_rig rig;
    struct engine_program program;
    cl_mem buffers[BUFFERS];
    cl_command_queue queues[2];
    cl_event last[2];
    cl_int error;
    const size_t global = ITEMS, local = 16;
    place_configure(SCHEDULE_TIME, true);
    cl_kernel kernel =
        scene_open(&rig, PAIR("100000", "100000"), properties, &program, buffers, BUFFERS);
    queues[0] = queues[1] = program.queue;
    if (two_queues)
        queues[1] = clCreateCommandQueue(program.context, rig.device, properties, &error);
    OK(elastic_set(engine_rig_key(&rig, "two"), 1));
    for (unsigned round = 0; round < 5 || (round < 100 && launches(&rig, "two") <= 20); round++) {
        teach_times(&rig, &kernel, 1, 80, 80);
        for (unsigned n = 0; n < 8; n++) {
            unsigned chain = n < 4 ? 0 : 1, from = 3 * chain; /* one chain after the other */
            cl_event event;
            ARGS(kernel, buffers[from], buffers[from + 1], buffers[from + 2], n);
            OK(clEnqueueNDRangeKernel(queues[chain], kernel, 1, NULL, &global, &local, n % 4 != 0,
                                      n % 4 != 0 ? &last[chain] : NULL, &event));
            if (n % 4 != 0)
                OK(clReleaseEvent(last[chain]));
            last[chain] = event;
            mix(from, from + 1, from + 2, n);
        }
        for (unsigned i = 0; i < 2; i++) {
            OK(clFinish(queues[i]));
            OK(clReleaseEvent(last[i]));
        }
    }
    check_buffers(program.queue, buffers, BUFFERS);
    cr_assert_gt(launches(&rig, "two"), 20);
    OK(elastic_set(NULL, 0));
}

TestCall(placement, independent_chains_run_on_two_devices, run_two_chains(false, 0),
         .timeout = 120);
TestCall(placement, chains_of_two_queues_run_on_two_devices, run_two_chains(true, 0),
         .timeout = 120);
TestCall(placement, chains_of_a_queue_that_is_out_of_order_run_on_two_devices,
         run_two_chains(false, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE), .timeout = 120);

/* A busy machine makes the preparation of devices long. */
enum { CHAIN = 400, LONG_CHAIN = 40 * CHAIN, TRIALS = 8 };

/* Launch @n of a chain: each needs what the one before it wrote. */
static void give_link(const struct engine_program *program, cl_kernel kernel, const cl_mem *buffers,
                      cl_uint n)
{
    const size_t global = ITEMS, local = 16;
    for (unsigned i = 0; i < 3; i++)
        OK(clSetKernelArg(kernel, i, sizeof(cl_mem), &buffers[(n + i) % 3]));
    OK(clSetKernelArg(kernel, 3, sizeof(n), &n));
    OK(clEnqueueNDRangeKernel(program->queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL));
    mix(n % 3, (n + 1) % 3, (n + 2) % 3, n);
}

struct chain {
    struct engine_rig rig;
    struct engine_program program;
    cl_kernel kernel;
    cl_mem buffers[3];
    uint64_t home_mw, helper_mw; /* what launches draw; 0: the engine is not told */
    bool leaves;                 /* the engine is told what launches take */
    cl_uint given;
};

static void chain_goes_on(struct chain *c)
{
    if (c->leaves)
        teach_times(&c->rig, &c->kernel, 1, 2, 2);
    for (cl_uint end = c->given + 20; c->given < end; c->given++)
        give_link(&c->program, c->kernel, c->buffers, c->given);
    OK(clFinish(c->program.queue));
    if (c->home_mw != 0)
        tell_power(&c->rig, c->home_mw, c->helper_mw);
}

/* Power decides, once it is known on both devices, and not time: some launches in a row are helped,
 * and none of them for time. */
static void check_power_decides(struct chain *c)
{
    struct place_status before, after;
    bool decides = false;
    for (cl_uint end = c->given + LONG_CHAIN; c->given < end && !decides;) {
        place_read(&before);
        chain_goes_on(c);
        place_read(&after);
        decides = after.helped > before.helped && after.by_time == before.by_time;
    }
    cr_assert(decides);
}

static void chain_open(struct chain *c, enum schedule_objective objective, const char *config)
{
    place_configure(objective, true);
    c->kernel = scene_open(&c->rig, config, 0, &c->program, c->buffers, 3);
}

/* Runs a chain. Returns how many ran on the second device, which
 * is as fast as the first: of CHAIN launches, or more if that is less than @least. */
static uint64_t run_chain(enum schedule_objective objective, uint64_t home_mw, uint64_t helper_mw,
                          uint64_t least)
{
    static struct chain chain;
    struct chain *c = &chain;
    *c = (struct chain){.home_mw = home_mw, .helper_mw = helper_mw, .leaves = least != 0};
    chain_open(c, objective, CONFIG);
    OK(elastic_set(engine_rig_key(&c->rig, "two"), 1));
    while (c->given < CHAIN || (c->given < LONG_CHAIN && launches(&c->rig, "two") < least))
        chain_goes_on(c);
    if (least != 0)
        check_power_decides(c);
    check_buffers(c->program.queue, c->buffers, 3);
    OK(elastic_set(NULL, 0));
    return launches(&c->rig, "two");
}

/* The copies of a launch take longer than it does at home, but they draw less: it is tried on the
 * helper, where it was never measured. */
Test(placement, for_energy_a_launch_is_tried_whose_copies_take_longer, .timeout = 120)
{
    static struct chain chain;
    struct chain *c = &chain;
    const struct cost_stage slow[PLACE_COPIES] = {
        {COST_LINK, 30e-6, 6e9}, {COST_LINK, 30e-6, 6e9}, {COST_LINK, 30e-6, 6e9}};
    c->home_mw = 100000;
    c->helper_mw = 20000;
    chain_open(c, SCHEDULE_ENERGY, CONFIG);
    place_set_idle(1000);
    for (uint32_t i = 0; i < c->rig.device_count; i++)
        if (device_key_equal(&c->rig.devices[i]->key, engine_rig_key(&c->rig, "two")))
            place_open(&c->rig.devices[i], &slow, 1);
    place_close(0);
    OK(elastic_set(engine_rig_key(&c->rig, "two"), 1));
    while (c->given < LONG_CHAIN && launches(&c->rig, "two") == 0) {
        for (unsigned n = 0; n < 60; n++)
            place_copied(0, n % PLACE_COPIES, 4096, 3 * NS_PER_MS);
        chain_goes_on(c);
    }
    cr_assert_gt(launches(&c->rig, "two"), 0);
    OK(elastic_set(NULL, 0));
}

/* But for trials, a second device of the same speed gains nothing. */
/* What it takes there is known without a trial, where the other device is the same model. */
Test(placement, a_device_of_the_same_model_is_not_tried, .timeout = 120)
{
    static struct chain chain;
    struct chain *c = &chain;
    bool chose = false;
    chain_open(c, SCHEDULE_TIME,
               "[one] items_per_s=400000 name=alike type=cpu base=1 own_memory=yes "
               "[two] items_per_s=400000 name=alike type=cpu base=1 own_memory=yes");
    OK(elastic_set(&c->rig.devices[1]->key, 1));
    for (cl_uint after = 0; after < 10; after += chose) {
        chose = chose || place_begins();
        chain_goes_on(c);
    }
    cr_assert_eq(launches(&c->rig, "two"), 0);
    OK(elastic_set(NULL, 0));
}

/* A launch of 5 ms, with copies of 16 MiB that the links' figures say take no time: it is tried. */
Test(placement, what_links_are_known_to_take_lets_a_launch_be_tried, .timeout = 120)
{
    static struct chain chain;
    struct chain *c = &chain;
    const struct cost_stage none = {COST_LINK, 2e-6, 1e12};
    const struct link_figures figures = {none, none, none, none};
    const size_t global = 1024, local = 16;
    chain_open(c, SCHEDULE_TIME, PAIR("200000", "200000"));
    for (uint32_t i = 0; i < c->rig.device_count; i++)
        c->rig.devices[i]->link = figures;
    cl_mem buffers[3];
    for (unsigned i = 0; i < 3; i++)
        buffers[i] = engine_buffer(c->program.context, 0, 16 << 20, NULL);
    OK(elastic_set(engine_rig_key(&c->rig, "two"), 1));
    for (cl_uint n = 0; n < 2000 && launches(&c->rig, "two") == 0; n++) {
        ARGS(c->kernel, buffers[0], buffers[1], buffers[2], n);
        OK(clEnqueueNDRangeKernel(c->program.queue, c->kernel, 1, NULL, &global, &local, 0, NULL,
                                  NULL));
        OK(clFinish(c->program.queue));
    }
    cr_assert_gt(launches(&c->rig, "two"), 0);
    OK(elastic_set(NULL, 0));
}

TestCall(placement, a_chain_is_not_sent_to_and_fro,
         cr_assert_leq(run_chain(SCHEDULE_TIME, 0, 0, 0), TRIALS), .timeout = 120);
TestCall(placement, for_energy_a_chain_runs_where_it_takes_less,
         cr_assert_geq(run_chain(SCHEDULE_ENERGY, 100000, 20000, CHAIN), CHAIN), .timeout = 120);
TestCall(placement, for_energy_a_chain_stays_where_it_takes_less,
         cr_assert_leq(run_chain(SCHEDULE_ENERGY, 20000, 100000, 0), TRIALS), .timeout = 120);

/* The helper takes less energy, but copies make each launch end later there. */
TestCall(placement, at_no_loss_nothing_goes_where_it_ends_later,
         cr_assert_leq(run_chain(SCHEDULE_ENERGY_AT_NO_LOSS, 100000, 20000, 0), TRIALS),
         .timeout = 120);

Test(placement, where_no_energy_is_known_time_decides, .timeout = 120)
{
    struct place_status status;
    cr_assert_leq(run_chain(SCHEDULE_ENERGY, 0, 0, 0), TRIALS);
    place_read(&status);
    cr_assert_gt(status.by_time, 0);
}

static void give_chain(struct engine_program *program, cl_kernel kernel, const cl_mem *buffers,
                       cl_uint count)
{
    for (cl_uint n = 0; n < count; n++)
        give_link(program, kernel, buffers, n);
    OK(clFlush(program->queue));
}

/* A chain on a device that is four times as fast as the other one: after a while nothing is chosen
 * any more, and launches are given as without an objective. */
Test(placement, what_gains_nothing_ends, .timeout = 120)
{
    static struct engine_rig rig;
    struct engine_program program;
    struct place_status status;
    cl_mem buffers[3];
    place_configure(SCHEDULE_TIME, true);
    cl_kernel kernel = scene_open(&rig, PAIR("8000000", "2000000"), 0, &program, buffers, 3);
    OK(elastic_set(engine_rig_key(&rig, "two"), 1));
    bool chose = false, rests = false;
    for (unsigned round = 0; round < 1000 && !rests; round++) {
        chose = chose || place_begins();
        give_chain(&program, kernel, buffers, 50);
        OK(clFinish(program.queue));
        place_read(&status);
        rests = chose && !place_begins() && strstr(status.stayed, "not sooner");
    }
    cr_assert(chose);
    cr_assert(rests, "%s", status.stayed);
    check_buffers(program.queue, buffers, 3);
    OK(elastic_set(NULL, 0));
}

/* Small copies are slow because each takes long to start. That keeps no launch from a faster device
 * that needs larger copies. */
Test(placement, slow_small_copies_keep_no_launch_at_home, .timeout = 120)
{
    static struct engine_rig rig;
    struct engine_program program;
    cl_mem buffers[3];
    place_configure(SCHEDULE_TIME, true);
    cl_kernel kernel = scene_open(&rig, PAIR("80000", "800000"), 0, &program, buffers, 3);
    OK(elastic_set(engine_rig_key(&rig, "two"), 1));
    for (unsigned round = 0; round < 100 && launches(&rig, "two") == 0; round++) {
        if (place_begins()) {
            teach_times(&rig, &kernel, 1, 100, 10);
            for (unsigned n = 0; n < 60; n++)
                place_copied(0, n % PLACE_COPIES, 1024, 2 * NS_PER_MS);
        }
        give_chain(&program, kernel, buffers, 3);
        OK(clFinish(program.queue));
    }
    cr_assert_gt(launches(&rig, "two"), 0);
    check_buffers(program.queue, buffers, 3);
    OK(elastic_set(NULL, 0));
}

/* A launch on the helper takes 64 s, at home 20 ms: it is given back and runs at home, and neither
 * the program nor a move waits for the helper. A move to the helper's device has the right bytes,
 * although its driver is still in the middle of the launch. */
Test(placement, nobody_waits_for_a_slow_helper, .timeout = 120)
{
    static struct engine_rig rig;
    struct engine_program program;
    struct move_report report;
    cl_mem buffers[3];
    place_configure(SCHEDULE_TIME, true);
    cl_kernel kernel =
        scene_open(&rig,
                   "[one] items_per_s=400000 name=one type=cpu base=1 own_memory=yes "
                   "[two] items_per_s=128 paced=blend name=two type=cpu base=1 own_memory=yes "
                   "[three] items_per_s=400000 name=three type=cpu base=1 own_memory=yes",
                   0, &program, buffers, 3);
    OK(elastic_set(engine_rig_key(&rig, "two"), 1));
    uint64_t begun = 0;
    for (unsigned round = 0; round < 100 && launches(&rig, "two") == 0; round++) {
        begun = clock_now_ns();
        give_chain(&program, kernel, buffers, 5);
        OK(clFinish(program.queue));
    }
    cr_assert_eq(launches(&rig, "two"), 1);
    /* The launch was given after `begun`. */
    cr_expect_lt(clock_now_ns() - begun, 64 * NS_PER_S, "the program waited for the helper");
    cr_expect_eq(engine_rig_move(&rig, "three", &report), MOVE_DONE, "%s", report.reason);
    cr_expect_lt(clock_now_ns() - begun, 64 * NS_PER_S, "a move waited for the helper");
    give_chain(&program, kernel, buffers, 5);
    OK(clFinish(program.queue)); /* what is left would run on "two" */
    cr_expect_eq(engine_rig_move(&rig, "two", &report), MOVE_DONE, "%s", report.reason);
    check_buffers(program.queue, buffers, 3);
    cr_expect_eq(engine_rig_move(&rig, "one", &report), MOVE_DONE, "%s", report.reason);
    OK(elastic_set(NULL, 0));
}

/* While a helper has a launch, and others are deferred behind it: what is on hold is the parent's.
 */
Test(placement, in_the_child_of_a_fork_nothing_waits_for_a_helper, .timeout = 120)
{
    static struct engine_rig rig;
    struct engine_program program;
    cl_mem buffers[3];
    int status = 0;
    place_configure(SCHEDULE_ENERGY, true);
    cl_kernel kernel = scene_open(&rig, PAIR("400000", "400000"), 0, &program, buffers, 3);
    OK(elastic_set(engine_rig_key(&rig, "two"), 1));
    bool helped = false;
    for (unsigned round = 0; round < 100 && !helped; round++) {
        uint64_t before = launches(&rig, "two");
        give_chain(&program, kernel, buffers, 20);
        for (unsigned ms = 0; ms < 200 && launches(&rig, "two") == before; ms++)
            engine_rig_sleep(1);
        helped = launches(&rig, "two") != before;
        if (!helped)
            OK(clFinish(program.queue));
        tell_power(&rig, 100000, 20000);
    }
    cr_assert(helped);
    pid_t child = fork();
    if (child == 0) {
        cl_uint last = 20;
        alarm(20);
        give_link(&program, kernel, buffers, last);
        cl_int error = clReleaseMemObject(buffers[0]);
        error = error == CL_SUCCESS ? clReleaseCommandQueue(program.queue) : error;
        _exit(error == CL_SUCCESS ? 9 : 1);
    }
    cr_assert(child > 0 && waitpid(child, &status, 0) == child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 9, "status %#x", (unsigned)status);
    OK(clFinish(program.queue));
    check_buffers(program.queue, buffers, 3);
    OK(elastic_set(NULL, 0));
}

Test(placement, without_an_objective_every_launch_stays, .timeout = 120)
{
    static struct engine_rig rig;
    struct engine_program program;
    cl_mem buffers[BUFFERS];
    const size_t global = ITEMS, local = 16;
    cl_kernel kernel = scene_open(&rig, PAIR("4000000", "4000000"), 0, &program, buffers, BUFFERS);
    OK(elastic_set(engine_rig_key(&rig, "two"), 1));
    for (cl_uint n = 0; n < 200; n++) {
        for (unsigned i = 0; i < 3; i++)
            OK(clSetKernelArg(kernel, i, sizeof(cl_mem), &buffers[(n % 2) * 3 + i]));
        OK(clSetKernelArg(kernel, 3, sizeof(n), &n));
        OK(clEnqueueNDRangeKernel(program.queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL));
    }
    OK(clFinish(program.queue));
    cr_assert_eq(launches(&rig, "two"), 0);
    OK(elastic_set(NULL, 0));
}
