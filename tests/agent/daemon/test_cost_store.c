#include "tests/support/cases.h"
#include <pthread.h>
#include <sqlite3.h>
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
    struct cost_job job = {.rows = rows, .count = count};

    cr_assert_eq(cost_store_start(store, &job, NULL, NULL), 0);
    cost_store_wait(store);
    cr_assert_eq(job.result, SQLITE_OK, "not all was written");
    free(rows);
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

static void sum_up(void *data, const char *device, unsigned size, const struct cost_point *point)
{
    struct cost_record record;

    (void)device, (void)size;
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

/** What a question is answered with; free it with cost_queries_free(). */
static struct cost_query *ask(struct cost_store *store, struct cost_query asked)
{
    struct cost_query *query = malloc(sizeof(*query));
    struct cost_job job = {.queries = query};

    cr_assert(query);
    *query = asked;
    cost_store_run(store, &job);
    cr_assert(query->answered);
    return query;
}

static size_t count_of(struct cost_store *store, struct cost_query asked)
{
    struct cost_query *query = ask(store, asked);
    size_t count = query->count;

    cr_expect_eq(query->more, asked.more, "%zu", count);
    cost_queries_free(query);
    return count;
}

Test(cost_store, what_was_unused_for_longest_goes_when_a_user_has_too_much)
{
    struct cost_store *store = cost_store_create(folder);
    struct cost_query all = {.uid = 1000, .most = COST_POINTS_MOST + 10};

    write_rows(store, rows_of(1001, 1, 80000), 1);
    write_rows(store, rows_of(1000, COST_POINTS_MOST + 10, 5000), COST_POINTS_MOST + 10);
    cr_expect_eq(count_of(store, all), COST_POINTS_MOST);
    cr_expect_eq(read_first(store, 1000), 0, "the oldest is there still");
    cr_expect_neq(read_first(store, 1001), 0, "another user's went");
    cr_expect_eq(count_of(store, (struct cost_query){.uid = 1000, .most = 5, .more = true}), 5);
    cost_store_destroy(store);
}

Test(cost_store, users_in_any_order_keep_their_newest)
{
    struct cost_store *store = cost_store_create(folder);
    struct cost_row *rows = rows_of(1000, COST_POINTS_MOST + 1, 5000);

    rows[5].uid = 1001;
    write_rows(store, rows, COST_POINTS_MOST + 1);
    write_rows(store, rows_of(1000, 6, 80000), 6); /* the sixth is the other user's */
    cr_expect_eq(count_of(store, (struct cost_query){.uid = 1000, .most = COST_POINTS_MOST + 1}),
                 COST_POINTS_MOST);
    cr_expect_eq(count_of(store, (struct cost_query){.uid = 1001, .most = 9}), 1);
    cost_store_destroy(store);
}

Test(cost_store, a_question_is_of_a_kernel_of_some_kernels_or_of_a_device)
{
    struct cost_store *store = cost_store_create(folder);
    struct cost_row *rows = rows_of(1000, 4, 5000);

    strcpy(rows[3].device, "device=other");
    write_rows(store, rows, 4);
    cr_expect_eq(count_of(store, (struct cost_query){.uid = 1000, .most = 9, .kernel = "k2"}), 1);
    cr_expect_eq(
        count_of(store, (struct cost_query){.uid = 1000, .most = 9, .device = "device=one"}), 3);
    cr_expect_eq(count_of(store, (struct cost_query){.uid = 1000, .most = 9, .ids = "[]"}), 0);
    cr_expect_eq(
        count_of(store, (struct cost_query){.uid = 1000,
                                            .most = 9,
                                            .ids = "[\"00000000000000000000000000000001\","
                                                   "\"00000000000000000000000000000003\"]"}),
        2);
    struct cost_query *rest = ask(store, (struct cost_query){.uid = 1000, .most = 9, .skip = 3});
    cr_assert_eq(rest->count, 1);
    cr_expect_str_eq(rest->listed[0].name, "k3");
    cost_queries_free(rest);
    cost_store_destroy(store);
}

Test(cost_store, power_and_samples_beyond_the_limit_are_kept)
{
    struct cost_store *store = cost_store_create(folder);
    struct cost_row *rows = rows_of(1000, 1, 5000);

    for (unsigned i = 0; i < 8; i++)
        costs_add(&rows[0].costs, 1024, 5000);
    costs_add_power(&rows[0].costs, 1024, 70000);
    costs_add(&rows[0].costs, 1024, 5000000);
    write_rows(store, rows, 1);
    struct cost_query *query = ask(store, (struct cost_query){.uid = 1000, .most = 9});
    cr_assert_eq(query->count, 1);
    cr_expect_eq(query->listed[0].point.time.outliers, 1);
    cr_expect_eq(query->listed[0].point.power.count, 1);
    cr_expect_float_eq(query->listed[0].point.power.mean, 16.11, 0.01); /* log2(71000) */
    cost_queries_free(query);
    cost_store_destroy(store);
}

static void change_file(const char *sql)
{
    char path[128];
    sqlite3 *db;

    snprintf(path, sizeof(path), "%s/costs.sqlite", folder);
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, "%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

Test(cost_store, a_file_of_the_first_version_is_read)
{
    change_file("CREATE TABLE cost(uid INTEGER NOT NULL, kernel TEXT NOT NULL, name TEXT NOT NULL, "
                "device TEXT NOT NULL, size INTEGER NOT NULL, count REAL NOT NULL, items REAL NOT "
                "NULL, time REAL NOT NULL, spread REAL NOT NULL, used INTEGER NOT NULL, "
                "UNIQUE(uid, kernel, device, size)); PRAGMA user_version=1;"
                "INSERT INTO cost VALUES(1000, '00000000000000000000000000000000', 'k0', "
                "'device=one', 10, 5, 10, 12, 0, 7)");
    struct cost_store *store = cost_store_create(folder);
    cr_expect_eq(read_first(store, 1000), 4096);
    write_rows(store, rows_of(1000, 2, 5000), 2);
    cr_expect_eq(count_of(store, (struct cost_query){.uid = 1000, .most = 9}), 2);
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
    struct cost_store *store = cost_store_create(folder);

    write_rows(store, rows_of(1000, 1, 5000), 1);
    cost_store_destroy(store);
    change_file("PRAGMA user_version=99");
    store = cost_store_create(folder);
    cr_expect_eq(read_first(store, 1000), 0);
    write_rows(store, rows_of(1000, 1, 80000), 1);
    cr_expect_neq(read_first(store, 1000), 0, "it learns in memory");
    cost_store_destroy(store);
}

Test(cost_store, rows_that_cannot_be_listed_are_passed_and_the_rest_is_listed)
{
    struct cost_store *store = cost_store_create(folder);

    write_rows(store, rows_of(1000, 3, 5000), 3);
    cost_store_destroy(store);
    change_file("UPDATE cost SET count=-1 WHERE name='k0'");
    store = cost_store_create(folder);
    struct cost_query *first = ask(store, (struct cost_query){.uid = 1000, .most = 2});
    cr_expect(first->more && first->count == 1 && first->passed == 2);
    cost_queries_free(first);
    cr_expect_eq(count_of(store, (struct cost_query){.uid = 1000, .skip = 2, .most = 2}), 1);
    struct cost_query *import = ask(store, (struct cost_query){.uid = 1000, .imports = true});
    cr_expect_eq(import->kept, 3);
    cost_queries_free(import);
    cost_store_destroy(store);
}

Test(cost_store, a_file_that_is_locked_at_first_is_opened_later)
{
    char path[128];
    sqlite3 *other;
    struct cost_store *store = cost_store_create(folder);

    write_rows(store, rows_of(1001, 1, 5000), 1);
    write_rows(store, rows_of(1000, 1, 5000), 1);
    cost_store_destroy(store);
    snprintf(path, sizeof(path), "%s/costs.sqlite", folder);
    cr_assert_eq(sqlite3_open(path, &other), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    store = cost_store_create(folder);
    write_rows(store, rows_of(1000, 2, 80000), 2);
    cr_expect_eq(read_first(store, 1001), 0, "it is not open");
    cr_expect_neq(read_first(store, 1000), 0, "it learns in memory");
    cr_assert_eq(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(other);
    write_rows(store, rows_of(1002, 1, 5000), 1);
    cr_expect_neq(read_first(store, 1001), 0, "it is not opened later");
    cost_store_destroy(store);
    store = cost_store_create(folder);
    cr_expect_eq(count_of(store, (struct cost_query){.uid = 1000, .most = 9}), 2);
    cr_expect_eq(count_of(store, (struct cost_query){.uid = 1002, .most = 9}), 1);
    cost_store_destroy(store);
}

static void *open_store(void *unused)
{
    (void)unused;
    return cost_store_create(folder);
}

Test(cost_store, agents_that_start_together_bring_an_old_file_up_to_date)
{
    for (unsigned round = 0; round < 20; round++) {
        pthread_t threads[4];
        struct cost_store *stores[4];
        change_file("DROP TABLE IF EXISTS cost; CREATE TABLE cost(uid INTEGER NOT NULL, kernel "
                    "TEXT NOT NULL, name TEXT NOT NULL, device TEXT NOT NULL, size INTEGER NOT "
                    "NULL, count REAL NOT NULL, items REAL NOT NULL, time REAL NOT NULL, spread "
                    "REAL NOT NULL, used INTEGER NOT NULL, UNIQUE(uid, kernel, device, size));"
                    "PRAGMA user_version=1; INSERT INTO cost VALUES(1000, "
                    "'00000000000000000000000000000000', 'k0', 'device=one', 10, 5, 10, 12, 0, 7)");
        for (size_t i = 0; i < 4; i++)
            cr_assert_eq(pthread_create(&threads[i], NULL, open_store, NULL), 0);
        for (size_t i = 0; i < 4; i++)
            pthread_join(threads[i], (void **)&stores[i]);
        for (size_t i = 0; i < 4; i++) {
            cr_expect_eq(read_first(stores[i], 1000), 4096, "round %u: agent %zu", round, i);
            cost_store_destroy(stores[i]);
        }
    }
}
