#include "state/base/span.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "state/base/threads/fork.h"

/* A power of two: a quarter of a second of 30,000 launches each. */
#define ROOM 8192u

/*
 * A slot's turn tells who may access it: n, the writer of the n-th span; n + 1, its reader; n +
 * ROOM, the next writer. Writers take numbers one after the other, so that each slot has one
 * writer.
 */
struct slot {
    _Atomic uint64_t turn;
    struct span span;
};

READ_MOSTLY atomic_bool span_on;
static struct slot
    *_Atomic ring; /* ROOM slots; never freed, because writers may access it at any time */
static _Atomic uint64_t next_in, lost;
static uint64_t next_out; /* used by the reader only */

void span_put(const struct span *span)
{
    struct slot *slots = atomic_load_explicit(&ring, memory_order_acquire);
    uint64_t number = atomic_load_explicit(&next_in, memory_order_relaxed);
    while (slots && span_wanted()) {
        struct slot *slot = &slots[number % ROOM];
        uint64_t turn = atomic_load_explicit(&slot->turn, memory_order_acquire);
        if (turn < number) {
            atomic_fetch_add_explicit(&lost, 1, memory_order_relaxed);
            return;
        }
        if (turn > number) { /* another writer took it */
            number = atomic_load_explicit(&next_in, memory_order_relaxed);
        } else if (atomic_compare_exchange_weak_explicit(
                       &next_in, &number, number + 1, memory_order_relaxed, memory_order_relaxed)) {
            slot->span = *span;
            atomic_store_explicit(&slot->turn, number + 1, memory_order_release);
            return;
        }
    }
}

void span_end_at(uint64_t begun, enum span_track track, const char *category, const char *name,
                 const char *key, uint64_t value)
{
    struct span span = {.category = category,
                        .begin_ns = begun,
                        .end_ns = clock_now_ns(),
                        .track = (uint8_t)track,
                        .key = key,
                        .value = value};
    if (begun == 0)
        return;
    span.of = track == SPAN_THREAD ? (uint32_t)syscall(SYS_gettid) : 0;
    (void)!snprintf(span.name, sizeof(span.name), "%s", name);
    span_put(&span);
}

size_t span_take(struct span *ret_spans, size_t most)
{
    struct slot *slots = atomic_load(&ring);
    size_t count = 0;
    while (slots && count < most) {
        struct slot *slot = &slots[next_out % ROOM];
        if (atomic_load_explicit(&slot->turn, memory_order_acquire) != next_out + 1)
            break;
        ret_spans[count++] = slot->span;
        atomic_store_explicit(&slot->turn, next_out++ + ROOM, memory_order_release);
    }
    return count;
}

int span_start(void)
{
    struct span old;
    if (!atomic_load(&ring)) {
        struct slot *slots = calloc(ROOM, sizeof(*slots));
        if (!slots)
            return -ENOMEM;
        for (uint64_t i = 0; i < ROOM; i++)
            atomic_init(&slots[i].turn, i);
        atomic_store(&ring, slots);
    }
    while (span_take(&old, 1) != 0)
        ;
    atomic_store(&lost, 0);
    atomic_store(&span_on, true);
    return 0;
}

void span_stop(void)
{
    atomic_store(&span_on, false);
}

uint64_t span_lost(void)
{
    return atomic_load(&lost);
}

/* The child does not trace; spans that the parent's threads were writing is never read. */
static void span_in_child(void)
{
    atomic_store(&span_on, false);
    atomic_store(&ring, NULL);
    atomic_store(&next_in, 0);
    next_out = 0;
}

FORK_PART = {.rank = FORK_TABLE, .in_child = span_in_child};
