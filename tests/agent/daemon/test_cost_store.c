#include <criterion/criterion.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/daemon/costs/store.h"

/* The file with what launches cost, without an agent. */

static char folder[64];

static void begin(void)
{
    strcpy(folder, "/tmp/reseat-costs-XXXXXX");
    cr_assert(mkdtemp(folder));
}

static void finish(void)
{
    static const char *const names[] = {"costs.sqlite", "costs.sqlite-wal", "costs.sqlite-shm",
                                        "costs.sqlite.damaged"};
    char path[128];

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
    }
    cr_assert_eq(rmdir(folder), 0);
}

TestSuite(cost_store, .init = begin, .fini = finish, .timeout = 120);

static void write_rows(struct cost_store *store, struct cost_row *rows, size_t count)
{
    cost_store_write(store, rows, count);
    cr_assert(cost_store_is_writing(store));
    cr_assert(cost_store_poll(store, true, &rows, &count));
    cr_assert_null(rows, "not all was written");
}

/** @count kernels of @uid, called k0 and so on, of which the first was unused for longest. */
static struct cost_row *rows_of(uid_t uid, size_t count, uint64_t ns)
{
    struct cost_row *rows = calloc(count, sizeof(*rows));

    cr_assert(rows);
    for (size_t i = 0; i < count; i++) {
        rows[i].uid = uid;
        snprintf(rows[i].id, sizeof(rows[i].id), "%032zx", i);
        snprintf(rows[i].name, sizeof(rows[i].name), "k%zu", i);
        strcpy(rows[i].device, "device=one");
        rows[i].used_s = (int64_t)i;
        costs_add(&rows[i].costs, 1024, ns);
    }
    return rows;
}

static void sum_up(void *data, const char *name, const char *device, unsigned size,
                   const struct cost_point *point, int64_t used_s)
{
    struct cost_record record;

    (void)name, (void)device, (void)size, (void)used_s;
    cost_record_of(point, &record);
    *(uint64_t *)data += record.ns;
}

static uint64_t read_first(struct cost_store *store, uid_t uid)
{
    uint64_t sum = 0;

    cost_store_read(store, uid, "00000000000000000000000000000000", sum_up, &sum);
    return sum;
}

Test(cost_store, each_user_has_what_its_own_programs_measured)
{
    struct cost_store *store = cost_store_create(folder);

    write_rows(store, rows_of(1000, 1, 5000), 1);
    write_rows(store, rows_of(1001, 1, 80000), 1);
    cr_expect_leq(read_first(store, 1000), 5010);
    cr_expect_geq(read_first(store, 1001), 79000);
    cr_expect_eq(read_first(store, 1002), 0);
    cost_store_destroy(store);
    store = cost_store_create(folder);
    cr_expect_leq(read_first(store, 1000), 5010, "after it was opened again");
    cost_store_destroy(store);
}

static void count_one(void *data, const char *id, const char *name, const char *device,
                      const struct cost_point *point)
{
    (void)id, (void)name, (void)device, (void)point;
    ++*(uint64_t *)data;
}

Test(cost_store, what_was_unused_for_longest_goes_when_a_user_has_too_much)
{
    struct cost_store *store = cost_store_create(folder);
    uint64_t count = 0;

    write_rows(store, rows_of(1001, 1, 80000), 1);
    write_rows(store, rows_of(1000, COST_POINTS_MOST + 10, 5000), COST_POINTS_MOST + 10);
    cr_expect_not(cost_store_list(store, 1000, NULL, COST_POINTS_MOST + 10, count_one, &count));
    cr_expect_eq(count, COST_POINTS_MOST);
    cr_expect_eq(read_first(store, 1000), 0, "the oldest is there still");
    cr_expect_neq(read_first(store, 1001), 0, "another user's went");
    count = 0;
    cr_expect(cost_store_list(store, 1000, NULL, 5, count_one, &count), "there are more");
    cr_expect_eq(count, 5);
    cost_store_destroy(store);
}

/** @count programs of @uid, called k0 and so on, of which the first was unused for longest. */
static struct cost_row *peaks_of(uid_t uid, size_t count, uint64_t bytes)
{
    struct cost_row *rows = rows_of(uid, count, 1);

    for (size_t i = 0; i < count; i++)
        rows[i].peak = bytes;
    return rows;
}

Test(cost_store, the_memory_of_programs_is_kept_by_user_and_bounded)
{
    struct cost_store *store = cost_store_create(folder);

    write_rows(store, peaks_of(1000, 1, 5000), 1);
    write_rows(store, peaks_of(1001, 1, 80000), 1);
    cost_store_destroy(store);
    store = cost_store_create(folder);
    cr_expect_eq(cost_store_peak(store, 1000, "k0"), 5000);
    cr_expect_eq(cost_store_peak(store, 1001, "k0"), 80000);
    cr_expect_eq(cost_store_peak(store, 1002, "k0"), 0);
    cr_expect_eq(cost_store_peak(store, 1000, "k1"), 0);
    write_rows(store, peaks_of(1000, COST_PEAKS_MOST + 1, 7), COST_PEAKS_MOST + 1);
    cr_expect_eq(cost_store_peak(store, 1000, "k0"), 0, "the oldest is there still");
    cr_expect_eq(cost_store_peak(store, 1000, "k1"), 7);
    cr_expect_eq(cost_store_peak(store, 1001, "k0"), 80000, "another user's went");
    cr_expect_eq(read_first(store, 1000), 0, "a peak is taken for what a kernel costs");
    cost_store_destroy(store);
}

Test(cost_store, a_file_of_a_newer_release_is_left_alone)
{
    char path[128];
    sqlite3 *db;
    struct cost_store *store = cost_store_create(folder);

    write_rows(store, rows_of(1000, 1, 5000), 1);
    cost_store_destroy(store);
    snprintf(path, sizeof(path), "%s/costs.sqlite", folder);
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, "PRAGMA user_version=99", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    store = cost_store_create(folder);
    cr_expect_eq(read_first(store, 1000), 0);
    write_rows(store, rows_of(1000, 1, 80000), 1);
    cr_expect_neq(read_first(store, 1000), 0, "it learns in memory");
    cost_store_destroy(store);
}
