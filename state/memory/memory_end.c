#include <errno.h>
#include <stdlib.h>

#include "state/base/threads/callback.h"
#include "state/base/threads/gate.h"
#include "state/driver/lost_calls.h"
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

static bool memory_end_is_last(struct farewell *farewell)
{
    return atomic_fetch_sub_explicit(&farewell->parts, 1, memory_order_acq_rel) == 1;
}

static void memory_end_run(struct callback_job *job)
{
    struct farewell *farewell = container_of(job, struct farewell, job);
    destructor_run(&farewell->destructors);
    object_unhold(farewell->context);
    free(farewell);
}

static void memory_end_run_later(struct farewell *farewell)
{
    farewell->job.run = memory_end_run;
    callback_post(&farewell->job);
}

void farewell_drop(struct farewell *farewell)
{
    if (memory_end_is_last(farewell))
        memory_end_run_later(farewell);
}

static void CL_CALLBACK memory_end_real_is_gone(cl_mem real, void *farewell)
{
    (void)real;
    farewell_drop(farewell);
}

static void memory_end_host_copy_run(struct callback_job *job)
{
    host_copy_unref(container_of(job, struct host_copy, job));
}

/* A driver is not to be called from its own callback. */
static void CL_CALLBACK memory_end_host_copy_let_go(cl_mem real, void *data)
{
    struct host_copy *host_copy = data;
    (void)real;
    if (registered_is(host_copy)) {
        host_copy->job.run = memory_end_host_copy_run;
        callback_post(&host_copy->job);
    } else {
        host_copy_unref(host_copy);
    }
}

/* What a driver may still need is kept until it says that the real object is gone. */
static void memory_end_keep_for(struct memory *memory, const cl_icd_dispatch *cl, cl_mem real)
{
    struct host_copy *host_copy = memory->host_copy;
    struct farewell *farewell = memory->farewell;
    if (host_copy && (host_copy->ours || farewell)) {
        host_copy_ref(host_copy);
        /* Of a lost device nobody knows when it lets go of the bytes. */
        if (cl->clSetMemObjectDestructorCallback(real, memory_end_host_copy_let_go, host_copy) !=
                CL_SUCCESS &&
            cl != &driver_lost)
            host_copy_unref(host_copy);
    }
    /* POCL says nothing when an image over a buffer goes; it has no memory of its own either. */
    if (farewell && !(memory->image && memory->associated)) {
        atomic_fetch_add_explicit(&farewell->parts, 1, memory_order_relaxed);
        if (cl->clSetMemObjectDestructorCallback(real, memory_end_real_is_gone, farewell) !=
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
        memory_end_keep_for(memory, residence->cl, memory->real[residence_index]);
    residence->cl->clReleaseMemObject(memory->real[residence_index]);
    memory_left(memory, residence, residence_index);
}

void memory_release_reals(struct memory *memory)
{
    for (uint8_t residence_index = 0; residence_index < RESIDENCES_MAX; residence_index++)
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

static void memory_end_memory_leave(struct object *object)
{
    struct memory *memory = (struct memory *)object;
    map_forget(memory);
    /* A lost driver is not called again, for its host copy neither. */
    if (memory->root == memory && memory->host_copy && registered_is(memory->host_copy))
        for (uint8_t residence_index = 0; residence_index < RESIDENCES_MAX; residence_index++)
            if (memory->context->at[residence_index] &&
                residence_is_lost(memory->context->at[residence_index]))
                registered_leave(memory, memory->context->at[residence_index], true);
    memory_release_reals(memory);
}

static void memory_end_memory_destroy(struct object *object)
{
    struct memory *memory = (struct memory *)object;
    struct farewell *farewell = memory->farewell;
    struct host_copy *host_copy = memory->host_copy;
    if (farewell && host_copy && !host_copy->ours) {
        atomic_fetch_add_explicit(&farewell->parts, 1, memory_order_relaxed);
        host_copy->farewell = farewell;
    }
    host_copy_unref(host_copy);
    if (farewell && memory_end_is_last(farewell)) {
        if (gate_is_inside())
            memory_end_run_later(farewell);
        else
            memory_end_run(&farewell->job);
    }
    memory_host_is_host_copy(memory);
    free(memory->known);
    free(memory->extents);
    free(memory->image);
    free(memory->properties);
    if (memory->associated)
        object_unhold(memory->associated);
    if (memory->root != memory)
        object_unhold(memory->root);
    object_unhold(memory->context);
}

static void memory_end_memory_release_one(const cl_icd_dispatch *cl, void *real, void *host_copy)
{
    cl->clReleaseMemObject(real);
    host_copy_unref(host_copy);
}

OBJECT_CLASS(memory_class) = {
    .type = OBJECT_MEMORY,
    .size = sizeof(struct memory),
    .leave = memory_end_memory_leave,
    .destroy = memory_end_memory_destroy,
    .release = memory_end_memory_release_one,
    .context = offsetof(struct memory, context),
    .name = "a memory object",
    .describe = memory_describe,
    .make_real = memory_prepare,
    .arrive = memory_arrive,
    .vacate = memory_vacate,
    .is_part = memory_is_part,
};
