#include "state/transfer/transfer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/memory/pages.h"
#include "state/transfer/transfer_priv.h"

#define UNKNOWN_TOTAL (64ull << 20) /* where the caller does not say */
#define PACED_LEAST   (64u << 10)   /* bytes that go at once however slow it is to be */

static bool transfer_is_direct(const struct transfer *transfer)
{
    return transfer->from && transfer->to;
}

static bool transfer_has_link(const struct transfer *transfer)
{
    return residence_has_link(transfer->from) || residence_has_link(transfer->to);
}

/* True when bytes must pass through our chunks, because the driver must not be given the host's
 * memory. */
static bool transfer_needs_ring(const struct transfer *transfer)
{
    return transfer_is_direct(transfer) || transfer->limits.user_memory;
}

size_t transfer_between_least = 64u << 10;

between_function transfer_between(const struct residence *from, const struct residence *to,
                                  uint64_t total)
{
    if (total < transfer_between_least ||
        from->device->between != to->device->between) /* of two drivers, or of neither */
        return NULL;
    return from->device->between;
}

/* Choose the shape for @total bytes. @predict: compute the predicted time also where the choice
 * does not depend on it. */
static void transfer_choose(struct transfer *transfer, uint64_t total, bool predict)
{
    struct transfer_shape *shape = &transfer->shape;
    struct link_figures from = {0}, to = {0};
    struct host_figures host = {0};
    struct cost_choice choice;
    const struct cost_way way = {.host = &host,
                                 .from = transfer->from ? &from : NULL,
                                 .to = transfer->to ? &to : NULL,
                                 .total = total,
                                 .cores = host_cores(),
                                 .link = transfer_has_link(transfer),
                                 .ring = transfer_needs_ring(transfer),
                                 .fresh = transfer->limits.fresh};
    bool simple = cost_is_simple(&way, &choice);
    if (!simple || predict) {
        if (transfer->from)
            transfer_link(transfer->from, &from);
        if (transfer->to)
            transfer_link(transfer->to, &to);
        probe_host(&host);
        cost_route(&way, &choice);
        /* Where a driver works in the calling thread (POCL's basic device), a second thread lets
         * both devices work at once. */
        shape->threads = transfer_is_direct(transfer) && host_cores() > 1 && !simple;
    }
    shape->chunk = choice.chunk;
    shape->chunks = choice.chunks;
    shape->predicted = choice.seconds;
    if (!transfer_is_direct(transfer))
        shape->threads = choice.threads;
}

double transfer_predict(struct residence *from, struct residence *to, uint64_t total)
{
    struct transfer transfer = {.from = from, .to = to};
    transfer_choose(&transfer, total, true);
    return transfer.shape.predicted;
}

/* Take registered memory that one of the ends keeps, or else new memory, in whose place the other
 * end registers it. */
static bool transfer_find_memory(struct transfer *transfer, size_t size)
{
    struct residence *ends[2] = {transfer->from, transfer->to};
    for (int i = 0; i < 2 && !transfer->memory; i++) {
        struct pinned *pin = &transfer->pins[i];
        if (residence_has_link(ends[i]) && pinned_take(ends[i], size, pin)) {
            transfer->memory = pin->memory;
            transfer->memory_size = pin->size;
        }
    }
    if (transfer->memory)
        return true;
    transfer->memory = host_ring_create(size, host_cores(), &transfer->limits);
    transfer->memory_size = size;
    return transfer->memory != NULL;
}

/* Let the end that registered the memory keep it; of two, the first, because the second only
 * borrowed it. */
static void transfer_give_memory(struct transfer *transfer)
{
    int keeps = transfer->pins[0].buffer ? 0 : 1;
    if (transfer->pins[keeps].buffer) {
        if (keeps == 0)
            pinned_destroy(&transfer->pins[1]);
        pinned_give(&transfer->pins[keeps]);
    } else {
        pages_give(transfer->memory, transfer->memory_size);
    }
    transfer->memory = NULL;
}

/* Make the ring's memory and register it with the drivers. Without a ring, drivers access a host
 * end directly. */
static bool transfer_make_ring(struct transfer *transfer)
{
    struct residence *ends[2] = {transfer->from, transfer->to};
    struct transfer_shape *shape = &transfer->shape;
    if (!transfer_find_memory(transfer, shape->chunk * shape->chunks))
        return false;
    shape->registered = true;
    for (int i = 0; i < 2; i++)
        if (residence_has_link(ends[i]) && !transfer->pins[i].buffer &&
            !pinned_create(ends[i], transfer->memory, transfer->memory_size, &transfer->pins[i]))
            shape->registered = false;
    /* Without registered memory, the extra copy gains nothing. */
    if (!shape->registered && !transfer_needs_ring(transfer)) {
        transfer_give_memory(transfer);
        return false;
    }
    return true;
}

/* Bytes for each wait of a transfer without a ring: few, so that cancellation is noticed on a slow
 * link; more where a driver's memory copy is faster for large requests. */
