#include "state/command/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/command/journal.h"
#include "state/memory/memory_priv.h"
#include "state/memory/registered.h"
#include "state/opencl/checks.h"

struct map_command {
    struct command base;
    struct mapping *mapping; /* for an unmap, until it is issued */
    struct range range;      /* range of the object's bytes */
};

/* True for buffers, and for images that are one range of a buffer's bytes. */
static bool map_is_run(const struct memory *memory)
{
    return !memory->image || memory->type == CL_MEM_OBJECT_IMAGE1D_BUFFER;
}

/* Copy the mapped region from the object to the host copy, or (@writes) back. */
static cl_int map_copy_region(const struct mapping *m, bool writes, struct residence *residence,
                              uint8_t residence_index, cl_command_queue queue, cl_uint waits,
                              const cl_event *wait_list, cl_event *ret_event)
{
    const cl_icd_dispatch *cl = residence->cl;
    const struct memory *memory = m->memory;
    size_t row = memory->image ? memory->image->row_pitch : 0;
    budget_crossed(&residence->device->budget, writes,
                   row ? row * m->region[1] * m->region[2] : m->length);
    if (map_is_run(memory)) {
        cl_mem real = memory->root->real[residence_index];
        return writes ? cl->clEnqueueWriteBuffer(queue, real, CL_FALSE, m->offset, m->length,
                                                 m->pointer, waits, wait_list, ret_event)
                      : cl->clEnqueueReadBuffer(queue, real, CL_FALSE, m->offset, m->length,
                                                m->pointer, waits, wait_list, ret_event);
    }
    cl_mem real = memory->real[residence_index];
    size_t slice = image_slice_argument(memory->image);
    return writes ? cl->clEnqueueWriteImage(queue, real, CL_FALSE, m->origin, m->region, row, slice,
                                            m->pointer, waits, wait_list, ret_event)
                  : cl->clEnqueueReadImage(queue, real, CL_FALSE, m->origin, m->region, row, slice,
                                           m->pointer, waits, wait_list, ret_event);
}

/* Flags for the driver, which maps one range of bytes. It includes bytes between the rows of an
 * image that the program does not overwrite: they must be read, because the whole range is written
 * back. */
static cl_map_flags map_native_flags(const struct mapping *mapping)
{
    bool gaps = mapping->memory->image && (mapping->region[1] > 1 || mapping->region[2] > 1);
    return gaps && (mapping->flags & CL_MAP_WRITE_INVALIDATE_REGION) ? CL_MAP_WRITE
                                                                     : mapping->flags;
}

/*
 * Make the map wait for all earlier commands. A driver that has nothing to read may complete the
 * map at once, whatever is queued before: NVIDIA's does so for CL_MAP_WRITE_INVALIDATE_REGION,
 * unless the map blocks. An earlier unmap is copied when the queue comes to it, so what the program
 * then writes could be seen by an earlier kernel.
 */
static cl_int map_enter_after(const struct mapping *mapping, struct residence *residence,
                              uint8_t residence_index, cl_command_queue queue, cl_uint waits,
                              const cl_event *wait_list, cl_event *ret_event)
{
    cl_int error = mapping_enter(mapping, residence, residence_index, queue,
                                 map_native_flags(mapping), waits, wait_list, NULL);
    if (error != CL_SUCCESS || !ret_event)
        return error;
    error = residence->cl->clEnqueueMarkerWithWaitList(queue, 0, NULL, ret_event);
    if (error != CL_SUCCESS)
        (void)residence->cl->clEnqueueUnmapMemObject(
            queue, mapping->memory->root->real[residence_index],
            mapping->memory->root->host_copy->bytes + mapping->offset, 0, NULL, NULL);
    return error;
}

static struct range map_root_range(const struct mapping *mapping)
{
    return (struct range){mapping->offset, mapping->offset + mapping->length};
}

