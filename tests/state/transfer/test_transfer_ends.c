#include "tests/support/cases.h"
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "tests/state/transfer/transfer_bench.h"

/* How transfers end that do not get to their end, and what they leave: nothing. */

/* A few large and small buffers and an image, with every kind of call failing at the n-th. */
static bool move_with_failure(const struct bench *bench, const struct transfer_shape *how,
                              enum rig_call call, int n)
{
    static const size_t sizes[] = {5, 3 * 64 << 10, 17, 100000, 64 << 10};
    struct buffer buffers[ARRAY_SIZE(sizes)];
    struct image_shape image;
    struct transfer *transfer = NULL;
    _Atomic uint64_t done = 0;
    uint64_t total = 0;
    const struct transfer_limits limits = {.done = &done};
    shape_init(&image, &image_cases[5]);
    struct transfer_item picture = {.image = &image, .size = image.row_pitch * image.dims[1]};
    char *pixels = calloc(1, picture.size);
    if (bench->way != ACROSS)
        picture.host = pixels;
    if (bench->way != UP)
        picture.from = rig_image(bench->from, &image, pixels);
    if (bench->way != DOWN)
        picture.to = rig_image(bench->to, &image, NULL);
    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++)
        buffer_init(&buffers[i], bench, i + 1, sizes[i], 0, sizes[i]);

    rig_arm(call, n);
    transfer = start(bench, how, 0, &limits);
    int error = 0;
    for (unsigned i = 0; i < ARRAY_SIZE(sizes) && error == 0; i++) {
        struct transfer_item item = buffer_item(&buffers[i], bench);
        error = transfer_add(transfer, &item);
        total += item.size;
    }
    if (error == 0)
        error = transfer_add(transfer, &picture);
    total += picture.size;
    int flushed = transfer_flush(transfer);
    cr_assert(error == 0 || flushed == error, "flush %d after %d", flushed, error);
    cl_int reason = transfer_error(transfer);
    transfer_destroy(transfer);
    bool fired = rig_disarm();
    bool setting_up = call == RIG_CREATE_BUFFER;
    if (fired && !setting_up) {
        cr_assert_eq(flushed, -EIO, "call %d: %d", call, flushed);
        cr_assert_eq(reason, RIG_ERROR, "call %d: %d", call, reason);
        cr_assert_lt(done, total);
    } else {
        cr_assert_eq(flushed, 0, "call %d: %d", call, flushed);
        cr_assert_eq(done, total);
        for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++)
            buffer_check(&buffers[i], bench);
    }
    cr_assert_eq(rig_live_events(), 0);
    cr_assert_eq(rig_live_buffers(), 0);
    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++)
        buffer_finish(&buffers[i], bench);
    if (picture.from)
        bench->from->real->clReleaseMemObject(picture.from);
    if (picture.to)
        bench->to->real->clReleaseMemObject(picture.to);
    free(pixels);
    return fired;
}

static void fail_everywhere(const struct bench *bench, const struct transfer_shape *shape,
                            uint64_t total)
{
    if (total || !shape || shape->threads == 5)
        return;
    for (int call = 0; call < RIG_CALLS; call++) {
        int n = 1;
        while (move_with_failure(bench, shape, call, n))
            cr_assert_lt(n++, 200);
    }
}

TestCall(transfer, a_failure_of_any_call_is_reported_and_leaves_nothing,
         each_shape(fail_everywhere), .timeout = 240);

