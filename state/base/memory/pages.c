#include "state/base/memory/pages.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "state/base/array.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/memory/host_memory.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define LARGE_PAGE ((size_t)2 << 20)
/* Bytes that one thread populates at a time: some milliseconds. */
#define SLICE ((size_t)8 << 20)
#define STACK ((size_t)64 << 10)
/* Less available memory than this counts as short on any host. */
#define HOST_LEAST (UINT64_C(4) << 30)
/* Bytes that pages_tend warms at a time. */
#define WARM_STEP ((size_t)64 << 20)

/* Warm memory: whole large pages, sorted by address, adjacent ranges joined. A forked child has
 * none. */
struct span {
    char *begin;
    size_t size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t populated = PTHREAD_COND_INITIALIZER;
/* Guarded by the lock above. */
static struct {
    struct span *spans;
    size_t count;
    size_t bytes;  /* of the spans, and of memory that is on its way to them */
    uint64_t kept; /* by other modules (pages_keep) */
    uint64_t limit;
    bool short_of_memory; /* the host is short of memory: nothing is kept */
    pid_t owner;          /* process that the spans belong to */
    unsigned populating;  /* threads */
    uint64_t stalled_us;  /* the host's figures when it was last examined: */
    uint64_t looked_ns;
    void (*shrink)(void); /* frees what other modules keep; or NULL */
} pool;

static size_t pages_page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Size of the whole pages for @size; 0 on overflow. */
static size_t pages_whole_size(size_t size)
{
    size_t unit = size >= PAGES_LEAST ? LARGE_PAGE : pages_page_size();
    return size <= SIZE_MAX - unit ? (size + unit - 1) / unit * unit : 0;
}

/* True when the address space is limited: then the program needs it, so nothing is kept. */
static bool pages_space_is_limited(void)
{
    struct rlimit space, data;
    return getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur != RLIM_INFINITY ||
           getrlimit(RLIMIT_DATA, &data) != 0 || data.rlim_cur != RLIM_INFINITY;
}

/* Lock held. A child that was not made by a function of the C library inherits the list, but not
 * the memory. */
static bool pages_pool_is_ours(void)
{
    if (pool.owner == getpid())
        return true;
    pool.owner = getpid();
    pool.count = 0;
    pool.bytes = 0;
    pool.kept = 0;
    pool.limit = 0;
    return false;
}

/* Index of the first span behind @memory. Lock held. */
static size_t pages_span_after(const char *memory)
{
    size_t low = 0, high = pool.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pool.spans[middle].begin > memory)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void pages_span_remove(size_t i)
{
    pool.count--;
    memmove(&pool.spans[i], &pool.spans[i + 1], (pool.count - i) * sizeof(pool.spans[0]));
}

/* Locked. False without memory for the list. */
static bool pages_span_insert(char *memory, size_t size)
{
    size_t i = pages_span_after(memory);
    struct span *before = i > 0 ? &pool.spans[i - 1] : NULL;
    struct span *after = i < pool.count ? &pool.spans[i] : NULL;
    bool joins_before = before && before->begin + before->size == memory;
    bool joins_after = after && memory + size == after->begin;
    if (joins_before) {
        before->size += size + (joins_after ? after->size : 0);
        if (joins_after)
            pages_span_remove(i);
    } else if (joins_after) {
        after->begin = memory;
        after->size += size;
    } else {
        if (!array_make_room(&pool.spans, pool.count, sizeof(pool.spans[0])))
            return false;
        memmove(&pool.spans[i + 1], &pool.spans[i], (pool.count - i) * sizeof(pool.spans[0]));
        pool.spans[i] = (struct span){memory, size};
        pool.count++;
    }
    return true;
}

/* The smallest span that is large enough, or the largest of all. Locked. */
static size_t pages_span_for(size_t size)
{
    size_t best = 0;
    for (size_t i = 1; i < pool.count; i++) {
        size_t one = pool.spans[i].size, other = pool.spans[best].size;
        if (other < size ? one > other : one >= size && one < other)
            best = i;
    }
    return best;
}

/* Map fresh memory, at @wish if nothing is in its way; or NULL. */
static char *pages_map(char *wish, size_t size)
{
    char *got = mmap(wish, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return got == MAP_FAILED ? NULL : got;
}

/* Map fresh memory right below @memory, so that both become one range. The kernel maps there next
 * anyway. */
static bool pages_extend(char *memory, size_t size)
{
    char *got = size < (uintptr_t)memory ? pages_map(memory - size, size) : NULL;
    if (got && got != memory - size) {
        munmap(got, size);
        return false;
    }
    return got != NULL;
}

/* Map fresh memory of a size given by pages_whole_size(), on a large page if possible. */
static char *pages_map_fresh(size_t size)
{
    const size_t slack = LARGE_PAGE - pages_page_size();
    char *got = pages_map(NULL, size);
    if (!got || size % LARGE_PAGE != 0 || (uintptr_t)got % LARGE_PAGE == 0)
        return got; /* later kernels do so by themselves */
    char *more = pages_map(NULL, size + slack);
    if (!more)
        return got;
    munmap(got, size);
    /* Keep the upper end: the kernel maps downwards, so the next mapping is adjacent. */
    size_t before = slack - ((uintptr_t)more + slack) % LARGE_PAGE;
    if (before > 0)
        munmap(more, before);
    if (before < slack)
        munmap(more + before + size, slack - before);
    return more + before;
}

/* Unmap what is warm beyond @keep bytes. */
static void pages_release(uint64_t keep)
{
    for (;;) {
        struct span span = {0};
        pthread_mutex_lock(&lock);
        if (pages_pool_is_ours() && pool.bytes > keep && pool.count > 0) {
            size_t over = (size_t)(pool.bytes - keep) + LARGE_PAGE - 1;
            over -= over % LARGE_PAGE;
            span = pool.spans[0];
            span.size = over < span.size ? over : span.size;
            pool.spans[0].begin += span.size;
            pool.spans[0].size -= span.size;
            if (pool.spans[0].size == 0)
                pages_span_remove(0);
            pool.bytes -= span.size;
        }
        pthread_mutex_unlock(&lock);
        if (span.size == 0)
            return;
        munmap(span.begin, span.size);
    }
}

/* Bytes before @end, @size at most, that are present, checked once for each large page. */
static size_t pages_present_size(char *end, size_t size)
{
    size_t found = 0;
    unsigned char there = 1;
    while (found < size && mincore(end - found - LARGE_PAGE, 1, &there) == 0 && (there & 1))
        found += LARGE_PAGE;
    return found;
}

/* Reserve room for up to @size bytes, which count as kept from now on. */
static size_t pages_room_take(size_t size)
{
    if (pages_space_is_limited())
        return 0;
    pthread_mutex_lock(&lock);
    bool any = pages_pool_is_ours() && !pool.short_of_memory && pool.limit > pool.bytes + pool.kept;
    size_t room = any ? (size_t)(pool.limit - pool.bytes - pool.kept) : 0;
    room -= room % LARGE_PAGE;
    room = room < size ? room : size;
    pool.bytes += room;
    pthread_mutex_unlock(&lock);
    return room;
}

/* Keep the @size unused warm bytes at @memory, in reserved room. Returns how many are kept: all or
 * none. */
static size_t pages_room_fill(size_t room, char *memory, size_t size)
{
    if (size > 0 && madvise(memory, size, MADV_DONTFORK) != 0)
        size = 0;
    pthread_mutex_lock(&lock);
    if (size > 0 && !pages_span_insert(memory, size))
        size = 0;
    pool.bytes -= room - size;
    uint64_t most = pool.short_of_memory ? 0 : pool.limit; /* may have been lowered meanwhile */
    pthread_mutex_unlock(&lock);
    pages_release(most);
    return size;
}

/* Take back @memory, whole large pages that are not used any more. */
static void pages_give_whole(char *memory, size_t size)
{
    size_t room = pages_room_take(size), kept = pages_present_size(memory + size, room);
    if (room > 0)
        kept = pages_room_fill(room, memory + size - kept, kept);
    if (kept < size)
        munmap(memory, size - kept);
}

/* Memory of @size bytes, of which the largest possible range is warm; or NULL. */
static char *pages_take_warm(size_t size, bool no_fork)
{
    pthread_mutex_lock(&lock);
    if (!pages_pool_is_ours() || pool.count == 0) {
        pthread_mutex_unlock(&lock);
        return NULL;
    }
    size_t best = pages_span_for(size);
    struct span span = pool.spans[best];
    if (span.size > size) {
        pool.spans[best].size -= size;
        span = (struct span){span.begin + span.size - size, size};
    } else {
        pages_span_remove(best);
    }
    pool.bytes -= span.size;
    pthread_mutex_unlock(&lock);

    size_t more = size - span.size;
    if ((no_fork || madvise(span.begin, span.size, MADV_DOFORK) == 0) &&
        (more == 0 || pages_extend(span.begin, more)))
        return span.begin - more;
    pages_give_whole(span.begin, span.size);
    return NULL;
}

char *pages_take(size_t size, unsigned flags)
{
    size_t whole = pages_whole_size(size);
    bool large = whole >= PAGES_LEAST;
    if (whole == 0)
        return NULL;
    bool warm = large && (flags & PAGES_ANY) && !(flags & PAGES_FRESH);
    char *memory = warm ? pages_take_warm(whole, (flags & PAGES_NO_FORK) != 0) : NULL;
    if (!memory)
        memory = pages_map_fresh(whole);
    if (!memory && pages_warm() > 0) {
        pages_release(0);
        memory = pages_map_fresh(whole);
    }
    /* Where little is touched, small pages take less memory. */
    if (memory && large && (flags & PAGES_ANY))
        (void)madvise(memory, whole, MADV_HUGEPAGE);
    if (memory && (flags & PAGES_NO_FORK))
        (void)madvise(memory, whole, MADV_DONTFORK);
    return memory;
}

void pages_give(char *memory, size_t size)
{
    size_t whole = pages_whole_size(size);
    if (memory && whole >= PAGES_LEAST)
        pages_give_whole(memory, whole);
    else if (memory)
        munmap(memory, whole);
}

void pages_set_limit(uint64_t bytes)
{
    if (bytes != 0 && fork_watch() != 0)
        bytes = 0;
    pthread_mutex_lock(&lock);
    (void)pages_pool_is_ours();
    void (*shrink)(void) = bytes < pool.limit ? pool.shrink : NULL;
    pool.limit = bytes;
    pthread_mutex_unlock(&lock);
    if (shrink)
        shrink();
    pages_release(bytes);
}

uint64_t pages_limit(void)
{
    pthread_mutex_lock(&lock);
    uint64_t bytes = pages_pool_is_ours() ? pool.limit : 0;
    pthread_mutex_unlock(&lock);
    return bytes;
}

bool pages_keep(uint64_t bytes)
{
    if (pages_space_is_limited())
        return false;
    pthread_mutex_lock(&lock);
    bool keeps = pages_pool_is_ours() && !pool.short_of_memory && pool.kept + bytes <= pool.limit;
    if (keeps)
        pool.kept += bytes;
    uint64_t left = pool.limit - pool.kept;
    pthread_mutex_unlock(&lock);
    if (keeps)
        pages_release(left);
    return keeps;
}

void pages_unkeep(uint64_t bytes)
{
    pthread_mutex_lock(&lock);
    pool.kept -= bytes < pool.kept ? bytes : pool.kept;
    pthread_mutex_unlock(&lock);
}

void pages_set_shrink(void (*shrink)(void))
{
    pthread_mutex_lock(&lock);
    pool.shrink = shrink;
    pthread_mutex_unlock(&lock);
}

uint64_t pages_warm(void)
{
    pthread_mutex_lock(&lock);
    uint64_t bytes = pages_pool_is_ours() ? pool.bytes : 0;
    pthread_mutex_unlock(&lock);
    return bytes;
}

/* The whole pages in a range; false when there are none. */
static bool pages_inside(char **memory, size_t *size)
{
    uintptr_t page = pages_page_size();
    uintptr_t begin = ((uintptr_t)*memory + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)*memory + *size) & ~(page - 1);
    if (begin >= end)
        return false;
    *memory += begin - (uintptr_t)*memory;
    *size = end - begin;
    return true;
}

bool pages_are_fresh(const char *memory, size_t size)
{
    char *pages = (char *)(uintptr_t)memory;
    unsigned char first = 1, last = 1;
    if (!pages_inside(&pages, &size))
        return false;
    return mincore(pages, 1, &first) == 0 &&
           mincore(pages + size - pages_page_size(), 1, &last) == 0 && !(first & last & 1);
}

/* Populate with one thread, of PAGES_THREADS at most. */
static void pages_populate_by_one(char *memory, size_t size)
{
    static atomic_bool unknown;
    pthread_mutex_lock(&lock);
    while (pool.populating >= PAGES_THREADS)
        pthread_cond_wait(&populated, &lock);
    pool.populating++;
    pthread_mutex_unlock(&lock);
    /* Other errors mean that a page cannot be made present now. */
    if (!atomic_load_explicit(&unknown, memory_order_relaxed) &&
        madvise(memory, size, MADV_POPULATE_WRITE) != 0 && errno == EINVAL)
        atomic_store_explicit(&unknown, true, memory_order_relaxed);
    if (atomic_load_explicit(&unknown, memory_order_relaxed))
        for (size_t i = 0; i < size; i += pages_page_size()) /* a write that changes nothing */
            __atomic_fetch_or(memory + i, 0, __ATOMIC_RELAXED);
    pthread_mutex_lock(&lock);
    pool.populating--;
    pthread_cond_signal(&populated);
    pthread_mutex_unlock(&lock);
}

struct job {
    uintptr_t begin, end;
    const struct pages_patience *patience;
    _Atomic uintptr_t next; /* begin of the next slice; the first one may begin before the range */
};

static bool pages_is_over(const struct pages_patience *patience)
{
    return patience && ((patience->cancel && atomic_load(patience->cancel)) ||
                        (patience->deadline_ns && clock_now_ns() >= patience->deadline_ns));
}

static void *pages_populate_run(void *data)
{
    struct job *job = data;
    uintptr_t at;
    while (!pages_is_over(job->patience) &&
           (at = atomic_fetch_add_explicit(&job->next, SLICE, memory_order_relaxed)) < job->end) {
        uintptr_t begin = at > job->begin ? at : job->begin;
        uintptr_t end = job->end - at < SLICE ? job->end : at + SLICE;
        pages_populate_by_one((char *)begin, end - begin);
    }
    return NULL;
}

void pages_populate(char *memory, size_t size, unsigned threads,
                    const struct pages_patience *patience)
{
    pthread_t others[PAGES_THREADS];
    unsigned count = 0, most = threads < PAGES_THREADS ? threads : PAGES_THREADS;
    if (!memory || !pages_inside(&memory, &size))
        return;
    struct job job = {(uintptr_t)memory, (uintptr_t)memory + size, patience, 0};
    /* Align slices, so that two threads never make the same large page, one of which would be
     * thrown away. */
    atomic_init(&job.next, job.begin & ~(uintptr_t)(SLICE - 1));
    while (count + 1 < most && count + 1 < size / SLICE &&
           thread_start("reseat-pages", STACK, pages_populate_run, &job, &others[count]) == 0)
        count++;
    pages_populate_run(&job);
    while (count > 0)
        pthread_join(others[--count], NULL);
}

/* Below this the host is short of memory. */
static uint64_t pages_least_available(const struct host_memory *host)
{
    return host->total / 8 < HOST_LEAST ? host->total / 8 : HOST_LEAST;
}

/* True when processes had to wait for memory for more than a tenth of the time since it was looked
 * at last. Locked. */
static bool pages_has_stalled(const struct host_memory *host)
{
    uint64_t now = clock_now_ns(), passed_us = (now - pool.looked_ns) / 1000;
    uint64_t stalled_us = host->stalled_us > pool.stalled_us && pool.looked_ns != 0
                              ? host->stalled_us - pool.stalled_us
                              : 0;
    pool.stalled_us = host->stalled_us;
    pool.looked_ns = now;
    return stalled_us > passed_us / 10;
}

/* True when the host is short of memory; then it stays so until it has twice as much. */
static bool pages_look(struct host_memory *ret_host)
{
    struct host_memory host = {0};
    bool known = host_memory_read(&host) == 0;
    uint64_t least = pages_least_available(&host);
    pthread_mutex_lock(&lock);
    bool before = pool.short_of_memory;
    bool now = !known || pages_has_stalled(&host) || host.available < (before ? 2 * least : least);
    pool.short_of_memory = now;
    pthread_mutex_unlock(&lock);
    if (now && !before)
        log_info("the host is short of memory (%zu MiB left): no pages are kept warm",
                 (size_t)(host.available >> 20));
    *ret_host = host;
    return now;
}

/* Map fresh memory, adjacent to warm memory if possible. */
static char *pages_map_beside(size_t size)
{
    pthread_mutex_lock(&lock);
    char *beside = pool.count > 0 ? pool.spans[pages_span_for(SIZE_MAX)].begin : NULL;
    pthread_mutex_unlock(&lock);
    return beside && pages_extend(beside, size) ? beside - size : pages_map_fresh(size);
}

/* Warm a little more memory, if nobody else needs it. */
static void pages_warm_more(const struct host_memory *host, size_t size)
{
    if (host->load >= host->processors || host->available < 2 * pages_least_available(host) + size)
        return;
    size_t room = pages_room_take(size);
    char *memory = room > 0 ? pages_map_beside(room) : NULL;
    if (memory) {
        (void)madvise(memory, room, MADV_HUGEPAGE);
        pages_populate(memory, room, 1, NULL);
    }
    if (room > 0 && pages_room_fill(room, memory, memory ? room : 0) == 0 && memory)
        munmap(memory, room);
}

void pages_tend(uint64_t wanted)
{
    struct host_memory host;
    pthread_mutex_lock(&lock);
    uint64_t limit = pages_pool_is_ours() && pool.limit > pool.kept ? pool.limit - pool.kept : 0;
    uint64_t bytes = pool.bytes;
    void (*shrink)(void) = pool.shrink;
    bool looks = pool.short_of_memory || bytes > 0 || pool.kept > 0;
    pthread_mutex_unlock(&lock);
    wanted = wanted < limit ? wanted : limit;
    if (!looks && bytes >= wanted)
        return;
    if (pages_look(&host)) {
        pages_release(0);
        if (shrink)
            shrink();
    } else if (bytes < wanted) {
        pages_warm_more(&host, wanted - bytes < WARM_STEP ? (size_t)(wanted - bytes) : WARM_STEP);
    }
}

static void pages_in_child(void)
{
    (void)pages_pool_is_ours(); /* a child has none */
    pool.populating = 0;
}

FORK_PART = {
    .rank = FORK_OBJECT, .lock = &lock, .changed = {&populated}, .in_child = pages_in_child};
