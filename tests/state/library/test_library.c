#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "state/base/files/folder.h"
#include "state/library/library.h"
#include "tests/support/folder.h"

/* The files of the library of device binaries, without any driver. */

static struct library library;
static char above[SCRATCH_MAX];

static void setup(void)
{
    folder_make(above);
    snprintf(library.folder, sizeof(library.folder), "%s/binaries", above);
    library.limit = 1 << 20;
}
TestSuite(library, .init = setup, .timeout = 60);

static struct library_key key_number(unsigned number)
{
    struct library_key key = {{0}};
    memcpy(key.bytes, &number, sizeof(number));
    return key;
}

/* Bytes that only this number's entry has. */
static unsigned char *bytes_number(unsigned number, size_t size)
{
    unsigned char *bytes = malloc(size + 1);
    cr_assert_not_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(number * 31 + i * 7 + i / 251);
    return bytes;
}

static int keep(unsigned number, size_t size)
{
    struct library_key key = key_number(number);
    unsigned char *bytes = bytes_number(number, size);
    struct library_entry entry = {.origin = LIBRARY_BUILT,
                                  .created_ms = 1000 + number,
                                  .device = "a device",
                                  .platform = "a platform",
                                  .driver = "1.2",
                                  .kernels = "one;two",
                                  .kernel_count = 2,
                                  .type = 4,
                                  .globals = 77,
                                  .log = "a word\nof a compiler",
                                  .answers = {1, 2, 3},
                                  .facts = "facts",
                                  .facts_size = number % 2 ? 5 : 0,
                                  .binary = bytes,
                                  .binary_size = size};
    int err = library_keep(&library, &key, &entry);
    free(bytes);
    return err;
}

/* 0 when it is there, whole and the right one. */
static int found(unsigned number, size_t size)
{
    struct library_key key = key_number(number);
    struct library_entry entry;
    int err = library_find(&library, &key, &entry);
    if (err)
        return err;
    unsigned char *bytes = bytes_number(number, size);
    cr_assert_eq(entry.binary_size, size);
    cr_assert_eq(memcmp(entry.binary, bytes, size), 0);
    cr_assert_eq(entry.origin, LIBRARY_BUILT);
    cr_assert_eq(entry.created_ms, 1000 + number);
    cr_assert_str_eq(entry.device, "a device");
    cr_assert_str_eq(entry.platform, "a platform");
    cr_assert_str_eq(entry.driver, "1.2");
    cr_assert_str_eq(entry.kernels, "one;two");
    cr_assert_eq(entry.kernel_count, 2);
    cr_assert_eq(entry.type, 4);
    cr_assert_eq(entry.globals, 77);
    cr_assert_str_eq(entry.log, "a word\nof a compiler");
    cr_assert_eq(entry.answers[2], 3);
    cr_assert_eq(entry.facts_size, number % 2 ? 5 : 0);
    cr_assert_eq(memcmp(entry.facts, "facts", entry.facts_size), 0);
    free(bytes);
    library_entry_finish(&entry);
    return 0;
}

static void path_of(unsigned number, char ret[PATH_MAX])
{
    struct library_key key = key_number(number);
    char name[LIBRARY_NAME_MAX];
    library_name(&key, name);
    snprintf(ret, PATH_MAX, "%.1000s/%s", library.folder, name);
}

static size_t count_entries(void)
{
    char problem[FOLDER_PROBLEM_MAX];
    struct library_list list;
    cr_assert_eq(library_list(&library, true, &list, problem), 0, "%s", problem);
    size_t count = list.count;
    library_list_finish(&list);
    return count;
}

Test(library, gives_back_what_was_kept)
{
    const size_t sizes[] = {0, 1, 4095, 70000};
    cr_assert_eq(found(0, 0), -ENOENT);
    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++)
        cr_assert_eq(keep(i, sizes[i]), 0);
    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++)
        cr_assert_eq(found(i, sizes[i]), 0);
    cr_assert_eq(found(99, 1), -ENOENT);
    struct library_key key = key_number(1);
    library_drop(&library, &key);
    cr_assert_eq(found(1, 1), -ENOENT);
    cr_assert_eq(count_entries(), ARRAY_SIZE(sizes) - 1);
}

