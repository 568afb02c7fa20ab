#include "state/object/pinned.h"

#include <stdlib.h>
#include <string.h>

#include "state/base/log.h"
#include "state/base/memory/pages.h"
#include "state/base/threads/fork.h"
#include "state/object/lost.h"

/* Most residences that keep registered memory. */
#define KEPT_MOST 16
#define SLOTS     8
#define SLOTS_ALL ((1u << SLOTS) - 1)

struct pinned_slots {
    _Atomic uint32_t taken; /* A bit each. All stay taken where the driver refused. */
    struct pinned pin;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by the lock above: at most one for each residence, in the first kept_count entries. */
static struct pinned kept[KEPT_MOST];
static size_t kept_count;

bool pinned_create(struct residence *residence, char *memory, size_t size, struct pinned *ret_pin)
{
    cl_int error = CL_SUCCESS;
    cl_mem buffer = residence->cl->clCreateBuffer(
        residence->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR | CL_MEM_HOST_NO_ACCESS, size,
        memory, &error);
    if (buffer)
        *ret_pin = (struct pinned){residence, memory, size, buffer};
    else
        log_info("%s does not register memory (error %d): transfers use plain pointers",
                 residence->device->key.device, error);
    return buffer != NULL;
}

void pinned_destroy(struct pinned *pin)
{
    if (!pin->buffer)
        return;
    (void)residence_await_queue(pin->residence, pin->residence->io);
    pin->residence->cl->clReleaseMemObject(pin->buffer);
    memset(pin, 0, sizeof(*pin));
}

/* Destroy @pin with its memory, unless the driver of a lost device may still write there. */
static void pinned_destroy_whole(struct pinned *pin)
{
    char *memory = residence_is_lost(pin->residence) ? NULL : pin->memory;
    size_t size = pin->size;
    pinned_destroy(pin);
    pages_give(memory, size);
}

static void pinned_destroy_kept(struct pinned *pin)
{
    pages_unkeep(pin->size);
    pinned_destroy_whole(pin);
}

/* Index of the entry of @residence; kept_count: there is none. Lock held. */
static size_t pinned_find(const struct residence *residence)
{
    size_t at = 0;
    while (at < kept_count && kept[at].residence != residence)
        at++;
    return at;
}

/* Lock held. */
static struct pinned pinned_take_at(size_t at)
{
    struct pinned pin = kept[at];
    kept[at] = kept[--kept_count];
    return pin;
}

bool pinned_take(struct residence *residence, size_t size, struct pinned *ret_pin)
{
    pthread_mutex_lock(&lock);
    size_t at = pinned_find(residence);
    bool found = at < kept_count && kept[at].size >= size;
    if (found)
        *ret_pin = pinned_take_at(at);
    pthread_mutex_unlock(&lock);
    if (found)
        pages_unkeep(ret_pin->size);
    return found;
}

/* Take a reference unless the residence is being destroyed. Its last reference calls pinned_forget,
 * so the struct still exists while the lock is held. */
static bool pinned_try_ref(struct residence *residence)
{
    uint32_t refs = atomic_load(&residence->refs);
    while (refs != 0 && !atomic_compare_exchange_weak(&residence->refs, &refs, refs + 1))
        ;
    return refs != 0;
}

/* Called when the host runs short of memory: free everything that is kept. */
static void pinned_shrink(void)
{
    struct residence *residence;
    do {
        struct pinned pin = {0};
        pthread_mutex_lock(&lock);
        for (size_t at = 0; at < kept_count && !pin.residence; at++)
            if (pinned_try_ref(kept[at].residence))
                pin = pinned_take_at(at);
        pthread_mutex_unlock(&lock);
        residence = pin.residence;
        if (residence)
            pinned_destroy_kept(&pin);
        residence_unref(residence);
    } while (residence);
}

/* Keep @pin, in place of a smaller one of its residence, which *@ret_other then has. Lock held. */
static bool pinned_keep(const struct pinned *pin, struct pinned *ret_other)
{
    size_t at = pinned_find(pin->residence);
    if (at < kept_count && kept[at].size >= pin->size)
        return false;
    if (at < kept_count)
        *ret_other = pinned_take_at(at);
    if (kept_count == KEPT_MOST)
        return false;
    kept[kept_count++] = *pin;
    return true;
}

void pinned_give(struct pinned *pin)
{
    struct pinned other = {0};
    pages_set_shrink(pinned_shrink);
    bool room = !residence_is_lost(pin->residence) && pages_keep(pin->size);
    pthread_mutex_lock(&lock);
    bool keeps = room && pinned_keep(pin, &other);
    pthread_mutex_unlock(&lock);
    if (other.residence)
        pinned_destroy_kept(&other);
    if (room && !keeps)
        pages_unkeep(pin->size);
    if (!keeps)
        pinned_destroy_whole(pin);
    memset(pin, 0, sizeof(*pin));
}

/* NULL is allowed. */
static void pinned_slots_destroy(struct pinned_slots *slots)
{
    if (slots && slots->pin.buffer)
        pinned_destroy_whole(&slots->pin);
    free(slots);
}

static struct pinned_slots *pinned_slots_create(struct residence *residence)
{
    struct pinned_slots *slots = calloc(1, sizeof(*slots));
    char *memory = slots ? pages_take(SLOTS * PINNED_SLOT, 0) : NULL;
    if (slots && (!memory || !pinned_create(residence, memory, SLOTS * PINNED_SLOT, &slots->pin))) {
        pages_give(memory, SLOTS * PINNED_SLOT);
        atomic_init(&slots->taken, SLOTS_ALL);
    }
    return slots;
}

char *pinned_slot_take(struct residence *residence)
{
    struct pinned_slots *slots = atomic_load(&residence->slots), *none = NULL;
    if (!slots) {
        slots = pinned_slots_create(residence);
        if (!slots)
            return NULL;
        if (!atomic_compare_exchange_strong(&residence->slots, &none, slots)) {
            pinned_slots_destroy(slots); /* Another thread was first. */
            slots = none;
        }
    }
    uint32_t taken = atomic_load(&slots->taken);
    while (taken != SLOTS_ALL) {
        unsigned at = (unsigned)__builtin_ctz(~taken);
        if (atomic_compare_exchange_weak(&slots->taken, &taken, taken | 1u << at))
            return slots->pin.memory + at * PINNED_SLOT;
    }
    return NULL;
}

void pinned_slot_give(struct residence *residence, const char *slot)
{
    struct pinned_slots *slots = atomic_load(&residence->slots);
    size_t at = (size_t)(slot - slots->pin.memory) / PINNED_SLOT;
    atomic_fetch_and(&slots->taken, ~(1u << at));
}

void pinned_forget(struct residence *residence)
{
    struct pinned pin = {0};
    pinned_slots_destroy(atomic_exchange(&residence->slots, NULL));
    pthread_mutex_lock(&lock);
    size_t at = pinned_find(residence);
    if (at < kept_count)
        pin = pinned_take_at(at);
    pthread_mutex_unlock(&lock);
    if (pin.residence)
        pinned_destroy_kept(&pin);
}

/* The memory is registered with the parent's driver. */
static void pinned_in_child(void)
{
    kept_count = 0;
}

FORK_PART = {.rank = FORK_OBJECT, .lock = &lock, .in_child = pinned_in_child};
