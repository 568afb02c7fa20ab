#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"
#include "state/base/threads/gate.h"
#include "state/command/event.h"
#include "state/command/journal.h"
#include "state/command/parts.h"
#include "state/command/pieces.h"
#include "state/object/lost.h"
#include "state/recovery/protect.h"
#include "tests/state/command/slices_rig.h"
#include "tests/support/every.h"

/*
 * A protected program whose device is lost in the middle of a launch: each group counts once,
 * whether a snapshot has it, the journal gives it again, or it is still to be given.
 */

/* A GPU has a queue for each piece, which is of 2048 items at least: they last 25 ms. */
#define PACED_GPU "type=gpu base=1 compute_units=1 paced=plain,places,waits items_per_s=81920 "

/* Asks where in the launch it is. */
static const char places[] =
    "uint work(uint x, uint rounds)\n"
    "{ for (uint i = 0; i < rounds; i++) x = x * 1664525u + 1013904223u; return x; }\n"
    "kernel void places(global uint *out, uint rounds, uint w, uint h) {\n"
    "  size_t at = get_global_id(0);\n"
    "  out[at] += work(at ^ get_group_id(0) << 8 ^ get_num_groups(0) << 20, rounds); }\n";

static void add_places(struct scene *s, const struct shape *shape, cl_uint rounds)
{
    cl_uint groups = (cl_uint)(shape->global[0] / shape->local[0]);
    for (cl_uint at = 0; at < shape->global[0]; at++)
        s->wanted[at] +=
            slices_work(at ^ at / (cl_uint)shape->local[0] << 8 ^ groups << 20, rounds);
}

struct lossy {
    struct scene scene;
    const struct shape *shape;
    cl_command_queue other;
    cl_mem behind; /* a copy of `out`, made behind the launch in another queue */
    void (*add)(struct scene *s, const struct shape *shape, cl_uint rounds);
    unsigned whole; /* launches that went whole since one did not */
};

static void lossy_open(struct lossy *l, const char *config, const char *name,
                       cl_command_queue_properties properties)
{
    const struct protect_settings settings = {.interval_ns = UINT64_C(3600000000000)};
    struct scene *s = &l->scene;
    lost_patience_ns = 40000000;
    lost_answer_ns = 500000000;
    bool asks = strcmp(name, "places") == 0;
    l->shape = strstr(config, "type=gpu") ? &longer_shape : &long_shape;
    scene_begin(s, config, "10", properties, l->shape->global[0]);
    scene_build(s, asks ? places : slices_source, "-cl-std=CL2.0", name);
    l->add = asks ? add_places : add_wanted;
    l->other = MADE(clCreateCommandQueue, s->program.context, s->rig.device, 0);
    l->behind = engine_buffer(s->program.context, 0, s->count * sizeof(*s->words), NULL);
    cr_assert_eq(protect_begin(&settings), 0);
    cr_assert_eq(protect_now(), 0);
    cr_assert_null(journal_broken());
}

static void lossy_close(struct lossy *l)
{
    protect_end();
    RELEASE(l->behind, l->other);
    scene_close(&l->scene);
}

static void lossy_again(const struct lossy *l)
{
    const struct engine_rig *rig = &l->scene.rig;
    struct move_report report;
    (void)emu_shared_disarm(rig->emu, "one");
    (void)emu_shared_restore(rig->emu, "one");
    (void)engine_rig_move(rig, "one", &report); /* it may be there */
    cr_assert_eq(protect_now(), 0);
}

/* How often a launch may go whole, because a busy machine was long in building its variant. */
#define WHOLE_MOST 20

/* The launch, and a copy behind it in another queue; @meanwhile once it runs. The device is lost
 * when it is given piece number @piece. False: it was not given so many. */
