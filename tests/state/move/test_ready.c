#include <errno.h>

#include "state/base/threads/work.h"
#include "state/object/lost.h"
#include "state/object/pin.h"
#include "tests/state/move/test_moves_common.h"
#include "tests/support/repeat.h"

/* Devices that a program is made ready for: what is made there ahead, who takes it over, and when
 * it goes. */

TestSuite(ready, .timeout = 120);

#define THREE             "[one] name=one [two] name=two [three] name=three"
#define BUILDS(rig, name) emu_shared_calls((rig)->emu, name, "clBuildProgram")

static enum move_result prewarm(const struct engine_rig *rig, const char *name,
                                struct move_report *ret_report)
{
    struct move_request request = {.target = engine_rig_key(rig, name), .prewarm = true};
    move_run(&request, ret_report);
    return ret_report->result;
}

static void prewarms(const struct engine_rig *rig, const char *name)
{
    struct move_report report;
    cr_assert_eq(prewarm(rig, name, &report), MOVE_DONE, "%s: %s", move_result_name(report.result),
                 report.reason);
    cr_expect_eq(report.downtime_ns, 0);
    cr_expect_eq(report.bytes, 0);
}

/* What it is ready for: names in one line, and how far behind with the first. */
static const char *ready_for(uint32_t *ret_behind)
{
    static char text[256];
    struct ready_status ready[STATUS_READY_MAX];
    uint32_t count = status_ready(ready);
    text[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        strcat(text, i ? " " : "");
        strcat(text, ready[i].device.device);
    }
    if (ret_behind)
        *ret_behind = count ? ready[0].behind : 0;
    return text;
}

static void expect_made(const struct engine_rig *rig, const char *name, int64_t contexts,
                        int64_t programs, int64_t kernels)
{
    cr_expect_eq(emu_shared_live(rig->emu, name, EMU_CONTEXT), contexts, "alive on %s: %s", name,
                 engine_rig_alive(rig, name));
    cr_expect_eq(emu_shared_live(rig->emu, name, EMU_PROGRAM), programs, "alive on %s: %s", name,
                 engine_rig_alive(rig, name));
    cr_expect_eq(emu_shared_live(rig->emu, name, EMU_KERNEL), kernels, "alive on %s: %s", name,
                 engine_rig_alive(rig, name));
}

/* A program with a kernel and bytes that it knows. */
struct worker {
    struct engine_rig rig;
    struct engine_program p;
    cl_kernel kernel;
    cl_mem buffer;
    cl_uint sum;
};

static void worker_open(struct worker *w, const char *config)
{
    cl_uint zero = 0;
    engine_rig_open(&w->rig, config);
    engine_program_open(&w->rig, 0, SOURCE, &w->p);
    w->kernel = engine_kernel(w->p.program, "add");
    w->buffer = engine_buffer(w->p.context, CL_MEM_READ_WRITE, SIZE, NULL);
    OK(clEnqueueFillBuffer(w->p.queue, w->buffer, &zero, sizeof(zero), 0, SIZE, 0, NULL, NULL));
    w->sum = 0;
}

static void worker_step(struct worker *w, cl_uint more)
{
    static cl_uint words[WORDS];
    ARGS(w->kernel, w->buffer, more);
    launch(w->p.queue, w->kernel, WORDS, 0, NULL);
    w->sum += more;
    OK(clEnqueueReadBuffer(w->p.queue, w->buffer, CL_TRUE, 0, SIZE, words, 0, NULL, NULL));
    for (int i = 0; i < WORDS; i++)
        cr_assert_eq(words[i], w->sum, "word %d", i);
}

static void worker_close(struct worker *w)
{
    RELEASE(w->buffer, w->kernel);
    engine_program_close(&w->p);
}