static struct range map_object_range(const struct mapping *mapping)
{
    size_t begin = mapping->offset - mapping->memory->origin;
    return (struct range){begin, begin + mapping->length};
}

static void map_range(const struct command *command, unsigned use, struct range *range)
{
    (void)use;
    *range = ((const struct map_command *)command)->range;
}

/* True when the host copy has the bytes already, as the host's replica or through another mapping.
 * It must not be written then, since the program's memory may be read-only. */
static bool map_host_copy_has(struct mapping *mapping)
{
    const struct memory *root = mapping->memory->root;
    return (!root->shadow_copy && replica_has(root, RESIDENCE_HOST, map_root_range(mapping))) ||
           mapping_is_covered(mapping);
}

static cl_int map_issue(struct command *command, struct residence *residence,
                        uint8_t residence_index, cl_command_queue queue, cl_uint waits,
                        const cl_event *wait_list, cl_event *ret_event)
{
    struct map_command *map = (struct map_command *)command;
    struct mapping *mapping = map->mapping;
    bool native = !mapping->unlinked && memory_is_backed(mapping->memory->root, residence_index);
    cl_int error;
    if (native && !residence->in_place &&
        (map_native_flags(mapping) & CL_MAP_WRITE_INVALIDATE_REGION))
        error = map_enter_after(mapping, residence, residence_index, queue, waits, wait_list,
                                ret_event);
    else if (native)
        error = mapping_enter(mapping, residence, residence_index, queue, map_native_flags(mapping),
                              waits, wait_list, ret_event);
    else if (mapping->unlinked || (mapping->flags & CL_MAP_WRITE_INVALIDATE_REGION) ||
             map_host_copy_has(mapping))
        error = residence->cl->clEnqueueMarkerWithWaitList(queue, waits, wait_list, ret_event);
    else
        error = map_copy_region(mapping, false, residence, residence_index, queue, waits, wait_list,
                                ret_event);
    if (error == CL_SUCCESS)
        mapping_issued(mapping, native ? residence_index : RESIDENCE_NONE);
    return error;
}

static cl_int map_unmap_ready(struct command *command, struct residence *residence,
                              uint8_t residence_index)
{
    const struct mapping *mapping = ((struct map_command *)command)->mapping;
    (void)residence;
    uint8_t wanted = !mapping->pending && memory_is_backed(mapping->memory->root, residence_index)
                         ? residence_index
                         : RESIDENCE_NONE;
    return mapping->residence_index == wanted ? CL_SUCCESS : COMMAND_ABSENT;
}

/* An object was mapped by one device's driver and is unmapped in another's queue. */
static cl_int map_unmap_bring(struct command *command, uint8_t residence_index)
{
    struct mapping *mapping = ((struct map_command *)command)->mapping;
    cl_int error = CL_SUCCESS;
    if (mapping->residence_index != RESIDENCE_NONE && mapping->residence_index != residence_index)
        error = queue_drain(mapping->memory->context, mapping->residence_index);
    return error == CL_SUCCESS ? mapping_carry(mapping, residence_index) : error;
}

static cl_int map_unmap_issue(struct command *command, struct residence *residence,
                              uint8_t residence_index, cl_command_queue queue, cl_uint waits,
                              const cl_event *wait_list, cl_event *ret_event)
{
    struct map_command *map = (struct map_command *)command;
    struct mapping *mapping = map->mapping;
    cl_int error;
    if (mapping->residence_index == residence_index)
        error = residence->cl->clEnqueueUnmapMemObject(
            queue, mapping->memory->root->real[residence_index],
            mapping->memory->root->host_copy->bytes + mapping->offset, waits, wait_list, ret_event);
    else if ((mapping->flags & WRITE_FLAGS) && !mapping->pending)
        error = map_copy_region(mapping, true, residence, residence_index, queue, waits, wait_list,
                                ret_event);
    else
        error = residence->cl->clEnqueueMarkerWithWaitList(queue, waits, wait_list, ret_event);
    if (error != CL_SUCCESS)
        return error;
    /* Make the new version first: a mover that finds no mapping must not believe that the host copy
     * is unused. */
    if (mapping->flags & WRITE_FLAGS)
        replica_written(mapping->memory->root, residence_index, map_root_range(mapping));
    mapping_unlink(mapping);
    return CL_SUCCESS;
}

