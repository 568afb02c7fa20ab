#ifndef RESEAT_STATE_OBJECT_OBJECT_H
#define RESEAT_STATE_OBJECT_OBJECT_H

#include "state/opencl/object_heap.h"

/*
 * Virtual objects: every handle that the program sees. They lie in object_heap.h's slots, each of
 * which is reused only after many others, so that a handle used after its release is recognised.
 */

/** In the order in which a move makes them: what an object is made from is of a type before its
 * own, or of its own. It takes them away in the opposite order. */
enum object_type {
    OBJECT_NONE, /* so that NULL, and any pointer before the heap exists, is of no type */
    OBJECT_PLATFORM,
    OBJECT_DEVICE,
    OBJECT_CONTEXT,
    OBJECT_PROGRAM,
    OBJECT_KERNEL,
    OBJECT_MEMORY,
    OBJECT_SAMPLER,
    OBJECT_QUEUE,
    OBJECT_EVENT,
    OBJECT_EXTRA, /**< None of OpenCL's: tests bring a class of their own. */
    OBJECT_TYPES
};
_Static_assert(OBJECT_TYPES == OBJECT_HEAP_TYPES, "a region each");

/** Of refs: the handle stays valid without a reference, until the object ends: see object_lend. */
#define OBJECT_USER_MEMORY 0x80000000u

struct move_context; /* context.h */

/** What the engine does with the objects of one type, each of whose files brings its own. */
struct object_class {
    enum object_type type;
    size_t size;
    /** All references and holds are gone: release every real object. Inside the gate, in the
     * section in which the last hold went, so that no mover meets an object that is half gone. NULL
     * where there is nothing to do. */
    void (*leave)(struct object *object);
    /** Then, outside that section: everything else. Without locks, in any thread. Or NULL. */
    void (*destroy)(struct object *object);

    /*
     * Of types that have real objects, one for each residence. All but the operations that may be
     * NULL are there or none is, and `leave` with them.
     */

    /** Release one real object. @kept: what was kept until then, as residence_retire was given it,
     * or NULL. Any thread; blocks on the driver. */
    void (*release)(const cl_icd_dispatch *cl, void *real, void *kept);
    size_t context;   /**< Where the object's struct context * is: offsetof. */
    const char *name; /**< For operators: "a sampler". */
    /** Which one, where there is more to say: "kernel blur". @ret_text has the name. Or NULL. */
    void (*describe)(const struct object *object, char *ret_text, size_t size);
    /**
     * PREPARE: make the real object at move->to, if it is not there. The program runs; then once
     * more with the gate closed. Blocks on the driver. CL_SUCCESS or what ends the move, with
     * move->reason where that is no driver's error. NULL: none is made before it is needed.
     */
    cl_int (*make_real)(struct object *object, struct move_context *move);
    /** COPY, when all objects and their content are at move->to: what depends on others. Gate
     *  closed. CL_SUCCESS or what ends the move. Or NULL. */
    cl_int (*arrive)(struct object *object, const struct move_context *move);
    /**
     * Nothing of the object is left in @residence_index, where it was real or not; the real object
     * goes with residence_retire. COMMIT, gate closed: move->from, or host memory, and what was
     * made at move->to is the object's now. ROLLBACK, the program runs: move->to.
     */
    void (*vacate)(struct object *object, const struct move_context *move, uint8_t residence_index);
    /** True for what is made from another object of its type: it is made after those that are not,
     *  and vacated before. NULL: none is. */
    bool (*is_part)(const struct object *object);
};
/** True when @class has all operations that it must have: others have no objects. */
bool object_class_is_whole(const struct object_class *class);
/** What follows in braces is the class called @name. It is found by the linker. */
#define OBJECT_CLASS(name)                                                                         \
    static const struct object_class name;                                                         \
    static const struct object_class *const name##_here                                            \
        __attribute__((section("reseat_class"), used)) = &name;                                    \
    static const struct object_class name
/** By type; NULL where none was linked: there are no objects of such a type. Written before the
 *  first object is made. */
extern const struct object_class *object_classes[OBJECT_TYPES];

/** The table that loaders call through; set once by interpose before any object exists. */
extern const cl_icd_dispatch *object_dispatch;

/**
 * A zeroed object in state BUILDING with one hold, or NULL when memory or slots ran out.
 * Thread-safe.
 */
MUST_CHECK void *object_create(enum object_type type);
/** Make it visible: LIVE, with one reference of the program's (which owns the creator's hold). */
void object_publish(void *object);
/** Make it LIVE for the engine alone: the program has no handle to it. */
void object_publish_internal(void *object);
/** Undo object_create for an object that was never published; its destroy is not called. */
void object_discard(void *object);

/** NULL is allowed. Passes the gate, and may wait for a mover, only with the last hold. */
void object_unhold(void *object);

static inline void object_retain(void *object)
{
    if (UNLIKELY(
            (atomic_fetch_add_explicit(&((struct object *)object)->refs, 1, memory_order_relaxed) &
             ~OBJECT_USER_MEMORY) == 0))
        object_hold(object);
}
/**
 * Drop one reference of the program's; at zero the handle is invalid and its hold is dropped.
 * False when there was none left to drop: nothing is changed then.
 */
bool object_release(void *object);

/**
 * Give the program a handle to an object that another one holds: the context of a queue, the
 * program of a kernel. It is valid as long as that holder is, whether the program kept a reference
 * to it or not: objects retain what they are made of.
 *
 * @object  Held by something that the program has a valid handle to; or NULL.
 * Returns @object.
 */
static inline void *object_lend(void *object)
{
    if (object &&
        UNLIKELY(atomic_load_explicit(&((struct object *)object)->refs, memory_order_relaxed) == 0))
        atomic_fetch_or_explicit(&((struct object *)object)->refs, OBJECT_USER_MEMORY,
                                 memory_order_relaxed);
    return object;
}

static inline uint32_t object_refs(const void *object)
{
    return atomic_load_explicit(&((const struct object *)object)->refs, memory_order_relaxed) &
           ~OBJECT_USER_MEMORY;
}

/** A weak reference: says later whether the slot still holds the same object. */
struct object_weak {
    struct object *object;
    uint32_t generation;
};
static inline struct object_weak object_weak(void *object)
{
    struct object *o = object;
    return (struct object_weak){o,
                                o ? atomic_load_explicit(&o->generation, memory_order_relaxed) : 0};
}
/** The object, or NULL when it was destroyed since or is being destroyed. Only inside the gate or
 * by a mover. */
static inline void *object_weak_get(struct object_weak weak)
{
    if (!weak.object ||
        atomic_load_explicit(&weak.object->generation, memory_order_relaxed) != weak.generation ||
        atomic_load_explicit(&weak.object->state, memory_order_relaxed) != OBJECT_LIVE)
        return NULL;
    return weak.object;
}

/**
 * Walk the LIVE objects of a type: start with *cursor = 0; each one returned is held, the caller
 * unholds it. NULL at the end. Objects created meanwhile may or may not be seen. Thread-safe.
 */
void *object_next(enum object_type type, uintptr_t *cursor);

#endif
