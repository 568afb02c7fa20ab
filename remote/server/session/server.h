#ifndef RESEAT_REMOTE_SERVER_SESSION_SERVER_H
#define RESEAT_REMOTE_SERVER_SESSION_SERVER_H

#include <CL/cl_icd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "messages.h"
#include "remote/identity/grant.h"
#include "remote/rings/bulk_map.h"
#include "remote/server/listener/devices.h"
#include "state/driver/driver.h"

/*
 * One client's session: a process of its own, which opens the vendors' drivers and executes the
 * client's messages (server_NAME() of messages.h). The session's thread reads and executes them in
 * order, and only that thread uses the tables of objects. Long operations end in driver callbacks
 * or in build threads, which only post messages.
 */

/** What a kernel's argument is, and why it could not be set. */
struct argument {
    enum argument_kind kind;
    uint64_t size; /**< Of a value; 0: not known. */
    cl_int error;
};

/** What one of the client's ids stands for. */
struct entry {
    uint64_t id; /**< 0: nothing. */
    void *real;  /**< NULL: it could not be made, for `error`. */
    const cl_icd_dispatch *cl;
    cl_context context; /**< What it is of; borrowed. */
    uint64_t devices;   /**< Of that: a bit each, by their places. */
    uint32_t device;    /**< Of a queue: the place of its own. */
    uint32_t round;     /**< Of a queue: when pacing.h noted it. */
    cl_int error;
    cl_device_id first;         /**< Of a context: its first device. */
    bool profiled;              /**< Of a queue. */
    bool touched;               /**< Of a queue: it was given commands since it was flushed. */
    bool own_memory;            /**< Of a queue: its device has. */
    bool asks;                  /**< Of a queue: an event can be asked in a callback. */
    bool image;                 /**< Of a memory object. */
    bool user;                  /**< Of an event: the client ends it. */
    bool text;                  /**< Of a program: made from source or IL. */
    struct argument *arguments; /**< Of a kernel; owned. */
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
    uint64_t *touched; /**< Queues to be flushed. */
    size_t touched_count;
    const struct devices
        *known; /**< As the listening process knows them; NULL: it shares nothing out. */
    uint32_t numbers[DEVICES_MAX]; /**< There, of each place here. */
    int channel;                   /**< To the listening process: channel.h. */
    bool keeps;                    /**< Binaries of its client's are kept. */
    atomic_bool told;              /**< The client was told its devices, which stay as they are. */
    uint64_t memory; /**< Bytes that its memory objects may have, or GRANT_UNLIMITED_MEMORY. */
    struct bulk_map *areas;  /**< Of shared memory; NULL: the session is over a link. */
    uint64_t staged_max;     /**< Bytes, in host memory, that may wait for devices or the client. */
    _Atomic uint64_t staged; /**< Those of commands that have not ended. */
    const char *wrong;       /**< Why the session ends: its client broke the rules. */
};

/** Find the object with that id. If there is none, returns NULL, and the session ends. */
struct entry *server_find(struct server *server, uint64_t id);
/** Add an entry for a new object. Returns NULL, and the session ends, if the id is in use or there
 *  is no memory. */
struct entry *server_add(struct server *server, uint64_t id);
/** The same for an object of a context's. NULL also where the context could not be created: the
 *  entry has its error then, and there is no driver's object to create. */
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

/** What a program's or kernel's answer says as text; drivers' are cut where they are absurd. */
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

/** Have drivers opened from now on as the client's own process would: its first message says how. 0
 *  or -errno. Before any of them is. */
MUST_CHECK int server_take_environment(struct server *server);

/** Look for commands that failed without a message, and say how busy the session is, from now on. 0
 * or -errno. */
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
/** What was taken is for this object, until the driver gives it up. One with no charge is released,
 *  with an error. */
void server_session_budget(struct entry *entry, struct session_budget *session_budget);
/** The same for one that was made, whose size only the driver knows. */
void server_session_budget_made(struct server *server, struct entry *entry);
/** Take the listening process's answer to a request for memory. */
void server_promised(struct server *server, const struct channel_message *message);
/** Let a device have no more than @memory, and no more than the session may use. */
void server_cap_memory(const struct server *server, uint64_t memory, struct devinfo *info);

/** Of a session over rings: take the descriptor of a message, which came over the link before the
 *  message was posted, with @area's number; 0: a transfer's. 0 or -errno. By the receiver. */
MUST_CHECK int areas_take_descriptor(struct link *link, uint32_t area, int *ret_fd);
/** Hold bytes of a shared area for a command, until bulk_map_release(). Returns 0 or -EPROTO: they
 *  are not all in an area that was offered. */
MUST_CHECK int areas_hold(struct server *server, uint32_t area, uint64_t place, uint64_t size,
                          char **ret_bytes);
/** Take memory that the client offers. 0 or -ENOMEM. */
MUST_CHECK int server_share_memory(struct server *server);
/** Whether the device has memory of its own, so that host memory must be transferred to it. */
bool device_has_own_memory(const struct device *device);
/** End all areas' registrations with a context that is about to be released. */
void areas_forget_context(cl_context context);

/** Note that a command was submitted to the queue, so that server_flush() flushes it. */
void server_touch(struct server *server, struct entry *queue);
/** Flush all queues that commands were submitted to since their last flush. */
void server_flush(struct server *server);

struct session_limits {
    uint64_t memory;            /**< Bytes of its address space; 0: no limit. */
    const char *const *devices; /**< Names of those offered, or NULL: all. */
    size_t device_count;
    const struct devices *known; /**< NULL: nothing is shared out. */
    struct grant local;          /**< Of who needs no certificate. */
    const char *authority;       /**< Its folder, without links; NULL: there is none. */
    bool open;                   /**< Its process may do what its user may. */
    bool shows_denied;           /**< The log names system calls that are denied. */
    bool isolates;               /**< Drivers are opened as the client's process would. */
    uint32_t patience_s;         /**< A session waits no longer for another link. */
};
/** What the program does as the process of a connection, which the listening process executes
 *  (startup.h). Never returns. */
_Noreturn void session_main(void);

#endif
