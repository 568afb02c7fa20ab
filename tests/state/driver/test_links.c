#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "state/driver/links.h"
#include "tests/support/folder.h"
#include "tests/support/leaks.h"

TestSuite(links, .fini = leaks_check, .timeout = 100);

static uint8_t driver_version[] = "580.1";
static struct devinfo_value values[] = {
    {CL_DRIVER_VERSION, sizeof(driver_version), driver_version}};
static const struct devinfo info = {1, values, 0, NULL};
static const struct device_key key = {
    "libstub.so", "Stub platform", "Stub", 3, "00112233445566778899aabbccddeeff", "0000:3b:00.0"};

static struct link_figures figures_of(double gb_s)
{
    return (struct link_figures){.read = {COST_LINK, 1e-6, gb_s * 1e9},
                                 .write = {COST_LINK, 2e-6, gb_s * 2e9},
                                 .plain_read = {COST_LINK, 3e-6, gb_s * 3e9},
                                 .plain_write = {COST_LINK, 4e-6, gb_s * 4e9}};
}

static void begin(struct links *ret_links)
{
    char folder[SCRATCH_MAX];
    folder_make(folder);
    memset(ret_links, 0, sizeof(*ret_links));
    snprintf(ret_links->folder, sizeof(ret_links->folder), "%s/links", folder);
}

static int find(const struct links *links, struct link_figures *ret_figures)
{
    return links_find(links, &key, &info, ret_figures, NULL);
}

static void keep(const struct links *links, double gb_s)
{
    struct link_figures figures = figures_of(gb_s);
    cr_assert_eq(links_keep(links, &key, &info, &figures), 0);
}

/* The only file there is; its path. */
static const char *only_file(const struct links *links)
{
    static char path[PATH_MAX + 300];
    unsigned count = 0;
    struct dirent *entry;
    DIR *folder = opendir(links->folder);
    cr_assert_not_null(folder);
    while ((entry = readdir(folder)))
        if (entry->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%s/%s", links->folder, entry->d_name);
            count++;
        }
    closedir(folder);
    cr_assert_eq(count, 1, "%u files", count);
    return path;
}

static size_t read_file(const char *path, unsigned char *ret_bytes, size_t size)
{
    FILE *file = fopen(path, "re");
    size_t got = fread(ret_bytes, 1, size, file);
    fclose(file);
    return got;
}

