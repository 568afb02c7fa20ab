#include "agent/daemon/devices/ledger.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SPAN_MS 1000
#define STEP_LEAST    (64ull << 20)
#define STEP_SHARE    64
#define PLENTY        4

static uint64_t ledger_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t ledger_most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void ledger_init(struct ledger *ret_ledger)
{
    *ret_ledger = (struct ledger){0};
}

void ledger_finish(struct ledger *ledger)
{
    free(ledger->devices);
    *ledger = (struct ledger){0};
}

struct ledger_device *ledger_find(const struct ledger *ledger, const char *name)
{
    for (uint32_t i = 0; i < ledger->count; i++)
        if (strcmp(ledger->devices[i].name, name) == 0)
            return &ledger->devices[i];
    return NULL;
}

int ledger_device(struct ledger *ledger, const char *name, uint32_t *ret_device)
{
    if (!name[0])
        return -EINVAL;
    struct ledger_device *known = ledger_find(ledger, name);
    if (known) {
        *ret_device = (uint32_t)(known - ledger->devices);
        return 0;
    }
    struct ledger_device *grown =
        realloc(ledger->devices, (ledger->count + 1) * sizeof(*ledger->devices));
    if (!grown)
        return -ENOMEM;
    ledger->devices = grown;
    struct ledger_device *device = &grown[ledger->count];
    *device = (struct ledger_device){
        .own = LEDGER_BYTES_MAX, .limit = LEDGER_NO_LIMIT, .tight = LEDGER_NO_LIMIT};
    snprintf(device->name, sizeof(device->name), "%s", name);
    *ret_device = ledger->count++;
    return 0;
}

uint64_t ledger_lasting(const struct ledger_device *device)
{
    /* A limit above the device's own memory does not add any. */
    return ledger_least(device->own, device->limit);
}

uint64_t ledger_capacity(const struct ledger_device *device)
{
    return ledger_least(ledger_lasting(device), device->tight);
}

uint64_t ledger_free(const struct ledger_device *device)
{
    uint64_t capacity = ledger_capacity(device);

    return capacity > device->reserved ? capacity - device->reserved : 0;
}

uint64_t ledger_step(const struct ledger_device *device)
{
    return ledger_most(STEP_LEAST, ledger_capacity(device) / STEP_SHARE);
}

uint64_t ledger_round(const struct ledger_device *device, uint64_t bytes)
{
    uint64_t step = ledger_step(device), room = ledger_free(device);
    uint64_t more = bytes < step ? step - bytes : 0;

    return bytes + (room > bytes ? ledger_least(more, (room - bytes) / PLENTY) : 0);
}

uint64_t ledger_initial(const struct ledger_device *device)
{
    return ledger_least(ledger_step(device), ledger_free(device) / PLENTY);
}

uint64_t ledger_reserved(const struct ledger_entry *entry)
{
    return ledger_most(entry->granted, entry->held);
}

/** Subtract an entry from the sums before it changes; ledger_enter() adds it again. */
static void ledger_leave(struct ledger *ledger, const struct ledger_entry *entry)
{
    if (entry->device != LEDGER_NONE) {
        struct ledger_device *device = &ledger->devices[entry->device];
        device->reserved -= ledger_reserved(entry);
        device->held -= entry->held;
        device->accounts--;
    }
    if (entry->target != LEDGER_NONE)
        ledger->devices[entry->target].reserved -= entry->pending;
}

static void ledger_enter(struct ledger *ledger, struct ledger_entry *entry)
{
    if (entry->device != LEDGER_NONE) {
        struct ledger_device *device = &ledger->devices[entry->device];
        device->reserved += ledger_reserved(entry);
        device->held += entry->held;
        device->accounts++;
        device->reserved_peak = ledger_most(device->reserved_peak, device->reserved);
        device->held_peak = ledger_most(device->held_peak, device->held);
    }
    if (entry->target != LEDGER_NONE) {
        struct ledger_device *device = &ledger->devices[entry->target];
        device->reserved += entry->pending;
        device->reserved_peak = ledger_most(device->reserved_peak, device->reserved);
    }
    entry->held_peak = ledger_most(entry->held_peak, entry->held);
    entry->granted_peak = ledger_most(entry->granted_peak, entry->granted);
}

void ledger_open(struct ledger *ledger, struct ledger_entry *ret_entry)
{
    *ret_entry = (struct ledger_entry){.next = ledger->accounts,
                                       .at = &ledger->accounts,
                                       .device = LEDGER_NONE,
                                       .target = LEDGER_NONE};
    if (ret_entry->next)
        ret_entry->next->at = &ret_entry->next;
    ledger->accounts = ret_entry;
}

