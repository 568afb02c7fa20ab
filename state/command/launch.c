#include "state/command/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/log.h"
#include "state/base/span.h"
#include "state/base/threads/callback.h"
#include "state/base/threads/work.h"
#include "state/command/command_inline.h"
#include "state/command/pieces.h"
#include "state/command/place.h"
#include "state/command/power.h"
#include "state/command/traced.h"
#include "state/object/upcalls.h"
#include "state/object/usage.h"
#include "state/program/group.h"
#include "state/program/implementations.h"
#include "state/program/kernel.h"
#include "state/program/program_cut.h"

/* A refused launch takes the program back to an earlier device at most so often. */
#define RETURNS_MOST 3

struct launch {
    struct command base;
    struct kernel *kernel;
    const struct launch_space *space; /* owned by the caller, or own_space */
    struct launch_space own_space;    /* of a launch that is deferred or given in pieces */
    size_t offset_copy[3], global_copy[3], local_copy[3];
    struct kernel_captured_args
        *captured_args;     /* when held: the arguments at the time of the call */
    bool *gone;             /* set when an argument's object is; not of one that is held */
    cl_uint rest;           /* the first argument that was not gathered */
    struct device *refused; /* when held: this device refuses it, and there is no other to go to */
    struct pieces pieces;   /* when it is given so */
    uint32_t edition;       /* when held: of its program */
    bool under_way;         /* some offset-aware pieces were given: program_cut_begin was called */
    bool recorded;          /* it is a piece of the journal's */
};

/* The object of an argument, or NULL; for a launch that is not deferred. */
static inline struct memory *launch_use_of(const struct launch *launch, cl_uint index,
                                           bool *ret_writes)
{
    const struct kernel_arg *arg = &launch->kernel->args[index];
    if (arg->kind != ARG_MEMORY)
        return NULL;
    struct memory *memory = object_weak_get(arg->object);
    if (UNLIKELY(!memory)) {
        *launch->gone = *launch->gone || arg->object.object;
        return NULL;
    }
    /* 5.2.1: a kernel that writes to a CL_MEM_READ_ONLY object has undefined results, so this is
     * not a write. */
    *ret_writes = arg->writes && !(memory->flags & CL_MEM_READ_ONLY);
    return memory;
}

static struct memory *launch_uses(const struct command *command, unsigned *cursor, bool *ret_writes)
{
    const struct launch *launch = (const struct launch *)command;
    struct memory *memory = NULL;
    if (launch->captured_args)
        return kernel_captured_args_memory(launch->captured_args, (*cursor)++, ret_writes);
    while (!memory && launch->rest + *cursor < launch->kernel->arg_count)
        memory = launch_use_of(launch, launch->rest + (*cursor)++, ret_writes);
    return memory;
}

static size_t launch_element(const struct command *command, unsigned use)
{
    return kernel_captured_args_element(((const struct launch *)command)->captured_args, use);
}

/* Of a launch that is not held. */
static ALWAYS_INLINE void launch_gather(struct command *command)
{
    struct launch *launch = (struct launch *)command;
    cl_uint i = 0, count = launch->kernel->arg_count;
    uint8_t uses = 0, all_writes = 0;
    bool writes;
    for (; i < count && uses < COMMAND_USES; i++) {
        struct memory *memory = launch_use_of(launch, i, &writes);
        if (!memory)
            continue;
        all_writes |= (uint8_t)(writes << uses);
        command->uses[uses++] = memory;
    }
    command->use_count = uses;
    command->writes = all_writes;
    command->more = UNLIKELY(i < count) ? launch_uses : NULL;
    launch->rest = i;
}

static void launch_gather_unheld(struct command *command)
{
    if (!((struct launch *)command)->captured_args)
        launch_gather(command);
}

/* Its objects are looked up again by whoever walks them outside the gate or later. */
static void launch_scatter(struct launch *launch)
{
    launch->base.use_count = 0;
    launch->base.more = launch_uses;
    launch->rest = 0;
}

static bool launch_is_offset_aware(const struct launch *launch)
{
    return launch->base.ops->pieces && launch->pieces.offset_aware;
}

