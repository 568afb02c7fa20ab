#include "agent/cli/image/process.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "agent/protocol/park.h"
#include "state/base/clock.h"

#define PARK_NS (10 * NS_PER_S)
#define LOOK_NS (5 * NS_PER_MS)

static int park_copy(const struct parked *parked, size_t offset, void *bytes, size_t size,
                     bool write)
{
    struct iovec here = {bytes, size}, there = {(void *)(uintptr_t)(parked->box + offset), size};
    ssize_t done = write ? process_vm_writev(parked->pid, &here, 1, &there, 1, 0)
                         : process_vm_readv(parked->pid, &here, 1, &there, 1, 0);

    if (done == (ssize_t)size)
        return 0;
    return done < 0 && errno != EFAULT ? -errno : -EBADMSG;
}

/** Read the state. -EBADMSG: there is no box at that address, so nothing may be written there. */
static int park_look(const struct parked *parked, uint32_t *ret_state)
{
    struct park_box box;
    int error = park_copy(parked, 0, &box, sizeof(box), false);

    if (!error && box.magic != PARK_MAGIC)
        error = -EBADMSG;
    *ret_state = error ? 0 : box.state;
    return error;
}

int park_await(const struct parked *parked)
{
    uint64_t until = clock_now_ns() + PARK_NS;
    uint32_t state;

    for (;;) {
        int error = park_look(parked, &state);
        if (error)
            return error;
        if (state == PARK_PARKED)
            return 0;
        if (state != PARK_BEGINS)
            return -ECANCELED;
        if (clock_now_ns() >= until)
            return -ETIMEDOUT;
        park_beat((void *)parked);
        clock_sleep(LOOK_NS);
    }
}

void park_beat(void *data)
{
    const struct parked *parked = data;
    uint32_t beat, state;
    size_t offset = offsetof(struct park_box, beat);

    if (park_look(parked, &state) == 0 &&
        park_copy(parked, offset, &beat, sizeof(beat), false) == 0) {
        beat++;
        (void)!park_copy(parked, offset, &beat, sizeof(beat), true);
    }
}

int park_go(const struct parked *parked, const char *socket)
{
    struct park_box box = {.restored = socket != NULL};
    uint32_t state, go = PARK_GO;
    int error = park_look(parked, &state);

    if (!error && socket &&
        snprintf(box.socket, sizeof(box.socket), "%s", socket) >= (int)sizeof(box.socket))
        error = -ENAMETOOLONG;
    if (!error && socket) {
        error = park_copy(parked, offsetof(struct park_box, restored), &box.restored,
                          sizeof(box) - offsetof(struct park_box, restored), true);
    }
    return error ? error
                 : park_copy(parked, offsetof(struct park_box, state), &go, sizeof(go), true);
}