Test(ready, a_move_takes_over_what_was_made_ahead)
{
    static struct worker w;
    worker_open(&w, THREE);
    worker_step(&w, 3);
    prewarms(&w.rig, "two");
    cr_expect_str_eq(place_of_vdev(), "one");
    cr_expect_str_eq(ready_for(NULL), "two");
    expect_made(&w.rig, "two", 1, 1, 1);
    cr_expect_eq(emu_shared_live(w.rig.emu, "two", EMU_MEM), 0, "no bytes are there");
    worker_step(&w, 5);
    uint64_t contexts = emu_shared_calls(w.rig.emu, "two", "clCreateContext");
    uint64_t builds = BUILDS(&w.rig, "two");
    engine_rig_moves(&w.rig, "two");
    cr_expect_eq(emu_shared_calls(w.rig.emu, "two", "clCreateContext"), contexts);
    cr_expect_eq(BUILDS(&w.rig, "two"), builds);
    cr_expect_str_eq(ready_for(NULL), "");
    worker_step(&w, 7);
    cr_assert(engine_rig_empties(&w.rig, "one"), "%s", engine_rig_alive(&w.rig, "one"));
    engine_rig_moves(&w.rig, "one");
    worker_step(&w, 11);
    worker_close(&w);
    cr_assert(engine_rig_empties(&w.rig, "two"), "%s", engine_rig_alive(&w.rig, "two"));
}

Test(ready, what_came_since_is_made_by_the_next_pass_or_by_the_move)
{
    static struct worker w;
    uint32_t behind;
    worker_open(&w, THREE);
    prewarms(&w.rig, "two");
    (void)ready_for(&behind);
    cr_expect_eq(behind, 0);
    cl_program more = BUILT(w.p.context, SOURCE, "");
    cl_kernel share = engine_kernel(more, "share");
    cl_context other = MADE(clCreateContext, NULL, 1, &w.rig.device, NULL, NULL);
    cr_expect_str_eq(ready_for(&behind), "two");
    cr_expect_eq(behind, 2, "a program and a context: %u", behind);
    prewarms(&w.rig, "two");
    (void)ready_for(&behind);
    cr_expect_eq(behind, 0);
    expect_made(&w.rig, "two", 2, 2, 2);
    /* Built anew: what is there is of the build before. */
    OK(clReleaseKernel(share));
    OK(clBuildProgram(more, 0, NULL, "-DAGAIN", NULL, NULL));
    (void)ready_for(&behind);
    cr_expect_eq(behind, 1);
    uint64_t builds = BUILDS(&w.rig, "two");
    engine_rig_moves(&w.rig, "two");
    cr_expect_eq(BUILDS(&w.rig, "two"), builds + 1);
    share = engine_kernel(more, "share");
    worker_step(&w, 2);
    RELEASE(share, more, other);
    worker_close(&w);
    cr_assert(engine_rig_empties(&w.rig, "two"), "%s", engine_rig_alive(&w.rig, "two"));
    cr_assert(engine_rig_empties(&w.rig, "one"), "%s", engine_rig_alive(&w.rig, "one"));
}

Test(ready, a_move_elsewhere_and_a_suspend_let_go_of_it)
{
    static struct worker w;
    worker_open(&w, THREE);
    prewarms(&w.rig, "two");
    engine_rig_moves(&w.rig, "three");
    cr_expect_str_eq(ready_for(NULL), "");
    cr_assert(engine_rig_empties(&w.rig, "two"), "%s", engine_rig_alive(&w.rig, "two"));
    prewarms(&w.rig, "two");
    engine_rig_moves(&w.rig, NULL);
    cr_assert(engine_rig_empties(&w.rig, "two"), "%s", engine_rig_alive(&w.rig, "two"));
    cr_assert(engine_rig_empties(&w.rig, "three"), "%s", engine_rig_alive(&w.rig, "three"));
    /* One on no device: what resumes it has it easier. */
    prewarms(&w.rig, "two");
    cr_expect_str_eq(place_of_vdev(), "");
    uint64_t builds = BUILDS(&w.rig, "two");
    engine_rig_moves(&w.rig, "two");
    cr_expect_eq(BUILDS(&w.rig, "two"), builds);
    worker_step(&w, 4);
    worker_close(&w);
    cr_assert(engine_rig_empties(&w.rig, "two"), "%s", engine_rig_alive(&w.rig, "two"));
}