static ALWAYS_INLINE cl_int launch_ready(struct command *command, struct residence *residence,
                                         uint8_t residence_index)
{
    struct kernel *kernel = ((struct launch *)command)->kernel;
    if (LIKELY(kernel_is_ready(kernel, residence_index)))
        return CL_SUCCESS;
    cl_int error = kernel_make_real(kernel, residence, residence_index);
    return LIKELY(error == CL_SUCCESS) ? kernel_apply(kernel, residence, residence_index) : error;
}

/* The program was told that a held launch would run: a move may have come since, to where it
 * cannot. */
static cl_int launch_ready_held(struct command *command, struct residence *residence,
                                uint8_t residence_index)
{
    const struct launch *launch = (const struct launch *)command;
    struct kernel *kernel = launch->kernel;
    if (!launch->captured_args)
        return launch_ready(command, residence, residence_index);
    if (launch_is_offset_aware(launch) && !program_cut_real(kernel->program, residence_index))
        return launch->refused == residence->device ? CL_BUILD_PROGRAM_FAILURE : COMMAND_ABSENT;
    return launch->refused == residence->device ||
                   kernel_group_fits(kernel, residence, residence_index, launch->space->items)
               ? CL_SUCCESS
               : COMMAND_ABSENT;
}

static uint64_t launch_local_bytes(const struct launch *launch)
{
    return launch->captured_args ? kernel_captured_args_local_bytes(launch->captured_args)
                                 : kernel_local_bytes(launch->kernel);
}

/* Given a launch with more local memory than there is, some drivers run it, and some end the
 * process. On the program's first device that is as natively; on others we refuse it. */
static inline bool launch_is_to_be_refused(const struct launch *launch,
                                           const struct residence *residence)
{
    return UNLIKELY(residence->device != launch->base.queue->vdev->origin) &&
           !kernel_local_fits(launch->kernel, residence->device, launch_local_bytes(launch));
}

static bool launch_exceeds(const struct command *command, struct residence *residence,
                           uint8_t residence_index)
{
    const struct launch *launch = (const struct launch *)command;
    if (launch->captured_args && launch_is_offset_aware(launch) &&
        program_cut_real(launch->kernel->program, residence_index) &&
        !program_cut_fits(launch->kernel->program, launch->kernel->pace->name, residence,
                          residence_index, launch->space->items))
        return true;
    return kernel_exceeds(launch->kernel, residence, residence_index, launch->space->items,
                          launch_local_bytes(launch));
}

/* The real program from which a held launch's next kernel is made. */
static cl_program launch_program_of(const struct launch *launch, uint8_t residence_index)
{
    const struct program *program = launch->kernel->program;
    return launch_is_offset_aware(launch) ? program_cut_real(program, residence_index)
                                          : program->real[residence_index];
}

/* Call the driver. @space: the launch's, or of one of @pieces; its local size is @local. */
static ALWAYS_INLINE cl_int launch_call(const struct launch *launch, cl_command_type type,
                                        const struct launch_space *space, const size_t *local,
                                        const struct pieces *pieces, struct residence *residence,
                                        cl_command_queue queue, cl_kernel real, cl_uint waits,
                                        const cl_event *wait_list, cl_event *ret_event)
{
    uint64_t traced = span_begin();
    cl_event own = NULL, *event = UNLIKELY(traced != 0) && !ret_event ? &own : ret_event;
    cl_int error =
        UNLIKELY(launch_is_to_be_refused(launch, residence)) ? CL_OUT_OF_RESOURCES
        : type == CL_COMMAND_TASK
            ? residence->cl->clEnqueueTask(queue, real, waits, wait_list, event)
            : residence->cl->clEnqueueNDRangeKernel(queue, real, space->dims, space->offset,
                                                    space->global, local, waits, wait_list, event);
    if (UNLIKELY(traced != 0) && error == CL_SUCCESS)
        traced_launch(traced, *event, residence, launch->base.queue, launch->kernel->pace->name,
                      pieces);
    if (UNLIKELY(own != NULL))
        residence->cl->clReleaseEvent(own);
    return error;
}

