#include "interpose/control/control_priv.h"

#include <string.h>

#include "agent/protocol/park.h"
#include "state/base/clock.h"
#include "state/base/threads/work.h"

#define LOOK_MS 20

static struct park_box box = {.magic = PARK_MAGIC};

uint64_t control_park_begin(void)
{
    box.restored = 0;
    atomic_store(&box.beat, 0);
    atomic_store(&box.state, PARK_BEGINS);
    return (uintptr_t)&box;
}

void control_park_closed(void)
{
    uint32_t begins = PARK_BEGINS;
    atomic_compare_exchange_strong(&box.state, &begins, PARK_PARKED);
}

void control_park_cancel(void)
{
    atomic_store(&box.state, PARK_GO);
}

/* Looks are counted instead of time: the process may be stopped for as long as its image takes, and
 * may be restored on a host with another clock. */
void control_park_wait(void)
{
    uint32_t beat = 0;
    for (unsigned silent = 0; silent < PARK_SILENCE_MS / LOOK_MS && !work_is_over(); silent++) {
        if (atomic_load(&box.state) == PARK_GO)
            break;
        uint32_t now = atomic_load(&box.beat);
        silent = now == beat ? silent : 0;
        beat = now;
        clock_sleep(LOOK_MS * NS_PER_MS);
    }
    atomic_store(&box.state, PARK_NONE);
}

const char *control_park_socket(void)
{
    bool said = box.socket[0] && memchr(box.socket, '\0', sizeof(box.socket));
    return said ? box.socket : NULL;
}

bool control_park_restored(void)
{
    return box.restored != 0;
}
