#include <errno.h>
#include <stdlib.h>

#include "state/memory/mapping.h"
#include "state/memory/memory_priv.h"

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

int memory_host_room(struct memory *root)
{
    if (!memory_is_lent(root))
        return memory_window(root);
    if (!root->store) {
        size_t whole = (root->size + ALIGN_LARGE - 1) & ~(size_t)(ALIGN_LARGE - 1);
        root->store = whole >= root->size ? aligned_alloc(ALIGN_LARGE, whole) : NULL;
        atomic_store_explicit(&root->held[PLACE_HOST], 0, memory_order_relaxed);
    }
    return root->store ? 0 : -ENOMEM;
}

void memory_host_is_window(struct memory *root)
{
    free(root->store);
    root->store = NULL;
}

static bool works_in_window(const struct memory *root, uint8_t place)
{
    return (root->backed & (1u << place)) != 0 && root->context->at[place]->in_place;
}

bool memory_window_is_latest(const struct memory *root)
{
    bool latest = root->window && !root->store && replica_is_latest(root, PLACE_HOST);
    for (uint8_t place = 0; !latest && place < PLACES; place++)
        latest = works_in_window(root, place) && replica_is_latest(root, place);
    return latest;
}

bool memory_would_write(const struct memory *root, uint8_t place)
{
    return memory_is_lent(root) && works_in_window(root, place) && !memory_window_is_latest(root);
}

void memory_window_drop(struct memory *root, uint8_t drained)
{
    uint8_t writer = root->writer;
    bool window = root->window && root->window->ours && root->backed == 0 && !map_any(root);
    if (!window && !root->store)
        return;
    bool elsewhere = false;
    for (uint8_t place = 0; place < PLACES; place++)
        elsewhere = elsewhere || (root->real[place] && replica_is_latest(root, place) &&
                                  (place != writer || place == drained));
    if (!elsewhere)
        return;
    if (window) {
        window_unref(root->window);
        root->window = NULL;
    }
    memory_host_is_window(root);
    atomic_store_explicit(&root->held[PLACE_HOST], 0, memory_order_relaxed);
}
