#include <errno.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/thread.h"
#include "state/transfer/transfer_priv.h"

#define LOOK_NS      (5 * NS_PER_MS) /* Between looks at the limits. */
#define POPULATE_MIN (1u << 20)
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

struct slot *fifo_pop(struct fifo *fifo)
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

static int fail_locked(struct transfer *transfer, int error, cl_int cl_error)
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
    error = fail_locked(transfer, error, cl_error);
    pthread_mutex_unlock(&transfer->lock);
    return error;
}

/* Under the lock: the error kept, which may be that time is up. */
static int check_limits(struct transfer *transfer)
{
    const struct transfer_limits *limits = &transfer->limits;
    if (transfer->error == 0 && limits->cancel && atomic_load(limits->cancel))
        return fail_locked(transfer, -ECANCELED, 0);
    if (transfer->error == 0 && limits->deadline_ns && clock_now_ns() >= limits->deadline_ns)
        return fail_locked(transfer, -ETIMEDOUT, 0);
    return transfer->error;
}

/*
 * Wait for the events of @slot and release them. Whatever is reported, nothing that was enqueued
 * for it is still running afterwards. CL_SUCCESS or the first error.
 */
static cl_int wait_events(struct slot *slot, struct residence *residence)
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

/* A driver's one thread would fault the pages of a large target. */
static void populate_piece(const struct piece *piece, const struct transfer_limits *limits)
{
    size_t span = (piece->region[2] - 1) * piece->host_slice +
                  (piece->region[1] - 1) * piece->host_row + piece->row;
    if (span >= POPULATE_MIN)
        host_populate(piece->host, span, host_cores(), limits);
}

static cl_int enqueue(const struct transfer *transfer, struct slot *slot, bool read)
{
    const struct residence *residence = read ? transfer->from : transfer->to;
    cl_int error = CL_SUCCESS;
    for (unsigned i = 0; i < slot->piece_count && error == CL_SUCCESS; i++) {
        const struct piece *piece = &slot->pieces[i];
        char *memory = slot->memory ? slot->memory + piece->at : NULL;
        cl_event event = NULL;
        if (read && !memory)
            populate_piece(piece, &transfer->limits);
        error = read ? piece_read(piece, residence->cl, residence->io, memory, &event)
                     : piece_write(piece, residence->cl, residence->io, memory, &event);
        if (error == CL_SUCCESS && event)
            slot->events[slot->event_count++] = event;
    }
    cl_int flushed = residence->cl->clFlush(residence->io);
    return error != CL_SUCCESS ? error : flushed;
}

/* Under the lock: the slot's work is over. */
static void put_free(struct transfer *transfer, struct slot *slot)
{
    if (transfer->error == 0 && transfer->limits.done)
        atomic_fetch_add_explicit(transfer->limits.done, slot->counted, memory_order_relaxed);
    slot->used = 0;
    slot->counted = 0;
    slot->piece_count = 0;
    fifo_push(&transfer->free, slot);
    pthread_cond_signal(&transfer->progress);
}

/* Under the lock, which is let go of meanwhile. */
static void wait_flight(struct transfer *transfer, struct slot *slot)
{
    struct residence *last = transfer->to ? transfer->to : transfer->from;
    pthread_mutex_unlock(&transfer->lock);
    cl_int error = wait_events(slot, last);
    pthread_mutex_lock(&transfer->lock);
    if (error != CL_SUCCESS)
        fail_locked(transfer, -EIO, error);
    put_free(transfer, slot);
}

/* Under the lock, which is let go of meanwhile: the slot's memory holds its bytes. */
static void finish_copy(struct transfer *transfer, struct slot *slot)
{
    if (!transfer->to || transfer->error != 0) {
        put_free(transfer, slot);
        return;
    }
    pthread_mutex_unlock(&transfer->lock);
    cl_int error = enqueue(transfer, slot, false);
    pthread_mutex_lock(&transfer->lock);
    if (error != CL_SUCCESS)
        fail_locked(transfer, -EIO, error);
    fifo_push(&transfer->flight, slot);
    pthread_cond_signal(&transfer->progress);
}

/* Copy the part of @slot's memory that a unit covers. */
static void copy_unit(const struct transfer *transfer, struct slot *slot, size_t begin, size_t end)
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

static void take_unit(struct transfer *transfer)
{
    struct slot *slot = transfer->copying.first;
    size_t begin = slot->copied, end = begin + slot->unit;
    if (end >= slot->used) {
        end = slot->used;
        fifo_pop(&transfer->copying);
    }
    slot->copied = end;
    if (transfer->error == 0) {
        pthread_mutex_unlock(&transfer->lock);
        copy_unit(transfer, slot, begin, end);
        pthread_mutex_lock(&transfer->lock);
    }
    if (--slot->units_left == 0)
        finish_copy(transfer, slot);
}

