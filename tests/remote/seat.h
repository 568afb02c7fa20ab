#ifndef RESEAT_TESTS_REMOTE_SEAT_H
#define RESEAT_TESTS_REMOTE_SEAT_H

#include <CL/cl.h>

#include "tests/emu/emu.h"
#include "tests/remote/served.h"

/* A program at a served device, and servers of a device that is emulated. */

#define SEAT_SIZE ((size_t)2 << 20)

struct seat {
    cl_context context;
    cl_command_queue queue;
    cl_mem buffer; /**< Of SEAT_SIZE bytes. */
};

/** Start a server of the vendors' devices, and have its first one. */
cl_device_id seat_device(struct served *served);
struct seat seat_take(cl_device_id device);
/** All of its buffer, and wait for it. */
void seat_write(struct seat seat, const char *bytes);
void seat_leave(struct seat seat);

/** What the emulated device counts, and fails; its name there is "emu". */
extern struct emu_shared *emulated;
/** Have the servers that are started from now on offer this device alone. */
void emulate(const char *keys);
/** Start one, and have its device. */
cl_device_id emulated_device(struct served *served, const char *keys);
/** Nothing has crashed, and no session was ended. */
void emulated_stop(struct served *served);

#endif
