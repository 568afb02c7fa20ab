#include "remote/rings/bulk.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "remote/rings/area.h"
#include "state/base/cleanup.h"
#include "state/base/files/owned.h"
#include "state/base/memory/pages.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"

/* Free space between blocks. */
struct hole {
    size_t offset, size;
};

struct area {
    uint32_t number;
    char *bytes;
    size_t size;
    struct hole *holes; /* Sorted by offset; neighbours are merged. */
    size_t hole_count;
    size_t blocks;
    struct owned fd; /* For bulk_detach(). */
};

struct bulk {
    struct bulk *next; /* In `bulks`; guarded by lock. */
    struct bulk_limits limits;
    struct bulk_link link;
    uint64_t process;
    /* Guarded by lock: */
    struct area *areas; /* Has room for limits.areas. */
    unsigned count;     /* Of the areas, and of those being made. */
    unsigned making;
    uint64_t bytes; /* Of both. */
    uint64_t lent;  /* Bytes of its loans, including those that were only begun. */
    bool detached;  /* The session has ended: loans are private. */
    uint32_t last_number;
};

struct bulk_loan {
    struct bulk_loan *next;
    struct bulk *bulk;       /* NULL: the bulk was destroyed, or this is a child of a fork. */
    struct bulk_block block; /* Without bytes until bulk_lend(): then it is in no list. */
    const atomic_uint *maps;
    bool is_private; /* The bytes are not in the area any more. */
    char *copy;      /* A copy of the bytes for the child of a fork that is being made; or NULL. */
};

/* One for all bulks. It is held for less than a microsecond, except in a fork and at the end of a
 * session, where loans are copied. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bulk *bulks;
static struct bulk_loan *loans;

static size_t bulk_round_up(size_t size, size_t unit)
{
    return size > SIZE_MAX - unit ? 0 : (size + unit - 1) / unit * unit;
}

static bool bulk_limits_are_valid(const struct bulk_limits *limits)
{
    return limits->areas > 0 && limits->areas <= BULK_AREAS_MOST && limits->area_size > 0 &&
           limits->area_size % AREA_ALIGNMENT == 0;
}

int bulk_create(const struct bulk_limits *limits, const struct bulk_link *link,
                struct bulk **ret_bulk)
{
    if (!bulk_limits_are_valid(limits))
        return -EINVAL;
    uint64_t process = process_mark();
    struct bulk *bulk = calloc(1, sizeof(*bulk));
    struct area *areas = calloc(limits->areas, sizeof(*areas));
    if (!bulk || !areas || process == 0 || fork_watch() != 0) {
        free(bulk);
        free(areas);
        return -ENOMEM;
    }
    *bulk = (struct bulk){.limits = *limits, .link = *link, .process = process, .areas = areas};
    pthread_mutex_lock(&lock);
    bulk->next = bulks;
    bulks = bulk;
    pthread_mutex_unlock(&lock);
    *ret_bulk = bulk;
    return 0;
}

static void bulk_area_finish(struct area *area)
{
    area_unmap(area->bytes, area->size);
    owned_close(&area->fd);
    free(area->holes);
}

/* ---- blocks of an area; the lock is held, or nobody else has the area ---- */

/* Where a block of @size bytes could begin in the hole; SIZE_MAX: nowhere. */
static size_t bulk_begin_in(const struct hole *hole, size_t size)
{
    size_t begin =
        size < AREA_ALIGNMENT ? hole->offset : bulk_round_up(hole->offset, AREA_ALIGNMENT);
    return begin - hole->offset <= hole->size && hole->size - (begin - hole->offset) >= size
               ? begin
               : SIZE_MAX;
}

/* The smallest hole in which it fits; or hole_count. */
static size_t bulk_best_hole(const struct area *area, size_t size)
{
    size_t best = area->hole_count;
    for (size_t i = 0; i < area->hole_count; i++)
        if (bulk_begin_in(&area->holes[i], size) != SIZE_MAX &&
            (best == area->hole_count || area->holes[i].size < area->holes[best].size))
            best = i;
    return best;
}

static void bulk_hole_remove(struct area *area, size_t i)
{
    area->hole_count--;
    memmove(&area->holes[i], &area->holes[i + 1], (area->hole_count - i) * sizeof(area->holes[0]));
}

/* There is room for it in the array. */
static void bulk_hole_insert(struct area *area, size_t i, struct hole hole)
{
    memmove(&area->holes[i + 1], &area->holes[i], (area->hole_count - i) * sizeof(area->holes[0]));
    area->holes[i] = hole;
    area->hole_count++;
}

