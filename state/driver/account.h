#ifndef RESEAT_STATE_DRIVER_ACCOUNT_H
#define RESEAT_STATE_DRIVER_ACCOUNT_H

#include <CL/cl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Device memory: what the program has on one device, against what it may have there. Thread-safe
 * and wait-free.
 */

#define ACCOUNT_UNLIMITED UINT64_MAX

struct account {
    /* Read by every command. */
    atomic_bool tight;     /**< Something was spilled: commands say what they use, so that the rest
                                can be told. */
    atomic_bool limited;   /**< Somebody said what it may have. */
    char apart[62];        /**< What waits and allocations write is in other cache lines. */
    _Atomic uint64_t held; /**< Bytes of the real objects there. */
    _Atomic uint64_t granted;       /**< Bytes that they may have, where `limited`. */
    _Atomic uint64_t peak;          /**< The most that they ever had. */
    _Atomic uint64_t least;         /**< The most that one command named, as far as is known. */
    _Atomic uint64_t spilled;       /**< Bytes that went to host memory for want of room, in all. */
    _Atomic uint32_t waiting;       /**< Threads that wait for commands there, ... */
    _Atomic uint64_t waiting_since; /**< ...without a gap since then. Nanoseconds, as all here. */
    _Atomic uint64_t waited; /**< For how long some did since account_share(), before that. */
    _Atomic uint64_t shared; /**< When that was; 0: never. */
    _Atomic uint32_t busy;   /**< status.c */
    _Atomic uint32_t asking; /**< Threads that wait for the policy's answer: room_ask. */
};

/** What an object says that is not made, because it exceeds the limit: no error of OpenCL's. */
#define NO_ROOM 2

/** True for NO_ROOM, and for what drivers say when memory runs out. */
static inline bool is_shortage(cl_int error)
{
    return error == NO_ROOM || error == CL_MEM_OBJECT_ALLOCATION_FAILURE ||
           error == CL_OUT_OF_RESOURCES;
}

static inline uint64_t account_limit(const struct account *account)
{
    return atomic_load_explicit(&account->limited, memory_order_relaxed)
               ? atomic_load_explicit(&account->granted, memory_order_relaxed)
               : ACCOUNT_UNLIMITED;
}

static inline void account_raise(_Atomic uint64_t *mark, uint64_t value)
{
    uint64_t old = atomic_load_explicit(mark, memory_order_relaxed);
    while (value > old && !atomic_compare_exchange_weak_explicit(
                              mark, &old, value, memory_order_relaxed, memory_order_relaxed))
        ;
}

static inline void account_return(struct account *account, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&account->held, bytes, memory_order_relaxed);
}

/** Take @bytes. False, with nothing taken, when that exceeds the limit. */
static inline bool account_take(struct account *account, uint64_t bytes)
{
    uint64_t held = atomic_fetch_add_explicit(&account->held, bytes, memory_order_relaxed) + bytes;
    if (UNLIKELY(held > account_limit(account))) {
        account_return(account, bytes);
        return false;
    }
    return true;
}

/** What was taken is there. */
static inline void account_note(struct account *account)
{
    account_raise(&account->peak, atomic_load_explicit(&account->held, memory_order_relaxed));
}

/** A thread waits for commands there from now on, and no more: who waits is how busy the device is.
 * @now_ns  clock_now_ns(). */
static inline void account_wait_begin(struct account *account, uint64_t now_ns)
{
    if (atomic_fetch_add_explicit(&account->waiting, 1, memory_order_acq_rel) == 0)
        atomic_store_explicit(&account->waiting_since, now_ns, memory_order_release);
}

static inline void account_wait_end(struct account *account, uint64_t now_ns)
{
    uint64_t since = atomic_load_explicit(&account->waiting_since, memory_order_acquire);
    if (atomic_fetch_sub_explicit(&account->waiting, 1, memory_order_acq_rel) == 1 &&
        now_ns > since)
        atomic_fetch_add_explicit(&account->waited, now_ns - since, memory_order_relaxed);
}

/** Thousandths of the time since this was last asked in which somebody waited. By one thread at a
 * time; threads that begin and end meanwhile are counted to within a moment. */
static inline uint32_t account_share(struct account *account, uint64_t now_ns)
{
    uint64_t last = atomic_exchange(&account->shared, now_ns);
    if (atomic_load(&account->waiting) != 0) {
        uint64_t since = atomic_exchange(&account->waiting_since, now_ns);
        atomic_fetch_add(&account->waited, now_ns > since ? now_ns - since : 0);
    }
    uint64_t waited = atomic_exchange(&account->waited, 0);
    if (last == 0 || now_ns <= last)
        return 0;
    return waited < now_ns - last ? (uint32_t)(waited * 1000 / (now_ns - last)) : 1000;
}

static inline bool account_is_tight(const struct account *account)
{
    return UNLIKELY(atomic_load_explicit(&account->tight, memory_order_relaxed));
}

#endif
