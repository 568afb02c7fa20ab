#include <errno.h>

#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/thread.h"
#include "state/transfer/transfer_priv.h"

#define LOOK_NS      (5 * NS_PER_MS) /* Between looks at the limits. */
#define POPULATE_MIN (1u << 20)
/* Units of each chunk per thread: when one wakes late, others take its units. */
#define UNITS_EACH 4
/* A copy's units are multiples of these. */
#define UNIT_SMALL ((size_t)4 << 10)
#define UNIT_LARGE ((size_t)2 << 20)

void fifo_push(struct fifo *fifo, struct slot *slot)
{
    slot->next = NULL;
    if (fifo->last)
        fifo->last->next = slot;
    else
        fifo->first = slot;
    fifo->last = slot;
    fifo->count++;
}

static struct slot *transfer_slot_fifo_pop(struct fifo *fifo)
{
    struct slot *slot = fifo->first;
    if (!slot)
        return NULL;
    fifo->first = slot->next;
    if (!fifo->first)
        fifo->last = NULL;
    fifo->count--;
    return slot;
}

static int transfer_slot_fail_locked(struct transfer *transfer, int error, cl_int cl_error)
{
    if (transfer->error == 0) {
        transfer->error = error;
        transfer->cl_error = cl_error;
    }
    return transfer->error;
}

int transfer_fail(struct transfer *transfer, int error, cl_int cl_error)
{
    pthread_mutex_lock(&transfer->lock);
    error = transfer_slot_fail_locked(transfer, error, cl_error);
    pthread_mutex_unlock(&transfer->lock);
    return error;
}

/* Lock held: the recorded error, which may be that time is up. */
static int transfer_slot_check_limits(struct transfer *transfer)
{
    const struct transfer_limits *limits = &transfer->limits;
    if (transfer->error == 0 && limits->cancel && atomic_load(limits->cancel))
        return transfer_slot_fail_locked(transfer, -ECANCELED, 0);
    if (transfer->error == 0 && limits->deadline_ns && clock_now_ns() >= limits->deadline_ns)
        return transfer_slot_fail_locked(transfer, -ETIMEDOUT, 0);
    return transfer->error;
}

/*
 * Wait for the events of @slot and release them. Whatever is reported, nothing that was enqueued
 * for it is still running afterwards. CL_SUCCESS or the first error.
 */
static cl_int transfer_slot_wait_events(struct slot *slot, struct residence *residence)
{
    cl_int error = CL_SUCCESS;
    if (slot->event_count == 0)
        return CL_SUCCESS;
    cl_int waited = residence_await_events(residence, slot->event_count, slot->events);
    if (waited != CL_SUCCESS)
        (void)residence_await_queue(residence, residence->io);
    const cl_icd_dispatch *cl = residence->cl;
    for (unsigned i = 0; i < slot->event_count; i++) {
        cl_int status = CL_COMPLETE;
        cl_int asked = cl->clGetEventInfo(slot->events[i], CL_EVENT_COMMAND_EXECUTION_STATUS,
                                          sizeof(status), &status, NULL);
        if (error == CL_SUCCESS && asked != CL_SUCCESS)
            error = asked;
        if (error == CL_SUCCESS && status < 0)
            error = status;
        cl->clReleaseEvent(slot->events[i]);
    }
    slot->event_count = 0;
    return error != CL_SUCCESS ? error : waited;
}

/* Populate the pages of a large target: the driver's single thread would fault them in one by one.
 */
static void transfer_slot_populate_piece(const struct piece *piece,
                                         const struct transfer_limits *limits)
{
    size_t span = (piece->region[2] - 1) * piece->host_slice +
                  (piece->region[1] - 1) * piece->host_row + piece->row;
    if (span >= POPULATE_MIN)
        host_populate(piece->host, span, host_cores(), limits);
}

