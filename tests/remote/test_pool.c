#include "tests/support/cases.h"
#include <stdint.h>

#include "remote/wire/stream.h"

/* Memory for bytes on their way: used again once nobody holds it, and little of it kept. */

#define MOST ((size_t)1 << 20)

Test(pool, what_nobody_holds_is_used_again)
{
    struct pool pool;
    pool_init(&pool, MOST);
    struct pooled *first = pool_take(&pool, 300000);
    cr_assert(first && first->room >= 300000);
    pooled_hold(first);
    pooled_drop(first);
    struct pooled *second = pool_take(&pool, 300000);
    cr_assert_neq(second, first);
    pooled_drop(first);
    cr_assert_eq(pool_take(&pool, 290000), first);
    pooled_drop(first);
    pooled_drop(second);
    pooled_drop(NULL);
    /* What was used last is taken first. */
    cr_assert_eq(pool_take(&pool, 300000), second);
    pooled_drop(second);
    pool_finish(&pool);
    cr_assert_eq(pool.free_bytes, 0);
}

Test(pool, no_small_need_takes_large_memory)
{
    struct pool pool;
    pool_init(&pool, MOST);
    struct pooled *large = pool_take(&pool, 800000);
    pooled_drop(large);
    struct pooled *small = pool_take(&pool, 70000), *larger = pool_take(&pool, 900000);
    cr_assert_neq(small, large);
    cr_assert_neq(larger, large);
    cr_assert(larger->room >= 900000);
    pooled_drop(small);
    pooled_drop(larger);
    pool_finish(&pool);
}

Test(pool, what_is_free_is_bounded)
{
    struct pooled *taken[8];
    struct pool pool;
    pool_init(&pool, MOST);
    for (int i = 0; i < 8; i++)
        cr_assert(taken[i] = pool_take(&pool, MOST / 4));
    for (int i = 0; i < 8; i++) {
        pooled_drop(taken[i]);
        cr_assert_leq(pool.free_bytes, MOST);
    }
    cr_assert_eq(pool.free_bytes, MOST);
    /* The oldest went. */
    for (int i = 7; i >= 4; i--)
        cr_assert_eq(pool_take(&pool, MOST / 4), taken[i]);
    for (int i = 4; i < 8; i++)
        pooled_drop(taken[i]);
    pool_finish(&pool);
}

Test(pool, what_is_not_used_is_given_up)
{
    struct pool pool;
    pool_init(&pool, MOST);
    struct pooled *memory = pool_take(&pool, 100000);
    pooled_drop(memory);
    pool_tidy(&pool);
    cr_assert_gt(pool.free_bytes, 0);
    pool_tidy(&pool);
    cr_assert_eq(pool.free_bytes, 0);
    cr_assert_null(pool.newest);
    cr_assert_null(pool.oldest);
    pool_finish(&pool);
}

Test(pool, more_than_there_can_be_is_refused)
{
    struct pool pool;
    pool_init(&pool, MOST);
    cr_assert_null(pool_take(&pool, SIZE_MAX / 2 + 1));
    cr_assert_null(pool_take(&pool, SIZE_MAX - 8));
    pool_finish(&pool);
}
