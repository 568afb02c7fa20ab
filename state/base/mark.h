#ifndef RESEAT_STATE_BASE_MARK_H
#define RESEAT_STATE_BASE_MARK_H

#include <stdatomic.h>
#include <stdint.h>

#include "state/base/compiler.h"

/** Raise a high-water mark to at least @value. Wait-free if it is high enough. */
static inline void mark_raise(_Atomic uint64_t *mark, uint64_t value)
{
    uint64_t old = atomic_load_explicit(mark, memory_order_relaxed);
    while (UNLIKELY(value > old) &&
           !atomic_compare_exchange_weak_explicit(mark, &old, value, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

#endif