Test(transfer, a_cancelled_transfer_stops, .timeout = 60)
{
    struct rig *a = rig_create(0, true), *b = rig_create(1, true);
    const struct bench benches[] = {{DOWN, a, NULL}, {UP, NULL, b}, {ACROSS, a, b}};
    for (size_t i = 0; i < ARRAY_SIZE(benches) * 3; i++) {
        const struct bench *bench = &benches[i / 3];
        const struct transfer_shape shape = {.chunk = CHUNK, .chunks = 3, .threads = i % 3};
        atomic_bool cancel = false;
        _Atomic uint64_t done = 0;
        const struct transfer_limits limits = {.cancel = &cancel, .done = &done};
        struct buffer buffer;
        buffer_init(&buffer, bench, 1, 4u << 20, 0, 4u << 20);
        struct transfer_item item = buffer_item(&buffer, bench);
        struct transfer *transfer = start(bench, &shape, 0, &limits);
        rig_cancel_at(&cancel, 5);
        cr_assert_eq(transfer_add(transfer, &item), -ECANCELED);
        cr_assert_eq(transfer_flush(transfer), -ECANCELED);
        rig_cancel_at(NULL, 0);
        cr_assert_lt(done, item.size / 2);
        cr_assert_eq(transfer_add(transfer, &item), -ECANCELED);
        transfer_destroy(transfer);
        cr_assert_eq(rig_live_events(), 0);
        buffer_finish(&buffer, bench);
    }
    rig_destroy(a);
    rig_destroy(b);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

Test(transfer, a_transfer_ends_at_its_deadline, .timeout = 60)
{
    struct rig *a = rig_create(0, true), *b = rig_create(1, true);
    const struct bench benches[] = {{DOWN, a, NULL}, {UP, NULL, b}, {ACROSS, a, b}};
    for (size_t i = 0; i < ARRAY_SIZE(benches) * 3; i++) {
        const struct bench *bench = &benches[i / 3];
        const struct transfer_shape shape = {.chunk = CHUNK, .chunks = 3, .threads = i % 3};
        struct buffer buffer;
        buffer_init(&buffer, bench, 1, 16u << 20, 0, 16u << 20);
        struct transfer_item item = buffer_item(&buffer, bench);
        const struct transfer_limits late = {.deadline_ns = 1};
        struct transfer *transfer = start(bench, &shape, 0, &late);
        cr_assert_eq(transfer_add(transfer, &item), -ETIMEDOUT);
        transfer_destroy(transfer);

        rig_slow_waits(20000); /* 256 chunks of 20 ms: five seconds */
        const struct transfer_limits limits = {.deadline_ns = now_ns() + 100000000u};
        transfer = start(bench, &shape, 0, &limits);
        uint64_t begin = now_ns();
        cr_assert_eq(transfer_add(transfer, &item), -ETIMEDOUT);
        cr_assert_eq(transfer_flush(transfer), -ETIMEDOUT);
        transfer_destroy(transfer);
        cr_assert_lt(now_ns() - begin, UINT64_C(4000000000));
        rig_slow_waits(0);
        cr_assert_eq(rig_live_events(), 0);
        buffer_finish(&buffer, bench);
    }
    rig_destroy(a);
    rig_destroy(b);
}

Test(transfer, destroying_an_unflushed_transfer_leaves_nothing)
{
    struct rig *a = rig_create(0, true);
    const struct bench bench = {DOWN, a, NULL};
    const struct transfer_shape shape = {.chunk = CHUNK, .chunks = 3, .threads = 2};
    struct buffer buffer;
    buffer_init(&buffer, &bench, 1, (1u << 20) + 5, 0, (1u << 20) + 5);
    struct transfer_item item = buffer_item(&buffer, &bench);
    struct transfer *transfer = start(&bench, &shape, 0, NULL);
    cr_assert_eq(transfer_add(transfer, &item), 0);
    transfer_destroy(transfer);
    cr_assert_eq(rig_live_events(), 0);
    cr_assert_eq(rig_live_buffers(), 0);
    buffer_finish(&buffer, &bench);
    transfer_destroy(NULL);
    rig_destroy(a);
}

Test(transfer, threads_block_signals_and_live_as_long_as_the_transfer)
{
    struct rig *a = rig_create(0, true);
    const struct bench bench = {DOWN, a, NULL};
    const struct transfer_shape shape = {.chunk = CHUNK, .chunks = 3, .threads = 3};
    bool blocked = false;
    struct transfer *transfer = start(&bench, &shape, 0, NULL);
    unsigned count = 0;
    /* Each names itself, and has every signal blocked until the C library has started it. */
    for (int tried = 0; tried < 1000 && (count != 3 || !blocked); tried++) {
        usleep(1000);
        count = count_copy_threads(&blocked);
    }
    cr_assert_eq(count, 3);
    cr_assert(blocked);
    transfer_destroy(transfer);
    cr_assert_eq(count_copy_threads(&blocked), 0);
    rig_destroy(a);
}
