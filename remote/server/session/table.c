#include <stdlib.h>
#include <string.h>

#include "remote/server/session/pacing.h"
#include "remote/server/session/pending.h"
#include "remote/server/session/server.h"

/*
 * The tables of a session's objects. The client chooses each object's index in its table.
 */

void server_wrong(struct server *server, const char *why)
{
    if (!server->wrong)
        server->wrong = why;
}

struct entry *server_find(struct server *server, uint64_t id)
{
    struct table *table = &server->tables[id_type(id)];
    if (id_place(id) >= table->room || table->entries[id_place(id)].id != id) {
        server_wrong(server, "it used an unknown object");
        return NULL;
    }
    return &table->entries[id_place(id)];
}

static bool table_grow(struct table *table, uint32_t place)
{
    uint32_t room = table->room ? table->room : 64;
    while (room <= place)
        room *= 2; /* Stays within WIRE_OBJECTS_MAX, a power of two that bounds `place`. */
    struct entry *entries = calloc(room, sizeof(*entries));
    if (!entries)
        return false;
    if (table->room)
        memcpy(entries, table->entries, table->room * sizeof(*entries));
    free(table->entries);
    table->entries = entries;
    table->room = room;
    return true;
}

struct entry *server_add(struct server *server, uint64_t id)
{
    struct table *table = &server->tables[id_type(id)];
    if (id_place(id) >= table->room && !table_grow(table, id_place(id))) {
        server_wrong(server, "out of memory for its objects");
        return NULL;
    }
    struct entry *entry = &table->entries[id_place(id)];
    if (entry->id) {
        server_wrong(server, "it used an object's id twice");
        return NULL;
    }
    *entry = (struct entry){.id = id};
    return entry;
}

struct entry *server_add_to(struct server *server, uint64_t id, uint64_t context)
{
    const struct entry *of = server_find(server, context);
    struct entry *entry = of ? server_add(server, id) : NULL;
    if (!entry)
        return NULL;
    entry->cl = of->cl;
    entry->context = of->context;
    entry->devices = of->devices;
    entry->error = of->error;
    return of->real ? entry : NULL;
}

struct entry *server_find_with(struct server *server, uint64_t id, const struct entry *with)
{
    struct entry *entry = server_find(server, id);
    if (!entry || !entry->real || !with->real)
        return entry; /* No driver will be called with these objects. */
    /* Devices have no context here: the driver checks whether a device belongs to a context. */
    if (entry->cl == with->cl &&
        (!entry->context || !with->context || entry->context == with->context))
        return entry;
    server_wrong(server, "it used objects of two contexts together");
    return NULL;
}

void **server_find_all(struct server *server, const void *ids, uint32_t count,
                       const struct entry *with, cl_int *ret_error)
{
    void **reals = count ? calloc(count, sizeof(*reals)) : NULL;
    if (count && !reals) {
        *ret_error = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct entry *entry = server_find_with(server, id_at(ids, i), with);
        if (!entry || !entry->real) {
            *ret_error = entry ? entry->error : CL_INVALID_VALUE;
            free(reals);
            return NULL;
        }
        reals[i] = entry->real;
    }
    return reals;
}

void server_reply(struct server *server, uint64_t call, cl_int error, const void *content,
                  size_t size)
{
    /* Posting fails only when the session has ended, and then the answer is not needed. */
    (void)!post_reply(&server->stream, &(struct msg_reply){.call = call,
                                                           .error = error,
                                                           .content = content,
                                                           .content_size = content ? size : 0});
}

void server_release(struct server *server, const struct msg_release *message)
{
    struct entry *entry = server_find(server, message->object);
    if (!entry)
        return;
    const struct entry old = *entry;
    *entry = (struct entry){0};
    free(old.arguments);
    if (!old.real)
        return;
    switch (id_type(message->object)) {
    case ID_CONTEXT:
        areas_forget_context(old.real);
        staging_forget(old.real);
        old.cl->clReleaseContext(old.real);
        break;
    case ID_QUEUE:
        pacing_forget(server, &old);
        old.cl->clReleaseCommandQueue(old.real);
        break;
    case ID_MEMORY:
        old.cl->clReleaseMemObject(old.real);
        break;
    case ID_SAMPLER:
        old.cl->clReleaseSampler(old.real);
        break;
    case ID_PROGRAM:
        old.cl->clReleaseProgram(old.real);
        break;
    case ID_KERNEL:
        old.cl->clReleaseKernel(old.real);
        break;
    case ID_EVENT:
        old.cl->clReleaseEvent(old.real);
        break;
    default:
        *entry = old;
        server_wrong(server, "it released an object that it cannot release");
    }
}
