#include <errno.h>
#include <stdlib.h>

#include "remote/server/server.h"
#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/base/log.h"

/*
 * Memory that the client offers. A device with memory of its own transfers to and from what was
 * registered with it at its link's speed, and from other memory at a fraction of that; a driver
 * takes a buffer over the memory (CL_MEM_USE_HOST_PTR), mapped as long as it is there, as that: see
 * state/object/pinned.c. A driver may copy to the device and back for that, so it is done when an
 * area is offered, before the client writes there, with the contexts that there are by then; what
 * is registered stays mapped, and nothing is copied any more. For a context that comes later the
 * client offers other areas. All of this is done by the thread
 * that serves.
 */

#define GREETING_NS (10 * NS_PER_S)

struct registration {
    struct registration *next;
    uint32_t area;
    const cl_icd_dispatch *cl;
    cl_context context;
    cl_command_queue queue;
    cl_mem buffer;
    void *map;
};
static struct registration *registrations;

static void finish(struct registration *registration)
{
    const cl_icd_dispatch *cl = registration->cl;
    if (registration->map)
        cl->clEnqueueUnmapMemObject(registration->queue, registration->buffer, registration->map, 0,
                                    NULL, NULL);
    if (registration->queue) {
        cl->clFinish(registration->queue);
        cl->clReleaseCommandQueue(registration->queue);
    }
    if (registration->buffer)
        cl->clReleaseMemObject(registration->buffer);
    free(registration);
}

static void forget(cl_context context, uint32_t area)
{
    struct registration **at = &registrations;
    while (*at) {
        struct registration *registration = *at;
        if ((context && registration->context != context) || (area && registration->area != area)) {
            at = &registration->next;
            continue;
        }
        *at = registration->next;
        finish(registration);
    }
}

void areas_forget_context(cl_context context)
{
    if (context)
        forget(context, 0);
}

static bool has_own_memory(const struct server *server, cl_device_id id)
{
    for (size_t i = 0; i < server->device_count; i++)
        if (server->devices[i]->id == id)
            return !devinfo_scalar(&server->devices[i]->info, CL_DEVICE_HOST_UNIFIED_MEMORY, 0) &&
                   !(devinfo_scalar(&server->devices[i]->info, CL_DEVICE_TYPE, 0) &
                     CL_DEVICE_TYPE_CPU);
    return false;
}

/* One that was made and is not registered is kept, too: its end is that of the area. */
static void register_with(struct registration *registration, cl_device_id device, char *bytes,
                          size_t size)
{
    const cl_icd_dispatch *cl = registration->cl;
    cl_int error = CL_SUCCESS;
    registration->queue = cl->clCreateCommandQueue(registration->context, device, 0, &error);
    if (registration->queue)
        registration->buffer = cl->clCreateBuffer(
            registration->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, size, bytes, &error);
    if (registration->buffer)
        registration->map =
            cl->clEnqueueMapBuffer(registration->queue, registration->buffer, CL_TRUE,
                                   CL_MAP_READ | CL_MAP_WRITE, 0, size, 0, NULL, NULL, &error);
    if (registration->map != bytes)
        log_info("shared memory is not registered with a device (error %d)", error);
}

/* With each context of a device that has memory of its own. */
static void register_area(struct server *server, uint32_t area)
{
    const struct table *contexts = &server->tables[ID_CONTEXT];
    char *bytes = NULL;
    size_t size = 0;
    if (!bulk_map_whole(server->areas, area, &bytes, &size))
        return;
    for (uint32_t i = 0; i < contexts->room; i++) {
        const struct entry *entry = &contexts->entries[i];
        if (!entry->id || !entry->real || !has_own_memory(server, entry->first))
            continue;
        struct registration *registration = calloc(1, sizeof(*registration));
        if (!registration)
            return;
        *registration = (struct registration){
            .next = registrations, .area = area, .cl = entry->cl, .context = entry->real};
        registrations = registration;
        register_with(registration, entry->first, bytes, size);
    }
}

int areas_hold(struct server *server, uint32_t area, uint64_t place, uint64_t size,
               char **ret_bytes)
{
    return server->areas ? bulk_map_hold(server->areas, area, place, size, ret_bytes) : -EPROTO;
}

int areas_take_descriptor(struct link *link, uint32_t area, int *ret_fd)
{
    unsigned char buffer[STREAM_GREETING_MAX];
    struct message message;
    struct msg_withdraw named;
    int error = greeting_receive(link, buffer, clock_now_ns() + GREETING_NS, &message);
    if (error)
        return error;
    struct unpack body = {message.body, message.body + message.size, false};
    if (message.type != MSG_OFFER || !unpack_withdraw(&body, &named) || named.area != area)
        return -EPROTO;
    return link->ops->take_descriptor(link, ret_fd) ? -EPROTO : 0;
}

void server_offer(struct server *server, const struct msg_offer *message)
{
    CLEANUP(cleanup_close) int fd = -1;
    if (!server->areas || message->area == 0 ||
        areas_take_descriptor(server->stream.link, message->area, &fd)) {
        server_wrong(server, "it offers memory that does not come");
        return;
    }
    int error = bulk_map_add(server->areas, message->area, fd, message->size);
    if (error == 0)
        register_area(server, message->area);
    if (error == -EPROTO)
        server_wrong(server, "it offers memory that is not as it says");
    else
        server_reply(server, message->call, error ? CL_OUT_OF_HOST_MEMORY : CL_SUCCESS, NULL, 0);
}

void server_withdraw(struct server *server, const struct msg_withdraw *message)
{
    if (message->area)
        forget(NULL, message->area);
    if (!server->areas || bulk_map_remove(server->areas, message->area))
        server_wrong(server, "it withdraws memory that it did not offer");
}

int server_share_memory(struct server *server)
{
    const struct bulk_limits limits = {WIRE_AREAS_MAX, WIRE_AREA_SIZE, WIRE_BULK_BYTES};
    return bulk_map_create(&limits, &server->areas);
}