static cl_int transfer_slot_enqueue(const struct transfer *transfer, struct slot *slot, bool read)
{
    const struct residence *residence = read ? transfer->from : transfer->to;
    cl_int error = CL_SUCCESS;
    for (unsigned i = 0; i < slot->piece_count && error == CL_SUCCESS; i++) {
        const struct piece *piece = &slot->pieces[i];
        char *memory = slot->memory ? slot->memory + piece->at : NULL;
        cl_event event = NULL;
        if (read && !memory)
            transfer_slot_populate_piece(piece, &transfer->limits);
        error = read ? piece_read(piece, residence->cl, residence->io, memory, &event)
                     : piece_write(piece, residence->cl, residence->io, memory, &event);
        if (error == CL_SUCCESS && event)
            slot->events[slot->event_count++] = event;
        budget_crossed(&residence->device->budget, !read, piece->size);
    }
    cl_int flushed = residence->cl->clFlush(residence->io);
    return error != CL_SUCCESS ? error : flushed;
}

/* Lock held: the slot's work is over. */
static void transfer_slot_put_free(struct transfer *transfer, struct slot *slot)
{
    if (transfer->error == 0 && transfer->limits.done)
        atomic_fetch_add_explicit(transfer->limits.done, slot->counted, memory_order_relaxed);
    if (UNLIKELY(slot->trace.begun_ns != 0))
        trace_end(transfer, slot);
    slot->used = 0;
    slot->counted = 0;
    slot->piece_count = 0;
    fifo_push(&transfer->free, slot);
    pthread_cond_signal(&transfer->progress);
}

/* Lock held, but released while waiting. */
static void transfer_slot_wait_flight(struct transfer *transfer, struct slot *slot)
{
    struct residence *last = transfer->to ? transfer->to : transfer->from;
    pthread_mutex_unlock(&transfer->lock);
    cl_int error = transfer_slot_wait_events(slot, last);
    cl_int out = between_wait_outs(transfer, slot);
    pthread_mutex_lock(&transfer->lock);
    if (error != CL_SUCCESS || out != CL_SUCCESS)
        transfer_slot_fail_locked(transfer, -EIO, error != CL_SUCCESS ? error : out);
    transfer_slot_put_free(transfer, slot);
}

/* Lock held, but released meanwhile: the slot's memory holds its bytes. */
static void transfer_slot_finish_copy(struct transfer *transfer, struct slot *slot)
{
    trace_step(slot, &slot->trace.staged_ns);
    if (!transfer->to || transfer->error != 0) {
        transfer_slot_put_free(transfer, slot);
        return;
    }
    pthread_mutex_unlock(&transfer->lock);
    cl_int error = transfer_slot_enqueue(transfer, slot, false);
    pthread_mutex_lock(&transfer->lock);
    if (error != CL_SUCCESS)
        transfer_slot_fail_locked(transfer, -EIO, error);
    fifo_push(&transfer->flight, slot);
    pthread_cond_signal(&transfer->progress);
}

/* Copy the part [begin, end) of @slot's memory. */
static void transfer_slot_copy_unit(const struct transfer *transfer, struct slot *slot,
                                    size_t begin, size_t end)
{
    for (unsigned i = 0; i < slot->piece_count; i++) {
        const struct piece *piece = &slot->pieces[i];
        size_t first = piece->at > begin ? piece->at : begin;
        size_t last = piece->at + piece->size < end ? piece->at + piece->size : end;
        if (first < last)
            piece_copy(piece, slot->memory + piece->at, first - piece->at, last - piece->at,
                       !transfer->to, &transfer->limits);
    }
}

/* Size of a unit. Threads that write fresh host memory must not share its large pages. */
static size_t transfer_slot_unit_for(const struct transfer *transfer, size_t used)
{
    bool to_host = !transfer->to;
    unsigned threads = transfer->thread_count ? transfer->thread_count : 1;
    size_t unit = used / threads / (to_host || threads == 1 ? 1 : UNITS_EACH);
    size_t grain = to_host && unit > UNIT_LARGE / 2 ? UNIT_LARGE : UNIT_SMALL;
    unit = (unit + grain - 1) & ~(grain - 1);
    return unit < UNIT_MIN ? UNIT_MIN : unit;
}