static ALWAYS_INLINE cl_int launch_issue_as(cl_command_type type, struct command *command,
                                            struct residence *residence, uint8_t residence_index,
                                            cl_command_queue queue, cl_uint waits,
                                            const cl_event *wait_list, cl_event *ret_event)
{
    struct launch *launch = (struct launch *)command;
    const struct launch_space *space = launch->space;
    cl_kernel real = launch->kernel->real[residence_index];
    const size_t *local = space->local;
    size_t chosen[3];
    /* Kernels do not keep their arguments' objects (5.9.2): the driver must not follow what it was
     * given. */
    if (UNLIKELY(*launch->gone))
        return CL_INVALID_KERNEL_ARGS;
    if (!local)
        local = group_choose(launch->kernel, residence, residence_index, real, space, chosen);
    return launch_call(launch, type, space, local, NULL, residence, queue, real, waits, wait_list,
                       ret_event);
}

static ALWAYS_INLINE cl_int launch_issue(struct command *command, struct residence *residence,
                                         uint8_t residence_index, cl_command_queue queue,
                                         cl_uint waits, const cl_event *wait_list,
                                         cl_event *ret_event)
{
    return launch_issue_as(CL_COMMAND_NDRANGE_KERNEL, command, residence, residence_index, queue,
                           waits, wait_list, ret_event);
}

static cl_int launch_issue_task(struct command *command, struct residence *residence,
                                uint8_t residence_index, cl_command_queue queue, cl_uint waits,
                                const cl_event *wait_list, cl_event *ret_event)
{
    return launch_issue_as(CL_COMMAND_TASK, command, residence, residence_index, queue, waits,
                           wait_list, ret_event);
}

static cl_int launch_issue_held(struct command *command, struct residence *residence,
                                uint8_t residence_index, cl_command_queue queue, cl_uint waits,
                                const cl_event *wait_list, cl_event *ret_event)
{
    struct launch *launch = (struct launch *)command;
    const struct pieces *pieces =
        command->ops->pieces && !launch->pieces.is_all ? &launch->pieces : NULL;
    struct launch_space space = *launch->space;
    size_t chosen[3];
    struct piece_space piece;
    cl_kernel real;
    /* The program may be setting arguments of its kernel: a held launch has one of its own. */
    cl_int error = kernel_captured_args_make(launch->captured_args, residence, residence_index,
                                             launch_program_of(launch, residence_index), &real);
    if (error != CL_SUCCESS)
        return error;
    if (!space.local)
        space.local =
            group_choose(launch->kernel, residence, residence_index, real, &space, chosen);
    if (pieces) {
        pieces_space(pieces, &space, &piece);
        space.dims = piece.dims;
        space.offset = piece.offset;
        space.global = piece.global;
        space.local = piece.local;
    }
    error = launch_call(launch, command->ops->type, &space, space.local, pieces, residence, queue,
                        real, waits, wait_list, ret_event);
    residence->cl->clReleaseKernel(real);
    if (error == CL_SUCCESS && launch_is_offset_aware(launch) && !launch->under_way) {
        launch->under_way = true;
        program_cut_begin(launch->kernel->program, false);
    }
    /* The launch was accepted before, so if it is deferred it is relocated instead of failing. */
    bool refused = error == CL_OUT_OF_RESOURCES ||
                   (error == CL_INVALID_WORK_GROUP_SIZE && launch_is_offset_aware(launch));
    return refused && launch->refused != residence->device &&
                   launch_exceeds(command, residence, residence_index)
               ? COMMAND_ABSENT
               : error;
}

/* Copy the space, before it is changed or has to outlive the call. */
static struct launch_space *launch_take_space(struct launch *launch)
{
    launch->own_space = *launch->space;
    launch->space = &launch->own_space;
    return &launch->own_space;
}

static const size_t *launch_copy_sizes(size_t *copy, const size_t *sizes, cl_uint dims)
{
    if (!sizes)
        return NULL;
    memcpy(copy, sizes, dims * sizeof(*sizes));
    return copy;
}

static const struct command_ops held_ndrange_ops, held_task_ops;

