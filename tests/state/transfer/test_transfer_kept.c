#include <errno.h>

#include "state/base/memory/pages.h"
#include "state/driver/links.h"
#include "tests/state/transfer/transfer_bench.h"
#include "tests/support/folder.h"

/* What one transfer leaves for the next: chunks, threads, registered memory, measured figures. */

/* One buffer of @size by a transfer of its own. 0 or what it ended with. */
static int move_one(const struct bench *bench, const struct transfer_limits *limits, size_t size,
                    uint32_t seed)
{
    struct buffer buffer;
    struct transfer *transfer = NULL;
    buffer_init(&buffer, bench, seed, size, 5, size - 5);
    struct transfer_item item = buffer_item(&buffer, bench);
    item.user_memory = limits->user_memory;
    int error =
        transfer_create(bench->way == UP ? NULL : &bench->from->residence,
                        bench->way == DOWN ? NULL : &bench->to->residence, size, limits, &transfer);
    if (error == 0)
        error = transfer_add(transfer, &item);
    if (error == 0)
        error = transfer_flush(transfer);
    transfer_destroy(transfer);
    if (error == 0)
        buffer_check(&buffer, bench);
    buffer_finish(&buffer, bench);
    return error;
}

static const struct transfer *kept_between(const struct transfer_series *series,
                                           const struct bench *bench)
{
    for (size_t i = 0; i < TRANSFER_SERIES_KEPT; i++)
        if (series->idle[i] &&
            series->idle[i]->from == (bench->way == UP ? NULL : &bench->from->residence) &&
            series->idle[i]->to == (bench->way == DOWN ? NULL : &bench->to->residence))
            return series->idle[i];
    return NULL;
}

/* Figures with which a ring always pays. */
static void make_ring_pay(struct rig *rig)
{
    rig->device.link = (struct link_figures){.read = {COST_LINK, 1e-5, 1e11},
                                             .write = {COST_LINK, 1e-5, 1e11},
                                             .plain_read = {COST_LINK, 1e-5, 1e8},
                                             .plain_write = {COST_LINK, 1e-5, 1e8}};
}

Test(transfer, a_series_keeps_chunks_and_threads_by_their_ends, .timeout = 120)
{
    enum { SIZE = (20u << 20) + 77 };
    struct rig *a = rig_create(0, true), *b = rig_create(1, true);
    make_ring_pay(a);
    make_ring_pay(b);
    const struct bench ways[] = {{DOWN, a, NULL}, {UP, NULL, b}, {ACROSS, a, b}};
    struct transfer_series series = {.total = 64u << 20};
    const struct transfer_limits limits = {.series = &series};
    const struct transfer *kept[ARRAY_SIZE(ways)] = {NULL};
    bool blocked;
    for (uint32_t turn = 0; turn < 3; turn++)
        for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
            cr_assert_eq(move_one(&ways[i], &limits, SIZE + turn, 10 * turn + (uint32_t)i), 0);
            const struct transfer *now = kept_between(&series, &ways[i]);
            cr_assert_not_null(now);
            cr_assert(turn == 0 || now == kept[i], "way %zu: made anew", i);
            cr_assert(now->shape.chunk != 0 && now->chosen_for == 64u << 20);
            kept[i] = now;
        }
    int buffers = rig_live_buffers();
    unsigned threads = count_copy_threads(&blocked);
    cr_assert_gt(buffers, 0, "chunks stay registered");
    cr_assert_gt(threads, 0);
    /* Few bytes, as they are in a pause, go the same way. */
    cr_assert_eq(move_one(&ways[0], &limits, 999, 90), 0);
    cr_assert_eq(kept_between(&series, &ways[0]), kept[0]);
    cr_assert_eq(rig_live_buffers(), buffers);
    /* More than it was made for do not. */
    series.total = 128u << 20;
    cr_assert_eq(move_one(&ways[0], &limits, SIZE, 91), 0);
    cr_assert_eq(kept_between(&series, &ways[0])->chosen_for, 128u << 20);
    /* A fourth way has the one go that was not used for the longest. */
    const struct bench fourth = {DOWN, b, NULL};
    cr_assert_eq(move_one(&fourth, &limits, SIZE, 92), 0);
    cr_assert_null(kept_between(&series, &ways[1]));
    cr_assert_not_null(kept_between(&series, &ways[2]));
    transfer_series_finish(&series);
    cr_assert_eq(rig_live_buffers(), 0);
    cr_assert_eq(count_copy_threads(&blocked), 0);
    transfer_series_finish(&series); /* nothing is left */
    rig_destroy(a);
    rig_destroy(b);
}

