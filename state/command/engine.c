#include "state/command/command.h"
#include "state/command/event.h"

/* What the other files of this folder share; uses none of them. */

pthread_mutex_t engine_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t engine_changed = PTHREAD_COND_INITIALIZER;

struct memory *command_use_more(const struct command *command, unsigned *cursor, bool *ret_writes)
{
    *cursor -= command->use_count; /* `more` counts from the first object that is not in uses[] */
    struct memory *memory = command->more(command, cursor, ret_writes);
    *cursor += command->use_count;
    return memory;
}

void command_hold_uses(const struct command *command)
{
    for (unsigned i = 0; i < command->use_count; i++)
        object_hold(command->uses[i]);
}

cl_int command_defer(struct command *command)
{
    if (command->ops->defer)
        return command->ops->defer(command);
    command_hold_uses(command);
    return CL_SUCCESS;
}

void command_drop(struct command *command)
{
    if (command->ops->drop)
        command->ops->drop(command);
    else
        for (unsigned i = 0; i < command->use_count; i++)
            object_unhold(command->uses[i]);
}

struct range command_range(const struct command *command, unsigned use, const struct memory *memory)
{
    size_t left = memory->root->size - memory->origin;
    struct range range = {0, memory->size};
    if (command->ops->range)
        command->ops->range(command, use, &range);
    if (range.end > left) /* the padding of a view's last row may lie outside the root */
        range.end = left;
    return (struct range){memory->origin + range.begin, memory->origin + range.end};
}