/* Take @size bytes of a hole, which leaves up to two smaller ones. */
static int bulk_area_take(struct area *area, size_t i, size_t size, struct bulk_block *ret_block)
{
    const struct hole hole = area->holes[i];
    size_t begin = bulk_begin_in(&hole, size), end = begin + size,
           hole_end = hole.offset + hole.size;
    /* Reserve room now, so that giving back needs no memory: there is at most one hole more than
     * there are blocks, and one more while holes are merged. */
    struct hole *holes = reallocarray(area->holes, area->blocks + 3, sizeof(*holes));
    if (!holes)
        return -ENOMEM;
    area->holes = holes;
    bulk_hole_remove(area, i);
    if (end < hole_end)
        bulk_hole_insert(area, i, (struct hole){end, hole_end - end});
    if (hole.offset < begin)
        bulk_hole_insert(area, i, (struct hole){hole.offset, begin - hole.offset});
    area->blocks++;
    *ret_block = (struct bulk_block){area->number, begin, size, area->bytes + begin};
    return 0;
}

static void bulk_area_give(struct area *area, size_t offset, size_t size)
{
    size_t i = 0;
    while (i < area->hole_count && area->holes[i].offset < offset)
        i++;
    bulk_hole_insert(area, i, (struct hole){offset, size});
    struct hole *holes = area->holes;
    if (i + 1 < area->hole_count && offset + size == holes[i + 1].offset) {
        holes[i].size += holes[i + 1].size;
        bulk_hole_remove(area, i + 1);
    }
    if (i > 0 && holes[i - 1].offset + holes[i - 1].size == offset) {
        holes[i - 1].size += holes[i].size;
        bulk_hole_remove(area, i);
    }
    area->blocks--;
}

/* ---- areas ---- */

/* Locked. Take a block from the smallest hole of all areas in which it fits. 0, -ENOSPC, -ENOMEM.
 */
static int bulk_take_here(struct bulk *bulk, uint32_t after, size_t size,
                          struct bulk_block *ret_block)
{
    struct area *best = NULL;
    size_t best_i = 0;
    for (unsigned k = 0; k < bulk->count; k++) {
        struct area *area = &bulk->areas[k];
        if (area->number <= after)
            continue;
        size_t i = bulk_best_hole(area, size);
        if (i < area->hole_count && (!best || area->holes[i].size < best->holes[best_i].size)) {
            best = area;
            best_i = i;
        }
    }
    return best ? bulk_area_take(best, best_i, size, ret_block) : -ENOSPC;
}

/* Locked. Count an area that will be made; false: the limits do not allow it. */
static bool bulk_announce_area(struct bulk *bulk, size_t size, uint32_t *ret_number)
{
    if (bulk->count + bulk->making >= bulk->limits.areas ||
        size > bulk->limits.all_bytes - bulk->bytes)
        return false;
    bulk->making++;
    bulk->bytes += size;
    *ret_number = ++bulk->last_number;
    return true;
}

static int bulk_area_init(struct area *area, uint32_t number, size_t size, int *ret_fd)
{
    *area = (struct area){.number = number, .size = size, .hole_count = 1};
    area->fd = OWNED_NONE;
    CLEANUP(cleanup_close) int fd = -1;
    int err = area_create("reseat-bulk", size, &fd);
    if (err == 0)
        err = area_map(fd, size, &area->bytes);
    if (err != 0)
        return err;
    pages_populate(area->bytes, size, PAGES_THREADS, NULL);
    area->holes = malloc(sizeof(area->holes[0]));
    /* If the threads could not allocate all pages, fail now rather than at an access. */
    if (!area->holes || area_populate(area->bytes, size) != 0) {
        bulk_area_finish(area);
        return -ENOMEM;
    }
    area->holes[0] = (struct hole){0, size};
    *ret_fd = fd;
    fd = -1;
    return 0;
}

/* Takes the descriptor. If that fails, the area's loans stay shared after the end of the session.
 */
static void bulk_area_keep_descriptor(struct area *area, int *fd)
{
    if (owned_take(*fd, &area->fd) != 0)
        area->fd = OWNED_NONE;
    *fd = -1;
}

