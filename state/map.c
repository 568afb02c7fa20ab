#include "state/map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WRITE_FLAGS (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION)

/* Guards every root's list of mappings. Nothing else is locked under it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct map_command {
    struct command base;
    struct mapping *mapping;
    bool unmap;
};

static bool is_native(const struct map_command *map, uint8_t place)
{
    return (map->mapping->memory->root->backed & (1u << place)) != 0;
}

/* The real object that has the window's address: the root. */
static cl_int map_native(struct mapping *mapping, struct residence *residence, uint8_t place,
                         cl_command_queue queue, cl_map_flags flags, cl_uint waits,
                         const cl_event *wait_list, cl_event *ret_event)
{
    cl_int error;
    void *pointer = residence->cl->clEnqueueMapBuffer(
        queue, mapping->memory->root->real[place], CL_FALSE, flags, mapping->offset,
        mapping->length, waits, wait_list, ret_event, &error);
    return pointer ? CL_SUCCESS : error;
}

static cl_int read_region(const struct map_command *map, struct residence *residence, uint8_t place,
                          cl_command_queue queue, cl_uint waits, const cl_event *wait_list,
                          cl_event *ret_event)
{
    const struct mapping *m = map->mapping;
    const struct memory *memory = m->memory;
    if (!memory->image)
        return residence->cl->clEnqueueReadBuffer(queue, memory->real[place], CL_FALSE,
                                                  m->origin[0], m->region[0], m->pointer, waits,
                                                  wait_list, ret_event);
    return residence->cl->clEnqueueReadImage(
        queue, memory->real[place], CL_FALSE, m->origin, m->region, memory->image->row_pitch,
        image_slice_argument(memory->image), m->pointer, waits, wait_list, ret_event);
}

static cl_int write_region(const struct map_command *map, struct residence *residence,
                           uint8_t place, cl_command_queue queue, cl_uint waits,
                           const cl_event *wait_list, cl_event *ret_event)
{
    const struct mapping *m = map->mapping;
    const struct memory *memory = m->memory;
    if (!memory->image)
        return residence->cl->clEnqueueWriteBuffer(queue, memory->real[place], CL_FALSE,
                                                   m->origin[0], m->region[0], m->pointer, waits,
                                                   wait_list, ret_event);
    return residence->cl->clEnqueueWriteImage(
        queue, memory->real[place], CL_FALSE, m->origin, m->region, memory->image->row_pitch,
        image_slice_argument(memory->image), m->pointer, waits, wait_list, ret_event);
}

static cl_int map_issue(struct command *command, struct residence *residence, uint8_t place,
                        cl_command_queue queue, cl_uint waits, const cl_event *wait_list,
                        cl_event *ret_event)
{
    struct map_command *map = (struct map_command *)command;
    cl_int error;
    if (is_native(map, place))
        error = map_native(map->mapping, residence, place, queue, map->mapping->flags, waits,
                           wait_list, ret_event);
    else if (map->mapping->flags & CL_MAP_WRITE_INVALIDATE_REGION)
        error = residence->cl->clEnqueueMarkerWithWaitList(queue, waits, wait_list, ret_event);
    else
        error = read_region(map, residence, place, queue, waits, wait_list, ret_event);
    if (error == CL_SUCCESS) {
        pthread_mutex_lock(&lock);
        map->mapping->native = is_native(map, place);
        map->mapping->pending = false;
        pthread_mutex_unlock(&lock);
    }
    return error;
}

/* Inside the gate: a mover, who has it closed, walks the list without the lock. */
static void mapping_remove(struct mapping *mapping)
{
    gate_enter();
    pthread_mutex_lock(&lock);
    struct mapping **link = &mapping->memory->root->mappings;
    while (*link != mapping)
        link = &(*link)->next;
    *link = mapping->next;
    pthread_mutex_unlock(&lock);
    gate_leave();
    atomic_fetch_sub_explicit(&mapping->memory->map_count, 1, memory_order_relaxed);
    free(mapping);
}

static cl_int unmap_issue(struct command *command, struct residence *residence, uint8_t place,
                          cl_command_queue queue, cl_uint waits, const cl_event *wait_list,
                          cl_event *ret_event)
{
    struct map_command *map = (struct map_command *)command;
    cl_int error;
    if (map->mapping->native)
        error = residence->cl->clEnqueueUnmapMemObject(
            queue, map->mapping->memory->root->real[place],
            map->mapping->memory->root->window->bytes + map->mapping->offset, waits, wait_list,
            ret_event);
    else if (map->mapping->flags & WRITE_FLAGS)
        error = write_region(map, residence, place, queue, waits, wait_list, ret_event);
    else
        error = residence->cl->clEnqueueMarkerWithWaitList(queue, waits, wait_list, ret_event);
    if (error == CL_SUCCESS)
        mapping_remove(map->mapping);
    return error;
}

