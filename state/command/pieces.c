#include "state/command/pieces.h"

#include <stdlib.h>

#include "state/base/clock.h"
#include "state/base/span.h"
#include "state/program/pace.h"
#include "state/program/program_cut.h"

/* NVIDIA's driver keeps offsets as signed 32-bit numbers: no piece begins beyond that. */
#define OFFSET_MAX ((size_t)INT32_MAX)

atomic_bool pieces_shared;

static size_t pieces_groups_of(size_t global, size_t local)
{
    return global / local + (global % local != 0);
}

static size_t pieces_offset_of(const struct launch_space *space, uint32_t dim)
{
    return space->offset ? space->offset[dim] : 0;
}

/* True when the numbers that pieces along @dim need fit into the word that tells them. */
static bool pieces_fits(const struct launch_space *space, uint32_t dim)
{
    if (space->dims == 1)
        return pieces_offset_of(space, 0) < CUT_SIZE_MAX && space->global[0] <= OFFSET_MAX;
    return dim < 2 && pieces_offset_of(space, dim) == 0 && space->global[dim] < CUT_SIZE_MAX &&
           (space->dims < 3 || pieces_offset_of(space, 2) == 0);
}

/* Cut along the slowest dimension, whose pieces are contiguous in memory; where it has few groups,
 * along the one with most. */
static uint32_t pieces_choose_dim(const struct launch_space *space, bool offset_aware)
{
    enum { MANY = 64 };
    uint32_t best = space->dims - 1;
    while (offset_aware && best > 0 && !pieces_fits(space, best))
        best--;
    for (uint32_t i = best; i-- > 0;) {
        size_t groups = pieces_groups_of(space->global[i], space->local[i]);
        if ((!offset_aware || pieces_fits(space, i)) &&
            pieces_groups_of(space->global[best], space->local[best]) < MANY &&
            groups > pieces_groups_of(space->global[best], space->local[best]))
            best = i;
    }
    return best;
}

/* Work-items that a GPU's compute unit runs at once. */
#define GPU_ITEMS 2048

/* The number of groups that keeps all of a device busy: fewer would take as long. */
static uint64_t pieces_groups_to_fill(const struct residence *residence, uint64_t group)
{
    const struct devinfo *info = &residence->device->info;
    uint64_t units = devinfo_scalar(info, CL_DEVICE_MAX_COMPUTE_UNITS, 1), groups = 2;
    if ((devinfo_scalar(info, CL_DEVICE_TYPE, 0) & CL_DEVICE_TYPE_GPU) && group < GPU_ITEMS / 2)
        groups = (GPU_ITEMS + group - 1) / group;
    return units * groups;
}

void pieces_refit(struct pieces *pieces, const struct residence *residence)
{
    uint64_t others = pieces->row / pieces->group;
    pieces->fill = (pieces_groups_to_fill(residence, pieces->group) + others - 1) / others;
}

bool pieces_begin(const struct launch_space *space, const struct residence *residence,
                  bool offset_aware, struct pieces *ret_pieces)
{
    uint32_t dim = pieces_choose_dim(space, offset_aware);
    uint64_t group = 1, others = 1, row = 0, items = 0;
    bool counted = true;
    for (uint32_t i = 0; i < space->dims; i++) {
        uint64_t groups = i == dim ? 1 : pieces_groups_of(space->global[i], space->local[i]);
        counted = counted && !__builtin_mul_overflow(group, space->local[i], &group) &&
                  !__builtin_mul_overflow(others, groups, &others);
    }
    /* A launch with more work-items than can be counted is left to the driver, which refuses it. */
    if (!counted || __builtin_mul_overflow(others, group, &row) ||
        __builtin_mul_overflow(row, pieces_groups_of(space->global[dim], space->local[dim]),
                               &items))
        return false;
    struct pieces pieces = {
        .dim = dim,
        .local = space->local[dim],
        .global = space->global[dim],
        .offset = pieces_offset_of(space, dim),
        .groups = pieces_groups_of(space->global[dim], space->local[dim]),
        .end = pieces_groups_of(space->global[dim], space->local[dim]),
        .row = row,
        .group = group,
    };
    pieces_refit(&pieces, residence);
    pieces.offset_aware = offset_aware;
    if (pieces.groups < 2 || pieces.offset > OFFSET_MAX ||
        (offset_aware && !pieces_fits(space, dim)))
        return false;
    *ret_pieces = pieces;
    return true;
}

void pieces_begin_all(struct pace *pace, uint64_t items, struct pieces *ret_pieces)
{
    *ret_pieces = (struct pieces){.pace = pace,
                                  .local = 1,
                                  .global = 1,
                                  .groups = 1,
                                  .fill = 1,
                                  .row = items,
                                  .group = items,
                                  .measures = true,
                                  .is_all = true,
                                  .end = 1};
}

