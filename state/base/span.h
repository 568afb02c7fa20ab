#ifndef RESEAT_STATE_BASE_SPAN_H
#define RESEAT_STATE_BASE_SPAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/clock.h"
#include "state/base/compiler.h"

/*
 * Spans of time for who traces a program: what went on from when to when, in which thread. They are
 * kept only while somebody does; else each costs one relaxed load. Many threads write, without
 * locks and without waiting; one reads. What does not fit until it is read is lost, and counted.
 */

#define SPAN_NAME 64

/** What a span lies beside in a picture. Those of one thread lie inside each other. */
enum span_track {
    SPAN_THREAD, /**< The thread that it was in. */
    SPAN_GATE,   /**< The program was kept out of its devices. */
    SPAN_QUEUE,  /**< Of the queue whose number is `of`: what ran there. */
    SPAN_LAUNCH, /**< Of that queue: whole launches, of which pieces ran there. */
    SPAN_CHUNK,  /**< Of the chunk of a transfer's ring whose number is `of`. */
};

struct span {
    char name[SPAN_NAME];
    const char *category; /**< Static. */
    uint64_t begin_ns, end_ns;
    uint8_t track;   /**< enum span_track. */
    uint32_t of;     /**< A thread's id, or a number. */
    const char *key; /**< Static; of `value`. NULL: there is none. */
    uint64_t value;
};

extern atomic_bool span_on;

static inline bool span_wanted(void)
{
    return UNLIKELY(atomic_load_explicit(&span_on, memory_order_relaxed));
}

/** When a span begins, for span_end: 0 where nobody traces. */
static inline uint64_t span_begin(void)
{
    return span_wanted() ? clock_now_ns() : 0;
}

/** Keep a whole span; what does not fit into its name is cut. Any thread, also inside the gate and
 *  under locks. */
void span_put(const struct span *span);
/** The same of one that ends now. @begun: of span_begin; 0: nothing is kept. */
void span_end_at(uint64_t begun, enum span_track track, const char *category, const char *name,
                 const char *key, uint64_t value);

/** A span of this thread's ends now. @category, @key: static; @key may be NULL. */
static inline void span_end(uint64_t begun, const char *category, const char *name, const char *key,
                            uint64_t value)
{
    if (UNLIKELY(begun != 0))
        span_end_at(begun, SPAN_THREAD, category, name, key, value);
}

/*
 * By who traces: one thread.
 */

/** From now on spans are kept; those of a trace before are gone. 0 or -ENOMEM. */
MUST_CHECK int span_start(void);
/** No more are kept; those that were can still be taken. */
void span_stop(void);
/** The oldest, at most @most of them. Returns how many. */
size_t span_take(struct span *ret_spans, size_t most);
/** How many were lost since span_start, for want of room. */
uint64_t span_lost(void);

#endif
