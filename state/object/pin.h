#ifndef RESEAT_STATE_OBJECT_PIN_H
#define RESEAT_STATE_OBJECT_PIN_H

#include <CL/cl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Pins: why a program cannot be moved at the moment.
 *
 * State that OpenCL does not let us read, or whose device address the program knows, cannot be
 * moved. An object with such state pins its context, and with it every virtual device of the
 * context, for as long as it lives. A pin is only taken inside the gate, in the section that makes
 * the object, and a mover checks the pins each time it has closed the gate: either the move commits
 * first and the object is made on the new device, or the move sees the pin and rolls back before it
 * has touched a queue of the source.
 */

enum pin_kind {
    PIN_VARIABLES,   /**< A program with program-scope variables, while the program lives. */
    PIN_BUILDS,      /**< A program with different builds for several devices, while it lives and is
                        built so. */
    PIN_SVM,         /**< A shared virtual memory allocation, until it is freed. */
    PIN_POINTERS,    /**< Kernels use pointers to host memory: until the context ends, since it is
                        unknown when they stop. */
    PIN_NATIVE,      /**< Native kernels: until the context ends; they may keep addresses. */
    PIN_SUB_DEVICES, /**< A sub-device of the virtual device, while it lives. */
    PINS
};
#define PIN_NONE PINS

/** Number of pinning objects of each kind. Written inside the gate; dropped anywhere. */
struct pins {
    _Atomic uint32_t count[PINS];
};

struct context;
struct vdev;

/** Add a pin; inside the gate, or with the gate closed by the caller. Does nothing for PIN_NONE. */
void pin_take(struct pins *pins, enum pin_kind pin);
/** Remove a pin. Any thread. Does nothing for PIN_NONE. */
void pin_drop(struct pins *pins, enum pin_kind pin);
/** Make a pin permanent; all permanent pins of a kind count once. Any thread. */
void pin_keep(struct pins *pins, enum pin_kind pin);

/** Why @vdev cannot move: static text, or NULL. Walks the contexts. Any thread; exact for a caller
 *  that has closed the gate. */
const char *pin_reason(struct vdev *vdev);

/**
 * Enter the gate as context_enter does, with every virtual device of @context on a device whose
 * answer to @name has all of @bits.
 *
 * @ret_stray  A virtual device whose device lacks them: its first device promised them to the
 *             program, which was moved before it used them. Move it home (move_home) and try again.
 *             NULL on success.
 *
 * Returns CL_SUCCESS inside the gate, which the caller leaves, or CL_OUT_OF_RESOURCES outside it.
 */
cl_int pin_enter(struct context *context, cl_device_info name, uint64_t bits,
                 struct vdev **ret_stray);

#endif