static bool lose_at_piece(struct lossy *l, uint64_t piece,
                          void (*meanwhile)(struct lossy *l, cl_event event))
{
    struct scene *s = &l->scene;
    cl_event event;
    uint64_t fired = emu_shared_fired(s->rig.emu, "one"), before = launches(s, "one");
    cr_assert_eq(
        emu_shared_arm(s->rig.emu, "one", piece, "clEnqueueNDRangeKernel", EMU_ERROR_VANISH), 0);
    event = launch(s, l->shape, ROUNDS);
    l->add(s, l->shape, ROUNDS);
    OK(clEnqueueCopyBuffer(l->other, s->out, l->behind, 0, 0, s->count * sizeof(*s->words), 1,
                           &event, NULL));
    OK(clFlush(l->other));
    if (meanwhile)
        meanwhile(l, event);
    OK(clWaitForEvents(1, &event));
    cr_assert_eq(status_of(event), CL_COMPLETE);
    check(s);
    OK(clEnqueueReadBuffer(l->other, l->behind, CL_TRUE, 0, s->count * sizeof(*s->words), s->words,
                           0, NULL, NULL));
    cr_assert_arr_eq(s->words, s->wanted, s->count * sizeof(*s->words));
    OK(clReleaseEvent(event));
    bool lost = emu_shared_fired(s->rig.emu, "one") != fired;
    bool whole = piece > 1 && launches(s, "one") - before <= 1;
    l->whole = whole ? l->whole + 1 : 0;
    cr_assert_lt(l->whole, WHOLE_MOST, "launches are not given in pieces");
    lossy_again(l);
    return lost || whole;
}

static void lose_at_each_piece(const char *config, const char *name,
                               cl_command_queue_properties properties,
                               void (*meanwhile)(struct lossy *l, cl_event event))
{
    enum { MOST = 200, FEW = 5 };
    static struct lossy l;
    uint64_t piece = 1;
    lossy_open(&l, config, name, properties);
    while (lose_at_piece(&l, piece, meanwhile)) {
        piece += l.whole == 0 ? every(2) : 0;
        cr_assert_lt(piece, MOST);
    }
    cr_assert_gt(piece, FEW, "the launch was not given in pieces");
    lossy_close(&l);
}

TestCall(recover_pieces, a_device_that_is_lost_at_any_piece_is_replaced,
         lose_at_each_piece(CONFIG, "plain", 0, NULL), .timeout = 300);
TestCall(recover_pieces, a_device_that_hangs_at_any_piece_is_replaced,
         lose_at_each_piece(TWO(PACED_GPU "lost_hangs=yes "), "plain", 0, NULL), .timeout = 300);
TestCall(recover_pieces, pieces_that_ask_where_they_are_are_given_again,
         lose_at_each_piece(CONFIG, "places", CL_QUEUE_PROFILING_ENABLE, NULL), .timeout = 300);
TestCall(recover_pieces, pieces_in_queues_of_their_own_are_given_again,
         lose_at_each_piece(TWO(PACED_GPU), "plain", CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, NULL),
         .timeout = 300);

/* The variant for such pieces does not build on `two`: only a recovery there would need it, for
 * pieces that have ended. On `one` they are given again. */
Test(recover_pieces, pieces_that_have_ended_do_not_keep_the_program_where_it_is, .timeout = 60)
{
    static struct lossy l;
    struct scene *s = &l.scene;
    uint64_t given = 0;
    lossy_open(&l, TWO(PACED) "build_fails=RESEAT", "places", 0);
    for (unsigned n = 0; given <= 2; n++) {
        cr_assert_lt(n, WHOLE_MOST, "launches are not given in pieces");
        uint64_t before = launches(s, "one");
        cl_event event = launch(s, l.shape, ROUNDS);
        l.add(s, l.shape, ROUNDS);
        OK(clWaitForEvents(1, &event));
        OK(clReleaseEvent(event));
        given = launches(s, "one") - before;
    }
    engine_rig_moves(&s->rig, "two");
    cr_assert_eq(emu_shared_vanish(s->rig.emu, "two"), 0);
    check(s);
    struct protect_status status;
    protect_read(&status);
    cr_assert_eq(status.recoveries, 1);
    lossy_close(&l);
}

