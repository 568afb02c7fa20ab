#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "remote/rings/area.h"
#include "remote/rings/bulk.h"
#include "tests/remote/rings/link_rig.h"

#define AREA ((size_t)4 << 20)
#define PAGE 4096u

static const struct bulk_limits limits = {.areas = 4, .area_size = AREA, .all_bytes = 6 * AREA};
static struct bulk *bulk;
static struct bulk_map *map;
static int offer_error;
static _Atomic unsigned offered, withdrawn;

/* The server is in this process. */
static int offer(void *data, uint32_t area, int fd, size_t size)
{
    cr_assert_eq(data, &limits);
    if (offer_error != 0)
        return offer_error;
    atomic_fetch_add(&offered, 1);
    return bulk_map_add(map, area, fd, size);
}

static void withdraw(void *data, uint32_t area)
{
    (void)data;
    atomic_fetch_add(&withdrawn, 1);
    cr_assert_eq(bulk_map_remove(map, area), 0);
}

static void begin(void)
{
    const struct bulk_link link = {offer, withdraw, (void *)&limits};
    cr_assert_eq(bulk_create(&limits, &link, &bulk), 0);
    cr_assert_eq(bulk_map_create(&limits, &map), 0);
}

static void end(void)
{
    bulk_destroy(bulk);
    bulk_map_destroy(map);
}

TestSuite(bulk, .init = begin, .fini = end, .timeout = 100);

/* The same bytes, on the server's side. */
static char *servers(const struct bulk_block *block)
{
    char *bytes = NULL;
    cr_assert_eq(bulk_map_hold(map, block->area, block->offset, block->size, &bytes), 0);
    return bytes;
}

Test(bulk, the_server_has_the_same_bytes_elsewhere)
{
    struct bulk_block block;
    cr_assert_eq(bulk_take(bulk, 3 * PAGE + 1, &block), 0);
    cr_assert_eq(block.size, 4 * PAGE);
    char *bytes = servers(&block);
    cr_assert_neq(bytes, block.bytes);
    frame_fill(block.bytes, block.size, 1);
    cr_assert(frame_is(bytes, block.size, 1));
    frame_fill(bytes, block.size, 2);
    cr_assert(frame_is(block.bytes, block.size, 2));
    bulk_map_release(map, block.area);
    bulk_give(bulk, &block);
}

static const atomic_uint mapped = 1;

static struct bulk_loan *lend_at_most(size_t size, uint64_t most)
{
    struct bulk_block block;
    struct bulk_loan *loan = bulk_loan_begin(bulk, size, most);
    if (!loan)
        return NULL;
    cr_assert_eq(bulk_take(bulk, size, &block), 0);
    cr_assert_eq(bulk_lend(loan, &block, &mapped), 0);
    return loan;
}

static struct bulk_loan *lend(size_t size)
{
    struct bulk_loan *loan = lend_at_most(size, UINT64_MAX);
    cr_assert_not_null(loan);
    return loan;
}

static bool may_lend(size_t size, uint64_t most)
{
    struct bulk_loan *loan = bulk_loan_begin(bulk, size, most);
    bulk_return(loan);
    return loan != NULL;
}

Test(bulk, loans_are_bounded_until_they_are_returned)
{
    struct bulk_block block;
    cr_assert(may_lend(2 * AREA, 2 * AREA));
    cr_assert(!may_lend(2 * AREA + 1, 2 * AREA));
    struct bulk_loan *first = lend(AREA), *second = lend(PAGE);
    cr_assert(!may_lend(AREA, 2 * AREA) && may_lend(AREA - PAGE, 2 * AREA));
    cr_assert(!may_lend(1, PAGE));
    cr_assert_eq(bulk_take(bulk, 2 * PAGE, &block), 0);
    cr_assert_eq(bulk_lend(second, &block, &mapped), -EINVAL, "a block of another size");
    bulk_give(bulk, &block);
    bulk_return(second);
    cr_assert(may_lend(AREA, 2 * AREA) && !may_lend(AREA + 1, 2 * AREA));
    struct bulk_loan *third = lend(AREA);
    cr_assert(may_lend(PAGE, 6 * AREA));
    struct bulk_loan *fourth = lend(AREA);
    cr_assert(!may_lend(PAGE, 6 * AREA), "no area is left for transfers");
    bulk_return(fourth);
    bulk_return(third);
    bulk_return(first);
    bulk_return(NULL);
    (void)bulk_trim(bulk, 0);
    cr_assert(may_lend(2 * AREA, 2 * AREA));
    cr_assert_eq(bulk_trim(bulk, 0), 0, "a loan was not returned");
}

enum { LENDERS = 8, LENT_EACH = 200 };
static _Atomic size_t lent_now, lent_most;

