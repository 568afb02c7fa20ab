#ifndef RESEAT_STATE_DRIVER_LINK_H
#define RESEAT_STATE_DRIVER_LINK_H

/* The cost of transfers to a device and in host memory: set-up time and bandwidth. */

enum cost_kind {
    COST_LINK, /**< One chunk at a time, whatever the threads: a device's read or write. */
    COST_WORK, /**< Done by cores of the host, with threads of its own: a copy, a digest. */
    COST_RING, /**< Paid once, for all chunks: faulting and registering their bytes. */
    COST_HAND, /**< Waking the thread for the next stage; no thread works on the chunk meanwhile. */
};

struct cost_stage {
    enum cost_kind kind;
    double setup;     /**< Seconds for each chunk (COST_RING: once). */
    double bandwidth; /**< Bytes a second, for one thread if several may work; not used for a
                         COST_HAND. */
    unsigned most;    /**< COST_WORK: threads beyond which it is no faster; 0: not known. */
};

/** Measured figures of a device's link. */
struct link_figures {
    struct cost_stage read, write;             /**< To and from registered memory. */
    struct cost_stage plain_read, plain_write; /**< To and from warm pageable memory. */
};

/** Measured figures of the host. */
struct host_figures {
    struct cost_stage copy;  /**< Into a chunk, from memory that no cache has. */
    struct cost_stage out;   /**< From a chunk to memory, past the caches. */
    struct cost_stage fresh; /**< Making large pages present; PAGES_THREADS at most do so. */
    struct cost_stage ring;  /**< Making a registered one. */
    struct cost_stage hand;  /**< Waking a thread that waits. */
};

#endif