static cl_int launch_defer(struct command *command)
{
    struct launch *launch = (struct launch *)command;
    struct launch_space *space = launch_take_space(launch);
    struct queue *queue = launch->base.queue;
    uint8_t residence_index = atomic_load(&queue->context->residence_index[queue->vdev_index]);
    /* The error that the driver would have given at once (5.10); the caller checked the rest. */
    if (!kernel_group_fits(launch->kernel, queue->context->at[residence_index], residence_index,
                           space->items))
        return CL_INVALID_WORK_GROUP_SIZE;
    if (kernel_captured_args_take(launch->kernel, &launch->captured_args) != 0)
        return CL_OUT_OF_HOST_MEMORY;
    if (!kernel_captured_args_is_whole(launch->captured_args)) {
        kernel_captured_args_unref(launch->captured_args);
        return CL_INVALID_KERNEL_ARGS;
    }
    launch_scatter(launch);
    launch->gone = NULL;
    if (!command->ops->pieces)
        command->ops = command->ops->type == CL_COMMAND_TASK ? &held_task_ops : &held_ndrange_ops;
    space->offset = launch_copy_sizes(launch->offset_copy, space->offset, space->dims);
    space->global = launch_copy_sizes(launch->global_copy, space->global, space->dims);
    space->local = launch_copy_sizes(launch->local_copy, space->local, space->dims);
    launch->edition = atomic_load(&launch->kernel->program->edition);
    object_hold(launch->kernel);
    return CL_SUCCESS;
}

/* False when its program was built again since. */
static bool launch_is_current(const struct command *command)
{
    const struct launch *launch = (const struct launch *)command;
    return launch->edition == atomic_load(&launch->kernel->program->edition);
}

static void launch_drop(struct command *command)
{
    struct launch *launch = (struct launch *)command;
    if (command->ops->pieces)
        pieces_finish(&launch->pieces);
    if (launch->under_way)
        program_cut_end(launch->kernel->program, launch->recorded);
    kernel_captured_args_unref(launch->captured_args);
    object_unhold(launch->kernel);
}

/* For the journal: a launch of the next piece alone. It shares the captured arguments. */
static int launch_record_piece(const struct command *command, struct command **ret_command,
                               char **ret_bytes, size_t *ret_size)
{
    const struct launch *launch = (const struct launch *)command;
    struct launch *piece = malloc(sizeof(*piece));
    if (!piece)
        return -ENOMEM;
    pthread_mutex_lock(&engine_lock); /* helpers change the rest of `pieces` */
    *piece = *launch;
    pthread_mutex_unlock(&engine_lock);
    struct launch_space *space = launch_take_space(piece);
    space->offset = launch_copy_sizes(piece->offset_copy, space->offset, space->dims);
    space->global = launch_copy_sizes(piece->global_copy, space->global, space->dims);
    space->local = launch_copy_sizes(piece->local_copy, space->local, space->dims);
    piece->pieces.back = NULL; /* belongs to the launch */
    piece->base.residency_token = 0;
    command_begin_anew(&piece->base);
    (void)kernel_captured_args_ref(piece->captured_args);
    object_hold(piece->kernel);
    /* Until the journal is rid of it, recoveries make the variant. */
    piece->recorded = true;
    piece->under_way = launch_is_offset_aware(piece);
    if (piece->under_way)
        program_cut_begin(piece->kernel->program, true);
    *ret_command = &piece->base;
    *ret_bytes = NULL;
    *ret_size = 0;
    return 0;
}

/* Errors that mean "not on this device" rather than "not like this". */
static bool launch_device_refuses(cl_int error)
{
    return error == CL_INVALID_WORK_GROUP_SIZE || error == CL_INVALID_WORK_ITEM_SIZE ||
           error == CL_OUT_OF_RESOURCES || error == CL_MEM_OBJECT_ALLOCATION_FAILURE;
}

/* Make the variant for its pieces where the program is now. Without one, a launch that has not
 * begun goes whole. */
static bool launch_can_tell(struct launch *launch)
{
    struct queue *queue = launch->base.queue;
    if (!launch->captured_args || !launch_is_offset_aware(launch) ||
        program_cut_make(launch->kernel->program, queue->vdev_index) == CL_SUCCESS)
        return true;
    if (launch->under_way)
        return false;
    launch->pieces.offset_aware = false;
    launch->pieces.measures = true;
    return true;
}