static cl_ulong time_of(cl_event event, cl_profiling_info which)
{
    cl_ulong time;
    OK(clGetEventProfilingInfo(event, which, sizeof(time), &time, NULL));
    return time;
}

/* Each command's times follow those of the command before it. */
static void are_in_order(const cl_event *events, unsigned count)
{
    cl_ulong last = 1; /* 0 is no time */
    for (unsigned i = 0; i < count; i++) {
        cl_ulong queued = time_of(events[i], CL_PROFILING_COMMAND_QUEUED);
        cl_ulong submit = time_of(events[i], CL_PROFILING_COMMAND_SUBMIT);
        cl_ulong start = time_of(events[i], CL_PROFILING_COMMAND_START);
        cl_ulong end = time_of(events[i], CL_PROFILING_COMMAND_END);
        cr_assert(queued > 0 && queued <= submit && submit <= start && start <= end,
                  "%u: %lu %lu %lu %lu", i, queued, submit, start, end);
        cr_assert_geq(start, last, "%u: %lu %lu", i, start, last);
        cr_assert_eq(time_of(events[i], CL_PROFILING_COMMAND_END), end);
        last = end;
    }
}

/*
 * A launch in pieces between commands that are none, all of which have ended on a device that is
 * lost before it told of their times.
 *
 * @told  A bit for each command of which the program knows the times.
 * @asks  It is for a time that it finds the loss.
 */
static void lose_the_times(unsigned told, bool asks)
{
    enum { EVENTS = 5, CUT = 2 };
    static struct lossy l;
    struct scene *s = &l.scene;
    const cl_uint zero = 0;
    bool cut = false;
    lossy_open(&l, CONFIG, "plain", CL_QUEUE_PROFILING_ENABLE);
    for (unsigned n = 0; !cut; n++) {
        cl_event events[EVENTS];
        cr_assert_lt(n, WHOLE_MOST, "launches are not given in pieces");
        for (unsigned i = 0; i < EVENTS; i++)
            if (i == CUT)
                events[i] = launch(s, l.shape, ROUNDS);
            else
                OK(clEnqueueFillBuffer(s->program.queue, l.behind, &zero, sizeof(zero), 0,
                                       s->count * sizeof(*s->words), 0, NULL, &events[i]));
        l.add(s, l.shape, ROUNDS);
        OK(clFinish(s->program.queue));
        cut = is_cut(events[CUT]);
        for (unsigned i = 0; cut && i < EVENTS; i++)
            if (told >> i & 1) {
                (void)time_of(events[i], CL_PROFILING_COMMAND_START);
                (void)time_of(events[i], CL_PROFILING_COMMAND_END);
            }
        if (cut)
            cr_assert_eq(emu_shared_vanish(s->rig.emu, "one"), 0);
        if (cut && asks)
            (void)time_of(events[CUT], CL_PROFILING_COMMAND_END);
        check(s);
        are_in_order(events, EVENTS);
        for (unsigned i = 0; i < EVENTS; i++)
            OK(clReleaseEvent(events[i]));
    }
    struct protect_status status;
    protect_read(&status);
    cr_assert_eq(status.recoveries, 1);
    lossy_close(&l);
}

TestCall(recover_pieces, times_that_a_lost_device_did_not_tell_are_in_order,
         lose_the_times(0, false), .timeout = 60);
TestCall(recover_pieces, times_that_a_lost_device_did_not_tell_follow_what_it_told,
         lose_the_times(1, false), .timeout = 60);
TestCall(recover_pieces, times_that_a_lost_device_did_not_tell_precede_what_it_told,
         lose_the_times(1 << 3, false), .timeout = 60);
TestCall(recover_pieces, times_that_a_lost_device_did_not_tell_precede_a_launch_in_pieces,
         lose_the_times(1 << 2, false), .timeout = 60);
TestCall(recover_pieces, whoever_asks_a_lost_device_for_times_waits_for_another,
         lose_the_times(0, true), .timeout = 60);

/* ---- snapshots in the middle ---- */

