#include "state/memory/dirty.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "state/base/files/owned.h"
#include "state/base/log.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; Debian's libc has it, older headers do not */
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00) /* Linux 6.1 */
#endif

#define STACK    ((size_t)256 << 10)
#define BLOCK    ((uintptr_t)2 << 20)   /* a large page */
#define SLICE    ((size_t)16384)        /* parts protected at a time; writers wait meanwhile */
#define MESSAGES 32                     /* read at a time */
#define LOOK_MS  10                     /* how often ended trackings are looked for */
#define BITS     (8 * sizeof(uint64_t)) /* in a word of parts */

struct dirty {
    struct dirty *next;
    char *memory;
    size_t size, parts; /* bytes in whole pages */
    unsigned generation;
    void (*then)(char *memory, size_t size);
    _Atomic uint64_t clean[]; /* a bit for each part */
};

/*
 * Held for long, while the kernel walks page tables, so a fork does not take it. A thread that
 * writes to a clean part waits for our thread, which takes this lock; so no thread may write to
 * tracked memory while it holds it.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by it. */
static struct owned source = OWNED_NONE; /* of faults; none while nothing is tracked */
static struct dirty *tracked, *ended;
static bool runs; /* our thread */
/* Incremented when all trackings so far become invalid. Written under the lock. */
static _Atomic unsigned generation;

static int dirty_open_source(void)
{
    long fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
        if (device < 0)
            return -ENOTSUP;
        fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
        close(device);
    }
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
    if (fd < 0 || owned_take((int)fd, &source) != 0)
        return -ENOTSUP;
    if (ioctl(owned_fd(&source), UFFDIO_API, &api) == 0)
        return 0;
    owned_close(&source);
    return -ENOTSUP;
}

bool dirty_may(void)
{
    static _Atomic int may = -1;
    if (atomic_load(&may) < 0) {
        pthread_mutex_lock(&lock);
        bool has = owned_fd(&source) >= 0;
        atomic_store(&may, has || dirty_open_source() == 0);
        if (!has)
            owned_close(&source);
        pthread_mutex_unlock(&lock);
    }
    return atomic_load(&may) > 0;
}

static int dirty_protect(const struct dirty *dirty, uintptr_t begin, uintptr_t end, uint64_t mode)
{
    uintptr_t last = (uintptr_t)dirty->memory + dirty->size;
    struct uffdio_writeprotect protect = {.range = {begin, (end < last ? end : last) - begin},
                                          .mode = mode};
    return ioctl(owned_fd(&source), UFFDIO_WRITEPROTECT, &protect) == 0 ? 0 : -errno;
}

static bool dirty_is_live(const struct dirty *dirty)
{
    return dirty->generation == atomic_load(&generation) && owned_fd(&source) >= 0;
}

static size_t dirty_part_of(const struct dirty *dirty, uintptr_t address)
{
    uintptr_t first = (uintptr_t)dirty->memory;
    return address > first ? (address - first) / DIRTY_PART : 0;
}

static void dirty_set_clean(struct dirty *dirty, size_t part, bool clean)
{
    uint64_t bit = UINT64_C(1) << part % BITS;
    if (clean)
        atomic_fetch_or(&dirty->clean[part / BITS], bit);
    else
        atomic_fetch_and(&dirty->clean[part / BITS], ~bit);
}

bool dirty_is_clean(const struct dirty *dirty, size_t part)
{
    return (atomic_load(&dirty->clean[part / BITS]) >> part % BITS) & 1;
}