/* Make the area that was counted, and take its first block. */
static int bulk_take_of_new(struct bulk *bulk, uint32_t number, size_t area_size, size_t size,
                            struct bulk_block *ret_block)
{
    struct area area;
    struct bulk_block block;
    CLEANUP(cleanup_close) int fd = -1;
    int err = bulk_area_init(&area, number, area_size, &fd);
    if (err == 0) {
        err = bulk_area_take(&area, 0, size, &block);
        if (err == 0)
            err = bulk->link.offer(bulk->link.data, number, fd, area_size);
        if (err != 0)
            bulk_area_finish(&area);
        else
            bulk_area_keep_descriptor(&area, &fd);
    }
    pthread_mutex_lock(&lock);
    bulk->making--;
    if (err == 0)
        bulk->areas[bulk->count++] = area;
    else
        bulk->bytes -= area_size;
    pthread_mutex_unlock(&lock);
    if (err == 0)
        *ret_block = block;
    return err;
}

int bulk_take(struct bulk *bulk, size_t size, struct bulk_block *ret_block)
{
    return bulk_take_after(bulk, 0, size, ret_block);
}

uint32_t bulk_last(struct bulk *bulk)
{
    if (process_mark() != bulk->process)
        return 0;
    int cancel = cancel_hold();
    pthread_mutex_lock(&lock);
    uint32_t last = bulk->last_number;
    pthread_mutex_unlock(&lock);
    cancel_allow(cancel);
    return last;
}

int bulk_take_after(struct bulk *bulk, uint32_t after, size_t size, struct bulk_block *ret_block)
{
    uint32_t number = 0;
    if (process_mark() != bulk->process)
        return -ECHILD;
    size_t whole = bulk_round_up(size, area_page()),
           area_size = bulk_round_up(whole, AREA_ALIGNMENT);
    if (whole == 0 || area_size == 0)
        return -ENOSPC;
    area_size = area_size > bulk->limits.area_size ? area_size : bulk->limits.area_size;
    int cancel = cancel_hold();
    pthread_mutex_lock(&lock);
    int err = bulk_take_here(bulk, after, whole, ret_block);
    bool makes = err == -ENOSPC && bulk_announce_area(bulk, area_size, &number);
    pthread_mutex_unlock(&lock);
    if (makes)
        err = bulk_take_of_new(bulk, number, area_size, whole, ret_block);
    cancel_allow(cancel);
    return err;
}

void bulk_give(struct bulk *bulk, const struct bulk_block *block)
{
    if (process_mark() != bulk->process)
        return;
    int cancel = cancel_hold();
    pthread_mutex_lock(&lock);
    for (unsigned k = 0; k < bulk->count; k++)
        if (bulk->areas[k].number == block->area)
            bulk_area_give(&bulk->areas[k], (size_t)block->offset, block->size);
    pthread_mutex_unlock(&lock);
    cancel_allow(cancel);
}

bool bulk_find(struct bulk *bulk, const void *bytes, size_t size, uint32_t *ret_area,
               uint64_t *ret_offset)
{
    bool found = false;
    if (process_mark() != bulk->process)
        return false;
    int cancel = cancel_hold();
    pthread_mutex_lock(&lock);
    for (unsigned k = 0; k < bulk->count && !found; k++) {
        const struct area *area = &bulk->areas[k];
        uintptr_t offset = (uintptr_t)bytes - (uintptr_t)area->bytes;
        found = offset < area->size && size <= area->size - offset;
        if (found) {
            *ret_area = area->number;
            *ret_offset = offset;
        }
    }
    pthread_mutex_unlock(&lock);
    cancel_allow(cancel);
    return found;
}

/* Locked. Remove an area without blocks from the list; false: areas without blocks have at most
 * @keep bytes. */
static bool bulk_take_idle(struct bulk *bulk, uint64_t keep, struct area *ret_area)
{
    uint64_t idle = 0;
    unsigned last = bulk->count;
    for (unsigned k = 0; k < bulk->count; k++) {
        if (bulk->areas[k].blocks > 0)
            continue;
        idle += bulk->areas[k].size;
        last = k;
    }
    if (idle <= keep)
        return false;
    *ret_area = bulk->areas[last];
    bulk->areas[last] = bulk->areas[--bulk->count];
    bulk->bytes -= ret_area->size;
    return true;
}

uint64_t bulk_trim(struct bulk *bulk, uint64_t keep)
{
    struct area area;
    if (process_mark() != bulk->process)
        return 0;
    int cancel = cancel_hold();
    for (;;) {
        pthread_mutex_lock(&lock);
        bool found = bulk_take_idle(bulk, keep, &area);
        uint64_t left = bulk->bytes;
        pthread_mutex_unlock(&lock);
        if (!found) {
            cancel_allow(cancel);
            return left;
        }
        bulk_area_finish(&area);
        bulk->link.withdraw(bulk->link.data, area.number);
    }
}

