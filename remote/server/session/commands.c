#include <stdlib.h>
#include <string.h>

#include "remote/server/session/pacing.h"
#include "remote/server/session/peer_copy.h"
#include "remote/server/session/pending.h"
#include "remote/server/session/server.h"
#include "state/base/clock.h"

/*
 * Commands. Nothing here waits for one to end: the thread that sees the end (pending.h) tells the
 * client, and sends the bytes that the command read.
 */

/* Smaller reads use the heap rather than memory of the pool. */
#define POOLED_LEAST (UINT64_C(64) << 10)

/* A command that is being given to a driver. */
struct giving {
    struct server *server;
    const struct msg_command *message;
    const cl_icd_dispatch *cl;
    struct entry *queue;
    cl_event *waits;
    cl_event event;
    struct staged staged;
    bool reads;
    struct peer_copy *peer_copy; /* For one end of a transfer between devices; a reference. */
    cl_int error;
    struct pace *pace; /* For pacing_ended(); NULL: not needed. */
    uint64_t began_ns;
};

/* If the session ends, the functions below do nothing. */
static struct giving commands_begin(struct server *server, const struct msg_command *message)
{
    struct giving giving = {.server = server, .message = message};
    giving.queue = server_find(server, message->queue);
    if (!giving.queue)
        return giving;
    giving.cl = giving.queue->cl;
    giving.error = giving.queue->real ? CL_SUCCESS : giving.queue->error;
    if (message->waits_count && giving.error == CL_SUCCESS)
        giving.waits = (cl_event *)server_find_all(server, message->waits, message->waits_count,
                                                   giving.queue, &giving.error);
    return giving;
}

/* A memory object that the command uses; NULL: it could not be created, or the session ends. */
static cl_mem commands_memory(struct giving *giving, uint64_t id)
{
    if (giving->server->wrong)
        return NULL;
    const struct entry *entry = server_find_with(giving->server, id, giving->queue);
    if (entry && !entry->real && giving->error == CL_SUCCESS)
        giving->error = entry->error;
    return entry ? entry->real : NULL;
}

/* Bytes in shared memory. If the client changes them meanwhile, the device may see the change. */
static void *commands_stage_shared(struct giving *giving, uint64_t size)
{
    const struct msg_command *message = giving->message;
    struct server *server = giving->server;
    char *bytes = NULL;
    if (areas_hold(server, message->area, message->place, size, &bytes)) {
        server_wrong(server, "it used memory that it had not offered");
        return NULL;
    }
    giving->staged = (struct staged){.bytes = bytes, .area = message->area};
    return bytes;
}

/* False: the client reads slower than its devices produce, or sends faster than they consume. Then
 * the command is refused. */
static bool commands_has_room(struct server *server, uint64_t size)
{
    uint64_t there = atomic_load(&server->staged) + stream_kept(&server->stream);
    return there <= server->staged_max && size <= server->staged_max - there;
}

/* Keep the received bytes: hold the message if they are most of it, else copy them. */
static void commands_stage_content(struct giving *giving, const void *content, uint64_t size)
{
    struct staged *staged = &giving->staged;
    struct pooled *message = stream_lies_in(&giving->server->stream);
    if (message && size >= message->room / 2) {
        pooled_hold(message);
        staged->pooled = message;
        staged->bytes = (void *)content;
        return;
    }
    staged->bytes = malloc(size ? size : 1);
    if (staged->bytes)
        memcpy(staged->bytes, content, size);
}

/* Allocate memory for what is read, from which it is also sent. */
static void commands_stage_room(struct giving *giving, uint64_t size)
{
    struct staged *staged = &giving->staged;
    struct server *server = giving->server;
    staged->bytes = staging_take(giving->queue, size, &staged->staging);
    if (!staged->bytes && size >= POOLED_LEAST) {
        staged->pooled = pool_take(&server->stream.pool, size);
        staged->bytes = staged->pooled ? staged->pooled->bytes : NULL;
    } else if (!staged->bytes) {
        staged->bytes = malloc(size ? size : 1);
    }
}