/* A thread waits to write to @address: record it, and remove the protection. */
static void dirty_note(struct dirty *dirty, uintptr_t address)
{
    size_t part = dirty_part_of(dirty, address), first = part, end = part + 1;
    size_t block = dirty_part_of(dirty, address & ~(BLOCK - 1));
    size_t block_end = dirty_part_of(dirty, (address | (BLOCK - 1)) + 1);
    block_end = block_end < dirty->parts ? block_end : dirty->parts;
    for (size_t i = block; i < block_end && end - first == 1; i++)
        if (i != part && !dirty_is_clean(dirty, i)) {
            first = block;
            end = block_end;
        }
    for (size_t i = first; i < end; i++)
        dirty_set_clean(dirty, i, false);
    uintptr_t memory = (uintptr_t)dirty->memory;
    (void)dirty_protect(dirty, memory + first * DIRTY_PART, memory + end * DIRTY_PART, 0);
}

static void dirty_note_all(const struct uffd_msg *messages, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uintptr_t address = (uintptr_t)messages[i].arg.pagefault.address;
        struct dirty *dirty = tracked;
        while (dirty && address - (uintptr_t)dirty->memory >= dirty->size)
            dirty = dirty->next;
        if (dirty && messages[i].event == UFFD_EVENT_PAGEFAULT)
            dirty_note(dirty, address);
    }
}

static void dirty_take_off(struct dirty *dirty)
{
    for (struct dirty **at = &tracked; *at; at = &(*at)->next)
        if (*at == dirty) {
            *at = dirty->next;
            return;
        }
}

/* Unregister it; the kernel wakes the threads that wait. */
static void dirty_unregister(const struct dirty *dirty)
{
    struct uffdio_range range = {(uintptr_t)dirty->memory, dirty->size};
    if (!dirty_is_live(dirty))
        return;
    (void)dirty_protect(dirty, range.start, range.start + range.len, 0);
    (void)ioctl(owned_fd(&source), UFFDIO_UNREGISTER, &range);
}

/* End the trackings that are to be ended; after the last one the source is closed. If the program
 * has closed it the kernel has woken the threads that waited. */
static struct dirty *dirty_look_after(void)
{
    struct dirty *first = ended;
    ended = NULL;
    for (const struct dirty *dirty = first; dirty; dirty = dirty->next)
        dirty_unregister(dirty);
    if (tracked && owned_fd(&source) < 0) {
        atomic_fetch_add(&generation, 1);
        tracked = NULL;
    }
    if (!tracked)
        owned_close(&source);
    return first;
}

static void dirty_hand_over(struct dirty *first)
{
    for (struct dirty *next; first; first = next) {
        next = first->next;
        first->then(first->memory, first->size);
        free(first);
    }
}

static void *dirty_run(void *data)
{
    struct uffd_msg messages[MESSAGES];
    bool goes_on = true;
    (void)data;
    while (goes_on) {
        pthread_mutex_lock(&lock);
        struct dirty *over = dirty_look_after();
        int fd = owned_fd(&source);
        ssize_t got = fd >= 0 ? read(fd, messages, sizeof(messages)) : 0;
        if (got > 0)
            dirty_note_all(messages, (size_t)got / sizeof(messages[0]));
        runs = goes_on = fd >= 0;
        pthread_mutex_unlock(&lock);
        dirty_hand_over(over);
        struct pollfd faults = {.fd = fd, .events = POLLIN};
        if (goes_on && got <= 0)
            (void)poll(&faults, 1, LOOK_MS);
    }
    return NULL;
}

/* Locked. */
static int dirty_begin_locked(struct dirty *dirty)
{
    int error = owned_fd(&source) >= 0 ? 0 : dirty_open_source();
    if (error != 0)
        return error;
    if (!runs)
        error = thread_start("reseat-dirty", STACK, dirty_run, NULL, NULL);
    runs = runs || error == 0;
    struct uffdio_register range = {.range = {(uintptr_t)dirty->memory, dirty->size},
                                    .mode = UFFDIO_REGISTER_MODE_WP};
    if (error == 0 && (ioctl(owned_fd(&source), UFFDIO_REGISTER, &range) != 0 ||
                       !(range.ioctls & (UINT64_C(1) << _UFFDIO_WRITEPROTECT))))
        error = -ENOTSUP;
    if (error == 0) {
        dirty->generation = atomic_load(&generation);
        dirty->next = tracked;
        tracked = dirty;
    } else if (!tracked) {
        owned_close(&source);
    }
    return error;
}