/* ---- loans ---- */

const struct bulk_block *bulk_loan_block(const struct bulk_loan *loan)
{
    return &loan->block;
}

/* Locked, or in a child of a fork, which has one thread. */
static struct area *bulk_area_of(const struct bulk_loan *loan)
{
    for (unsigned k = 0; k < loan->bulk->count; k++)
        if (loan->bulk->areas[k].number == loan->block.area)
            return &loan->bulk->areas[k];
    return NULL;
}

/* Locked. In a child whose fork ran no handlers, nothing is mapped there. */
static void bulk_loan_end(const struct bulk_loan *loan)
{
    const struct bulk_block *block = &loan->block;
    if (!loan->bulk) {
        munmap(block->bytes, block->size);
        return;
    }
    if (process_mark() != loan->bulk->process)
        return;
    loan->bulk->lent -= block->size;
    if (!block->bytes)
        return;
    /* The addresses belong to the area, and are unmapped with the session. */
    if (loan->is_private) {
        (void)madvise(block->bytes, block->size, MADV_DONTNEED);
        return;
    }
    (void)madvise(block->bytes, block->size, MADV_DOFORK);
    bulk_area_give(bulk_area_of(loan), (size_t)block->offset, block->size);
}

void bulk_return(struct bulk_loan *loan)
{
    if (!loan)
        return;
    int cancel = cancel_hold();
    pthread_mutex_lock(&lock);
    struct bulk_loan **at = &loans;
    while (*at && *at != loan)
        at = &(*at)->next;
    if (*at)
        *at = loan->next;
    bulk_loan_end(loan);
    pthread_mutex_unlock(&lock);
    cancel_allow(cancel);
    free(loan);
}

/* False in a child whose fork ran no handlers: nothing is mapped there. */
static bool bulk_loan_is_shared(const struct bulk_loan *loan)
{
    return loan->bulk && !loan->is_private && loan->bulk->process == process_mark();
}

