#ifndef RESEAT_REMOTE_DRIVER_SESSION_SESSION_H
#define RESEAT_REMOTE_DRIVER_SESSION_SESSION_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "messages.h"
#include "remote/driver/handle.h"
#include "remote/driver/session/block.h"
#include "state/base/threads/callback.h"
#include "state/driver/devinfo.h"
#include "state/driver/inventory.h"

/* The driver: an OpenCL implementation whose devices are those of a device server. It keeps what it
 * knows of every object of the program, and answers questions itself. Creations and commands are
 * posted to the server; only a call that waits for the device waits for an answer. Locks, in this
 * order: an object's own, the client's, a stream's. Callbacks run in the threads of callback.h. */

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
    struct handle base;
    struct platform *platform;
    const struct inventory_entry *answers;
    char *extensions;     /**< Those that are offered. */
    atomic_bool gateless; /**< Its server cannot copy between devices. */
    bool clock_known;     /**< Guarded by client->lock, with: */
    int64_t away;         /**< Of the host's clock from the device's. */
    cl_version version;
};

extern const cl_name_version platform_extensions[1];

/** The server tells the free memory of at most so many devices. */
#define FREE_MEMORY_MAX 64

/** A server that this process has a session with. */
struct client {
    struct client *next; /**< Of all. */
    struct stream stream;
    const char *address; /**< Several addresses of the same server are separated by commas. */
    /** The one driver that the server opens for this process; NULL: its own drivers. */
    const char *icd;
    struct client *renewed; /**< The session that replaced this one after its end. Guarded by
                               renew.c's lock, with: */
    struct client *standby; /**< The session that is ready to replace it; or NULL. */
    uint64_t features; /**< Before the greeting the features to ask for, then those that the server
                          granted. */
    struct bulk *bulk; /**< block.h; NULL: the session is over a link. */
    pthread_mutex_t offering; /**< One area at a time. */
    uint64_t process;         /**< Whose sessions it is: process_mark(). */
    pthread_mutex_t lock;     /**< Guards events, and the answers of calls. */
    pthread_cond_t changed;   /**< One of them. */
    bool over; /**< Everything that waited for the session was ended as lost. Guarded by lock. */
    unsigned arriving;   /**< Events whose bytes are being copied; guarded by lock. None begins
                              once the session has ended. */
    atomic_bool lost;    /**< The session ended. */
    atomic_bool leaving; /**< The process ends, or the session is being closed. */
    /** The session is closed: no thread, descriptor or memory of it is left here. */
    atomic_bool left;
    atomic_bool told; /**< The devices are known. */
    pthread_t receiver;
    struct inventory inventory;
    /* By who connects, or the receiver: */
    uint64_t session; /**< The session's number; 0: it ends with its link. */
    /** Until then no other server is told to connect to this one. */
    _Atomic uint64_t unreached_until_ns;
    unsigned char secret[WIRE_SECRET_SIZE];
    uint32_t patience_s;
    int64_t ahead;    /**< Of the server's clock, in nanoseconds, ... */
    uint64_t roughly; /**< ...or so much more or less. */
    struct platform *platforms;
    cl_uint platform_count;
    /** Free bytes of each device, inverted: 0 stands for not told yet. */
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
/** client_leave() for every session of this process that is still open. */
void client_leave_each(void);
/** True in the child of a fork, which has no receiving thread. */
bool client_is_forked(void);
struct device_object *device_get(cl_device_id device);
uint64_t device_number(const struct device_object *device, cl_device_info name);
/** Make a platform of @count entries of the inventory, from @first on. 0 or -ENOMEM. */
MUST_CHECK int platform_init(struct platform *platform, struct client *client,
                             const struct inventory_entry *entries, size_t first, size_t count);
/** From now on platform_get() knows the platform. Any thread. */
void platform_publish(struct platform *platform);
/** The published platform with that handle, or NULL. Any thread, without a lock. */
struct platform *platform_get(cl_platform_id id);
/** Send all messages that were posted, unless the session ended. */
void client_flush(struct client *client);
/** Receive messages in this thread, in place of the receiving thread, until @over or until spinning
 * costs more than being woken. Without a lock. */
void client_attend(struct client *client, bool (*over)(void *data), void *data);
/** The same for a caller that does not wait: messages that are posted a moment later go along. */
void client_flush_soon(struct client *client);
/** CL_DEVICE_NOT_AVAILABLE once the session ended, and in the child of a fork. */
cl_int client_state(const struct client *client);
/** The error of a post. */
cl_int posted(int error);
#define POST(client, NAME, ...)                                                                    \
    posted(client_state(client) ? -ENODEV                                                          \
                                : post_##NAME(&(client)->stream, &(struct msg_##NAME)__VA_ARGS__))

/** A request that is waiting for its reply. Its content lives until the call is released. */
struct call {
    struct handle base;
    bool answered; /**< Guarded by client->lock. */
    cl_int error;
    unsigned char *content;
    size_t size;
    /** Called on a callback thread when the reply comes, for a call that nobody waits for; or NULL.
     */
    void (*then)(struct call *call);
    void *data;
    struct callback_job job;
};
struct call *call_create(struct client *client);
/** The job of a call with `then`; it gives the call's reference back. */
void call_run(struct callback_job *job);
/** Withdraw a call whose message could not be posted. False: the end of the session has answered it
 * already, and `then` is called. True: the caller releases it. */
bool call_take_back(struct call *call);
/** Wait for the reply, unless @posted_error says that the message was not posted. Returns the error
 * of either. */
cl_int call_wait(struct call *call, cl_int posted_error);

#endif