static cl_int map_defer(struct command *command)
{
    object_hold(command->uses[0]);
    return CL_SUCCESS;
}

static void map_drop(struct command *command)
{
    object_unhold(command->uses[0]);
}

/* What it waited for failed: a map never came about, and what was to be unmapped is given up. */
static void map_cancel(struct command *command)
{
    mapping_remove(((struct map_command *)command)->mapping);
}

static const struct command_ops map_buffer_ops = {
    .type = CL_COMMAND_MAP_BUFFER,
    .size = sizeof(struct map_command),
    .issue = map_issue,
    .defer = map_defer,
    .drop = map_drop,
    .cancel = map_cancel,
};
static const struct command_ops map_image_ops = {
    .type = CL_COMMAND_MAP_IMAGE,
    .size = sizeof(struct map_command),
    .issue = map_issue,
    .defer = map_defer,
    .drop = map_drop,
    .cancel = map_cancel,
};
static const struct command_ops unmap_ops = {
    .type = CL_COMMAND_UNMAP_MEM_OBJECT,
    .size = sizeof(struct map_command),
    .issue = unmap_issue,
    .defer = map_defer,
    .drop = map_drop,
    .cancel = map_cancel,
};

/* 5.2.4 and 5.3.3: flags, and the region within the object. */
static cl_int map_check(const struct memory *memory, cl_map_flags flags, const size_t origin[3],
                        const size_t region[3])
{
    const cl_map_flags all = CL_MAP_READ | WRITE_FLAGS;
    if ((flags & ~all) != 0 || flags == 0 ||
        ((flags & CL_MAP_WRITE_INVALIDATE_REGION) && (flags & (CL_MAP_READ | CL_MAP_WRITE))))
        return CL_INVALID_VALUE;
    for (int i = 0; i < 3; i++) {
        size_t extent = memory->image ? memory->image->dims[i] : i == 0 ? memory->size : 1;
        if (region[i] == 0 || origin[i] > extent || region[i] > extent - origin[i])
            return CL_INVALID_VALUE;
    }
    cl_mem_flags denied_read = CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS;
    cl_mem_flags denied_write = CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS;
    if (((flags & CL_MAP_READ) && (memory->flags & denied_read)) ||
        ((flags & WRITE_FLAGS) && (memory->flags & denied_write)))
        return CL_INVALID_OPERATION;
    return CL_SUCCESS;
}

static struct mapping *mapping_create(struct memory *memory, cl_map_flags flags,
                                      const size_t origin[3], const size_t region[3])
{
    struct memory *root = memory->root;
    if (memory_window(root) != 0)
        return NULL;
    struct mapping *mapping = calloc(1, sizeof(*mapping));
    if (!mapping)
        return NULL;
    mapping->memory = memory;
    mapping->flags = flags;
    memcpy(mapping->origin, origin, sizeof(mapping->origin));
    memcpy(mapping->region, region, sizeof(mapping->region));
    mapping->pending = true;
    const struct image_shape *image = memory->image;
    if (image) {
        size_t element = image->element_size;
        mapping->offset = memory->origin + origin[2] * image->slice_pitch +
                          origin[1] * image->row_pitch + origin[0] * element;
        mapping->length = (region[2] - 1) * image->slice_pitch +
                          (region[1] - 1) * image->row_pitch + region[0] * element;
    } else {
        mapping->offset = memory->origin + origin[0];
        mapping->length = region[0];
    }
    mapping->pointer = root->window->bytes + mapping->offset;
    atomic_fetch_add_explicit(&memory->map_count, 1, memory_order_relaxed);
    pthread_mutex_lock(&lock);
    mapping->next = root->mappings;
    root->mappings = mapping;
    pthread_mutex_unlock(&lock);
    return mapping;
}

