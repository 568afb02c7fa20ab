#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/base/files/file.h"
#include "state/base/files/owned.h"
#include "state/base/log.h"
#include "tests/support/folder.h"

static char path[SCRATCH_MAX + 16];

static void begin(void)
{
    char folder[SCRATCH_MAX];
    folder_make(folder);
    snprintf(path, sizeof(path), "%s/file", folder);
}

TestSuite(owned, .init = begin, .timeout = 60);

static unsigned table_size(void)
{
    char line[128];
    unsigned size = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof(line), status))
        (void)sscanf(line, "FDSize: %u", &size);
    cr_assert_not_null(status);
    fclose(status);
    return size;
}

/* A table that grows beside other threads would make one of them wait for all processors. */
Test(owned, what_is_prepared_need_not_grow_later)
{
    struct owned owned;
    int before = dup(STDERR_FILENO);
    owned_prepare();
    unsigned size = table_size();
    cr_assert_eq(dup(STDERR_FILENO), before + 1, "nothing stays open");
    cr_assert_eq(owned_take(dup(STDERR_FILENO), &owned), 0);
    cr_assert_lt((unsigned)owned.fd, size);
    cr_assert_eq(table_size(), size);
}

/* Who writes more is ended by SIGXFSZ. */
static void limit_files(rlim_t bytes)
{
    const struct rlimit limit = {bytes, RLIM_INFINITY};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static off_t size_of_file(void)
{
    struct stat status;
    cr_assert_eq(stat(path, &status), 0);
    return status.st_size;
}

Test(owned, a_file_grows_to_the_limit_and_no_further)
{
    char bytes[100] = "";
    struct owned file = OWNED_NONE;
    cr_assert_eq(owned_take(open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), &file), 0);
    limit_files(100);
    cr_assert_eq(owned_append(&file, bytes, 90), 0);
    cr_assert_eq(owned_append(&file, bytes, 11), -EFBIG);
    cr_assert_eq(owned_append(&file, bytes, SIZE_MAX), -EFBIG);
    cr_assert_eq(size_of_file(), 90);
    cr_assert_eq(owned_append(&file, bytes, 10), 0);
    cr_assert_eq(owned_append(&file, bytes, 1), -EFBIG);
    limit_files(50);
    cr_assert_eq(owned_append(&file, bytes, 1), -EFBIG);
    cr_assert_eq(size_of_file(), 100);
    limit_files(RLIM_INFINITY);
    cr_assert_eq(owned_append(&file, bytes, 100), 0);
    cr_assert_eq(size_of_file(), 200);
    owned_close(&file);
    cr_assert_eq(owned_append(&file, bytes, 1), -EBADF);
}

Test(owned, a_pipe_has_no_limit)
{
    int ends[2];
    struct owned pipe = OWNED_NONE;
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    cr_assert_eq(owned_take(ends[1], &pipe), 0);
    limit_files(0);
    cr_assert_eq(owned_append(&pipe, "abc", 3), 0);
    limit_files(RLIM_INFINITY);
    owned_close(&pipe);
    close(ends[0]);
}

Test(owned, a_log_that_is_a_pipe_nobody_reads_stops_nobody, .timeout = 20)
{
    char log[sizeof(path) + 40], pipe[sizeof(path) + 8];
    snprintf(pipe, sizeof(pipe), "%s.pipe", path);
    cr_assert_eq(mkfifo(pipe, 0600), 0);
    snprintf(log, sizeof(log), "info:%s", pipe);
    setenv("RESEAT_LOG", log, 1);
    log_info("one line");
    cr_assert_eq(unlink(pipe), 0);
}

Test(owned, a_log_that_may_not_grow_ends_nobody)
{
    char log[SCRATCH_MAX + 32];
    snprintf(log, sizeof(log), "info:%s", path);
    setenv("RESEAT_LOG", log, 1);
    log_info("one line");
    off_t before = size_of_file();
    cr_assert_gt(before, 0);
    limit_files((rlim_t)before + 1);
    log_info("one more");
    limit_files(RLIM_INFINITY);
    cr_assert_eq(size_of_file(), before);
    log_info("one more");
    cr_assert_gt(size_of_file(), before);
}

/* ---- files that the user named ---- */

static int opens(const char *name)
{
    int fd = file_open_named(name, O_WRONLY | O_APPEND | O_NONBLOCK);

    if (fd >= 0)
        close(fd);
    return fd < 0 ? fd : 0;
}

Test(owned, what_another_user_put_in_a_files_place_is_not_written_to, .timeout = 20)
{
    char log[sizeof(path) + 40], other[sizeof(path) + 8];
    snprintf(other, sizeof(other), "%s.other", path);
    cr_assert_eq(opens(path), 0);
    cr_assert_eq(symlink(path, other), 0);
    cr_expect_eq(opens(other), -ELOOP, "a link");
    snprintf(log, sizeof(log), "info:%s", other);
    setenv("RESEAT_LOG", log, 1);
    log_info("one line");
    cr_expect_eq(size_of_file(), 0, "the log follows a link");
    cr_assert_eq(unlink(other), 0);
    cr_assert_eq(link(path, other), 0);
    cr_expect_eq(opens(other), -EPERM, "a second name");
    cr_assert_eq(unlink(other), 0);
    cr_assert_eq(mkfifo(other, 0600), 0);
    cr_expect_eq(opens(other), -ENXIO, "a pipe that nobody reads");
    cr_assert_eq(unlink(other), 0);
    cr_expect_eq(opens("/dev/null"), 0);
    cr_expect_eq(opens("/dev/stderr"), 0);
    cr_expect_eq(opens(path), 0);
    if (geteuid() != 0)
        return;
    cr_assert_eq(chown(path, 64001, 64001), 0);
    cr_expect_eq(opens(path), -EPERM, "another user's");
    cr_assert_eq(truncate(path, 10), 0);
    cr_expect_eq(file_open_named(path, O_WRONLY | O_TRUNC), -EPERM);
    cr_expect_eq(size_of_file(), 10, "it is emptied");
}