void ledger_close(struct ledger *ledger, struct ledger_entry *entry)
{
    if (!entry->at)
        return;
    *entry->at = entry->next;
    if (entry->next)
        entry->next->at = entry->at;
    entry->at = NULL;
    ledger_leave(ledger, entry);
}

void ledger_move(const struct ledger_entry *from, struct ledger_entry *ret_to)
{
    *ret_to = *from;
    *ret_to->at = ret_to;
    if (ret_to->next)
        ret_to->next->at = &ret_to->next;
}

void ledger_place(struct ledger *ledger, struct ledger_entry *entry, uint32_t device)
{
    if (entry->device == device)
        return;
    ledger_leave(ledger, entry);
    entry->device = device;
    entry->granted = 0;
    entry->held = 0;
    ledger_enter(ledger, entry);
}

void ledger_set_granted(struct ledger *ledger, struct ledger_entry *entry, uint64_t bytes)
{
    if (entry->device == LEDGER_NONE)
        return;
    ledger_leave(ledger, entry);
    entry->granted = ledger_least(bytes, LEDGER_BYTES_MAX);
    ledger_enter(ledger, entry);
}

void ledger_set_held(struct ledger *ledger, struct ledger_entry *entry, uint64_t bytes)
{
    if (entry->device == LEDGER_NONE)
        return;
    ledger_leave(ledger, entry);
    entry->held = ledger_least(bytes, LEDGER_BYTES_MAX);
    ledger_enter(ledger, entry);
}

void ledger_keep(struct ledger *ledger, struct ledger_entry *entry, uint32_t target, uint64_t bytes)
{
    ledger_leave(ledger, entry);
    entry->target = target;
    entry->pending = target == LEDGER_NONE ? 0 : ledger_least(bytes, LEDGER_BYTES_MAX);
    ledger_enter(ledger, entry);
}

void ledger_arrive(struct ledger *ledger, struct ledger_entry *entry)
{
    if (entry->target == LEDGER_NONE)
        return;
    ledger_leave(ledger, entry);
    if (entry->device != entry->target)
        entry->held = 0;
    entry->device = entry->target;
    entry->granted = entry->pending;
    entry->target = LEDGER_NONE;
    entry->pending = 0;
    ledger_enter(ledger, entry);
}

bool ledger_check(const struct ledger *ledger)
{
    for (uint32_t i = 0; i < ledger->count; i++) {
        const struct ledger_device *device = &ledger->devices[i];
        uint64_t reserved = 0, held = 0;
        uint32_t accounts = 0;
        for (const struct ledger_entry *one = ledger->accounts; one; one = one->next) {
            if (one->device == i) {
                reserved += ledger_reserved(one);
                held += one->held;
                accounts++;
            }
            reserved += one->target == i ? one->pending : 0;
        }
        if (reserved != device->reserved || held != device->held || accounts != device->accounts ||
            reserved > device->reserved_peak || held > device->held_peak)
            return false;
    }
    return true;
}

void history_add(struct history *history, uint64_t now_ms, uint64_t granted, uint64_t held)
{
    if (!history->span_ms) {
        history->begin_ms = now_ms;
        history->span_ms = FIRST_SPAN_MS;
    }
    while ((now_ms - history->begin_ms) / history->span_ms >= HISTORY_SIZE) {
        /* After a long silence, repeat the last sample in the spans that have none. */
        for (; history->count && history->count < HISTORY_SIZE; history->count++)
            history->spans[history->count] = history->spans[history->count - 1];
        for (uint32_t i = 0; i < HISTORY_SIZE / 2; i++) {
            history->spans[i].granted =
                ledger_most(history->spans[2 * i].granted, history->spans[2 * i + 1].granted);
            history->spans[i].held =
                ledger_most(history->spans[2 * i].held, history->spans[2 * i + 1].held);
        }
        history->count = HISTORY_SIZE / 2;
        history->span_ms *= 2;
    }
    uint32_t at = (uint32_t)((now_ms - history->begin_ms) / history->span_ms);
    for (; history->count <= at; history->count++) {
        history->spans[history->count].granted = granted;
        history->spans[history->count].held = held;
    }
    history->spans[at].granted = ledger_most(history->spans[at].granted, granted);
    history->spans[at].held = ledger_most(history->spans[at].held, held);
}
