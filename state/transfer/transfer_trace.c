#include <stdio.h>
#include <strings.h>

#include "state/transfer/transfer_priv.h"

/* So long a span of chunks is at least, so that there are never more of them than a ring of spans
 * and who draws them have room for. */
#define TRACE_BATCH_NS NS_PER_MS

/* A bit for each id that is taken: chunks of transfers that go on beside each other are told apart
 * by it. There are no spans of a transfer that found none. */
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

/* Of a chunk that has a span of its own. */
static void transfer_trace_put_steps(const struct transfer *transfer, const struct slot *slot,
                                     uint64_t end_ns)
{
    const struct slot_trace *trace = &slot->trace;
    uint64_t read_ns = trace->read_ns ? trace->read_ns : trace->begun_ns;
    uint64_t staged_ns = trace->staged_ns ? trace->staged_ns : read_ns;
    if (!slot->memory)
        return; /* it goes straight: there is one step */
    if (transfer->from)
        transfer_trace_put(transfer, slot, "read", trace->begun_ns, read_ns, slot->used);
    if (transfer->stage_count)
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
        trace_flush(transfer, slot); /* nothing went on for long */
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
