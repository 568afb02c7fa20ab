#ifndef RESEAT_TESTS_EMU_EMU_H
#define RESEAT_TESTS_EMU_EMU_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * libreseat-emu.so: an OpenCL driver for tests. It wraps another driver and shows its devices with
 * the limits, the speed and the faults that a test asks for. README.md beside this file says how
 * devices are described; this header says how a test controls them while a program runs.
 *
 * Everything a test can set or read lies in one struct emu_shared. It is private memory of the
 * driver, reached through the exported emu_control_* functions, or, with EMU_CONTROL=FILE in the
 * program's environment, that file, mapped by the driver and by the test (emu_shared_open).
 */

#define EMU_SHARED_MAGIC      0x31554d45u /**< "EMU1" */
#define EMU_SHARED_VERSION    2u
#define EMU_DEVICES_MAX       64
#define EMU_FUNCTIONS_MAX     192
#define EMU_NAME_MAX          64
#define EMU_FUNCTION_NAME_MAX 56
#define EMU_EVERY_FUNCTION    (-1)

/** The values of @error in emu_control_arm() that are not an OpenCL error. */
#define EMU_ERROR_NATURAL 0 /**< The error that fits the call, e.g. -4 for clCreateBuffer. */
#define EMU_ERROR_VANISH  1 /**< The device vanishes at that call and stays away. */
#define EMU_ERROR_AT_END                                                                           \
    2 /**< The call succeeds; what it enqueues ends in CL_OUT_OF_RESOURCES.                        \
       */

/** What emu_control_live() counts. */
enum emu_kind {
    EMU_CONTEXT,
    EMU_QUEUE,
    EMU_MEM,
    EMU_SAMPLER,
    EMU_PROGRAM,
    EMU_KERNEL,
    EMU_EVENT,
    EMU_KINDS, /**< Kinds before this one are counted. */
    EMU_PLATFORM,
    EMU_DEVICE,
};

/** One device, as control and counters see it. Fields after the name may change at any time. */
struct emu_shared_device {
    _Atomic uint32_t state;     /**< Free, being claimed or in use: see emu_shared_device(). */
    char name[EMU_NAME_MAX];    /**< Section of the configuration. */
    _Atomic uint32_t vanished;  /**< Nonzero while the device is gone. */
    _Atomic uint32_t losses;    /**< How often it vanished. */
    _Atomic int64_t arm_left;   /**< The matching call that brings this to 0 fails; 0: disarmed. */
    _Atomic int32_t arm_target; /**< Index into function_names, or EMU_EVERY_FUNCTION. */
    _Atomic int32_t arm_error;  /**< An OpenCL error or EMU_ERROR_*. */
    _Atomic uint64_t fired;     /**< Calls failed by an arm so far. */
    _Atomic uint64_t too_many;  /**< Releases of what was released already. */
    _Atomic uint64_t calls;     /**< Calls that reached the device, failed ones included. */
    _Atomic uint64_t bytes;     /**< Device memory in use. */
    _Atomic uint64_t bytes_peak;
    _Atomic int64_t live[EMU_KINDS];
    _Atomic uint64_t function_calls[EMU_FUNCTIONS_MAX]; /**< By index into function_names. */
};

struct emu_shared {
    _Atomic uint32_t magic; /**< Written last by whoever creates the file. */
    uint32_t version;
    uint32_t function_count;
    uint32_t reserved;
    char function_names[EMU_FUNCTIONS_MAX][EMU_FUNCTION_NAME_MAX];
    struct emu_shared_device devices[EMU_DEVICES_MAX];
};

/**
 * Map the control file at @path, made and laid out if it does not exist.
 *
 * May be called before, while and after programs use it, from any process. Returns 0, -EINVAL (not
 * a control file of this version), -ENOMEM or what open, flock or mmap said.
 */
MUST_CHECK int emu_shared_open(const char *path, struct emu_shared **ret_shared);

/** Unmap. The file stays. NULL is fine. */
void emu_shared_close(struct emu_shared *shared);

/** Lay out fresh (zeroed) memory. For the driver's private block; the file is made by open. */
void emu_shared_init(struct emu_shared *shared);

/** The slot of @name, claimed if there is none: a test may arm a device before the program starts.
 * Thread-safe and safe across processes. NULL when the slots are full or the name is too long. */
struct emu_shared_device *emu_shared_device(struct emu_shared *shared, const char *name);

/** Index of @function, or EMU_EVERY_FUNCTION for NULL; -ENOENT when OpenCL has no such function. */
int emu_shared_function(const struct emu_shared *shared, const char *function);

/**
 * Fail the @n-th call (1: the next) that reaches @device from now on and, with @function, is a call
 * of that function. One arm a device: a new one replaces the one before.
 *
 * A release that is armed reports the error but still releases, so that live counts stay true.
 * Returns 0, -ENOENT (no such device or function) or -EINVAL (@n is 0).
 */
MUST_CHECK int emu_shared_arm(struct emu_shared *shared, const char *device, uint64_t n,
                              const char *function, int error);

/** Forget the arm of @device. Returns 0 or -ENOENT. */
int emu_shared_disarm(struct emu_shared *shared, const char *device);

/**
 * From now on every call on @device fails: creations with CL_DEVICE_NOT_AVAILABLE, the rest with
 * CL_OUT_OF_RESOURCES. Commands not yet seen complete end in error, waits report that, and the
 * platform lists the device no more. Retains and releases work. Returns 0 or -ENOENT.
 */
int emu_shared_vanish(struct emu_shared *shared, const char *device);

/** The device is back; commands lost stay lost. Returns 0 or -ENOENT. */
int emu_shared_restore(struct emu_shared *shared, const char *device);

/** Calls that reached @device; of @function only, where it is not NULL. 0 for unknown names. */
uint64_t emu_shared_calls(struct emu_shared *shared, const char *device, const char *function);

/** Calls that an arm failed on @device so far. */
uint64_t emu_shared_fired(struct emu_shared *shared, const char *device);

/** Releases on @device so far of objects that were released already, as far as that is seen. */
uint64_t emu_shared_too_many(struct emu_shared *shared, const char *device);

/** Live objects of @kind on @device, over all programs that share the block; -1 for unknown. */
int64_t emu_shared_live(struct emu_shared *shared, const char *device, enum emu_kind kind);

/** Live objects of every kind. */
int64_t emu_shared_live_all(struct emu_shared *shared, const char *device);

/** Bytes of @device's memory in use. */
uint64_t emu_shared_bytes(struct emu_shared *shared, const char *device);

/*
 * The same, exported by the library for programs that run it in-process: find them with dlsym().
 * They work before the first OpenCL call. emu_control_shared() gives the block itself.
 */
typedef struct emu_shared *(*emu_control_shared_fn)(void);
typedef int (*emu_control_arm_fn)(const char *device, uint64_t n, const char *function, int error);
typedef int (*emu_control_disarm_fn)(const char *device);
typedef int (*emu_control_vanish_fn)(const char *device);
typedef int (*emu_control_restore_fn)(const char *device);
typedef uint64_t (*emu_control_calls_fn)(const char *device, const char *function);
typedef uint64_t (*emu_control_fired_fn)(const char *device);
typedef int64_t (*emu_control_live_fn)(const char *device, enum emu_kind kind);
typedef int64_t (*emu_control_live_all_fn)(const char *device);
typedef uint64_t (*emu_control_bytes_fn)(const char *device);

#endif