static void *lend_often(void *data)
{
    (void)data;
    for (int i = 0; i < LENT_EACH; i++) {
        struct bulk_loan *loan = lend_at_most(PAGE, 3 * PAGE);
        if (!loan)
            continue;
        size_t now = atomic_fetch_add(&lent_now, 1) + 1, most = atomic_load(&lent_most);
        while (now > most && !atomic_compare_exchange_weak(&lent_most, &most, now))
            ;
        sched_yield();
        atomic_fetch_sub(&lent_now, 1);
        bulk_return(loan);
    }
    return NULL;
}

/* Between the look at what is lent and the loan another thread must not lend the same bytes. */
Test(bulk, threads_that_lend_at_once_keep_to_the_bound_together)
{
    pthread_t threads[LENDERS];
    bulk_return(lend(PAGE)); /* An area is there: none is made meanwhile. */
    for (int i = 0; i < LENDERS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, lend_often, NULL), 0);
    for (int i = 0; i < LENDERS; i++)
        pthread_join(threads[i], NULL);
    cr_assert(atomic_load(&lent_most) > 0 && atomic_load(&lent_most) <= 3, "%zu pages were lent",
              atomic_load(&lent_most));
    cr_assert(may_lend(3 * PAGE, 3 * PAGE), "a loan was not returned");
}

/* What the server writes from then on is not seen, and what it wrote before is. */
Test(bulk, a_loan_is_the_clients_alone_once_it_is_detached)
{
    struct bulk_loan *loans[3];
    char *bytes[3];
    for (int i = 0; i < 3; i++) {
        loans[i] = lend(3 * PAGE);
        bytes[i] = servers(bulk_loan_block(loans[i]));
        frame_fill(bytes[i], 3 * PAGE, (unsigned)i);
    }
    bulk_return(loans[1]);
    bulk_detach(bulk);
    bulk_detach(bulk);
    for (int i = 0; i < 3; i += 2) {
        char *here = bulk_loan_block(loans[i])->bytes;
        frame_fill(bytes[i], 3 * PAGE, 9);
        cr_assert(frame_is(here, 3 * PAGE, (unsigned)i));
        frame_fill(here, 3 * PAGE, 7);
        cr_assert(frame_is(bytes[i], 3 * PAGE, 9));
    }
    bulk_return(loans[0]);
    const char *last = bulk_loan_block(loans[2])->bytes;
    bulk_destroy(bulk);
    bulk = NULL;
    cr_assert(frame_is(last, 3 * PAGE, 7));
    bulk_return(loans[2]);
}

#define BLOCKS 64

/* Blocks that do not touch each other's bytes, in areas that the server has, within the limits. */
Test(bulk, blocks_are_apart_and_all_of_it_can_be_taken_again)
{
    struct bulk_block blocks[BLOCKS] = {{0}};
    struct dice dice = {5};
    unsigned taken = 0, refused = 0;
    for (int step = 0; step < 6000; step++) {
        unsigned i = (unsigned)dice_below(&dice, BLOCKS);
        struct bulk_block *block = &blocks[i];
        if (block->size != 0) {
            uint64_t *bytes = (uint64_t *)servers(block);
            for (size_t k = 0; k < block->size / 8; k += PAGE / 8)
                cr_assert_eq(bytes[k], i * 1000 + k);
            bulk_map_release(map, block->area);
            bulk_give(bulk, block);
            block->size = 0;
            continue;
        }
        size_t size = 1 + dice_below(&dice, dice_below(&dice, 8) ? 40 * PAGE : AREA);
        int err = bulk_take(bulk, size, block);
        if (err == -ENOSPC) {
            refused++;
            continue;
        }
        cr_assert_eq(err, 0);
        taken++;
        cr_assert(block->size >= size && block->size < size + PAGE && block->size % PAGE == 0);
        cr_assert(size < AREA_ALIGNMENT || block->offset % AREA_ALIGNMENT == 0);
        for (size_t k = 0; k < block->size / 8; k += PAGE / 8)
            ((uint64_t *)block->bytes)[k] = i * 1000 + k;
    }
    cr_assert(taken > 1000 && refused > 0);
    for (unsigned i = 0; i < BLOCKS; i++)
        if (blocks[i].size != 0)
            bulk_give(bulk, &blocks[i]);
    /* Nothing was lost to holes. */
    cr_assert_eq(atomic_load(&offered), 4);
    for (unsigned i = 0; i < 4; i++)
        cr_assert_eq(bulk_take(bulk, AREA, &blocks[i]), 0);
    cr_assert_eq(atomic_load(&offered), 4);
    cr_assert_eq(bulk_take(bulk, 1, &blocks[4]), -ENOSPC);
    for (unsigned i = 0; i < 4; i++)
        bulk_give(bulk, &blocks[i]);
    cr_assert_eq(bulk_trim(bulk, 0), 0);
    cr_assert_eq(atomic_load(&withdrawn), 4);
}

