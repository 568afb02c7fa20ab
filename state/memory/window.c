#include <errno.h>
#include <stdlib.h>

#include "state/base/memory/pages.h"
#include "state/memory/compare.h"
#include "state/memory/mapping.h"
#include "state/memory/memory_priv.h"
#include "state/memory/registered.h"
#include "state/memory/write_tracked.h"
#include "state/transfer/transfer.h"

/* Vectors of 16 longs; drivers on CPUs use the window itself as device memory. */
#define ALIGN_SMALL 128
#define ALIGN_LARGE 4096

/* @flags: enum pages_flags. */
static char *window_bytes_take(size_t size, size_t align, unsigned flags)
{
    size_t whole = (size + align - 1) & ~(align - 1);
    if (size >= PAGES_LEAST)
        return pages_take(size, flags);
    return whole >= size ? aligned_alloc(align, whole) : NULL;
}

static void window_bytes_give(char *bytes, size_t size)
{
    if (size >= PAGES_LEAST)
        pages_give(bytes, size);
    else
        free(bytes);
}

/* A window over @bytes, or over memory of our own when @bytes is NULL. */
static struct window *window_create(char *bytes, size_t size, bool pages, unsigned flags)
{
    struct window *window = malloc(sizeof(*window));
    if (!window)
        return NULL;
    *window = (struct window){.ours = bytes == NULL, .bytes = bytes, .size = size};
    atomic_init(&window->refs, 1);
    if (window->ours) {
        size_t align = pages || size >= REGISTERED_LEAST ? ALIGN_LARGE : ALIGN_SMALL;
        window->bytes = window_bytes_take(size, align, flags);
        if (!window->bytes) {
            free(window);
            return NULL;
        }
    }
    return window;
}

void window_unref(struct window *window)
{
    if (!window || atomic_fetch_sub_explicit(&window->refs, 1, memory_order_acq_rel) != 1)
        return;
    registered_release(window);
    if (window->ours && !write_tracked_give(window, pages_give))
        window_bytes_give(window->bytes, window->size);
    if (window->farewell)
        farewell_drop(window->farewell);
    free(window);
}

int memory_window(struct memory *root, unsigned flags)
{
    if (root->window)
        return 0;
    /* Large ones are not touched until used. A mover and the program's first map
     * may both come here: one window stays. */
    struct window *none = NULL;
    struct window *window = window_create(root->host_ptr, root->size,
                                          (root->flags & CL_MEM_ALLOC_HOST_PTR) != 0, flags);
    if (!window)
        return -ENOMEM;
    if (!atomic_compare_exchange_strong(&root->window, &none, window))
        window_unref(window);
    return 0;
}

/* What the program's memory was the replica of is in the store from now on. */
static void window_take_from_user_memory(struct memory *root)
{
    for (size_t at = 0; at < root->size;) {
        struct extent extent = extent_at(root, at);
        if (extent.version != 0 && (extent.latest & (1u << RESIDENCE_HOST)))
            host_copy_user_memory(root->store + at, (const char *)root->host_ptr + at,
                                  extent.range.end - at);
        at = extent.range.end;
    }
}

int memory_host_room(struct memory *root, unsigned flags)
{
    if (!memory_is_user_memory(root))
        return memory_window(root, flags);
    if (!root->store) {
        compare_forget_at(root, RESIDENCE_HOST);
        root->store = window_bytes_take(root->size, ALIGN_LARGE, flags);
        if (root->store)
            window_take_from_user_memory(root);
    }
    return root->store ? 0 : -ENOMEM;
}

uint64_t memory_host_need(const struct memory *memory)
{
    bool has_none = memory->root == memory && !memory->store &&
                    (!memory->window || memory_is_user_memory(memory));
    return has_none && memory->size >= PAGES_LEAST &&
                   !replica_is_latest_whole(memory, RESIDENCE_HOST)
               ? memory->size
               : 0;
}

void memory_host_is_window(struct memory *root)
{
    if (!root->store)
        return;
    compare_forget_at(root, RESIDENCE_HOST);
    window_bytes_give(root->store, root->size);
    root->store = NULL;
}

bool memory_window_is_latest(const struct memory *root)
{
    bool latest = true;
    for (size_t at = 0; latest && at < root->size;) {
        struct extent extent = extent_at(root, at);
        latest = root->window && !root->store && (extent.latest & (1u << RESIDENCE_HOST));
        for (uint8_t residence_index = 0; !latest && residence_index < RESIDENCES_MAX;
             residence_index++)
            latest = memory_works_in_window(root, residence_index) &&
                     (extent.latest & (1u << residence_index));
        at = extent.range.end;
    }
    return latest;
}

bool memory_would_write(const struct memory *root, uint8_t residence_index)
{
    return memory_is_user_memory(root) && memory_works_in_window(root, residence_index) &&
           !memory_window_is_latest(root);
}

/* Some device has the latest bytes of every extent of its own, which nobody brings there any more,
 * and keeps them: what the program left on demand goes. */
static bool window_is_elsewhere(const struct memory *root, uint8_t drained)
{
    bool elsewhere = true;
    for (size_t at = 0; elsewhere && at < root->size;) {
        struct extent extent = extent_at(root, at);
        elsewhere = false;
        for (uint8_t residence_index = 0; residence_index < RESIDENCES_MAX; residence_index++)
            elsewhere = elsewhere ||
                        (root->real[residence_index] && (extent.latest & (1u << residence_index)) &&
                         !residence_is_lost(root->context->at[residence_index]) &&
                         context_life(root->context, residence_index) != RESIDENCE_SOURCE &&
                         (residence_index != extent.writer || residence_index == drained));
        at = extent.range.end;
    }
    return elsewhere;
}

void memory_window_drop(struct memory *root, uint8_t drained)
{
    bool window = root->window && root->window->ours && root->backed == 0 && !map_any(root);
    if ((!window && !root->store) || !window_is_elsewhere(root, drained))
        return;
    if (window) {
        window_unref(root->window);
        root->window = NULL;
    }
    memory_host_is_window(root);
    extents_dropped(root, RESIDENCE_HOST);
}
