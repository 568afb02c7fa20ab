#include "remote/rings/rings.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "remote/rings/area.h"
#include "state/base/clock.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/long_lock.h"
#include "state/base/threads/thread.h"

/* At the beginning of the area. The rings follow, each with its struct ring_shared in a page in
 * front. */
struct shared {
    alignas(128) struct bell frames; /* Where the reader waits. */
    /* A bit for each ring that was written to; set by the writer. */
    alignas(128) _Atomic uint64_t used;
};

/* The mapped area, with the bytes of each ring mapped twice. */
struct rings {
    struct rings_shape shape;
    uint64_t process;
    char *bytes;
};

/* The ring that threads without one of their own share. */
#define COMMON 0u
/* How often they check whether the peer has ended. */
#define COMMON_LOOK_NS (500 * NS_PER_MS)

struct slot {
    alignas(128) atomic_bool taken; /* A thread has it, and alone uses what follows. */
    bool ready;
    atomic_bool open; /* A frame is being written; a signal handler must not post. */
    struct ring_writer ring;
};

struct rings_writer {
    struct rings rings;
    struct bell_peer *peer;
    struct shared *shared;
    /* Identifies the writer when a thread ends, perhaps after the writer was destroyed. */
    uint64_t serial;
    pthread_key_t key; /* Each thread's slot, together with the serial. */
    struct long_lock common;
    struct rings_writer *next_writer;   /* Guarded by registry. */
    alignas(128) _Atomic uint64_t next; /* Number of the next frame. */
    struct slot slots[];
};

struct rings_reader {
    struct rings rings;
    struct bell_peer *peer;
    struct shared *shared;
    struct bell_waiter waiter;
    uint64_t used; /* Bits of shared->used that were seen. */
    uint64_t next; /* Number of the next frame. */
    /* Since when later frames are there but the next one is missing; 0: it is not. */
    uint64_t gap_ns;
    unsigned last;
    bool broken;
    atomic_bool led;      /* A thread leads: it alone uses the rest of this. */
    atomic_uint attended; /* How many threads are in rings_attend(). */
    struct ring_reader slots[];
};

/* All writers, for the threads that end. */
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static struct rings_writer *writers; /* Guarded by registry, as is: */
static uint64_t last_serial;

FORK_PART = {.rank = FORK_OBJECT, .lock = &registry};

/* A few microseconds: longer than most messages take to handle, and shorter than a sleep. */
#define LEAD_TRIES 200

uint64_t rings_gap_ns = 60 * NS_PER_S;

/* ---- the area ---- */

static size_t rings_ring_size(const struct rings_shape *shape)
{
    return area_page() + shape->capacity;
}

size_t rings_size(const struct rings_shape *shape)
{
    size_t capacity = shape->capacity;
    if (shape->count < 2 || shape->count > RINGS_MOST || capacity < area_page() ||
        capacity > RINGS_CAPACITY_MOST || (capacity & (capacity - 1)) != 0)
        return 0;
    return area_page() + shape->count * rings_ring_size(shape);
}

/* In memory each ring is longer by its second mapping. */
static size_t rings_mapped_size(const struct rings_shape *shape)
{
    return area_page() + shape->count * (rings_ring_size(shape) + shape->capacity);
}

static char *rings_ring_at(const struct rings *rings, unsigned i)
{
    return rings->bytes + area_page() +
           i * (rings_ring_size(&rings->shape) + rings->shape.capacity);
}

static int rings_map_ring(const struct rings *rings, int fd, unsigned i)
{
    const size_t page = area_page(), capacity = rings->shape.capacity;
    size_t offset = page + i * rings_ring_size(&rings->shape);
    char *at = rings_ring_at(rings, i);
    int err = area_map_at(fd, offset, page + capacity, at);
    return err ? err : area_map_at(fd, offset + page, capacity, at + page + capacity);
}

