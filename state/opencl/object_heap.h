#ifndef RESEAT_STATE_OPENCL_OBJECT_HEAP_H
#define RESEAT_STATE_OPENCL_OBJECT_HEAP_H

#include <CL/cl_icd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Where the objects lie whose handles a program has: the library's, and those of the remote driver.
 *
 * All of them live in slots of one reserved range of addresses, one region a type, so that any
 * pointer a program passes (NULL, freed, foreign) is told from a live handle by arithmetic and one
 * load, and is never followed before. A slot that was freed has a new generation. Thread-safe.
 */

/** Types are numbered from 1, so that NULL, and any pointer before there is a heap, has none. Type
 *  1 is what every program has. */
#define OBJECT_HEAP_TYPES   11
#define OBJECT_HEAP_LARGEST 1024 /**< Bytes of an object, at most. */
#define OBJECT_REGION_SHIFT 32

enum object_state {
    OBJECT_FREE,
    OBJECT_BUILDING, /**< Allocated, not whole: nobody but its creator looks at it. */
    OBJECT_LIVE,     /**< Whole; possibly released by the program and held only by us. */
    OBJECT_LEAVING,  /**< Its last hold is gone: nobody but its destroyer looks at it. */
};

/** First member of every object. */
struct object {
    const cl_icd_dispatch *dispatch; /**< First word: any ICD loader calls us back through it. */
    /** Both counts in one word, so that the last reference can go with its hold in one step. Lower
     * half: the program's references, and OBJECT_LENT; 0 makes the handle invalid. Upper half, in
     * steps of OBJECT_HOLD: ours, plus one while there are references; 0 destroys the object. */
    _Atomic uint64_t counts;
    _Atomic uint32_t generation;
    _Atomic uint32_t state;
};

#define OBJECT_HOLD (UINT64_C(1) << 32)
/** Flag in counts, until the object is published: nobody who only finds it in its slot holds it. */
#define OBJECT_NEW (UINT64_C(1) << 63)
static inline uint32_t object_refs_of(uint64_t counts)
{
    return (uint32_t)counts;
}
static inline uint32_t object_holds_of(uint64_t counts)
{
    return (uint32_t)((counts & ~OBJECT_NEW) >> 32);
}

struct object_region {
    _Atomic uintptr_t used;      /**< Bytes from the region's start that hold slots. */
    _Atomic uintptr_t slot_mask; /**< Slot size - 1; written before `used` first is. */
};

extern uintptr_t object_base; /* 0 until the first allocation; written once */
extern struct object_region object_regions[OBJECT_HEAP_TYPES];

/** Was this number ever the address of an object of @type? */
static inline bool object_was_handle(const void *handle, unsigned type)
{
    uintptr_t offset = (uintptr_t)handle - object_base;
    if (UNLIKELY((offset >> OBJECT_REGION_SHIFT) != (uintptr_t)type))
        return false;
    offset &= ((uintptr_t)1 << OBJECT_REGION_SHIFT) - 1;
    const struct object_region *region = &object_regions[type];
    return LIKELY((offset & atomic_load_explicit(&region->slot_mask, memory_order_relaxed)) == 0 &&
                  offset < atomic_load_explicit(&region->used, memory_order_acquire));
}

/**
 * The live object behind a handle that the program passed, or NULL when it is none of @type.
 * Borrowed; the program keeps it alive as the specification asks of it. Wait-free.
 */
static inline void *object_get(const void *handle, unsigned type)
{
    struct object *object = (struct object *)(uintptr_t)handle;
    return LIKELY(object_was_handle(handle, type) &&
                  object_refs_of(atomic_load_explicit(&object->counts, memory_order_acquire)) != 0)
               ? object
               : NULL;
}

static inline void object_hold(void *object)
{
    atomic_fetch_add_explicit(&((struct object *)object)->counts, OBJECT_HOLD,
                              memory_order_relaxed);
}

/** Drop a hold unless it is the last. */
static inline bool object_unhold_one(struct object *object)
{
    uint64_t counts = atomic_load_explicit(&object->counts, memory_order_relaxed);
    while (object_holds_of(counts) > 1)
        if (atomic_compare_exchange_weak_explicit(&object->counts, &counts, counts - OBJECT_HOLD,
                                                  memory_order_acq_rel, memory_order_relaxed))
            return true;
    return false;
}

/** Hold what is in a slot, unless that is free, not whole, or on its way out. @unhold: drops a hold
 *  that may be the last. */
static inline bool object_hold_if_live(struct object *object, void (*unhold)(void *object))
{
    if (atomic_load_explicit(&object->state, memory_order_acquire) != OBJECT_LIVE)
        return false;
    uint64_t counts = atomic_load_explicit(&object->counts, memory_order_relaxed);
    do {
        if (object_holds_of(counts) == 0 || (counts & OBJECT_NEW))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&object->counts, &counts, counts + OBJECT_HOLD,
                                                    memory_order_acq_rel, memory_order_relaxed));
    if (atomic_load_explicit(&object->state, memory_order_acquire) == OBJECT_LIVE)
        return true;
    /* The slot was freed and taken again in between: it belongs to its new creator, who may have
     * published and released it since. */
    unhold(object);
    return false;
}

/**
 * A slot for an object of @size bytes, the same for all of a type: in state BUILDING, with one hold
 * and no reference, and zeroed behind its first member, of which the caller sets `dispatch`.
 *
 * @quarantine  A slot is reused only when this many others of its type were freed after it.
 * Returns NULL when memory or slots ran out.
 */
MUST_CHECK void *object_heap_take(unsigned type, size_t size, size_t quarantine);
/** Publish a whole object: LIVE, with so many references of the program's, 0 or 1. Once. */
static inline void object_heap_publish(struct object *object, uint64_t refs)
{
    /* Without a locked instruction where nobody but the creator holds the object: then no other
     * thread can change the counts. A thread that has neither a hold nor a reference takes a hold
     * only by object_hold_if_live, and the creator's other holds are in the counts. */
    if (LIKELY(atomic_load_explicit(&object->counts, memory_order_acquire) ==
               (OBJECT_NEW | OBJECT_HOLD)))
        atomic_store_explicit(&object->counts, OBJECT_HOLD + refs, memory_order_release);
    else
        atomic_fetch_sub_explicit(&object->counts, OBJECT_NEW - refs, memory_order_release);
    atomic_store_explicit(&object->state, OBJECT_LIVE, memory_order_release);
}
/** Nobody holds the object. Its dispatch table stays, for programs that use its handle still. */
void object_heap_give(void *object);

/** Slots of a type have indices from 0 on; NULL behind the last one that was ever used. */
struct object *object_heap_at(unsigned type, uintptr_t index);
uintptr_t object_heap_index(const void *object);
unsigned object_heap_type(const void *object);
/** How many objects of a type there are, those that are being made included. */
uint64_t object_count(unsigned type);

#endif
