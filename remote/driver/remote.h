#ifndef RESEAT_REMOTE_DRIVER_REMOTE_H
#define RESEAT_REMOTE_DRIVER_REMOTE_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "agent/wire/inventory.h"
#include "messages.h"
#include "remote/driver/copy.h"
#include "remote/driver/handle.h"
#include "remote/driver/layout.h"
#include "remote/driver/session/block.h"
#include "state/base/callback.h"
#include "state/base/info.h"
#include "state/driver/devinfo.h"

/*
 * The driver: an OpenCL implementation whose devices are a device server's. What a program makes is
 * known here, so that its questions are answered here; what it makes and does is posted to the
 * server, and only what waits for the device waits for an answer.
 *
 * Locks: an object's own, then the client's, then a stream's. Callbacks run in threads of
 * callback.h.
 */

struct platform {
    const cl_icd_dispatch *dispatch;
    struct platform *next; /**< Of those that were published. */
    struct client *client;
    const char *name;
    char version[64];
    cl_version numeric;
    struct device_object **devices;
    cl_uint count;
};

struct device_object {
    struct object base;
    struct platform *platform;
    const struct inventory_entry *answers;
    char *extensions;     /**< Those that are offered. */
    atomic_bool gateless; /**< It has no part in transfers between devices. */
    bool clock_known;     /**< Guarded by client->lock, with: */
    int64_t away;         /**< Of the host's clock from the device's. */
    cl_version version;
};

/** As many devices of a server are told of. */
#define FREE_MEMORY_MAX 64

/** A server that this process has a session with. */
struct client {
    struct client *next; /**< Of all. */
    struct stream stream;
    const char *address;      /**< Or several of the same server, separated by commas. */
    const char *icd;          /**< The one driver that is opened for us; NULL: the server's. */
    struct client *renewed;   /**< The session that followed; renew.c's, as is... */
    struct client *spare;     /**< ...what is ready to. */
    uint64_t features;        /**< Those that it asks for; then those that it has. */
    struct bulk *bulk;        /**< block.h; NULL: the session is over a link. */
    pthread_mutex_t offering; /**< One area at a time. */
    uint64_t process;         /**< Whose sessions it is: process_mark(). */
    pthread_mutex_t lock;     /**< Guards events, and the answers of calls. */
    pthread_cond_t changed;   /**< One of them. */
    bool over;                /**< All that was waited for has ended as lost; guarded by lock. */
    unsigned arriving;        /**< Events whose bytes are being copied; guarded by lock. None begins
                                   once the session has ended. */
    atomic_bool lost;         /**< The session ended. */
    atomic_bool leaving;      /**< The program ends, or is about to be without drivers. */
    atomic_bool left;         /**< It did: nothing of the session is in this process. */
    atomic_bool told;         /**< The devices are known. */
    pthread_t receiver;
    struct inventory inventory;
    /* By who connects, or the receiver: */
    uint64_t session;                    /**< The session's number; 0: it ends with its link. */
    _Atomic uint64_t unreached_until_ns; /**< Another server has no way to it until then. */
    unsigned char secret[WIRE_SECRET_SIZE];
    uint32_t patience_s;
    int64_t ahead;    /**< Of the server's clock, in nanoseconds, ... */
    uint64_t roughly; /**< ...or so much more or less. */
    struct platform *platforms;
    cl_uint platform_count;
    /** Bytes that nobody was promised of each device, inverted: 0 is that nothing was heard of it.
     */
    _Atomic uint64_t free_memory[FREE_MEMORY_MAX];
};

/**
 * Begin a session with a server, and publish its platforms. Blocks until it has told its devices.
 *
 * @icd  The driver that it opens, as this process would; NULL: its own.
 * @ret_client  Lives as long as the process. Returns 0 or -errno, which was said.
 */
