#include <unistd.h>

#include "tests/scratch.h"
#include "tests/state/move/test_moves_state.h"
#include "tests/support/every.h"

/*
 * M1: for each OpenCL call that a move makes, a move in which that call fails, and one in which the
 * device vanishes there.
 */

static const char *const config = "[one] name=one [two] name=two";

/* More calls than any move here makes: the last of them is never reached. */
#define CALLS_MAX 220
#define SHARDS    4

/* A move, and whose call fails in it. */
struct variant {
    const char *name;
    const char *from, *to; /* NULL: host memory */
    const char *armed;
    int error;
    bool first; /* which measures the devices as well */
    enum move_fetch fetch;
};

/*
 * Calls before COMMIT whose failure a move may survive. Whatever else fails must roll it back.
 * Where one of them matters, what is checked after the move would not hold.
 */
static const char *const harmless[] = {
    /* An emulated release that fails has released, and there is nothing else to be done. */
    "clReleaseEvent",
    "clReleaseMemObject",
    "clReleaseProgram",
    "clReleaseKernel",
    "clReleaseCommandQueue",
    "clReleaseContext",
    /* What the device does with host pointers, and how fast its link is, is tried out: a failure is
     * an answer. */
    "clCreateBuffer",
    "clCreateImage",
    "clEnqueueMapBuffer",
    "clEnqueueWriteBuffer",
    "clEnqueueReadBuffer",
    "clEnqueueUnmapMemObject",
    "clFinish",
    "clFlush",
    "clWaitForEvents",
    /* Whether what was launched so far fits. A launch that then does not goes back by itself. */
    "clGetKernelWorkGroupInfo",
};

/* One try. */
struct attempt {
    struct engine_rig *rig;
    const struct variant *variant;
    struct move_report report;
    uint64_t start;  /* calls on the armed device before the move */
    uint64_t commit; /* ... and at COMMIT; 0: not reached */
    bool fired;
    char function[EMU_FUNCTION_NAME_MAX]; /* that failed */
    char what[128];
};

static void note_phase(void *data, const struct move_progress *progress)
{
    struct attempt *try = data;
    if (progress->phase == MOVE_COMMIT && try->commit == 0)
        try->commit = emu_shared_calls(try->rig->emu, try->variant->armed, NULL);
}

/* The function of the call that was armed, from the driver's trace. */
static void find_function(struct attempt *try, uint64_t k)
{
    FILE *trace = fopen(getenv("EMU_TRACE"), "re");
    char device[64], function[EMU_FUNCTION_NAME_MAX];
    unsigned long long number;
    cr_assert_not_null(trace);
    while (fscanf(trace, "%llu %63s %55s %*d", &number, device, function) == 3)
        if (number == try->start + k && strcmp(device, try->variant->armed) == 0)
            memcpy(try->function, function, sizeof(function));
    fclose(trace);
    cr_assert_str_not_empty(try->function, "%s: no call %llu in the trace", try->what,
                            (unsigned long long)(try->start + k));
}

static void try_move(struct attempt *try, uint64_t k)
{
    const struct variant *variant = try->variant;
    struct emu_shared *emu = try->rig->emu;
    struct move_request request = {
        .target = variant->to ? engine_rig_key(try->rig, variant->to) : NULL,
        .fetch = variant->fetch,
        .progress = note_phase,
        .data = try,
    };
    uint64_t fired = emu_shared_fired(emu, variant->armed);
    try->start = emu_shared_calls(emu, variant->armed, NULL);
    cr_assert_eq(emu_shared_arm(emu, variant->armed, k, NULL, variant->error), 0);
    move_run(&request, &try->report);
    try->fired = emu_shared_fired(emu, variant->armed) != fired;
    emu_shared_disarm(emu, variant->armed);
    if (variant->error == EMU_ERROR_VANISH)
        emu_shared_restore(emu, variant->armed);
    snprintf(try->what, sizeof(try->what), "%s, call %llu", variant->name, (unsigned long long)k);
    if (try->fired) {
        find_function(try, k);
        snprintf(try->what, sizeof(try->what), "%s, call %llu, %s: %s", variant->name,
                 (unsigned long long)k, try->function, move_result_name(try->report.result));
    }
}