/* What the command waited for failed: a map did not happen, and an unmap is given up. */
static void map_unmap_cancel(struct command *command)
{
    gate_enter();
    mapping_unlink(((struct map_command *)command)->mapping);
    gate_leave();
}

static void map_cancel(struct command *command)
{
    map_unmap_cancel(command);
    mapping_settle(((struct map_command *)command)->mapping);
}

/* Record the bytes that the program wrote while the object was mapped. */
static int map_unmap_record(const struct command *command, struct command **ret_command,
                            char **ret_bytes, size_t *ret_size)
{
    const struct mapping *mapping = ((const struct map_command *)command)->mapping;
    bool writes = (mapping->flags & WRITE_FLAGS) && !mapping->pending;
    struct range range = map_root_range(mapping);
    if (!writes)
        range.end = range.begin;
    *ret_size = range.end - range.begin;
    return journal_rewrite(command->queue, mapping->memory, mapping->origin, mapping->region, range,
                           mapping->pointer, ret_command, ret_bytes);
}

/* For the journal: a map that was under way, whose bytes are copied to the host copy again. */
struct map_again {
    struct command base;
    struct mapping *mapping; /* with a reference */
};

static cl_int map_again_issue(struct command *command, struct residence *residence,
                              uint8_t residence_index, cl_command_queue queue, cl_uint waits,
                              const cl_event *wait_list, cl_event *ret_event)
{
    const struct mapping *mapping = ((struct map_again *)command)->mapping;
    if (mapping->unlinked || (mapping->flags & CL_MAP_WRITE_INVALIDATE_REGION))
        return residence->cl->clEnqueueMarkerWithWaitList(queue, waits, wait_list, ret_event);
    return map_copy_region(mapping, false, residence, residence_index, queue, waits, wait_list,
                           ret_event);
}

static void map_again_drop(struct command *command)
{
    mapping_unref(((struct map_again *)command)->mapping);
    object_unhold(command->uses[0]);
}

static const struct command_ops map_again_ops = {
    .type = CL_COMMAND_MAP_BUFFER,
    .size = sizeof(struct map_again),
    .issue = map_again_issue,
    .drop = map_again_drop,
    .reads_to_host = true,
};

static int map_record(const struct command *command, struct command **ret_command, char **ret_bytes,
                      size_t *ret_size)
{
    struct map_again *again = calloc(1, sizeof(*again));
    if (!again)
        return -ENOMEM;
    command_init(&again->base, &map_again_ops, command->queue);
    again->base.uses[0] = command->uses[0];
    again->base.use_count = 1;
    again->mapping = ((const struct map_command *)command)->mapping;
    mapping_ref(again->mapping);
    command_hold_uses(&again->base);
    *ret_command = &again->base;
    *ret_bytes = NULL;
    *ret_size = sizeof(*again);
    return 0;
}

#define MAP_OPS(command_type)                                                                      \
    .type = (command_type), .size = sizeof(struct map_command), .range = map_range
static const struct command_ops map_buffer_ops = {
    MAP_OPS(CL_COMMAND_MAP_BUFFER), .issue = map_issue, .record = map_record, .cancel = map_cancel};
static const struct command_ops map_image_ops = {MAP_OPS(CL_COMMAND_MAP_IMAGE), .issue = map_issue,
                                                 .record = map_record, .cancel = map_cancel};
static const struct command_ops unmap_ops = {
    MAP_OPS(CL_COMMAND_UNMAP_MEM_OBJECT), .issue = map_unmap_issue, .record = map_unmap_record,
    .cancel = map_unmap_cancel,           .ready = map_unmap_ready, .bring = map_unmap_bring};

