#include "remote/driver/handle.h"

#include <pthread.h>

#include "state/base/threads/callback.h"

/* A server's tables have as many rows as slots are used: few wait here to be used again. */
#define QUARANTINE 64

_Static_assert((unsigned)ID_TYPES <= OBJECT_HEAP_TYPES, "a region each");

void *handle_create(struct client *client, enum id_type type, const struct handle_class *class)
{
    struct handle *handle = object_heap_take(type, class->size, QUARANTINE);
    uintptr_t index = handle ? object_heap_index(handle) : 0;
    if (index >= WIRE_OBJECTS_MAX) {
        object_heap_give(handle);
        return NULL;
    }
    if (!handle)
        return NULL;
    handle->client = client;
    handle->class = class;
    handle->id = id_make(type, atomic_load(&handle->object.generation), (uint32_t)index);
    handle->object.dispatch = &calls_dispatch;
    object_heap_publish(&handle->object, 1);
    return handle;
}

void *handle_of_id(const struct client *client, uint64_t id)
{
    struct object *object = object_heap_at(id_type(id), id_place(id));
    if (!object || !object_hold_if_live(object, handle_unuse_later))
        return NULL;
    struct handle *handle = container_of(object, struct handle, object);
    if (handle->id == id && handle->client == client)
        return handle;
    handle_unuse_later(handle);
    return NULL;
}

void handle_unuse(void *pointer)
{
    struct handle *handle = pointer;
    if (!handle || object_unhold_one(&handle->object) ||
        object_holds_of(atomic_fetch_sub(&handle->object.counts, OBJECT_HOLD)) != 1)
        return;
    atomic_store(&handle->object.state, OBJECT_LEAVING);
    if (handle->class->finish)
        handle->class->finish(handle);
    object_heap_give(handle);
}

void handle_release(void *pointer)
{
    struct handle *handle = pointer;
    if (!handle)
        return;
    uint64_t counts = atomic_load(&handle->object.counts);
    do {
        if (object_refs_of(counts) == 0)
            return; /* two threads of the program released one reference */
    } while (!atomic_compare_exchange_weak(&handle->object.counts, &counts, counts - 1));
    if (object_refs_of(counts) == 1)
        handle_unuse(handle);
}

void handle_each(enum id_type type, void (*each)(void *object, void *data), void *data)
{
    struct object *object;
    for (uintptr_t i = 0; (object = object_heap_at(type, i)); i++)
        if (object_hold_if_live(object, handle_unuse)) {
            each(object, data);
            handle_unuse(object);
        }
}

static void handle_unuse_owed(struct callback_job *job);

static struct {
    pthread_mutex_t lock;
    struct handle *first; /* Guarded by lock, with their `later` and `owed`. */
    struct callback_job job;
    bool posted;
} owed = {.lock = PTHREAD_MUTEX_INITIALIZER, .job = {.run = handle_unuse_owed}};

static void handle_unuse_owed(struct callback_job *job)
{
    (void)job;
    pthread_mutex_lock(&owed.lock);
    owed.posted = false;
    while (owed.first) {
        struct handle *handle = owed.first;
        unsigned count = handle->owed;
        owed.first = handle->later;
        handle->owed = 0;
        pthread_mutex_unlock(&owed.lock);
        while (count--)
            handle_unuse(handle);
        pthread_mutex_lock(&owed.lock);
    }
    pthread_mutex_unlock(&owed.lock);
}

void handle_unuse_later(void *pointer)
{
    struct handle *handle = pointer;
    if (object_unhold_one(&handle->object))
        return; /* Nobody was made to wait, and no thread woken for it. */
    pthread_mutex_lock(&owed.lock);
    if (handle->owed++ == 0) {
        handle->later = owed.first;
        owed.first = handle;
    }
    bool post = !owed.posted;
    owed.posted = true;
    if (post)
        callback_post(&owed.job);
    pthread_mutex_unlock(&owed.lock);
}
