#ifndef RESEAT_REMOTE_DRIVER_OBJECTS_OBJECTS_H
#define RESEAT_REMOTE_DRIVER_OBJECTS_OBJECTS_H

#include <string.h>

#include "remote/driver/copy.h"
#include "remote/driver/session/session.h"
#include "state/base/threads/callback.h"
#include "state/driver/between.h"
#include "state/opencl/create.h"
#include "state/opencl/image.h"
#include "state/opencl/info.h"

#include "remote_calls.h"

/* The driver's objects, as the files of this folder and those that use it know them. */

struct context {
    struct handle base;
    struct device_object **devices;
    cl_uint device_count;
    cl_context_properties *properties;
    size_t property_count;
    uint32_t areas_before; /**< Of blocks_before(). */
    pthread_mutex_t lock;
    struct image_kind *kinds; /**< Of images that the device's driver makes. Guarded by lock. */
    size_t kind_count;
    struct destructor *_Atomic destructors;
    void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *);
    void *data;
};

struct event;

struct queue {
    struct handle base;
    struct context *context;
    struct device_object *device;
    cl_command_queue_properties properties;
    cl_queue_properties *property_list; /**< As it was given. */
    size_t property_count;
    /** Held from listing a command until it is posted, so that both have the same order. Recursive:
     * a transfer in several parts holds it for all of them. */
    pthread_mutex_t lock;
    uint64_t given;   /**< How many commands were enqueued. Guarded by lock, with: */
    uint64_t untold;  /**< The number of the last command without an event. */
    uint64_t covered; /**< All commands up to this number have ended. Guarded by client->lock. */
    /** The last command with an event that has not ended. Guarded by client->lock. */
    struct event *pending;
    /** The error of a command without an event, which the next wait returns. */
    _Atomic cl_int failed;
};

struct event {
    struct handle base;
    struct context *context;
    struct queue *queue; /**< NULL: a user event. */
    cl_command_type type;
    bool named; /**< The server knows the event by its id, and keeps it until it is released. */
    uint64_t covers;       /**< All commands of its queue up to this number end before it. */
    _Atomic cl_int status; /**< As the program is told. */
    /* Guarded by client->lock: */
    bool arriving; /**< The bytes that it read are being copied: the event ends after the copy, even
                      if the session is lost. */
    bool ended;    /**< It did, with... */
    cl_int end;
    uint64_t times[4];
    unsigned blockers; /**< How many events have to end first, as the program sees it. */
    struct event **dependents;
    unsigned dependent_count;
    struct event *previous, *next; /**< On its queue's list. */
    bool listed;
    struct event_callback *callbacks;
    struct event_callback *due; /**< Callbacks to be called, in this order, by the job. */
    bool posted;                /**< The job is, which uses the event. */
    struct callback_job job;
    /* Until it ends: */
    unsigned char *target; /**< Where the bytes that were read go. */
    size_t asked;     /**< Bytes that the reply will have; the stream accepts messages longer by as
                         much. */
    bool user_memory; /**< The target is the program's CL_MEM_USE_HOST_PTR memory and may be
                         read-only: bytes that are equal already are not written. */
    struct memory *keeps; /**< The object whose memory is the target; used until the event ends. */
    struct bulk_block block; /**< The block that the command names; 0 bytes: none. */
    struct event *before; /**< The part of the same transfer before this one; used. If that failed,
                             this one fails. */
    /** The memory of a map that was unmapped while it may still be the target; or NULL. */
    struct bulk_loan *owned_loan;
    void *owned; /**< The same of other memory, freed with the event. */
    struct layout layout;
    struct copy copy;     /**< Of what it read, with... */
    struct msg_done done; /**< ...what the server's message said, without its content. */
    uint64_t posted_ns, arrived_ns;
};

/** Register a callback for the end of an object. Returns what the call returns. */
static inline cl_int object_add_destructor(struct destructor *_Atomic *list, void (*call)(void),
                                           void *handle, void *data)
{
    if (!call)
        return CL_INVALID_VALUE;
    return destructor_add(list, (void(CL_CALLBACK *)(void *, void *))call, handle, data) == 0
               ? CL_SUCCESS
               : CL_OUT_OF_HOST_MEMORY;
}