static void launch_relocate(struct command *command)
{
    struct launch *launch = (struct launch *)command;
    struct queue *queue = launch->base.queue;
    struct device *here = atomic_load(&queue->vdev->device);
    launch_scatter(launch);
    bool fits = launch_can_tell(launch);
    gate_enter();
    uint8_t residence_index = atomic_load(&queue->context->residence_index[queue->vdev_index]);
    fits = fits && (!launch->captured_args || residence_index == RESIDENCE_NONE ||
                    !launch_exceeds(command, queue->context->at[residence_index], residence_index));
    gate_leave();
    if (!fits && !the_upcalls->move_back(queue->vdev, here, launch->kernel->pace->name))
        launch->refused = here;
}

static struct pieces *launch_pieces(struct command *command)
{
    return &((struct launch *)command)->pieces;
}

#define LAUNCH_OPS(command_type)                                                                   \
    .type = (command_type), .size = sizeof(struct launch), .defer = launch_defer,                  \
    .drop = launch_drop, .element = launch_element, .exceeds = launch_exceeds,                     \
    .relocate = launch_relocate, .is_current = launch_is_current, .launches = true
#define LAUNCH_OPS_HELD(command_type)                                                              \
    LAUNCH_OPS(command_type), .issue = launch_issue_held, .gather = launch_gather_unheld,          \
                              .ready = launch_ready_held
/* A launch has those of its kind that are held from launch_defer on, or, when it is to be given in
 * pieces, before. */
static const struct command_ops ndrange_ops = {LAUNCH_OPS(CL_COMMAND_NDRANGE_KERNEL),
                                               .issue = launch_issue, .gather = launch_gather,
                                               .ready = launch_ready};
static const struct command_ops task_ops = {LAUNCH_OPS(CL_COMMAND_TASK), .issue = launch_issue_task,
                                            .gather = launch_gather, .ready = launch_ready};
static const struct command_ops held_ndrange_ops = {LAUNCH_OPS_HELD(CL_COMMAND_NDRANGE_KERNEL)};
static const struct command_ops held_task_ops = {LAUNCH_OPS_HELD(CL_COMMAND_TASK)};
static const struct command_ops piece_ops = {LAUNCH_OPS_HELD(CL_COMMAND_NDRANGE_KERNEL),
                                             .pieces = launch_pieces,
                                             .record = launch_record_piece};

/* Work-group sizes that we choose where the program leaves it to us: small, so that there are many
 * pieces. One launch has one size, also when it goes on on another device. */
#define GROUP_LEAST 16
#define GROUP_MOST  256

/* Inside the gate. False where only the driver knows a good size. */
static bool launch_choose_local(struct launch *launch, struct residence *residence,
                                uint8_t residence_index)
{
    struct launch_space *space = &launch->own_space;
    const struct group_limits *limits = space->presented ? space->presented : &residence->groups;
    size_t sizes[3], items = 1, all = launch_item_count(space);
    size_t most = kernel_group_most(launch->kernel, residence, residence_index);
    if (space->local)
        return true;
    for (cl_uint i = 0; i < 3; i++) {
        size_t there = atomic_load(&residence->groups.sizes[i]);
        sizes[i] = atomic_load(&limits->sizes[i]);
        sizes[i] = there < sizes[i] ? there : sizes[i];
    }
    if (atomic_load(&limits->items) < most)
        most = atomic_load(&limits->items);
    most = most < GROUP_MOST ? most : GROUP_MOST;
    group_divide(space->dims, space->global, most, sizes, launch->local_copy);
    for (cl_uint i = 0; i < space->dims; i++)
        items *= launch->local_copy[i];
    if (items < GROUP_LEAST && items < all)
        return false;
    space->local = launch->local_copy;
    space->items = items;
    return true;
}

static inline bool launch_is_one_group(const struct launch_space *space)
{
    for (cl_uint i = 0; i < space->dims; i++)
        if (space->global[i] > (space->local ? space->local[i] : GROUP_LEAST))
            return false;
    return true;
}

static bool launch_is_long(const struct launch *launch)
{
    return pace_is_long(launch->kernel->pace, launch_item_count(launch->space));
}

/* NULL when the launch may be given in pieces; else the reason. A kernel that asks for its place
 * and has no variant yet is measured as one piece. */
