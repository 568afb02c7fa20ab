#ifndef RESEAT_STATE_OBJECT_OBJECT_H
#define RESEAT_STATE_OBJECT_OBJECT_H

#include "state/opencl/object_heap.h"

/*
 * Virtual objects: every handle that the program sees. They lie in object_heap.h's slots, each of
 * which is reused only after many others, so that a handle used after its release is recognised.
 */

/** The types, in the order in which a move makes their objects: an object is made from objects of
 * earlier types or of its own. They are taken apart in the opposite order. */
enum object_type {
    OBJECT_NONE, /* NULL, and any pointer before the heap exists, has this type */
    OBJECT_PLATFORM,
    OBJECT_DEVICE,
    OBJECT_CONTEXT,
    OBJECT_PROGRAM,
    OBJECT_KERNEL,
    OBJECT_MEMORY,
    OBJECT_SAMPLER,
    OBJECT_QUEUE,
    OBJECT_EVENT,
    OBJECT_EXTRA, /**< Not an OpenCL type: tests define a class of their own. */
    OBJECT_TYPES
};
_Static_assert(OBJECT_TYPES == OBJECT_HEAP_TYPES, "a region each");

/** Flag in refs: the handle stays valid without a reference until the object is destroyed: see
 * object_lend. */
#define OBJECT_LENT 0x80000000u

struct move_context; /* context.h */

/** The operations of the objects of one type, defined in the file of that type. */
struct object_class {
    enum object_type type;
    size_t size;
    /** The last hold is gone: release every real object. Called inside the gate, in the same
     * section that dropped the hold, so that no mover meets a half-destroyed object. NULL where
     * there is nothing to do. */
    void (*leave)(struct object *object);
    /** Called after `leave`, outside that section: frees everything else. Without locks, in any
     * thread. Or NULL. */
    void (*destroy)(struct object *object);

    /*
     * For types with one real object in each residence. Either all of these operations are set,
     * except those that may be NULL, and `leave` as well, or none is.
     */

    /** Release one real object. @kept: as passed to residence_retire, or NULL. Any thread; blocks
     * on the driver. */
    void (*release)(const cl_icd_dispatch *cl, void *real, void *kept);
    size_t context;   /**< Offset of the object's struct context *: offsetof. */
    const char *name; /**< For operators: "a sampler". */
    /** Describe the object for operators: "kernel blur". @ret_text has the name. Or NULL. */
    void (*describe)(const struct object *object, char *ret_text, size_t size);
    /**
     * PREPARE: make the real object at move->to unless it exists. Called while the program runs,
     * then again with the gate closed. Blocks on the driver. CL_SUCCESS or an error that ends the
     * move, with move->reason if it is not a driver's error. NULL: none is made before it is
     * needed.
     */
    cl_int (*make_real)(struct object *object, struct move_context *move);
    /** COPY, when all objects and their content are at move->to: set up what depends on other
     * objects. Gate closed. CL_SUCCESS or an error that ends the move. Or NULL. */
    cl_int (*arrive)(struct object *object, const struct move_context *move);
    /**
     * Remove everything of the object from @residence_index, whether it was real there or not; the
     * real object is released through residence_retire. In COMMIT, with the gate closed: for
     * move->from, or host memory; what was made at move->to belongs to the object from here on. In
     * ROLLBACK, while the program runs: for move->to.
     */
    void (*vacate)(struct object *object, const struct move_context *move, uint8_t residence_index);
    /** True for an object made from another object of its type: it is made after the others, and
     * vacated before. NULL: none is. */
    bool (*is_part)(const struct object *object);
};
/** True when @class has all operations that it must have. Incomplete classes have no objects. */
bool object_class_is_whole(const struct object_class *class);
/** Defines the class @name, whose initializer follows in braces. The linker collects all classes.
 */
#define OBJECT_CLASS(name)                                                                         \
    static const struct object_class name;                                                         \
    static const struct object_class *const name##_here                                            \
        __attribute__((section("reseat_class"), used)) = &name;                                    \
    static const struct object_class name
/** The linked classes, by type; NULL where none was linked: such objects cannot exist. Written
 * before the first object is made. */
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
    uint64_t counts =
        atomic_fetch_add_explicit(&((struct object *)object)->counts, 1, memory_order_relaxed);
    if (UNLIKELY((object_refs_of(counts) & ~OBJECT_LENT) == 0))
        object_hold(object);
}
/**
 * Drop one reference of the program's; with the last one the handle becomes invalid and its hold is
 * dropped. False, with nothing changed, when the program has no reference.
 */
bool object_release(void *object);

/**
 * Give the program a handle to an object that another object holds: the context of a queue, the
 * program of a kernel. The handle is valid as long as the holder is, even if the program released
 * its own references: objects retain what they are made of.
 *
 * @object  Held by an object that the program has a valid handle to; or NULL.
 * Returns @object.
 */
static inline void *object_lend(void *object)
{
    struct object *lent = object;
    if (lent &&
        UNLIKELY(object_refs_of(atomic_load_explicit(&lent->counts, memory_order_relaxed)) == 0))
        atomic_fetch_or_explicit(&lent->counts, OBJECT_LENT, memory_order_relaxed);
    return object;
}

static inline uint32_t object_refs(const void *object)
{
    return object_refs_of(atomic_load_explicit(&((const struct object *)object)->counts,
                                               memory_order_relaxed)) &
           ~OBJECT_LENT;
}

/** A weak reference: tells later whether the slot still holds the same object. */
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