/* Each byte of a file in turn; then each length that is too short, and one that is too long. */
Test(library, damage_anywhere_removes_the_entry)
{
    char path[PATH_MAX];
    struct stat stat_of;
    path_of(7, path);
    cr_assert_eq(keep(7, 40), 0);
    cr_assert_eq(stat(path, &stat_of), 0);
    for (off_t at = 0; at < stat_of.st_size; at++) {
        unsigned char byte;
        cr_assert_eq(keep(7, 40), 0);
        int fd = open(path, O_RDWR);
        cr_assert_eq(pread(fd, &byte, 1, at), 1);
        byte ^= 0x41;
        cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        cr_assert_eq(found(7, 40), -ENOENT, "byte %ld", (long)at);
        cr_assert_neq(access(path, F_OK), 0, "byte %ld: it stays", (long)at);
    }
    for (off_t length = 1; length <= stat_of.st_size + 1; length += length < 200 ? 13 : 1) {
        if (length == stat_of.st_size)
            continue;
        cr_assert_eq(keep(7, 40), 0);
        cr_assert_eq(truncate(path, length), 0);
        cr_assert_eq(found(7, 40), -ENOENT, "length %ld", (long)length);
        cr_assert_neq(access(path, F_OK), 0, "length %ld: it stays", (long)length);
    }
}

/* As entries were before they had what reading the source said: eight bytes of header fewer. */
Test(library, an_entry_of_the_version_before_is_read)
{
    enum { VERSION = 8, CHECKSUM = 16, KEY = 32, FACTS_SIZE = 168, HEADER = 176 };
    char path[PATH_MAX];
    unsigned char bytes[4096];
    path_of(4, path);
    cr_assert_eq(keep(4, 40), 0);
    int fd = open(path, O_RDWR);
    ssize_t size = read(fd, bytes, sizeof(bytes));
    cr_assert(size > HEADER && size < (ssize_t)sizeof(bytes));
    bytes[VERSION] = 1;
    size -= HEADER - FACTS_SIZE;
    memmove(bytes + FACTS_SIZE, bytes + HEADER, (size_t)size - FACTS_SIZE);
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(
        &sum, XXH3_128bits_withSeed(bytes + KEY, (size_t)size - KEY, XXH64(bytes, CHECKSUM, 0)));
    memcpy(bytes + CHECKSUM, &sum, sizeof(sum));
    cr_assert_eq(pwrite(fd, bytes, (size_t)size, 0), size);
    cr_assert_eq(ftruncate(fd, size), 0);
    close(fd);
    cr_assert_eq(found(4, 40), 0);
}

/* A copy under another's name would run another program. */
Test(library, an_entry_of_another_name_is_damaged)
{
    char one[PATH_MAX], two[PATH_MAX];
    path_of(1, one);
    path_of(2, two);
    cr_assert_eq(keep(1, 100), 0);
    cr_assert_eq(rename(one, two), 0);
    cr_assert_eq(found(2, 100), -ENOENT);
    cr_assert_neq(access(two, F_OK), 0);
}

