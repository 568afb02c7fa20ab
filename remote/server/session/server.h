#ifndef RESEAT_REMOTE_SERVER_SESSION_SERVER_H
#define RESEAT_REMOTE_SERVER_SESSION_SERVER_H

#include <CL/cl_icd.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "messages.h"
#include "remote/identity/grant.h"
#include "remote/rings/bulk.h"
#include "remote/server/listener/devices.h"
#include "state/driver/driver.h"
#include "state/opencl/argument.h"

/*
 * One client's session: a process of its own, which opens the vendors' drivers and executes the
 * client's messages (server_NAME() of messages.h). The session's thread reads and executes them in
 * order, and only that thread uses the tables of objects. Long operations end in driver callbacks
 * or in build threads, which only post messages.
 */

/** A kernel's argument. */
struct argument {
    enum argument_kind kind;
    uint64_t size; /**< Of a value, in bytes; 0: not known. */
    cl_int error;
};

/** What one of the client's ids stands for. The comments name the type if a field is only for one.
 */
struct entry {
    uint64_t id; /**< 0: the entry is free. */
    void *real;  /**< The driver's object; NULL: it could not be created, see `error`. */
    const cl_icd_dispatch *cl;
    cl_context context; /**< The context of the object; borrowed. */
    uint64_t devices;   /**< Bit i: device i belongs to the context. */
    uint32_t device;    /**< Queue: index of its device. */
    uint32_t round;     /**< Queue: the round in which pacing.h noted it. */
    cl_int error;
    cl_device_id first;         /**< Context: its first device. */
    bool profiled;              /**< Queue: with profiling. */
    bool touched;               /**< Queue: commands were submitted since the last flush. */
    bool own_memory;            /**< Queue: its device has memory of its own. */
    bool asks;                  /**< Queue: events may be queried in a callback. */
    bool image;                 /**< Memory object: an image. */
    bool user;                  /**< Event: a user event, which the client ends. */
    bool text;                  /**< Program: made from source or IL. */
    struct argument *arguments; /**< Kernel; on the heap. */
    cl_uint argument_count;
};

struct table {
    struct entry *entries;
    uint32_t room;
};

struct server {
    struct stream stream;
    struct device **devices;
    size_t device_count;
    struct table tables[ID_TYPES];
    uint64_t *touched; /**< Queues that server_flush() will flush. */
    size_t touched_count;
    const struct devices
        *known; /**< The listening process's list; NULL: devices are not shared out. */
    uint32_t numbers[DEVICES_MAX]; /**< The number of each device in that list. */
    int channel;                   /**< To the listening process: channel.h. */
    bool keeps;                    /**< Keep binaries for the client. */
    atomic_bool told; /**< The client has the list of devices, which does not change any more. */
    uint64_t memory;  /**< Limit of its memory objects in bytes, or GRANT_UNLIMITED_MEMORY. */
    struct bulk_map *areas;  /**< Shared memory; NULL: the session uses a link. */
    uint64_t staged_max;     /**< Bytes of host memory that may wait for devices or the client. */
    _Atomic uint64_t staged; /**< Of these, bytes of commands that have not ended. */
    const char *wrong;       /**< The protocol violation that ends the session; or NULL. */
};

/** Find the object with that id. If there is none, returns NULL, and the session ends. */
struct entry *server_find(struct server *server, uint64_t id);
/** Add an entry for a new object. Returns NULL, and the session ends, if the id is in use or there
 *  is no memory. */
struct entry *server_add(struct server *server, uint64_t id);
/** As server_add(), for an object of a context. Returns NULL also if the context could not be
 * created: then the new entry has its error, and no driver's object must be created. */
struct entry *server_add_to(struct server *server, uint64_t id, uint64_t context);
/** End the session because its client broke the rules; @why is not copied. */
void server_wrong(struct server *server, const char *why);

/** Find an object that will be passed to a driver together with @with. The session ends if the two
 *  have different drivers or contexts, which drivers do not check. */
struct entry *server_find_with(struct server *server, uint64_t id, const struct entry *with);
/** Find all objects of a list of ids, to be used with @with. The caller frees the result with
 * free(). Returns NULL if the list is empty, or on an error: then *ret_error is set. */
void **server_find_all(struct server *server, const void *ids, uint32_t count,
                       const struct entry *with, cl_int *ret_error);

