#include <string.h>

#include "state/base/array.h"
#include "state/base/memory/past_caches.h"
#include "state/transfer/transfer_priv.h"

/* Set the rows, or slices of an image that has several, that hold the item's bytes. */
static void transfer_piece_take_layers(struct piece *whole, const struct transfer_item *item)
{
    int axis = whole->region[2] > 1 ? 2 : 1;
    size_t layer = axis == 2 ? whole->host_slice : whole->host_row;
    size_t first = item->offset / layer, count = (item->size + layer - 1) / layer;
    whole->origin[axis] = first;
    whole->region[axis] = size_least(count, whole->region[axis] - first);
}

void walk_init(struct walk *walk, const struct transfer_item *item)
{
    struct piece *whole = &walk->whole;
    memset(walk, 0, sizeof(*walk));
    whole->from = item->from;
    whole->to = item->to;
    whole->user_memory = item->user_memory;
    walk->uncounted = item->size;
    if (!item->image) {
        walk->element = 1;
        walk->left = item->size;
        whole->origin[0] = item->offset;
        whole->region[0] = item->size;
        whole->region[1] = whole->region[2] = 1;
        whole->host = item->host ? item->host + item->offset : NULL;
        whole->host_row = whole->host_slice = item->size;
        return;
    }
    const struct image_shape *shape = item->image;
    cl_mem_object_type type = shape->desc.image_type;
    whole->image = true;
    whole->layered = type == CL_MEM_OBJECT_IMAGE1D_ARRAY || type == CL_MEM_OBJECT_IMAGE2D_ARRAY ||
                     type == CL_MEM_OBJECT_IMAGE3D;
    whole->row_slices = type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    walk->element = shape->element_size;
    for (int i = 0; i < 3; i++)
        whole->region[i] = shape->dims[i] ? shape->dims[i] : 1;
    size_t row = whole->region[0] * walk->element;
    whole->host_row = shape->row_pitch ? shape->row_pitch : row;
    whole->host_slice =
        shape->slice_pitch ? shape->slice_pitch : whole->host_row * whole->region[1];
    /* The layers of a 1D array lie a slice pitch apart (5.3.3), yet are counted on axis 1, where
     * drivers look for a row pitch: both are made the same. */
    if (whole->row_slices && shape->slice_pitch)
        whole->host_row = whole->host_slice;
    else if (whole->row_slices)
        whole->host_slice = whole->host_row;
    transfer_piece_take_layers(whole, item);
    whole->host = item->host ? item->host + item->offset : NULL;
    walk->left = (uint64_t)row * whole->region[1] * whole->region[2];
    if (item->size == 0)
        walk->left = 0;
}

/* Advance next[] by @region, which is whole rows or slices unless it is part of a row. */
static void transfer_piece_advance(struct walk *walk, const size_t region[3])
{
    const size_t *dims = walk->whole.region;
    walk->next[0] += region[0];
    if (walk->next[0] < dims[0])
        return;
    walk->next[0] = 0;
    walk->next[1] += region[1];
    if (walk->next[1] < dims[1])
        return;
    walk->next[1] = 0;
    walk->next[2] += region[2];
}

bool walk_next(struct walk *walk, size_t room, struct piece *ret_piece)
{
    const struct piece *whole = &walk->whole;
    const size_t *dims = whole->region, *next = walk->next;
    size_t row = dims[0] * walk->element, slice = row * dims[1];
    struct piece piece = *whole;

    if (room < walk->element)
        return false;
    piece.region[1] = piece.region[2] = 1;
    if (next[0] == 0 && next[1] == 0 && slice <= room) {
        piece.region[1] = dims[1];
        piece.region[2] = size_least(dims[2] - next[2], room / slice);
    } else if (next[0] == 0 && row <= room) {
        piece.region[1] = size_least(dims[1] - next[1], room / row);
    } else {
        piece.region[0] = size_least(dims[0] - next[0], room / walk->element);
    }
    for (int i = 0; i < 3; i++)
        piece.origin[i] = whole->origin[i] + next[i];
    if (whole->host)
        piece.host = whole->host + next[2] * whole->host_slice + next[1] * whole->host_row +
                     next[0] * walk->element;
    piece.row = piece.region[0] * walk->element;
    piece.size = piece.row * piece.region[1] * piece.region[2];
    transfer_piece_advance(walk, piece.region);
    walk->left -= piece.size;
    /* Padding of the host's layout is counted with the last piece. */
    piece.counted = walk->left ? size_least(piece.size, walk->uncounted) : walk->uncounted;
    walk->uncounted -= piece.counted;
    *ret_piece = piece;
    return true;
}

