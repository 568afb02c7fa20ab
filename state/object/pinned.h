#ifndef RESEAT_STATE_OBJECT_PINNED_H
#define RESEAT_STATE_OBJECT_PINNED_H

#include "state/object/residence.h"

/*
 * Host memory that a driver has registered, so that transfers run at the link's speed.
 *
 * Registering and unregistering takes milliseconds on an idle device; on a busy one, NVIDIA's
 * driver makes both wait until everything that runs there has ended. So a residence keeps some
 * registered memory for the next use: as much as host memory is kept warm (pages.h), until the host
 * runs short, and until the residence ends. A forked child has none.
 *
 * Thread-safe, except that one pin belongs to one thread. Not inside the gate.
 */

/** A buffer made over the memory (CL_MEM_USE_HOST_PTR); no command uses it, so that it takes no
 * memory of the device. */
struct pinned {
    struct residence *residence; /**< Borrowed. */
    char *memory;
    size_t size;
    cl_mem buffer; /**< NULL: not registered. */
};

/**
 * Register @size bytes at @memory, which stays until pinned_destroy(). False when the driver
 * refuses; then nothing is left behind. Blocks.
 */
bool pinned_create(struct residence *residence, char *memory, size_t size, struct pinned *ret_pin);
/** Blocks until the driver let go of the memory. A zeroed pin is allowed. */
void pinned_destroy(struct pinned *pin);

/** Take the memory that @residence keeps, if it has at least @size bytes. It is given back by
 * pinned_give(). */
bool pinned_take(struct residence *residence, size_t size, struct pinned *ret_pin);
/** @pin, whose memory came from pages_take(), is not used any more: keep it, or destroy it with its
 * memory. Blocks. Afterwards it is zeroed. */
void pinned_give(struct pinned *pin);
/** @residence ends: free what it keeps, and its slots. */
void pinned_forget(struct residence *residence);

/** Size of a slot, for a few bytes that a program reads and waits for. */
#define PINNED_SLOT ((size_t)64 << 10)

/**
 * Take one of the few slots of registered memory that a residence has; they are made when the first
 * one is taken. NULL: all are taken, the driver does not register memory, or there is none.
 *
 * The slot goes back by pinned_slot_give(), before the caller drops its reference to @residence.
 * Thread-safe. Blocks on the driver the first time. Not inside the gate.
 */
char *pinned_slot_take(struct residence *residence);
void pinned_slot_give(struct residence *residence, const char *slot);

#endif