static bool is_harmless(const char *function)
{
    for (size_t i = 0; i < ARRAY_SIZE(harmless); i++)
        if (strcmp(harmless[i], function) == 0)
            return true;
    return false;
}

/* The report is one of the two that it may be. Returns true when the move was done. */
static bool check_report(const struct attempt *try, uint64_t k)
{
    const struct move_report *report = &try->report;
    bool committed = try->commit != 0 && try->start + k > try->commit;
    if (!try->fired || committed) {
        cr_assert_eq(report->result, MOVE_DONE, "%s: %s", try->what, report->reason);
        cr_assert_str_empty(report->reason, "%s", try->what);
        return true;
    }
    if (report->result == MOVE_DONE) {
        cr_assert(is_harmless(try->function), "%s: it matters", try->what);
        cr_assert_neq(try->variant->error, EMU_ERROR_VANISH, "%s: the target was gone", try->what);
        return true;
    }
    cr_assert_eq(report->result, MOVE_ROLLED_BACK, "%s", try->what);
    cr_assert_str_not_empty(report->reason, "%s", try->what);
    cr_assert_null(strchr(report->reason, '\n'), "%s: not one line: %s", try->what, report->reason);
    cr_assert_lt(report->reached, MOVE_COMMIT, "%s", try->what);
    return false;
}

/* What drivers keep of earlier tries: memory objects that they did not unmap, and their context. */
static int64_t kept[2];

static int64_t *kept_on(const char *device)
{
    return &kept[strcmp(device, "one") != 0];
}

/*
 * Nothing is alive on @device. Only what was mapped there when unmapping failed, or when the device
 * vanished, is its driver's: one object in each of the program's two contexts, which the move kept
 * for the next bytes of that one, and the context.
 */
static void check_empty(const struct attempt *try, const char *device)
{
    int64_t *known = kept_on(device);
    bool may_keep = try->fired && strcmp(device, try->variant->armed) == 0 &&
                    (try->variant->error == EMU_ERROR_VANISH ||
                     strcmp(try->function, "clEnqueueUnmapMemObject") == 0);
    bool settled = engine_rig_settles(try->rig, device, *known, may_keep ? 4 : 0);
    cr_assert(settled, "%s: alive on %s: %s, expected %lld", try->what, device,
              engine_rig_alive(try->rig, device), (long long)*known);
    *known = emu_shared_live_all(try->rig->emu, device);
    cr_assert_eq(*known,
                 emu_shared_live(try->rig->emu, device, EMU_MEM) +
                     emu_shared_live(try->rig->emu, device, EMU_CONTEXT),
                 "%s: alive on %s: %s", try->what, device, engine_rig_alive(try->rig, device));
}

static void check_place(const struct attempt *try, const char *device)
{
    struct vdev_status status;
    status_vdev(0, &status);
    cr_assert_eq(status.suspended, device == NULL, "%s", try->what);
    cr_assert_not(status.moving, "%s", try->what);
    if (device)
        cr_assert_str_eq(status.device.device, device, "%s", try->what);
}

/* Everything that must hold after the try, and the way back to where it began. */
static void check_after(struct attempt *try, struct state *s, bool done)
{
    const struct variant *variant = try->variant;
    const char *here = done ? variant->to : variant->from;
    const char *left = done ? variant->from : variant->to;
    check_place(try, here);
    if (left)
        check_empty(try, left);
    if (here) {
        state_check(s, try->what);
        state_step(s, try->what);
    }
    if (!done) {
        engine_rig_moves(try->rig, variant->to);
        if (variant->from)
            check_empty(try, variant->from);
        if (variant->to)
            state_step(s, try->what);
    }
    if (!variant->to)
        engine_rig_moves(try->rig, variant->from);
    state_let_go(s);
    state_check(s, try->what);
    if (!variant->to)
        return;
    engine_rig_moves(try->rig, variant->from);
    check_empty(try, variant->to);
}