static int rings_map(struct rings *rings, const struct rings_shape *shape, int fd)
{
    size_t size = rings_size(shape);
    *rings = (struct rings){.shape = *shape, .process = process_mark()};
    int err = size == 0 ? -EINVAL : rings->process == 0 ? -ENOMEM : area_check(fd, size);
    if (err == 0)
        err = area_reserve(rings_mapped_size(shape), &rings->bytes);
    if (err != 0)
        return err;
    err = area_map_at(fd, 0, area_page(), rings->bytes);
    for (unsigned i = 0; err == 0 && i < shape->count; i++)
        err = rings_map_ring(rings, fd, i);
    if (err != 0)
        area_unmap(rings->bytes, rings_mapped_size(shape));
    return err;
}

static bool rings_is_ours(const struct rings *rings)
{
    return LIKELY(process_mark() == rings->process);
}

/* In a child of a fork, something of the child's may be mapped there by now. */
static void rings_unmap(struct rings *rings)
{
    if (rings_is_ours(rings))
        area_unmap(rings->bytes, rings_mapped_size(&rings->shape));
}

/* ---- who writes ---- */

/* A thread ends, perhaps after the writer was destroyed. */
static void rings_thread_ends(void *data)
{
    uint64_t value = (uint64_t)(uintptr_t)data;
    pthread_mutex_lock(&registry);
    struct rings_writer *writer = writers;
    while (writer && writer->serial != value / RINGS_MOST)
        writer = writer->next_writer;
    struct slot *slot = writer ? &writer->slots[value % RINGS_MOST] : NULL;
    /* A signal handler ended the thread within a frame, so that the slot cannot be used again. */
    if (slot && atomic_load_explicit(&slot->open, memory_order_relaxed))
        bell_peer_end(writer->peer, -EPROTO);
    else if (slot)
        atomic_store_explicit(&slot->taken, false, memory_order_release);
    pthread_mutex_unlock(&registry);
}

int rings_writer_create(const struct rings_shape *shape, int fd, struct bell_peer *peer,
                        struct rings_writer **ret_writer)
{
    struct rings rings;
    int err = fork_watch();
    if (err != 0 || (err = rings_map(&rings, shape, fd)) != 0)
        return err;
    size_t size = sizeof(struct rings_writer) + shape->count * sizeof(struct slot);
    struct rings_writer *writer = aligned_alloc(alignof(struct rings_writer), size);
    if (!writer) {
        rings_unmap(&rings);
        return -ENOMEM;
    }
    memset(writer, 0, size);
    if (pthread_key_create(&writer->key, rings_thread_ends) != 0) {
        free(writer);
        rings_unmap(&rings);
        return -EAGAIN;
    }
    writer->rings = rings;
    writer->peer = peer;
    writer->shared = (struct shared *)rings.bytes;
    long_lock_init(&writer->common);
    for (unsigned i = 0; i < shape->count; i++) {
        char *at = rings_ring_at(&rings, i);
        ring_writer_init(&writer->slots[i].ring, (struct ring_shared *)at, at + area_page(),
                         shape->capacity, peer);
    }
    pthread_mutex_lock(&registry);
    writer->serial = ++last_serial;
    writer->next_writer = writers;
    writers = writer;
    pthread_mutex_unlock(&registry);
    *ret_writer = writer;
    return 0;
}

void rings_writer_destroy(struct rings_writer *writer)
{
    if (!writer)
        return;
    pthread_mutex_lock(&registry);
    struct rings_writer **at = &writers;
    while (*at != writer)
        at = &(*at)->next_writer;
    *at = writer->next_writer;
    pthread_mutex_unlock(&registry);
    pthread_key_delete(writer->key);
    rings_unmap(&writer->rings);
    free(writer);
}

