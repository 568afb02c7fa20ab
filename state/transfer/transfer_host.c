#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "state/base/log.h"
#include "state/base/pages.h"
#include "state/transfer/transfer_priv.h"

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
