#ifndef RESEAT_STATE_DRIVER_DRIVER_H
#define RESEAT_STATE_DRIVER_DRIVER_H

#include <CL/cl_icd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"
#include "state/base/files/owned.h"
#include "state/driver/between.h"
#include "state/driver/budget.h"
#include "state/driver/devinfo.h"
#include "state/driver/link.h"
#include "state/driver/quirks.h"

/*
 * The vendors' drivers, opened by us through their ICD entry points and called through their
 * dispatch tables. No loader stands in between, so no call can lead back to us.
 */

/**
 * Identifies one device of a machine without opening a driver. Stable across processes and reboots:
 * nothing in it is an index into a list that other hardware shifts.
 */
struct device_key {
    /** The driver library, as its .icd file or OCL_ICD_FILENAMES names it; or the address of the
     *  server that has the device (state/driver/served.h). */
    char icd[256];
    char platform[128]; /**< CL_PLATFORM_NAME. */
    char device[128];   /**< CL_DEVICE_NAME. */
    uint32_t ordinal;   /**< Among the devices of this platform with this name. */
    char uuid[33];      /**< Lower-case hexadecimal, or "" (cl_khr_device_uuid). */
    char pci[16];       /**< "0000:3b:00.0", or "" (cl_khr_pci_bus_info and vendors' own). */
};

#define DEVICE_NAME_MAX 32

/** One real device. Lives as long as the process: drivers are never closed. */
struct device {
    struct device_key key;
    const cl_icd_dispatch
        *cl; /**< Table for all calls for real objects of this device's platform. */
    cl_platform_id platform;
    cl_device_id id;
    struct devinfo info; /**< Its own answers, queried once. */
    unsigned quirks;     /**< Peculiarities of its driver: bits of enum quirk. */
    /* Set if its driver is our remote driver (between.h); or NULL. */
    between_function between;
    lend_function lend;
    lent_return_function lent_return;
    struct budget budget; /**< Memory that the program has there. */
    struct reach reach;   /**< Files that the process could reach when its driver last opened some.
                             Written by movers later on. */
    atomic_bool lost;     /**< A residence there was lost, and no new one has answered since. */
    cl_icd_dispatch *_Atomic lost_calls; /**< Calls for lost residences; NULL: there was none. */
    _Atomic uint8_t host_ptr;            /**< enum host_ptr (residence.h). */
    _Atomic uint64_t digest_rate;        /**< Bytes a second of digest.h; 0: not measured. */
    struct link_figures
        link; /**< Written by transfer_link(); bandwidths are 0 until it measured. */
    const char *_Atomic name; /**< The operators' name for it; NULL: not known yet. */
};

/** Its name for messages: the operators' name if there is one, or that of its driver. */
static inline const char *device_name(const struct device *device)
{
    const char *name = atomic_load(&device->name);
    return name ? name : device->key.device;
}
/** Set the operators' name; "" does nothing. The first name stays. */
void device_call(struct device *device, const char *name);

/** The largest work-group of a kernel there, if its driver reports @said
 * (CL_KERNEL_WORK_GROUP_SIZE). */
static inline size_t device_group_size(const struct device *device, size_t said)
{
    bool wrong = device->quirks & QUIRK_GROUP_SIZE_WRONG;
    return wrong ? devinfo_scalar(&device->info, CL_DEVICE_MAX_WORK_GROUP_SIZE, said) : said;
}

/** The value of the environment before `reseat run` replaced it; drivers are found through these.
 */
#define DRIVER_ENV_VENDORS   "RESEAT_ICD_VENDORS"
#define DRIVER_ENV_FILENAMES "RESEAT_ICD_FILENAMES"
/** A symbol that our own library exports and no driver has, so that we never open ourselves. */
#define DRIVER_OWN_MARKER "reseat_marker"

/**
 * True when both keys name the same device of the same driver: by UUID and PCI address where both
 * have them, else by the ordinal among equal names.
 */
bool device_key_equal(const struct device_key *a, const struct device_key *b);

/**
 * Open the driver that @key names and find the device.
 *
 * Only that one driver library is opened, no other enters the process. Opening one again is free;
 * for a server whose session has ended it begins another session, with other devices. Thread-safe.
 * Blocks on the driver's own start-up.
 *
 * @ret_device  Borrowed, valid until the process ends.
 * Returns 0, -ENOENT (no such driver or device, or driver_list() would not open it either; the
 * reason is in the log), -ENOMEM.
 */
MUST_CHECK int driver_open_device(const struct device_key *key, struct device **ret_device);

/**
 * Open every driver that an OpenCL loader would find (DRIVER_ENV_* when set, else
 * OCL_ICD_VENDORS and OCL_ICD_FILENAMES, else /etc/OpenCL/vendors; never ourselves) and list all
 * their devices, in a stable order. A driver that fails to open is skipped and logged.
 *
 * Thread-safe. Blocks on the drivers' own start-up.
 *
 * @ret_devices  Array owned by the caller (free()), NULL when empty; the devices in it are
 * borrowed. Returns 0 or -ENOMEM.
 */
MUST_CHECK int driver_list(struct device ***ret_devices, size_t *ret_count);

/**
 * The same for one driver library. Returns 0, -ENOENT (it cannot be opened, is ourselves, or has no
 * device; the reason is in the log), -ENOMEM.
 */
MUST_CHECK int driver_list_library(const char *icd, struct device ***ret_devices,
                                   size_t *ret_count);

/**
 * Remove everything of drivers from this process: threads, descriptors, and memory shared with
 * other processes. Only drivers in other processes can be left: their sessions end, and later use
 * of their devices begins new ones. Until this returns, nobody may use a residence or make one.
 *
 * Blocks on the servers. Returns 0, -EPERM (a vendor's driver is in the process; others were not
 * touched) or -errno, with one line in @ret_reason.
 */
MUST_CHECK int driver_leave_all(char *ret_reason, size_t size);
/** Only check: 0, or -EPERM. */
MUST_CHECK int driver_may_leave(char *ret_reason, size_t size);

/** OpenCL version of the device as CL_MAKE_VERSION(major, minor, 0). */
cl_version device_version(const struct device *device);

#endif