Test(ready, it_is_let_go_of_when_asked_and_goes_with_its_context)
{
    static struct worker w;
    worker_open(&w, THREE);
    cr_expect_eq(move_cool(engine_rig_key(&w.rig, "two"), 0), -ENOENT);
    prewarms(&w.rig, "two");
    prewarms(&w.rig, "three");
    cr_expect_str_eq(ready_for(NULL), "two three");
    cr_expect_eq(move_cool(engine_rig_key(&w.rig, "two"), 0), 0);
    cr_expect_str_eq(ready_for(NULL), "three");
    cr_assert(engine_rig_empties(&w.rig, "two"), "%s", engine_rig_alive(&w.rig, "two"));
    prewarms(&w.rig, "two");
    cr_expect_eq(move_cool(NULL, 0), 0);
    cr_expect_str_eq(ready_for(NULL), "");
    cr_assert(engine_rig_empties(&w.rig, "three"), "%s", engine_rig_alive(&w.rig, "three"));
    prewarms(&w.rig, "three");
    worker_step(&w, 9);
    worker_close(&w);
    cr_expect_str_eq(ready_for(NULL), "");
    cr_assert(engine_rig_empties(&w.rig, "three"), "%s", engine_rig_alive(&w.rig, "three"));
    cr_assert(engine_rig_empties(&w.rig, "one"), "%s", engine_rig_alive(&w.rig, "one"));
}

Test(ready, what_lost_its_device_is_not_taken_over)
{
    static struct worker w;
    struct move_report report;
    lost_patience_ns = 40000000;
    lost_answer_ns = 500000000;
    worker_open(&w, "[one] name=one [two] name=two own_memory=yes");
    worker_step(&w, 1);
    prewarms(&w.rig, "two");
    cr_assert_eq(emu_shared_vanish(w.rig.emu, "two"), 0);
    cr_expect_eq(engine_rig_move(&w.rig, "two", &report), MOVE_ROLLED_BACK);
    cr_expect_not_null(strstr(report.reason, "no context"), "a new one was tried: %s",
                       report.reason);
    cr_expect_str_eq(ready_for(NULL), "");
    cr_expect_str_eq(place_of_vdev(), "one");
    worker_step(&w, 6);
    worker_close(&w);
    cr_assert(engine_rig_empties(&w.rig, "one"), "%s", engine_rig_alive(&w.rig, "one"));
}

Test(ready, a_failure_at_any_call_leaves_nothing_and_the_program_where_it_was)
{
    static struct worker w;
    struct move_report report;
    worker_open(&w, THREE);
    unsigned failures = 0;
    prewarms(&w.rig, "two"); /* what a device does with host pointers is tried out once */
    cr_assert_eq(move_cool(NULL, 0), 0);
    for (unsigned call = 1;; call++) {
        cr_assert_lt(call, 200);
        cr_assert_eq(emu_shared_arm(w.rig.emu, "two", call, NULL, CL_OUT_OF_RESOURCES), 0);
        enum move_result result = prewarm(&w.rig, "two", &report);
        cr_assert_eq(emu_shared_disarm(w.rig.emu, "two"), 0);
        if (result == MOVE_DONE && strcmp(ready_for(NULL), "two") == 0 && failures > 3)
            break;
        if (result != MOVE_DONE) {
            failures++;
            cr_expect_str_not_empty(report.reason);
            cr_expect_str_eq(ready_for(NULL), "");
        }
        worker_step(&w, call);
        (void)!move_cool(NULL, 0);
        cr_assert(engine_rig_empties(&w.rig, "two"), "call %u: %s", call,
                  engine_rig_alive(&w.rig, "two"));
    }
    engine_rig_moves(&w.rig, "two");
    worker_step(&w, 1);
    worker_close(&w);
}