/* A ring for this thread until it ends; or the common one. */
static struct slot *rings_slot_find(struct rings_writer *writer)
{
    for (unsigned i = COMMON + 1; i < writer->rings.shape.count; i++) {
        struct slot *slot = &writer->slots[i];
        if (atomic_load_explicit(&slot->taken, memory_order_relaxed) ||
            atomic_exchange_explicit(&slot->taken, true, memory_order_acquire))
            continue;
        uintptr_t value = (uintptr_t)(writer->serial * RINGS_MOST + i);
        if (pthread_setspecific(writer->key, (void *)value) == 0)
            return slot;
        atomic_store_explicit(&slot->taken, false, memory_order_release);
        break;
    }
    return &writer->slots[COMMON];
}

/* Before the first frame of a ring: allocate its memory, and tell the reader of it. */
static int rings_slot_prepare(struct rings_writer *writer, struct slot *slot)
{
    char *bytes = slot->ring.bytes;
    size_t page = area_page(), capacity = slot->ring.capacity;
    int err = area_populate(bytes - page, page + capacity);
    if (err == 0)
        err = area_populate(bytes + capacity, capacity);
    if (err != 0)
        return err;
    atomic_fetch_or(&writer->shared->used, UINT64_C(1) << (slot - writer->slots));
    slot->ready = true;
    return 0;
}

/* Does not wait between taking a number and publishing the frame. 0, -EAGAIN (no room), -EMSGSIZE,
 * -EPROTO. */
static int rings_slot_write(struct rings_writer *writer, struct slot *slot,
                            const struct iovec *parts, unsigned count, size_t size,
                            uint64_t *ret_number)
{
    char *bytes;
    if (atomic_exchange_explicit(&slot->open, true, memory_order_relaxed)) {
        bell_peer_end(writer->peer, -EPROTO);
        return -EPROTO;
    }
    int err = ring_begin(&slot->ring, size, &bytes);
    if (err == 0) {
        for (unsigned i = 0; i < count; i++) {
            if (parts[i].iov_len > 0) /* memcpy() must not be given a NULL base. */
                memcpy(bytes, parts[i].iov_base, parts[i].iov_len);
            bytes += parts[i].iov_len;
        }
        uint64_t number = atomic_fetch_add_explicit(&writer->next, 1, memory_order_relaxed);
        ring_publish(&slot->ring, number);
        if (ret_number)
            *ret_number = number;
    }
    atomic_store_explicit(&slot->open, false, memory_order_relaxed);
    return err;
}

static int rings_slot_post(struct rings_writer *writer, struct slot *slot,
                           const struct iovec *parts, unsigned count, size_t size,
                           uint64_t deadline_ns, uint64_t *ret_number)
{
    int err = UNLIKELY(!slot->ready) ? rings_slot_prepare(writer, slot) : 0;
    while (err == 0) {
        int ended = atomic_load_explicit(&writer->peer->ended, memory_order_relaxed);
        if (UNLIKELY(ended != 0))
            return ended;
        err = rings_slot_write(writer, slot, parts, count, size, ret_number);
        if (err != -EAGAIN)
            break;
        err = ring_await_room(&slot->ring, size, deadline_ns);
    }
    if (err == 0)
        bell_ring(&writer->shared->frames);
    return err;
}

/* Take the common ring's lock. 0, -ETIMEDOUT or the error of the peer. */
static int rings_common_take(struct rings_writer *writer, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t look_ns = clock_now_ns() + COMMON_LOOK_NS;
        bool last = deadline_ns <= look_ns;
        /* 0 would mean no deadline. */
        uint64_t until_ns = !last ? look_ns : deadline_ns > 0 ? deadline_ns : 1;
        if (long_lock_take(&writer->common, until_ns))
            return 0;
        int err = bell_peer_look(writer->peer);
        if (err != 0 || last)
            return err != 0 ? err : -ETIMEDOUT;
    }
}

