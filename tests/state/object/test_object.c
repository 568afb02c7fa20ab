#include "tests/support/cases.h"
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "state/base/threads/gate.h"
#include "state/object/object.h"

/* Types of our own instead of the engine's: object.c and the gate know no other. */
struct thing {
    struct object object;
    int payload[40];
};
static _Atomic int destroyed;
static void thing_destroy(struct object *object)
{
    (void)object;
    destroyed++;
}
static struct object_weak write_tracked;
static void *found_while_leaving = &write_tracked;
static void looks_at_itself(struct object *object)
{
    (void)object;
    found_while_leaving = object_weak_get(write_tracked);
}
#define THINGS(of, left)                                                                           \
    OBJECT_CLASS(of##_class) = {                                                                   \
        .type = (of), .size = sizeof(struct thing), .leave = (left), .destroy = thing_destroy}
THINGS(OBJECT_PLATFORM, NULL);
THINGS(OBJECT_DEVICE, NULL);
THINGS(OBJECT_CONTEXT, NULL);
THINGS(OBJECT_PROGRAM, NULL);
THINGS(OBJECT_KERNEL, NULL);
THINGS(OBJECT_MEMORY, NULL);
THINGS(OBJECT_SAMPLER, looks_at_itself);
THINGS(OBJECT_QUEUE, NULL);
THINGS(OBJECT_EVENT, NULL);
static void release_nothing(const cl_icd_dispatch *cl, void *real, void *kept)
{
    (void)cl, (void)real, (void)kept;
}

/* It has real objects, and nothing that a move could do with them. */
OBJECT_CLASS(half_class) = {
    .type = OBJECT_EXTRA, .size = sizeof(struct thing), .release = release_nothing};
#define TYPES OBJECT_EXTRA

static struct thing *publish(enum object_type type)
{
    struct thing *thing = object_create(type);
    object_publish(thing);
    return thing;
}

/* Through here the compiler does not see what a pointer is, as it does not in a program. */
static const void *volatile handle;

/* Sanitizers have no such limits. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* So many bytes more than the process has now. */
static void limit_address_space(size_t more)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    rlim_t bytes = pages * (rlim_t)sysconf(_SC_PAGESIZE) + more;
    const struct rlimit limit = {bytes, bytes};
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
}

/* As many as that leaves room for, of each type, and not one wrong answer. */
Test(object, objects_are_had_where_the_address_space_is_limited)
{
    enum { EACH = 20000 };
    static struct thing *things[TYPES][EACH];
    limit_address_space((size_t)64 << 20);
    for (enum object_type type = OBJECT_PLATFORM; type < TYPES; type++)
        for (int i = 0; i < EACH; i++) {
            things[type][i] = object_create(type);
            cr_assert_not_null(things[type][i], "%d of type %d", i, type);
            memset(things[type][i]->payload, type, sizeof(things[type][i]->payload));
            object_publish(things[type][i]);
        }
    for (enum object_type type = OBJECT_PLATFORM; type < TYPES; type++)
        for (int i = 0; i < EACH; i++) {
            handle = things[type][i];
            for (enum object_type other = OBJECT_PLATFORM; other < TYPES; other++)
                cr_assert_eq(object_get(handle, other), other == type ? handle : NULL);
            cr_assert_eq(((char *)things[type][i]->payload)[7], (char)type);
        }
    /* Between two regions there may be anything, which is not touched. */
    handle = (char *)things[OBJECT_QUEUE][0] + ((uintptr_t)1 << 30);
    cr_assert_null(object_get(handle, OBJECT_QUEUE));
    /* With all of it taken none is made, and nothing else happens. */
    struct thing *last = NULL, *next;
    while ((next = object_create(OBJECT_MEMORY))) {
        object_publish(next);
        last = next;
    }
    cr_assert_not_null(last);
}
#endif

Test(object, any_pointer_is_recognised_before_the_heap_exists)
{
    int on_stack;
    for (enum object_type type = OBJECT_PLATFORM; type < TYPES; type++) {
        const void *handles[] = {NULL, &on_stack, (void *)UINTPTR_MAX,
                                 (void *)(((uintptr_t)type << OBJECT_REGION_SHIFT) + 64)};
        for (size_t i = 0; i < ARRAY_SIZE(handles); i++) {
            handle = handles[i];
            cr_assert_null(object_get(handle, type));
        }
    }
}

Test(object, none_is_of_a_class_that_is_not_whole)
{
    uintptr_t cursor = 0;
    struct thing *thing = publish(OBJECT_MEMORY);
    cr_assert_null(object_create(OBJECT_EXTRA));
    cr_assert_null(object_next(OBJECT_EXTRA, &cursor));
    cr_assert_eq(object_count(OBJECT_EXTRA), 0);
    /* Any address of its region. */
    handle = (char *)thing + (((uintptr_t)OBJECT_EXTRA - OBJECT_MEMORY) << OBJECT_REGION_SHIFT);
    cr_assert_null(object_get(handle, OBJECT_EXTRA));
}

static void vacate_nothing(struct object *object, const struct move_context *move,
                           uint8_t residence_index)
{
    (void)object, (void)move, (void)residence_index;
}