/* Wait for the first queued slot's reads, and hand it on. */
static void lead(struct transfer *transfer)
{
    struct slot *slot = fifo_pop(&transfer->queued);
    cl_int error = CL_SUCCESS;
    transfer->leading = true;
    if (transfer->from) {
        pthread_mutex_unlock(&transfer->lock);
        error = wait_events(slot, transfer->from);
        pthread_mutex_lock(&transfer->lock);
    }
    transfer->leading = false;
    if (error != CL_SUCCESS)
        fail_locked(transfer, -EIO, error);
    if (transfer->from && transfer->to) {
        finish_copy(transfer, slot);
        return;
    }
    unsigned threads = transfer->thread_count ? transfer->thread_count : 1;
    /* Threads that write fresh host memory do not share its large pages. */
    size_t unit = slot->used / threads;
    size_t grain = !transfer->to && unit > UNIT_LARGE / 2 ? UNIT_LARGE : UNIT_SMALL;
    slot->unit = (unit + grain - 1) & ~(grain - 1);
    if (slot->unit < UNIT_MIN)
        slot->unit = UNIT_MIN;
    slot->copied = 0;
    slot->units_left = (unsigned)((slot->used + slot->unit - 1) / slot->unit);
    fifo_push(&transfer->copying, slot);
    pthread_cond_broadcast(&transfer->work);
}

/* Under the lock: one step of what lies between the caller's; false when there is nothing to do. */
static bool work_once(struct transfer *transfer)
{
    if (transfer->copying.first)
        take_unit(transfer);
    else if (transfer->queued.first && !transfer->leading)
        lead(transfer);
    else
        return false;
    return true;
}

static void *thread_run(void *data)
{
    struct transfer *transfer = data;
    pthread_mutex_lock(&transfer->lock);
    while (!transfer->stopping)
        if (!work_once(transfer))
            pthread_cond_wait(&transfer->work, &transfer->lock);
    pthread_mutex_unlock(&transfer->lock);
    return NULL;
}

void threads_start(struct transfer *transfer, unsigned threads)
{
    while (transfer->thread_count < threads) {
        pthread_t thread;
        int error = thread_start("reseat-copy", HOST_STACK, thread_run, transfer, &thread);
        if (error) {
            log_info("a copy thread could not be started (error %d): %u run", error,
                     transfer->thread_count);
            return;
        }
        pthread_mutex_lock(&transfer->lock);
        transfer->threads[transfer->thread_count++] = thread;
        pthread_mutex_unlock(&transfer->lock);
    }
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

/* Under the lock: let something happen that frees a slot. */
static void make_progress(struct transfer *transfer)
{
    struct fifo *flight = &transfer->flight;
    if (transfer->thread_count == 0) {
        bool behind = transfer->copying.count + transfer->queued.count >= flight->count;
        if ((behind || !flight->first) && work_once(transfer))
            return;
    }
    if (flight->first) {
        wait_flight(transfer, fifo_pop(flight));
        return;
    }
    clock_wait(&transfer->progress, &transfer->lock, clock_now_ns() + LOOK_NS);
}

int slot_take(struct transfer *transfer, struct slot **ret_slot)
{
    int error;
    pthread_mutex_lock(&transfer->lock);
    while ((error = check_limits(transfer)) == 0 && !transfer->free.first)
        make_progress(transfer);
    if (error == 0)
        *ret_slot = fifo_pop(&transfer->free);
    pthread_mutex_unlock(&transfer->lock);
    return error;
}

int slot_submit(struct transfer *transfer, struct slot *slot)
{
    cl_int cl_error = CL_SUCCESS;
    struct fifo *next = slot->memory ? &transfer->queued : &transfer->flight;
    pthread_mutex_lock(&transfer->lock);
    int error = check_limits(transfer);
    pthread_mutex_unlock(&transfer->lock);
    if (error == 0 && transfer->from)
        cl_error = enqueue(transfer, slot, true);
    else if (error == 0 && !slot->memory)
        cl_error = enqueue(transfer, slot, false);

    pthread_mutex_lock(&transfer->lock);
    if (cl_error != CL_SUCCESS)
        fail_locked(transfer, -EIO, cl_error);
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
        (void)check_limits(transfer);
        make_progress(transfer);
    }
    int error = transfer->error;
    pthread_mutex_unlock(&transfer->lock);
    return error;
}