/* Returns -EMSGSIZE also if the sum would overflow. */
static int rings_total(const struct iovec *parts, unsigned count, size_t most, size_t *ret_size)
{
    size_t size = 0;
    for (unsigned i = 0; i < count; i++) {
        if (parts[i].iov_len > most - size)
            return -EMSGSIZE;
        size += parts[i].iov_len;
    }
    *ret_size = size;
    return 0;
}

int rings_post(struct rings_writer *writer, const struct iovec *parts, unsigned count,
               uint64_t deadline_ns, uint64_t *ret_number)
{
    size_t size;
    if (!rings_is_ours(&writer->rings))
        return -ECHILD;
    int err = rings_total(parts, count, rings_frame_most(&writer->rings.shape), &size);
    if (err != 0)
        return err;
    int cancel = cancel_hold();
    uintptr_t value = (uintptr_t)pthread_getspecific(writer->key);
    struct slot *slot = value ? &writer->slots[value % RINGS_MOST] : rings_slot_find(writer);
    if (UNLIKELY(slot == &writer->slots[COMMON]))
        err = rings_common_take(writer, deadline_ns);
    if (err == 0) {
        err = rings_slot_post(writer, slot, parts, count, size, deadline_ns, ret_number);
        if (slot == &writer->slots[COMMON])
            long_lock_release(&writer->common);
    }
    cancel_allow(cancel);
    return err;
}

void rings_writer_end(struct rings_writer *writer)
{
    if (!rings_is_ours(&writer->rings))
        return;
    bell_peer_end(writer->peer, -ECANCELED);
    for (unsigned i = 0; i < writer->rings.shape.count; i++)
        bell_ring(&writer->slots[i].ring.shared->room);
}

/* ---- who reads ---- */

int rings_reader_create(const struct rings_shape *shape, int fd, struct bell_peer *peer,
                        struct rings_reader **ret_reader)
{
    struct rings rings;
    int err = rings_map(&rings, shape, fd);
    if (err != 0)
        return err;
    struct rings_reader *reader =
        calloc(1, sizeof(*reader) + shape->count * sizeof(reader->slots[0]));
    if (!reader) {
        rings_unmap(&rings);
        return -ENOMEM;
    }
    reader->rings = rings;
    reader->peer = peer;
    reader->shared = (struct shared *)rings.bytes;
    bell_waiter_init(&reader->waiter, &reader->shared->frames, peer);
    for (unsigned i = 0; i < shape->count; i++) {
        char *at = rings_ring_at(&rings, i);
        ring_reader_init(&reader->slots[i], (struct ring_shared *)at, at + area_page(),
                         shape->capacity);
    }
    *ret_reader = reader;
    return 0;
}

void rings_reader_destroy(struct rings_reader *reader)
{
    if (!reader)
        return;
    rings_unmap(&reader->rings);
    free(reader);
}

/* Does the ring have the next frame? A number beyond what all rings together can hold breaks the
 * protocol. */
static bool rings_ring_has_next(struct rings_reader *reader, unsigned i, bool *ret_later)
{
    const struct rings_shape *shape = &reader->rings.shape;
    uint64_t number;
    size_t size;
    int err = ring_front(&reader->slots[i], &number, &size);
    if (err == -EAGAIN)
        return false;
    if (err != 0 || number - reader->next > shape->count * (shape->capacity / RING_HEADER)) {
        reader->broken = true;
        return false;
    }
    *ret_later = true;
    return number == reader->next;
}

/* Later frames are there, but the next one is missing. */
static void rings_look_at_gap(struct rings_reader *reader)
{
    uint64_t now = clock_now_ns();
    if (reader->gap_ns == 0)
        reader->gap_ns = now;
    else if (now - reader->gap_ns >= rings_gap_ns)
        reader->broken = true; /* The thread that took the number will not publish it any more. */
}

