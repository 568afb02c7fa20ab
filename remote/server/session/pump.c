#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "remote/server/session/peer_copy.h"
#include "state/base/clock.h"

/*
 * Moves the bytes of a peer copy in chunks. A chunk is read from a device or memory, or received
 * from the link; then it is written to a device or memory, or sent. Several chunks are in flight at
 * once, so that these steps overlap. Bytes of this process go in chunks, too, but what came of a
 * chunk is given on at once.
 *
 * Over a link, both ends first send the number of their transfer. The receiver sends SIGN_WAIT each
 * second until it sends SIGN_GO. The sender sends an empty chunk each second until it sends data.
 * At the end the receiver reports whether all bytes arrived.
 */

#define SLOTS      3
#define CHUNK      ((size_t)1 << 20)
#define PIECE      ((size_t)16 << 10) /* bytes that are given on at once, of those that come */
#define SILENCE_NS (20 * NS_PER_S)

enum sign { SIGN_WAIT = '.', SIGN_GO = 'G', SIGN_DONE = 'D', SIGN_FAILED = 'F' };

struct slot {
    unsigned char *bytes;
    size_t size;
    cl_event event;            /* Of the last command on it... */
    const cl_icd_dispatch *cl; /* ...of that driver's. */
};

struct pump {
    struct peer_copy *from, *to; /* NULL: at the other end of the link. */
    struct link *link;
    cl_command_queue queues[2]; /* Of from and to. */
    uint64_t size, filled, drained;
    struct slot slots[SLOTS];
};

static cl_int pump_from_errno(int error)
{
    return error == 0 ? CL_SUCCESS : error == -ENOMEM ? CL_OUT_OF_HOST_MEMORY : CL_OUT_OF_RESOURCES;
}

/* ---- the link ---- */

static cl_int pump_send_bytes(struct link *link, const void *bytes, size_t size)
{
    uint32_t head = (uint32_t)size;
    struct iovec iov[] = {{&head, sizeof(head)}, {(void *)bytes, size}};
    return pump_from_errno(link->ops->send(link, iov, size ? 2 : 1, clock_now_ns() + SILENCE_NS));
}

static cl_int pump_send_sign(struct link *link, enum sign sign)
{
    char byte = (char)sign;
    struct iovec iov = {&byte, 1};
    return pump_from_errno(link->ops->send(link, &iov, 1, clock_now_ns() + SILENCE_NS));
}

static cl_int pump_receive_exactly(struct link *link, void *bytes, size_t size)
{
    int error = 0;
    for (size_t at = 0, got = 0; error == 0 && at < size; at += got) {
        got = 0;
        error = link->ops->receive(link, (char *)bytes + at, size - at, clock_now_ns() + SILENCE_NS,
                                   &got);
    }
    return pump_from_errno(error);
}

static cl_int pump_await_sign(struct link *link, enum sign wanted)
{
    char byte = SIGN_WAIT;
    cl_int error = CL_SUCCESS;
    while (error == CL_SUCCESS && byte == SIGN_WAIT)
        error = pump_receive_exactly(link, &byte, 1);
    return error == CL_SUCCESS && byte != (char)wanted ? CL_OUT_OF_RESOURCES : error;
}

static cl_int pump_say_waiting(void *data)
{
    const struct peer_copy *peer_copy = data;
    return peer_copy->gives ? pump_send_bytes(peer_copy->link, NULL, 0)
                            : pump_send_sign(peer_copy->link, SIGN_WAIT);
}

/* Check that both ends belong to one transfer. If a socket was lost on the way to this process,
   this end may have got the socket of another transfer. */
static cl_int pump_compare_numbers(const struct peer_copy *peer_copy, struct link *link)
{
    uint64_t mine = peer_copy->transfer, other = 0;
    struct iovec iov = {&mine, sizeof(mine)};
    cl_int error = pump_from_errno(link->ops->send(link, &iov, 1, clock_now_ns() + SILENCE_NS));
    if (error == CL_SUCCESS)
        error = pump_receive_exactly(link, &other, sizeof(other));
    return error == CL_SUCCESS && other != peer_copy->transfer ? CL_INVALID_VALUE : error;
}

cl_int pump_agree(struct peer_copy *peer_copy, struct link *link)
{
    cl_int error = pump_compare_numbers(peer_copy, link);
    if (error == CL_SUCCESS)
        error = peer_copy_await_start(peer_copy, pump_say_waiting, peer_copy);
    if (error)
        return error;
    return peer_copy->gives ? pump_await_sign(link, SIGN_GO) : pump_send_sign(link, SIGN_GO);
}

