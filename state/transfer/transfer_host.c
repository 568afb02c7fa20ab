#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "state/base/log.h"
#include "state/base/pages.h"
#include "state/transfer/transfer_priv.h"

/* Less is copied through the caches. */
#define STREAM_LEAST ((size_t)64 << 10)
#define LINE         ((size_t)64)

#if defined(__x86_64__)
/* An ordinary store reads the line that it writes before: a core copies from a chunk at 6 GB/s with
 * them, and at 13 without (an H200's host, beside the link), and the link is not held up. */
void host_copy_out(char *to, const char *from, size_t size)
{
    size_t before = -(uintptr_t)to % LINE, lines = size < STREAM_LEAST ? 0 : (size - before) / LINE;
    if (lines == 0) {
        memcpy(to, from, size);
        return;
    }
    memcpy(to, from, before);
    to += before;
    from += before;
    for (size_t i = 0; i < lines; i++, to += LINE, from += LINE) {
        const __m128i *line = (const __m128i *)(const void *)from;
        __m128i *target = (__m128i *)(void *)to;
        __m128i a = _mm_loadu_si128(line), b = _mm_loadu_si128(line + 1);
        __m128i c = _mm_loadu_si128(line + 2), d = _mm_loadu_si128(line + 3);
        _mm_stream_si128(target, a);
        _mm_stream_si128(target + 1, b);
        _mm_stream_si128(target + 2, c);
        _mm_stream_si128(target + 3, d);
    }
    _mm_sfence(); /* who is told that it is there finds it */
    memcpy(to, from, size - before - lines * LINE);
}

void host_flush(const char *memory, size_t size)
{
    for (size_t i = 0; i < size; i += LINE)
        _mm_clflush(memory + i);
    _mm_mfence();
}
#else
void host_copy_out(char *to, const char *from, size_t size)
{
    memcpy(to, from, size);
}

void host_flush(const char *memory, size_t size)
{
    (void)memory;
    (void)size;
}
#endif

unsigned host_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return (unsigned)CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN); /* more CPUs than the set has room for */
    return online > 0 ? (unsigned)online : 1;
}

void host_copy_lent(char *to, const char *from, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    while (size > 0) {
        struct iovec into = {to, size}, out_of = {(void *)(uintptr_t)from, size};
        ssize_t done = process_vm_readv(getpid(), &into, 1, &out_of, 1, 0);
        if (done < 0 && errno == EFAULT) {
            done = (ssize_t)(page - (uintptr_t)from % page);
            if ((size_t)done > size)
                done = (ssize_t)size;
            memset(to, 0, (size_t)done);
        } else if (done <= 0) { /* it is not allowed, or the kernel has no such call */
            memcpy(to, from, size);
            return;
        }
        to += done;
        from += done;
        size -= (size_t)done;
    }
}

char *host_ring_create(size_t size, unsigned threads, const struct transfer_limits *limits)
{
    char *memory = pages_take(size, PAGES_ANY | PAGES_NO_FORK);
    if (memory)
        host_populate(memory, size, threads, limits);
    return memory;
}

void host_populate(char *memory, size_t size, unsigned threads,
                   const struct transfer_limits *limits)
{
    struct pages_patience patience = {0};
    if (limits)
        patience = (struct pages_patience){limits->cancel, limits->deadline_ns};
    if (pages_are_fresh(memory, size))
        pages_populate(memory, size, threads, &patience);
}
