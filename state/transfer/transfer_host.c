#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "state/base/memory/pages.h"
#include "state/transfer/transfer_priv.h"

#if defined(__x86_64__)
#define LINE ((size_t)64)

void host_flush(const char *memory, size_t size)
{
    for (size_t i = 0; i < size; i += LINE)
        _mm_clflush(memory + i);
    _mm_mfence();
}
#else
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

void host_copy_user_memory(char *to, const char *from, size_t size)
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
        } else if (done <= 0) { /* not permitted, or the kernel has no such call */
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
