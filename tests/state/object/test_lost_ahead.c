#include <stdatomic.h>

#include "state/object/lost.h"
#include "tests/support/engine_rig.h"

/* The source of a move is lost after bytes of it were copied ahead: the target or host memory keeps
 * what only these copies have. */

/* Enough for a pass ahead of the pause. */
#define LARGE ((size_t)16 << 20)

/* Two buffers that are copied ahead; then one is written again, and the source is lost. */
struct ahead {
    const struct engine_rig *rig;
    struct engine_program program;
    cl_command_queue beside;    /* of a second virtual device, on c; or NULL */
    cl_mem kept, lost, scratch; /* never written */
    cl_uchar *bytes;            /* LARGE, what both have */
    const char *fails; /* what b is asked for when its bytes are to be saved; NULL: nothing */
    cl_int with;       /* how that fails */
    atomic_bool cancel, ahead; /* the move is canceled then; copies were ahead */
};

static void lose_source(void *data, const struct move_progress *progress)
{
    struct ahead *a = data;
    if (progress->phase != MOVE_PAUSE || atomic_exchange(&a->ahead, true))
        return;
    cr_assert_geq(progress->bytes_done, 2 * LARGE);
    OK(clEnqueueWriteBuffer(a->program.queue, a->lost, CL_TRUE, 0, LARGE, a->bytes, 0, NULL, NULL));
    if (a->fails)
        cr_assert_eq(emu_shared_arm(a->rig->emu, "b", 1, a->fails, a->with), 0);
    cr_assert_eq(emu_shared_vanish(a->rig->emu, "a"), 0);
}

static void ahead_begin(struct ahead *a, struct engine_rig *rig, bool beside)
{
    lost_answer_ns = 500000000;
    engine_rig_open(rig, "[a] name=a own_memory=yes\n[b] base=1 name=b own_memory=yes\n"
                         "[c] base=1 name=c own_memory=yes\n");
    a->rig = rig;
    const cl_device_id devices[] = {rig->device, beside ? engine_rig_vdev(rig, "c") : NULL};
    a->program.context = MADE(clCreateContext, NULL, beside ? 2 : 1, devices, NULL, NULL);
    a->program.queue = MADE(clCreateCommandQueue, a->program.context, devices[0], 0);
    if (beside)
        a->beside = MADE(clCreateCommandQueue, a->program.context, devices[1], 0);
    a->bytes = malloc(LARGE);
    for (size_t i = 0; i < LARGE; i++)
        a->bytes[i] = (cl_uchar)(i * 7 + i / 251);
    cl_mem *buffers[] = {&a->kept, &a->lost};
    for (size_t i = 0; i < ARRAY_SIZE(buffers); i++) {
        *buffers[i] = engine_buffer(a->program.context, CL_MEM_READ_WRITE, LARGE, NULL);
        OK(clEnqueueWriteBuffer(a->program.queue, *buffers[i], CL_TRUE, 0, LARGE, a->bytes, 0, NULL,
                                NULL));
    }
    a->scratch = engine_buffer(a->program.context, CL_MEM_READ_WRITE, LARGE, NULL);
}

static enum move_result ahead_move(struct ahead *a, struct move_report *ret_report)
{
    struct move_request request = {.target = engine_rig_key(a->rig, "b"),
                                   .cancel = &a->cancel,
                                   .progress = lose_source,
                                   .data = a};
    move_run(&request, ret_report);
    cr_assert(atomic_load(&a->ahead));
    cr_assert(vdev_is_lost(the_vdevs[0]));
    return ret_report->result;
}

static void names_only_lost(const struct ahead *a, const struct move_report *report)
{
    char named[64];
    snprintf(named, sizeof(named), "1 object: a buffer of %zu bytes (%p)", LARGE, (void *)a->lost);
    cr_assert_not_null(strstr(report->reason, named), "%s", report->reason);
}

/* Without what was lost the program goes to @name, and has the rest there. */
static void ahead_end(struct ahead *a, const char *name)
{
    struct move_report report;
    cl_uchar *bytes = calloc(LARGE, 1);
    cr_assert_eq(engine_rig_move(a->rig, name, &report), MOVE_REFUSED);
    names_only_lost(a, &report);
    OK(clReleaseMemObject(a->lost));
    engine_rig_moves(a->rig, name);
    engine_read_there(a->program.queue, a->kept, 0, LARGE, bytes);
    cr_assert_arr_eq(bytes, a->bytes, LARGE);
    RELEASE(a->kept, a->scratch);
    engine_program_close(&a->program);
    cr_assert(engine_rig_empties(a->rig, name), "%s", engine_rig_alive(a->rig, name));
    free(bytes);
    free(a->bytes);
}