Test(object, a_class_without_an_operation_that_it_needs_is_not_whole)
{
    const struct object_class plain = {.type = OBJECT_EXTRA, .size = sizeof(struct thing)};
    const struct object_class whole = {
        .type = OBJECT_EXTRA,
        .size = sizeof(struct thing),
        .leave = looks_at_itself,
        .release = release_nothing,
        .context = sizeof(struct object),
        .name = "a thing",
        .vacate = vacate_nothing,
    };
    cr_assert(object_class_is_whole(&plain));
    cr_assert(object_class_is_whole(&whole));
    for (int without = 0; without < 8; without++) {
        struct object_class class = whole;
        if (without == 0)
            class.leave = NULL;
        else if (without == 1)
            class.release = NULL;
        else if (without == 2)
            class.context = 0;
        else if (without == 3)
            class.name = NULL;
        else if (without == 4)
            class.vacate = NULL;
        else if (without == 5)
            class.size = sizeof(struct object) - 1;
        else if (without == 6)
            class.size = 4096;
        else
            class.type = OBJECT_TYPES;
        cr_assert_not(object_class_is_whole(&class), "%d", without);
    }
}

Test(object, only_a_live_handle_of_the_type_is_one)
{
    struct thing *thing = publish(OBJECT_MEMORY);
    cr_assert_eq(object_get(thing, OBJECT_MEMORY), thing);
    cr_assert_null(object_get(thing, OBJECT_KERNEL));
    cr_assert_null(object_get((char *)thing + 8, OBJECT_MEMORY));
    cr_assert_null(object_get((char *)thing + (1 << 20), OBJECT_MEMORY));
    object_retain(thing);
    object_release(thing);
    cr_assert_eq(object_get(thing, OBJECT_MEMORY), thing);
    object_release(thing);
    cr_assert_null(object_get(thing, OBJECT_MEMORY));
}

Test(object, an_unpublished_object_is_nobodys_handle_and_is_not_walked)
{
    struct thing *thing = object_create(OBJECT_QUEUE);
    uintptr_t cursor = 0;
    cr_assert_null(object_get(thing, OBJECT_QUEUE));
    cr_assert_null(object_next(OBJECT_QUEUE, &cursor));
    object_discard(thing);
    cr_assert_eq(destroyed, 0);
}

Test(object, a_hold_keeps_it_but_not_its_handle)
{
    struct thing *thing = publish(OBJECT_EVENT);
    struct object_weak weak = object_weak(thing);
    object_hold(thing);
    object_release(thing);
    cr_assert_eq(destroyed, 0);
    cr_assert_null(object_get(thing, OBJECT_EVENT));
    cr_assert_eq(object_weak_get(weak), thing);
    uintptr_t cursor = 0;
    cr_assert_eq(object_next(OBJECT_EVENT, &cursor), thing);
    object_unhold(thing);
    object_unhold(thing);
    cr_assert_eq(destroyed, 1);
    cr_assert_null(object_weak_get(weak));
    cr_assert_eq(object_count(OBJECT_EVENT), 0);
}

Test(object, a_user_memory_handle_is_valid_until_the_end_and_can_be_retained)
{
    struct thing *thing = publish(OBJECT_CONTEXT);
    object_hold(thing);
    cr_assert(object_release(thing));
    cr_assert_eq(object_lend(thing), thing);
    cr_assert_eq(object_get(thing, OBJECT_CONTEXT), thing);
    cr_assert_eq(object_refs(thing), 0);
    cr_assert_not(object_release(thing), "there is no reference to drop");
    object_retain(thing);
    cr_assert_eq(object_refs(thing), 1);
    object_unhold(thing);
    cr_assert_eq(destroyed, 0, "the program has a reference again");
    cr_assert(object_release(thing));
    cr_assert_eq(destroyed, 1);
    cr_assert_null(object_get(thing, OBJECT_CONTEXT));
    cr_assert_null(object_lend(NULL));
}

/* In the same slot, alive, and of the same type. */
Test(object, a_weak_reference_does_not_find_who_came_after)
{
    struct thing *old = publish(OBJECT_EVENT), *next = NULL;
    struct object_weak weak = object_weak(old);
    object_release(old);
    for (int i = 0; i < 3 * 4096 && next != old; i++) {
        next = publish(OBJECT_EVENT);
        if (next != old)
            object_release(next);
    }
    cr_assert_eq(next, old, "the slot was never used again");
    cr_assert_null(object_weak_get(weak));
    cr_assert_eq(object_weak_get(object_weak(next)), next);
    object_release(next);
}

Test(object, a_weak_reference_does_not_find_what_is_being_destroyed)
{
    struct thing *thing = publish(OBJECT_SAMPLER);
    write_tracked = object_weak(thing);
    cr_assert_eq(object_weak_get(write_tracked), thing);
    object_release(thing);
    cr_assert_null(found_while_leaving);
}

Test(object, a_freed_handle_stays_invalid_while_thousands_are_made)
{
    struct thing *freed = publish(OBJECT_MEMORY);
    object_release(freed);
    for (int i = 0; i < 4096; i++) {
        struct thing *thing = publish(OBJECT_MEMORY);
        cr_assert_neq(thing, freed);
        object_release(thing);
    }
    cr_assert_null(object_get(freed, OBJECT_MEMORY));
}

