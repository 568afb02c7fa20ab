#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "state/base/threads/callback.h"
#include "state/base/threads/gate.h"
#include "state/driver/lost_calls.h"
#include "state/memory/compare.h"
#include "state/memory/mapping.h"
#include "state/memory/memory_priv.h"
#include "state/memory/registered.h"

/*
 * The end of a memory object. The program's last reference may go while commands that use it are
 * in flight: drivers keep the real object, and with it the host copy's bytes, until those have
 * ended. Destructor callbacks (5.5.1) come after that, since they tell the program that it may free
 * its CL_MEM_USE_HOST_PTR memory; those of the context come last (4.4), so it stays until then.
 */
struct farewell {
    struct callback_job job;
    _Atomic uint32_t parts; /* the object, each real object in use, the program's memory in use */
    struct destructor *_Atomic destructors;
    struct context *context; /* Held. */
};

static bool memory_class_is_last(struct farewell *farewell)
{
    return atomic_fetch_sub_explicit(&farewell->parts, 1, memory_order_acq_rel) == 1;
}

static void memory_class_run(struct callback_job *job)
{
    struct farewell *farewell = container_of(job, struct farewell, job);
    destructor_run(&farewell->destructors);
    object_unhold(farewell->context);
    free(farewell);
}

static void memory_class_run_later(struct farewell *farewell)
{
    farewell->job.run = memory_class_run;
    callback_post(&farewell->job);
}

void farewell_drop(struct farewell *farewell)
{
    if (memory_class_is_last(farewell))
        memory_class_run_later(farewell);
}

static void CL_CALLBACK memory_class_real_is_gone(cl_mem real, void *farewell)
{
    (void)real;
    farewell_drop(farewell);
}

static void memory_class_host_copy_run(struct callback_job *job)
{
    struct host_copy *host_copy = container_of(job, struct host_copy, job);
    for (uint32_t drops = atomic_exchange(&host_copy->drops, 0); drops != 0; drops--)
        host_copy_unref(host_copy);
}

/* A driver is not to be called from its own callback. Drivers of several residences may come here
 * before the job runs, which can be posted only once. */
static void CL_CALLBACK memory_class_host_copy_let_go(cl_mem real, void *data)
{
    struct host_copy *host_copy = data;
    (void)real;
    if (registered_is(host_copy)) {
        if (atomic_fetch_add(&host_copy->drops, 1) == 0) {
            host_copy->job.run = memory_class_host_copy_run;
            callback_post(&host_copy->job);
        }
    } else {
        host_copy_unref(host_copy);
    }
}

/* Keep the host copy, and the program's memory, until the driver says that it has destroyed the
 * real object. */
static void memory_class_keep_for(struct memory *memory, const cl_icd_dispatch *cl, cl_mem real)
{
    struct host_copy *host_copy = memory->host_copy;
    struct farewell *farewell = memory->farewell;
    if (host_copy && (host_copy->ours || farewell)) {
        host_copy_ref(host_copy);
        /* A lost device may write to the bytes at any time: then they are kept for ever. */
        if (cl->clSetMemObjectDestructorCallback(real, memory_class_host_copy_let_go, host_copy) !=
                CL_SUCCESS &&
            cl != &driver_lost)
            host_copy_unref(host_copy);
    }
    /* POCL says nothing when an image over a buffer goes; it has no memory of its own either. */
    if (farewell && !(memory->image && memory->associated)) {
        atomic_fetch_add_explicit(&farewell->parts, 1, memory_order_relaxed);
        if (cl->clSetMemObjectDestructorCallback(real, memory_class_real_is_gone, farewell) !=
            CL_SUCCESS)
            atomic_fetch_sub_explicit(&farewell->parts, 1, memory_order_relaxed);
    }
}

void memory_release_real(struct memory *memory, uint8_t residence_index)
{
    if (!memory->real[residence_index])
        return;
    struct residence *residence = memory->context->at[residence_index];
    if (atomic_load_explicit(&memory->root->used, memory_order_relaxed))
        memory_class_keep_for(memory, residence->cl, memory->real[residence_index]);
    residence->cl->clReleaseMemObject(memory->real[residence_index]);
    memory_left(memory, residence, residence_index);
}

void memory_release_reals(struct memory *memory)
{
    for (uint8_t residence_index = 0; residence_index < memory->context->residences;
         residence_index++)
        if (memory->real[residence_index])
            memory_release_real(memory, residence_index);
}