Test(ready, a_pinned_program_a_deadline_and_a_cancellation_are_heeded)
{
    static struct worker w;
    static atomic_bool cancel = true;
    struct move_report report;
    worker_open(&w, THREE);
    struct move_request request = {
        .target = engine_rig_key(&w.rig, "two"), .prewarm = true, .deadline_ns = 1};
    move_run(&request, &report);
    cr_expect_eq(report.result, MOVE_EXPIRED, "%s", move_result_name(report.result));
    request.deadline_ns = 0;
    request.cancel = &cancel;
    move_run(&request, &report);
    cr_expect_eq(report.result, MOVE_CANCELED, "%s", move_result_name(report.result));
    cr_expect_str_eq(ready_for(NULL), "");
    cr_expect_eq(prewarm(&w.rig, "one", &report), MOVE_REFUSED);
    cr_expect_not_null(strstr(report.reason, "already"), "%s", report.reason);
    gate_enter();
    pin_take(&the_vdevs[0]->pins, PIN_SUB_DEVICES);
    gate_leave();
    cr_expect_eq(prewarm(&w.rig, "two", &report), MOVE_REFUSED);
    cr_expect_not_null(strstr(report.reason, "pinned"), "%s", report.reason);
    pin_drop(&the_vdevs[0]->pins, PIN_SUB_DEVICES);
    cr_assert(engine_rig_empties(&w.rig, "two"), "%s", engine_rig_alive(&w.rig, "two"));
    worker_close(&w);
}

/* A mover does not wait for what may come. */

#define PROGRAMS 20

static struct {
    struct worker w;
    cl_program programs[PROGRAMS];
    atomic_bool builds;
    struct move_report report;
} long_one;

static void note(void *data, const struct move_progress *progress)
{
    (void)data;
    if (progress->builds != 0)
        atomic_store(&long_one.builds, true);
}

static void *prewarm_long(void *data)
{
    struct move_request request = {
        .target = engine_rig_key(&long_one.w.rig, "two"), .prewarm = true, .progress = note};
    (void)data;
    move_run(&request, &long_one.report);
    return NULL;
}

static void programs_open(const char *config)
{
    worker_open(&long_one.w, config);
    for (int i = 0; i < PROGRAMS; i++)
        long_one.programs[i] = BUILT(long_one.w.p.context, SOURCE, "");
}

static void long_begin(pthread_t *ret_thread)
{
    programs_open("[one] name=one [two] name=two build_ms=60 [three] name=three");
    cr_assert_eq(pthread_create(ret_thread, NULL, prewarm_long, NULL), 0);
    while (!atomic_load(&long_one.builds))
        engine_rig_sleep(1);
}

Test(ready, a_move_goes_first_and_then_what_is_left_is_made)
{
    pthread_t thread;
    long_begin(&thread);
    engine_rig_moves(&long_one.w.rig, "three");
    cr_expect_leq(BUILDS(&long_one.w.rig, "two"), PROGRAMS / 2, "the move waited for builds");
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_expect_eq(long_one.report.result, MOVE_DONE, "%s", long_one.report.reason);
    cr_expect_str_eq(ready_for(NULL), "two");
    expect_made(&long_one.w.rig, "two", 1, PROGRAMS + 1, 1);
    worker_step(&long_one.w, 8);
    for (int i = 0; i < PROGRAMS; i++)
        OK(clReleaseProgram(long_one.programs[i]));
    worker_close(&long_one.w);
    cr_assert(engine_rig_empties(&long_one.w.rig, "two"), "%s",
              engine_rig_alive(&long_one.w.rig, "two"));
}

Test(ready, it_ends_with_the_process)
{
    pthread_t thread;
    long_begin(&thread);
    work_process_ends();
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_expect_eq(long_one.report.result, MOVE_ENDED, "%s", long_one.report.reason);
}

/* Several devices at once: each builds on a thread of its own. */

#define AT_ONCE_MS 20000

static struct {
    struct maker {
        const char *name;
        pthread_t thread;
        atomic_bool builds;
        struct move_report report;
    } makers[2];
    atomic_bool alone; /* one waited for the other in vain */
} at_once;

