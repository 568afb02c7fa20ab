#ifndef RESEAT_REMOTE_DRIVER_HANDLE_H
#define RESEAT_REMOTE_DRIVER_HANDLE_H

#include "remote/wire/wire.h"
#include "state/opencl/object_heap.h"

/* The objects behind the program's handles. An object's id is made of its type, and of the index
 * and generation of its slot (object_heap.h). */

struct client;

struct handle_class;

struct handle {
    struct object
        object; /**< First. Its holds are our uses, and one for all the program's references. */
    struct client *client;
    const struct handle_class *class;
    uint64_t id;          /**< In its session. */
    struct handle *later; /**< Of handle_unuse_later(). */
    unsigned owed;
};

/** How objects of a type end. */
struct handle_class {
    size_t size;
    /** The last use is gone: free what the object owns. The object's own memory is kept. */
    void (*finish)(struct handle *handle);
    /** The session has ended: end all waits for the object. NULL: nothing waits for such objects.
     */
    void (*lost)(struct handle *handle);
};

/** Our table of calls (generated from interpose/entry/calls.txt). */
extern const cl_icd_dispatch calls_dispatch;

/** Make an object with one reference, zeroed otherwise. NULL without memory. A type has one class.
 */
void *handle_create(struct client *client, enum id_type type, const struct handle_class *class);
/** The object with that id in @client's session, with a use that the caller gives back. NULL: it
 * has ended, or is of another session. */
void *handle_of_id(const struct client *client, uint64_t id);
/** The program gives a reference back; NULL is allowed, as it is for handle_unuse(). */
void handle_release(void *object);
void handle_unuse(void *object);
/** The same for the receiving thread, which must not wait: a last use is given back on a callback
 * thread. */
void handle_unuse_later(void *object);
/** Call @each for every live object of a type, with a use meanwhile. */
void handle_each(enum id_type type, void (*each)(void *object, void *data), void *data);

static inline void handle_retain(void *object)
{
    atomic_fetch_add(&((struct object *)object)->counts, 1);
}
static inline cl_uint handle_count(const void *object)
{
    return object_refs_of(atomic_load(&((const struct object *)object)->counts));
}
static inline uint64_t handle_id(const void *object)
{
    return object ? ((const struct handle *)object)->id : 0;
}

#endif
