#include "state/command/pieces.h"

#include "state/program/pace.h"

/* NVIDIA's driver carries 32 bits of an offset, with the sign: no piece begins behind that. */
#define OFFSET_MAX ((size_t)INT32_MAX)

static size_t groups_of(size_t global, size_t local)
{
    return global / local + (global % local != 0);
}

/* The slowest dimension keeps what lies together in memory in one piece; where it has few groups,
 * the one with the most. */
static uint32_t choose_dim(const struct launch_space *space)
{
    enum { MANY = 64 };
    uint32_t best = space->dims - 1;
    for (uint32_t i = space->dims; i-- > 0;) {
        size_t groups = groups_of(space->global[i], space->local[i]);
        if (groups_of(space->global[best], space->local[best]) < MANY &&
            groups > groups_of(space->global[best], space->local[best]))
            best = i;
    }
    return best;
}

/* So many work-items a compute unit of a GPU has at once. */
#define GPU_ITEMS 2048

/* Groups that keep all of a device busy: with fewer it would take as long. */
static uint64_t groups_to_fill(const struct residence *residence, uint64_t group)
{
    const struct devinfo *info = &residence->device->info;
    uint64_t units = devinfo_scalar(info, CL_DEVICE_MAX_COMPUTE_UNITS, 1), groups = 2;
    if ((devinfo_scalar(info, CL_DEVICE_TYPE, 0) & CL_DEVICE_TYPE_GPU) && group < GPU_ITEMS / 2)
        groups = (GPU_ITEMS + group - 1) / group;
    return units * groups;
}

bool pieces_begin(const struct launch_space *space, const struct residence *residence,
                  struct pieces *ret_pieces)
{
    uint32_t dim = choose_dim(space);
    uint64_t group = 1, others = 1;
    for (uint32_t i = 0; i < space->dims; i++) {
        group *= space->local[i];
        others *= i == dim ? 1 : groups_of(space->global[i], space->local[i]);
    }
    struct pieces pieces = {
        .dim = dim,
        .local = space->local[dim],
        .global = space->global[dim],
        .offset = space->offset ? space->offset[dim] : 0,
        .groups = groups_of(space->global[dim], space->local[dim]),
        .row = others * group,
    };
    pieces.fill = (groups_to_fill(residence, group) + others - 1) / others;
    if (pieces.groups < 2 || pieces.offset > OFFSET_MAX)
        return false;
    *ret_pieces = pieces;
    return true;
}

void pieces_plan(struct pieces *pieces, size_t count)
{
    size_t left = pieces->groups - pieces->done;
    pieces->at = pieces->done;
    pieces->count = count < left ? count : left;
    /* What is smaller than a group is not given alone: not every driver takes that. */
    if (left - pieces->count == 1 && pieces->global % pieces->local != 0)
        pieces->count = left;
    size_t next = (pieces->at + pieces->count) * pieces->local;
    if (next > OFFSET_MAX - pieces->offset)
        pieces->count = left;
}

void pieces_plan_slice(struct pieces *pieces)
{
    uint64_t slice = atomic_load(&pace_slice_ns);
    uint64_t groups = pace_items(pieces->pace, slice) / pieces->row;
    uint64_t left = pieces->groups - pieces->done;
    if (groups < pieces->done && pace_items(pieces->pace, slice) == 0)
        groups = pieces->done; /* nothing is known yet, but that those before took no time */
    if (pieces->measures || slice == 0 || pace_items(pieces->pace, 2 * slice) / pieces->row >= left)
        groups = left;
    /* A piece that ends with a device half full costs as much as one that fills it again. */
    if (groups < left)
        groups -= groups % pieces->fill;
    if (groups < pieces->fill)
        groups = pieces->fill;
    pieces_plan(pieces, groups);
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