cl_int pump_part(struct peer_copy *peer_copy, struct link *link, cl_int error)
{
    cl_int told = CL_SUCCESS;
    if (!peer_copy->gives)
        told = pump_send_sign(link, error ? SIGN_FAILED : SIGN_DONE);
    else if (error == CL_SUCCESS)
        told = pump_await_sign(link, SIGN_DONE);
    link->ops->shut_down(link);
    return error ? error : peer_copy->gives ? told : CL_SUCCESS;
}

/* Receive the length of a chunk, which must be @size. */
static cl_int pump_receive_head(struct link *link, size_t size)
{
    uint32_t head = 0;
    cl_int error = CL_SUCCESS;
    while (error == CL_SUCCESS && head == 0)
        error = pump_receive_exactly(link, &head, sizeof(head));
    return error == CL_SUCCESS && head != size ? CL_INVALID_VALUE : error;
}

static cl_int pump_receive_chunk(struct link *link, void *bytes, size_t size)
{
    cl_int error = pump_receive_head(link, size);
    return error ? error : pump_receive_exactly(link, bytes, size);
}

/* ---- bytes ---- */

/* The end of a chunk of a bytes' copy that begins at @at. */
static uint64_t pump_chunk_end(const struct peer_copy *peer_copy, uint64_t at)
{
    return peer_copy->size - at < CHUNK ? peer_copy->size : at + CHUNK;
}

/* Read what there is of a chunk up to @end. Between chunks the other end is told each second that
 * more will come. */
static cl_int pump_read_bytes(struct peer_copy *peer_copy, struct link *link, uint64_t at,
                              uint64_t end, bool begins, unsigned char piece[PIECE],
                              size_t *ret_size)
{
    size_t most = end - at < PIECE ? (size_t)(end - at) : PIECE;
    uint64_t until = clock_now_ns() + SILENCE_NS;
    cl_int error = CL_SUCCESS;
    *ret_size = 0;
    while (error == CL_SUCCESS && *ret_size == 0) {
        error = peer_copy->bytes->read(peer_copy->data, at, piece, most, ret_size);
        if (error == CL_SUCCESS && *ret_size == 0 && begins)
            error = pump_send_bytes(link, NULL, 0);
        else if (error == CL_SUCCESS && *ret_size == 0 && clock_now_ns() >= until)
            error = CL_OUT_OF_RESOURCES;
    }
    return error;
}

static cl_int pump_give_chunk(struct peer_copy *peer_copy, struct link *link, uint64_t at,
                              uint64_t end)
{
    unsigned char piece[PIECE];
    uint32_t head = (uint32_t)(end - at);
    size_t size;
    cl_int error = pump_read_bytes(peer_copy, link, at, end, true, piece, &size);
    for (bool begins = true; error == CL_SUCCESS && at < end; begins = false) {
        struct iovec iov[] = {{&head, sizeof(head)}, {piece, size}};
        error = pump_from_errno(link->ops->send(link, begins ? iov : iov + 1, begins ? 2 : 1,
                                                clock_now_ns() + SILENCE_NS));
        at += size;
        if (error == CL_SUCCESS && at < end)
            error = pump_read_bytes(peer_copy, link, at, end, false, piece, &size);
    }
    return error;
}

static cl_int pump_take_chunk(struct peer_copy *peer_copy, struct link *link, uint64_t at,
                              uint64_t end)
{
    unsigned char piece[PIECE];
    cl_int error = pump_receive_head(link, (size_t)(end - at));
    while (error == CL_SUCCESS && at < end) {
        size_t size = end - at < PIECE ? (size_t)(end - at) : PIECE;
        error = pump_receive_exactly(link, piece, size);
        if (error == CL_SUCCESS)
            peer_copy->bytes->write(peer_copy->data, at, piece, size);
        at += size;
    }
    return error;
}

cl_int pump_run_bytes(struct peer_copy *peer_copy, struct link *link)
{
    cl_int error = CL_SUCCESS;
    for (uint64_t at = 0, end; error == CL_SUCCESS && at < peer_copy->size; at = end) {
        end = pump_chunk_end(peer_copy, at);
        error = peer_copy->gives ? pump_give_chunk(peer_copy, link, at, end)
                                 : pump_take_chunk(peer_copy, link, at, end);
    }
    return error;
}

/* ---- the devices ---- */

/* Wait for the last command that uses the slot. */
static cl_int pump_await_slot(struct slot *slot)
{
    if (!slot->event)
        return CL_SUCCESS;
    cl_int error = slot->cl->clWaitForEvents(1, &slot->event);
    slot->cl->clReleaseEvent(slot->event);
    slot->event = NULL;
    return error;
}

