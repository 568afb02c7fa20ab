#include "remote/driver/handle.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/threads/callback.h"
#include "state/base/threads/fork.h"

struct place {
    struct object *object;
    uint32_t generation;
    uint32_t next_free; /* Its index and one; 0: none. */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct place *places;
    uint32_t count, room, free;
} tables[ID_TYPES]; /* guarded by lock */

FORK_PART = {.rank = FORK_TABLE, .lock = &lock};

/* A place that nothing uses, with memory for an object. Under the lock. */
static struct place *handle_take_place(enum id_type type, size_t size, uint32_t *ret_index)
{
    uint32_t index = tables[type].free;
    if (index) {
        struct place *place = &tables[type].places[index - 1];
        tables[type].free = place->next_free;
        *ret_index = index - 1;
        return place;
    }
    index = tables[type].count;
    if (index == tables[type].room) {
        uint32_t room = index ? 2 * index : 64;
        struct place *places = room <= WIRE_OBJECTS_MAX
                                   ? reallocarray(tables[type].places, room, sizeof(*places))
                                   : NULL;
        if (!places)
            return NULL;
        tables[type].places = places;
        tables[type].room = room;
    }
    struct place *place = &tables[type].places[index];
    *place = (struct place){.object = calloc(1, size)};
    if (!place->object)
        return NULL;
    tables[type].count++;
    *ret_index = index;
    return place;
}

void *handle_create(struct client *client, enum id_type type, const struct object_class *class)
{
    uint32_t index = 0;
    pthread_mutex_lock(&lock);
    struct place *place = handle_take_place(type, class->size, &index);
    struct object *object = place ? place->object : NULL;
    if (place) {
        object->client = client;
        object->class = class;
        object->id = id_make(type, place->generation, index);
        object->dispatch = &calls_dispatch;
        atomic_store(&object->references, 1);
        atomic_store(&object->uses, 1);
        atomic_store(&object->type, type);
    }
    pthread_mutex_unlock(&lock);
    return object;
}

void *handle_get(const void *handle, enum id_type type)
{
    struct object *object = (struct object *)handle;
    if (!object || (uintptr_t)object % _Alignof(struct object) != 0 ||
        atomic_load(&object->type) != (uint32_t)type || atomic_load(&object->references) == 0)
        return NULL;
    return object;
}

void *handle_of_id(const struct client *client, uint64_t id)
{
    enum id_type type = id_type(id);
    struct object *object = NULL;
    pthread_mutex_lock(&lock);
    if (id_place(id) < tables[type].count) {
        object = tables[type].places[id_place(id)].object;
        if (atomic_load(&object->type) == ID_NONE || object->id != id || object->client != client)
            object = NULL;
    }
    if (object)
        handle_use(object);
    pthread_mutex_unlock(&lock);
    return object;
}

void handle_use(void *pointer)
{
    atomic_fetch_add(&((struct object *)pointer)->uses, 1);
}

/* Unless it is the last one. */
static bool handle_unuse_one(struct object *object)
{
    unsigned uses = atomic_load(&object->uses);
    while (uses > 1)
        if (atomic_compare_exchange_weak(&object->uses, &uses, uses - 1))
            return true;
    return false;
}

void handle_unuse(void *pointer)
{
    struct object *object = pointer;
    if (handle_unuse_one(object))
        return;
    enum id_type type = id_type(object->id);
    /* The last use goes under the lock, so that no id leads to what ends. */
    pthread_mutex_lock(&lock);
    bool last = atomic_fetch_sub(&object->uses, 1) == 1;
    if (last)
        atomic_store(&object->type, ID_NONE);
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    const struct object_class *class = object->class;
    if (class->finish)
        class->finish(object);
    pthread_mutex_lock(&lock);
    uint32_t index = id_place(object->id);
    struct place *place = &tables[type].places[index];
    memset(object, 0, class->size);
    object->dispatch = &calls_dispatch; /* Who has it still is told that it is none any more. */
    place->generation++;
    place->next_free = tables[type].free;
    tables[type].free = index + 1;
    pthread_mutex_unlock(&lock);
}

void handle_retain(void *pointer)
{
    atomic_fetch_add(&((struct object *)pointer)->references, 1);
}

void handle_release(void *pointer)
{
    struct object *object = pointer;
    if (atomic_fetch_sub(&object->references, 1) == 1)
        handle_unuse(object);
}

void handle_each(enum id_type type, void (*each)(void *object, void *data), void *data)
{
    for (uint32_t i = 0;; i++) {
        pthread_mutex_lock(&lock);
        bool more = i < tables[type].count;
        struct object *object = more ? tables[type].places[i].object : NULL;
        if (object && atomic_load(&object->type) == ID_NONE)
            object = NULL;
        if (object)
            handle_use(object);
        pthread_mutex_unlock(&lock);
        if (!more)
            return;
        if (object) {
            each(object, data);
            handle_unuse(object);
        }
    }
}

static void handle_unuse_owed(struct callback_job *job);

static struct {
    pthread_mutex_t lock;
    struct object *first; /* Guarded by lock, with their `later` and `owed`. */
    struct callback_job job;
    bool posted;
} owed = {.lock = PTHREAD_MUTEX_INITIALIZER, .job = {.run = handle_unuse_owed}};

static void handle_unuse_owed(struct callback_job *job)
{
    (void)job;
    pthread_mutex_lock(&owed.lock);
    owed.posted = false;
    while (owed.first) {
        struct object *object = owed.first;
        unsigned count = object->owed;
        owed.first = object->later;
        object->owed = 0;
        pthread_mutex_unlock(&owed.lock);
        while (count--)
            handle_unuse(object);
        pthread_mutex_lock(&owed.lock);
    }
    pthread_mutex_unlock(&owed.lock);
}

void handle_unuse_later(void *pointer)
{
    struct object *object = pointer;
    if (handle_unuse_one(object))
        return; /* Nobody was made to wait, and no thread woken for it. */
    pthread_mutex_lock(&owed.lock);
    if (object->owed++ == 0) {
        object->later = owed.first;
        owed.first = object;
    }
    bool post = !owed.posted;
    owed.posted = true;
    if (post)
        callback_post(&owed.job);
    pthread_mutex_unlock(&owed.lock);
}

bool handle_known(const void *handle, enum id_type type)
{
    bool known = false;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; handle && !known && i < tables[type].count; i++)
        known = tables[type].places[i].object == handle && handle_get(handle, type);
    pthread_mutex_unlock(&lock);
    return known;
}