static const char *launch_begin_pieces(struct launch *launch, struct residence *residence,
                                       uint8_t residence_index, bool places)
{
    const struct kernel *kernel = launch->kernel;
    bool offset_aware = places && program_cut_real(kernel->program, residence_index);
    if (!pieces_begin(launch->space, residence, offset_aware, &launch->pieces))
        return "its launches have too few work-groups in a row, or more work-items than offsets "
               "say";
    launch->pieces.pace = kernel->pace;
    launch->pieces.measures = places && !offset_aware;
    launch->pieces.probes = !launch->pieces.measures && !launch_is_long(launch);
    if (launch->pieces.measures)
        launch->pieces.whole = "it asks where in the launch a group is, and was not built yet with "
                               "functions of ours that say so";
    if (offset_aware && !program_cut_fits(kernel->program, kernel->pace->name, residence,
                                          residence_index, launch->space->items))
        return "its work-groups are too large for it with functions of ours that say where in the "
               "launch a group is";
    return NULL;
}

/* A launch of which nothing is predicted waits only if it has at least so many pieces. */
#define PIECES_LEAST 4
/* The longest wait of a launch of which nothing is predicted. Others wait up to 1/WAIT_PART of
 * their predicted time. */
#define WAIT_UNKNOWN_NS (2 * NS_PER_S)
#define WAIT_PART       4

/* How long the launch waits for the variant of its program. */
static uint64_t launch_patience(const struct launch *launch, const struct residence *residence)
{
    const struct pace *pace = launch->kernel->pace;
    uint64_t items = launch_item_count(launch->space);
    struct pieces pieces;
    if (pace_predicts(pace, items))
        return (uint64_t)((double)items * NS_PER_S / (double)pace_items(pace, NS_PER_S)) /
               WAIT_PART;
    bool many = pieces_begin(launch->space, residence, false, &pieces) &&
                pieces.groups >= PIECES_LEAST * pieces.fill;
    return many ? WAIT_UNKNOWN_NS : 0;
}

/* Have the program's variant for pieces built, and wait for it where the launch is likely to be
 * long: predicted so, or not predicted and the kernel has loops. Without loops most launches are
 * short, and the first one is measured. */
static void launch_make_for_pieces(struct launch *launch, const struct kernel_traits *traits)
{
    struct program *program = launch->kernel->program;
    const struct queue *queue = launch->base.queue;
    bool predicted = pace_predicts(launch->kernel->pace, launch_item_count(launch->space));
    uint64_t ns = 0;
    if (!traits->asks_position || !(predicted ? launch_is_long(launch) : traits->loops))
        return;
    gate_enter();
    uint8_t residence_index = atomic_load(&queue->context->residence_index[queue->vdev_index]);
    struct residence *residence =
        residence_index != RESIDENCE_NONE ? queue->context->at[residence_index] : NULL;
    bool lacks = residence && !program_cut_real(program, residence_index) &&
                 kernel_make_real(launch->kernel, residence, residence_index) == 0 &&
                 launch_choose_local(launch, residence, residence_index);
    if (lacks)
        ns = launch_patience(launch, residence);
    gate_leave();
    if (!lacks)
        return;
    program_cut_start(program, queue->vdev_index);
    /* A wait that ends before the build does delays the launch in vain. */
    if (ns != 0 && program_cut_expected_ns(program) <= ns)
        program_cut_await(program, clock_now_ns() + ns);
}

static inline bool launch_goes_whole(const struct launch *launch, const char *reason)
{
    pace_goes_whole(launch->kernel->pace, reason);
    return false;
}

