#ifndef RESEAT_STATE_DRIVER_BUDGET_H
#define RESEAT_STATE_DRIVER_BUDGET_H

#include <CL/cl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "state/base/mark.h"

/*
 * Device memory: the bytes that the program has on one device, and its limit there. Thread-safe and
 * wait-free.
 */

#define BUDGET_UNLIMITED UINT64_MAX

struct budget {
    /* Read by every command. */
    atomic_bool tight;      /**< Something was spilled: commands mark the objects they use, so that
                               others can be chosen for spilling. */
    atomic_bool limited;    /**< The agent has set a limit. */
    _Atomic uint64_t least; /**< The most bytes that one command used, as far as is known. */
    char apart[48]; /**< Padding: fields written by waits and allocations are in other cache lines.
                     */
    _Atomic uint64_t held;    /**< Bytes of the real objects there. */
    _Atomic uint64_t granted; /**< Limit of these bytes, if `limited`. */
    _Atomic uint64_t peak;    /**< High-water mark of `held`. */
    _Atomic uint64_t spilled; /**< Bytes spilled to host memory for want of room, in all. */
    _Atomic uint32_t waiting; /**< Threads that wait for commands there, ... */
    _Atomic uint64_t
        waiting_since; /**< ...continuously since this time. Nanoseconds, as all here. */
    _Atomic uint64_t
        waited; /**< How long some thread waited since the last budget_share(), before that. */
    _Atomic uint64_t shared; /**< When budget_share() was called last; 0: never. */
    _Atomic uint32_t busy;   /**< status.c */
    /** Bytes transferred from the device, and to it, since `crossed_ns`; and in the second before,
     * for status.c. */
    _Atomic uint64_t crossed[2], crossed_ns, crossed_s[2];
    _Atomic uint32_t asking; /**< Threads that wait for the policy's answer: budget_ask. */
};

/** Error for an object that is not made because it would exceed the limit: not an OpenCL error. */
#define OVER_BUDGET 2

/** True for OVER_BUDGET, and for the errors that drivers return when memory runs out. */
static inline bool is_shortage(cl_int error)
{
    return error == OVER_BUDGET || error == CL_MEM_OBJECT_ALLOCATION_FAILURE ||
           error == CL_OUT_OF_RESOURCES;
}

static inline uint64_t budget_limit(const struct budget *budget)
{
    return atomic_load_explicit(&budget->limited, memory_order_relaxed)
               ? atomic_load_explicit(&budget->granted, memory_order_relaxed)
               : BUDGET_UNLIMITED;
}

static inline void budget_return(struct budget *budget, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&budget->held, bytes, memory_order_relaxed);
}

/** Take @bytes. False, with nothing taken, when that exceeds the limit. */
static inline bool budget_take(struct budget *budget, uint64_t bytes)
{
    uint64_t held = atomic_fetch_add_explicit(&budget->held, bytes, memory_order_relaxed) + bytes;
    if (UNLIKELY(held > budget_limit(budget))) {
        budget_return(budget, bytes);
        return false;
    }
    return true;
}

/** Update the high-water mark after taking bytes. */
static inline void budget_note(struct budget *budget)
{
    mark_raise(&budget->peak, atomic_load_explicit(&budget->held, memory_order_relaxed));
}

/**
 * A thread begins, or ends, to wait for commands on the device: this measures how busy the device
 * is.
 * @now_ns  clock_now_ns().
 */
static inline void budget_wait_begin(struct budget *budget, uint64_t now_ns)
{
    if (atomic_fetch_add_explicit(&budget->waiting, 1, memory_order_acq_rel) == 0)
        atomic_store_explicit(&budget->waiting_since, now_ns, memory_order_release);
}

static inline void budget_wait_end(struct budget *budget, uint64_t now_ns)
{
    uint64_t since = atomic_load_explicit(&budget->waiting_since, memory_order_acquire);
    if (atomic_fetch_sub_explicit(&budget->waiting, 1, memory_order_acq_rel) == 1 && now_ns > since)
        atomic_fetch_add_explicit(&budget->waited, now_ns - since, memory_order_relaxed);
}

/** Bytes are about to be transferred from the device, or (@to) to it. */
static inline void budget_crossed(struct budget *budget, bool to, uint64_t bytes)
{
    atomic_fetch_add_explicit(&budget->crossed[to], bytes, memory_order_relaxed);
}

/** Share of the time since the last call, in thousandths, in which some thread waited. By one
 * thread at a time; approximate for threads that begin or end meanwhile. */
static inline uint32_t budget_share(struct budget *budget, uint64_t now_ns)
{
    uint64_t last = atomic_exchange(&budget->shared, now_ns);
    if (atomic_load(&budget->waiting) != 0) {
        uint64_t since = atomic_exchange(&budget->waiting_since, now_ns);
        atomic_fetch_add(&budget->waited, now_ns > since ? now_ns - since : 0);
    }
    uint64_t waited = atomic_exchange(&budget->waited, 0);
    if (last == 0 || now_ns <= last)
        return 0;
    return waited < now_ns - last ? (uint32_t)(waited * 1000 / (now_ns - last)) : 1000;
}

static inline bool budget_is_tight(const struct budget *budget)
{
    return UNLIKELY(atomic_load_explicit(&budget->tight, memory_order_relaxed));
}

#endif