MUST_CHECK int client_open(const char *address, const char *icd, struct client **ret_client);
/** The first half of client_open(): a session whose devices are known. */
MUST_CHECK int client_begin(const char *address, const char *icd, struct client **ret_client);
/** Say why there is no session after all, and end it. Returns @error. */
int client_give_up(struct client *client, int error);
/** End a session, so that no thread, descriptor or shared memory of it is left in the process. */
void client_leave(struct client *client);
/** Those of this process that are not ended so yet. */
void client_leave_each(void);
/** This is the child of a fork, in which nobody receives. */
bool client_is_forked(void);
/** The platforms of the servers that the environment names, after connecting at the first call. */
cl_uint clients_platforms(struct platform ***ret_platforms);
/** Make one of the inventory's entries @first and on. 0 or -ENOMEM. */
MUST_CHECK int platform_init(struct platform *platform, struct client *client,
                             const struct inventory_entry *entries, size_t first, size_t count);
/** Programs may name it from now on. Any thread. */
void platform_publish(struct platform *platform);
/** NULL: none was published at that address. Any thread, without a lock. */
struct platform *platform_get(cl_platform_id id);
/** Have what was posted sent, unless the session ended. */
void client_flush(struct client *client);
/** Receive in place of who does until @over, as long as that is sooner than to be woken. Without a
 *  lock. */
void client_attend(struct client *client, bool (*over)(void *data), void *data);
/** The same, for who goes on: with what is posted within the same moment. */
void client_flush_soon(struct client *client);
/** CL_DEVICE_NOT_AVAILABLE once the session ended, and in the child of a fork. */
cl_int client_state(const struct client *client);
/** The error of a post. */
cl_int posted(int error);
#define POST(client, NAME, ...)                                                                    \
    posted(client_state(client) ? -ENODEV                                                          \
                                : post_##NAME(&(client)->stream, &(struct msg_##NAME)__VA_ARGS__))

/** Somebody who waits for an answer. Its content is there until it is given back. */
struct call {
    struct object base;
    bool answered; /**< Guarded by client->lock. */
    cl_int error;
    unsigned char *content;
    size_t size;
    /** Called when it is answered, instead of waiting; or NULL. In a thread of callbacks. */
    void (*then)(struct call *call);
    void *data;
    struct callback_job job;
};
struct call *call_create(struct client *client);
/** The job of a call with `then`; it gives the call's reference back. */
void call_run(struct callback_job *job);
/** What was to be posted was not. False: it was answered all the same, since the session ended, and
 *  `then` is called. True: the caller gives its reference back. */
bool call_take_back(struct call *call);
/** Wait for the answer to what @posted_error says was posted. Returns its error. */
cl_int call_wait(struct call *call, cl_int posted_error);

struct context {
    struct object base;
    struct device_object **devices;
    cl_uint device_count;
    cl_context_properties *properties;
    size_t properties_size;
    uint32_t areas_before;  /**< block.h */
    struct ending *endings; /**< Guarded by client->lock. */
    void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *);
    void *data;
};

/** A callback at an object's end. */
struct ending {
    struct ending *next;
    struct callback_job job;
    void (*call)(struct ending *ending);
    void (*function)(void);
    void *handle, *data;
};
/** Have them called, the last one first. */
void endings_run(struct ending *endings);
cl_int ending_add(struct client *client, struct ending **list, void (*call)(struct ending *ending),
                  void (*function)(void), void *handle, void *data);

struct event;

struct queue {
    struct object base;
    struct context *context;
    struct device_object *device;
    cl_command_queue_properties properties;
    cl_queue_properties *list; /**< As it was given. */
    size_t list_size;
    pthread_mutex_t lock;  /**< Commands are posted in the order in which they are listed. A thread
                                that gives one in parts takes it again. */
    struct event *pending; /**< The last of those that have not ended. Guarded by client->lock. */
    _Atomic cl_int failed; /**< Of a command without an event; the next wait says so. */
};

