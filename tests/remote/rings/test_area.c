#include "tests/support/cases.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "remote/rings/area.h"

#define SIZE (4 * area_page())

static void refused(int fd, const char *what)
{
    cr_assert_geq(fd, 0, "%s", what);
    cr_assert_eq(area_check(fd, SIZE), -EPROTO, "%s", what);
    close(fd);
}

static int memory_file(unsigned flags, int seals)
{
    int fd = memfd_create("test", flags);
    if (fd < 0)
        return -1;
    cr_assert_eq(ftruncate(fd, (off_t)SIZE), 0);
    if (flags & MFD_ALLOW_SEALING)
        cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

Test(area, what_the_peer_could_cut_short_is_refused)
{
    char path[] = "/tmp/area-XXXXXX";
    int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, ends[2], fd;
    refused(memory_file(MFD_CLOEXEC, 0), "no seals");
    refused(memory_file(MFD_ALLOW_SEALING, 0), "unsealed");
    refused(memory_file(MFD_ALLOW_SEALING, all & ~F_SEAL_SHRINK), "can shrink");
    refused(memory_file(MFD_ALLOW_SEALING, all & ~F_SEAL_GROW), "can grow");
    refused(memory_file(MFD_ALLOW_SEALING, all & ~F_SEAL_SEAL), "can be sealed further");
    refused(memory_file(MFD_ALLOW_SEALING, all | F_SEAL_WRITE), "cannot be written");
    refused(mkstemp(path), "a file");
    unlink(path);
    cr_assert_eq(pipe(ends), 0);
    close(ends[1]);
    refused(ends[0], "a pipe");
    cr_assert_eq(area_check(-1, SIZE), -EPROTO);
    fd = memory_file(MFD_ALLOW_SEALING, all);
    cr_assert_eq(area_check(fd, SIZE), 0);
    cr_assert_eq(area_check(fd, SIZE + area_page()), -EPROTO);
    cr_assert_eq(area_check(fd, SIZE - area_page()), -EPROTO);
    close(fd);
}

Test(area, huge_pages_which_may_be_missing_are_refused)
{
    const size_t size = 2 << 20;
    int fd = memfd_create("test", MFD_ALLOW_SEALING | MFD_HUGETLB);
    if (fd < 0)
        cases_skip("no such files here");
    cr_assert_eq(ftruncate(fd, (off_t)size), 0);
    cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    cr_assert_eq(area_check(fd, size), -EPROTO);
    close(fd);
}

Test(area, ours_cannot_be_changed_in_size)
{
    int fd;
    cr_assert_eq(area_create("test", SIZE, &fd), 0);
    cr_assert_eq(area_check(fd, SIZE), 0);
    cr_assert_neq(ftruncate(fd, 0), 0);
    cr_assert_neq(ftruncate(fd, (off_t)(2 * SIZE)), 0);
    cr_assert_neq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
}

Test(area, a_limit_on_files_is_an_error_and_no_signal)
{
    const struct rlimit limit = {SIZE - 1, RLIM_INFINITY};
    int fd = -2;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(area_create("test", SIZE, &fd), -EFBIG);
    cr_assert_eq(fd, -2);
}

Test(area, it_is_mapped_for_large_pages_and_shared)
{
    const size_t size = AREA_ALIGNMENT;
    char *one, *other;
    int fd;
    cr_assert_eq(area_create("test", size, &fd), 0);
    cr_assert_eq(area_map(fd, size, &one), 0);
    cr_assert_eq(area_map(fd, size, &other), 0);
    close(fd);
    cr_assert_eq((uintptr_t)one % AREA_ALIGNMENT, 0);
    cr_assert_eq(area_populate(one, size), 0);
    one[size - 1] = 'x';
    cr_assert_eq(other[size - 1], 'x');
    area_unmap(one, size);
    area_unmap(other, size);
}

Test(area, without_addresses_it_is_an_error)
{
    const struct rlimit limit = {256 << 20, RLIM_INFINITY};
    struct rlimit before;
    char *bytes = NULL;
    cr_assert_eq(getrlimit(RLIMIT_AS, &before), 0);
    int fd;
    cr_assert_eq(area_create("test", (size_t)1 << 30, &fd), 0);
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    cr_assert_eq(area_map(fd, (size_t)1 << 30, &bytes), -ENOMEM);
    cr_assert_null(bytes);
    cr_assert_eq(setrlimit(RLIMIT_AS, &before), 0); /* sanitizers want some at the end */
    close(fd);
}