Test(object, slots_come_back_and_are_blank)
{
    uintptr_t lowest = UINTPTR_MAX, highest = 0;
    for (int i = 0; i < 100000; i++) {
        struct thing *thing = object_create(OBJECT_EVENT);
        for (size_t j = 0; j < 40; j++)
            cr_assert_eq(thing->payload[j], 0);
        memset(thing->payload, 0xff, sizeof(thing->payload));
        object_publish(thing);
        lowest = (uintptr_t)thing < lowest ? (uintptr_t)thing : lowest;
        highest = (uintptr_t)thing > highest ? (uintptr_t)thing : highest;
        object_release(thing);
    }
    cr_assert_lt(highest - lowest, (4096 + 16) * 256);
}

static atomic_bool stop;

static void *creates_and_releases(void *unused)
{
    (void)unused;
    while (!atomic_load(&stop)) {
        struct thing *things[64];
        for (int i = 0; i < 64; i++)
            things[i] = publish(OBJECT_KERNEL);
        for (int i = 0; i < 64; i++)
            object_release(things[i]);
    }
    return NULL;
}

Test(object, a_mover_may_walk_while_the_program_creates_and_releases)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, creates_and_releases, NULL);
    size_t seen = 0;
    for (int i = 0; i < 200 || seen == 0; i++) {
        uintptr_t cursor = 0;
        struct object *object;
        while ((object = object_next(OBJECT_KERNEL, &cursor))) {
            cr_assert_eq(atomic_load(&object->state), OBJECT_LIVE);
            seen++;
            object_unhold(object);
        }
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    cr_assert_eq(object_count(OBJECT_KERNEL), 0);
}

static _Atomic(struct thing *) handed;

/* It has been given a hold of what is being made, takes another one, and lets go of both. */
static void *holds_and_lets_go(void *unused)
{
    (void)unused;
    while (!atomic_load(&stop)) {
        struct thing *thing = atomic_exchange(&handed, NULL);
        if (!thing)
            continue;
        object_hold(thing);
        object_unhold(thing);
        object_unhold(thing);
    }
    return NULL;
}

Test(object, holds_of_other_threads_outlive_that_it_is_published, .timeout = 60)
{
    enum { THINGS_MADE = 20000 };
    const struct timespec moment = {0, 1000};
    pthread_t thread;
    pthread_create(&thread, NULL, holds_and_lets_go, NULL);
    for (int i = 0; i < THINGS_MADE; i++) {
        struct thing *thing = object_create(OBJECT_PROGRAM);
        object_hold(thing);
        atomic_store(&handed, thing);
        for (int spins = i % 256; spins > 0 && atomic_load(&handed); spins--)
            continue;
        object_publish(thing);
        cr_assert_eq(object_refs(thing), 1);
        cr_assert(object_release(thing));
        while (atomic_load(&handed))
            nanosleep(&moment, NULL);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    cr_assert_eq(destroyed, THINGS_MADE);
    cr_assert_eq(object_count(OBJECT_PROGRAM), 0);
}

/* What another thread does to an object. */
struct beside {
    void (*act)(void *object);
    struct thing *thing;
    atomic_bool done;
    pthread_t thread;
};

static void *act_beside(void *of)
{
    struct beside *beside = of;
    beside->act(beside->thing);
    atomic_store(&beside->done, true);
    return NULL;
}

/* It begins behind a closed gate, and is looked at for so long. True: it ended. */
static bool ends_behind_the_gate(struct beside *beside, int ms)
{
    const struct timespec moment = {0, 1000000};
    cr_assert_eq(gate_close(0), 0);
    cr_assert_eq(pthread_create(&beside->thread, NULL, act_beside, beside), 0);
    for (int i = 0; i < ms && !atomic_load(&beside->done); i++)
        nanosleep(&moment, NULL);
    bool ended = atomic_load(&beside->done);
    gate_open();
    pthread_join(beside->thread, NULL);
    return ended;
}

static void release(void *object)
{
    (void)object_release(object);
}

/* With it the program may let go of host memory that a mover copies, though the mover holds the
 * object. */
Test(object, the_programs_last_reference_does_not_pass_a_closed_gate)
{
    struct beside program = {.act = release, .thing = publish(OBJECT_MEMORY)};
    object_hold(program.thing);
    cr_assert_not(ends_behind_the_gate(&program, 50));
    cr_assert(atomic_load(&program.done));
    object_unhold(program.thing);
}

/* A mover has the gate for as long as a kernel runs: who tells the agent of the program meanwhile
 * must not wait for it. */
Test(object, who_looks_at_an_object_lets_go_of_it_while_the_gate_is_closed)
{
    struct beside reader = {.act = object_unhold, .thing = publish(OBJECT_CONTEXT)};
    object_hold(reader.thing);
    cr_assert(ends_behind_the_gate(&reader, 10000));
    object_release(reader.thing);
    cr_assert_eq(destroyed, 1);
}