static void used_at(unsigned number, time_t seconds)
{
    char path[PATH_MAX];
    const struct timespec times[] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    path_of(number, path);
    cr_assert_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

Test(library, what_was_not_used_for_the_longest_goes)
{
    library.limit = 3 * 11000;
    for (unsigned i = 0; i < 3; i++) {
        cr_assert_eq(keep(i, 10000), 0);
        used_at(i, 1000 + (time_t)i);
    }
    /* Used, so that it is no more the oldest. */
    cr_assert_eq(found(0, 10000), 0);
    cr_assert_eq(keep(3, 10000), 0);
    cr_assert_eq(found(1, 10000), -ENOENT);
    cr_assert_eq(found(0, 10000), 0);
    cr_assert_eq(found(2, 10000), 0);
    cr_assert_eq(found(3, 10000), 0);
    /* Larger than all of it: nothing goes for what cannot stay. */
    cr_assert_eq(keep(4, 40000), -E2BIG);
    cr_assert_eq(count_entries(), 3);
    library.limit = 0;
    cr_assert_eq(keep(5, 10), -ENOENT);
    cr_assert_eq(found(0, 10000), -ENOENT);
}

static void check_unusable(int expected)
{
    cr_expect_eq(keep(9, 10), expected);
    cr_expect_eq(found(1, 10), expected);
}

Test(library, a_folder_that_others_may_enter_is_not_used)
{
    cr_assert_eq(keep(1, 10), 0);
    cr_assert_eq(chmod(library.folder, 0755), 0);
    check_unusable(-EPERM);
    cr_assert_eq(chmod(library.folder, 0700), 0);
    cr_assert_eq(found(1, 10), 0);
    /* Nor one that others can put another in the place of. */
    cr_assert_eq(chmod(above, 0777), 0);
    check_unusable(-EPERM);
    cr_assert_eq(chmod(above, 0700), 0);
    cr_assert_eq(found(1, 10), 0);
}

Test(library, nothing_of_another_user_is_used)
{
    char path[PATH_MAX];
    if (geteuid() != 0)
        cases_skip("only root can give files away");
    path_of(1, path);
    cr_assert_eq(keep(1, 10), 0);
    cr_assert_eq(chown(path, 12345, 12345), 0);
    cr_assert_eq(found(1, 10), -ENOENT);
    cr_assert_eq(chown(path, 0, 0), 0);
    cr_assert_eq(found(1, 10), 0);
    cr_assert_eq(chmod(path, 0622), 0);
    cr_assert_eq(found(1, 10), -ENOENT);
    cr_assert_eq(chmod(path, 0600), 0);
    cr_assert_eq(chown(library.folder, 12345, 12345), 0);
    check_unusable(-EPERM);
    cr_assert_eq(chown(library.folder, 0, 0), 0);
    cr_assert_eq(chown(above, 12345, 12345), 0);
    check_unusable(-EPERM);
    cr_assert_eq(chown(above, 0, 0), 0);
}

/* A link leads to what others may write. */
Test(library, links_are_not_followed)
{
    char path[PATH_MAX], elsewhere[PATH_MAX];
    cr_assert_eq(keep(1, 10), 0);
    path_of(1, path);
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", above);
    cr_assert_eq(rename(path, elsewhere), 0);
    cr_assert_eq(symlink(elsewhere, path), 0);
    cr_assert_eq(found(1, 10), -ENOENT);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(rename(elsewhere, path), 0);
    cr_assert_eq(found(1, 10), 0);
    snprintf(elsewhere, sizeof(elsewhere), "%s/folder", above);
    cr_assert_eq(rename(library.folder, elsewhere), 0);
    cr_assert_eq(symlink(elsewhere, library.folder), 0);
    check_unusable(-EPERM);
}

Test(library, a_folder_that_vanished_is_made_again)
{
    char gone[PATH_MAX];
    cr_assert_eq(keep(1, 10), 0);
    snprintf(gone, sizeof(gone), "%s/gone", above);
    cr_assert_eq(rename(library.folder, gone), 0);
    cr_assert_eq(found(1, 10), -ENOENT);
    cr_assert_eq(keep(1, 10), 0);
    cr_assert_eq(found(1, 10), 0);
    /* With what is above it. */
    snprintf(library.folder, sizeof(library.folder), "%s/no/such", above);
    check_unusable(-ENOENT);
}

/* No signal, no half of a file, and what was there stays. */
Test(library, a_full_disk_leaves_what_there_was)
{
    struct rlimit limit = {5000, RLIM_INFINITY};
    cr_assert_eq(keep(1, 100), 0);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(keep(2, 10000), -EFBIG);
    cr_assert_eq(keep(1, 10000), -EFBIG);
    cr_assert_eq(found(1, 100), 0);
    cr_assert_eq(found(2, 10000), -ENOENT);
    limit.rlim_cur = RLIM_INFINITY;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    char command[PATH_MAX + 32];
    snprintf(command, sizeof(command), "ls %s | grep -q new-", library.folder);
    cr_assert_neq(system(command), 0, "an unfinished file stays");
}

/* What a process that died left is removed when it is old, and never what is being written. */
Test(library, unfinished_files_go_when_they_are_old)
{
    char fresh[PATH_MAX], old[PATH_MAX];
    const struct timespec times[] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    cr_assert_eq(keep(1, 10), 0);
    folder_put(library.folder, "a.new-1-0-0", "half");
    folder_put(library.folder, "a.new-2-0-0", "half");
    snprintf(fresh, sizeof(fresh), "%.1000s/a.new-1-0-0", library.folder);
    snprintf(old, sizeof(old), "%.1000s/a.new-2-0-0", library.folder);
    cr_assert_eq(utimensat(AT_FDCWD, old, times, 0), 0);
    cr_assert_eq(keep(2, 10), 0);
    cr_assert_eq(access(fresh, F_OK), 0);
    cr_assert_neq(access(old, F_OK), 0);
    cr_assert_eq(count_entries(), 2);
}

/* Processes that keep, find, drop and prune the same few entries: each finds all of one or none. */
Test(library, processes_at_once_see_whole_entries)
{
    enum { PROCESSES = 4, ROUNDS = 300, ENTRIES = 6 };
    pid_t pids[PROCESSES];
    library.limit = 4 * 21000; /* less than all of them: pruning goes on all the time */
    for (unsigned p = 0; p < PROCESSES; p++) {
        pids[p] = fork();
        cr_assert_geq(pids[p], 0);
        if (pids[p] != 0)
            continue;
        unsigned hits = 0;
        for (unsigned i = 0; i < ROUNDS; i++) {
            unsigned number = (i * 7 + p) % ENTRIES;
            struct library_key key = key_number(number);
            if (i % 3 == 0 && keep(number, 20000) != 0)
                _exit(1);
            int err = found(number, 20000);
            if (err && err != -ENOENT)
                _exit(2);
            hits += err == 0;
            if (i % 50 == 49)
                library_drop(&library, &key);
        }
        _exit(hits ? 0 : 3);
    }
    for (unsigned p = 0; p < PROCESSES; p++) {
        int status;
        cr_assert_eq(waitpid(pids[p], &status, 0), pids[p]);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "process %u: %d", p, status);
    }
    char problem[FOLDER_PROBLEM_MAX];
    struct library_list list;
    cr_assert_eq(library_list(&library, true, &list, problem), 0);
    cr_assert_leq(list.size, library.limit);
    for (size_t i = 0; i < list.count; i++)
        cr_assert(!list.items[i].damaged);
    library_list_finish(&list);
}

