#include "state/memory/registered.h"

#include <string.h>
#include <unistd.h>

#include "state/base/log.h"
#include "state/base/threads/gate.h"

/* A host copy is registered once this many times its size was mapped. */
#define MAPPED_TIMES 2
/* At most 1/HOST_PART of the host's memory is registered, because it cannot be swapped. */
#define HOST_PART 4

enum registered_state {
    REGISTERED_NOT,
    REGISTERED_SOON, /* A thread asks the driver. */
    REGISTERED_DONE,
    REGISTERED_REFUSED,
};

static _Atomic uint64_t registered_bytes;

static bool registered_reserve(size_t size)
{
    uint64_t most = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / HOST_PART;
    if (atomic_fetch_add(&registered_bytes, size) + size <= most)
        return true;
    atomic_fetch_sub(&registered_bytes, size);
    return false;
}

static void registered_unreserve(size_t size)
{
    atomic_fetch_sub(&registered_bytes, size);
}

/* The residence in which a map of @root copies over a link, or NULL. Inside the gate. */
static struct residence *registered_where(const struct memory *root, unsigned vdev)
{
    const struct context *context = root->context;
    uint8_t residence_index =
        atomic_load_explicit(&context->residence_index[vdev], memory_order_relaxed);
    if (residence_index >= context->residences || !root->real[residence_index] ||
        memory_is_backed(root, residence_index))
        return NULL;
    struct residence *residence = context->at[residence_index];
    return residence_has_link(residence) && !residence_is_lost(residence) &&
                   !budget_is_tight(&residence->device->budget)
               ? residence
               : NULL;
}

/* Set the state to REGISTERED_SOON, which one thread does. Returns the residence that registers the
 * host copy, with a reference, or NULL. */
static struct residence *registered_claim(struct memory *root, unsigned vdev)
{
    uint8_t none = REGISTERED_NOT;
    gate_enter();
    struct residence *residence = registered_where(root, vdev);
    if (residence && residence->maps_host_ptr &&
        atomic_compare_exchange_strong(&root->host_copy->registered.state, &none, REGISTERED_SOON))
        residence_ref(residence);
    else
        residence = NULL;
    gate_leave();
    return residence;
}

/* Have the driver of @residence lend a host copy. It stays usable if @root was moved meanwhile, and
 * is given back if another thread made a host copy first. */
static void registered_borrow_from(const struct residence *residence, struct memory *root)
{
    const struct device *device = residence->device;
    struct lent_memory *lent = device->lend(residence->context, root->size);
    bool taken = false;
    if (lent) {
        memset(lent->bytes, 0, root->size); /* all host copies begin with zeros */
        gate_enter();
        taken = memory_host_copy_borrow(root, device, lent);
        gate_leave();
    }
    if (!taken)
        registered_unreserve(root->size);
    if (lent && !taken)
        device->lent_return(lent);
}

void registered_borrow(struct memory *root, unsigned vdev, size_t length)
{
    if (root->host_copy || root->host_ptr || root->size < LENT_LEAST || length < root->size / 2)
        return;
    gate_enter();
    struct residence *residence = registered_where(root, vdev);
    if (residence && residence->device->lend)
        residence_ref(residence);
    else
        residence = NULL;
    gate_leave();
    if (!residence)
        return;
    if (registered_reserve(root->size))
        registered_borrow_from(residence, root);
    residence_unref(residence);
}

void registered_map(struct memory *root, unsigned vdev, size_t length)
{
    struct host_copy *host_copy = root->host_copy;
    struct registered *registered = &host_copy->registered;
    cl_int error;
    uint64_t mapped = atomic_fetch_add_explicit(&registered->mapped, length, memory_order_relaxed);
    if (mapped + length < MAPPED_TIMES * (uint64_t)root->size || !host_copy->ours ||
        host_copy->lent || root->size < REGISTERED_LEAST ||
        atomic_load_explicit(&registered->state, memory_order_relaxed) != REGISTERED_NOT)
        return;
    struct residence *residence = registered_claim(root, vdev);
    if (!residence)
        return;
    uint8_t state = REGISTERED_REFUSED;
    cl_mem buffer = NULL;
    const cl_icd_dispatch *cl = residence->cl;
    /* No command ever uses this buffer, so the driver gives it no memory of the device: creating it
     * registers the host copy. */
    if (callback_start() == 0 && registered_reserve(root->size)) {
        buffer = cl->clCreateBuffer(residence->context,
                                    CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR | CL_MEM_HOST_NO_ACCESS,
                                    root->size, host_copy->bytes, &error);
        if (!buffer)
            registered_unreserve(root->size);
    }
    gate_enter();
    bool moved = registered_where(root, vdev) != residence;
    if (buffer && !moved) {
        registered->cl = cl;
        registered->residence = residence;
        registered->buffer = buffer;
        state = REGISTERED_DONE;
    } else if (moved) {
        state = REGISTERED_NOT;
    }
    atomic_store(&registered->state, state);
    gate_leave();
    if (buffer && moved) {
        residence->cl->clReleaseMemObject(buffer);
        registered_unreserve(root->size);
    }
    if (state == REGISTERED_REFUSED)
        log_info("%s does not register %zu bytes: maps of them copy at the speed of plain memory",
                 residence->device->key.device, root->size);
    residence_unref(residence);
}

/* The buffer, which the caller releases; or NULL. */
static cl_mem registered_take(struct host_copy *host_copy)
{
    struct registered *registered = &host_copy->registered;
    if (atomic_load(&registered->state) != REGISTERED_DONE)
        return NULL;
    cl_mem buffer = registered->buffer;
    registered->buffer = NULL;
    registered->residence = NULL;
    atomic_store(&registered->state, REGISTERED_NOT);
    registered_unreserve(host_copy->size);
    return buffer;
}

void registered_leave(struct memory *root, struct residence *residence, bool now)
{
    struct host_copy *host_copy = root->host_copy;
    if (!host_copy || host_copy->registered.residence != residence)
        return;
    cl_mem buffer = registered_take(host_copy);
    if (now)
        residence_release(residence->cl, OBJECT_MEMORY, buffer);
    else
        residence_retire(residence, OBJECT_MEMORY, buffer,
                         buffer ? host_copy_ref(host_copy) : NULL);
}

void registered_leave_lost(struct memory *root)
{
    struct host_copy *host_copy = root->host_copy;
    const struct residence *residence = host_copy->registered.residence;
    if (registered_is(host_copy) && residence_is_lost(residence))
        residence_release(residence->cl, OBJECT_MEMORY, registered_take(host_copy));
}

void registered_release(struct host_copy *host_copy)
{
    const cl_icd_dispatch *cl = host_copy->registered.cl;
    cl_mem buffer = registered_take(host_copy);
    if (buffer)
        cl->clReleaseMemObject(buffer);
    if (host_copy->lent) {
        host_copy->lender->lent_return(host_copy->lent);
        registered_unreserve(host_copy->size);
    }
}

bool registered_is(const struct host_copy *host_copy)
{
    return atomic_load(&host_copy->registered.state) == REGISTERED_DONE;
}
