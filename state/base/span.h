#ifndef RESEAT_STATE_BASE_SPAN_H
#define RESEAT_STATE_BASE_SPAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/clock.h"
#include "state/base/compiler.h"

/*
 * Spans of time for traces of a program: what ran from when to when, in which thread. They are kept
 * only while somebody traces; otherwise each costs one relaxed load. Many threads write without
 * locks and without waiting; one reads. Spans for which the ring has no room are lost and counted.
 */

#define SPAN_NAME 64

/** The track of a span in a diagram. Spans of one thread are nested. */
enum span_track {
    SPAN_THREAD, /**< The thread that it ran in. */
    SPAN_GATE,   /**< The program was kept out of its devices. */
    SPAN_QUEUE,  /**< Commands on the queue whose number is `of`. */
    SPAN_LAUNCH, /**< Whole launches on that queue, which ran in pieces. */
    SPAN_CHUNK,  /**< The chunk of a transfer's ring whose number is `of`. */
};

struct span {
    char name[SPAN_NAME];
    const char *category; /**< Static. */
    uint64_t begin_ns, end_ns;
    uint8_t track;   /**< enum span_track. */
    uint32_t of;     /**< A thread's id, or a number. */
    const char *key; /**< Static; name of `value`. NULL: there is none. */
    uint64_t value;
};

extern atomic_bool span_on;

static inline bool span_wanted(void)
{
    return UNLIKELY(atomic_load_explicit(&span_on, memory_order_relaxed));
}

/** The begin of a span, for span_end; 0 when nobody traces. */
static inline uint64_t span_begin(void)
{
    return span_wanted() ? clock_now_ns() : 0;
}

/** Keep a whole span; what does not fit into its name is cut. Any thread, also inside the gate and
 *  under locks. */
void span_put(const struct span *span);
/** Record a span that ends now. @begun: from span_begin; 0: nothing is recorded. */
void span_end_at(uint64_t begun, enum span_track track, const char *category, const char *name,
                 const char *key, uint64_t value);

/** Record a span of this thread that ends now. */
static inline void span_end(uint64_t begun, const char *category, const char *name, const char *key,
                            uint64_t value)
{
    if (UNLIKELY(begun != 0))
        span_end_at(begun, SPAN_THREAD, category, name, key, value);
}

/* For the one thread that traces. */

/** Start recording; spans of an earlier trace are dropped. 0 or -ENOMEM. */
MUST_CHECK int span_start(void);
/** Stop recording; recorded spans can still be taken. */
void span_stop(void);
/** Take the oldest spans, at most @most. Returns how many. */
size_t span_take(struct span *ret_spans, size_t most);
/** Number of spans lost since span_start for want of room. */
uint64_t span_lost(void);

#endif
