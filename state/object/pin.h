#ifndef RESEAT_STATE_OBJECT_PIN_H
#define RESEAT_STATE_OBJECT_PIN_H

#include <CL/cl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Pins: why a program cannot be moved at the moment.
 *
 * What OpenCL lets nobody read, or what the program knows the device's own address of, cannot be
 * carried. An object of that kind pins its context, and with it every virtual device of the
 * context, for as long as it lives. Pins are taken inside the gate only, in the section that makes
 * the object, and a mover looks at them each time it has closed the gate: either the move commits
 * first and the object is made on the new device, or the move sees the pin and rolls back before
 * it has touched a queue of the source.
 */

enum pin_kind {
    PIN_VARIABLES,   /**< A program with program-scope variables, while the program lives. */
    PIN_BUILDS,      /**< A program built in several ways, while it lives and is built so. */
    PIN_SVM,         /**< One shared virtual memory allocation, until it was freed. */
    PIN_POINTERS,    /**< Kernels follow host pointers: until the context ends, since nobody says
                          when they no longer do. */
    PIN_NATIVE,      /**< Native kernels: until the context ends; they may keep addresses. */
    PIN_SUB_DEVICES, /**< Of a virtual device: one sub-device, while it lives. */
    PINS
};
#define PIN_NONE PINS

/** How many objects of each kind. Written inside the gate; dropped anywhere. */
struct pins {
    _Atomic uint32_t count[PINS];
};

struct context;
struct vdev;

/** One more object; inside the gate, or with it closed by the caller. Free where @pin is PIN_NONE.
 */
void pin_take(struct pins *pins, enum pin_kind pin);
/** It is gone. Any thread. Free where @pin is PIN_NONE. */
void pin_drop(struct pins *pins, enum pin_kind pin);
/** A pin that was taken stays, once for all like it. Any thread. */
void pin_keep(struct pins *pins, enum pin_kind pin);

/** Why @vdev cannot move: static text, or NULL. Walks the contexts. Any thread; exact for a caller
 *  that has closed the gate. */
const char *pin_reason(struct vdev *vdev);

/**
 * Enter the gate as context_enter does, with every virtual device of @context on a device whose
 * answer to
 * @name has @bits.
 *
 * @ret_stray  The virtual device that is on a device without them: the program was promised them by
 * its first device, and was moved before it made use of the promise. It is to be moved home
 *             (move_home) before another try. NULL on success.
 * Returns CL_SUCCESS inside the gate, which the caller leaves, or CL_OUT_OF_RESOURCES outside it.
 */
cl_int pin_enter(struct context *context, cl_device_info name, uint64_t bits,
                 struct vdev **ret_stray);

#endif
