#ifndef RESEAT_TESTS_EMU_FIXTURE_H
#define RESEAT_TESTS_EMU_FIXTURE_H

#include <CL/cl_icd.h>

#include "tests/emu/emu.h"

/*
 * What a test of, or on, the emulated driver starts with. It expects in its environment
 * EMU_LIBRARY, the driver's path, and EMU_ROAD: "table" to call it through its dispatch table,
 * "loader" to go through the system's OpenCL loader (OCL_ICD_VENDORS naming the folder of emu.icd).
 */
struct emu_rig {
    const cl_icd_dispatch *cl;
    cl_platform_id platform;
    cl_device_id devices[EMU_DEVICES_MAX];
    cl_uint device_count;
    struct emu_shared *shared; /**< For emu_shared_*. */
};

/** Open the driver with @config (see README.md). One call a process. Fails the running test. */
void emu_rig_open(struct emu_rig *rig, const char *config);

/** Write @text to a new file of this process, named in the variable @variable. */
void emu_rig_file(const char *variable, const char *text);

/** A context and a queue on one device, and a program built for it. */
struct emu_vdev {
    cl_context context;
    cl_command_queue queue;
    cl_program program;
};

/** Make one on device number @device; @source may be NULL. Fails the running test. */
void emu_vdev_open(const struct emu_rig *rig, size_t device, const char *source,
                   struct emu_vdev *ret_vdev);
void emu_vdev_close(const struct emu_rig *rig, struct emu_vdev *vdev);

#endif