/** The longest text of a program or kernel that is sent; longer ones are not. */
#define SERVER_TEXT_MAX (16u << 20)

/** Returns CL_SUCCESS if the kernel's arguments allow a launch, or the OpenCL error. */
cl_int server_kernel_error(const struct entry *kernel);

/** Answer a call. @content may be NULL. */
void server_reply(struct server *server, uint64_t call, cl_int error, const void *content,
                  size_t size);

/** Send the output of kernels so far, before later messages. May be called from any thread. */
void server_print(struct server *server);
/** Send standard output to the client from now on. Returns 0 or -errno. */
MUST_CHECK int server_catch_output(struct server *server);

/** Receive the client's first message, and take over its working directory and environment, before
 * any driver is opened. 0 or -errno. */
MUST_CHECK int server_take_environment(struct server *server);

/** Start the thread that finds commands whose end the driver did not report, and reports how busy
 * the session is. 0 or -errno. */
MUST_CHECK int server_watch_commands(struct server *server);

struct pace;
/** Have pacing_ended() called when a command has ended. 0 or -ENOMEM. */
MUST_CHECK int server_see_end(struct server *server, const cl_icd_dispatch *cl, cl_event event,
                              struct pace *pace);

struct session_budget;
struct channel_message;
/** Reserve memory for an object of a context with those devices. Called by the session's thread.
 *  Returns NULL if there is not enough memory. */
struct session_budget *server_take_memory(struct server *server, uint64_t devices, uint64_t bytes);
void server_give_back(struct session_budget *session_budget);
/** Charge the memory to the object of @entry until the driver destroys it. If that cannot be
 * observed, or @session_budget is NULL, the object is released, and the entry gets an error. */
void server_charge(struct entry *entry, struct session_budget *session_budget);
/** The same for an object that exists already, as only the driver knows its size. */
void server_charge_made(struct server *server, struct entry *entry);
/** Take the listening process's answer to a request for memory. */
void server_promised(struct server *server, const struct channel_message *message);
/** Lower the reported memory of a device to @memory and to the session's limit. */
void server_cap_memory(const struct server *server, uint64_t memory, struct devinfo *info);

/** In a session over rings: take the descriptor that came over the link before a message. @area:
 * the number that must have been sent with it; 0: for a transfer. 0 or -errno. Called by the
 * receiving thread. */
MUST_CHECK int areas_take_descriptor(struct link *link, uint32_t area, int *ret_fd);
/** Hold bytes of a shared area for a command, until bulk_map_release(). Returns 0 or -EPROTO: they
 *  are not all in an area that was offered. */
MUST_CHECK int areas_hold(struct server *server, uint32_t area, uint64_t place, uint64_t size,
                          char **ret_bytes);
/** Prepare for memory that the client offers. 0 or -ENOMEM. */
MUST_CHECK int server_share_memory(struct server *server);
/** Whether the device has memory of its own, so that host memory must be transferred to it. */
bool device_has_own_memory(const struct device *device);
/** End all areas' registrations with a context that is about to be released. */
void areas_forget_context(cl_context context);

/** Note that a command was submitted to the queue, so that server_flush() flushes it. */
void server_touch(struct server *server, struct entry *queue);
/** Flush all queues that commands were submitted to since their last flush. */
void server_flush(struct server *server);

/** What a process of a session is told. Has no pointers: it is written to a file
 * (listener/serve.h). */
struct session_limits {
    uint64_t memory; /**< Limit of the address space in bytes; 0: none. */
    char devices[DEVICES_MAX][sizeof(((struct device_key *)0)->device)]; /**< Names... */
    size_t device_count;      /**< ...of the offered devices; 0: all are. */
    bool shares;              /**< Devices are shared out: `known`. */
    struct devices known;     /**< Only the rows are filled in. */
    struct grant local;       /**< The grant of clients without a certificate. */
    char authority[PATH_MAX]; /**< Its folder, without symbolic links; "": none. */
    bool open;                /**< No sandbox. */
    bool shows_denied;        /**< Log denied system calls. */
    bool isolates; /**< Serves isolated programs: drivers are opened as in the client's process. */
    uint32_t patience_s; /**< The longest wait for a client to reconnect. */
};
/** The program's main function when the listening process executes it for a connection
 * (listener/serve.h). Never returns. */
_Noreturn void session_main(void);

#endif
