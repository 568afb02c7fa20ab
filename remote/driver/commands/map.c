#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "remote/driver/commands/command.h"
#include "state/opencl/checks.h"

/* Maps. A map is a read into memory of this process, and an unmap of a region that may have been
 * written is a write. The memory is the program's (CL_MEM_USE_HOST_PTR); or ours for the object's
 * life (CL_MEM_ALLOC_HOST_PTR: its maps return the same address each time); or ours for this map
 * alone. */

#define WRITES    (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION)
#define ALIGNMENT 4096

/* The program always has pointers to this driver's maps. */
static const atomic_uint always = 1;

/* A block, which the server shares, if there is one; else memory of this process. */
static void *map_aligned_memory(const struct context *context, size_t size,
                                struct bulk_loan **ret_loan)
{
    void *memory = NULL;
    *ret_loan = block_lend(context->base.client, context->areas_before, size, UINT64_MAX, &always);
    if (*ret_loan)
        return bulk_loan_block(*ret_loan)->bytes;
    return posix_memalign(&memory, ALIGNMENT, size ? size : 1) ? NULL : memory;
}

/* The address of the whole object in this process, for objects that keep one; NULL for others, or
 * without memory. */
static void *map_whole(struct memory *memory)
{
    struct memory *owner = memory;
    if (memory->flags & CL_MEM_USE_HOST_PTR)
        return memory->host;
    if (!(memory->flags & CL_MEM_ALLOC_HOST_PTR))
        return NULL;
    while (owner->parent)
        owner = owner->parent;
    pthread_mutex_lock(&owner->lock);
    if (!owner->host) {
        owner->host = map_aligned_memory(owner->context, owner->size, &owner->host_loan);
        owner->host_owned = owner->host && !owner->host_loan;
    }
    char *host = owner->host;
    pthread_mutex_unlock(&owner->lock);
    return host ? host + memory->origin : NULL;
}

cl_uint map_count(struct memory *memory)
{
    cl_uint count = 0;
    pthread_mutex_lock(&memory->lock);
    for (const struct map *map = memory->maps; map; map = map->next)
        count++;
    pthread_mutex_unlock(&memory->lock);
    return count;
}

/* Memory for a map of @size bytes, at @offset where the whole object has memory. */
static struct map *map_create(struct memory *memory, cl_map_flags flags, size_t offset, size_t size)
{
    struct map *map = calloc(1, sizeof(*map));
    char *host = map ? map_whole(memory) : NULL;
    if (!map)
        return NULL;
    map->flags = flags;
    if (host) {
        map->pointer = host + offset;
    } else {
        map->pointer = map_aligned_memory(memory->context, size, &map->loan);
        map->owned = map->loan ? NULL : map->pointer;
    }
    if (!map->pointer) {
        free(map);
        return NULL;
    }
    return map;
}

/* Put the map on the object's list before its event can end. */
static void map_add(struct memory *memory, struct map *map, struct command *command)
{
    struct event *event = command->event;
    object_hold(event);
    map->event = event;
    event->user_memory = memory->flags & CL_MEM_USE_HOST_PTR;
    if (!(map->flags & CL_MAP_WRITE_INVALIDATE_REGION)) /* Else nothing comes. */
        command_aim(command, map->pointer, &map->layout);
    event->keeps = memory;
    object_hold(memory);
    pthread_mutex_lock(&memory->lock);
    map->next = memory->maps;
    memory->maps = map;
    pthread_mutex_unlock(&memory->lock);
}

static struct map *map_take(struct memory *memory, const void *pointer)
{
    pthread_mutex_lock(&memory->lock);
    struct map **at = &memory->maps;
    while (*at && (*at)->pointer != pointer)
        at = &(*at)->next;
    struct map *map = *at;
    if (map)
        *at = map->next;
    pthread_mutex_unlock(&memory->lock);
    return map;
}

static cl_int map_post(struct memory *memory, const struct map *map, const struct command *command)
{
    if (map->flags & CL_MAP_WRITE_INVALIDATE_REGION)
        return command_post_nothing(command);
    if (memory->type == CL_MEM_OBJECT_BUFFER)
        return POST(memory->base.client, read_buffer,
                    {.command = command->head,
                     .buffer = handle_id(memory),
                     .offset = map->origin[0],
                     .size = map->region[0]});
    return POST(memory->base.client, read_image,
                {.command = command->head,
                 .image = handle_id(memory),
                 .origin = {map->origin[0], map->origin[1], map->origin[2]},
                 .region = {map->region[0], map->region[1], map->region[2]}});
}

/* Takes @map. */
static cl_int map_run(struct queue *queue, struct memory *memory, struct map *map,
                      cl_command_type type, cl_bool blocking, cl_uint count, const cl_event *waits,
                      cl_event *event, void **ret_pointer)
{
    struct command command;
    void *pointer = map->pointer;
    cl_int error = command_begin_transfer(&command, (cl_command_queue)queue, type, blocking, count,
                                          waits, event);
    if (error) {
        map_destroy(map);
        return error;
    }
    map_add(memory, map, &command);
    error = command_end(&command, map_post(memory, map, &command));
    if (error) {
        struct map *mine = map_take(memory, pointer);
        if (mine)
            map_destroy(mine);
    } else {
        *ret_pointer = pointer;
    }
    return error;
}

