#ifndef RESEAT_TESTS_EMU_OBJECT_H
#define RESEAT_TESTS_EMU_OBJECT_H

#include <CL/cl_icd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tests/emu/call.h"
#include "tests/emu/config.h"
#include "tests/emu/emu.h"

/*
 * The objects that programs hold: each wraps one object of the driver. An object lives as long as
 * the program, a child (a context's buffer, a program's kernel) or a callback under way needs it,
 * and holds one reference of the driver's object for that time. Memory objects live a little
 * longer: until the driver says that its own object is gone, which is when the memory is free.
 */

/** A destructor callback of the program. */
struct emu_callback {
    struct emu_callback *next;
    void (*function)(void); /**< Of the type that its object's kind has. */
    void *data;
};

struct emu_context;

struct emu_object {
    const cl_icd_dispatch *dispatch; /**< First, as the ICD convention has it. */
    uint32_t magic;
    enum emu_kind kind;
    atomic_uint refs;  /**< The program's. */
    atomic_uint holds; /**< One for all of the program's, one for each child and callback. */
    void *real;
    struct emu_device *device;        /**< The device that calls on this object reach. */
    struct emu_context *context;      /**< Borrowed through parent. */
    struct emu_object *parent;        /**< Held. */
    struct emu_callback *callbacks;   /**< Latest first. Guarded by the object lock. */
    struct emu_object *older, *newer; /**< Live memory objects and samplers. Table lock. */
};

struct emu_platform {
    struct emu_object object;
    struct emu_device *devices;
    size_t device_count;
    cl_uint version; /**< The highest of its devices'. */
};

struct emu_device {
    struct emu_object object;
    struct emu_config config;
    struct emu_shared_device *shared;
    size_t max_work_group_size, base_work_group_size;
    uint64_t memory, max_alloc, local_memory;
    pthread_mutex_t engines_lock;
    uint64_t engine_free_ns[EMU_ENGINES]; /**< When each is idle again. engines_lock. */
    pthread_mutex_t cores_lock;           /**< Of these eight. */
    pthread_cond_t cores_changed;
    uint64_t cores_free_ns, cores_over_ns; /**< When what was launched will have ended; when the
                                                last that has, did. */
    struct emu_gate *gates, *gates_last;   /**< Of launches that are not over; NULL: it is idle. */
    bool gates_open;                       /**< A thread opens them. */
    uint64_t busy_since_ns;                /**< When it last became busy. */
    int meter_fd;                          /**< -1: it has no meter. */
    _Atomic uint64_t builds_lost;          /**< Of build_loses. */
    _Atomic uint64_t own_bytes;            /**< What this process holds of shared->bytes. */
    _Atomic int64_t own_live[EMU_KINDS];
};

/** Have the device's energy meter run, if it has one. */
void emu_meter_start(struct emu_device *device);
/** Its launches are running from now on. cores_lock held. */
void emu_meter_busy(struct emu_device *device);

struct emu_context {
    struct emu_object object;
    struct emu_device *devices[EMU_DEVICES_MAX];
    cl_uint device_count;
    cl_context_properties *properties; /**< As the program gave them; NULL if it did not. */
    size_t properties_size;
};

/** A mapped region, remembered for what its unmapping has to carry back. */
struct emu_map {
    struct emu_map *next;
    void *ptr;
    uint64_t bytes;
    bool writes;
};

struct emu_mem {
    struct emu_object object;
    uint64_t charged;     /**< Bytes of device memory, on every device of the context. */
    bool watched;         /**< The driver calls back when its object dies. */
    char *host;           /**< The program's memory, of which it is a copy; or NULL. */
    struct emu_map *maps; /**< Object lock. */
};

struct emu_program {
    struct emu_object object;
    struct emu_device *devices[EMU_DEVICES_MAX];
    cl_uint device_count;
    _Atomic cl_int build_error; /**< An emulated failure, or CL_SUCCESS; ... */
    const char *_Atomic log;    /**< ...and what is told of it. */
    bool built;                 /**< It was, or is being: keep.c. */
    atomic_bool asks;           /**< It was built with -cl-kernel-arg-info. */
    char *options;              /**< That it was built with, or NULL. */
    cl_program origin;          /**< The driver's program of the source, where another is used. */
};

/** What clSetKernelArg has to do with an argument's value. */
enum emu_arg { EMU_ARG_UNKNOWN, EMU_ARG_VALUE, EMU_ARG_HANDLE, EMU_ARG_LOCAL };

struct emu_kernel {
    struct emu_object object;
    char name[EMU_NAME_MAX];
    cl_uint arg_count;
    unsigned char *arg_kinds;      /**< enum emu_arg. */
    _Atomic uint64_t *local_bytes; /**< Of each local argument. */
};

