#include "state/command/pieces.h"

#include "state/base/clock.h"
#include "state/command/parts.h"
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

static void measure(const struct pieces *pieces, struct parts *parts)
{
    uint64_t items, ns;
    if (parts && parts_measure(parts, &items, &ns))
        pace_measured(pieces->pace, items, ns);
}

/* Where pieces of one kernel must not run beside others it is alone, or goes whole. */
static void be_alone(struct pieces *pieces, const struct queue *queue,
                     const struct residence *residence)
{
    if (!(residence->device->quirks & QUIRK_OFFSETS_MIXED) || pieces->alone || pieces->measures)
        return;
    pieces->alone = queue_alone_begin(queue);
    pieces->measures = !pieces->alone;
}

static void end_alone(struct pieces *pieces)
{
    if (pieces->alone)
        queue_alone_end();
    pieces->alone = false;
}

/* Its parts are the event's once the first piece was given. */
static cl_int give(struct command *command, struct pieces *pieces, struct event *event,
                   struct parts *parts, struct residence *residence, uint8_t place, cl_uint waits,
                   struct event *const *wait_list)
{
    cl_event real;
    struct part *part = parts_vacant(event, parts);
    if (!part)
        return COMMAND_ABSENT; /* cannot be: there are fewer than may be */
    be_alone(pieces, command->queue, residence);
    pieces_plan_slice(pieces);
    cl_int error = command_ready(command, residence, place);
    if (error != CL_SUCCESS)
        return error;
    uint64_t begun = queue_step(command->queue), given = clock_now_ns();
    error = command_issue(command, residence, place, waits, wait_list, &real);
    if (error != CL_SUCCESS)
        return error;
    pieces_take(pieces);
    command_begin_anew(command); /* each may need room of its own */
    if (event_state(event) == EVENT_HELD) {
        event->begun = begun;
        event_issued_in_parts(event, parts);
    }
    parts_give(event, part, place, real, given, pieces->count * pieces->row);
    if (pieces_are_given(pieces))
        parts_close(parts, CL_SUCCESS);
    return CL_SUCCESS;
}

cl_int pieces_give(struct command *command, struct event *event, struct residence *residence,
                   uint8_t place, cl_uint waits, struct event *const *wait_list)
{
    struct pieces *pieces = command->ops->pieces(command);
    if (event->parts) {
        measure(pieces, event->parts);
        cl_int error =
            give(command, pieces, event, event->parts, residence, place, waits, wait_list);
        if (error != CL_SUCCESS && error != COMMAND_ABSENT) {
            pieces_give_up(event, error);
            return CL_SUCCESS;
        }
        return error;
    }
    struct parts *parts = event_watch(event) ? parts_create_open(PIECES_AT_ONCE) : NULL;
    if (!parts)
        return CL_OUT_OF_HOST_MEMORY;
    cl_int error = give(command, pieces, event, parts, residence, place, waits, wait_list);
    if (error != CL_SUCCESS) {
        end_alone(pieces);
        parts_leave(parts);
    }
    return error;
}

void pieces_give_up(struct event *event, cl_int error)
{
    parts_close(event->parts, error);
}

bool pieces_wanted(const struct command *command, const struct event *event)
{
    const struct parts *parts = event->parts;
    const struct pieces *pieces = command->ops->pieces((struct command *)(uintptr_t)command);
    unsigned most = pace_items(pieces->pace, 1000000000) != 0 ? PIECES_AT_ONCE : 1;
    return atomic_load(&parts->open) && parts->left < most;
}

void pieces_ended(struct command *command, struct event *event)
{
    struct pieces *pieces = command->ops->pieces(command);
    end_alone(pieces);
    measure(pieces, event->parts);
    if (!event_failed(event))
        pace_settle(pieces->pace, pieces->groups * pieces->row);
}