/** A user event (@queue NULL) or a command's. NULL without memory. */
struct event *event_make(struct context *context, struct queue *queue, cl_command_type command);
/** It ends for the server. */
void event_end(struct event *event, cl_int status);
/** Return a loan when the event ends, or now if it has ended. NULL is allowed. */
void event_keep_loan(struct event *event, struct bulk_loan *loan);
/** The program does not see the event end before event_let_go() is called. */
void event_hold(struct event *event);
void event_let_go(struct event *event);
/** Wait until the event has ended as the program sees it. Returns its status. */
cl_int event_await(struct event *event);
/** List the event with its queue, and let it end, for the program, after the events of @waits and
 * those before it on an in-order queue. @after_all: after all that the queue lists. */
void event_list(struct event *event, bool after_all, cl_uint count, const cl_event *waits);

struct map {
    struct map *next;
    void *pointer;
    struct event *event; /**< Of the map; used. */
    cl_map_flags flags;
    size_t origin[3], region[3];
    struct layout layout;
    void *owned; /**< Memory of this map alone; or NULL, or: */
    struct bulk_loan *loan;
};

struct memory {
    struct handle base;
    bool told; /**< The server knows of it. */
    struct context *context;
    cl_mem_object_type type;
    cl_mem_flags flags;
    size_t size;
    void *host; /**< The program's (CL_MEM_USE_HOST_PTR), or ours (CL_MEM_ALLOC_HOST_PTR). */
    bool host_owned;
    struct bulk_loan *host_loan; /**< That `host` is; or NULL. */
    struct memory *parent;       /**< Sub-buffer, or image made from another object. */
    size_t origin;
    cl_mem_properties *properties;
    size_t property_count;
    struct image_shape *image; /**< Owned; NULL of a buffer. */
    pthread_mutex_t lock;
    struct map *maps; /**< Guarded by lock. */
    struct destructor *_Atomic destructors;
};

struct sampler {
    struct handle base;
    struct context *context;
    cl_bool normalized;
    cl_addressing_mode addressing;
    cl_filter_mode filter;
    cl_sampler_properties *properties;
    size_t property_count;
};

struct context *context_get(cl_context context);
bool context_has(const struct context *context, const struct device_object *device);
struct memory *memory_get(cl_mem memory);
struct event *event_get(cl_event event);
/** NULL: the handle is not valid. */
const void *event_context_of(cl_event handle);

struct sampler *sampler_get(cl_sampler sampler);

/** The functions that LEND_NAME and LENT_RETURN_NAME name. */
struct lent_memory *lent_take(cl_context context, size_t size);
void lent_give(struct lent_memory *lent);

/** Of a map that is on no list. */
void map_destroy(struct map *map);
/** CL_MEM_MAP_COUNT. */
cl_uint map_count(struct memory *memory);
/** Has its command ended, on a queue that keeps its times? */
cl_int event_check_profile(const struct event *event);

/** The largest number that a device of the context has for @name. */
uint64_t memory_largest(const struct context *context, cl_device_info name);
struct memory *memory_create(struct context *context, cl_mem_object_type type, cl_mem_flags flags,
                             struct memory *parent);
/** How a region of an image lies in host memory with these pitches, 0: packed. They fit it. */
struct layout image_layout(const struct image_shape *shape, const size_t region[3],
                           size_t row_pitch, size_t slice_pitch);

/** A handle, or NULL. */
static inline cl_int info_object(const struct info_request *request, const void *handle)
{
    return info_pointer(request, handle);
}
/** Give @object, which a call made, to its caller at @ret_object, a pointer to a pointer; after
 * @error nothing of the object stays. Returns @error. */
static inline cl_int created_if(void *object, cl_int error, void *ret_object)
{
    if (error == CL_SUCCESS)
        memcpy(ret_object, &object, sizeof(object));
    else if (object)
        handle_release(object);
    return error;
}

#endif
