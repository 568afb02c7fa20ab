#include "state/move/move_priv.h"

static struct move_context *move_walk_entry_of(const struct move *move,
                                               const struct object_class *class,
                                               const struct object *object)
{
    struct context *const *context =
        (struct context *const *)(const void *)((const char *)object + class->context);
    for (size_t i = 0; i < move->context_count; i++)
        if (move->contexts[i].context == *context)
            return &move->contexts[i];
    return NULL;
}

/* Those made from others of their type, or the others. */
static int move_walk_class(struct move *move, const struct move_walk *walk,
                           const struct object_class *class, bool parts)
{
    uintptr_t cursor = 0;
    struct object *object;
    int error = 0;
    while (error == 0 && (object = object_next(class->type, &cursor))) {
        struct move_context *entry = move_walk_entry_of(move, class, object);
        if (entry && (!class->is_part || class->is_part(object) == parts))
            error = walk->act(move, class, object, entry);
        object_unhold(object);
    }
    return error;
}

int move_walk(struct move *move, const struct move_walk *walk)
{
    int error = 0;
    for (int i = 1; error == 0 && i < OBJECT_TYPES; i++) {
        const struct object_class *class = object_classes[walk->back ? OBJECT_TYPES - i : i];
        if (!class || !class->release || (walk->takes && !walk->takes(class)))
            continue;
        error = move_walk_class(move, walk, class, walk->back);
        if (error == 0 && class->is_part)
            error = move_walk_class(move, walk, class, !walk->back);
    }
    return error;
}
