#include "remote/driver/layout.h"

#include <stdint.h>
#include <string.h>

#include "remote/driver/copy.h"
#include "state/base/memory/past_caches.h"

bool layout_size(const struct layout *layout, size_t *ret_size)
{
    size_t size;
    if (__builtin_mul_overflow(layout->row, layout->rows, &size) ||
        __builtin_mul_overflow(size, layout->slices, &size))
        return false;
    *ret_size = size;
    return true;
}

bool layout_is_packed(const struct layout *layout)
{
    return (layout->rows == 1 || layout->row_pitch == layout->row) &&
           (layout->slices == 1 || layout->slice_pitch == layout->row * layout->rows);
}

/* As much goes past the caches. */
#define MUCH ((size_t)1 << 20)

/* One run of bytes, in pieces of COPY_LEAST: what comes last is what is waited for, and several
   threads have copied it sooner. */
struct whole {
    char *to;
    const char *from;
    size_t size;
    void (*copy)(char *to, const char *from, size_t size);
};

static void layout_copy_piece(void *data, size_t piece)
{
    const struct whole *whole = data;
    size_t at = piece * COPY_LEAST, left = whole->size - at;
    whole->copy(whole->to + at, whole->from + at, left < COPY_LEAST ? left : COPY_LEAST);
}

static void layout_copy_bytes(char *to, const char *from, size_t size)
{
    memcpy(to, from, size);
}

static void layout_copy_whole(const struct layout *layout, void *to, const void *from,
                              void (*copy)(char *to, const char *from, size_t size))
{
    struct whole whole = {to, from, layout->row * layout->rows * layout->slices, copy};
    if (copy == layout_copy_bytes && whole.size >= MUCH)
        whole.copy = copy_past_caches;
    copy_pieces(layout_copy_piece, &whole, (whole.size + COPY_LEAST - 1) / COPY_LEAST);
}

/* To the packed bytes (@gathers), or from them. */
static void layout_copy(const struct layout *layout, char *memory, char *packed, bool gathers,
                        void (*copy)(char *to, const char *from, size_t size))
{
    if (layout_is_packed(layout)) {
        layout_copy_whole(layout, gathers ? packed : memory, gathers ? memory : packed, copy);
        return;
    }
    for (size_t z = 0; z < layout->slices; z++)
        for (size_t y = 0; y < layout->rows; y++, packed += layout->row) {
            char *row = memory + z * layout->slice_pitch + y * layout->row_pitch;
            copy(gathers ? packed : row, gathers ? row : packed, layout->row);
        }
}

void layout_gather(const struct layout *layout, void *packed, const void *memory)
{
    layout_copy(layout, (char *)(uintptr_t)memory, packed, true, layout_copy_bytes);
}

void layout_scatter(const struct layout *layout, const void *packed, void *memory)
{
    layout_copy(layout, memory, (char *)(uintptr_t)packed, false, layout_copy_bytes);
}

#define PAGE 4096

/* Page by page, as memory is protected. */
static void layout_refresh_bytes(char *to, const char *from, size_t size)
{
    for (size_t at = 0, some; at < size; at += some) {
        some = PAGE - (uintptr_t)(to + at) % PAGE;
        if (some > size - at)
            some = size - at;
        if (memcmp(to + at, from + at, some) != 0)
            memcpy(to + at, from + at, some);
    }
}

void layout_refresh(const struct layout *layout, const void *packed, void *memory)
{
    layout_copy(layout, memory, (char *)(uintptr_t)packed, false, layout_refresh_bytes);
}
