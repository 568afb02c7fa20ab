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
