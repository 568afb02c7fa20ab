#include <errno.h>
#include <stdlib.h>

#include "state/base/memory/pages.h"
#include "state/memory/compare.h"
#include "state/memory/mapping.h"
#include "state/memory/memory_priv.h"
#include "state/memory/registered.h"
#include "state/memory/write_tracked.h"
#include "state/transfer/transfer.h"

/* Kernels on CPUs work in the host copy: the alignment of the largest vector (16 longs). */
#define ALIGN_SMALL 128
#define ALIGN_LARGE 4096

/* @flags: enum pages_flags. */
static char *host_copy_bytes_take(size_t size, size_t align, unsigned flags)
{
    size_t whole = (size + align - 1) & ~(align - 1);
    if (size >= PAGES_LEAST)
        return pages_take(size, flags);
    return whole >= size ? aligned_alloc(align, whole) : NULL;
}

static void host_copy_bytes_give(char *bytes, size_t size)
{
    if (size >= PAGES_LEAST)
        pages_give(bytes, size);
    else
        free(bytes);
}

/* @bytes  The program's or a lender's; NULL: allocate. */
static struct host_copy *host_copy_create(char *bytes, size_t size, bool pages, unsigned flags)
{
    struct host_copy *host_copy = malloc(sizeof(*host_copy));
    if (!host_copy)
        return NULL;
    *host_copy = (struct host_copy){.ours = bytes == NULL, .bytes = bytes, .size = size};
    atomic_init(&host_copy->refs, 1);
    if (host_copy->ours) {
        size_t align = pages || size >= REGISTERED_LEAST ? ALIGN_LARGE : ALIGN_SMALL;
        host_copy->bytes = host_copy_bytes_take(size, align, flags);
        if (!host_copy->bytes) {
            free(host_copy);
            return NULL;
        }
    }
    return host_copy;
}

void host_copy_unref(struct host_copy *host_copy)
{
    if (!host_copy || atomic_fetch_sub_explicit(&host_copy->refs, 1, memory_order_acq_rel) != 1)
        return;
    registered_release(host_copy);
    if (host_copy->ours && !host_copy->lent && !write_tracked_give(host_copy, pages_give))
        host_copy_bytes_give(host_copy->bytes, host_copy->size);
    if (host_copy->farewell)
        farewell_drop(host_copy->farewell);
    free(host_copy);
}

int memory_host_copy(struct memory *root, unsigned flags)
{
    if (root->host_copy)
        return 0;
    /* A mover and the program's first map may both come here: one host copy stays. */
    struct host_copy *none = NULL;
    struct host_copy *host_copy = host_copy_create(
        root->host_ptr, root->size, (root->flags & CL_MEM_ALLOC_HOST_PTR) != 0, flags);
    if (!host_copy)
        return -ENOMEM;
    if (!atomic_compare_exchange_strong(&root->host_copy, &none, host_copy))
        host_copy_unref(host_copy);
    return 0;
}

bool memory_host_copy_borrow(struct memory *root, const struct device *lender,
                             struct lent_memory *lent)
{
    struct host_copy *none = NULL;
    struct host_copy *host_copy = host_copy_create(lent->bytes, root->size, true, 0);
    if (!host_copy)
        return false;
    host_copy->ours = true;
    host_copy->lent = lent;
    host_copy->lender = lender;
    if (atomic_compare_exchange_strong(&root->host_copy, &none, host_copy))
        return true;
    free(host_copy);
    return false;
}

/* Copy the bytes for which the program's memory is the replica in host memory to the new shadow
 * copy, which is that replica from now on. */
static void host_copy_take_from_user_memory(struct memory *root)
{
    for (size_t at = 0; at < root->size;) {
        struct extent extent = extent_at(root, at);
        if (extent.version != 0 && (extent.latest & residence_bit(RESIDENCE_HOST)))
            host_copy_user_memory(root->shadow_copy + at, (const char *)root->host_ptr + at,
                                  extent.range.end - at);
        at = extent.range.end;
    }
}

int memory_host_room(struct memory *root, unsigned flags)
{
    if (!memory_is_user_memory(root))
        return memory_host_copy(root, flags);
    if (!root->shadow_copy) {
        compare_forget_at(root, RESIDENCE_HOST);
        root->shadow_copy = host_copy_bytes_take(root->size, ALIGN_LARGE, flags);
        if (root->shadow_copy)
            host_copy_take_from_user_memory(root);
    }
    return root->shadow_copy ? 0 : -ENOMEM;
}

uint64_t memory_host_need(const struct memory *memory)
{
    bool has_none = memory->root == memory && !memory->shadow_copy &&
                    (!memory->host_copy || memory_is_user_memory(memory));
    return has_none && memory->size >= PAGES_LEAST &&
                   !replica_is_latest_whole(memory, RESIDENCE_HOST)
               ? memory->size
               : 0;
}

void memory_host_is_host_copy(struct memory *root)
{
    if (!root->shadow_copy)
        return;
    compare_forget_at(root, RESIDENCE_HOST);
    host_copy_bytes_give(root->shadow_copy, root->size);
    root->shadow_copy = NULL;
}

bool memory_host_copy_is_latest(const struct memory *root)
{
    bool latest = true;
    for (size_t at = 0; latest && at < root->size;) {
        struct extent extent = extent_at(root, at);
        latest = root->host_copy && !root->shadow_copy &&
                 (extent.latest & residence_bit(RESIDENCE_HOST));
        for (uint8_t residence_index = 0; !latest && residence_index < root->context->residences;
             residence_index++)
            latest = memory_works_in_host_copy(root, residence_index) &&
                     (extent.latest & residence_bit(residence_index));
        at = extent.range.end;
    }
    return latest;
}

bool memory_would_write(const struct memory *root, uint8_t residence_index)
{
    return memory_is_user_memory(root) && memory_works_in_host_copy(root, residence_index) &&
           !memory_host_copy_is_latest(root);
}

/* True when each extent is up to date in some residence that keeps it, that is not the source of a
 * move on demand, which goes, and that has no command that may still read the host copy. */
static bool host_copy_is_elsewhere(const struct memory *root, uint8_t drained)
{
    bool elsewhere = true;
    for (size_t at = 0; elsewhere && at < root->size;) {
        struct extent extent = extent_at(root, at);
        elsewhere = false;
        for (uint8_t residence_index = 0; residence_index < root->context->residences;
             residence_index++)
            elsewhere =
                elsewhere ||
                (root->real[residence_index] && (extent.latest & residence_bit(residence_index)) &&
                 context_keeps(root->context, residence_index) &&
                 context_life(root->context, residence_index) != RESIDENCE_SOURCE &&
                 (residence_index != extent.writer || residence_index == drained));
        at = extent.range.end;
    }
    return elsewhere;
}

void memory_host_copy_drop(struct memory *root, uint8_t drained)
{
    bool host_copy =
        root->host_copy && root->host_copy->ours && root->backed == 0 && !map_any(root);
    if ((!host_copy && !root->shadow_copy) || !host_copy_is_elsewhere(root, drained))
        return;
    if (host_copy) {
        host_copy_unref(root->host_copy);
        root->host_copy = NULL;
    }
    memory_host_is_host_copy(root);
    extents_dropped(root, RESIDENCE_HOST);
}
