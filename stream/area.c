#include "stream/area.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "state/base/bytes/text.h"

#define PAGE 4096u

static uint64_t stream_shape_pages(uint64_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

struct stream_shape stream_shape_of(uint32_t input, uint32_t output, uint64_t capacity)
{
    struct stream_shape shape = {.input = input, .output = output, .capacity = capacity};
    if (!capacity) {
        shape.capacity = STREAM_AREA_RING / (input > output ? input : output);
        shape.capacity = shape.capacity < 2 ? 2 : shape.capacity;
    }
    shape.input_at = STREAM_AREA_HEADER;
    shape.output_at = shape.input_at + stream_shape_pages(shape.capacity * input);
    shape.size = shape.output_at + stream_shape_pages(shape.capacity * output);
    return shape;
}

void stream_area_init(struct stream_area *area, char *bytes, const struct stream_shape *shape)
{
    *area = (struct stream_area){(struct stream_area_header *)bytes, *shape};
    area->header->magic = STREAM_AREA_MAGIC;
    area->header->input = shape->input;
    area->header->output = shape->output;
    area->header->capacity = shape->capacity;
    area->header->input_at = shape->input_at;
    area->header->output_at = shape->output_at;
}

char *stream_area_input(const struct stream_area *area, uint64_t at, uint64_t *ret_together)
{
    uint64_t slot = at % area->shape.capacity;
    *ret_together = area->shape.capacity - slot;
    return (char *)area->header + area->shape.input_at + slot * area->shape.input;
}

char *stream_area_output(const struct stream_area *area, uint64_t at, uint64_t *ret_together)
{
    uint64_t slot = at % area->shape.capacity;
    *ret_together = area->shape.capacity - slot;
    return (char *)area->header + area->shape.output_at + slot * area->shape.output;
}

int stream_area_look(const _Atomic uint64_t *word, uint64_t to, uint64_t *total)
{
    uint64_t now = atomic_load(word);
    if (now - *total > to - *total)
        return -EPROTO;
    *total = now;
    return 0;
}

/* Ring if the other sleeps. */
static void stream_area_ring(_Atomic uint32_t *other_sleeps, int doorbell)
{
    /* Before it sleeps, the other sets `sleeps` and then looks at the total; we advance the total
     * and then look at `sleeps`. All four are sequentially consistent, so one of us sees the other.
     */
    if (atomic_load(other_sleeps) == 0)
        return;
    atomic_store_explicit(other_sleeps, 0, memory_order_relaxed);
    /* When the socket is full, bytes that wake the other are on their way. */
    if (doorbell >= 0)
        (void)!send(doorbell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void stream_area_advance(_Atomic uint64_t *word, uint64_t total, _Atomic uint32_t *other_sleeps,
                         int doorbell)
{
    atomic_store(word, total);
    stream_area_ring(other_sleeps, doorbell);
}

bool stream_area_hear(int doorbell)
{
    char bytes[256];
    for (;;) {
        ssize_t got = recv(doorbell, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (got == 0)
            return false;
        if (got < 0 && errno != EINTR)
            return errno == EAGAIN;
    }
}

void stream_area_fail(const struct stream_area *area, int error, const char *reason, int doorbell)
{
    struct stream_area_header *header = area->header;
    if (atomic_load(&header->status) != 0)
        return;
    size_t size = strnlen(reason, STREAM_REASON_MAX - 1);
    memcpy(header->reason, reason, size);
    atomic_store(&header->reason_size, (uint32_t)size);
    atomic_store(&header->status, (uint32_t)(error < 0 ? -error : error));
    stream_area_ring(&header->client_sleeps, doorbell);
}

int stream_area_failure(const struct stream_area *area, char *ret_reason, size_t size)
{
    char reason[STREAM_REASON_MAX];
    uint32_t status = atomic_load(&area->header->status);
    uint32_t length = atomic_load(&area->header->reason_size);
    if (status == 0)
        return 0;
    length = length < sizeof(reason) ? length : sizeof(reason) - 1;
    memcpy(reason, area->header->reason, length);
    text_make_safe(ret_reason, size, reason, length);
    return status <= 4095 ? -(int)status : -EIO;
}
