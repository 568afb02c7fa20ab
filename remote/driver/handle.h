#ifndef RESEAT_REMOTE_DRIVER_HANDLE_H
#define RESEAT_REMOTE_DRIVER_HANDLE_H

#include <CL/cl_icd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "remote/wire/wire.h"
#include "state/base/compiler.h"

/*
 * What the program's handles point to. An object's memory is used again for objects of its type and
 * for nothing else, so that a handle that was released is recognised.
 */

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

/** How a type's objects end. */
struct object_class {
    size_t size;
    /** Nothing uses it any more: give up what it has. Its memory stays. */
    void (*finish)(struct object *object);
    /** Its session has ended: tell who waits for it. NULL: nobody does. */
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
/** Is it a handle at all? It may be any number. */
bool handle_known(const void *handle, enum id_type type);
/** The object of an id of @client's, with a use that the caller gives back; NULL: it is gone, or
 *  another server's. */
void *handle_of_id(const struct client *client, uint64_t id);
void handle_retain(void *object);
/** The program gives a reference back. */
void handle_release(void *object);
void handle_use(void *object);
void handle_unuse(void *object);
/** The same, soon, in a thread of callbacks: for who receives, whom nothing may make wait. */
void handle_unuse_later(void *object);
/** Call @each for all objects of a type in use, with a use meanwhile. */
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
