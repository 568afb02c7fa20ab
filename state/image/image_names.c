#include "state/image/image_graph.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"
#include "state/base/bytes/text.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/gate.h"

struct named {
    struct object_weak root; /* it may have been released since */
    char *name;              /* owned */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by lock. */
static struct named *all;
static size_t count;

FORK_PART = {.rank = FORK_TABLE, .lock = &lock};

bool name_is_valid(const char *name)
{
    size_t length = name ? strnlen(name, IMAGE_OBJECT_NAME_MAX + 1) : 0;
    return length && length <= IMAGE_OBJECT_NAME_MAX && text_is_safe(name, length);
}

/* The object, if it is alive; or NULL. Inside the gate, or gate closed. */
static const struct memory *names_living(const struct named *named)
{
    const struct memory *root = object_weak_get(named->root);
    return root && object_refs(root) != 0 ? root : NULL;
}

/* Lock held, inside the gate. */
static bool names_is_taken(const struct memory *root, const char *name)
{
    bool taken = false;
    for (size_t i = 0; i < count && !taken; i++) {
        const struct memory *other = names_living(&all[i]);
        taken = other && other != root && strcmp(all[i].name, name) == 0;
    }
    return taken;
}

bool names_taken(const struct memory *root, const char *name)
{
    gate_enter();
    pthread_mutex_lock(&lock);
    bool taken = names_is_taken(root, name);
    pthread_mutex_unlock(&lock);
    gate_leave();
    return taken;
}

/* Drop the names of destroyed objects and of @root. Lock held, inside the gate. */
static void names_forget(const struct memory *root)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const struct memory *other = names_living(&all[i]);
        if (other && other != root)
            all[kept++] = all[i];
        else
            free(all[i].name);
    }
    count = kept;
}

int names_set(struct memory *root, const char *name)
{
    char *copy = strdup(name);
    if (!copy)
        return -ENOMEM;
    gate_enter();
    pthread_mutex_lock(&lock);
    int error = names_is_taken(root, name)                    ? -EEXIST
                : !array_make_room(&all, count, sizeof(*all)) ? -ENOMEM
                                                              : 0;
    if (!error) {
        names_forget(root);
        all[count++] = (struct named){object_weak(root), copy};
        copy = NULL;
    }
    pthread_mutex_unlock(&lock);
    gate_leave();
    free(copy);
    return error;
}

int names_describe(struct image_manifest *manifest)
{
    int error = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count && !error; i++) {
        const struct memory *root = names_living(&all[i]);
        struct image_record *record = root ? image_manifest_add(manifest, IMAGE_NAME) : NULL;
        if (!root)
            continue;
        error = record && (record->name->name = strdup(all[i].name)) ? 0 : -ENOMEM;
        if (!error)
            record->name->id = (uintptr_t)root;
    }
    pthread_mutex_unlock(&lock);
    return error;
}