static struct mapping *map_mapping_create(struct memory *memory, cl_map_flags flags,
                                          const size_t origin[3], const size_t region[3])
{
    struct mapping *mapping = calloc(1, sizeof(*mapping));
    if (!mapping)
        return NULL;
    mapping->refs = 2;
    mapping->memory = memory;
    mapping->flags = flags;
    memcpy(mapping->origin, origin, sizeof(mapping->origin));
    memcpy(mapping->region, region, sizeof(mapping->region));
    mapping->residence_index = RESIDENCE_NONE;
    mapping->pending = true;
    struct range range = {origin[0], origin[0] + region[0]};
    if (memory->image)
        range = image_range(memory->image, origin, region);
    mapping->offset = memory->origin + range.begin;
    mapping->length = range.end - range.begin;
    return mapping;
}

/* Add the mapping, with a host copy that no mover is filling. False without memory. */
static bool map_mapping_add(struct mapping *mapping)
{
    struct memory *root = mapping->memory->root;
    for (;;) {
        gate_enter();
        bool made = memory_host_copy(root, 0) == 0;
        bool linked = made && mapping_link(mapping);
        gate_leave();
        if (linked || !made)
            return linked;
        map_visit_await(root);
    }
}

cl_int map_enqueue(struct queue *queue, struct memory *memory, cl_map_flags flags,
                   const size_t origin[3], const size_t region[3], bool blocking, cl_uint waits,
                   const cl_event *wait_list, cl_event *ret_event, size_t *ret_row_pitch,
                   size_t *ret_slice_pitch, void **ret_pointer)
{
    const struct checked_memory checked = {
        .flags = memory->flags, .size = memory->size, .image = memory->image};
    cl_int error = check_map(checked, origin, region, &flags);
    if (error != CL_SUCCESS)
        return error;
    struct mapping *mapping = map_mapping_create(memory, flags, origin, region);
    if (mapping)
        registered_borrow(memory->root, queue->vdev_index, mapping->length);
    if (!mapping || !map_mapping_add(mapping)) {
        free(mapping);
        return CL_OUT_OF_HOST_MEMORY;
    }
    void *pointer = mapping->pointer;
    registered_map(memory->root, queue->vdev_index, mapping->length);
    struct map_command map = {
        .base = {.ops = memory->image ? &map_image_ops : &map_buffer_ops,
                 .queue = queue,
                 .uses = {memory},
                 .use_count = 1},
        .mapping = mapping,
        .range = map_object_range(mapping),
    };
    error = command_run(&map.base, blocking, waits, wait_list, ret_event);
    if (error != CL_SUCCESS) {
        gate_enter();
        mapping_unlink(mapping);
        gate_leave();
        mapping_settle(mapping);
    }
    mapping_unref(mapping);
    if (error != CL_SUCCESS)
        return error;
    if (memory->image && ret_row_pitch)
        *ret_row_pitch = image_row_answer(memory->image);
    if (memory->image && ret_slice_pitch)
        *ret_slice_pitch = image_slice_argument(memory->image);
    *ret_pointer = pointer;
    return CL_SUCCESS;
}

cl_int map_unmap(struct queue *queue, struct memory *memory, void *pointer, cl_uint waits,
                 const cl_event *wait_list, cl_event *ret_event)
{
    struct mapping *mapping = mapping_close(memory, pointer);
    if (!mapping)
        return CL_INVALID_VALUE;
    struct map_command map = {
        .base = {.ops = &unmap_ops,
                 .queue = queue,
                 .uses = {memory},
                 .use_count = 1,
                 .writes = mapping->flags & WRITE_FLAGS ? 1 : 0},
        .mapping = mapping,
        .range = map_object_range(mapping),
    };
    cl_int error = command_run(&map.base, false, waits, wait_list, ret_event);
    if (error != CL_SUCCESS)
        mapping_reopen(mapping);
    return error;
}