Test(bulk, sizes_that_cannot_be_are_refused)
{
    const size_t sizes[] = {6 * AREA + 1, SIZE_MAX, SIZE_MAX - PAGE, SIZE_MAX - AREA_ALIGNMENT, 0};
    struct bulk_block block = {.area = 77};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        cr_assert_eq(bulk_take(bulk, sizes[i], &block), -ENOSPC);
    cr_assert_eq(block.area, 77);
    cr_assert_eq(atomic_load(&offered), 0);
    cr_assert_eq(bulk_take(bulk, 6 * AREA, &block), 0); /* all in one */
    bulk_give(bulk, &block);
}

Test(bulk, what_the_server_refuses_is_given_to_nobody)
{
    struct bulk_block block = {.area = 77};
    offer_error = -EPIPE;
    for (int i = 0; i < 20; i++)
        cr_assert_eq(bulk_take(bulk, AREA, &block), -EPIPE);
    cr_assert_eq(block.area, 77);
    offer_error = 0;
    cr_assert_eq(bulk_take(bulk, 6 * AREA, &block), 0); /* the limits do not count them */
    bulk_give(bulk, &block);
}

Test(bulk, what_is_idle_is_kept_up_to_a_limit)
{
    struct bulk_block blocks[3];
    for (int i = 0; i < 3; i++)
        cr_assert_eq(bulk_take(bulk, AREA, &blocks[i]), 0);
    cr_assert_eq(bulk_trim(bulk, 0), 3 * AREA);
    bulk_give(bulk, &blocks[0]);
    bulk_give(bulk, &blocks[2]);
    cr_assert_eq(bulk_trim(bulk, 2 * AREA), 3 * AREA);
    cr_assert_eq(bulk_trim(bulk, AREA), 2 * AREA);
    cr_assert_eq(atomic_load(&withdrawn), 1);
    blocks[1].bytes[0] = 1; /* it is there still */
    bulk_give(bulk, &blocks[1]);
    cr_assert_eq(bulk_trim(bulk, 0), 0);
    cr_assert_eq(atomic_load(&withdrawn), 3);
}

Test(bulk, a_child_of_a_fork_takes_and_gives_nothing)
{
    struct bulk_block block, other;
    int status;
    cr_assert_eq(bulk_take(bulk, AREA, &block), 0);
    block.bytes[0] = 5;
    pid_t child = fork();
    if (child == 0) {
        bulk_give(bulk, &block);
        _exit(bulk_take(bulk, 1, &other) != -ECHILD || block.bytes[0] != 5);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    bulk_give(bulk, &block);
    cr_assert_eq(bulk_trim(bulk, 0), 0);
}

static void *takes_and_gives(void *data)
{
    struct dice dice = {(uintptr_t)data};
    for (int i = 0; i < 3000; i++) {
        struct bulk_block block;
        int err = bulk_take(bulk, 1 + dice_below(&dice, 100 * PAGE), &block);
        if (err == -ENOSPC)
            continue;
        cr_assert_eq(err, 0);
        uint64_t mark = (uintptr_t)data * 100000 + (unsigned)i;
        *(uint64_t *)block.bytes = mark;
        uint64_t *bytes = (uint64_t *)servers(&block);
        cr_assert_eq(*bytes, mark);
        bulk_map_release(map, block.area);
        bulk_give(bulk, &block);
        if (i % 100 == 0)
            (void)bulk_trim(bulk, dice_below(&dice, 2) * AREA);
    }
    return NULL;
}

Test(bulk, threads_take_and_give_at_once)
{
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, takes_and_gives, (void *)(i + 1)), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    cr_assert_eq(bulk_trim(bulk, 0), 0);
    cr_assert_eq(atomic_load(&offered), atomic_load(&withdrawn));
}

/* ---- the server, and a client that says what it wants ---- */

static int area_of(size_t size)
{
    int fd;
    cr_assert_eq(area_create("test", size, &fd), 0);
    return fd;
}