Test(lost, what_was_copied_ahead_outlives_the_refusal, .timeout = 60)
{
    struct engine_rig rig;
    struct move_report report;
    struct ahead a = {0};
    ahead_begin(&a, &rig, false);
    cr_assert_eq(ahead_move(&a, &report), MOVE_REFUSED);
    names_only_lost(&a, &report);
    ahead_end(&a, "c");
    cr_assert(engine_rig_empties(&rig, "b"), "%s", engine_rig_alive(&rig, "b"));
}

/* Another virtual device needs it, wherever it was written. */
Test(lost, what_was_copied_ahead_is_there_for_others, .timeout = 60)
{
    struct engine_rig rig;
    struct move_report report;
    struct ahead a = {0};
    cl_uchar *bytes = calloc(LARGE, 1);
    ahead_begin(&a, &rig, true);
    cr_assert_eq(ahead_move(&a, &report), MOVE_REFUSED);
    names_only_lost(&a, &report);
    OK(clEnqueueReadBuffer(a.beside, a.kept, CL_TRUE, 0, LARGE, bytes, 0, NULL, NULL));
    cr_assert_arr_eq(bytes, a.bytes, LARGE);
    memset(bytes, 0, LARGE);
    OK(clEnqueueCopyBuffer(a.beside, a.kept, a.scratch, 0, 0, LARGE, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(a.beside, a.scratch, CL_TRUE, 0, LARGE, bytes, 0, NULL, NULL));
    cr_assert_arr_eq(bytes, a.bytes, LARGE);
    OK(clReleaseCommandQueue(a.beside));
    ahead_end(&a, "b");
    free(bytes);
}

/* A move that may go on no longer still saves what it alone has. */
static void cancel_too(void *data, const struct move_progress *progress)
{
    struct ahead *a = data;
    lose_source(data, progress);
    atomic_store(&a->cancel, atomic_load(&a->ahead));
}

Test(lost, what_was_copied_ahead_outlives_a_cancellation, .timeout = 60)
{
    struct engine_rig rig;
    struct move_report report;
    struct ahead a = {0};
    ahead_begin(&a, &rig, false);
    struct move_request request = {.target = engine_rig_key(&rig, "b"),
                                   .cancel = &a.cancel,
                                   .progress = cancel_too,
                                   .data = &a};
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_CANCELED, "%s", report.reason);
    ahead_end(&a, "b");
}

/* Where it cannot be brought to host memory its place stays what it is. */
static void keep_in_target(const char *name)
{
    struct engine_rig rig;
    struct move_report report;
    struct ahead a = {.fails = "clEnqueueReadBuffer", .with = CL_OUT_OF_RESOURCES};
    ahead_begin(&a, &rig, false);
    uint64_t fired = emu_shared_fired(rig.emu, "b");
    cr_assert_eq(ahead_move(&a, &report), MOVE_REFUSED);
    cr_assert_eq(emu_shared_fired(rig.emu, "b"), fired + 1);
    names_only_lost(&a, &report);
    ahead_end(&a, name);
    cr_assert(engine_rig_empties(&rig, "b"), "%s", engine_rig_alive(&rig, "b"));
}

TestCall(lost, what_cannot_be_saved_stays_in_the_target, keep_in_target("b"), .timeout = 60);
TestCall(lost, what_stayed_in_the_target_goes_on_elsewhere, keep_in_target("c"), .timeout = 60);

Test(lost, what_is_lost_with_the_target_is_named_as_well, .timeout = 60)
{
    struct engine_rig rig;
    struct move_report report;
    struct ahead a = {.fails = "clEnqueueReadBuffer", .with = EMU_ERROR_VANISH};
    ahead_begin(&a, &rig, false);
    cr_assert_eq(ahead_move(&a, &report), MOVE_REFUSED);
    cr_assert_not_null(strstr(report.reason, "latest bytes of 2 objects: "), "%s", report.reason);
    cr_assert(report.lasting);
    RELEASE(a.lost, a.kept, a.scratch);
    engine_rig_moves(&rig, "c");
    engine_program_close(&a.program);
    free(a.bytes);
}