/* Goes on building once all have begun to. */
static void meet(void *data, const struct move_progress *progress)
{
    struct maker *maker = data;
    if (progress->builds == 0)
        return;
    atomic_store(&maker->builds, true);
    for (unsigned i = 0; i < ARRAY_SIZE(at_once.makers); i++)
        for (unsigned ms = 0;
             !atomic_load(&at_once.makers[i].builds) && !atomic_load(&at_once.alone); ms++) {
            engine_rig_sleep(1);
            atomic_store(&at_once.alone, ms == AT_ONCE_MS);
        }
}

static void *prewarm_one(void *data)
{
    struct maker *maker = data;
    struct move_request request = {
        .target = engine_rig_key(&long_one.w.rig, maker->name),
        .prewarm = true,
        .progress = at_once.makers[0].name == at_once.makers[1].name ? NULL : meet,
        .data = maker};
    move_run(&request, &maker->report);
    return NULL;
}

static void makers_begin(const char *first, const char *second)
{
    at_once.makers[0].name = first;
    at_once.makers[1].name = second;
    for (unsigned i = 0; i < ARRAY_SIZE(at_once.makers); i++)
        cr_assert_eq(
            pthread_create(&at_once.makers[i].thread, NULL, prewarm_one, &at_once.makers[i]), 0);
}

static void makers_end(void)
{
    for (unsigned i = 0; i < ARRAY_SIZE(at_once.makers); i++)
        cr_assert_eq(pthread_join(at_once.makers[i].thread, NULL), 0);
}

static void programs_close(void)
{
    for (int i = 0; i < PROGRAMS; i++)
        OK(clReleaseProgram(long_one.programs[i]));
    worker_close(&long_one.w);
    cr_expect_str_eq(ready_for(NULL), "");
    cr_assert(engine_rig_empties(&long_one.w.rig, "two"), "%s",
              engine_rig_alive(&long_one.w.rig, "two"));
    cr_assert(engine_rig_empties(&long_one.w.rig, "three"), "%s",
              engine_rig_alive(&long_one.w.rig, "three"));
}

Test(ready, several_devices_are_built_for_at_once)
{
    programs_open(THREE);
    makers_begin("two", "three");
    makers_end();
    cr_expect_not(atomic_load(&at_once.alone), "no build began while another was under way");
    for (unsigned i = 0; i < ARRAY_SIZE(at_once.makers); i++) {
        const struct maker *maker = &at_once.makers[i];
        cr_expect_eq(maker->report.result, MOVE_DONE, "%s", maker->report.reason);
        expect_made(&long_one.w.rig, maker->name, 1, PROGRAMS + 1, 1);
    }
    uint64_t builds = BUILDS(&long_one.w.rig, "three");
    engine_rig_moves(&long_one.w.rig, "three");
    cr_expect_eq(BUILDS(&long_one.w.rig, "three"), builds);
    worker_step(&long_one.w, 3);
    engine_rig_moves(&long_one.w.rig, "one");
    programs_close();
}

Test(ready, one_that_cannot_build_keeps_none_of_the_others)
{
    programs_open("[one] name=one [two] name=two build_fails=all [three] name=three");
    makers_begin("two", "three");
    makers_end();
    cr_expect_eq(at_once.makers[0].report.result, MOVE_ROLLED_BACK);
    cr_expect_str_not_empty(at_once.makers[0].report.reason);
    cr_expect_eq(at_once.makers[1].report.result, MOVE_DONE, "%s", at_once.makers[1].report.reason);
    cr_expect_str_eq(ready_for(NULL), "three");
    expect_made(&long_one.w.rig, "three", 1, PROGRAMS + 1, 1);
    cr_assert(engine_rig_empties(&long_one.w.rig, "two"), "%s",
              engine_rig_alive(&long_one.w.rig, "two"));
    worker_step(&long_one.w, 3);
    programs_close();
}