Test(bulk, the_server_holds_only_what_is_there)
{
    const struct {
        uint32_t area;
        uint64_t offset, size;
    } no[] = {{2, 0, 1},
              {1, 0, AREA + 1},
              {1, AREA, 1},
              {1, AREA + 1, 0},
              {1, 1, AREA},
              {1, UINT64_MAX, 1},
              {1, UINT64_MAX, UINT64_MAX},
              {1, 1, UINT64_MAX},
              {1, PAGE, UINT64_MAX - PAGE + 1},
              {1, UINT64_MAX - PAGE + 1, 2 * PAGE},
              {UINT32_MAX, 0, 1}};
    const struct {
        uint64_t offset, size;
    } yes[] = {{0, AREA}, {AREA, 0}, {AREA - 1, 1}, {PAGE, AREA - PAGE}};
    int fd = area_of(AREA);
    char *bytes = NULL, *first = NULL;
    cr_assert_eq(bulk_map_add(map, 1, fd, AREA), 0);
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        cr_assert_eq(bulk_map_hold(map, no[i].area, no[i].offset, no[i].size, &bytes), -EPROTO);
    cr_assert_null(bytes);
    cr_assert_eq(bulk_map_hold(map, 1, 0, 1, &first), 0);
    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
        cr_assert_eq(bulk_map_hold(map, 1, yes[i].offset, yes[i].size, &bytes), 0);
        cr_assert_eq(bytes, first + yes[i].offset);
    }
    close(fd);
}

Test(bulk, the_server_maps_no_more_than_was_agreed)
{
    int fd = area_of(AREA), large = area_of(7 * AREA), odd = area_of(AREA + PAGE);
    cr_assert_eq(bulk_map_add(map, 1, large, 7 * AREA), -ENOSPC);
    cr_assert_eq(bulk_map_add(map, 1, odd, AREA + PAGE), -EPROTO);
    cr_assert_eq(bulk_map_add(map, 1, fd, 2 * AREA), -EPROTO); /* it is smaller */
    cr_assert_eq(bulk_map_add(map, 1, fd, 0), -EPROTO);
    cr_assert_eq(bulk_map_add(map, 1, -1, AREA), -EPROTO);
    for (uint32_t i = 1; i <= 4; i++)
        cr_assert_eq(bulk_map_add(map, i, fd, AREA), 0);
    cr_assert_eq(bulk_map_add(map, 5, fd, AREA), -ENOSPC);
    cr_assert_eq(bulk_map_add(map, 4, fd, AREA), -EPROTO);
    cr_assert_eq(bulk_map_remove(map, 5), -EPROTO);
    cr_assert_eq(bulk_map_remove(map, 4), 0);
    cr_assert_eq(bulk_map_remove(map, 4), -EPROTO);
    cr_assert_eq(bulk_map_add(map, 5, fd, AREA), 0);
    close(fd);
    close(large);
    close(odd);
}

Test(bulk, what_is_held_stays_until_it_is_released)
{
    int fd = area_of(AREA);
    char *bytes, *more;
    cr_assert_eq(bulk_map_add(map, 9, fd, AREA), 0);
    cr_assert_eq(bulk_map_hold(map, 9, PAGE, PAGE, &bytes), 0);
    cr_assert_eq(bulk_map_hold(map, 9, 0, AREA, &more), 0);
    cr_assert_eq(bulk_map_remove(map, 9), 0);
    bulk_map_release(map, 9);
    bytes[0] = 1; /* mapped still */
    cr_assert_eq(bulk_map_hold(map, 9, 0, 1, &more), -EPROTO);
    cr_assert_eq(bulk_map_add(map, 9, fd, AREA), -EPROTO); /* a number that is in use still */
    bulk_map_release(map, 9);
    cr_assert_neq(msync(bytes, PAGE, MS_ASYNC), 0); /* not mapped any more */
    cr_assert_eq(bulk_map_add(map, 9, fd, AREA), 0);
    bulk_map_release(map, 9); /* of nothing: nothing happens */
    cr_assert_eq(bulk_map_hold(map, 9, 0, 1, &more), 0);
    close(fd);
}

/* What is asked for after an area is in none that was there by then, however much of it is free. */
Test(bulk, blocks_after_an_area_are_of_younger_ones)
{
    struct bulk_block old, young, other, any;
    cr_assert_eq(bulk_last(bulk), 0);
    cr_assert_eq(bulk_take(bulk, PAGE, &old), 0);
    uint32_t last = bulk_last(bulk);
    cr_assert_eq(last, old.area);
    cr_assert_eq(bulk_take_after(bulk, last, PAGE, &young), 0);
    cr_assert_gt(young.area, last);
    cr_assert_eq(bulk_take_after(bulk, last, PAGE, &other), 0);
    cr_assert_eq(other.area, young.area);
    cr_assert_eq(atomic_load(&offered), 2);
    bulk_give(bulk, &other);
    bulk_give(bulk, &young);
    cr_assert_eq(bulk_take_after(bulk, last, AREA, &young), 0);
    cr_assert_eq(bulk_take(bulk, PAGE, &any), 0);
    cr_assert_eq(any.area, old.area, "there is none but there");
    cr_assert_eq(bulk_last(bulk), young.area);
    bulk_give(bulk, &old);
    bulk_give(bulk, &young);
    bulk_give(bulk, &any);
}