/* Memory for the command's bytes until it ends. */
static void *commands_stage(struct giving *giving, const void *content, uint64_t size, bool reads)
{
    if (giving->error || giving->server->wrong)
        return NULL;
    if (giving->message->area)
        return commands_stage_shared(giving, size);
    struct staged *staged = &giving->staged;
    bool fits = size <= WIRE_MESSAGE_MAX && commands_has_room(giving->server, size);
    if (fits && reads)
        commands_stage_room(giving, size);
    else if (fits)
        commands_stage_content(giving, content, size);
    if (!staged->bytes) {
        giving->error = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    staged->size = size;
    giving->reads = reads;
    atomic_fetch_add(&giving->server->staged, size);
    return staged->bytes;
}

/* Can the command still be given to the driver? */
static bool commands_ready(const struct giving *giving)
{
    return giving->error == CL_SUCCESS && !giving->server->wrong;
}

static cl_uint commands_wait_count(const struct giving *giving)
{
    return giving->waits ? giving->message->waits_count : 0;
}

/* The same for commands that need a time slice; blocks until the session has it. */
static bool commands_ready_to_work(struct giving *giving)
{
    if (!commands_ready(giving))
        return false;
    giving->pace = pacing_wait(giving->server, giving->queue);
    giving->began_ns = giving->pace ? clock_now_ns() : 0;
    return true;
}

/* Where the driver stores the event; NULL if nobody needs one. */
static cl_event *commands_wanted(struct giving *giving)
{
    return giving->message->event || giving->staged.bytes || giving->pace ? &giving->event : NULL;
}

#define GIVEN(giving) commands_wait_count(giving), (giving)->waits, commands_wanted(giving)

/* The command could not be given to the driver. We tell whoever waits for it: POCL 3.1 never ends a
 * command that waits for a failed event. */
static void commands_tell_failure(struct giving *giving)
{
    struct server *server = giving->server;
    const struct msg_command *message = giving->message;
    struct entry *queue = giving->queue;
    if (message->event && (message->purpose & COMMAND_NAMED)) {
        struct entry *entry = server_add(server, message->event);
        if (!entry)
            return;
        entry->cl = giving->cl;
        entry->context = queue->context;
        entry->error = giving->error;
    }
    if (message->event && (message->purpose & COMMAND_TELL))
        (void)!post_done(&server->stream,
                         &(struct msg_done){.event = message->event, .status = giving->error});
    else
        (void)!post_failed(&server->stream,
                           &(struct msg_failed){.queue = message->queue, .error = giving->error});
}

/* The driver took the command: name its event if the client wants to refer to it, and have its end
 * seen if somebody or something waits for that. */
static void commands_keep_event(struct giving *giving)
{
    struct server *server = giving->server;
    const struct msg_command *message = giving->message;
    bool named = message->purpose & COMMAND_NAMED, tell = message->purpose & COMMAND_TELL;
    struct entry *entry = named && message->event ? server_add(server, message->event) : NULL;
    if (entry) {
        entry->cl = giving->cl;
        entry->context = giving->queue->context;
        entry->real = giving->event;
        giving->cl->clRetainEvent(giving->event);
    }
    if (tell || giving->staged.bytes || giving->pace) {
        struct given *given = malloc(sizeof(*given));
        if (!given) {
            server_wrong(server, "out of memory for its commands");
            return;
        }
        *given = (struct given){
            .server = server,
            .cl = giving->cl,
            .id = message->event,
            .queue = message->queue,
            .tell = tell && message->event,
            .profiled = giving->queue->profiled,
            .own_memory = giving->queue->own_memory,
            .asks = giving->queue->asks,
            .staged = giving->staged,
            .answer = giving->reads ? giving->staged.size : 0,
            .peer_copy = giving->peer_copy,
            .event = giving->event,
            .pace = giving->pace,
            .began_ns = giving->began_ns,
        };
        giving->peer_copy = NULL;
        given_see_end(given);
        giving->staged = (struct staged){0};
    }
    giving->cl->clReleaseEvent(giving->event);
}

static void commands_end(struct giving *giving)
{
    if (giving->pace && !giving->event) {
        pacing_ended(giving->pace, giving->began_ns);
        giving->pace = NULL;
    }
    if (!giving->server->wrong) {
        server_touch(giving->server, giving->queue);
        if (giving->error)
            commands_tell_failure(giving);
        else if (giving->event)
            commands_keep_event(giving);
    }
    free(giving->waits);
    peer_copy_unref(giving->peer_copy);
    if (giving->error)
        given_unstage(giving->server, &giving->staged);
}

/* size_t and u64 are the same here (state/base/compiler.h). */
#define SIZES(array) ((const size_t *)(array))

/* Bytes of a region; false: more than a message may have. */
static bool commands_box_bytes(const uint64_t region[3], uint64_t element, uint64_t *ret_bytes)
{
    uint64_t bytes = element;
    for (int i = 0; i < 3; i++)
        if (__builtin_mul_overflow(bytes, region[i], &bytes))
            return false;
    *ret_bytes = bytes;
    return bytes <= WIRE_MESSAGE_MAX;
}

void server_read_buffer(struct server *server, const struct msg_read_buffer *message)
{
    struct giving giving = commands_begin(server, &message->command);
    cl_mem buffer = commands_memory(&giving, message->buffer);
    void *bytes = commands_stage(&giving, NULL, message->size, true);
    if (commands_ready(&giving))
        giving.error =
            giving.cl->clEnqueueReadBuffer(giving.queue->real, buffer, CL_FALSE, message->offset,
                                           message->size, bytes, GIVEN(&giving));
    commands_end(&giving);
}

void server_write_buffer(struct server *server, const struct msg_write_buffer *message)
{
    struct giving giving = commands_begin(server, &message->command);
    cl_mem buffer = commands_memory(&giving, message->buffer);
    uint64_t size = message->command.area ? message->size : message->content_size;
    void *bytes = commands_stage(&giving, message->content, size, false);
    if (commands_ready(&giving))
        giving.error = giving.cl->clEnqueueWriteBuffer(
            giving.queue->real, buffer, CL_FALSE, message->offset, size, bytes, GIVEN(&giving));
    commands_end(&giving);
}

static const size_t origin_of_host[3];

/* Memory for the bytes of a region, packed, of an @image or of a buffer (NULL). */
static void *commands_stage_box(struct giving *giving, cl_mem image, const uint64_t region[3],
                                const void *content, uint64_t content_size, bool reads)
{
    size_t element = 1;
    uint64_t size = 0;
    if (!commands_ready(giving))
        return NULL;
    if (image)
        giving->error = giving->cl->clGetImageInfo(image, CL_IMAGE_ELEMENT_SIZE, sizeof(element),
                                                   &element, NULL);
    if (giving->error == CL_SUCCESS && (!commands_box_bytes(region, element, &size) ||
                                        (!reads && !giving->message->area && size != content_size)))
        server_wrong(giving->server, "the size of a region is wrong");
    return commands_stage(giving, content, size, reads);
}

/* What a fill repeats, aligned as drivers want it. */
union pattern {
    cl_double16 aligned;
    unsigned char bytes[sizeof(cl_double16)];
};

static union pattern commands_pattern(struct giving *giving, const void *bytes, uint64_t size,
                                      size_t most)
{
    union pattern pattern = {0};
    if (size > most)
        server_wrong(giving->server, "a pattern is too large");
    else
        memcpy(pattern.bytes, bytes, size);
    return pattern;
}

/* Generated from remote/driver/commands.txt. */
#include "served_commands.h"

void server_launch(struct server *server, const struct msg_launch *message)
{
    struct giving giving = commands_begin(server, &message->command);
    if (server->wrong)
        return;
    const struct entry *kernel = server_find_with(server, message->kernel, giving.queue);
    if (!kernel)
        giving.error = CL_INVALID_KERNEL; /* server_find_with() has ended the session. */
    else if (giving.error == CL_SUCCESS)
        giving.error = server_kernel_error(kernel);
    if (message->dimensions < 1 || message->dimensions > 3)
        server_wrong(server, "the number of dimensions of a launch is wrong");
    if (commands_ready_to_work(&giving))
        giving.error = giving.cl->clEnqueueNDRangeKernel(
            giving.queue->real, kernel->real, message->dimensions,
            message->given & LAUNCH_OFFSET ? SIZES(message->offset) : NULL, SIZES(message->global),
            message->given & LAUNCH_LOCAL ? SIZES(message->local) : NULL, GIVEN(&giving));
    commands_end(&giving);
}

void server_marker(struct server *server, const struct msg_marker *message)
{
    struct giving giving = commands_begin(server, &message->command);
    if (commands_ready(&giving))
        giving.error = giving.cl->clEnqueueMarkerWithWaitList(giving.queue->real, GIVEN(&giving));
    commands_end(&giving);
}

/* An event that is complete at once, without waiting even for earlier commands. */
void server_nothing(struct server *server, const struct msg_nothing *message)
{
    struct giving giving = commands_begin(server, &message->command);
    if (commands_ready(&giving) && giving.message->event) {
        giving.event = giving.cl->clCreateUserEvent(giving.queue->context, &giving.error);
        if (giving.event)
            giving.error = giving.cl->clSetUserEventStatus(giving.event, CL_COMPLETE);
    }
    commands_end(&giving);
}

void server_barrier(struct server *server, const struct msg_barrier *message)
{
    struct giving giving = commands_begin(server, &message->command);
    if (commands_ready(&giving))
        giving.error = giving.cl->clEnqueueBarrierWithWaitList(giving.queue->real, GIVEN(&giving));
    commands_end(&giving);
}

void server_migrate(struct server *server, const struct msg_migrate *message)
{
    struct giving giving = commands_begin(server, &message->command);
    if (server->wrong)
        return;
    void **objects = server_find_all(server, message->objects, message->objects_count, giving.queue,
                                     &giving.error);
    if (commands_ready(&giving))
        giving.error = giving.cl->clEnqueueMigrateMemObjects(
            giving.queue->real, message->objects_count, (cl_mem *)objects, message->flags,
            GIVEN(&giving));
    free(objects);
    commands_end(&giving);
}

static void commands_pass(struct server *server, const struct msg_command *command, uint64_t buffer,
                          struct peer_copy_wish wish)
{
    struct giving giving = commands_begin(server, command);
    if (wish.peer->way >= TRANSFER_WAYS)
        server_wrong(server, "a transfer's way is invalid");
    wish.server = server;
    wish.buffer = commands_memory(&giving, buffer);
    wish.queue = giving.queue;
    wish.wait_count = commands_wait_count(&giving);
    wish.waits = giving.waits;
    if (commands_ready(&giving))
        giving.error = peer_copy_begin(&wish, &giving.event, &giving.peer_copy);
    else if (!server->wrong)
        peer_copy_refuse(&wish);
    commands_end(&giving);
}

void server_give(struct server *server, const struct msg_give *message)
{
    commands_pass(server, &message->command, message->buffer,
                  (struct peer_copy_wish){.gives = true,
                                          .offset = message->offset,
                                          .size = message->size,
                                          .peer = &message->peer});
}

void server_take(struct server *server, const struct msg_take *message)
{
    commands_pass(server, &message->command, message->buffer,
                  (struct peer_copy_wish){
                      .offset = message->offset, .size = message->size, .peer = &message->peer});
}
