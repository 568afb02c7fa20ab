#ifndef RESEAT_REMOTE_DRIVER_HANDLE_H
#define RESEAT_REMOTE_DRIVER_HANDLE_H

#include <CL/cl_icd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "remote/wire/wire.h"
#include "state/base/compiler.h"

/* The objects behind the program's handles. The memory of an object is reused only for objects of
 * its type, so that a released handle is recognised. */

struct client;

struct object_class;

struct object {
    const cl_icd_dispatch *dispatch; /**< First: loaders look here. */
    struct client *client;
    const struct object_class *class;
    uint64_t id;            /**< In its session. */
    _Atomic uint32_t type;  /**< enum id_type; ID_NONE: free. */
    atomic_uint references; /**< The program's. */
    atomic_uint uses;       /**< Ours, and one for the program's. */
    struct object *later;   /**< Of handle_unuse_later(). */
    unsigned owed;
};

/** What is done at the end of an object of a type. */
struct object_class {
    size_t size;
    /** The last use is gone: free what the object owns. The object's own memory is kept. */
    void (*finish)(struct object *object);
    /** The session has ended: end what waits for the object. NULL: nothing can. */
    void (*lost)(struct object *object);
};

/** Our table of calls (dispatch.c, generated). */
extern const cl_icd_dispatch calls_dispatch;

/**
 * A new one with one reference, zeroed otherwise; NULL without memory. A type has one class.
 */
void *handle_create(struct client *client, enum id_type type, const struct object_class *class);
/** The object of a handle, or NULL. */
void *handle_get(const void *handle, enum id_type type);
/** Is @handle a live object of the type? It may be any number: it is not followed. */
bool handle_known(const void *handle, enum id_type type);
/** The object with that id in @client's session, with a use that the caller gives back. NULL: it
 * has ended, or is of another session. */
void *handle_of_id(const struct client *client, uint64_t id);
void handle_retain(void *object);
/** The program gives a reference back. */
void handle_release(void *object);
void handle_use(void *object);
void handle_unuse(void *object);
/** The same for the receiving thread, which must not wait: a last use is given back on a callback
 * thread. */
void handle_unuse_later(void *object);
/** Call @each for every live object of a type, with a use meanwhile. */
void handle_each(enum id_type type, void (*each)(void *object, void *data), void *data);

static inline cl_uint handle_count(const void *object)
{
    return atomic_load(&((const struct object *)object)->references);
}
static inline uint64_t handle_id(const void *object)
{
    return object ? ((const struct object *)object)->id : 0;
}

#endif
