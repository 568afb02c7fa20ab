#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "state/base/log.h"
#include "state/base/thread.h"
#include "state/transfer/transfer_priv.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define BLOCK     (4u << 20) /* that one prefaulting thread takes at a time */
#define HUGE_PAGE (2u << 20)

unsigned host_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return (unsigned)CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN); /* more CPUs than the set has room for */
    return online > 0 ? (unsigned)online : 1;
}

/* The whole pages in a range; false when there are none. */
static bool pages_inside(char **memory, size_t *size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)*memory + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)*memory + *size) & ~(page - 1);
    if (begin >= end)
        return false;
    *memory += begin - (uintptr_t)*memory;
    *size = end - begin;
    return true;
}

/* False when the kernel does not know how. */
static bool populate(char *memory, size_t size)
{
    static atomic_bool unknown;
    if (atomic_load_explicit(&unknown, memory_order_relaxed))
        return false;
    if (madvise(memory, size, MADV_POPULATE_WRITE) == 0 || errno != EINVAL)
        return true; /* other errors say that a page cannot be made present now */
    atomic_store_explicit(&unknown, true, memory_order_relaxed);
    return false;
}

bool host_is_fresh(const char *memory, size_t size)
{
    char *pages = (char *)(uintptr_t)memory;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char first = 1, last = 1;
    if (!pages_inside(&pages, &size))
        return false;
    return mincore(pages, page, &first) == 0 && mincore(pages + size - page, page, &last) == 0 &&
           !(first & last & 1);
}

void host_populate(char *memory, size_t size)
{
    if (host_is_fresh(memory, size) && pages_inside(&memory, &size))
        (void)populate(memory, size);
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

struct prefault {
    char *memory;
    size_t size;
    _Atomic size_t next;
};

static void *prefault_run(void *data)
{
    struct prefault *job = data;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), at;
    while ((at = atomic_fetch_add_explicit(&job->next, BLOCK, memory_order_relaxed)) < job->size) {
        size_t size = job->size - at < BLOCK ? job->size - at : BLOCK;
        if (populate(job->memory + at, size))
            continue;
        for (size_t i = 0; i < size; i += page) /* a write that changes nothing */
            __atomic_fetch_or(job->memory + at + i, 0, __ATOMIC_RELAXED);
    }
    return NULL;
}

void transfer_prefault(char *memory, size_t size, unsigned threads)
{
    struct prefault job = {.memory = memory, .size = size};
    pthread_t others[COST_THREADS_MAX];
    unsigned count = 0, most = host_cores();
    if (!memory || !pages_inside(&job.memory, &job.size))
        return;
    if (most > threads)
        most = threads;
    if (most > job.size / BLOCK + 1)
        most = (unsigned)(job.size / BLOCK + 1);
    if (most > COST_THREADS_MAX)
        most = COST_THREADS_MAX;
    while (count + 1 < most &&
           thread_start("reseat-copy", HOST_STACK, prefault_run, &job, &others[count]) == 0)
        count++;
    prefault_run(&job);
    while (count > 0)
        pthread_join(others[--count], NULL);
}

char *host_ring_create(size_t size, unsigned threads)
{
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    /* Faster to fault and to register in large pages. A child that wrote to pages that a driver
     * registered would leave the driver with the other copy, so no child gets them. */
    (void)madvise(memory, size, MADV_DONTFORK);
    if (size >= HUGE_PAGE)
        (void)madvise(memory, size, MADV_HUGEPAGE);
    transfer_prefault(memory, size, threads);
    return memory;
}

void host_ring_destroy(char *memory, size_t size)
{
    if (memory)
        munmap(memory, size);
}

bool pinned_create(struct residence *residence, char *memory, size_t size, struct pinned *ret_pin)
{
    const cl_icd_dispatch *cl = residence->cl;
    struct pinned pin = {.residence = residence};
    cl_int error = CL_SUCCESS;
    pin.buffer = cl->clCreateBuffer(residence->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                                    size, memory, &error);
    if (!pin.buffer)
        goto refused;
    pin.map = cl->clEnqueueMapBuffer(residence->io, pin.buffer, CL_FALSE,
                                     CL_MAP_READ | CL_MAP_WRITE, 0, size, 0, NULL, NULL, &error);
    if (residence_await_queue(residence, residence->io) != CL_SUCCESS || pin.map != memory)
        goto refused;
    *ret_pin = pin;
    return true;
refused:
    log_info("%s does not register memory (error %d): transfers use plain pointers",
             residence->device->key.device, error);
    pinned_destroy(&pin);
    return false;
}

void pinned_destroy(struct pinned *pin)
{
    if (!pin->buffer)
        return;
    const cl_icd_dispatch *cl = pin->residence->cl;
    if (pin->map)
        cl->clEnqueueUnmapMemObject(pin->residence->io, pin->buffer, pin->map, 0, NULL, NULL);
    (void)residence_await_queue(pin->residence, pin->residence->io);
    pin->residence->cl->clReleaseMemObject(pin->buffer);
    memset(pin, 0, sizeof(*pin));
}