cl_int map_enqueue(struct queue *queue, struct memory *memory, cl_map_flags flags,
                   const size_t origin[3], const size_t region[3], bool blocking, cl_uint waits,
                   const cl_event *wait_list, cl_event *ret_event, size_t *ret_row_pitch,
                   size_t *ret_slice_pitch, void **ret_pointer)
{
    cl_int error = map_check(memory, flags, origin, region);
    if (error != CL_SUCCESS)
        return error;
    /* The window may be made here: not while a mover looks at it. */
    gate_enter();
    struct mapping *mapping = mapping_create(memory, flags, origin, region);
    gate_leave();
    if (!mapping)
        return CL_OUT_OF_HOST_MEMORY;
    void *pointer = mapping->pointer;
    struct map_command map = {
        .base = {.ops = memory->image ? &map_image_ops : &map_buffer_ops,
                 .queue = queue,
                 .uses = {memory},
                 .use_count = 1},
        .mapping = mapping,
    };
    error = command_run(&map.base, blocking, waits, wait_list, ret_event);
    if (error != CL_SUCCESS && error != CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
        mapping_remove(mapping);
    if (error != CL_SUCCESS)
        return error;
    if (memory->image && ret_row_pitch)
        *ret_row_pitch = memory->image->row_pitch;
    if (memory->image && ret_slice_pitch)
        *ret_slice_pitch = image_slice_argument(memory->image);
    *ret_pointer = pointer;
    return CL_SUCCESS;
}

cl_int map_unmap(struct queue *queue, struct memory *memory, void *pointer, cl_uint waits,
                 const cl_event *wait_list, cl_event *ret_event)
{
    struct mapping *mapping;
    pthread_mutex_lock(&lock);
    for (mapping = memory->root->mappings; mapping; mapping = mapping->next)
        if (mapping->memory == memory && mapping->pointer == pointer && !mapping->closing)
            break;
    if (mapping)
        mapping->closing = true;
    pthread_mutex_unlock(&lock);
    if (!mapping)
        return CL_INVALID_VALUE;
    struct map_command map = {
        .base = {.ops = &unmap_ops,
                 .queue = queue,
                 .uses = {memory},
                 .use_count = 1,
                 .writes = mapping->flags & WRITE_FLAGS ? 1 : 0},
        .mapping = mapping,
    };
    cl_int error = command_run(&map.base, false, waits, wait_list, ret_event);
    if (error != CL_SUCCESS) {
        pthread_mutex_lock(&lock);
        mapping->closing = false;
        pthread_mutex_unlock(&lock);
    }
    return error;
}

bool map_any(struct memory *root)
{
    pthread_mutex_lock(&lock);
    bool any = root->mappings != NULL;
    pthread_mutex_unlock(&lock);
    return any;
}

void map_forget(struct memory *root)
{
    while (root->mappings) {
        struct mapping *next = root->mappings->next;
        free(root->mappings);
        root->mappings = next;
    }
}

bool map_written(struct memory *root)
{
    pthread_mutex_lock(&lock);
    bool written = false;
    for (struct mapping *m = root->mappings; m; m = m->next)
        written = written || (!m->pending && (m->flags & WRITE_FLAGS));
    pthread_mutex_unlock(&lock);
    return written;
}

cl_int map_leave(struct memory *root, struct residence *residence, uint8_t place)
{
    for (struct mapping *m = root->mappings; m; m = m->next) {
        if (m->pending || !m->native)
            continue;
        cl_int error =
            residence_unmap(residence, root->real[place], root->window->bytes + m->offset);
        if (error != CL_SUCCESS)
            return error;
    }
    return CL_SUCCESS;
}

cl_int map_arrive(struct memory *root, struct residence *residence, uint8_t place)
{
    if (!(root->backed & (1u << place)))
        return CL_SUCCESS;
    for (struct mapping *m = root->mappings; m; m = m->next) {
        if (m->pending)
            continue;
        /* Invalidating, even for a map to read and write: the host's bytes must not be replaced. */
        cl_map_flags flags = m->flags & WRITE_FLAGS ? CL_MAP_WRITE_INVALIDATE_REGION : CL_MAP_READ;
        cl_int error = map_native(m, residence, place, residence->io, flags, 0, NULL, NULL);
        if (error != CL_SUCCESS)
            return error;
    }
    return CL_SUCCESS;
}

void map_moved(struct memory *root, uint8_t place)
{
    for (struct mapping *m = root->mappings; m; m = m->next)
        if (!m->pending)
            m->native = place != PLACE_HOST && (root->backed & (1u << place)) != 0;
}

/* The first byte at or after @at that mapping @m covers, and where that run ends. */
static bool next_run(const struct mapping *m, size_t at, size_t *ret_from, size_t *ret_to)
{
    const struct image_shape *image = m->memory->image;
    if (!image) {
        *ret_from = m->offset > at ? m->offset : at;
        *ret_to = m->offset + m->length;
        return *ret_from < *ret_to;
    }
    size_t row = m->region[0] * image->element_size;
    for (size_t z = 0; z < m->region[2]; z++)
        for (size_t y = 0; y < m->region[1]; y++) {
            size_t from = m->offset + z * image->slice_pitch + y * image->row_pitch;
            if (from + row <= at)
                continue;
            *ret_from = from > at ? from : at;
            *ret_to = from + row;
            return true;
        }
    return false;
}

int map_each_gap(struct memory *root, int (*copy)(void *data, size_t from, size_t to), void *data)
{
    size_t at = 0;
    while (at < root->size) {
        size_t from = root->size, to = from;
        for (struct mapping *m = root->mappings; m; m = m->next) {
            size_t run_from, run_to;
            if (!m->pending && next_run(m, at, &run_from, &run_to) && run_from < from) {
                from = run_from;
                to = run_to;
            }
        }
        if (from > at) {
            int error = copy(data, at, from);
            if (error != 0)
                return error;
        }
        at = to > at ? to : root->size;
    }
    return 0;
}