struct event {
    struct object base;
    struct context *context;
    struct queue *queue; /**< NULL: a user event. */
    cl_command_type command;
    bool named;            /**< The server has it under its id. */
    _Atomic cl_int status; /**< As the program is told. */
    /* Guarded by client->lock: */
    bool arriving; /**< What it read is being copied: it ends after that, whatever happens. */
    bool ended;    /**< It did, with... */
    cl_int end;
    uint64_t times[4];
    unsigned blockers; /**< Events that end before it for the program, too. */
    struct event **dependents;
    unsigned dependent_count;
    struct event *previous, *next; /**< On its queue's list. */
    bool listed;
    struct event_callback *callbacks;
    /* Until it ends: */
    unsigned char *target; /**< Where what was read goes. */
    size_t asked; /**< Bytes that are to come, for which its stream takes longer messages. */
    bool lent;    /**< Into memory that may be read only where it has those bytes already. */
    struct memory *keeps;          /**< Used until it ends: its memory is the target. */
    struct bulk_block block;       /**< That the command names; or of 0 bytes. */
    struct event *before;          /**< Used: where that failed, this one does. */
    struct bulk_block owned_block; /**< Of a map that was unmapped: it may be the target. */
    void *owned;                   /**< The same, until nobody uses the event any more. */
    struct layout layout;
    struct copy copy;     /**< Of what it read, with... */
    struct msg_done done; /**< ...what the server told of it, but for its content. */
    uint64_t posted_ns, arrived_ns;
};

/** A user event, or a command's; with an error where there is no memory. */
struct event *event_make(struct context *context, struct queue *queue, cl_command_type command);
/** It ends for the server. */
void event_end(struct event *event, cl_int status);
/** A block of a map is given back when it ends, or at once. */
void event_keep_block(struct event *event, struct bulk_block *block);
/** It ends for the program no sooner than event_let_go() is called. */
void event_hold(struct event *event);
void event_let_go(struct event *event);
/** Wait until it has ended for the program; its status. */
cl_int event_await(struct event *event);
/** Is it going to end after all of those that its queue lists? */
void event_list(struct event *event, bool after_all, cl_uint count, const cl_event *waits);

struct map {
    struct map *next;
    void *pointer;
    struct event *event; /**< Of the map; used. */
    cl_map_flags flags;
    size_t origin[3], region[3];
    struct layout layout;
    void *owned; /**< Memory of this map alone; or NULL, or: */
    struct bulk_block block;
};

struct memory {
    struct object base;
    bool told; /**< The server knows of it. */
    struct context *context;
    cl_mem_object_type type;
    cl_mem_flags flags;
    size_t size;
    void *host; /**< The program's (CL_MEM_USE_HOST_PTR), or ours (CL_MEM_ALLOC_HOST_PTR). */
    bool host_owned;
    struct bulk_block host_block; /**< That `host` is. */
    struct memory *parent;        /**< Sub-buffer, or image made from another object. */
    size_t origin;
    cl_mem_properties *list;
    size_t list_size;
    cl_image_format format;
    cl_image_desc desc;
    size_t element, dims[3], row_pitch, slice_pitch;
    pthread_mutex_t lock;
    struct map *maps;       /**< Guarded by lock. */
    struct ending *endings; /**< Guarded by client->lock. */
};

struct sampler {
    struct object base;
    struct context *context;
    cl_bool normalized;
    cl_addressing_mode addressing;
    cl_filter_mode filter;
    cl_sampler_properties *list;
    size_t list_size;
};

struct build_state {
    cl_build_status status;
    cl_program_binary_type binary_type;
    size_t globals;
    char *options, *log; /**< Owned. */
};

/** What is known of a kernel, once for a program's build. */
struct kernel_facts {
    struct kernel_facts *next;
    char *name, *attributes;
    bool described;
    cl_uint count;
    struct argument_facts {
        cl_kernel_arg_address_qualifier address; /**< 0: not told. */
        cl_kernel_arg_access_qualifier access;
        cl_kernel_arg_type_qualifier qualifiers;
        char *type, *name;
        enum argument_kind kind;
        size_t size; /**< Of a value; 0: not known. */
    } * arguments;
    struct msg_kernel_group *groups; /**< Of each device of the context; size 0: not asked. */
};

struct program {
    struct object base;
    struct context *context;
    struct device_object **devices;
    cl_uint device_count;
    char *source; /**< NULL: made otherwise. */
    size_t source_size;
    unsigned char *il;
    size_t il_size;
    pthread_mutex_t lock;       /**< Guards all below. */
    struct build_state *builds; /**< Of each device. */
    bool building, built;
    cl_int link_error;
    size_t kernels;
    char *names;
    struct kernel_facts *facts;
    unsigned kernel_objects;
    unsigned char **binaries;
    size_t *binary_sizes; /**< NULL: not asked. */
    struct ending *endings;
};