Test(library, is_listed_with_what_is_known)
{
    char problem[FOLDER_PROBLEM_MAX], path[PATH_MAX];
    struct library_list list;
    for (unsigned i = 0; i < 3; i++) {
        cr_assert_eq(keep(i, 400000), 0);
        used_at(i, 1000 + (time_t)i);
    }
    path_of(1, path);
    /* Behind the front: only a whole look sees it. */
    int fd = open(path, O_RDWR);
    cr_assert_eq(pwrite(fd, "x", 1, 390000), 1);
    close(fd);
    used_at(1, 1001);
    for (int whole = 0; whole < 2; whole++) {
        library.limit = 4 << 20;
        cr_assert_eq(library_list(&library, whole, &list, problem), 0);
        cr_assert_geq(list.count, 2);
        for (size_t i = 1; i < list.count; i++)
            cr_assert_leq(list.items[i].used_ms, list.items[i - 1].used_ms);
        unsigned damaged = 0;
        for (size_t i = 0; i < list.count; i++) {
            const struct library_item *item = &list.items[i];
            damaged += item->damaged;
            if (item->damaged)
                continue;
            cr_assert_str_eq(item->entry.device, "a device");
            cr_assert_str_eq(item->entry.kernels, "one;two");
            cr_assert_eq(item->entry.binary_size, 400000);
        }
        cr_assert_eq(damaged, whole ? 1 : 0);
        library_list_finish(&list);
    }
}

static void same_key(const char *options_a, const char *options_b, bool same)
{
    static const struct device_key device = {.platform = "p", .device = "d"};
    const char *source = "kernel void k(global int *a) { a[0] = 1; }";
    const char *options[] = {options_a, options_b};
    struct devinfo info = {0};
    struct library_key keys[2];
    for (int i = 0; i < 2; i++) {
        struct recipe *base, *built;
        cr_assert_eq(recipe_source(1, &source, NULL, &base), 0);
        cr_assert_eq(recipe_built(base, options[i], NULL, 0, &built), 0);
        cr_assert_eq(library_key(built, "", &device, &info, &keys[i]), 0);
        recipe_unref(base);
        recipe_unref(built);
    }
    cr_expect_eq(memcmp(&keys[0], &keys[1], sizeof(keys[0])) == 0, same, "\"%s\" and \"%s\"",
                 options_a, options_b);
}

