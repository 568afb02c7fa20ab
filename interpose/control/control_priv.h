#ifndef RESEAT_INTERPOSE_CONTROL_CONTROL_PRIV_H
#define RESEAT_INTERPOSE_CONTROL_CONTROL_PRIV_H

#include "agent/protocol/protection.h"
#include "agent/protocol/protocol.h"
#include "agent/protocol/request.h"
#include "interpose/aware/aware.h"
#include "interpose/control/control.h"
#include "state/base/files/owned.h"
#include "state/image/image_request.h"
#include "state/image/lease_renewer.h"
#include "state/move/status.h"
#include "state/object/lost.h"
#include "state/recovery/protect.h"

/*
 * What an operator asks of a program, which may have several virtual devices: each moves in a
 * transaction of its own, one after another, until one does not.
 */

struct control_request {
    struct move_request move; /**< Without target and virtual device. */
    uint64_t id;              /**< The report has the same. */
    uint32_t vdev;            /**< Or REQUEST_ALL_VDEVS. */
    enum request_verb verb;
    bool keeps, ends;  /**< Of a checkpoint: another one follows; or there will be no more. */
    bool parks;        /**< Park the program, for an image of its process (park.h). */
    uint64_t keep;     /**< Number of images to retain; 0: all. */
    uint64_t lease_ms; /**< Duration of the lease that is to be renewed; 0: begin none. */
    uint64_t every_ms; /**< Interval of its images; 0: none follows. */
    bool drop;         /**< Release residences that move.prewarm made. */
    struct protection protection; /**< The new one. */
    uint64_t order;               /**< Number of this change: control_protect_order. */
    bool limited;                 /**< The request has `grants`. */
    /** Bytes that each virtual device may have on its target, and that it wanted when the agent
     * decided so. */
    uint64_t grants[PROTOCOL_VDEVS_MAX], wanted[PROTOCOL_VDEVS_MAX];
    char folder[PATH_MAX]; /**< Where an image goes; or "". */
    /** Of each virtual device; not for a suspend. To drop: the first is meant, with "" all are. */
    struct device_key targets[PROTOCOL_VDEVS_MAX];
};

/** A result beside those of moves, as agent/protocol/messages.txt has them: RESULT_AGAIN. */
#define CONTROL_AGAIN ((enum move_result)(MOVE_ENDED + 1))

struct control_report {
    struct move_report whole; /**< Sums of all moves, and the result of the last one. */
    bool already;             /**< There was nothing to do. */
    bool stores;              /**< An image was to be written: */
    struct image_report image;
    bool protects;           /**< The protection was to be changed. */
    char not_protected[512]; /**< Why the program could not be protected; or "". */
    bool parked;    /**< This thread parked the program, and has to call control_park_wait() and
                       park_end(). */
    uint64_t box;   /**< If parked: address of the box by which the program is resumed. */
    uint32_t count; /**< Number of virtual devices that were tried. */
    struct control_tried {
        uint32_t vdev;
        struct move_report report;
    } each[PROTOCOL_VDEVS_MAX];
};

/**
 * Read what the agent asks.
 *
 * @ret_request  Its callbacks and its cancel flag are the caller's to set.
 * Returns NULL, or what is wrong with it.
 */
const char *control_request_read(const msgpack_object *map, struct control_request *ret_request);

/**
 * Carry a request out. Virtual devices that are already where they are to be are left out.
 * Blocks as move_run.
 */
void control_job_run(const struct control_request *request, struct control_report *ret_report);

/* What the messages of a program say (agent/protocol/messages.txt). */

struct control_hello {
    const char *name, *id; /**< What `reseat run` gave the program; or "". */
    const char *program;
    struct aware_wish wish;
};

struct control_status {
    uint64_t warm; /**< Bytes of host memory that are kept ready. */
    struct spread_status spread;
    uint32_t vdev_count, ready_count, whole_count;
    struct vdev_status *vdevs; /**< Of each virtual device. */
    struct ready_status ready[STATUS_READY_MAX];
    struct pace_refusal whole[STATUS_WHOLE_MAX];
    bool protects;        /**< The next five are known. */
    struct protection as; /**< How the program is to be protected. */
    bool seeks;           /**< It waits for another device. */
    const char *recovery; /**< What a recovery under way does; or "". */
    struct protect_status protect;
    struct loss loss;
    uint64_t stored; /**< Bytes that are in an image only. */
    struct lease_renewer_status lease;
};

/** MSG_WELCOME. */
struct control_welcome {
    struct device_key devices[PROTOCOL_VDEVS_MAX]; /**< Where the program starts. */
    size_t device_count, grant_count;
    struct control_lease {
        char folder[PATH_MAX]; /**< Absolute; or "". */
        char id[LEASE_ID_MAX];
    } lease;
    bool alive;  /**< The agent answers MSG_ALIVE. */
    bool places; /**< It chooses devices for programs that lost theirs. */
    bool learns; /**< It keeps launch times. */
    bool capped; /**< A power cap concerns the program. */
    uint64_t grants[PROTOCOL_VDEVS_MAX];
};

/** Power: what the agent said last, and what it was told last. */
struct control_power {
    uint64_t turn; /**< Number of the agent's message; 0: there was none. */
    bool capped, granted;
    bool timed;      /**< The grant ends after for_ms; an older agent's does not. */
    uint64_t for_ms; /**< How long launches are granted. */
    bool runs, wants;
};