static void open(struct engine_rig *rig, struct state *s)
{
    char path[SCRATCH_MAX];
    int fd = mkstemp(scratch(path, "trace"));
    cr_assert(fd >= 0);
    close(fd);
    setenv("EMU_TRACE", path, 1);
    engine_rig_open(rig, config);
    state_make(rig, s);
}

/* Returns false when the move made less than @k calls. */
static bool try_and_check(struct engine_rig *rig, struct state *s, const struct variant *variant,
                          uint64_t k)
{
    struct attempt try = {.rig = rig, .variant = variant};
    /* While suspended nobody could enqueue: it was held before. */
    if (!variant->from) {
        engine_rig_moves(rig, variant->to);
        state_hold(s);
        engine_rig_moves(rig, NULL);
    } else {
        state_hold(s);
    }
    if (variant->first) {
        engine_rig_forget(rig, "one");
        engine_rig_forget(rig, "two");
    }
    try_move(&try, k);
    bool done = check_report(&try, k);
    if (getenv("MATRIX_SHOW"))
        fprintf(stderr, "%s%s: %s\n", try.what,
                done && try.commit < try.start + k ? " (after)" : "", try.report.reason);
    if (done && try.fired && variant->error == EMU_ERROR_VANISH)
        return false; /* lost after COMMIT: what is there is gone with it */
    check_after(&try, s, done);
    return try.fired;
}

static void close_all(struct engine_rig *rig, struct state *s, const struct variant *variant)
{
    if (!variant->from)
        engine_rig_moves(rig, variant->to);
    state_finish(s);
    unlink(getenv("EMU_TRACE"));
}

static const struct variant variants[] = {
    {"move, target fails", "one", "two", "two", EMU_ERROR_NATURAL, false},
    {"move, target vanishes", "one", "two", "two", EMU_ERROR_VANISH, false},
    {"move, source fails", "one", "two", "one", EMU_ERROR_NATURAL, false},
    {"first move, target fails", "one", "two", "two", EMU_ERROR_NATURAL, true},
    {"on demand, target fails", "one", "two", "two", EMU_ERROR_NATURAL, false,
     MOVE_FETCH_ON_DEMAND},
    {"on demand, target vanishes", "one", "two", "two", EMU_ERROR_VANISH, false,
     MOVE_FETCH_ON_DEMAND},
    {"on demand, source fails", "one", "two", "one", EMU_ERROR_NATURAL, false,
     MOVE_FETCH_ON_DEMAND},
    {"suspend, source fails", "one", NULL, "one", EMU_ERROR_NATURAL, false},
    {"resume, target fails", NULL, "two", "two", EMU_ERROR_NATURAL, false},
    {"resume, target vanishes", NULL, "two", "two", EMU_ERROR_VANISH, false},
};
#define MOVES 7 /* the others begin or end in host memory */

static unsigned shards_of_each(void)
{
    return SHARDS / every(2);
}

/* Of the calls of a variant, or of every second one in turn the odd and the even ones: one after
 * another, for failures add up in what they leave behind. */
static void try_shard(unsigned first_variant)
{
    unsigned v = cases_number() / shards_of_each(), i = cases_number() % shards_of_each();
    const struct variant *variant = &variants[first_variant + v];
    struct engine_rig rig;
    static struct state s;
    open(&rig, &s);
    if (!variant->from)
        engine_rig_moves(&rig, NULL);
    uint64_t k = i * every(2) + v % every(2) + 1;
    while (k < CALLS_MAX && try_and_check(&rig, &s, variant, k))
        k += SHARDS;
    cr_assert_lt(k, CALLS_MAX, "%s: more calls than were tried", variant->name);
    cr_assert_gt(k, 10, "%s: hardly any call", variant->name);
    if (variant->error != EMU_ERROR_VANISH)
        close_all(&rig, &s, variant);
    else
        unlink(getenv("EMU_TRACE"));
}

/* In halves, which run at once. */

static unsigned between_devices(void)
{
    return MOVES * shards_of_each();
}

TestCall(matrix, from_device_to_device, try_shard(0), .times = between_devices);

static unsigned with_host_memory(void)
{
    return (ARRAY_SIZE(variants) - MOVES) * shards_of_each();
}

TestCall(matrix, through_host_memory, try_shard(MOVES), .times = with_host_memory);