/* What is in it may be more than there is memory. */
Test(library, is_listed_in_little_memory)
{
    enum { SIZE = 4 << 20, COUNT = 8 };
    struct library_list list;
    char problem[FOLDER_PROBLEM_MAX];
    library.limit = (uint64_t)2 * COUNT * SIZE;
    for (unsigned i = 0; i < COUNT; i++)
        cr_assert_eq(keep(i + 1, SIZE), 0);
    for (int whole = 0; whole < 2; whole++) {
        struct mallinfo2 before = mallinfo2();
        cr_assert_eq(library_list(&library, whole, &list, problem), 0);
        struct mallinfo2 after = mallinfo2();
        cr_assert_eq(list.count, COUNT);
        cr_assert_lt(after.uordblks + after.hblkhd, before.uordblks + before.hblkhd + SIZE / 16);
        cr_assert_str_eq(list.items[0].entry.kernels, "one;two");
        library_list_finish(&list);
    }
}

Test(library, options_that_differ_in_blanks_alone_are_the_same)
{
    same_key("-DA=1 -DB=2", "  -DA=1\t -DB=2 \n", true);
    same_key("", " ", true);
    same_key("-DA=1 -DB=2", "-DB=2 -DA=1", false);
    same_key("-DA=1", "-DA=12", false);
    same_key("-D A", "-DA", false);
    same_key("-DA=\"x y\"", "-DA=\"x  y\"", false);
    same_key("-DA='x y'", "-DA='x  y'", false);
    same_key("-DA=x\\ y", "-DA=x\\  y", false);
}

/* All that a build depends on, one thing at a time. */
Test(library, what_a_build_depends_on_is_in_the_key)
{
    static const char *const sources[] = {"kernel void k() {}", "kernel void k() { }"};
    static const struct device_key devices[] = {{.platform = "p"}, {.platform = "q"}};
    const struct recipe_constant constants[] = {{1, 4, {1}}, {1, 4, {2}}};
    uint8_t one[] = "1.0", two[] = "2.0";
    struct devinfo_value versions[] = {{CL_DRIVER_VERSION, sizeof(one), one},
                                       {CL_DRIVER_VERSION, sizeof(two), two}};
    struct library_key keys[7];
    for (unsigned i = 0; i < ARRAY_SIZE(keys); i++) {
        struct devinfo info = {.value_count = 1, .values = &versions[i == 1]};
        struct recipe *base, *built;
        cr_assert_eq(i == 2 ? recipe_il(sources[0], strlen(sources[0]), &base)
                            : recipe_source(1, &sources[i == 3], NULL, &base),
                     0);
        cr_assert_eq(recipe_built(base, "", &constants[i == 4], 1, &built), 0);
        if (i == 5) {
            built->headers = calloc(1, sizeof(*built->headers));
            cr_assert_eq(headers_add(built->headers, "a.h", 0, "x", 1), 0);
        }
        cr_assert_eq(library_key(built, i == 6 ? "#define X\n" : "", &devices[0], &info, &keys[i]),
                     0);
        struct library_key other;
        cr_assert_eq(library_key(built, "", &devices[1], &info, &other), 0);
        cr_assert_neq(memcmp(&other, &keys[i], sizeof(other)), 0);
        recipe_unref(base);
        recipe_unref(built);
        for (unsigned j = 0; j < i; j++)
            cr_expect_neq(memcmp(&keys[i], &keys[j], sizeof(keys[i])), 0, "%u and %u", i, j);
    }
}

/* Not the same thing each time: headers that were not all kept, and the time of day. */
Test(library, what_may_differ_each_time_has_no_key)
{
    static const char *const sources[] = {"kernel void k() { printf(__TIME__); }",
                                          "kernel void k() {}"};
    static const struct device_key device = {.platform = "p"};
    struct devinfo info = {0};
    struct library_key key;
    for (unsigned i = 0; i < 3; i++) {
        struct recipe *base, *built;
        cr_assert_eq(recipe_source(1, &sources[i > 0], NULL, &base), 0);
        cr_assert_eq(recipe_built(base, "", NULL, 0, &built), 0);
        built->headers = calloc(1, sizeof(*built->headers));
        cr_assert_eq(headers_add(built->headers, "a.h", 0, i == 1 ? "__DATE__" : "........", 8), 0);
        built->headers->partial = i == 2;
        cr_expect_eq(library_key(built, "", &device, &info, &key), -ENOTSUP, "%u", i);
        built->headers->partial = false;
        recipe_unref(base);
        recipe_unref(built);
    }
}
