#ifndef RESEAT_TESTS_STATE_TRANSFER_TRANSFER_RIG_H
#define RESEAT_TESTS_STATE_TRANSFER_TRANSFER_RIG_H

#include "state/transfer/transfer_priv.h"

/* Residences over whatever devices are installed, whose calls can be counted, failed and slowed. */

struct rig {
    const cl_icd_dispatch *real; /* the driver's own table */
    cl_icd_dispatch table;       /* a copy, with our wrappers */
    struct device device;
    struct devinfo_value unified;
    cl_bool unified_value;
    struct residence residence;
    cl_command_queue queue; /* the test's own */
};

/* @link: present it as a device with memory of its own. NULL: there is no such device. */
struct rig *rig_create(unsigned index, bool link);
struct rig *rig_create_named(const char *name, bool link);
void rig_destroy(struct rig *rig);

cl_mem rig_buffer(struct rig *rig, size_t size, const char *bytes);
void rig_read(struct rig *rig, cl_mem buffer, size_t size, char *bytes);
cl_mem rig_image(struct rig *rig, const struct image_shape *shape, const char *packed);
void rig_read_image(struct rig *rig, cl_mem image, const struct image_shape *shape, char *packed);

enum rig_call {
    RIG_READ_BUFFER,
    RIG_WRITE_BUFFER,
    RIG_READ_IMAGE,
    RIG_WRITE_IMAGE,
    RIG_WAIT,
    RIG_STATUS, /* an event that tells of a failed command */
    RIG_FLUSH,
    RIG_CREATE_BUFFER,
    RIG_CALLS
};
#define RIG_ERROR (-931)

/* The n-th @call fails, between arm and disarm; disarm says whether it came to that. */
void rig_arm(enum rig_call call, int n);
bool rig_disarm(void);
int rig_live_events(void);
int rig_live_buffers(void);
void rig_cancel_at(atomic_bool *cancel, int enqueue);
void rig_slow_waits(unsigned microseconds);

#endif
