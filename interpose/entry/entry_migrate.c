#include <stdlib.h>
#include <string.h>

#include "interpose/entry/entry.h"
#include "state/command/command.h"
#include "state/opencl/checks.h"

/*
 * clEnqueueMigrateMemObjects (5.5.4): a hint about where bytes should be. We bring the objects up
 * to date where the queue is, and pass the hint on.
 */

#define ON_STACK 32

struct migration {
    struct command base;
    cl_mem_migration_flags flags;
    cl_uint count;
    struct memory *const *objects; /* The program's list: handles are the objects' addresses. */
};

static struct memory *entry_migrate_migration_more(const struct command *base, unsigned *cursor,
                                                   bool *ret_writes)
{
    const struct migration *migration = (const struct migration *)base;
    if (*cursor >= migration->count)
        return NULL;
    *ret_writes = false;
    return migration->objects[(*cursor)++];
}

static cl_int entry_migrate_migration_issue(struct command *base, struct residence *residence,
                                            uint8_t residence_index, cl_command_queue queue,
                                            cl_uint waits, const cl_event *wait_list,
                                            cl_event *ret_event)
{
    const struct migration *migration = (const struct migration *)base;
    if (!residence->cl->clEnqueueMigrateMemObjects)
        return CL_INVALID_OPERATION;
    cl_mem on_stack[ON_STACK] = {NULL};
    cl_mem *real = on_stack;
    if (migration->count > ON_STACK) {
        real = calloc(migration->count, sizeof(*real));
        if (!real)
            return CL_OUT_OF_HOST_MEMORY;
    }
    for (cl_uint i = 0; i < migration->count; i++)
        real[i] = migration->objects[i]->real[residence_index];
    /* The flag for undefined content is not passed on: other replicas of the same version have the
     * bytes, and this one must have the same. */
    cl_mem_migration_flags flags = migration->flags & CL_MIGRATE_MEM_OBJECT_HOST;
    cl_int error = residence->cl->clEnqueueMigrateMemObjects(queue, migration->count, real, flags,
                                                             waits, wait_list, ret_event);
    if (real != on_stack)
        free(real);
    return error;
}

static cl_int entry_migrate_migration_defer(struct command *base)
{
    struct migration *migration = (struct migration *)base;
    struct memory **copy = calloc(migration->count, sizeof(struct memory *));
    if (!copy)
        return CL_OUT_OF_HOST_MEMORY;
    for (cl_uint i = 0; i < migration->count; i++) {
        copy[i] = migration->objects[i];
        object_hold(copy[i]);
    }
    migration->objects = copy;
    return CL_SUCCESS;
}

static void entry_migrate_migration_drop(struct command *base)
{
    struct migration *migration = (struct migration *)base;
    for (cl_uint i = 0; i < migration->count; i++)
        object_unhold(migration->objects[i]);
    free((void *)(uintptr_t)migration->objects);
}

static const struct command_ops migration_ops = {
    .type = CL_COMMAND_MIGRATE_MEM_OBJECTS,
    .size = sizeof(struct migration),
    .issue = entry_migrate_migration_issue,
    .defer = entry_migrate_migration_defer,
    .drop = entry_migrate_migration_drop,
};

static const void *entry_migrate_context_of(cl_mem handle)
{
    const struct memory *memory = memory_get(handle);
    return memory ? memory->context : NULL;
}

cl_int queue_migrate(struct queue *queue, cl_uint num_mem_objects, const cl_mem *mem_objects,
                     cl_mem_migration_flags flags, cl_uint num_events_in_wait_list,
                     const cl_event *event_wait_list, cl_event *event)
{
    cl_int error = check_migration(num_mem_objects, mem_objects, flags, queue->context,
                                   entry_migrate_context_of);
    if (error)
        return error;
    struct migration migration = {
        .base = {.ops = &migration_ops, .queue = queue, .more = entry_migrate_migration_more},
        .flags = flags,
        .count = num_mem_objects,
        .objects = (struct memory *const *)mem_objects,
    };
    return command_run(&migration.base, false, num_events_in_wait_list, event_wait_list, event);
}