/* Lock held: the slot's reads have ended. Copy it, or send it on to the target. */
static void transfer_slot_begin_copy(struct transfer *transfer, struct slot *slot)
{
    if (!transfer->copies) {
        transfer_slot_finish_copy(transfer, slot);
        return;
    }
    slot->unit = transfer_slot_unit_for(transfer, slot->used);
    slot->handed = 0;
    slot->units_left = (unsigned)((slot->used + slot->unit - 1) / slot->unit);
    fifo_push(&transfer->copying, slot);
    pthread_cond_broadcast(&transfer->work);
}

static void transfer_slot_take_unit(struct transfer *transfer)
{
    struct slot *slot = transfer->copying.first;
    size_t begin = slot->handed, end = begin + slot->unit;
    if (end >= slot->used) {
        end = slot->used;
        transfer_slot_fifo_pop(&transfer->copying);
    }
    slot->handed = end;
    if (transfer->error == 0) {
        pthread_mutex_unlock(&transfer->lock);
        transfer_slot_copy_unit(transfer, slot, begin, end);
        pthread_mutex_lock(&transfer->lock);
    }
    if (--slot->units_left == 0)
        transfer_slot_finish_copy(transfer, slot);
}

/* Lock held, but released meanwhile: wait for the first queued slot's reads. */
static void transfer_slot_lead(struct transfer *transfer)
{
    struct slot *slot = transfer_slot_fifo_pop(&transfer->queued);
    cl_int error = CL_SUCCESS;
    transfer->leading = true;
    if (transfer->from) {
        pthread_mutex_unlock(&transfer->lock);
        error = transfer_slot_wait_events(slot, transfer->from);
        pthread_mutex_lock(&transfer->lock);
    }
    transfer->leading = false;
    trace_step(slot, &slot->trace.read_ns);
    if (error != CL_SUCCESS)
        transfer_slot_fail_locked(transfer, -EIO, error);
    transfer_slot_begin_copy(transfer, slot);
}

/* Lock held: copy one unit, or wait for reads; false when there is nothing to do. */
static bool transfer_slot_work_once(struct transfer *transfer)
{
    if (transfer->copying.first)
        transfer_slot_take_unit(transfer);
    else if (transfer->queued.first && !transfer->leading)
        transfer_slot_lead(transfer);
    else
        return false;
    return true;
}

static void *transfer_slot_thread_run(void *data)
{
    struct transfer *transfer = data;
    pthread_mutex_lock(&transfer->lock);
    while (!transfer->stopping)
        if (!transfer_slot_work_once(transfer))
            pthread_cond_wait(&transfer->work, &transfer->lock);
    pthread_mutex_unlock(&transfer->lock);
    return NULL;
}

void threads_start(struct transfer *transfer)
{
    unsigned *count = &transfer->thread_count;
    int error = 0;
    while (error == 0 && *count < transfer->shape.threads && *count < COST_THREADS_MAX) {
        error = thread_start("reseat-copy", HOST_STACK, transfer_slot_thread_run, transfer,
                             &transfer->threads[*count]);
        *count += error == 0;
    }
    if (error != 0)
        log_info("a copy thread could not be started (error %d): %u run", error, *count);
    transfer->shape.threads = *count;
}

void threads_stop(struct transfer *transfer)
{
    pthread_mutex_lock(&transfer->lock);
    transfer->stopping = true;
    pthread_cond_broadcast(&transfer->work);
    pthread_mutex_unlock(&transfer->lock);
    for (unsigned i = 0; i < transfer->thread_count; i++)
        pthread_join(transfer->threads[i], NULL);
    transfer->thread_count = 0;
}

