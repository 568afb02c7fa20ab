#include "remote/rings/area.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "state/base/cleanup.h"
#include "state/base/compiler.h"
#include "state/base/files/owned.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* F_SEAL_SEAL keeps the other process from adding F_SEAL_WRITE later. */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

size_t area_page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

int area_create(const char *name, size_t size, int *ret_fd)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_FSIZE, &files) != 0 || files.rlim_cur < size)
        return -EFBIG;
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    CLEANUP(cleanup_close) int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, flags);
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0)
        return -errno;
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int area_check(int fd, size_t size)
{
    struct stat file;
    struct statfs system;
    int seals = fcntl(fd, F_GET_SEALS); /* Fails for everything that is not a memfd. */
    if (seals < 0 || (seals & SEALS) != SEALS || (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))
        return -EPROTO;
    if (fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC)
        return -EPROTO;
    if (fstat(fd, &file) != 0 || file.st_size < 0 || (size_t)file.st_size != size)
        return -EPROTO;
    return 0;
}

int area_reserve(size_t size, char **ret_bytes)
{
    char *bytes = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED)
        return -ENOMEM;
    *ret_bytes = bytes;
    return 0;
}

static int area_map_fixed(int fd, size_t offset, size_t size, char *at)
{
    return mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)offset) == at
               ? 0
               : -ENOMEM;
}

int area_map_at(int fd, size_t offset, size_t size, char *at)
{
    int err = area_map_fixed(fd, offset, size, at);
    if (err == 0 && madvise(at, size, MADV_DONTFORK) != 0)
        err = -ENOMEM;
    return err;
}

int area_map(int fd, size_t size, char **ret_bytes)
{
    char *got;
    if (size > SIZE_MAX - AREA_ALIGNMENT || area_reserve(size + AREA_ALIGNMENT, &got) != 0)
        return -ENOMEM;
    size_t before = -(uintptr_t)got % AREA_ALIGNMENT;
    char *bytes = got + before;
    if (area_map_fixed(fd, 0, size, bytes) != 0) {
        munmap(got, size + AREA_ALIGNMENT);
        return -ENOMEM;
    }
    if (before > 0)
        munmap(got, before);
    munmap(bytes + size, AREA_ALIGNMENT - before);
    /* Has an effect where the system allows huge pages for shared memory. */
    (void)madvise(bytes, size, MADV_HUGEPAGE);
    *ret_bytes = bytes;
    return 0;
}

void area_unmap(char *bytes, size_t size)
{
    munmap(bytes, size);
}

int area_populate(char *bytes, size_t size)
{
    /* Kernels before 5.14 lack this advice: there, pages are allocated when they are touched. */
    int err = madvise(bytes, size, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
    return err == 0 || err == EINVAL ? 0 : -ENOMEM;
}

/* Copy the pages of a private mapping, which belong to the file until they are written. No byte
 * changes, even if other threads write at the same time. */
static int area_copy_pages(char *bytes, size_t size)
{
    if (madvise(bytes, size, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (errno != EINVAL)
        return -errno;
    for (size_t at = 0; at < size; at += area_page())
        atomic_fetch_or((_Atomic char *)bytes + at, 0);
    return 0;
}

int area_make_private(const struct owned *area, size_t offset, size_t size, char *at)
{
    /* A second mapping of the shared pages, by which they are freed below. */
    char *shared = mremap(at, 0, size, MREMAP_MAYMOVE);
    char *bytes =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, owned_fd(area), (off_t)offset);
    /* The program may have closed the descriptor, and opened another file under its number. */
    bool ours = bytes != MAP_FAILED && owned_fd(area) >= 0;
    bool moved = ours && mremap(bytes, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at;
    int error = moved ? area_copy_pages(at, size) : -EBADF;
    if (bytes != MAP_FAILED && !moved)
        munmap(bytes, size);
    if (shared != MAP_FAILED) {
        if (error == 0)
            (void)madvise(shared, size, MADV_REMOVE);
        munmap(shared, size);
    }
    return error;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic uint64_t *_Atomic mark; /* On a page that the kernel fills with zeroes in a child. */
static _Atomic uint64_t last;          /* The last number used; a child continues from there. */

static void process_make(void)
{
    void *page =
        mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return;
    if (madvise(page, sizeof(uint64_t), MADV_WIPEONFORK) == 0)
        atomic_store(&mark, page);
    else
        munmap(page, sizeof(uint64_t));
}

static uint64_t process_begin(void)
{
    uint64_t none = 0;
    pthread_once(&once, process_make);
    _Atomic uint64_t *here = atomic_load(&mark);
    if (!here)
        return 0;
    uint64_t mine = atomic_fetch_add(&last, 1) + 1;
    return atomic_compare_exchange_strong(here, &none, mine) ? mine : none;
}

uint64_t process_mark(void)
{
    _Atomic uint64_t *here = atomic_load_explicit(&mark, memory_order_acquire);
    uint64_t number = here ? atomic_load_explicit(here, memory_order_relaxed) : 0;
    return LIKELY(number != 0) ? number : process_begin();
}