Test(ready, two_requests_for_one_device_are_served_one_after_another)
{
    programs_open("[one] name=one [two] name=two build_ms=20 [three] name=three");
    makers_begin("two", "two");
    makers_end();
    for (unsigned i = 0; i < ARRAY_SIZE(at_once.makers); i++)
        cr_expect_eq(at_once.makers[i].report.result, MOVE_DONE, "%s",
                     at_once.makers[i].report.reason);
    cr_expect_eq(BUILDS(&long_one.w.rig, "two"), PROGRAMS + 1);
    expect_made(&long_one.w.rig, "two", 1, PROGRAMS + 1, 1);
    programs_close();
}

Test(ready, a_move_goes_before_all_that_is_built_at_once)
{
    programs_open("[one] name=one [two] name=two build_ms=60 [three] name=three build_ms=60 "
                  "[four] name=four");
    makers_begin("two", "three");
    for (unsigned i = 0; i < ARRAY_SIZE(at_once.makers); i++)
        while (!atomic_load(&at_once.makers[i].builds))
            engine_rig_sleep(1);
    engine_rig_moves(&long_one.w.rig, "four");
    cr_expect_leq(BUILDS(&long_one.w.rig, "two"), PROGRAMS / 2, "the move waited for builds");
    cr_expect_leq(BUILDS(&long_one.w.rig, "three"), PROGRAMS / 2, "the move waited for builds");
    makers_end();
    for (unsigned i = 0; i < ARRAY_SIZE(at_once.makers); i++) {
        cr_expect_eq(at_once.makers[i].report.result, MOVE_DONE, "%s",
                     at_once.makers[i].report.reason);
        expect_made(&long_one.w.rig, at_once.makers[i].name, 1, PROGRAMS + 1, 1);
    }
    worker_step(&long_one.w, 8);
    programs_close();
}

Test(ready, a_move_to_a_device_that_is_built_for_goes_on_with_what_is_there)
{
    programs_open("[one] name=one [two] name=two build_ms=60 [three] name=three build_ms=60");
    makers_begin("two", "three");
    for (unsigned i = 0; i < ARRAY_SIZE(at_once.makers); i++)
        while (!atomic_load(&at_once.makers[i].builds))
            engine_rig_sleep(1);
    engine_rig_moves(&long_one.w.rig, "two");
    cr_expect_eq(BUILDS(&long_one.w.rig, "two"), PROGRAMS + 1, "something was built twice");
    makers_end();
    cr_expect_eq(at_once.makers[0].report.result, MOVE_REFUSED, "it is there already");
    cr_expect_eq(at_once.makers[1].report.result, MOVE_DONE, "%s", at_once.makers[1].report.reason);
    cr_expect_str_eq(ready_for(NULL), "three");
    worker_step(&long_one.w, 5);
    engine_rig_moves(&long_one.w.rig, "one");
    programs_close();
}

/* The program goes on with everything while it is made ready and let go of, over and over. */

static void build_on(void *data, unsigned round)
{
    const struct engine_program *p = data;
    cl_program program = BUILT(p->context, SOURCE, "");
    RELEASE(engine_kernel(program, round % 2 ? "add" : "share"), program);
}

Test(ready, a_program_that_builds_on_notices_nothing, .timeout = 240)
{
    struct engine_program p;
    struct move_report report;
    struct engine_rig rig;
    struct repeat builds;
    engine_rig_open(&rig, THREE);
    engine_program_open(&rig, 0, SOURCE, &p);
    repeat_begin(&builds, build_on, &p);
    for (int i = 0; i < 60; i++) {
        const char *other = strcmp(place_of_vdev(), "one") == 0 ? "two" : "one";
        enum move_result result = prewarm(&rig, i % 2 ? "three" : other, &report);
        cr_assert_eq(result, MOVE_DONE, "%s", report.reason);
        if (i % 4 == 3)
            cr_assert_eq(move_cool(NULL, 0), 0);
        if (i % 10 == 9)
            (void)engine_rig_move(&rig, other, &report);
    }
    repeat_end(&builds);
    cr_assert_gt(atomic_load(&builds.rounds), 0);
    (void)!move_cool(NULL, 0);
    engine_rig_moves(&rig, NULL);
    engine_rig_ends_empty(&rig);
    engine_rig_moves(&rig, "one");
    engine_program_close(&p);
}
