#include "state/transfer/transfer_priv.h"

#define PASS_LEAST ((size_t)64 << 10)

/*
 * Copies directly between two devices of our remote driver: each piece is a command of both. The
 * driver copies between buffers only, so an image has a buffer at either end, which its pieces use
 * one after the other: commands in a queue wait for the one before.
 */

static void transfer_between_release_buffer(struct passed *passed, struct residence *end)
{
    if (!passed->buffer)
        return;
    end->cl->clReleaseMemObject(passed->buffer);
    budget_return(&end->device->budget, passed->size);
    *passed = (struct passed){0};
}

void between_finish(struct transfer *transfer)
{
    transfer_between_release_buffer(&transfer->passed[0], transfer->from);
    transfer_between_release_buffer(&transfer->passed[1], transfer->to);
}

static cl_int transfer_between_make_buffer(struct passed *passed, struct residence *end,
                                           size_t size)
{
    cl_int error = CL_SUCCESS;
    if (passed->size >= size)
        return CL_SUCCESS;
    transfer_between_release_buffer(passed, end);
    if (!budget_take(&end->device->budget, size))
        return CL_MEM_OBJECT_ALLOCATION_FAILURE;
    passed->buffer = end->cl->clCreateBuffer(end->context, CL_MEM_READ_WRITE, size, NULL, &error);
    if (!passed->buffer) {
        budget_return(&end->device->budget, size);
        return error;
    }
    budget_note(&end->device->budget);
    passed->size = size;
    return CL_SUCCESS;
}

/* Make the buffers at least as large as the largest piece so far; up to twice that. */
static cl_int transfer_between_make_buffers(struct transfer *transfer, size_t piece)
{
    size_t size = PASS_LEAST;
    while (size < piece)
        size *= 2;
    cl_int error = transfer_between_make_buffer(&transfer->passed[0], transfer->from, size);
    return error ? error : transfer_between_make_buffer(&transfer->passed[1], transfer->to, size);
}

static void transfer_between_keep(struct slot *slot, cl_event event)
{
    if (event)
        slot->events[slot->event_count++] = event;
}

static cl_int transfer_between_pass_buffer(const struct transfer *transfer, struct slot *slot,
                                           const struct piece *piece)
{
    cl_event event = NULL;
    cl_int error =
        transfer->between(transfer->from->io, transfer->to->io, piece->from, piece->to,
                          piece->origin[0], piece->origin[0], piece->size, 0, NULL, &event);
    transfer_between_keep(slot, event);
    return error;
}

/* The status of all three commands is checked, because an in-order queue continues after a failed
 * command. */
static cl_int transfer_between_pass_image(struct transfer *transfer, struct slot *slot,
                                          const struct piece *piece)
{
    const struct residence *from = transfer->from, *to = transfer->to;
    const struct passed *passed = transfer->passed;
    cl_event out = NULL, over = NULL, in = NULL;
    cl_int error = transfer_between_make_buffers(transfer, piece->size);
    if (error == CL_SUCCESS)
        error =
            from->cl->clEnqueueCopyImageToBuffer(from->io, piece->from, passed[0].buffer,
                                                 piece->origin, piece->region, 0, 0, NULL, &out);
    if (error == CL_SUCCESS)
        error = transfer->between(from->io, to->io, passed[0].buffer, passed[1].buffer, 0, 0,
                                  piece->size, 1, &out, &over);
    if (error == CL_SUCCESS)
        error = to->cl->clEnqueueCopyBufferToImage(to->io, passed[1].buffer, piece->to, 0,
                                                   piece->origin, piece->region, 0, NULL, &in);
    if (out)
        slot->outs[slot->out_count++] = out;
    transfer_between_keep(slot, over);
    transfer_between_keep(slot, in);
    return error;
}

cl_int between_enqueue_slot(struct transfer *transfer, struct slot *slot)
{
    cl_int error = CL_SUCCESS;
    for (unsigned i = 0; i < slot->piece_count && error == CL_SUCCESS; i++) {
        const struct piece *piece = &slot->pieces[i];
        error = piece->image ? transfer_between_pass_image(transfer, slot, piece)
                             : transfer_between_pass_buffer(transfer, slot, piece);
    }
    return error;
}

cl_int between_wait_outs(const struct transfer *transfer, struct slot *slot)
{
    struct residence *from = transfer->from;
    cl_int error = CL_SUCCESS;
    for (unsigned i = 0; i < slot->out_count; i++) {
        cl_int status = CL_QUEUED;
        cl_int asked = from->cl->clGetEventInfo(slot->outs[i], CL_EVENT_COMMAND_EXECUTION_STATUS,
                                                sizeof(status), &status, NULL);
        cl_int ended = asked || status <= CL_COMPLETE
                           ? asked
                           : residence_await_events(from, 1, &slot->outs[i]);
        error = error ? error : ended ? ended : status < 0 ? status : CL_SUCCESS;
        from->cl->clReleaseEvent(slot->outs[i]);
    }
    slot->out_count = 0;
    return error;
}