/* True when the launch is to be given in pieces: the slow half of launch_goes_in_pieces. */
static NOINLINE bool launch_cut(struct launch *launch)
{
    struct kernel *kernel = launch->kernel;
    struct queue *queue = launch->base.queue;
    struct kernel_traits traits;
    const char *whole = NULL;
    bool cuts = false;
    (void)launch_take_space(launch);
    /* A thread of ours gives the pieces; it must not be in a driver when the process ends. */
    if (work_is_over() || callback_start() != 0)
        return false;
    if (pace_traits(kernel->program, kernel->pace, &traits) != 0)
        return false;
    if (!traits.whole && traits.asks_position)
        traits.whole = program_cut_refusal(kernel->program);
    if (traits.whole || atomic_load(&pace_slice_ns) == 0) {
        pace_never(kernel->pace, traits.whole);
        log_info("launches of kernel %s are not given in pieces: %s", kernel->pace->name,
                 traits.whole ? traits.whole : "--slice is 0");
        return false;
    }
    if (traits.even && launch->space->uneven)
        return false;
    launch_make_for_pieces(launch, &traits);
    gate_enter();
    uint8_t residence_index = atomic_load(&queue->context->residence_index[queue->vdev_index]);
    struct residence *residence =
        residence_index != RESIDENCE_NONE ? queue->context->at[residence_index] : NULL;
    if (residence && kernel_make_real(kernel, residence, residence_index) == 0) {
        whole = launch_choose_local(launch, residence, residence_index)
                    ? launch_begin_pieces(launch, residence, residence_index, traits.asks_position)
                    : "its launches leave the size of work-groups to the driver";
        cuts = !whole && !launch_exceeds(&launch->base, residence, residence_index);
    }
    gate_leave();
    launch->pieces.stays = atomic_load(&kernel->pace->overlaps)
                               ? "two of its work-groups write the same bytes"
                           : power_is_capped() ? "its program's power is capped"
                                               : traits.stays;
    if (whole)
        return launch_goes_whole(launch, whole);
    if (cuts && !launch->pieces.measures)
        pace_goes_whole(kernel->pace, NULL);
    /* This launch goes whole; it is known to be long, so the next one may be cut. */
    if (cuts && launch->pieces.measures && launch_is_long(launch))
        return launch_goes_whole(launch, launch->pieces.whole);
    return cuts;
}

/* True when all that the launch reads and writes is known, and is what another device can have. */
static bool launch_uses_are_known(const struct launch *launch)
{
    const struct kernel *kernel = launch->kernel;
    bool known = !kernel_follows_pointers(kernel);
    for (cl_uint i = 0; known && i < kernel->arg_count; i++) {
        bool writes = false;
        const struct memory *memory = launch_use_of(launch, i, &writes);
        known = !memory || !(memory->root->host_ptr || memory->type == CL_MEM_OBJECT_PIPE ||
                             (writes && (memory->image || memory->root->image)));
    }
    return known && !*launch->gone;
}

/* Each of them is marked when one begins to be placed after a pause. */
#define QUEUES_MOST 16

/* Why the launch stays in its order on its queue's device; NULL: it may be placed. */
static const char *launch_stays(const struct launch *launch, bool visible)
{
    const struct kernel *kernel = launch->kernel;
    const struct queue *queue = launch->base.queue;
    struct kernel_traits traits;
    if (queue->context->vdev_count != 1)
        return "the program has several virtual devices";
    if (object_count(OBJECT_QUEUE) > QUEUES_MOST)
        return "the program has too many queues";
    if (atomic_load_explicit(&journal_is_kept, memory_order_relaxed))
        return "the program is protected";
    if (power_is_capped())
        return "its power is capped";
    if (visible && (queue->properties & CL_QUEUE_PROFILING_ENABLE))
        return "the program may ask for its times on the device";
    if (!launch_uses_are_known(launch))
        return "it writes images, or uses memory that it does not name or the program's own";
    if (pace_traits(kernel->program, kernel->pace, &traits) != 0 || traits.whole || traits.stays)
        return "its work-groups may wait for each other, use atomic functions or print";
    return NULL;
}

/* True when the launch may be placed on another device: it becomes one piece, and defer_track_end
 * is to be called once it was deferred. */
static NOINLINE bool launch_may_be_placed(struct launch *launch, bool visible)
{
    struct kernel *kernel = launch->kernel;
    uint64_t items = launch_item_count(launch->space);
    pieces_begin_all(kernel->pace, items, &launch->pieces);
    launch->pieces.places = true;
    if (!place_is_worth_it(launch->base.queue, &launch->pieces) || work_is_over() ||
        callback_start() != 0)
        return false;
    const char *reason = launch_stays(launch, visible);
    if (reason) {
        place_stays(reason);
        return false;
    }
    if (!defer_track_begin()) {
        place_stays("other threads of the program were giving commands");
        return false;
    }
    (void)launch_take_space(launch);
    launch->pieces.visible = visible;
    return true;
}

static inline bool launch_goes_in_pieces(struct launch *launch, bool visible)
{
    if (!pace_asks(launch->kernel->pace, launch->space))
        return false;
    if (place_begins() && launch_may_be_placed(launch, visible))
        return true;
    if (launch_is_one_group(launch->space))
        return launch_goes_whole(launch, "its launches have one work-group");
    return launch_cut(launch);
}