cl_int map_buffer(struct queue *queue, struct memory *memory, cl_bool blocking, cl_map_flags flags,
                  size_t offset, size_t size, cl_uint count, const cl_event *waits, cl_event *event,
                  void **ret_pointer)
{
    cl_int error = check_map((struct checked_memory){.flags = memory->flags, .size = memory->size},
                             (size_t[]){offset, 0, 0}, (size_t[]){size, 1, 1}, &flags);
    if (error)
        return error;
    struct map *map = map_create(memory, flags, offset, size);
    if (!map)
        return CL_MAP_FAILURE;
    map->origin[0] = offset;
    map->region[0] = size;
    map->layout = (struct layout){size, 1, 1, size, size};
    return map_run(queue, memory, map, CL_COMMAND_MAP_BUFFER, blocking, count, waits, event,
                   ret_pointer);
}

cl_int map_image(struct queue *queue, struct memory *memory, cl_bool blocking, cl_map_flags flags,
                 const size_t *origin, const size_t *region, size_t *ret_row_pitch,
                 size_t *ret_slice_pitch, cl_uint count, const cl_event *waits, cl_event *event,
                 void **ret_pointer)
{
    const struct image_shape *shape = memory->image;
    size_t row = 0, slice = 0, size = 0;
    bool flat = image_slice_argument(shape) == 0;
    if (!origin || !region || !ret_row_pitch || (!flat && !ret_slice_pitch))
        return CL_INVALID_VALUE;
    cl_int error = check_map((struct checked_memory){.flags = memory->flags, .image = shape},
                             origin, region, &flags);
    if (error)
        return error;
    if (memory->flags & (CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR)) {
        row = image_row_answer(shape);
        slice = image_slice_argument(shape);
    }
    const struct layout layout = image_layout(shape, region, row, slice);
    if (!layout_size(&layout, &size))
        return CL_INVALID_VALUE;
    struct map *map = map_create(memory, flags, image_range(shape, origin, region).begin, size);
    if (!map)
        return CL_MAP_FAILURE;
    memcpy(map->origin, origin, sizeof(map->origin));
    memcpy(map->region, region, sizeof(map->region));
    map->layout = layout;
    *ret_row_pitch = row ? row : layout.row;
    /* The layers of a 1D array are what the layout has as rows. */
    bool layered = memory->type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    if (ret_slice_pitch)
        *ret_slice_pitch = flat ? 0 : layered ? layout.row_pitch : layout.slice_pitch;
    return map_run(queue, memory, map, CL_COMMAND_MAP_IMAGE, blocking, count, waits, event,
                   ret_pointer);
}

/* May the program have written the mapped region? Not before the map's command has ended: until
 * then the memory does not even have the device's bytes, unless the map asked for none. */
static bool map_is_written(const struct map *map)
{
    bool invalidated = map->flags & CL_MAP_WRITE_INVALIDATE_REGION;
    return (map->flags & WRITES) &&
           (invalidated || atomic_load(&map->event->status) == CL_COMPLETE);
}

static cl_int map_unmap_post(struct memory *memory, const struct map *map, bool written,
                             struct command *command)
{
    size_t size = 0;
    if (!written)
        return command_post_nothing(command);
    const void *content = NULL;
    void *owned = NULL;
    cl_int error = command_fill(command, map->pointer, &map->layout, &content, &size, &owned);
    if (error == CL_SUCCESS && memory->type == CL_MEM_OBJECT_BUFFER)
        error = POST(memory->base.client, write_buffer,
                     {.command = command->head,
                      .buffer = handle_id(memory),
                      .offset = map->origin[0],
                      .size = size,
                      .content = content,
                      .content_size = content ? size : 0});
    else if (error == CL_SUCCESS)
        error = POST(memory->base.client, write_image,
                     {.command = command->head,
                      .image = handle_id(memory),
                      .origin = {map->origin[0], map->origin[1], map->origin[2]},
                      .region = {map->region[0], map->region[1], map->region[2]},
                      .content = content,
                      .content_size = content ? size : 0});
    free(owned);
    return error;
}

cl_int map_unmap(struct queue *queue, struct memory *memory, void *mapped_ptr, cl_uint count,
                 const cl_event *waits, cl_event *event)
{
    struct command command;
    cl_int error =
        command_begin_transfer(&command, (cl_command_queue)queue, CL_COMMAND_UNMAP_MEM_OBJECT,
                               CL_FALSE, count, waits, event);
    if (error)
        return error;
    struct map *map = mapped_ptr ? map_take(memory, mapped_ptr) : NULL;
    bool written = map && map_is_written(map);
    if (map) {
        /* The loan is the source of the write, or the map's read may still be filling it: the event
         * of the command that uses it returns it. */
        event_keep_loan(written ? command.event : map->event, map->loan);
        map->loan = NULL;
    }
    error = map ? map_unmap_post(memory, map, written, &command) : CL_INVALID_VALUE;
    error = command_end(&command, error);
    if (map) {
        map->event->owned = map->owned;
        map->owned = NULL;
        map_destroy(map);
    }
    return error;
}