static size_t transfer_plain_room(const struct transfer *transfer)
{
    return transfer_has_link(transfer) ? PLAIN_SLOT_LINK : PLAIN_SLOT_UNIFIED;
}

/* Bytes of a slot without a bandwidth limit. */
static size_t transfer_whole_room(const struct transfer *transfer)
{
    return transfer->shape.chunk ? transfer->shape.chunk : transfer_plain_room(transfer);
}

/* Bytes to send at once under a bandwidth limit, so that a slow pace is kept from moment to moment.
 */
static size_t transfer_paced_room(const struct transfer *transfer, size_t room)
{
    const struct throttle *throttle = transfer->limits.throttle;
    uint64_t rate = throttle ? throttle_rate(throttle) : 0;
    if (rate == 0)
        return room;
    uint64_t moment = rate / (NS_PER_S / THROTTLE_BURST_NS);
    if (moment < PACED_LEAST)
        moment = PACED_LEAST;
    return room < moment ? room : (size_t)moment;
}

/* Make what `shape` describes: ring, slots, threads. */
static int transfer_build(struct transfer *transfer)
{
    struct transfer_shape *shape = &transfer->shape;
    if (shape->chunk && !transfer_make_ring(transfer)) {
        if (transfer_needs_ring(transfer))
            return -ENOMEM;
        *shape = (struct transfer_shape){0};
    }
    unsigned count = shape->chunk ? shape->chunks : PLAIN_SLOTS;
    transfer->room = transfer_paced_room(transfer, transfer_whole_room(transfer));
    transfer->slots = calloc(count, sizeof(*transfer->slots));
    if (!transfer->slots)
        return -ENOMEM;
    transfer->slot_count = count;
    for (unsigned i = 0; i < count; i++) {
        if (shape->chunk)
            transfer->slots[i].memory = transfer->memory + i * shape->chunk;
        fifo_push(&transfer->free, &transfer->slots[i]);
    }
    transfer->copies = shape->chunk && !transfer_is_direct(transfer);
    threads_start(transfer);
    transfer->planned = true;
    log_debug("transfer: %u chunks of %zu bytes, %u threads, %s", shape->chunks, shape->chunk,
              shape->threads, shape->registered ? "registered" : "plain");
    return 0;
}

static int transfer_plan(struct transfer *transfer, uint64_t total)
{
    transfer->chosen_for = total;
    transfer->between = transfer_is_direct(transfer) && !transfer->limits.through_host
                            ? transfer_between(transfer->from, transfer->to, total)
                            : NULL;
    if (transfer->between)
        transfer->shape = (struct transfer_shape){.passes = true};
    else
        transfer_choose(transfer, total, false);
    return transfer_build(transfer);
}

/* Take what @series keeps for these ends, prepared for @total bytes and @limits; or NULL. What does
 * not fit them is freed. */
static struct transfer *transfer_series_take(struct transfer_series *series,
                                             const struct residence *from,
                                             const struct residence *to, uint64_t total,
                                             const struct transfer_limits *limits)
{
    size_t at = 0, last = TRANSFER_SERIES_KEPT - 1;
    while (at <= last &&
           !(series->idle[at] && series->idle[at]->from == from && series->idle[at]->to == to))
        at++;
    if (at > last)
        return NULL;
    struct transfer *transfer = series->idle[at];
    memmove(&series->idle[at], &series->idle[at + 1], (last - at) * sizeof(transfer));
    series->idle[last] = NULL;
    if (total > transfer->chosen_for || (limits->user_memory && transfer->shape.chunk == 0) ||
        (limits->through_host && transfer->shape.passes)) {
        transfer_destroy(transfer);
        return NULL;
    }
    transfer->limits = *limits;
    transfer->room = transfer_paced_room(transfer, transfer_whole_room(transfer));
    return transfer;
}

/* Keep @transfer, which is idle, in @series. */
static void transfer_series_give(struct transfer_series *series, struct transfer *transfer)
{
    const size_t last = TRANSFER_SERIES_KEPT - 1;
    struct transfer *oldest = series->idle[last];
    memmove(&series->idle[1], &series->idle[0], last * sizeof(transfer));
    series->idle[0] = transfer;
    transfer->limits = (struct transfer_limits){0};
    transfer_destroy(oldest);
}

void transfer_series_finish(struct transfer_series *series)
{
    for (size_t i = 0; i < TRANSFER_SERIES_KEPT; i++)
        transfer_destroy(series->idle[i]);
    *series = (struct transfer_series){0};
}

static struct transfer *transfer_new(struct residence *from, struct residence *to,
                                     const struct transfer_limits *limits)
{
    struct transfer *transfer = calloc(1, sizeof(*transfer));
    if (!transfer)
        return NULL;
    transfer->from = from;
    transfer->to = to;
    transfer->trace_id = trace_id_take();
    if (limits)
        transfer->limits = *limits;
    pthread_mutex_init(&transfer->lock, NULL);
    pthread_cond_init(&transfer->work, NULL);
    pthread_cond_init(&transfer->progress, NULL);
    return transfer;
}

