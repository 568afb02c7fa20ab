#include "state/command/command.h"

#include <stdlib.h>
#include <string.h>

/* This struct is in front of the program's arguments in the block that the driver copies. */
struct header {
    void(CL_CALLBACK *function)(void *);
} __attribute__((aligned(16)));

struct native {
    struct command base;
    cl_uint count;
    struct memory *const *objects;
    const size_t *offsets; /* offset of each location in the block */
    size_t size;
    struct header *block;
};

/*
 * Runs the program's function, outside the gate. The driver may call this in the thread that
 * enqueues, flushes or waits (POCL's basic device does). The function may take long or wait for
 * other threads; a mover that closes the gate meanwhile sees the pin before it touches anything
 * that this driver call uses.
 */
static void CL_CALLBACK native_run(void *block)
{
    struct header *header = block;
    uint32_t depth = atomic_load_explicit(&the_thread.gate.inside, memory_order_relaxed);
    for (uint32_t i = 0; i < depth; i++)
        gate_leave();
    header->function(header + 1);
    for (uint32_t i = 0; i < depth; i++)
        gate_enter();
}

static struct memory *native_more(const struct command *base, unsigned *cursor, bool *ret_writes)
{
    const struct native *native = (const struct native *)base;
    if (*cursor >= native->count)
        return NULL;
    struct memory *memory = native->objects[(*cursor)++];
    *ret_writes = true; /* not known */
    return memory;
}

static cl_int native_issue(struct command *base, struct residence *residence,
                           uint8_t residence_index, cl_command_queue queue, cl_uint waits,
                           const cl_event *wait_list, cl_event *ret_event)
{
    const struct native *native = (const struct native *)base;
    cl_uint count = native->count;
    if (!residence->cl->clEnqueueNativeKernel)
        return CL_INVALID_OPERATION;
    cl_mem *real = calloc(count + 1, sizeof(*real));
    const void **locations = calloc(count + 1, sizeof(*locations));
    cl_int error = CL_OUT_OF_HOST_MEMORY;
    if (real && locations) {
        for (cl_uint i = 0; i < count; i++) {
            real[i] = native->objects[i]->real[residence_index];
            locations[i] = (char *)native->block + native->offsets[i];
        }
        error = residence->cl->clEnqueueNativeKernel(
            queue, native_run, native->block, native->size, count, count ? real : NULL,
            count ? locations : NULL, waits, wait_list, ret_event);
    }
    free(real);
    free(locations);
    return error;
}

/* Copy what the command points to (objects, offsets and block) as one allocation. NULL without
 * memory. */
static void *native_pieces_copy(const struct native *from, struct native *ret_to)
{
    size_t objects = from->count * sizeof(from->objects[0]);
    size_t offsets = from->count * sizeof(from->offsets[0]);
    char *pieces = aligned_alloc(sizeof(struct header),
                                 (from->size + objects + offsets + sizeof(struct header) - 1) &
                                     ~(sizeof(struct header) - 1));
    if (!pieces)
        return NULL;
    memcpy(pieces, from->block, from->size);
    if (from->count) {
        ret_to->objects = memcpy(pieces + from->size, from->objects, objects);
        ret_to->offsets = memcpy(pieces + from->size + objects, from->offsets, offsets);
    }
    ret_to->block = (struct header *)pieces;
    return pieces;
}

static cl_int native_defer(struct command *base)
{
    struct native *native = (struct native *)base;
    if (!native_pieces_copy(native, native))
        return CL_OUT_OF_HOST_MEMORY;
    for (cl_uint i = 0; i < native->count; i++)
        object_hold(native->objects[i]);
    return CL_SUCCESS;
}

static void native_drop(struct command *base)
{
    struct native *native = (struct native *)base;
    for (cl_uint i = 0; i < native->count; i++)
        object_unhold(native->objects[i]);
    free(native->block);
}

static const struct command_ops native_ops = {
    .type = CL_COMMAND_NATIVE_KERNEL,
    .size = sizeof(struct native),
    .issue = native_issue,
    .defer = native_defer,
    .unrepeatable = "it has native kernels",
    .drop = native_drop,
};

cl_int native_enqueue(struct queue *queue, const struct native_call *call, cl_uint waits,
                      const cl_event *wait_list, cl_event *ret_event, struct vdev **ret_stray)
{
    size_t size;
    *ret_stray = NULL;
    if (__builtin_add_overflow(sizeof(struct header) + sizeof(struct header) - 1, call->size,
                               &size))
        return CL_INVALID_VALUE;
    size &= ~(sizeof(struct header) - 1);
    struct header *block = aligned_alloc(sizeof(struct header), size);
    size_t *offsets = calloc(call->count + 1, sizeof(*offsets));
    cl_int error = CL_OUT_OF_HOST_MEMORY;
    if (block && offsets) {
        memset(block, 0, size);
        block->function = call->function;
        if (call->size)
            memcpy(block + 1, call->args, call->size);
        for (cl_uint i = 0; i < call->count; i++)
            offsets[i] = sizeof(struct header) +
                         (size_t)((const char *)call->locations[i] - (const char *)call->args);
        error = pin_enter(queue->context, CL_DEVICE_EXECUTION_CAPABILITIES, CL_EXEC_NATIVE_KERNEL,
                          ret_stray);
        if (error == CL_SUCCESS) {
            struct pins *pins = &queue->context->pins;
            pin_take(pins, PIN_NATIVE);
            gate_leave();
            struct native native = {
                .base = {.ops = &native_ops, .queue = queue, .more = native_more},
                .count = call->count,
                .objects = call->objects,
                .offsets = offsets,
                .size = size,
                .block = block,
            };
            error = command_run(&native.base, false, waits, wait_list, ret_event);
            if (error == CL_SUCCESS)
                pin_keep(pins, PIN_NATIVE);
            else
                pin_drop(pins, PIN_NATIVE);
        }
    }
    free(offsets);
    free(block);
    return error;
}