/* The pitches to pass to a driver for the layout at @memory, or at the host end. */
static void transfer_piece_pitches(const struct piece *piece, bool packed, size_t *ret_row,
                                   size_t *ret_slice)
{
    size_t row = packed ? piece->row : piece->host_row;
    size_t slice = !packed ? piece->host_slice : piece->row_slices ? row : row * piece->region[1];
    *ret_row = row;
    *ret_slice = piece->layered ? slice : 0;
}

cl_int piece_read(const struct piece *piece, const cl_icd_dispatch *cl, cl_command_queue queue,
                  char *memory, cl_event *ret_event)
{
    char *at = memory ? memory : piece->host;
    size_t row, slice;
    if (!piece->image)
        return cl->clEnqueueReadBuffer(queue, piece->from, CL_FALSE, piece->origin[0], piece->size,
                                       at, 0, NULL, ret_event);
    transfer_piece_pitches(piece, memory != NULL, &row, &slice);
    return cl->clEnqueueReadImage(queue, piece->from, CL_FALSE, piece->origin, piece->region, row,
                                  slice, at, 0, NULL, ret_event);
}

cl_int piece_write(const struct piece *piece, const cl_icd_dispatch *cl, cl_command_queue queue,
                   const char *memory, cl_event *ret_event)
{
    const char *at = memory ? memory : piece->host;
    size_t row, slice;
    if (!piece->image)
        return cl->clEnqueueWriteBuffer(queue, piece->to, CL_FALSE, piece->origin[0], piece->size,
                                        at, 0, NULL, ret_event);
    transfer_piece_pitches(piece, memory != NULL, &row, &slice);
    return cl->clEnqueueWriteImage(queue, piece->to, CL_FALSE, piece->origin, piece->region, row,
                                   slice, at, 0, NULL, ret_event);
}

static void transfer_piece_copy_bytes(const struct piece *piece, char *memory, char *host,
                                      size_t size, bool to_host,
                                      const struct transfer_limits *limits)
{
    if (to_host) {
        host_populate(host, size, 1, limits);
        copy_past_caches(host, memory, size);
    } else if (piece->user_memory) {
        host_copy_user_memory(memory, host, size);
    } else {
        memcpy(memory, host, size);
    }
}

void piece_copy(const struct piece *piece, char *memory, size_t begin, size_t end, bool to_host,
                const struct transfer_limits *limits)
{
    bool one_row = piece->region[1] == 1 && piece->region[2] == 1;
    bool packed = piece->host_row == piece->row &&
                  (piece->region[2] == 1 || piece->host_slice == piece->row * piece->region[1]);
    if (one_row || packed) {
        transfer_piece_copy_bytes(piece, memory + begin, piece->host + begin, end - begin, to_host,
                                  limits);
        return;
    }
    while (begin < end) {
        size_t row = begin / piece->row, column = begin % piece->row;
        size_t size = size_least(piece->row - column, end - begin);
        char *host = piece->host + row / piece->region[1] * piece->host_slice +
                     row % piece->region[1] * piece->host_row + column;
        transfer_piece_copy_bytes(piece, memory + begin, host, size, to_host, limits);
        begin += size;
    }
}
