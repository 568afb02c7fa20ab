#include "remote/rings/rings.h"

#include <errno.h>
#include <string.h>

/* In front of each frame's bytes in the ring. */
struct header {
    _Atomic uint64_t number, size;
};
_Static_assert(sizeof(struct header) == RING_HEADER, "frames are aligned to it");

/* Bytes that a frame takes, with its header. */
static size_t ring_whole(size_t size)
{
    return RING_HEADER + (size + RING_HEADER - 1) / RING_HEADER * RING_HEADER;
}

void ring_writer_init(struct ring_writer *writer, struct ring_shared *shared, char *bytes,
                      size_t capacity, struct bell_peer *peer)
{
    *writer = (struct ring_writer){.shared = shared, .bytes = bytes, .capacity = capacity};
    bell_waiter_init(&writer->room, &shared->room, peer);
}

void ring_reader_init(struct ring_reader *reader, struct ring_shared *shared, const char *bytes,
                      size_t capacity)
{
    *reader = (struct ring_reader){.shared = shared, .bytes = bytes, .capacity = capacity};
}

static size_t ring_room(const struct ring_writer *writer)
{
    return writer->capacity - (size_t)(writer->head - writer->tail);
}

/* Read the reader's position, which must be between its last one and ours. */
static void ring_look_at_tail(struct ring_writer *writer)
{
    uint64_t tail = atomic_load(&writer->shared->tail);
    if (tail - writer->tail > writer->head - writer->tail)
        writer->broken = true;
    else
        writer->tail = tail;
}

int ring_begin(struct ring_writer *writer, size_t size, char **ret_bytes)
{
    if (size > ring_frame_most(writer->capacity))
        return -EMSGSIZE;
    if (ring_room(writer) < ring_whole(size))
        ring_look_at_tail(writer);
    if (writer->broken)
        return -EPROTO;
    if (ring_room(writer) < ring_whole(size))
        return -EAGAIN;
    char *at = writer->bytes + (writer->head & (writer->capacity - 1));
    atomic_store_explicit(&((struct header *)at)->size, size, memory_order_relaxed);
    writer->open = ring_whole(size);
    *ret_bytes = at + RING_HEADER;
    return 0;
}

struct wanted {
    struct ring_writer *writer;
    size_t room;
};

static bool ring_has_room(void *data)
{
    const struct wanted *wanted = data;
    ring_look_at_tail(wanted->writer);
    return wanted->writer->broken || ring_room(wanted->writer) >= wanted->room;
}

int ring_await_room(struct ring_writer *writer, size_t size, uint64_t deadline_ns)
{
    struct wanted wanted = {writer, ring_whole(size)};
    int err = bell_wait(&writer->room, ring_has_room, &wanted, deadline_ns);
    return writer->broken ? -EPROTO : err;
}

void ring_publish(struct ring_writer *writer, uint64_t number)
{
    char *at = writer->bytes + (writer->head & (writer->capacity - 1));
    atomic_store_explicit(&((struct header *)at)->number, number, memory_order_relaxed);
    writer->head += writer->open;
    writer->open = 0;
    /* Sequentially consistent, as the reader's bell is checked next. */
    atomic_store(&writer->shared->head, writer->head);
}

/* Read the writer's position, which cannot be more than the ring's length ahead. */
static void ring_look_at_head(struct ring_reader *reader)
{
    uint64_t head = atomic_load(&reader->shared->head);
    if (head - reader->tail > reader->capacity)
        reader->broken = true;
    else
        reader->head = head;
}

static void ring_read_header(struct ring_reader *reader)
{
    const struct header *header =
        (const struct header *)(reader->bytes + (reader->tail & (reader->capacity - 1)));
    uint64_t size = atomic_load_explicit(&header->size, memory_order_relaxed);
    uint64_t number = atomic_load_explicit(&header->number, memory_order_relaxed);
    if (size > ring_frame_most(reader->capacity) ||
        ring_whole(size) > reader->head - reader->tail) {
        reader->broken = true;
        return;
    }
    reader->size = size;
    reader->number = number;
    reader->front = true;
}

int ring_front(struct ring_reader *reader, uint64_t *ret_number, size_t *ret_size)
{
    if (!reader->front && !reader->broken && reader->head == reader->tail)
        ring_look_at_head(reader);
    if (!reader->front && !reader->broken && reader->head != reader->tail)
        ring_read_header(reader);
    if (reader->broken)
        return -EPROTO;
    if (!reader->front)
        return -EAGAIN;
    *ret_number = reader->number;
    *ret_size = reader->size;
    return 0;
}

void ring_take(struct ring_reader *reader, void *buffer)
{
    const char *at = reader->bytes + (reader->tail & (reader->capacity - 1));
    memcpy(buffer, at + RING_HEADER, reader->size);
    reader->tail += ring_whole(reader->size);
    reader->front = false;
    atomic_store(&reader->shared->tail, reader->tail);
    /* Wake a waiting writer only when there is room for the largest frame: after each frame, it
     * would write one and wait again. */
    if (reader->head - reader->tail <= reader->capacity / 2)
        bell_ring(&reader->shared->room);
}
