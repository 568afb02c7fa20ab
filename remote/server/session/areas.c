#include <errno.h>
#include <stdlib.h>

#include "remote/server/session/greeting.h"
#include "remote/server/session/pending.h"
#include "remote/server/session/server.h"
#include "remote/wire/stream.h"
#include "state/base/cleanup.h"
#include "state/base/clock.h"

/*
 * Memory that the client offers. A device with memory of its own transfers to and from registered
 * memory at the full speed of its bus, and to and from other memory at a fraction of that. An area
 * is registered when it is offered, before the client writes there, with the contexts that exist
 * then. For a context created later, the client offers other areas. Only the session's thread
 * executes this file's functions.
 */

struct registered_area {
    struct registered_area *next;
    uint32_t area;
    cl_context context;
    struct registration registration;
};
static struct registered_area *registered_areas;

static void areas_forget(cl_context context, uint32_t area)
{
    struct registered_area **at = &registered_areas;
    while (*at) {
        struct registered_area *registered = *at;
        if ((context && registered->context != context) || (area && registered->area != area)) {
            at = &registered->next;
            continue;
        }
        *at = registered->next;
        registration_end(&registered->registration);
        free(registered);
    }
}

void areas_forget_context(cl_context context)
{
    if (context)
        areas_forget(context, 0);
}

bool device_has_own_memory(const struct device *device)
{
    return !devinfo_scalar(&device->info, CL_DEVICE_HOST_UNIFIED_MEMORY, 0) &&
           !(devinfo_scalar(&device->info, CL_DEVICE_TYPE, 0) & CL_DEVICE_TYPE_CPU);
}

static bool areas_has_own_memory(const struct server *server, cl_device_id id)
{
    for (size_t i = 0; i < server->device_count; i++)
        if (server->devices[i]->id == id)
            return device_has_own_memory(server->devices[i]);
    return false;
}

/* Register the area with each context of a device that has memory of its own. */
static void areas_register_area(struct server *server, uint32_t area)
{
    const struct table *contexts = &server->tables[ID_CONTEXT];
    char *bytes = NULL;
    size_t size = 0;
    if (!bulk_map_whole(server->areas, area, &bytes, &size))
        return;
    for (uint32_t i = 0; i < contexts->room; i++) {
        const struct entry *entry = &contexts->entries[i];
        if (!entry->id || !entry->real || !areas_has_own_memory(server, entry->first))
            continue;
        struct registered_area *registered = calloc(1, sizeof(*registered));
        if (!registered)
            return;
        *registered = (struct registered_area){
            .next = registered_areas, .area = area, .context = entry->real};
        registered_areas = registered;
        /* A failure only makes transfers slower. */
        (void)registration_begin(&registered->registration, entry->cl, entry->real, bytes, size);
    }
}

int areas_hold(struct server *server, uint32_t area, uint64_t place, uint64_t size,
               char **ret_bytes)
{
    return server->areas ? bulk_map_hold(server->areas, area, place, size, ret_bytes) : -EPROTO;
}

int areas_take_descriptor(struct link *link, uint32_t area, int *ret_fd)
{
    return greeting_receive_descriptor(link, MSG_OFFER, area, clock_now_ns() + GREETING_NS, ret_fd);
}

void server_offer(struct server *server, const struct msg_offer *message)
{
    CLEANUP(cleanup_close) int fd = -1;
    if (!server->areas || message->area == 0 ||
        areas_take_descriptor(server->stream.link, message->area, &fd)) {
        server_wrong(server, "the memory that it offered did not arrive");
        return;
    }
    int error = bulk_map_add(server->areas, message->area, fd, message->size);
    if (error == 0)
        areas_register_area(server, message->area);
    if (error == -EPROTO)
        server_wrong(server, "the memory that it offered is invalid");
    else
        server_reply(server, message->call, error ? CL_OUT_OF_HOST_MEMORY : CL_SUCCESS, NULL, 0);
}

void server_withdraw(struct server *server, const struct msg_withdraw *message)
{
    if (message->area)
        areas_forget(NULL, message->area);
    if (!server->areas || bulk_map_remove(server->areas, message->area))
        server_wrong(server, "it withdrew memory that it had not offered");
}

int server_share_memory(struct server *server)
{
    const struct bulk_limits limits = {WIRE_AREAS_MAX, WIRE_AREA_SIZE, WIRE_BULK_BYTES};
    return bulk_map_create(&limits, &server->areas);
}
