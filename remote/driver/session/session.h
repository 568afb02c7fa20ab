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

extern const cl_name_version platform_extensions[1];

/** As many devices of a server are told of. */
#define FREE_MEMORY_MAX 64

/** A server that this process has a session with. */
struct client {
    struct client *next; /**< Of all. */
    struct stream stream;
    const char *address;      /**< Or several of the same server, separated by commas. */
    const char *icd;          /**< The one driver that is opened for us; NULL: the server's. */
    struct client *renewed;   /**< The session that followed; renew.c's, as is... */
    struct client *standby;   /**< ...what is ready to. */
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
struct device_object *device_get(cl_device_id device);
uint64_t device_number(const struct device_object *device, cl_device_info name);
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

#endif
