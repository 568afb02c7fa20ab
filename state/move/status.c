#include "state/move/status.h"

#include <string.h>

#include "state/base/pages.h"
#include "state/base/work.h"
#include "state/memory/memory.h"

uint32_t status_seat_count(void)
{
    return the_seat_count;
}

/* Each status is a sample; a quarter counts at once, in steps that are worth telling. */
static uint32_t busy_of(struct device *device)
{
    struct account *account = &device->account;
    uint32_t sample = atomic_load(&account->waiting) != 0 ? 1000 : 0;
    uint32_t busy = (3 * atomic_load(&account->busy) + sample + 2) / 4;
    atomic_store(&account->busy, busy);
    return (busy + 25) / 50 * 50;
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
        status.device = (device ? device : atomic_load(&seat->last))->key;
        status.moving = atomic_load(&seat->moving);
        status.lost = device && atomic_load(&device->lost);
        status.moves = atomic_load(&seat->moves);
        status.last_downtime_ns = atomic_load(&seat->last_downtime_ns);
        status.pinned = pin_reason(seat);
        if (goes_on)
            room_read(index, &status.room);
        if (device && goes_on) {
            status.device_bytes = status.room.held;
            status.busy = busy_of(device);
            if (status.room.wanted > status.room.held && account_is_tight(&device->account))
                status.spilled_bytes = status.room.wanted - status.room.held;
        }
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

uint64_t status_host_need(void)
{
    uint64_t bytes = 0, most = pages_limit();
    uintptr_t cursor = 0;
    struct memory *memory;
    bool counts = most != 0 && work_begin();
    for (uint32_t i = 0; counts && i < the_seat_count; i++)
        counts = !atomic_load(&the_seats[i]->moving);
    while (counts && bytes < most && (memory = object_next(OBJECT_MEMORY, &cursor))) {
        bytes += memory_host_need(memory);
        object_unhold(memory);
    }
    if (most != 0)
        work_end();
    return bytes;
}
