#ifndef RESEAT_STATE_DRIVER_LINK_H
#define RESEAT_STATE_DRIVER_LINK_H

/* What the ways to a device and its memory cost: a set-up time and a bandwidth each. */

enum cost_kind {
    COST_LINK, /**< One chunk at a time, whatever the threads: a device's read or write. */
    COST_WORK, /**< Done by cores of the host, with threads of its own: a copy, a digest. */
    COST_RING, /**< Paid once, for the bytes of all chunks: faulting and registering them. */
    COST_HAND, /**< A chunk waits for who comes next to wake; nobody is at work on it. */
};

struct cost_stage {
    enum cost_kind kind;
    double setup;     /**< Seconds for each chunk (COST_RING: once). */
    double bandwidth; /**< Bytes a second, of one thread where threads share it; not of a
                           COST_HAND. */
    unsigned most;    /**< COST_WORK: threads beyond which it is no faster; 0: not known. */
};

/** What a device's link was measured to do. */
struct link_figures {
    struct cost_stage read, write;             /**< To and from registered memory. */
    struct cost_stage plain_read, plain_write; /**< To and from warm pageable memory. */
};

/** What the host was measured to do. */
struct host_figures {
    struct cost_stage copy;  /**< Into a chunk, from memory that no cache has. */
    struct cost_stage out;   /**< From a chunk to memory, past the caches. */
    struct cost_stage fresh; /**< Making large pages present; PAGES_THREADS at most do so. */
    struct cost_stage ring;  /**< Making a registered one. */
    struct cost_stage hand;  /**< Waking a thread that waits. */
};

#endif