/* A private copy of the bytes at this moment; or NULL. */
static char *bulk_loan_copy(const struct bulk_loan *loan)
{
    char *copy =
        mmap(NULL, loan->block.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return NULL;
    memcpy(copy, loan->block.bytes, loan->block.size);
    return copy;
}

/* Move a copy to the loan's address. */
static bool bulk_loan_replace(const struct bulk_loan *loan, char *copy)
{
    return mremap(copy, loan->block.size, loan->block.size, MREMAP_MAYMOVE | MREMAP_FIXED,
                  loan->block.bytes) != MAP_FAILED;
}

/* Locked. Other threads may be writing there. */
static void bulk_loan_make_private(struct bulk_loan *loan)
{
    const struct bulk_block *block = &loan->block;
    loan->is_private = area_make_private(&bulk_area_of(loan)->fd, (size_t)block->offset,
                                         block->size, block->bytes) == 0;
}

struct bulk_loan *bulk_loan_begin(struct bulk *bulk, size_t size, uint64_t most)
{
    struct bulk_loan *loan = calloc(1, sizeof(*loan));
    size_t whole = bulk_round_up(size, area_page());
    if (!loan)
        return NULL;
    int cancel = cancel_hold();
    pthread_mutex_lock(&lock);
    bool may = whole != 0 && bulk->lent <= most && whole <= most - bulk->lent &&
               bulk->count + bulk->making <= bulk->limits.areas / 2;
    if (may)
        bulk->lent += whole;
    pthread_mutex_unlock(&lock);
    cancel_allow(cancel);
    *loan = (struct bulk_loan){.bulk = bulk, .block.size = whole};
    if (may)
        return loan;
    free(loan);
    return NULL;
}

int bulk_lend(struct bulk_loan *loan, const struct bulk_block *block, const atomic_uint *maps)
{
    if (block->size != loan->block.size)
        return -EINVAL;
    if (madvise(block->bytes, block->size, MADV_DONTFORK) != 0)
        return -ENOMEM;
    int cancel = cancel_hold();
    pthread_mutex_lock(&lock);
    loan->block = *block;
    loan->maps = maps;
    loan->next = loans;
    loans = loan;
    if (loan->bulk->detached)
        bulk_loan_make_private(loan);
    pthread_mutex_unlock(&lock);
    cancel_allow(cancel);
    return 0;
}

void bulk_detach(struct bulk *bulk)
{
    int cancel = cancel_hold();
    pthread_mutex_lock(&lock);
    bulk->detached = true;
    for (struct bulk_loan *loan = loans; loan; loan = loan->next)
        if (loan->bulk == bulk && bulk_loan_is_shared(loan))
            bulk_loan_make_private(loan);
    pthread_mutex_unlock(&lock);
    cancel_allow(cancel);
}

/* Locked. The loan of an area with the lowest offset that is at least @at, or NULL. */
static const struct bulk_loan *bulk_next_loan(const struct bulk *bulk, const struct area *area,
                                              size_t at)
{
    const struct bulk_loan *next = NULL;
    for (const struct bulk_loan *loan = loans; loan; loan = loan->next)
        if (loan->bulk == bulk && loan->block.area == area->number && loan->block.offset >= at &&
            (!next || loan->block.offset < next->block.offset))
            next = loan;
    return next;
}

/* Locked. Unmap an area except for its loans. */
static void bulk_unmap_unlent(const struct bulk *bulk, const struct area *area)
{
    for (size_t at = 0, end; at < area->size;) {
        const struct bulk_loan *next = bulk_next_loan(bulk, area, at);
        end = next ? (size_t)next->block.offset : area->size;
        if (end > at)
            area_unmap(area->bytes + at, end - at);
        at = next ? end + next->block.size : end;
    }
}

/* Locked. Turn a loan that the program does not use into anonymous memory, which images of the
 * process can contain. */
static void bulk_loan_make_ordinary(const struct bulk_loan *loan)
{
    char *copy = bulk_loan_copy(loan);
    if (copy && !bulk_loan_replace(loan, copy))
        munmap(copy, loan->block.size);
}

void bulk_destroy(struct bulk *bulk)
{
    if (!bulk)
        return;
    bulk_detach(bulk);
    pthread_mutex_lock(&lock);
    for (struct bulk_loan *loan = loans; loan; loan = loan->next)
        if (loan->bulk == bulk && atomic_load(loan->maps) == 0)
            bulk_loan_make_ordinary(loan);
    for (unsigned i = 0; i < bulk->count; i++) {
        bulk_unmap_unlent(bulk, &bulk->areas[i]);
        owned_close(&bulk->areas[i].fd);
        free(bulk->areas[i].holes);
    }
    for (struct bulk_loan *loan = loans; loan; loan = loan->next)
        if (loan->bulk == bulk)
            loan->bulk = NULL;
    struct bulk **at = &bulks;
    while (*at != bulk)
        at = &(*at)->next;
    *at = bulk->next;
    pthread_mutex_unlock(&lock);
    free(bulk->areas);
    free(bulk);
}

/* ---- forks ---- */

/* In the parent, so that the child gets the bytes of this moment. */
static void bulk_before_fork(void)
{
    for (struct bulk_loan *loan = loans; loan; loan = loan->next)
        if (bulk_loan_is_shared(loan) && atomic_load(loan->maps) != 0)
            loan->copy = bulk_loan_copy(loan);
}

static void bulk_after_fork(void)
{
    for (struct bulk_loan *loan = loans; loan; loan = loan->next) {
        if (!loan->copy || !bulk_loan_is_shared(loan))
            continue;
        munmap(loan->copy, loan->block.size);
        loan->copy = NULL;
    }
}

/* Without memory for a copy, the child gets a fault there rather than wrong bytes. */
static void bulk_loan_in_child(struct bulk_loan *loan)
{
    const struct bulk_block *block = &loan->block;
    if (loan->copy)
        (void)bulk_loan_replace(loan, loan->copy);
    else if (atomic_load(loan->maps) == 0)
        (void)mmap(block->bytes, block->size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    loan->copy = NULL;
}

static void bulk_in_child(void)
{
    for (struct bulk_loan *loan = loans; loan; loan = loan->next) {
        if (loan->bulk && !loan->is_private)
            bulk_loan_in_child(loan);
        loan->bulk = NULL;
    }
    for (struct bulk *bulk = bulks; bulk; bulk = bulk->next)
        for (unsigned i = 0; i < bulk->count; i++)
            owned_close(&bulk->areas[i].fd);
}

FORK_PART = {.rank = FORK_OBJECT,
             .lock = &lock,
             .before = bulk_before_fork,
             .after = bulk_after_fork,
             .in_child = bulk_in_child};