static void write_file(const char *path, const unsigned char *bytes, size_t size)
{
    FILE *file = fopen(path, "we");
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

Test(links, figures_come_back_as_they_were_kept)
{
    struct links links;
    struct link_figures found, kept = figures_of(5);
    struct host_figures host = {.copy = {COST_WORK, 5e-6, 8e9},
                                .out = {COST_WORK, 5e-6, 13e9},
                                .fresh = {COST_WORK, 5e-6, 6e9},
                                .ring = {COST_RING, 1e-4, 14e9},
                                .hand = {COST_HAND, 3e-5, 1e12}},
                        found_host;
    uint64_t before = (uint64_t)time(NULL), when = 0;
    begin(&links);
    cr_assert_eq(find(&links, &found), -ENOENT);
    cr_assert_eq(links_find_host(&links, &found_host, NULL), -ENOENT);
    keep(&links, 5);
    cr_assert_eq(links_keep_host(&links, &host), 0);
    cr_assert_eq(links_find(&links, &key, &info, &found, &when), 0);
    cr_assert(when >= before && when <= (uint64_t)time(NULL));
    cr_assert_eq(memcmp(&found, &kept, sizeof(kept)), 0);
    cr_assert_eq(links_find_host(&links, &found_host, &when), 0);
    cr_assert_eq(memcmp(&found_host, &host, sizeof(host)), 0);
    keep(&links, 7);
    cr_assert_eq(find(&links, &found), 0);
    cr_assert_eq(found.read.bandwidth, 7e9);
}

Test(links, another_device_or_driver_has_figures_of_its_own)
{
    struct links links;
    struct link_figures found;
    static uint8_t newer[] = "580.2";
    struct devinfo_value other_values[] = {{CL_DRIVER_VERSION, sizeof(newer), newer}};
    const struct devinfo other_info = {1, other_values, 0, NULL};
    struct device_key others[6];
    begin(&links);
    keep(&links, 5);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        others[i] = key;
    strcpy(others[0].icd, "libother.so");
    strcpy(others[1].platform, "Other");
    strcpy(others[2].device, "Other");
    others[3].ordinal = 4;
    others[4].uuid[0] = '1';
    strcpy(others[5].pci, "0000:3c:00.0");
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        cr_assert_eq(links_find(&links, &others[i], &info, &found, NULL), -ENOENT, "key %zu", i);
    cr_assert_eq(links_find(&links, &key, &other_info, &found, NULL), -ENOENT);
    cr_assert_eq(find(&links, &found), 0);
}

Test(links, a_file_with_any_bit_changed_or_cut_short_is_none)
{
    struct links links;
    struct link_figures found;
    unsigned char bytes[512];
    begin(&links);
    keep(&links, 5);
    char path[PATH_MAX + 300];
    strcpy(path, only_file(&links));
    size_t size = read_file(path, bytes, sizeof(bytes));
    cr_assert(size > 64 && size < sizeof(bytes));
    for (size_t bit = 0; bit < size * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        write_file(path, bytes, size);
        cr_assert_eq(find(&links, &found), -ENOENT, "bit %zu", bit);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    for (size_t length = 0; length < size; length++) {
        write_file(path, bytes, length);
        cr_assert_eq(find(&links, &found), -ENOENT, "%zu bytes", length);
    }
    write_file(path, bytes, size + 1);
    cr_assert_eq(find(&links, &found), -ENOENT);
    write_file(path, bytes, size);
    cr_assert_eq(find(&links, &found), 0);
    keep(&links, 6); /* what is damaged is replaced */
    write_file(path, bytes, 3);
    keep(&links, 6);
    cr_assert_eq(find(&links, &found), 0);
}

/* Write @at of the file anew, with a checksum that is right. */
static void forge(const struct links *links, size_t at, uint64_t value)
{
    unsigned char bytes[512];
    const char *path = only_file(links);
    size_t size = read_file(path, bytes, sizeof(bytes));
    memcpy(bytes + at, &value, sizeof(value));
    uint64_t check = XXH3_64bits(bytes, size - sizeof(check));
    memcpy(bytes + size - sizeof(check), &check, sizeof(check));
    write_file(path, bytes, size);
}

Test(links, figures_are_used_for_a_week_and_not_from_the_future)
{
    enum { MEASURED = 32 };
    struct links links;
    struct link_figures found;
    uint64_t now = (uint64_t)time(NULL);
    begin(&links);
    keep(&links, 5);
    forge(&links, MEASURED, now - LINKS_AGE_S + 100);
    cr_assert_eq(find(&links, &found), 0);
    forge(&links, MEASURED, now - LINKS_AGE_S - 1);
    cr_assert_eq(find(&links, &found), -ENOENT);
    forge(&links, MEASURED, now + 3600);
    cr_assert_eq(find(&links, &found), -ENOENT);
    forge(&links, MEASURED, UINT64_MAX);
    cr_assert_eq(find(&links, &found), -ENOENT);
}

Test(links, what_no_link_does_is_neither_kept_nor_believed)
{
    enum { BANDWIDTH = 56 };
    static const double wrong[] = {0, -1, 1, 1e14, (double)INFINITY, (double)NAN};
    struct links links;
    struct link_figures found, figures;
    begin(&links);
    keep(&links, 5);
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        uint64_t bits;
        figures = figures_of(5);
        figures.plain_read.bandwidth = wrong[i];
        cr_assert_eq(links_keep(&links, &key, &info, &figures), -EINVAL);
        memcpy(&bits, &wrong[i], sizeof(bits));
        forge(&links, BANDWIDTH, bits);
        cr_assert_eq(find(&links, &found), -ENOENT, "%g", wrong[i]);
        double right = 7e9;
        memcpy(&bits, &right, sizeof(bits));
        forge(&links, BANDWIDTH, bits);
        cr_assert_eq(find(&links, &found), 0);
        cr_assert_eq(found.read.bandwidth, 7e9);
    }
}

Test(links, what_others_can_write_or_put_there_is_not_believed)
{
    struct links links;
    struct link_figures found;
    char aside[PATH_MAX + 300];
    begin(&links);
    keep(&links, 5);
    const char *path = only_file(&links);
    chmod(path, 0620);
    cr_assert_eq(find(&links, &found), -ENOENT);
    chmod(path, 0602);
    cr_assert_eq(find(&links, &found), -ENOENT);
    chmod(path, 0600);
    if (geteuid() == 0) {
        cr_assert_eq(chown(path, 12345, 0), 0);
        cr_assert_eq(find(&links, &found), -ENOENT);
        cr_assert_eq(chown(path, 0, 0), 0);
    }
    cr_assert_eq(find(&links, &found), 0);
    snprintf(aside, sizeof(aside), "%s-aside", links.folder);
    cr_assert_eq(rename(path, aside), 0);
    cr_assert_eq(symlink(aside, path), 0);
    cr_assert_eq(find(&links, &found), -ENOENT, "a link");
    unlink(path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_eq(find(&links, &found), -ENOENT, "a pipe");
    keep(&links, 6); /* and stands in the way of nothing */
    cr_assert_eq(find(&links, &found), 0);
    unlink(aside);
}

Test(links, a_folder_that_is_not_ours_alone_is_used_for_nothing)
{
    struct links links;
    struct link_figures found, figures = figures_of(5);
    begin(&links);
    keep(&links, 5);
    chmod(links.folder, 0755);
    cr_assert_eq(find(&links, &found), -EPERM);
    cr_assert_eq(links_keep(&links, &key, &info, &figures), -EPERM);
    chmod(links.folder, 0700);
    cr_assert_eq(find(&links, &found), 0);
    if (geteuid() == 0) {
        cr_assert_eq(chown(links.folder, 12345, 0), 0);
        cr_assert_eq(find(&links, &found), -EPERM);
        cr_assert_eq(chown(links.folder, 0, 0), 0);
    }
    strcat(links.folder, "/missing/links");
    cr_assert_eq(find(&links, &found), -ENOENT);
    cr_assert_eq(links_keep(&links, &key, &info, &figures), -ENOENT);
    links.folder[0] = '\0';
    cr_assert_eq(find(&links, &found), -ENOENT);
    cr_assert_eq(links_keep(&links, &key, &info, &figures), -ENOENT);
}

/* Each reader sees whole figures of one writer, and nothing is left over. */
Test(links, several_processes_keep_and_find_at_once)
{
    enum { WRITERS = 3, ROUNDS = 300 };
    struct links links;
    pid_t writers[WRITERS];
    begin(&links);
    keep(&links, 1);
    for (int w = 0; w < WRITERS; w++) {
        writers[w] = fork();
        for (int i = 0; writers[w] == 0 && i < ROUNDS; i++) {
            struct link_figures figures = figures_of(1 + w);
            if (links_keep(&links, &key, &info, &figures) != 0)
                _exit(1);
        }
        if (writers[w] == 0)
            _exit(0);
    }
    for (int i = 0; i < ROUNDS; i++) {
        struct link_figures found;
        cr_assert_eq(find(&links, &found), 0);
        struct link_figures whole = figures_of(found.read.bandwidth * 1e-9);
        cr_assert_eq(memcmp(&found, &whole, sizeof(whole)), 0);
    }
    for (int w = 0; w < WRITERS; w++) {
        int status;
        cr_assert_eq(waitpid(writers[w], &status, 0), writers[w]);
        cr_assert_eq(status, 0);
    }
    (void)only_file(&links);
}

static void *keep_on(void *links)
{
    for (int i = 1; i < 300; i++)
        keep(links, i);
    return NULL;
}

Test(links, several_threads_keep_at_once)
{
    struct links links;
    struct link_figures found;
    pthread_t threads[4];
    begin(&links);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, keep_on, &links), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    cr_assert_eq(find(&links, &found), 0);
    (void)only_file(&links);
}

/* No signal ends who measured. */
Test(links, where_no_file_may_grow_nothing_is_kept)
{
    struct rlimit limit = {0, RLIM_INFINITY};
    struct links links;
    struct link_figures found, figures = figures_of(5);
    begin(&links);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(links_keep(&links, &key, &info, &figures), -EFBIG);
    limit.rlim_cur = RLIM_INFINITY;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(find(&links, &found), -ENOENT);
    keep(&links, 6);
    (void)only_file(&links);
}

Test(links, a_process_that_died_while_it_wrote_is_in_nobodys_way)
{
    struct links links;
    struct link_figures found;
    const struct timespec long_ago[] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    char left[PATH_MAX + 300];
    begin(&links);
    keep(&links, 5);
    snprintf(left, sizeof(left), "%s.new-1-0-0", only_file(&links));
    write_file(left, (const unsigned char *)"torn", 4);
    cr_assert_eq(utimensat(AT_FDCWD, left, long_ago, 0), 0);
    keep(&links, 6);
    cr_assert_eq(find(&links, &found), 0);
    cr_assert_eq(found.read.bandwidth, 6e9);
    (void)only_file(&links);
}
