#include "agent/simulate/sim_world.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

void sim_heap_finish(struct sim_heap *heap)
{
    free(heap->items);
    *heap = (struct sim_heap){0};
}

static bool sooner(const struct sim_due *a, const struct sim_due *b)
{
    return a->time_ms != b->time_ms ? a->time_ms < b->time_ms : a->number < b->number;
}

int sim_heap_push(struct sim_heap *heap, struct sim_due due)
{
    if (heap->count == heap->room) {
        size_t room = heap->room ? 2 * heap->room : 256;
        struct sim_due *items = reallocarray(heap->items, room, sizeof(*items));
        if (!items)
            return -ENOMEM;
        heap->items = items;
        heap->room = room;
    }
    due.number = heap->numbers++;
    size_t at = heap->count++;
    for (; at && sooner(&due, &heap->items[(at - 1) / 2]); at = (at - 1) / 2)
        heap->items[at] = heap->items[(at - 1) / 2];
    heap->items[at] = due;
    return 0;
}

const struct sim_due *sim_heap_peek(const struct sim_heap *heap)
{
    return heap->count ? &heap->items[0] : NULL;
}

void sim_heap_pop(struct sim_heap *heap)
{
    struct sim_due last = heap->items[--heap->count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= heap->count)
            break;
        child += child + 1 < heap->count && sooner(&heap->items[child + 1], &heap->items[child]);
        if (!sooner(&heap->items[child], &last))
            break;
        heap->items[at] = heap->items[child];
        at = child;
    }
    heap->items[at] = last;
}