int dirty_begin(char *memory, size_t size, struct dirty **ret_dirty)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), parts = (size + DIRTY_PART - 1) / DIRTY_PART;
    struct dirty *dirty = calloc(1, sizeof(*dirty) + (parts + BITS - 1) / BITS * sizeof(uint64_t));
    if (!dirty)
        return -ENOMEM;
    dirty->memory = memory;
    dirty->size = (size + page - 1) & ~(page - 1);
    dirty->parts = parts;
    pthread_mutex_lock(&lock);
    struct dirty *over = dirty_look_after();
    int error = dirty_begin_locked(dirty);
    pthread_mutex_unlock(&lock);
    dirty_hand_over(over);
    if (error != 0) {
        log_debug("no dirty tracking here: error %d", error);
        free(dirty);
        return error;
    }
    *ret_dirty = dirty;
    return 0;
}

static int dirty_clean_slice(struct dirty *dirty, size_t first, size_t end)
{
    uintptr_t memory = (uintptr_t)dirty->memory;
    int error = -ENOTSUP;
    pthread_mutex_lock(&lock);
    if (dirty_is_live(dirty)) {
        for (size_t i = first; i < end; i++)
            dirty_set_clean(dirty, i, true);
        error = dirty_protect(dirty, memory + first * DIRTY_PART, memory + end * DIRTY_PART,
                              UFFDIO_WRITEPROTECT_MODE_WP);
        for (size_t i = first; error != 0 && i < end; i++)
            dirty_set_clean(dirty, i, false);
    }
    pthread_mutex_unlock(&lock);
    return error == 0 ? 0 : -ENOTSUP;
}

int dirty_clean(struct dirty *dirty, size_t first, size_t count)
{
    size_t end = first + count < dirty->parts ? first + count : dirty->parts;
    int error = 0;
    for (size_t at = first, next; error == 0 && at < end; at = next) {
        next = end - at < SLICE ? end : at + SLICE;
        char *memory = dirty->memory + at * DIRTY_PART;
        size_t size = (next - at) * DIRTY_PART, left = dirty->size - at * DIRTY_PART;
        /* The first write to a page that is not present is not reported: read it first. */
        error = madvise(memory, size < left ? size : left, MADV_POPULATE_READ) == 0
                    ? dirty_clean_slice(dirty, at, next)
                    : -ENOTSUP;
    }
    return error;
}

bool dirty_holds(const struct dirty *dirty)
{
    pthread_mutex_lock(&lock);
    bool holds = dirty_is_live(dirty);
    pthread_mutex_unlock(&lock);
    return holds;
}

void dirty_end(struct dirty *dirty)
{
    pthread_mutex_lock(&lock);
    dirty_unregister(dirty);
    dirty_take_off(dirty);
    struct dirty *over = dirty_look_after();
    pthread_mutex_unlock(&lock);
    dirty_hand_over(over);
    free(dirty);
}

void dirty_end_later(struct dirty *dirty, void (*then)(char *memory, size_t size))
{
    pthread_mutex_lock(&lock);
    bool later = runs && dirty_is_live(dirty);
    dirty_take_off(dirty);
    dirty->then = then;
    dirty->next = later ? ended : NULL;
    if (later)
        ended = dirty;
    pthread_mutex_unlock(&lock);
    if (!later)
        dirty_hand_over(dirty);
}

/* The descriptor that the child inherits is for the parent's memory; nothing of the child's is
 * protected. */
static void dirty_in_child(void)
{
    owned_close(&source);
    tracked = ended = NULL;
    runs = false;
    atomic_fetch_add(&generation, 1);
}

FORK_PART = {.rank = FORK_TABLE, .long_lock = &lock, .in_child = dirty_in_child};
