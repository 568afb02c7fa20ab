#include "state/opencl/object_heap.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "state/base/threads/fork.h"

/* Regions grow by this much at a time; pages are touched one by one all the same. */
#define GROWTH     ((uintptr_t)1 << 20)
#define REGION     ((uintptr_t)1 << OBJECT_REGION_SHIFT)
#define CACHE_LINE 64

READ_MOSTLY uintptr_t object_base;
READ_MOSTLY struct object_region object_regions[OBJECT_HEAP_TYPES];

/* A free slot; lies behind the object header, which keeps its generation and state. */
struct free_slot {
    struct object object;
    struct free_slot *next;
};

static struct {
    _Alignas(64) atomic_flag lock;  /* a line for each type: threads are busy with their own */
    struct free_slot *first, *last; /* guarded by lock; first in, first out */
    size_t free_count;              /* guarded by lock */
    uintptr_t committed;            /* guarded by lock */
    _Atomic uint64_t taken;         /* slots in use; written under lock */
} slots[OBJECT_HEAP_TYPES];

/* A few instructions run under it: a mutex would cost more than they do, and every event, buffer
 * and kernel of the program passes twice. */
static void object_heap_lock(unsigned type)
{
    while (atomic_flag_test_and_set_explicit(&slots[type].lock, memory_order_acquire))
        sched_yield();
}

static void object_heap_unlock(unsigned type)
{
    atomic_flag_clear_explicit(&slots[type].lock, memory_order_release);
}

