#include <stdio.h>
#include <strings.h>

#include "state/transfer/transfer_priv.h"

/* Least length of a span of chunks, so that their number stays within a ring of spans and what a
 * viewer can draw. */
#define TRACE_BATCH_NS NS_PER_MS

/* Ids in use, as bits: they distinguish chunks of concurrent transfers. A transfer that finds no
 * free id has no spans. */
#define TRACE_IDS 32
static _Atomic uint32_t ids;

unsigned trace_id_take(void)
{
    uint32_t taken = atomic_load(&ids), bit;
    do {
        bit = ~taken & (taken + 1);
    } while (bit != 0 && !atomic_compare_exchange_weak(&ids, &taken, taken | bit));
    return bit != 0 ? (unsigned)ffs((int)bit) - 1 : TRACE_IDS;
}

void trace_id_give(unsigned id)
{
    if (id < TRACE_IDS)
        atomic_fetch_and(&ids, ~(UINT32_C(1) << id));
}

static void transfer_trace_put(const struct transfer *transfer, const struct slot *slot,
                               const char *name, uint64_t begin_ns, uint64_t end_ns, uint64_t bytes)
{
    struct span span = {.category = "chunk",
                        .begin_ns = begin_ns,
                        .end_ns = end_ns,
                        .track = SPAN_CHUNK,
                        .of = transfer->trace_id << 16 | (uint32_t)(slot - transfer->slots),
                        .key = "bytes",
                        .value = bytes};
    (void)!snprintf(span.name, sizeof(span.name), "%s", name);
    span_put(&span);
}

void trace_flush(const struct transfer *transfer, struct slot *slot)
{
    struct slot_trace *trace = &slot->trace;
    char name[SPAN_NAME];
    if (trace->chunks == 0)
        return;
    (void)!snprintf(name, sizeof(name), trace->chunks == 1 ? "chunk" : "%u chunks", trace->chunks);
    transfer_trace_put(transfer, slot, name, trace->first_ns, trace->last_ns, trace->bytes);
    trace->chunks = 0;
    trace->bytes = 0;
}

/* Write the spans of the steps of a chunk that has a span of its own. */
static void transfer_trace_put_steps(const struct transfer *transfer, const struct slot *slot,
                                     uint64_t end_ns)
{
    const struct slot_trace *trace = &slot->trace;
    uint64_t read_ns = trace->read_ns ? trace->read_ns : trace->begun_ns;
    uint64_t staged_ns = trace->staged_ns ? trace->staged_ns : read_ns;
    if (!slot->memory)
        return; /* without stages there is only one step */
    if (transfer->from)
        transfer_trace_put(transfer, slot, "read", trace->begun_ns, read_ns, slot->used);
    if (transfer->copies)
        transfer_trace_put(transfer, slot, "copy", read_ns, transfer->to ? staged_ns : end_ns,
                           slot->used);
    if (transfer->to)
        transfer_trace_put(transfer, slot, "write", staged_ns, end_ns, slot->used);
}

void trace_end(const struct transfer *transfer, struct slot *slot)
{
    struct slot_trace *trace = &slot->trace;
    uint64_t now = clock_now_ns();
    if (transfer->trace_id == TRACE_IDS)
        return;
    if (trace->chunks != 0 && trace->begun_ns >= trace->last_ns + TRACE_BATCH_NS)
        trace_flush(transfer, slot); /* a pause ends the batch */
    if (trace->chunks++ == 0)
        trace->first_ns = trace->begun_ns;
    trace->last_ns = now;
    trace->bytes += slot->used;
    if (now - trace->first_ns < TRACE_BATCH_NS)
        return;
    if (trace->chunks == 1)
        transfer_trace_put_steps(transfer, slot, now);
    trace_flush(transfer, slot);
}
