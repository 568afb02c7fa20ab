#include <errno.h>
#include <stdlib.h>

#include "state/map.h"
#include "state/memory_priv.h"

/* Vectors of 16 longs; drivers on CPUs use the window itself as device memory. */
#define ALIGN_SMALL 128
#define ALIGN_LARGE 4096
#define LARGE       (64u << 10)

/* A window over @bytes, or over memory of our own when @bytes is NULL. */
static struct window *window_create(char *bytes, size_t size, bool pages)
{
    struct window *window = malloc(sizeof(*window));
    if (!window)
        return NULL;
    *window = (struct window){.ours = bytes == NULL, .bytes = bytes, .size = size};
    atomic_init(&window->refs, 1);
    if (window->ours) {
        size_t align = pages || size >= LARGE ? ALIGN_LARGE : ALIGN_SMALL;
        size_t whole = (size + align - 1) & ~(align - 1);
        window->bytes = whole >= size ? aligned_alloc(align, whole) : NULL;
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
    if (window->ours)
        free(window->bytes);
    if (window->farewell)
        farewell_drop(window->farewell);
    free(window);
}

int memory_window(struct memory *root)
{
    if (root->window)
        return 0;
    /* Large ones come from mmap and are not touched until used. A mover and the program's first map
     * may both come here: one window stays. */
    struct window *none = NULL;
    struct window *window =
        window_create(root->host_ptr, root->size, (root->flags & CL_MEM_ALLOC_HOST_PTR) != 0);
    if (!window)
        return -ENOMEM;
    if (!atomic_compare_exchange_strong(&root->window, &none, window))
        window_unref(window);
    return 0;
}

void memory_window_drop(struct memory *root, uint8_t drained)
{
    uint8_t writer = root->writer;
    if (!root->window || !root->window->ours || root->backed != 0 || map_any(root))
        return;
    bool elsewhere = false;
    for (uint8_t place = 0; place < PLACES; place++)
        elsewhere = elsewhere || (root->real[place] && replica_is_latest(root, place) &&
                                  (place != writer || place == drained));
    if (!elsewhere)
        return;
    window_unref(root->window);
    root->window = NULL;
    atomic_store_explicit(&root->held[PLACE_HOST], 0, memory_order_relaxed);
}
