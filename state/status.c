#include "state/status.h"

#include <string.h>

#include "state/memory.h"
#include "state/work.h"

/* The seat's place in @context; PLACE_NONE where it has none, or shares it with one before it, for
 * which it counts. */
static uint8_t place_of(const struct context *context, const struct seat *seat)
{
    int index = context_seat_index(context, seat);
    uint8_t place = index < 0 ? PLACE_NONE : atomic_load(&context->place[index]);
    for (int i = 0; i < index; i++)
        if (atomic_load(&context->place[i]) == place)
            return PLACE_NONE;
    return place;
}

/* Counted when asked for, a few times a second, rather than at every creation and release. What a
 * device that shares a context was never given is not on it. */
static uint64_t bytes_of(struct seat *seat)
{
    uint64_t bytes = 0;
    uintptr_t cursor = 0;
    struct memory *memory;
    while ((memory = object_next(OBJECT_MEMORY, &cursor))) {
        uint8_t place = place_of(memory->context, seat);
        if (memory->root == memory && place != PLACE_NONE &&
            (memory->context->seat_count == 1 ||
             __atomic_load_n(&memory->real[place], __ATOMIC_RELAXED)))
            bytes += memory->size;
        object_unhold(memory);
    }
    return bytes;
}

uint32_t status_seat_count(void)
{
    return the_seat_count;
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