int memory_add_destructor(struct memory *memory, void(CL_CALLBACK *call)(cl_mem, void *),
                          void *data)
{
    struct farewell *farewell = memory->farewell, *none = NULL;
    if (callback_start() != 0)
        return -ENOMEM;
    if (!farewell) {
        farewell = calloc(1, sizeof(*farewell));
        if (!farewell)
            return -ENOMEM;
        atomic_init(&farewell->parts, 1);
        farewell->context = memory->context;
        object_hold(farewell->context);
        if (!atomic_compare_exchange_strong(&memory->farewell, &none, farewell)) {
            object_unhold(farewell->context);
            free(farewell);
            farewell = none;
        }
    }
    return destructor_add(&farewell->destructors, (void(CL_CALLBACK *)(void *, void *))call, memory,
                          data);
}

bool memory_release(struct memory *memory)
{
    struct memory *root = memory->root;
    if (LIKELY(!root->host_ptr))
        return object_release(memory);
    object_hold(root);
    bool released = object_release(memory);
    if (object_refs(root) == 0)
        map_visit_await(root);
    object_unhold(root);
    return released;
}

static void memory_class_leave(struct object *object)
{
    struct memory *memory = (struct memory *)object;
    map_forget(memory);
    /* A lost device's driver is not called again, also not to unregister the host copy. */
    if (memory->root == memory && memory->host_copy)
        registered_leave_lost(memory);
    memory_release_reals(memory);
}

void memory_let_go(struct memory *memory)
{
    /* A buffer that was used by kernels only has none of these. */
    if (UNLIKELY(memory->shadow_copy || memory->known || memory->extents || memory->image ||
                 memory->properties)) {
        memory_host_is_host_copy(memory);
        free(memory->known);
        free(memory->extents);
        free(memory->image);
        free(memory->properties);
    }
    free(memory->real);
    if (memory->associated)
        object_unhold(memory->associated);
    if (memory->root != memory)
        object_unhold(memory->root);
    object_unhold(memory->context);
}

static void memory_class_destroy(struct object *object)
{
    struct memory *memory = (struct memory *)object;
    struct farewell *farewell = memory->farewell;
    struct host_copy *host_copy = memory->host_copy;
    if (farewell && host_copy && !host_copy->ours) {
        atomic_fetch_add_explicit(&farewell->parts, 1, memory_order_relaxed);
        host_copy->farewell = farewell;
    }
    if (host_copy)
        host_copy_unref(host_copy);
    if (farewell && memory_class_is_last(farewell)) {
        if (gate_is_inside())
            memory_class_run_later(farewell);
        else
            memory_class_run(&farewell->job);
    }
    memory_let_go(memory);
}

static void memory_class_release_one(const cl_icd_dispatch *cl, void *real, void *host_copy)
{
    cl->clReleaseMemObject(real);
    host_copy_unref(host_copy);
}

/* What a move does with memory objects, except for their content: the functions of object_class. */

static void memory_class_describe(const struct object *object, char *ret_text, size_t size)
{
    const struct memory *memory = (const struct memory *)object;
    (void)!snprintf(ret_text, size, "%s of %zu bytes", memory->image ? "an image" : "a buffer",
                    memory->size);
}

static bool memory_class_is_part(const struct object *object)
{
    const struct memory *memory = (const struct memory *)object;
    return memory->root != memory;
}

static void memory_class_release_now(struct memory *memory, struct residence *residence,
                                     uint8_t residence_index)
{
    residence_release(residence->cl, OBJECT_MEMORY, memory->real[residence_index]);
    memory_left(memory, residence, residence_index);
}

/*
 * The real object was made to work in the program's memory, but the buffer was written elsewhere
 * since. To bring it up to date would write to the program's memory, so it is made again with
 * memory of the driver's, and so are its views.
 */
static void memory_class_part_from_host_copy(struct memory *root, struct residence *residence,
                                             uint8_t residence_index)
{
    uintptr_t cursor = 0;
    struct memory *memory;
    for (; (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory))
        if (memory->root == root && memory != root)
            memory_class_release_now(memory, residence, residence_index);
    memory_class_release_now(root, residence, residence_index);
    extents_dropped(root, residence_index);
}