/** Begin @frame with the program's present state; the caller sends and finishes it. */
void control_frame_status(struct frame *frame);

/*
 * The program's end of the agent's ledger: what it needs beyond what it was granted, and what it
 * gives back (MSG_NEED and the messages around it). Without an agent nobody decides.
 */

/** Become the engine's policy (budget_set_policy). @wake makes the control thread call
 * control_budget_serve; called on any thread. */
void control_budget_start(void (*wake)(void));

/* The following are called by the control thread. */

/** An agent is connected. @welcome: its first message. */
void control_budget_connected(const struct control_welcome *welcome);
/** No agent is connected. Called again and again while that is so: needs are sent to an agent that
 * starts again, and without one the waiting threads continue after some seconds. */
void control_budget_alone(void);
/** An agent is sought anew: waiting threads wait as long as if it had just disconnected. */
void control_budget_again(void);
/** True when a need will be sent: a status has to be sent before it, because the agent decides by
 * the last status. */
bool control_budget_needs(void);
/** Give every message that is due to @send, which finishes it. False when calls of the program
 * wait, or the program @waits as a whole, and the agent has not answered for so long that it is
 * taken for hung: they go on without it. */
bool control_budget_serve(bool waits, void *data, void (*send)(void *data, struct frame *frame));
/** The agent said something, whatever it was. */
void control_budget_heard(void);
/** MSG_ANSWER, MSG_GRANT, MSG_SHRINK. */
void control_budget_answer(const msgpack_object *map);
void control_budget_granted(const msgpack_object *map);
void control_budget_shrink(const msgpack_object *map);

/* What the agent tells the engine or the program, and gets no answer to. */

/** MSG_WARM: how much host memory to keep ready. */
void control_take_warm(const msgpack_object *map);
/** MSG_SPREAD: the devices that may run parts of long launches. */
void control_take_spread(const msgpack_object *map);
/** MSG_COSTS: what launches draw, as far as the agent knows. */
void control_take_costs(const msgpack_object *map);
/** MSG_NOTICE: notify the program. A notice of an unknown kind is ignored. */
void control_take_notice(const msgpack_object *map);
/** Keep the lease that this process had before it called exec(). */
void control_follow_lease(const struct control_lease *lease);

/*
 * What a parked program (state/image/park.h) and the command that keeps its process say to each
 * other: agent/protocol/park.h. One for a process.
 */

/** The program is parked; returns the address of the box. Called by the thread that parked it. */
uint64_t control_park_begin(void);
/** The program has no connection with an agent any more. */
void control_park_closed(void);
/** Resume the program at once: the report that it is parked could not be sent. */
void control_park_cancel(void);
/** Wait until the program is resumed, the command that keeps it is gone, or the process ends.
 * Called by the thread that parked it. */
void control_park_wait(void);

/** Where its agent is, if not where it was; else NULL. Between parks; by the control thread. */
const char *control_park_socket(void);
/** True when the process was restored since the last connection. */
bool control_park_restored(void);

/* Whether the program is protected (state/recovery/protect.h): as it was started, then as the agent
 * says. */

/** A number for the agent's next order. Of two orders the later one is in effect, whichever of
 * their threads runs last. Called by the control thread. */
uint64_t control_protect_order(void);
/**
 * Protect it like that from now on, unless a later order was carried out already.
 *
 * Blocks on a snapshot or a move that is under way. 0, -ENOMEM or -EAGAIN (no thread).
 */
MUST_CHECK int control_protect_apply(const struct protection *protection, uint64_t order);
/** How the program is protected; PROTECTION_UNSAID before the start. Any thread. */
void control_protect_read(struct protection *ret_protection);

/*
 * The program's end of a trace: what went on in the engine (state/base/span.h), sent while it does.
 * By the control thread.
 */

/** Begin or end a trace, as MSG_TRACE says. */
void control_trace_take(const msgpack_object *map);
/** How often, in milliseconds, control_trace_serve is to be called; 0: nothing is traced. */
unsigned control_trace_ms(void);
/** Give the spans that there are to @send, which finishes the frame. The last frame of a trace is
 * sent after its end was requested, or when its time is over. */
void control_trace_serve(void *data, void (*send)(void *data, struct frame *frame));
/** The reader is gone: end the trace. */
void control_trace_drop(void);

/** A non-blocking socket to the agent, with the bytes to be sent and those that were received. */
struct wire {
    struct owned socket;
    struct frame_reader reader;
    msgpack_sbuffer out;
    size_t out_sent;
};

/** Returns 0, -ENAMETOOLONG, or the error of socket() or connect(). */
MUST_CHECK int wire_open(struct wire *wire, const char *path);
void wire_close(struct wire *wire);

static inline bool wire_is_open(const struct wire *wire)
{
    return wire->socket.fd >= 0;
}

/** Send what can be sent now. Returns 0 or -errno: then the connection cannot be used any more
 * (-EBADF: the program has taken its descriptor's number). */
MUST_CHECK int wire_flush(struct wire *wire);

/** Queue a frame, finish it, and send what can be sent. -ENOBUFS: the peer does not read. */
MUST_CHECK int wire_send(struct wire *wire, struct frame *frame);

/** Read what has arrived, for frame_reader_next(). Returns 0, -EPIPE (closed) or -errno. */
MUST_CHECK int wire_receive(struct wire *wire);

#endif