struct emu_event {
    struct emu_object object;
    uint32_t losses;           /**< The device's when the command was enqueued. */
    atomic_bool done;          /**< Seen complete: a later loss of the device does not undo it. */
    atomic_bool awaited;       /**< It was itself waited for. */
    bool fails;                /**< It ends in an error. */
    uint64_t lasted_ns;        /**< Longer than for the driver: it began earlier. */
    struct event_notice *late; /**< Callbacks kept for after the end; a lock of event.c. */
};

/** The wrapped driver's table, our own, and the one platform. Set before any object exists. */
extern const cl_icd_dispatch *emu_driver;
extern const cl_icd_dispatch emu_dispatch;
extern struct emu_platform emu_platform;

/** Set up the platform or a device, which are never freed. */
void emu_root_init(struct emu_object *object, enum emu_kind kind, void *real);

/** CL_SUCCESS, or the error that OpenCL names for a @handle that is not of @kind. */
cl_int emu_check(const void *handle, enum emu_kind kind);

/** The object behind a checked handle; NULL for NULL. */
struct emu_object *emu_object_of(const void *handle);
/** The driver's object behind a checked handle; NULL for NULL. */
void *emu_real_of(const void *handle);
/** The device that calls on a checked handle reach. */
struct emu_device *emu_device_of(const void *handle);

/** The device of the first of @count handles. When there are none: an error if @needed, else
 * @ret_device stays as it is. */
cl_int emu_device_of_list(cl_uint count, const void *handles, enum emu_kind kind, bool needed,
                          struct emu_device **ret_device);

/** Make an object, unpublished: no driver object yet. @parent is held. NULL: no memory. */
struct emu_object *emu_object_new(enum emu_kind kind, struct emu_device *device,
                                  struct emu_object *parent);

/**
 * Give @object, whose driver object was just made, to the program.
 *
 * With @err set or no driver object it is freed instead. Returns the handle or NULL.
 */
void *emu_object_publish(struct emu_object *object, const cl_int *err);

cl_int emu_object_retain(struct emu_object *object);
cl_int emu_object_release(struct emu_object *object);
/** Keep an object without a reference of the program's; and let it go. */
void emu_object_hold(struct emu_object *object);
void emu_object_unhold(struct emu_object *object);

/** Remember a destructor callback. */
cl_int emu_object_on_destroy(struct emu_object *object, void (*function)(void), void *data);

/** True when @handle is a live memory object or sampler. Never dereferences it. */
bool emu_object_is_argument(const void *handle);

/** Charge @bytes of device memory to every device of the context, or none. */
cl_int emu_memory_charge(struct emu_context *context, uint64_t bytes);
void emu_memory_discharge(struct emu_context *context, uint64_t bytes);

/** Handles unwrapped for the driver. */
struct emu_list {
    void **real; /**< NULL for a NULL array. */
    void *few[16];
};
cl_int emu_list_init(struct emu_list *list, cl_uint count, const void *handles, enum emu_kind kind);
void emu_list_finish(struct emu_list *list);

/** Make an event for a command if the program wants one (@event not NULL). */
cl_int emu_event_prepare(struct emu_device *device, const cl_event *event, const void *parent,
                         struct emu_object **ret_made);
/** Give it to the program, or free it when the command was refused. */
void emu_event_publish(struct emu_object *made, cl_event real, cl_int err, cl_event *event);
/** True when the event's command was lost with its device. */
bool emu_event_lost(struct emu_event *event);

/** Answer an info query with @size bytes at @from. */
cl_int emu_info(const void *from, size_t size, size_t param_value_size, void *param_value,
                size_t *param_value_size_ret);
/** Answer with a handle, or the program's reference count of @object. */
cl_int emu_info_handle(const void *handle, size_t param_value_size, void *param_value,
                       size_t *param_value_size_ret);
cl_int emu_info_refs(struct emu_object *object, size_t param_value_size, void *param_value,
                     size_t *param_value_size_ret);

/** CL_INVALID_OPERATION on a device without images. */
cl_int emu_images_offered(const struct emu_device *device);
/** Bytes of a region, of @image's elements unless it is NULL. */
uint64_t emu_region_bytes(const size_t *region, cl_mem image);

/** Learn what a new kernel's arguments are. */
void emu_kernel_inspect(struct emu_kernel *kernel);
/** Let the driver say when the memory object dies. */
void emu_mem_watch(struct emu_mem *mem);
/** Called once nothing is left of the driver's object. */
void emu_object_gone(struct emu_object *object);

/** Open the wrapped driver and make the platform. Once, thread-safe; returns an OpenCL error. */
cl_int emu_platform_open(void);
/** The control block, mapped on first use. Works before the platform is open. */
EXPORT struct emu_shared *emu_control_shared(void);

#endif