struct kernel {
    struct object base;
    struct program *program;
    struct kernel_facts *facts;
    pthread_mutex_t lock;
    bool *set;     /**< Of each argument. */
    size_t *local; /**< Of those in local memory. */
};

/* Of one file each, used by others. */
struct queue *queue_get(cl_command_queue queue);
struct context *context_get(cl_context context);
struct memory *memory_get(cl_mem memory);
struct event *event_get(cl_event event);
struct program *program_get(cl_program program);
struct kernel *kernel_get(cl_kernel kernel);
struct device_object *device_get(cl_device_id device);
bool context_has(const struct context *context, const struct device_object *device);
uint64_t device_number(const struct device_object *device, cl_device_info name);

/** A command on its way. */
#define COMMAND_WAITS 16
struct command {
    struct msg_command head;
    struct queue *queue;
    struct event *event; /**< NULL: nobody wants to know. */
    cl_event *ret_event;
    bool blocking;
    cl_uint count;
    const cl_event *waits;
    uint64_t ids[COMMAND_WAITS], *many;
};
/**
 * Begin a command: check what all have, and take the queue. Where it succeeds, the command is
 * posted, and command_end() called with how that went.
 *
 * @after_all  It ends after everything that its queue has now.
 */
cl_int command_begin(struct command *command, cl_command_queue queue, cl_command_type type,
                     bool blocking, bool after_all, cl_uint count, const cl_event *waits,
                     cl_event *event);
/** The same of one that has an event in any case, since somebody must know where what it reads
 * goes, and when a block (block.h) is free again. */
cl_int command_begin_transfer(struct command *command, cl_command_queue queue, cl_command_type type,
                              cl_bool blocking, cl_uint count, const cl_event *waits,
                              cl_event *event);
/** Between beginning a transfer and posting it: where what it reads goes. It is read there, or into
 *  a block first, or comes in the answer. */
void command_aim(struct command *command, void *target, const struct layout *layout);
/**
 * The same of what it writes. It is taken from there, from a copy in a block, or from the message.
 *
 * @ret_content  For the message; NULL: not from there.
 * @ret_owned    To be freed after it was posted.
 * Returns CL_OUT_OF_HOST_MEMORY or CL_SUCCESS.
 */
cl_int command_fill(struct command *command, const void *source, const struct layout *layout,
                    const void **ret_content, size_t *ret_size, void **ret_owned);
/** The same of what is in a block already, which is the command's from now on. */
void command_lend(struct command *command, struct bulk_block *block);
/** Post one that does nothing, after what it waits for. */
cl_int command_post_nothing(const struct command *command);
cl_int command_end(struct command *command, cl_int error);

/** Answer with words, numbers, handles. */
struct request {
    size_t size;
    void *value;
    size_t *ret_size;
};
static inline cl_int request_bytes(const struct request *request, const void *value, size_t size)
{
    return info_answer(value, size, request->size, request->value, request->ret_size);
}
static inline cl_int request_text(const struct request *request, const char *text)
{
    return request_bytes(request, text, __builtin_strlen(text) + 1);
}
static inline cl_int request_uint(const struct request *request, cl_uint value)
{
    return request_bytes(request, &value, sizeof(value));
}
static inline cl_int request_size(const struct request *request, size_t value)
{
    return request_bytes(request, &value, sizeof(value));
}
static inline cl_int request_ulong(const struct request *request, cl_ulong value)
{
    return request_bytes(request, &value, sizeof(value));
}
static inline cl_int request_handle(const struct request *request, const void *handle)
{
    return request_bytes(request, &handle, sizeof(handle));
}

/** What a call that creates returns. */
static inline void *created(void *object, cl_int error, cl_int *errcode)
{
    if (errcode)
        *errcode = error;
    return error ? NULL : object;
}
/** An object was made, but its message was not posted: nothing of it stays. */
static inline void *created_if(void *object, cl_int error, cl_int *errcode)
{
    if (error && object)
        handle_release(object);
    return created(object, error, errcode);
}

/** A list of pairs that ends with 0, copied; bytes with the end. */
void *list_copy(const void *list, size_t element, size_t *ret_size);

#endif