void pieces_finish(struct pieces *pieces)
{
    while (pieces->back) {
        struct groups *next = pieces->back->next;
        free(pieces->back);
        pieces->back = next;
    }
}

size_t pieces_left(const struct pieces *pieces)
{
    size_t left = pieces->end - pieces->done;
    for (const struct groups *back = pieces->back; back; back = back->next)
        left += back->count;
    return left;
}

/* A last group of fewer work-items is not a piece of its own: not every driver takes that. */
static bool pieces_is_small(const struct pieces *pieces, size_t at, size_t count)
{
    return count == 1 && at + count == pieces->groups && pieces->global % pieces->local != 0;
}

/* True when every driver carries the offset of a piece that begins there. */
static bool pieces_is_reached(const struct pieces *pieces, size_t at)
{
    return at <= (OFFSET_MAX - pieces->offset) / pieces->local;
}

void pieces_take(struct pieces *pieces, size_t count)
{
    if (pieces->done == pieces->end && pieces->back) {
        struct groups *back = pieces->back;
        pieces->done = back->at;
        pieces->end = back->at + back->count;
        pieces->back = back->next;
        free(back);
    }
    size_t left = pieces->end - pieces->done;
    count = count < left ? count : left;
    if (pieces_is_small(pieces, pieces->done + count, left - count) ||
        !pieces_is_reached(pieces, pieces->done + count))
        count = left;
    if (pieces->given++ == 0)
        pieces->traced = span_begin();
    pieces->at = pieces->done;
    pieces->count = count;
    pieces->done += count;
}

void pieces_untake(struct pieces *pieces)
{
    pieces->done = pieces->at;
    pieces->given--;
}

bool pieces_know_pace(const struct pieces *pieces)
{
    return !pieces->probes && pace_items(pieces->pace, NS_PER_S) != 0;
}

size_t pieces_of_slice(const struct pieces *pieces)
{
    uint64_t slice = atomic_load(&pace_slice_ns), left = pieces_left(pieces);
    uint64_t items = pieces_know_pace(pieces) ? pace_items(pieces->pace, slice) : 0;
    uint64_t groups = items / pieces->row;
    if (groups < pieces->done && items == 0)
        groups = pieces->done; /* nothing is known but that the pieces before took no time */
    if (pieces->measures || slice == 0 || 2 * groups >= left)
        groups = left;
    /* Round down to whole fills of the device: a partial fill takes as long as a whole one. */
    if (groups < left)
        groups -= groups % pieces->fill;
    return groups < pieces->fill ? pieces->fill : groups;
}

size_t pieces_claim(struct pieces *pieces, size_t count, size_t *ret_at)
{
    size_t left = pieces->end - pieces->done;
    if (pieces->measures || count == 0 || left < 2)
        return 0;
    count = count < left ? count : left - 1; /* who takes the last groups waits for the other */
    if (pieces_is_small(pieces, pieces->end - count, count))
        count++;
    if (count >= left || !pieces_is_reached(pieces, pieces->end - count))
        return 0;
    pieces->end -= count;
    pieces->taken += count;
    *ret_at = pieces->end;
    return count;
}

void pieces_arrived(struct pieces *pieces, size_t count)
{
    pieces->taken -= count;
}

void pieces_give_back(struct pieces *pieces, struct groups *list)
{
    struct groups **last = &list;
    for (; *last; last = &(*last)->next)
        pieces->taken -= (*last)->count;
    *last = pieces->back;
    pieces->back = list;
}

size_t pieces_offset(const struct pieces *pieces)
{
    return pieces->offset + pieces->at * pieces->local;
}

size_t pieces_size(const struct pieces *pieces)
{
    size_t begin = pieces->at * pieces->local, size = pieces->count * pieces->local;
    return size < pieces->global - begin ? size : pieces->global - begin;
}

void pieces_space(const struct pieces *pieces, const struct launch_space *space,
                  struct piece_space *ret_space)
{
    struct piece_space piece = {space->dims, {0, 0, 0}, {1, 1, 1}, {1, 1, 1}};
    uint32_t dim = pieces->dim;
    for (uint32_t i = 0; i < space->dims; i++) {
        piece.offset[i] = pieces_offset_of(space, i);
        piece.global[i] = space->global[i];
        piece.local[i] = space->local[i];
    }
    piece.offset[dim] = pieces_offset(pieces);
    piece.global[dim] = pieces_size(pieces);
    if (pieces->offset_aware) {
        piece.dims = 3;
        piece.offset[2] =
            cut_word(space->dims, dim, space->dims == 1 ? pieces->offset : pieces->global);
        if (space->dims == 1)
            piece.offset[1] = pieces->global;
    }
    *ret_space = piece;
}