/* Some are made while the device is being lost; then they fail, or come after the recovery. */
static void make_points(struct lossy *l, cl_event event)
{
    (void)l;
    for (unsigned i = 0; i < 20 && status_of(event) > CL_COMPLETE; i++) {
        (void)protect_now();
        engine_rig_sleep(3);
    }
}

TestCall(recover_pieces, snapshots_in_the_middle_have_each_group_once,
         lose_at_each_piece(CONFIG, "plain", CL_QUEUE_PROFILING_ENABLE, make_points),
         .timeout = 300);
TestCall(recover_pieces, snapshots_in_the_middle_of_pieces_beside_one_another,
         lose_at_each_piece(TWO(PACED_GPU), "places", 0, make_points), .timeout = 300);

static void move_and_make_points(struct lossy *l, cl_event event)
{
    struct move_report report;
    (void)protect_now();
    if (status_of(event) > CL_COMPLETE)
        (void)engine_rig_move(&l->scene.rig, "two", &report);
    (void)protect_now();
    (void)engine_rig_move(&l->scene.rig, "one", &report);
}

TestCall(recover_pieces, moves_between_pieces_and_snapshots,
         lose_at_each_piece(CONFIG, "plain", 0, move_and_make_points), .timeout = 300);

/* The device is lost at its @n-th call from the middle of the launch on, in which a move begins.
 * False: there were not so many. */
static bool lose_in_move(struct lossy *l, uint64_t n)
{
    struct scene *s = &l->scene;
    struct move_report report;
    uint64_t fired = emu_shared_fired(s->rig.emu, "one");
    cl_event event = launch(s, l->shape, ROUNDS);
    l->add(s, l->shape, ROUNDS);
    await_running(event);
    cr_assert_eq(emu_shared_arm(s->rig.emu, "one", n, NULL, EMU_ERROR_VANISH), 0);
    (void)engine_rig_move(&s->rig, "two", &report);
    bool lost = emu_shared_fired(s->rig.emu, "one") != fired;
    (void)emu_shared_disarm(s->rig.emu, "one");
    OK(clWaitForEvents(1, &event));
    cr_assert_eq(status_of(event), CL_COMPLETE);
    check(s);
    OK(clReleaseEvent(event));
    lossy_again(l);
    return lost;
}

Test(recover_pieces, a_device_that_is_lost_in_a_move_between_pieces_is_replaced, .timeout = 300)
{
    enum { MOST = 400 };
    static struct lossy l;
    lossy_open(&l, CONFIG, "plain", 0);
    l.shape = &(const struct shape){1, {0}, {2048}, {16}};
    uint64_t n = 1;
    while (lose_in_move(&l, n)) {
        n++;
        cr_assert_lt(n, MOST);
    }
    cr_assert_gt(n, 10u);
    lossy_close(&l);
}

/* Of the launch, the journal has the groups that were given since the snapshot. */
static size_t journaled_groups(size_t *ret_first)
{
    size_t groups = 0;
    *ret_first = SIZE_MAX;
    cr_assert_eq(gate_close(0), 0);
    for (const struct journal_entry *entry = journal_first(); entry; entry = entry->next) {
        struct command *command = entry->command;
        if (!command->ops->pieces)
            continue;
        const struct pieces *piece = command->ops->pieces(command);
        groups += piece->count;
        *ret_first = piece->at < *ret_first ? piece->at : *ret_first;
    }
    gate_open();
    return groups;
}

static bool make_one_point(struct scene *s, cl_event event)
{
    size_t first, all = 0;
    for (unsigned ms = 0; all == 0 && ms < 1000; ms++) {
        engine_rig_sleep(1);
        all = journaled_groups(&first);
    }
    cr_assert_eq(first, 0);
    engine_rig_sleep(50);
    cr_assert_eq(protect_now(), 0);
    bool runs = status_of(event) == CL_RUNNING;
    OK(clWaitForEvents(1, &event));
    size_t left = journaled_groups(&first);
    (void)s;
    if (!runs)
        return false;
    cr_assert_gt(first, 0, "groups that ended before the snapshot are in the journal");
    cr_assert_gt(left, 0, "groups that were given since are not in the journal");
    return true;
}