static void object_heap_count_add(unsigned type, int64_t more)
{
    uint64_t taken = atomic_load_explicit(&slots[type].taken, memory_order_relaxed);
    atomic_store_explicit(&slots[type].taken, taken + (uint64_t)more, memory_order_relaxed);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool reserved; /* the whole range; written once */

/*
 * Regions do not begin with a slot, but each a few lines and pages later than the one before: the
 * first context, kernel and queue of a program are used together, and addresses that differ in
 * their upper half alone push each other out of a processor's first cache (AMD's way predictor
 * looks at bits 12 to 27). A multiple of every slot's size.
 */
static uintptr_t object_heap_first_slot(unsigned type)
{
    return (uintptr_t)type * (OBJECT_HEAP_LARGEST + 4096);
}

static bool object_heap_map_at(uintptr_t start, uintptr_t size)
{
    void *wanted = (void *)start; /* MAP_FIXED_NOREPLACE is a hint to kernels that lack it */
    void *got = mmap(wanted, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != MAP_FAILED && got != wanted)
        munmap(got, size);
    return got == wanted;
}

/*
 * Choose the heap's range where it cannot be reserved, because a limit of the address space
 * (RLIMIT_AS) counts reserved addresses. The range lies far below the addresses that the kernel
 * gives out, and its regions are mapped as they grow. Slots are recognised as in a reserved range.
 * If other memory is mapped in the way of a region, that region cannot grow.
 */
static uintptr_t object_heap_unreserved(void)
{
    void *top = mmap(NULL, GROWTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (top == MAP_FAILED)
        return 0;
    munmap(top, GROWTH);
    uintptr_t base = (uintptr_t)top / 2 & ~(REGION - 1);
    for (unsigned tries = 0; tries < 8 && base >= OBJECT_HEAP_TYPES * REGION; tries++) {
        /* The first of type 1, which every program needs. */
        if (object_heap_map_at(base + REGION, GROWTH)) {
            slots[1].committed = GROWTH;
            return base;
        }
        base -= OBJECT_HEAP_TYPES * REGION;
    }
    return 0;
}

static void object_heap_init(void)
{
    void *range = mmap(NULL, OBJECT_HEAP_TYPES * REGION, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    reserved = range != MAP_FAILED;
    uintptr_t base = reserved ? (uintptr_t)range : object_heap_unreserved();
    if (base != 0)
        __atomic_store_n(&object_base, base, __ATOMIC_RELEASE);
}

static bool object_heap_grow(uintptr_t start)
{
    return reserved ? mprotect((void *)start, GROWTH, PROT_READ | PROT_WRITE) == 0
                    : object_heap_map_at(start, GROWTH);
}

static uintptr_t object_heap_slot_size(unsigned type)
{
    return atomic_load_explicit(&object_regions[type].slot_mask, memory_order_relaxed) + 1;
}

/* A slot that was never used, or NULL. */
static struct object *object_heap_slot_new(unsigned type, size_t least)
{
    struct object_region *region = &object_regions[type];
    uintptr_t used = atomic_load_explicit(&region->used, memory_order_relaxed), size = 64;
    uintptr_t start = object_base + (uintptr_t)type * REGION;
    while (size < least)
        size *= 2;
    if (used == 0)
        used = object_heap_first_slot(type);
    if (used + size > slots[type].committed) {
        if (slots[type].committed + GROWTH > REGION ||
            !object_heap_grow(start + slots[type].committed))
            return NULL;
        slots[type].committed += GROWTH;
    }
    atomic_store_explicit(&region->slot_mask, size - 1, memory_order_relaxed);
    atomic_store_explicit(&region->used, used + size, memory_order_release);
    return (struct object *)(start + used);
}

static HOT struct object *object_heap_slot_take(unsigned type, size_t size, size_t quarantine)
{
    object_heap_lock(type);
    struct object *object = NULL;
    if (slots[type].free_count <= quarantine)
        object = object_heap_slot_new(type, size);
    if (!object && slots[type].first) {
        struct free_slot *slot = slots[type].first;
        slots[type].first = slot->next;
        if (!slot->next)
            slots[type].last = NULL;
        slots[type].free_count--;
        object = &slot->object;
        /* So many others were used since that no cache has the next one any more. */
        for (size_t at = 0; slot->next && at < size; at += CACHE_LINE)
            __builtin_prefetch((char *)slot->next + at, 1);
    }
    if (object)
        object_heap_count_add(type, 1);
    object_heap_unlock(type);
    return object;
}

HOT void *object_heap_take(unsigned type, size_t size, size_t quarantine)
{
    if (UNLIKELY(__atomic_load_n(&object_base, __ATOMIC_ACQUIRE) == 0))
        pthread_once(&once, object_heap_init);
    struct object *object = object_base ? object_heap_slot_take(type, size, quarantine) : NULL;
    if (!object)
        return NULL;
    memset(object + 1, 0, size - sizeof(*object));
    atomic_store_explicit(&object->counts, OBJECT_NEW | OBJECT_HOLD, memory_order_relaxed);
    atomic_store_explicit(&object->state, OBJECT_BUILDING, memory_order_relaxed);
    return object;
}

HOT void object_heap_give(void *pointer)
{
    struct object *object = pointer;
    unsigned type = object_heap_type(object);
    atomic_store_explicit(&object->state, OBJECT_FREE, memory_order_relaxed);
    uint32_t generation = atomic_load_explicit(&object->generation, memory_order_relaxed);
    atomic_store_explicit(&object->generation, generation + 1, memory_order_release);
    struct free_slot *slot = pointer;
    slot->next = NULL;
    object_heap_lock(type);
    if (slots[type].last)
        slots[type].last->next = slot;
    else
        slots[type].first = slot;
    slots[type].last = slot;
    slots[type].free_count++;
    object_heap_count_add(type, -1);
    object_heap_unlock(type);
}

unsigned object_heap_type(const void *object)
{
    return (unsigned)(((uintptr_t)object - object_base) >> OBJECT_REGION_SHIFT);
}

uintptr_t object_heap_index(const void *object)
{
    unsigned type = object_heap_type(object);
    uintptr_t offset = ((uintptr_t)object - object_base) & (REGION - 1);
    return (offset - object_heap_first_slot(type)) / object_heap_slot_size(type);
}

struct object *object_heap_at(unsigned type, uintptr_t index)
{
    /* Read before what it publishes: the slots' size, and where the heap is. */
    uintptr_t used = atomic_load_explicit(&object_regions[type].used, memory_order_acquire);
    uintptr_t offset = object_heap_first_slot(type) + index * object_heap_slot_size(type);
    return offset < used ? (struct object *)(object_base + (uintptr_t)type * REGION + offset)
                         : NULL;
}

uint64_t object_count(unsigned type)
{
    return atomic_load_explicit(&slots[type].taken, memory_order_relaxed);
}

/* No allocation in between. */
static void object_heap_lock_all(void)
{
    for (unsigned type = 1; type < OBJECT_HEAP_TYPES; type++)
        object_heap_lock(type);
}

static void object_heap_unlock_all(void)
{
    for (unsigned type = 1; type < OBJECT_HEAP_TYPES; type++)
        object_heap_unlock(type);
}

FORK_PART = {.rank = FORK_OBJECT, .before = object_heap_lock_all, .after = object_heap_unlock_all};