/* True when the launch is to be measured as one piece, though it would go whole. */
static bool launch_is_measured(struct launch *launch)
{
    if (work_is_over() || callback_start() != 0)
        return false;
    (void)launch_take_space(launch);
    pieces_begin_all(launch->kernel->pace, launch_item_count(launch->space), &launch->pieces);
    return true;
}

/* @is_trial: its speed is to be measured. */
static ALWAYS_INLINE cl_int launch_run_kernel(struct queue *queue, struct kernel *kernel,
                                              cl_command_type type,
                                              const struct launch_space *space, bool is_trial,
                                              cl_uint waits, const cl_event *wait_list,
                                              cl_event *ret_event)
{
    cl_int error;
    bool again, is_task = type == CL_COMMAND_TASK;
    unsigned returns = 0;
    do {
        struct device *here = atomic_load(&queue->vdev->device);
        /* Initialised field by field: the copies are only for a launch that is held. */
        struct launch launch;
        bool gone = false;
        command_init(&launch.base, is_task ? &task_ops : &ndrange_ops, queue);
        launch.kernel = kernel;
        launch.space = space;
        launch.captured_args = NULL;
        launch.gone = &gone;
        launch.refused = NULL;
        launch.under_way = false;
        launch.recorded = false;
        launch_scatter(&launch);
        if (UNLIKELY(is_task)) {
            error = command_run(&launch.base, false, waits, wait_list, ret_event);
        } else if (UNLIKELY(launch_goes_in_pieces(&launch, ret_event != NULL) ||
                            (is_trial && launch_is_measured(&launch)))) {
            launch.base.ops = &piece_ops;
            error = command_run_in_pieces(&launch.base, waits, wait_list, ret_event);
            if (launch.pieces.places)
                defer_track_end();
        } else {
            launch.space = space;
            error = command_run_as(&ndrange_ops, &launch.base, false, waits, wait_list, ret_event);
        }
        again = UNLIKELY(launch_device_refuses(error)) && returns++ < RETURNS_MOST &&
                !vdev_is_lost(queue->vdev) &&
                the_upcalls->move_back(queue->vdev, here, kernel->pace->name);
    } while (again);
    return error;
}

/* Launch the one of its implementations that is fastest. Where another one fails, the kernel itself
 * is launched. */
static NOINLINE cl_int launch_run_fastest(struct queue *queue, struct kernel *kernel,
                                          const struct launch_space *space, cl_uint waits,
                                          const cl_event *wait_list, cl_event *ret_event)
{
    struct implementation_launch chosen = {.kernel = kernel, .space = *space};
    /* Launches that are placed are measured elsewhere, too, and compared by themselves. */
    if (!atomic_load(&place_wanted))
        implementations_choose(kernel, space, &chosen);
    for (;;) {
        cl_int error =
            launch_run_kernel(queue, chosen.kernel, CL_COMMAND_NDRANGE_KERNEL, &chosen.space,
                              chosen.is_trial, waits, wait_list, ret_event);
        /* It may be given later, or again after a loss: then it has to fit there, too. */
        if (error == CL_SUCCESS && chosen.kernel != kernel)
            kernel_note_launch(chosen.kernel, &chosen.space);
        if (error == CL_SUCCESS || chosen.kernel == kernel)
            return error;
        chosen = (struct implementation_launch){.kernel = kernel, .space = *space};
    }
}

HOT cl_int launch_run(struct queue *queue, struct kernel *kernel, cl_command_type type,
                      const struct launch_space *space, cl_uint waits, const cl_event *wait_list,
                      cl_event *ret_event)
{
    cl_int error =
        UNLIKELY(kernel->has_implementations) && type == CL_COMMAND_NDRANGE_KERNEL
            ? launch_run_fastest(queue, kernel, space, waits, wait_list, ret_event)
            : launch_run_kernel(queue, kernel, type, space, false, waits, wait_list, ret_event);
    if (error == CL_SUCCESS) {
        kernel_note_launch(kernel, space);
        queue_note_launch(queue, kernel->pace->name);
    }
    return error;
}
