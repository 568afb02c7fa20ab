#include "state/status.h"

#include <string.h>

#include "state/memory.h"
#include "state/work.h"

/* Counted when asked for, a few times a second, rather than at every creation and release. */
static uint64_t bytes_of(struct seat *seat)
{
    uint64_t bytes = 0;
    uintptr_t cursor = 0;
    struct memory *memory;
    while ((memory = object_next(OBJECT_MEMORY, &cursor))) {
        if (memory->root == memory && context_seat_index(memory->context, seat) >= 0)
            bytes += memory->size;
        object_unhold(memory);
    }
    return bytes;
}

void status_seat(uint32_t index, struct seat_status *ret_status)
{
    struct seat_status status = {0};
    /* Whoever lets go of an object last releases it, and this may be the last. */
    bool goes_on = work_begin();
    if (index < the_seat_count) {
        struct seat *seat = the_seats[index];
        struct device *device = atomic_load(&seat->device);
        status.suspended = device == NULL;
        if (device)
            status.device = device->key;
        status.moving = atomic_load(&seat->moving);
        status.moves = atomic_load(&seat->moves);
        status.last_downtime_ns = atomic_load(&seat->last_downtime_ns);
        status.pinned = pin_reason(seat);
        if (device && goes_on)
            status.device_bytes = bytes_of(seat);
    }
    status.contexts = object_count(OBJECT_CONTEXT);
    status.queues = object_count(OBJECT_QUEUE);
    status.memories = object_count(OBJECT_MEMORY);
    status.programs = object_count(OBJECT_PROGRAM);
    status.kernels = object_count(OBJECT_KERNEL);
    status.events = object_count(OBJECT_EVENT);
    work_end();
    *ret_status = status;
}
