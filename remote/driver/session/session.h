#ifndef RESEAT_REMOTE_DRIVER_SESSION_SESSION_H
#define RESEAT_REMOTE_DRIVER_SESSION_SESSION_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "messages.h"
#include "remote/driver/handle.h"
#include "remote/link/link.h"
#include "remote/rings/bulk.h"
#include "state/base/files/owned.h"
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
    struct bulk *bulk; /**< Memory shared with the server; NULL: the session is over a link. */
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

/*
 * Memory that a client shares with its server, for large data (bulk.h). A client whose session goes
 * over a link has none, and sends all bytes in messages.
 */

/** Fewer bytes go in the message: copying them costs nothing. */
#define BLOCK_LEAST ((size_t)16 << 10)

/** A session over rings begins. 0 or -ENOMEM. */
MUST_CHECK int blocks_init(struct client *client);
/** Post a message over rings that a descriptor belongs to, which goes over the socket, in the same
 *  order. 0 or -errno. */
MUST_CHECK int blocks_post_descriptor(struct client *client, unsigned type, const void *body,
                                      size_t size, int fd);

/** Called before the server is told of a context whose first device is @device: the number of the
 * last area until then, or 0. If the device has memory of its own, older areas are not registered
 * with the context, because registering memory that is in use is not safe with every driver
 * (remote/server/session/areas.c); the context's blocks are taken from newer areas where possible.
 */
uint32_t blocks_before(const struct device_object *device);
/** Take a block of at least @size bytes, for transfers of a context. @before: of blocks_before()
 * for that context. False: there is none, or @size is less than BLOCK_LEAST. Blocks for a round
 * trip if a new area is needed; so no lock may be held that the receiving thread takes. */
bool block_take(struct client *client, uint32_t before, size_t size, struct bulk_block *ret_block);
/** Give back a block that nothing uses any more; one of 0 bytes is none. Any thread. */
void block_give(struct client *client, struct bulk_block *block);
/** A block_take() that is lent. NULL: there is none, or loans would be more than @most bytes. */
struct bulk_loan *block_lend(struct client *client, uint32_t before, size_t size, uint64_t most,
                             const atomic_uint *maps);
/** Find these bytes in shared memory; false: they are not there. */
bool block_find(struct client *client, const void *bytes, size_t size, uint32_t *ret_area,
                uint64_t *ret_place);

/** The longest attempt to connect, and to hear from a server or session that may be busy. A server
 *  gives its side as long (GREETING_NS). */
#define CONNECT_NS (10 * NS_PER_S)

/** How many seconds the program would wait for its session, as the environment says. */
uint32_t client_wanted_patience(void);

/**
 * Connect to a client's server, and begin a session.
 *
 * Blocks until @deadline_ns. Returns 0, -ECONNREFUSED (nobody listens, or it does not want us,
 * which is said), -EPROTO, or as `connect` of link.h.
 */
MUST_CHECK int connect_first(struct client *client, uint64_t deadline_ns, struct link **ret_link);

/**
 * By the receiver, when the link is broken: connect again, to whatever address the server's names
 * have now, and go on with the session.
 *
 * Blocks as long as the session is patient, or until it is known that it is gone. Returns 0 or
 * -errno: it is over.
 */
MUST_CHECK int connect_again(struct client *client);

/*
 * How two sessions of this process are connected, so that bytes go directly from one to the other:
 * through a socket pair that we make, if both are on this machine; else one session connects to the
 * other's server with a ticket.
 */
struct meeting {
    uint64_t transfer; /**< Its number, unique in this process. */
    struct client
        *ends[2]; /**< The session that sends the bytes, and the one that receives them. */
    enum transfer_way ways[2]; /**< Of each session. */
    struct owned sockets[2];
    struct client *awaits; /**< The session that the other connects to (TRANSFER_AWAIT); or NULL. */
    struct ticket ticket;
};

#define MEETING_NONE ((struct meeting){.sockets = {OWNED_NONE, OWNED_NONE}})

/** @meeting is MEETING_NONE. CL_INVALID_OPERATION: there is no way, now; or another error. */
cl_int meeting_init(struct meeting *meeting, struct client *from, struct client *to);
/** Close the sockets that were not sent. */
void meeting_finish(struct meeting *meeting);
/** False when it is known that the two cannot be connected. */
bool meeting_is_possible(const struct client *from, const struct client *to);

/** For the message to one session (0: the sender, 1: the receiver). Points into @meeting. */
struct msg_peer meeting_peer(const struct meeting *meeting, int end);
/** Post that message, with the session's socket. Finishes @pack. */
cl_int meeting_post(struct meeting *meeting, int end, unsigned type, struct pack *pack);

/** A transfer that was begun is given up: tell @client's session not to wait for it. */
void meeting_forget(struct client *client, uint64_t transfer);
/** Another server could not reach this session's: do not try that again for a while. */
void meeting_unreached(struct client *awaits);

#endif