static cl_int pump_fill(struct pump *pump, struct slot *slot)
{
    uint64_t left = pump->size - pump->filled;
    cl_int error = pump_await_slot(slot);
    slot->size = left < CHUNK ? (size_t)left : CHUNK;
    if (error == CL_SUCCESS && !pump->from) {
        error = pump_receive_chunk(pump->link, slot->bytes, slot->size);
    } else if (error == CL_SUCCESS) {
        const struct peer_copy *from = pump->from;
        slot->cl = from->cl;
        error = from->cl->clEnqueueReadBuffer(pump->queues[0], from->buffer, CL_FALSE,
                                              from->offset + pump->filled, slot->size, slot->bytes,
                                              0, NULL, &slot->event);
        if (error == CL_SUCCESS)
            error = from->cl->clFlush(pump->queues[0]);
    }
    pump->filled += slot->size;
    return error;
}

static cl_int pump_drain(struct pump *pump, struct slot *slot)
{
    cl_int error = pump_await_slot(slot);
    if (error == CL_SUCCESS && !pump->to) {
        error = pump_send_bytes(pump->link, slot->bytes, slot->size);
    } else if (error == CL_SUCCESS) {
        const struct peer_copy *to = pump->to;
        slot->cl = to->cl;
        error = to->cl->clEnqueueWriteBuffer(pump->queues[1], to->buffer, CL_FALSE,
                                             to->offset + pump->drained, slot->size, slot->bytes, 0,
                                             NULL, &slot->event);
        if (error == CL_SUCCESS)
            error = to->cl->clFlush(pump->queues[1]);
    }
    pump->drained += slot->size;
    return error;
}

/* Keep reads in flight in all slots but the one that is being drained. */
static cl_int pump_run_chunks(struct pump *pump)
{
    cl_int error = CL_SUCCESS;
    uint64_t filled = 0, drained = 0, ahead = pump->from ? SLOTS - 1 : 1;
    while (error == CL_SUCCESS && pump->drained < pump->size)
        if (pump->filled < pump->size && filled - drained < ahead)
            error = pump_fill(pump, &pump->slots[filled++ % SLOTS]);
        else
            error = pump_drain(pump, &pump->slots[drained++ % SLOTS]);
    return error;
}

static cl_int pump_start_queue(const struct peer_copy *peer_copy, cl_command_queue *ret_queue)
{
    cl_int error = CL_SUCCESS;
    if (peer_copy)
        *ret_queue =
            peer_copy->cl->clCreateCommandQueue(peer_copy->context, peer_copy->device, 0, &error);
    return error;
}

/* Wait for all commands of the queue, which use the slots' memory, before that is freed. */
static cl_int pump_stop_queue(const struct peer_copy *peer_copy, cl_command_queue queue)
{
    if (!queue)
        return CL_SUCCESS;
    cl_int error = peer_copy->cl->clFinish(queue);
    peer_copy->cl->clReleaseCommandQueue(queue);
    return error;
}

/* Both queues must be idle. */
static cl_int pump_release_slots(struct pump *pump)
{
    cl_int error = CL_SUCCESS;
    for (size_t i = 0; i < SLOTS; i++) {
        cl_int failed = pump_await_slot(&pump->slots[i]);
        error = error ? error : failed;
        free(pump->slots[i].bytes);
    }
    return error;
}

cl_int pump_run(struct peer_copy *from, struct peer_copy *to, struct link *link)
{
    struct pump pump = {.from = from, .to = to, .link = link, .size = from ? from->size : to->size};
    size_t chunk = pump.size < CHUNK ? (size_t)pump.size : CHUNK;
    cl_int error = pump_start_queue(from, &pump.queues[0]);
    if (error == CL_SUCCESS)
        error = pump_start_queue(to, &pump.queues[1]);
    for (size_t i = 0; i < SLOTS; i++) {
        pump.slots[i].bytes = malloc(chunk ? chunk : 1);
        if (error == CL_SUCCESS && !pump.slots[i].bytes)
            error = CL_OUT_OF_HOST_MEMORY;
    }
    if (error == CL_SUCCESS)
        error = pump_run_chunks(&pump);
    cl_int read = pump_stop_queue(from, pump.queues[0]);
    cl_int written = pump_stop_queue(to, pump.queues[1]);
    cl_int ended = pump_release_slots(&pump);
    return error ? error : read ? read : written ? written : ended;
}
