#include "state/object/object.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "state/base/threads/fork.h"
#include "state/base/threads/gate.h"
#include "state/object/upcalls.h"

/* A slot is reused only when this many others of its type were freed after it. */
#define QUARANTINE 4096
/* Regions grow by this much at a time; the kernel still allocates single pages when they are
 * touched. */
#define GROWTH ((uintptr_t)1 << 20)
#define REGION ((uintptr_t)1 << OBJECT_REGION_SHIFT)
/* No slot is larger. */
#define LARGEST_SLOT ((uintptr_t)1024)
#define CACHE_LINE   64

READ_MOSTLY uintptr_t object_base;
READ_MOSTLY struct object_region object_regions[OBJECT_TYPES];

READ_MOSTLY const struct object_class *object_classes[OBJECT_TYPES];
/* All classes that were linked: the linker defines the section's begin and end, if it exists. */
extern const struct object_class *const __start_reseat_class[]
    __attribute__((weak, visibility("hidden")));
extern const struct object_class *const __stop_reseat_class[]
    __attribute__((weak, visibility("hidden")));

READ_MOSTLY const cl_icd_dispatch *object_dispatch;
const struct upcalls *the_upcalls;

/* A free slot; lies behind the object header, which keeps its generation and state. */
struct free_slot {
    struct object object;
    struct free_slot *next;
};

static struct {
    _Alignas(64)
        atomic_flag lock; /* a cache line for each type: threads often use different types */
    struct free_slot *first, *last; /* guarded by lock; first in, first out */
    size_t free_count;              /* guarded by lock */
    uintptr_t committed;            /* guarded by lock */
    _Atomic uint64_t taken;         /* slots in use; written under lock */
} slots[OBJECT_TYPES];

/* A spin lock, since only a few instructions run under it: a mutex would cost more than they do,
 * and every event, buffer and kernel of the program takes the lock twice. */
static void object_lock(enum object_type type)
{
    while (atomic_flag_test_and_set_explicit(&slots[type].lock, memory_order_acquire))
        sched_yield();
}

static void object_unlock(enum object_type type)
{
    atomic_flag_clear_explicit(&slots[type].lock, memory_order_release);
}