/* Lock held: do or await something that frees a slot. */
static void transfer_slot_make_progress(struct transfer *transfer)
{
    struct fifo *flight = &transfer->flight;
    if (transfer->thread_count == 0) {
        bool behind = transfer->queued.count + transfer->copying.count >= flight->count;
        if ((behind || !flight->first) && transfer_slot_work_once(transfer))
            return;
    }
    if (flight->first) {
        transfer_slot_wait_flight(transfer, transfer_slot_fifo_pop(flight));
        return;
    }
    clock_wait(&transfer->progress, &transfer->lock, clock_now_ns() + LOOK_NS);
}

int slot_take(struct transfer *transfer, struct slot **ret_slot)
{
    int error;
    pthread_mutex_lock(&transfer->lock);
    while ((error = transfer_slot_check_limits(transfer)) == 0 && !transfer->free.first)
        transfer_slot_make_progress(transfer);
    if (error == 0)
        *ret_slot = transfer_slot_fifo_pop(&transfer->free);
    pthread_mutex_unlock(&transfer->lock);
    return error;
}

/* Wait until the throttle lets @bytes go. Nothing is in flight meanwhile, so that the remaining
 * time of a transfer measures the link. */
static void transfer_slot_keep_pace(struct transfer *transfer, uint64_t bytes)
{
    struct throttle *throttle = transfer->limits.throttle;
    uint64_t now = clock_now_ns(), due = throttle ? throttle_take(throttle, bytes, now) : now;
    if (due <= now)
        return;
    pthread_mutex_lock(&transfer->lock);
    while (transfer_slot_check_limits(transfer) == 0 &&
           transfer->free.count + 1 < transfer->slot_count)
        transfer_slot_make_progress(transfer);
    uint64_t began = now = clock_now_ns();
    while (now < due && transfer_slot_check_limits(transfer) == 0) {
        uint64_t look = now + LOOK_NS;
        clock_wait(&transfer->progress, &transfer->lock, look < due ? look : due);
        now = clock_now_ns();
        due = throttle_due(throttle, now);
    }
    throttle->slept_ns += now - began;
    pthread_mutex_unlock(&transfer->lock);
}

int slot_submit(struct transfer *transfer, struct slot *slot)
{
    cl_int cl_error = CL_SUCCESS;
    struct fifo *next = slot->memory ? &transfer->queued : &transfer->flight;
    transfer_slot_keep_pace(transfer, slot->used);
    trace_begin(slot);
    pthread_mutex_lock(&transfer->lock);
    int error = transfer_slot_check_limits(transfer);
    pthread_mutex_unlock(&transfer->lock);
    if (error == 0 && transfer->shape.passes)
        cl_error = between_enqueue_slot(transfer, slot);
    else if (error == 0 && transfer->from)
        cl_error = transfer_slot_enqueue(transfer, slot, true);
    else if (error == 0 && !slot->memory)
        cl_error = transfer_slot_enqueue(transfer, slot, false);

    pthread_mutex_lock(&transfer->lock);
    if (cl_error != CL_SUCCESS)
        transfer_slot_fail_locked(transfer, -EIO, cl_error);
    fifo_push(next, slot);
    pthread_cond_signal(&transfer->work);
    error = transfer->error;
    pthread_mutex_unlock(&transfer->lock);
    return error;
}

int slots_drain(struct transfer *transfer)
{
    pthread_mutex_lock(&transfer->lock);
    while (transfer->free.count < transfer->slot_count) {
        (void)transfer_slot_check_limits(transfer);
        transfer_slot_make_progress(transfer);
    }
    for (unsigned i = 0; i < transfer->slot_count; i++)
        trace_flush(transfer, &transfer->slots[i]);
    int error = transfer->error;
    pthread_mutex_unlock(&transfer->lock);
    return error;
}