/* Find the ring that has the next frame. */
static bool rings_find(struct rings_reader *reader)
{
    const unsigned count = reader->rings.shape.count;
    const uint64_t all = ~UINT64_C(0) >> (RINGS_MOST - count);
    bool later = false;
    if (rings_ring_has_next(reader, reader->last,
                            &later)) /* Usually the ring of the frame before. */
        return true;
    reader->used |= atomic_load(&reader->shared->used) & all;
    for (uint64_t left = reader->used; left != 0; left &= left - 1) {
        unsigned i = (unsigned)__builtin_ctzll(left);
        if (rings_ring_has_next(reader, i, &later)) {
            reader->last = i;
            return true;
        }
    }
    if (later)
        rings_look_at_gap(reader);
    else
        reader->gap_ns = 0;
    return false;
}

static bool rings_found_or_broken(void *data)
{
    struct rings_reader *reader = data;
    return rings_find(reader) || reader->broken;
}

int rings_take(struct rings_reader *reader, void *buffer, uint64_t deadline_ns, size_t *ret_size,
               uint64_t *ret_number)
{
    if (!rings_is_ours(&reader->rings))
        return -ECHILD;
    int err = bell_wait(&reader->waiter, rings_found_or_broken, reader, deadline_ns);
    if (reader->broken)
        return -EPROTO;
    if (err != 0)
        return err;
    struct ring_reader *ring = &reader->slots[reader->last];
    *ret_size = ring->size;
    if (ret_number)
        *ret_number = reader->next;
    ring_take(ring, buffer);
    reader->next++;
    reader->gap_ns = 0;
    return 0;
}

bool rings_lead(struct rings_reader *reader)
{
    return !atomic_load_explicit(&reader->led, memory_order_relaxed) &&
           !atomic_exchange_explicit(&reader->led, true, memory_order_acquire);
}

void rings_leave(struct rings_reader *reader)
{
    atomic_store_explicit(&reader->led, false, memory_order_release);
}

/* While a thread leads, other threads find nothing. */
static bool rings_found_unled(void *data)
{
    struct rings_reader *reader = data;
    if (!rings_lead(reader))
        return false;
    bool found = rings_found_or_broken(reader);
    rings_leave(reader);
    return found;
}

/* Threads that may sleep leave the rings to those that spin in rings_attend(). */
static bool rings_found_unattended(void *data)
{
    struct rings_reader *reader = data;
    return atomic_load(&reader->attended) == 0 && rings_found_unled(reader);
}

int rings_await(struct rings_reader *reader, uint64_t deadline_ns)
{
    if (!rings_is_ours(&reader->rings))
        return -ECHILD;
    return bell_wait(&reader->waiter, rings_found_unattended, reader, deadline_ns);
}

bool rings_attend(struct rings_reader *reader)
{
    bool leads = false;
    atomic_fetch_add(&reader->attended, 1);
    /* The leading thread is handling a message, or only checking. */
    for (unsigned i = 0; !(leads = rings_lead(reader)) && i < LEAD_TRIES; i++)
        bell_relax();
    if (leads)
        rings_look(reader);
    return leads;
}

void rings_look(struct rings_reader *reader)
{
    if (atomic_load_explicit(&reader->shared->frames.sleeps, memory_order_relaxed) != 0)
        atomic_store(&reader->shared->frames.sleeps, 0);
}

bool rings_attend_no_more(struct rings_reader *reader, bool leads)
{
    atomic_fetch_sub(&reader->attended, 1);
    if (leads)
        rings_leave(reader);
    atomic_store(&reader->shared->frames.sleeps, 1);
    return rings_found_unled(reader);
}

bool rings_has_next(struct rings_reader *reader)
{
    return !rings_is_ours(&reader->rings) || rings_found_or_broken(reader);
}

void rings_reader_end(struct rings_reader *reader)
{
    if (!rings_is_ours(&reader->rings))
        return;
    bell_peer_end(reader->peer, -ECANCELED);
    bell_ring(&reader->shared->frames);
}

const struct bell_waiter *rings_reader_waits(const struct rings_reader *reader)
{
    return &reader->waiter;
}