Test(recover_pieces, the_journal_has_what_a_snapshot_in_the_middle_lacks, .timeout = 120)
{
    const struct protect_settings settings = {.interval_ns = UINT64_C(3600000000000)};
    struct scene s;
    scene_open(&s, CONFIG, "10", "plain", 0, OUTLAST_WORDS);
    cr_assert_eq(protect_begin(&settings), 0);
    cr_assert_eq(protect_now(), 0);
    outlast(&s, 1, make_one_point, add_wanted);
    protect_end();
    scene_close(&s);
}

/* That a launch was given in pieces does not say that what is in front of it has ended. */
Test(recover_pieces, a_read_in_front_of_pieces_is_given_again, .timeout = 60)
{
    static struct lossy l;
    static cl_uint bytes[4 * 4096];
    struct scene *s = &l.scene;
    const size_t global = ARRAY_SIZE(bytes), local = 16;
    const cl_uint rounds = 1, one = 1;
    lossy_open(&l, TWO(PACED_GPU), "plain", 0);
    cl_kernel slow = engine_kernel(s->program.program, "waits"); /* goes whole, and takes 200 ms */
    cl_mem other = engine_buffer(s->program.context, 0, sizeof(bytes), NULL);
    OK(clSetKernelArg(slow, 0, sizeof(cl_mem), &other));
    OK(clSetKernelArg(slow, 1, sizeof(rounds), &rounds));
    OK(clSetKernelArg(slow, 2, sizeof(one), &one));
    OK(clSetKernelArg(slow, 3, sizeof(one), &one));
    cl_event event = launch(s, l.shape, ROUNDS);
    add_wanted(s, l.shape, ROUNDS);
    OK(clWaitForEvents(1, &event));
    OK(clReleaseEvent(event));
    OK(clEnqueueNDRangeKernel(s->program.queue, slow, 1, NULL, &global, &local, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(s->program.queue, s->out, CL_FALSE, 0, sizeof(bytes), bytes, 0, NULL,
                           NULL));
    memcpy(s->words, s->wanted, sizeof(bytes)); /* what is to be read */
    event = launch(s, l.shape, ROUNDS);
    add_wanted(s, l.shape, ROUNDS);
    OK(clFlush(s->program.queue));
    cr_assert_eq(emu_shared_vanish(s->rig.emu, "one"), 0);
    OK(clWaitForEvents(1, &event));
    cr_assert_arr_eq(bytes, s->words, sizeof(bytes));
    check(s);
    RELEASE(event, other, slow);
    lossy_close(&l);
}

/* Its own failure is no loss: the launch ends in it, as one that is not protected. */
Test(recover_pieces, a_piece_that_fails_by_itself_ends_the_launch, .timeout = 60)
{
    static struct lossy l;
    lossy_open(&l, CONFIG, "plain", 0);
    cr_assert_eq(
        emu_shared_arm(l.scene.rig.emu, "one", 4, "clEnqueueNDRangeKernel", EMU_ERROR_AT_END), 0);
    cl_event event = launch(&l.scene, &long_shape, ROUNDS);
    cr_assert_eq(clWaitForEvents(1, &event), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_assert_lt(status_of(event), 0);
    OK(clReleaseEvent(event));
    struct protect_status status;
    protect_read(&status);
    cr_assert_eq(status.recoveries, 0);
    lossy_close(&l);
}

static bool somebody_chooses(void)
{
    return true;
}

/* Pieces run, at least @pieces were given, on a device that is lost, and nobody has chosen another
 * one yet. Only what comes after the first, by which the others are sized, puts the event in doubt.
 */
static cl_event lose_without_choice(struct lossy *l, unsigned pieces)
{
    struct scene *s = &l->scene;
    cl_event event;
    lossy_open(l, CONFIG, "plain", 0);
    recovery_install(somebody_chooses);
    for (unsigned whole = 0;; whole++) {
        cr_assert_lt(whole, WHOLE_MOST, "launches are not given in pieces");
        uint64_t before = launches(s, "one");
        event = launch(s, &long_shape, ROUNDS);
        await_running(event);
        if (is_cut(event)) {
            while (launches(s, "one") - before < pieces)
                engine_rig_sleep(1);
            break;
        }
        OK(clWaitForEvents(1, &event));
        OK(clReleaseEvent(event));
    }
    cr_assert_eq(emu_shared_vanish(s->rig.emu, "one"), 0);
    while (recovery_state() != RECOVERY_CHOOSING ||
           (pieces > 1 && !event_is_doubted((struct event *)event)))
        engine_rig_sleep(1);
    return event;
}

static void failed_with_the_device(struct lossy *l, cl_event event)
{
    cr_assert_eq(clWaitForEvents(1, &event), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_assert_lt(status_of(event), 0);
    (void)clFinish(l->scene.program.queue);
    OK(clReleaseEvent(event));
    recovery_install(NULL);
    lossy_close(l);
}

Test(recover_pieces, a_first_piece_that_cannot_be_given_again_fails, .timeout = 60)
{
    static struct lossy l;
    cl_event event = lose_without_choice(&l, 1);
    journal_break("it cannot be");
    failed_with_the_device(&l, event);
}

Test(recover_pieces, pieces_that_cannot_be_given_again_fail, .timeout = 60)
{
    static struct lossy l;
    cl_event event = lose_without_choice(&l, 2);
    journal_break("they cannot be");
    failed_with_the_device(&l, event);
}

Test(recover_pieces, pieces_whose_recovery_failed_fail_without_protection, .timeout = 60)
{
    static struct lossy l;
    struct move_report report;
    cl_event event = lose_without_choice(&l, 2);
    cr_assert_eq(
        emu_shared_arm(l.scene.rig.emu, "two", 1, "clEnqueueNDRangeKernel", EMU_ERROR_VANISH), 0);
    cr_assert_neq(engine_rig_move(&l.scene.rig, "two", &report), MOVE_DONE);
    cr_assert_eq(recovery_state(), RECOVERY_CHOOSING);
    protect_end();
    failed_with_the_device(&l, event);
}

/* It may be lost before the first piece: as the launch's objects are brought, inside the program's
 * call. */
Test(recover_pieces, a_device_that_is_lost_before_the_first_piece_is_replaced, .timeout = 120)
{
    enum { MOST = 100 };
    static struct lossy l;
    bool lost = true;
    lossy_open(&l, CONFIG, "plain", 0);
    struct scene *s = &l.scene;
    l.shape = &(const struct shape){1, {0}, {2048}, {16}};
    cl_event event = launch(s, l.shape, ROUNDS);
    add_wanted(s, l.shape, ROUNDS);
    OK(clWaitForEvents(1, &event));
    OK(clReleaseEvent(event));
    for (uint64_t n = 1; lost; n++) {
        uint64_t fired = emu_shared_fired(s->rig.emu, "one");
        cr_assert_lt(n, MOST);
        engine_rig_moves(&s->rig, "two");
        struct move_request back = {.target = engine_rig_key(&s->rig, "one"),
                                    .fetch = MOVE_FETCH_ON_DEMAND,
                                    .bandwidth = 1024};
        struct move_report report;
        move_run(&back, &report);
        cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
        cr_assert_gt(report.left, 0);
        cr_assert_eq(emu_shared_arm(s->rig.emu, "one", n, NULL, EMU_ERROR_VANISH), 0);
        event = launch(s, l.shape, ROUNDS);
        lost = emu_shared_fired(s->rig.emu, "one") != fired;
        (void)emu_shared_disarm(s->rig.emu, "one");
        add_wanted(s, l.shape, ROUNDS);
        OK(clWaitForEvents(1, &event));
        cr_assert_eq(status_of(event), CL_COMPLETE);
        check(s);
        OK(clReleaseEvent(event));
        lossy_again(&l);
    }
    lossy_close(&l);
}