/* To register waits for what a busy device runs: what one transfer registered the next one uses. */
Test(transfer, what_is_registered_is_kept_for_the_next, .timeout = 120)
{
    enum { SIZE = (20u << 20) + 77 };
    struct rig *a = rig_create(1, true), *b = rig_create(1, true);
    make_ring_pay(a);
    make_ring_pay(b);
    const struct transfer_limits none = {0};
    const struct bench down = {DOWN, a, NULL}, up = {UP, NULL, a}, across = {ACROSS, a, b};
    cr_assert_eq(move_one(&down, &none, SIZE, 1), 0);
    cr_assert_eq(rig_live_buffers(), 0, "no memory is kept unless somebody says so");
    pages_set_limit(256u << 20);
    cr_assert_eq(move_one(&down, &none, SIZE, 2), 0);
    cr_assert_eq(rig_live_buffers(), 1);
    rig_arm(RIG_CREATE_BUFFER, 1);
    for (uint32_t turn = 0; turn < 4; turn++)
        cr_assert_eq(move_one(&down, &none, SIZE, 3 + turn), 0);
    cr_assert(!rig_disarm(), "it was registered anew");
    /* The other way may need more: then that is what is kept. */
    cr_assert_eq(move_one(&up, &none, SIZE, 8), 0);
    rig_arm(RIG_CREATE_BUFFER, 1);
    cr_assert_eq(move_one(&up, &none, SIZE, 9), 0);
    cr_assert_eq(move_one(&down, &none, SIZE, 10), 0);
    cr_assert(!rig_disarm(), "it was registered anew");
    /* Between two devices only the second one has to learn of it, and forgets it. */
    cr_assert_eq(move_one(&across, &none, SIZE, 11), 0);
    cr_assert_eq(rig_live_buffers(), 1);
    /* What needs more has its own, and leaves that; a residence keeps one. */
    cr_assert_eq(move_one(&down, &none, 3 * SIZE, 11), 0);
    cr_assert_eq(rig_live_buffers(), 1);
    cr_assert_eq(move_one(&(const struct bench){UP, NULL, b}, &none, SIZE, 12), 0);
    cr_assert_eq(rig_live_buffers(), 2);
    pinned_forget(&b->residence);
    cr_assert_eq(rig_live_buffers(), 1);
    pages_set_limit(0);
    cr_assert_eq(rig_live_buffers(), 0);
    rig_destroy(a);
    rig_destroy(b);
}

Test(transfer, of_a_series_each_has_its_own_limits, .timeout = 120)
{
    enum { SIZE = (18u << 20) + 3 };
    struct rig *a = rig_create(0, true), *b = rig_create(1, true);
    make_ring_pay(a);
    make_ring_pay(b);
    const struct bench down = {DOWN, a, NULL}, up = {UP, NULL, b};
    struct transfer_series series = {.total = SIZE};
    _Atomic uint64_t done = 0, none = 0;
    atomic_bool cancel = false;
    const struct transfer_limits first = {.series = &series, .done = &none, .cancel = &cancel};
    cr_assert_eq(move_one(&down, &first, SIZE, 1), 0);
    const struct transfer *kept = kept_between(&series, &down);
    cr_assert_not_null(kept);
    atomic_store(&none, 0);
    atomic_store(&cancel, true); /* the first one's: it has ended */
    const struct transfer_limits second = {.series = &series, .done = &done};
    cr_assert_eq(move_one(&down, &second, SIZE, 2), 0);
    cr_assert_eq(kept_between(&series, &down), kept);
    cr_assert_eq(done, SIZE - 5);
    cr_assert_eq(none, 0);
    /* One that failed leaves nothing to the next. */
    cr_assert_eq(move_one(&down, &first, SIZE, 3), -ECANCELED);
    cr_assert_null(kept_between(&series, &down));
    rig_arm(RIG_READ_BUFFER, 2);
    cr_assert_eq(move_one(&down, &second, SIZE, 4), -EIO);
    cr_assert(rig_disarm());
    cr_assert_null(kept_between(&series, &down));
    cr_assert_eq(rig_live_buffers(), 0);
    cr_assert_eq(move_one(&down, &second, SIZE, 5), 0);

    /* What goes straight from host memory is not for memory that the program lent. */
    b->device.link.plain_write.bandwidth = 1e12;
    cr_assert_eq(move_one(&up, &second, SIZE, 6), 0);
    cr_assert_eq(kept_between(&series, &up)->shape.chunk, 0);
    const struct transfer_limits user_memory = {.series = &series, .user_memory = true};
    cr_assert_eq(move_one(&up, &user_memory, SIZE, 7), 0);
    cr_assert_neq(kept_between(&series, &up)->shape.chunk, 0);
    transfer_series_finish(&series);
    cr_assert_eq(rig_live_buffers(), 0);
    cr_assert_eq(rig_live_events(), 0);
    rig_destroy(a);
    rig_destroy(b);
}

Test(transfer, what_was_measured_once_is_not_measured_again)
{
    enum { TOTAL = 40u << 20 };
    char folder[SCRATCH_MAX];
    struct link_figures figures;
    struct host_figures host;
    struct transfer_shape shape;
    struct cost_choice choice;
    folder_make(folder);
    snprintf(the_links.folder, sizeof(the_links.folder), "%s/links", folder);
    struct rig *a = rig_create(0, true);
    const struct device *device = &a->device;
    cr_assert_eq(links_find(&the_links, &device->key, &device->info, &figures, NULL), -ENOENT);
    transfer_destroy(start(&(struct bench){DOWN, a, NULL}, NULL, TOTAL, NULL));
    cr_assert_eq(links_find(&the_links, &device->key, &device->info, &figures, NULL), 0);
    cr_assert_eq(links_find_host(&the_links, &host, NULL), 0);
    cr_assert_eq(memcmp(&figures, &device->link, sizeof(figures)), 0);

    figures.plain_read.bandwidth = 1.5e6; /* no real one */
    figures.read.bandwidth = 2.5e9;
    links_keep(&the_links, &device->key, &device->info, &figures);
    const struct cost_way way = {
        .from = &figures, .host = &host, .total = TOTAL, .cores = host_cores(), .link = true};
    cost_route(&way, &choice);
    struct rig *b = rig_create(0, true); /* as another process would */
    struct transfer *transfer = start(&(struct bench){DOWN, b, NULL}, NULL, TOTAL, NULL);
    transfer_describe(transfer, &shape);
    cr_assert_lt(shape.predicted, choice.seconds * (1 + 1e-9));
    cr_assert_gt(shape.predicted, choice.seconds * (1 - 1e-9));
    transfer_destroy(transfer);
    the_links.folder[0] = '\0';
    rig_destroy(a);
    rig_destroy(b);
}