static void object_count_add(enum object_type type, int64_t more)
{
    uint64_t taken = atomic_load_explicit(&slots[type].taken, memory_order_relaxed);
    atomic_store_explicit(&slots[type].taken, taken + (uint64_t)more, memory_order_relaxed);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool reserved; /* the whole range; written once */

static uintptr_t object_slot_size(enum object_type type)
{
    uintptr_t size = 64;
    while (size < object_classes[type]->size)
        size *= 2;
    return size;
}

/*
 * The first slot of each region lies a few cache lines and pages further in than that of the region
 * before. The first context, kernel and queue of a program are used together, and addresses that
 * differ only in their upper half evict each other from a processor's first-level cache (AMD's way
 * predictor looks at bits 12 to 27). A multiple of every slot's size.
 */
static uintptr_t object_first_slot(enum object_type type)
{
    return (uintptr_t)type * (LARGEST_SLOT + 4096);
}

static bool object_map_at(uintptr_t start, uintptr_t size)
{
    void *wanted = (void *)start; /* MAP_FIXED_NOREPLACE is a hint to kernels that lack it */
    void *got = mmap(wanted, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != MAP_FAILED && got != wanted)
        munmap(got, size);
    return got == wanted;
}

/*
 * Used when reserving fails, because a limit of the address space (RLIMIT_AS) counts reserved
 * memory. The range is then one of unused addresses, far below those that the kernel gives out, and
 * regions are mapped as they grow. Slots are recognised in the same way; the only difference is
 * that a region that meets foreign memory cannot grow.
 */
static uintptr_t object_unreserved(void)
{
    void *top = mmap(NULL, GROWTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (top == MAP_FAILED)
        return 0;
    munmap(top, GROWTH);
    uintptr_t base = (uintptr_t)top / 2 & ~(REGION - 1);
    for (unsigned tries = 0; tries < 8 && base >= OBJECT_TYPES * REGION; tries++) {
        /* Map the begin of the platform's region, which every program needs. */
        if (object_map_at(base + OBJECT_PLATFORM * REGION, GROWTH)) {
            slots[OBJECT_PLATFORM].committed = GROWTH;
            return base;
        }
        base -= OBJECT_TYPES * REGION;
    }
    return 0;
}

bool object_class_is_whole(const struct object_class *class)
{
    bool known = class->type > OBJECT_NONE && class->type < OBJECT_TYPES &&
                 class->size >= sizeof(struct object) && class->size <= LARGEST_SLOT;
    if (!class->release)
        return known && !class->make_real && !class->arrive && !class->vacate;
    return known && class->leave && class->context != 0 && class->name && class->vacate;
}

static void object_heap_init(void)
{
    const size_t count = ((uintptr_t)__stop_reseat_class - (uintptr_t)__start_reseat_class) /
                         sizeof(__start_reseat_class[0]);
    for (size_t i = 0; i < count; i++) {
        enum object_type type = __start_reseat_class[i]->type;
        if (!object_class_is_whole(__start_reseat_class[i]))
            continue;
        object_classes[type] = __start_reseat_class[i];
        object_regions[type].slot_mask = object_slot_size(type) - 1;
        atomic_init(&object_regions[type].used, object_first_slot(type));
    }
    void *range = mmap(NULL, OBJECT_TYPES * REGION, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    reserved = range != MAP_FAILED;
    uintptr_t base = reserved ? (uintptr_t)range : object_unreserved();
    if (base != 0)
        __atomic_store_n(&object_base, base, __ATOMIC_RELEASE);
}

static bool object_grow(uintptr_t start)
{
    return reserved ? mprotect((void *)start, GROWTH, PROT_READ | PROT_WRITE) == 0
                    : object_map_at(start, GROWTH);
}

/* A slot that was never used, or NULL. */
static struct object *object_slot_new(enum object_type type)
{
    struct object_region *region = &object_regions[type];
    uintptr_t size = region->slot_mask + 1;
    uintptr_t used = atomic_load_explicit(&region->used, memory_order_relaxed);
    uintptr_t start = object_base + (uintptr_t)type * REGION;
    if (used + size > slots[type].committed) {
        if (slots[type].committed + GROWTH > REGION || !object_grow(start + slots[type].committed))
            return NULL;
        slots[type].committed += GROWTH;
    }
    atomic_store_explicit(&region->used, used + size, memory_order_release);
    return (struct object *)(start + used);
}

static HOT struct object *object_slot_take(enum object_type type)
{
    object_lock(type);
    struct object *object = NULL;
    if (slots[type].free_count <= QUARANTINE)
        object = object_slot_new(type);
    if (!object && slots[type].first) {
        struct free_slot *slot = slots[type].first;
        slots[type].first = slot->next;
        if (!slot->next)
            slots[type].last = NULL;
        slots[type].free_count--;
        object = &slot->object;
        /* So many slots were used since that the next one is in no cache any more. */
        for (size_t at = 0; slot->next && at < object_classes[type]->size; at += CACHE_LINE)
            __builtin_prefetch((char *)slot->next + at, 1);
    }
    if (object)
        object_count_add(type, 1);
    object_unlock(type);
    return object;
}

static enum object_type object_type_of(const struct object *object)
{
    return (enum object_type)(((uintptr_t)object - object_base) >> OBJECT_REGION_SHIFT);
}

static HOT void object_slot_give(struct object *object)
{
    enum object_type type = object_type_of(object);
    atomic_store_explicit(&object->state, OBJECT_FREE, memory_order_relaxed);
    uint32_t generation = atomic_load_explicit(&object->generation, memory_order_relaxed);
    atomic_store_explicit(&object->generation, generation + 1, memory_order_release);
    struct free_slot *slot = (struct free_slot *)object;
    slot->next = NULL;
    object_lock(type);
    if (slots[type].last)
        slots[type].last->next = slot;
    else
        slots[type].first = slot;
    slots[type].last = slot;
    slots[type].free_count++;
    object_count_add(type, -1);
    object_unlock(type);
}

HOT void *object_create(enum object_type type)
{
    if (UNLIKELY(__atomic_load_n(&object_base, __ATOMIC_ACQUIRE) == 0))
        pthread_once(&once, object_heap_init);
    const struct object_class *class = object_classes[type];
    struct object *object = object_base && class ? object_slot_take(type) : NULL;
    if (!object)
        return NULL;
    memset(object + 1, 0, class->size - sizeof(*object));
    object->dispatch = object_dispatch;
    atomic_store_explicit(&object->refs, 0, memory_order_relaxed);
    atomic_store_explicit(&object->holds, 1, memory_order_relaxed);
    atomic_store_explicit(&object->state, OBJECT_BUILDING, memory_order_relaxed);
    return object;
}

void object_publish_internal(void *pointer)
{
    struct object *object = pointer;
    atomic_store_explicit(&object->state, OBJECT_LIVE, memory_order_release);
}

HOT void object_publish(void *pointer)
{
    struct object *object = pointer;
    object_publish_internal(object);
    atomic_store_explicit(&object->refs, 1, memory_order_release);
}

void object_discard(void *object)
{
    object_slot_give(object);
}

/* A hold went, inside the gate, which is left. @last: there is none left. */
static ALWAYS_INLINE void object_dropped(struct object *object, bool last)
{
    const struct object_class *class = object_classes[object_type_of(object)];
    if (last)
        atomic_store_explicit(&object->state, OBJECT_LEAVING, memory_order_relaxed);
    if (last && class->leave)
        class->leave(object);
    gate_leave();
    if (!last)
        return;
    atomic_store_explicit(&object->refs, 0,
                          memory_order_release); /* a lent handle has the flag OBJECT_LENT set */
    if (class->destroy)
        class->destroy(object);
    object_slot_give(object);
}

static HOT void object_drop(struct object *object)
{
    gate_enter();
    object_dropped(object, atomic_fetch_sub_explicit(&object->holds, 1, memory_order_acq_rel) == 1);
}

/* Drop a reference that may be the last, and its hold with it: two locked instructions would cost
 * as much as all the rest. By the gate whether the hold is the last or not: with its reference the
 * program lets go of host memory too, which a mover may be copying with the gate closed. */
static HOT bool object_release_last(struct object *object)
{
    union {
        struct {
            uint32_t refs, holds;
        };
        uint64_t both;
    } now, next;
    gate_enter();
    now.both = atomic_load_explicit(&object->counts, memory_order_relaxed);
    do {
        next = now;
        if (UNLIKELY((now.refs & ~OBJECT_LENT) == 0)) {
            gate_leave();
            return false;
        }
        next.refs--;
        next.holds -= (next.refs & ~OBJECT_LENT) == 0;
    } while (!atomic_compare_exchange_weak_explicit(&object->counts, &now.both, next.both,
                                                    memory_order_acq_rel, memory_order_relaxed));
    object_dropped(object, next.holds == 0);
    return true;
}

HOT bool object_release(void *pointer)
{
    struct object *object = pointer;
    uint32_t refs = atomic_load_explicit(&object->refs, memory_order_relaxed);
    while ((refs & ~OBJECT_LENT) > 1)
        if (atomic_compare_exchange_weak_explicit(&object->refs, &refs, refs - 1,
                                                  memory_order_acq_rel, memory_order_relaxed))
            return true;
    return object_release_last(object);
}

HOT void object_unhold(void *pointer)
{
    struct object *object = pointer;
    if (!object)
        return;
    /* A thread that merely held the object must not wait for a mover, which may wait for a long
     * kernel: drop the hold without the gate unless it is the last. */
    uint32_t holds = atomic_load_explicit(&object->holds, memory_order_relaxed);
    while (holds > 1)
        if (atomic_compare_exchange_weak_explicit(&object->holds, &holds, holds - 1,
                                                  memory_order_acq_rel, memory_order_relaxed))
            return;
    object_drop(object);
}

/* Take a hold unless the object is already on its way out. */
static bool object_hold_if_live(struct object *object)
{
    if (atomic_load_explicit(&object->state, memory_order_acquire) != OBJECT_LIVE)
        return false;
    uint32_t holds = atomic_load_explicit(&object->holds, memory_order_relaxed);
    do {
        if (holds == 0)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&object->holds, &holds, holds + 1,
                                                    memory_order_acq_rel, memory_order_relaxed));
    if (atomic_load_explicit(&object->state, memory_order_acquire) == OBJECT_LIVE)
        return true;
    /* The slot was freed and reused in between: it belongs to its new creator, which may even have
     * published and released the new object. */
    object_unhold(object);
    return false;
}

void *object_next(enum object_type type, uintptr_t *cursor)
{
    const struct object_region *region = &object_regions[type];
    if (*cursor == 0)
        *cursor = object_first_slot(type);
    while (*cursor < atomic_load_explicit(&region->used, memory_order_acquire)) {
        /* Read object_base after `used`, since the first object may just have been made. */
        uintptr_t start = object_base + (uintptr_t)type * REGION;
        struct object *object = (struct object *)(start + *cursor);
        *cursor += region->slot_mask + 1;
        if (object_hold_if_live(object))
            return object;
    }
    return NULL;
}

uint64_t object_count(enum object_type type)
{
    return atomic_load_explicit(&slots[type].taken, memory_order_relaxed);
}

/* Locks all slots for a fork. */
static void object_lock_all(void)
{
    for (int type = 1; type < OBJECT_TYPES; type++)
        object_lock((enum object_type)type);
}

static void object_unlock_all(void)
{
    for (int type = 1; type < OBJECT_TYPES; type++)
        object_unlock((enum object_type)type);
}

FORK_PART = {.rank = FORK_OBJECT, .before = object_lock_all, .after = object_unlock_all};
