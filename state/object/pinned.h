#ifndef RESEAT_STATE_OBJECT_PINNED_H
#define RESEAT_STATE_OBJECT_PINNED_H

#include "state/object/residence.h"

/*
 * Host memory of ours that a driver has registered, so that bytes go between it and the device at
 * the link's speed.
 *
 * To register, and to undo it, takes milliseconds on an idle device; on a busy one NVIDIA's driver
 * has both wait until all that runs there has ended. So a residence keeps some of what it
 * registered for whoever needs it next: as much as host memory is kept warm (pages.h), and until
 * the host runs short. It goes with its residence. A child of a fork has none.
 *
 * Thread-safe, but that one pin is one thread's. Not inside the gate.
 */

/** A buffer over it (CL_MEM_USE_HOST_PTR), which no command uses, so that it takes no memory of the
 *  device. */
struct pinned {
    struct residence *residence; /**< Borrowed. */
    char *memory;
    size_t size;
    cl_mem buffer; /**< NULL: there is none. */
};

/**
 * Register @size bytes at @memory, which stays until pinned_destroy(). False when the driver
 * refuses; then nothing is left behind. Blocks.
 */
bool pinned_create(struct residence *residence, char *memory, size_t size, struct pinned *ret_pin);
/** Blocks until the driver let go of the memory. A zeroed pin is allowed. */
void pinned_destroy(struct pinned *pin);

/** What @residence keeps, if that is at least @size bytes: memory for pinned_give(). */
bool pinned_take(struct residence *residence, size_t size, struct pinned *ret_pin);
/** Nobody uses @pin any more, whose memory came from pages_take(): it is kept, or destroyed with
 *  its memory. Blocks. Afterwards it is zeroed. */
void pinned_give(struct pinned *pin);
/** @residence ends: nothing is kept of it. Its driver is called, unless it is lost. */
void pinned_forget(const struct residence *residence);

#endif
