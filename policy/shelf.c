#include <string.h>

#include "policy/decide_priv.h"

/* Whether any of many devices would do, for programs that may use some of them: asked of thousands
 * of programs in one decision, so the devices are put in order once. */

static uint64_t bytes_of(const struct policy_device *device, enum shelf_kind kind)
{
    return kind == SHELF_ROOM ? device_free(device) : device->memory;
}

/* Heap sort: the worst case is as the best, and it needs no memory. */
static void sift(struct shelf *shelf, uint32_t at, uint32_t count)
{
    uint64_t bytes = shelf->bytes[at];
    uint16_t device = shelf->devices[at];

    for (uint32_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        child += child + 1 < count && shelf->bytes[child + 1] < shelf->bytes[child];
        if (bytes <= shelf->bytes[child])
            break;
        shelf->bytes[at] = shelf->bytes[child];
        shelf->devices[at] = shelf->devices[child];
        at = child;
    }
    shelf->bytes[at] = bytes;
    shelf->devices[at] = device;
}

static void sort(struct shelf *shelf)
{
    for (uint32_t i = shelf->count / 2; i > 0; i--)
        sift(shelf, i - 1, shelf->count);
    for (uint32_t last = shelf->count; last > 1; last--) {
        uint64_t bytes = shelf->bytes[last - 1];
        uint16_t device = shelf->devices[last - 1];

        shelf->bytes[last - 1] = shelf->bytes[0];
        shelf->devices[last - 1] = shelf->devices[0];
        shelf->bytes[0] = bytes;
        shelf->devices[0] = device;
        sift(shelf, 0, last - 1);
    }
}

static void mark(struct shelf *shelf)
{
    uint64_t marks[TABLE_WORDS] = {0};

    for (uint32_t i = 0; i <= shelf->count; i++) {
        if (i % SHELF_STEP == 0)
            memcpy(shelf->first[i / SHELF_STEP], marks, sizeof(marks));
        if (i < shelf->count)
            marks[shelf->devices[i] / 64] |= UINT64_C(1) << shelf->devices[i] % 64;
    }
}

static struct shelf *shelf_of(struct view *view, enum shelf_kind kind)
{
    struct shelf *shelf = &view->tables->shelves[kind];

    if (view->shelf_known[kind])
        return shelf;
    view->shelf_known[kind] = true;
    shelf->asked = false;
    shelf->count = 0;
    for (uint32_t i = 0; i < view->world->device_count; i++) {
        const struct policy_device *d = device_at(view, i);

        if (kind != SHELF_ALL && !device_open(d))
            continue;
        shelf->bytes[shelf->count] = bytes_of(d, kind);
        shelf->devices[shelf->count++] = (uint16_t)i;
    }
    sort(shelf);
    mark(shelf);
    return shelf;
}

/* How many of them have @bytes. Without branches, which nobody could predict. */
static uint32_t count_with(const struct shelf *shelf, uint64_t bytes)
{
    uint32_t low = 0, count = shelf->count;

    if (!count)
        return 0;
    while (count > 1) {
        uint32_t half = count / 2;

        low += shelf->bytes[low + half - 1] >= bytes ? half : 0;
        count -= half;
    }
    return low + (shelf->bytes[low] >= bytes);
}

/* Those that have @bytes, one bit a device. */
static const uint64_t *devices_with(struct shelf *shelf, uint64_t bytes)
{
    uint32_t count, steps;

    if (shelf->asked && shelf->asked_bytes == bytes)
        return shelf->with;
    count = count_with(shelf, bytes);
    steps = count / SHELF_STEP;
    memcpy(shelf->with, shelf->first[steps], sizeof(shelf->with));
    for (uint32_t i = steps * SHELF_STEP; i < count; i++)
        shelf->with[shelf->devices[i] / 64] |= UINT64_C(1) << shelf->devices[i] % 64;
    shelf->asked = true;
    shelf->asked_bytes = bytes;
    return shelf->with;
}

bool shelf_has(struct view *view, enum shelf_kind kind, uint64_t bytes, const uint64_t *barred,
               const uint32_t except[2])
{
    const uint64_t *with = devices_with(shelf_of(view, kind), bytes);
    uint32_t words = (view->world->device_count + 63) / 64;
    uint64_t any = 0;

    for (uint32_t word = 0; word < words; word++) {
        uint64_t set = barred ? with[word] & ~barred[word] : with[word];

        for (unsigned i = 0; set && i < 2; i++) {
            if (except[i] / 64 == word)
                set &= ~(UINT64_C(1) << except[i] % 64);
        }
        any |= set;
    }
    return any;
}
