#include "state/object/object.h"

#include <pthread.h>

#include "state/base/threads/gate.h"
#include "state/object/upcalls.h"

/* A slot is reused only when this many others of its type were freed after it. */
#define QUARANTINE 4096

READ_MOSTLY const struct object_class *object_classes[OBJECT_TYPES];
/* All classes that were linked: the linker defines the section's begin and end, if it exists. */
extern const struct object_class *const __start_reseat_class[]
    __attribute__((weak, visibility("hidden")));
extern const struct object_class *const __stop_reseat_class[]
    __attribute__((weak, visibility("hidden")));

READ_MOSTLY const cl_icd_dispatch *object_dispatch;
const struct upcalls *the_upcalls;

static pthread_once_t once = PTHREAD_ONCE_INIT;

bool object_class_is_whole(const struct object_class *class)
{
    bool known = class->type > OBJECT_NONE && class->type < OBJECT_TYPES &&
                 class->size >= sizeof(struct object) && class->size <= OBJECT_HEAP_LARGEST;
    if (!class->release)
        return known && !class->make_real && !class->arrive && !class->vacate;
    return known && class->leave && class->context != 0 && class->name && class->vacate;
}

static void object_find_classes(void)
{
    const size_t count = ((uintptr_t)__stop_reseat_class - (uintptr_t)__start_reseat_class) /
                         sizeof(__start_reseat_class[0]);
    for (size_t i = 0; i < count; i++)
        if (object_class_is_whole(__start_reseat_class[i]))
            object_classes[__start_reseat_class[i]->type] = __start_reseat_class[i];
}

HOT void *object_create(enum object_type type)
{
    if (UNLIKELY(__atomic_load_n(&object_base, __ATOMIC_ACQUIRE) == 0))
        pthread_once(&once, object_find_classes);
    const struct object_class *class = object_classes[type];
    struct object *object = class ? object_heap_take(type, class->size, QUARANTINE) : NULL;
    if (object)
        object->dispatch = object_dispatch;
    return object;
}

void object_publish_internal(void *pointer)
{
    object_heap_publish(pointer, 0);
}

HOT void object_publish(void *pointer)
{
    object_heap_publish(pointer, 1);
}

void object_discard(void *object)
{
    object_heap_give(object);
}

/* A hold went, inside the gate, which is left. @last: there is none left. */
static ALWAYS_INLINE void object_dropped(struct object *object, bool last)
{
    const struct object_class *class = object_classes[object_heap_type(object)];
    if (last)
        atomic_store_explicit(&object->state, OBJECT_LEAVING, memory_order_relaxed);
    if (last && class->leave)
        class->leave(object);
    gate_leave();
    if (!last)
        return;
    atomic_store_explicit(&object->counts, 0,
                          memory_order_release); /* a lent handle has the flag OBJECT_LENT set */
    if (class->destroy)
        class->destroy(object);
    object_heap_give(object);
}

static HOT void object_drop(struct object *object)
{
    gate_enter();
    uint64_t counts = atomic_fetch_sub_explicit(&object->counts, OBJECT_HOLD, memory_order_acq_rel);
    object_dropped(object, object_holds_of(counts) == 1);
}

/* Drop a reference that may be the last, and its hold with it: two locked instructions would cost
 * as much as all the rest. By the gate whether the hold is the last or not: with its reference the
 * program lets go of host memory too, which a mover may be copying with the gate closed. */
static HOT bool object_release_last(struct object *object)
{
    uint64_t next, now;
    gate_enter();
    now = atomic_load_explicit(&object->counts, memory_order_relaxed);
    do {
        if (UNLIKELY((object_refs_of(now) & ~OBJECT_LENT) == 0)) {
            gate_leave();
            return false;
        }
        next = now - 1;
        if ((object_refs_of(next) & ~OBJECT_LENT) == 0)
            next -= OBJECT_HOLD;
    } while (!atomic_compare_exchange_weak_explicit(&object->counts, &now, next,
                                                    memory_order_acq_rel, memory_order_relaxed));
    object_dropped(object, object_holds_of(next) == 0);
    return true;
}

HOT bool object_release(void *pointer)
{
    struct object *object = pointer;
    uint64_t counts = atomic_load_explicit(&object->counts, memory_order_relaxed);
    while ((object_refs_of(counts) & ~OBJECT_LENT) > 1)
        if (atomic_compare_exchange_weak_explicit(&object->counts, &counts, counts - 1,
                                                  memory_order_acq_rel, memory_order_relaxed))
            return true;
    return (object_refs_of(counts) & ~OBJECT_LENT) != 0 && object_release_last(object);
}

HOT void object_unhold(void *pointer)
{
    struct object *object = pointer;
    if (!object)
        return;
    /* Who only looked at it does not wait for a mover, which waits for as long as a kernel runs. */
    if (!object_unhold_one(object))
        object_drop(object);
}

void *object_next(enum object_type type, uintptr_t *cursor)
{
    struct object *object;
    while ((object = object_heap_at(type, *cursor))) {
        ++*cursor;
        if (object_hold_if_live(object, object_unhold))
            return object;
    }
    return NULL;
}
