#include <stdlib.h>
#include <string.h>

#include "remote/server/server.h"

/*
 * What the memory objects of a session take of what its certificate allows. A driver keeps memory
 * for as long as commands, sub-buffers or images use it, whatever the client released: so it counts
 * until the driver says that it is gone.
 */

/* Devices give no less than a page, however small a buffer is. */
#define PAGE 4096u

struct charge {
    struct server *server;
    uint64_t bytes;
};

static void give_back(struct charge *charge)
{
    atomic_fetch_sub(&charge->server->memory_used, charge->bytes);
    free(charge);
}

/* In whatever thread of the driver's. */
static void CL_CALLBACK on_gone(cl_mem memory, void *data)
{
    (void)memory;
    give_back(data);
}

/* Only the session's thread adds, and so looks and adds in two steps. */
static struct charge *take(struct server *server, uint64_t bytes)
{
    uint64_t left = server->memory - atomic_load(&server->memory_used);
    if (bytes > left)
        return NULL;
    struct charge *charge = malloc(sizeof(*charge));
    if (!charge)
        return NULL;
    /* No more than there is: a limit need not be a number of pages. */
    uint64_t pages = (bytes / PAGE + (bytes % PAGE != 0)) * PAGE;
    *charge = (struct charge){server, pages < left ? pages : left};
    atomic_fetch_add(&server->memory_used, charge->bytes);
    return charge;
}

bool server_has_memory(const struct server *server, uint64_t bytes)
{
    return server->memory == GRANT_UNLIMITED_MEMORY ||
           bytes <= server->memory - atomic_load(&server->memory_used);
}

void server_charge(struct server *server, struct entry *entry)
{
    size_t bytes = 0;
    if (server->memory == GRANT_UNLIMITED_MEMORY || !entry->real)
        return;
    cl_int error =
        entry->cl->clGetMemObjectInfo(entry->real, CL_MEM_SIZE, sizeof(bytes), &bytes, NULL);
    struct charge *charge = error ? NULL : take(server, bytes);
    if (charge && !entry->cl->clSetMemObjectDestructorCallback(entry->real, on_gone, charge))
        return;
    if (charge)
        give_back(charge);
    entry->cl->clReleaseMemObject(entry->real);
    entry->real = NULL;
    entry->error = CL_MEM_OBJECT_ALLOCATION_FAILURE;
}

void server_cap_memory(const struct server *server, struct devinfo *info)
{
    for (size_t i = 0; i < info->value_count; i++) {
        struct devinfo_value *value = &info->values[i];
        uint64_t bytes;
        if ((value->name != CL_DEVICE_GLOBAL_MEM_SIZE &&
             value->name != CL_DEVICE_MAX_MEM_ALLOC_SIZE) ||
            value->size != sizeof(bytes))
            continue;
        memcpy(&bytes, value->bytes, sizeof(bytes));
        bytes = bytes < server->memory ? bytes : server->memory;
        memcpy(value->bytes, &bytes, sizeof(bytes));
    }
}