static cl_int memory_class_prepare(struct object *object, struct move_context *move)
{
    struct memory *memory = (struct memory *)object;
    struct residence *target = move->context->at[move->to];
    bool paused = the_thread.gate.owner;
    if (paused && move->made && memory->root == memory && memory_would_write(memory, move->to))
        memory_class_part_from_host_copy(memory, target, move->to);
    /* A virtual device that never used the object needs no real object: it is made at the first
     * use. */
    if (move_is_busy(move) || memory->real[move->to] ||
        (move->from != RESIDENCE_HOST && !memory->real[move->from]))
        return CL_SUCCESS;
    /* Also makes the object that it is a view of. Inside the gate, because a command of another
     * virtual device that is there already may make it at the same time. */
    gate_enter();
    cl_int error = memory_make_real(memory, target, move->to);
    gate_leave();
    /* It exceeds the program's budget there: it stays in host memory until a command needs it. */
    if (error == OVER_BUDGET) {
        atomic_store(&target->device->budget.tight, true);
        return CL_SUCCESS;
    }
    /* The program may have freed its memory since it released the object. */
    return !paused && object_refs(memory->root) == 0 ? CL_SUCCESS : error;
}

static cl_int memory_class_arrive(struct object *object, const struct move_context *move)
{
    struct memory *memory = (struct memory *)object;
    if (!move_carries_maps(move) || memory->root != memory || !map_any(memory))
        return CL_SUCCESS;
    return map_arrive(memory, move->context->at[move->to], move->from, move->to);
}

/* Release its real object, and keep the host copy that it was made over until then. */
static void memory_class_vacate_one(struct memory *memory, const struct move_context *move,
                                    uint8_t residence_index)
{
    struct residence *residence = move->context->at[residence_index];
    bool root = memory->root == memory, committed = residence_index == move->from;
    bool over_host = memory_is_backed(memory->root, residence_index);
    if (root && committed)
        (void)map_leave(memory, residence, residence_index); /* undo the driver's own maps */
    if (over_host && move->drained)
        residence_release(residence->cl, OBJECT_MEMORY, memory->real[residence_index]);
    else
        residence_retire(residence, OBJECT_MEMORY, memory->real[residence_index],
                         root && over_host ? host_copy_ref(memory->host_copy) : NULL);
    memory_left(memory, residence, residence_index);
    extents_dropped(memory, residence_index);
}

/* True when the real object stays: bytes that only `from` has are still to be fetched from there,
 * and a move that goes back finds its objects at `to`. Views do not stay. */
static bool memory_class_stays(const struct memory *memory, const struct move_context *move,
                               uint8_t residence_index)
{
    if (memory->root != memory)
        return false;
    return residence_index == move->from
               ? move->stays && memory_only_at(memory, residence_index) != 0
               : move->returns;
}

static void memory_class_vacate(struct object *object, const struct move_context *move,
                                uint8_t residence_index)
{
    struct memory *memory = (struct memory *)object;
    /* The program may use the target from now on: what a comparison knows of its replica ends. */
    if (memory->backed != 0)
        compare_forget(memory);
    else if (move->to != RESIDENCE_HOST)
        compare_forget_at(memory, move->to);
    /* Also where its bytes stay: from now on maps are made in another residence. */
    if (move_empties(move, residence_index) && memory->root == memory)
        registered_leave(memory, move->context->at[residence_index], move->drained);
    if (move_empties(move, residence_index) && !memory_class_stays(memory, move, residence_index))
        memory_class_vacate_one(memory, move, residence_index);
    if (memory->root != memory || residence_index != move->from)
        return;
    if (move->leaves || residence_index == RESIDENCE_HOST)
        map_moved(memory, residence_index, move_carries_maps(move) ? move->to : RESIDENCE_HOST);
    memory_host_copy_drop(memory, residence_index);
}

OBJECT_CLASS(memory_class) = {
    .type = OBJECT_MEMORY,
    .size = sizeof(struct memory),
    .leave = memory_class_leave,
    .destroy = memory_class_destroy,
    .release = memory_class_release_one,
    .context = offsetof(struct memory, context),
    .name = "a memory object",
    .describe = memory_class_describe,
    .make_real = memory_class_prepare,
    .arrive = memory_class_arrive,
    .vacate = memory_class_vacate,
    .is_part = memory_class_is_part,
};