int transfer_create(struct residence *from, struct residence *to, uint64_t total,
                    const struct transfer_limits *limits, struct transfer **ret_transfer)
{
    struct transfer_series *series = limits ? limits->series : NULL;
    if (series && total < series->total)
        total = series->total;
    struct transfer *transfer =
        series ? transfer_series_take(series, from, to, total, limits) : NULL;
    if (transfer) {
        *ret_transfer = transfer;
        return 0;
    }
    transfer = transfer_new(from, to, limits);
    if (!transfer)
        return -ENOMEM;
    int error = total ? transfer_plan(transfer, total) : 0;
    if (error) {
        transfer_destroy(transfer);
        return error;
    }
    *ret_transfer = transfer;
    return 0;
}

int transfer_create_shaped(struct residence *from, struct residence *to,
                           const struct transfer_shape *shape, const struct transfer_limits *limits,
                           struct transfer **ret_transfer)
{
    struct transfer *transfer = transfer_new(from, to, limits);
    if (!transfer)
        return -ENOMEM;
    transfer->shape = *shape;
    int error = transfer_build(transfer);
    if (error) {
        transfer_destroy(transfer);
        return error;
    }
    *ret_transfer = transfer;
    return 0;
}

/* Submit the slot being filled. */
static int transfer_submit_filling(struct transfer *transfer)
{
    struct slot *slot = transfer->filling;
    if (!slot)
        return 0;
    transfer->filling = NULL;
    return slot_submit(transfer, slot);
}

/* Room left in the slot being filled, or 0 when it must be submitted first. */
static size_t transfer_room_left(const struct transfer *transfer, const struct walk *walk)
{
    const struct slot *slot = transfer->filling;
    size_t room = transfer->room - slot->used;
    if (slot->piece_count == SLOT_PIECES)
        return 0;
    /* Do not split off small parts: what does not fit begins the next slot. */
    if (slot->used && room < walk->left && room < transfer->room / 8)
        return 0;
    return transfer->shape.passes && walk->whole.image && room > PASSED_MOST ? PASSED_MOST : room;
}

int transfer_add(struct transfer *transfer, const struct transfer_item *item)
{
    struct walk walk;
    int error = 0;
    walk_init(&walk, item);
    if (!transfer->planned)
        error = transfer_plan(transfer, item->size > UNKNOWN_TOTAL ? item->size : UNKNOWN_TOTAL);
    if (error)
        return transfer_fail(transfer, error, 0);

    while (walk.left) {
        struct slot *slot = transfer->filling;
        if (!slot) {
            error = slot_take(transfer, &transfer->filling);
            if (error)
                return error;
            slot = transfer->filling;
        }
        struct piece *piece = &slot->pieces[slot->piece_count];
        size_t room = transfer_room_left(transfer, &walk);
        if (room == 0 || !walk_next(&walk, room, piece)) {
            error = transfer_submit_filling(transfer);
            if (error)
                return error;
            continue;
        }
        piece->at = slot->used;
        slot->piece_count++;
        slot->counted += piece->counted;
        size_t end = (slot->used + piece->size + PIECE_ALIGN - 1) / PIECE_ALIGN * PIECE_ALIGN;
        slot->used = end < transfer->room ? end : transfer->room;
        if (slot->used == transfer->room || slot->piece_count == SLOT_PIECES) {
            error = transfer_submit_filling(transfer);
            if (error)
                return error;
        }
    }
    return 0;
}

int transfer_flush(struct transfer *transfer)
{
    (void)transfer_submit_filling(transfer); /* the transfer records its error */
    return slots_drain(transfer);
}

void transfer_destroy(struct transfer *transfer)
{
    if (!transfer)
        return;
    if (transfer->filling) {
        (void)transfer_fail(transfer, -ECANCELED,
                            0); /* destroyed without a flush: nobody wants the rest */
        (void)transfer_submit_filling(transfer);
    }
    struct transfer_series *series = transfer->limits.series;
    int failed = slots_drain(transfer);
    between_finish(transfer);
    if (failed == 0 && transfer->planned && series) {
        transfer_series_give(series, transfer);
        return;
    }
    threads_stop(transfer);
    transfer_give_memory(transfer);
    pthread_cond_destroy(&transfer->work);
    pthread_cond_destroy(&transfer->progress);
    pthread_mutex_destroy(&transfer->lock);
    free(transfer->slots);
    trace_id_give(transfer->trace_id);
    free(transfer);
}

cl_int transfer_error(const struct transfer *transfer)
{
    struct transfer *mutable = (struct transfer *)transfer;
    pthread_mutex_lock(&mutable->lock);
    cl_int error = transfer->cl_error;
    pthread_mutex_unlock(&mutable->lock);
    return error;
}

void transfer_describe(const struct transfer *transfer, struct transfer_shape *ret_shape)
{
    *ret_shape = transfer->shape;
}
