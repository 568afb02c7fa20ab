
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/log.h"
#include "state/base/span.h"
#include "state/command/journal.h"
#include "state/command/parts.h"
#include "state/image/snapshot.h"
#include "state/memory/compare.h"
#include "state/memory/mapping.h"
#include "state/object/lost.h"
#include "state/recovery/recovery.h"
#include "state/transfer/transfer.h"

struct replay {
    struct move_context *contexts;
    size_t count;
    const struct snapshot *snapshot;
    char *reason;
    size_t reason_size;
};

static int PRINTF(3, 4) replay_fail(const struct replay *r, int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(r->reason, r->reason_size, format, arguments);
    va_end(arguments);
    return error;
}

/* Index of @context's new residence; RESIDENCE_NONE: it is not concerned. */
static uint8_t replay_index_of(const struct replay *r, const struct context *context)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->contexts[i].context == context)
            return r->contexts[i].to;
    return RESIDENCE_NONE;
}

/* True when the device works on memory that the program has, lent or mapped, so that restoring
 * would write to it. */
static bool replay_would_meet_program(struct memory *root, uint8_t residence_index)
{
    return memory_works_in_host_copy(root, residence_index) &&
           (memory_is_user_memory(root) || map_any(root));
}

/* Only the snapshot has valid bytes after the loss: all other replicas become stale. */
static int replay_restore_root(const struct replay *r, struct transfer *transfer,
                               struct memory *root, uint8_t residence_index)
{
    struct residence *residence = root->context->at[residence_index];
    size_t index = snapshot_find(r->snapshot, root);
    struct snapshot_run run;
    int error = 0;
    if (atomic_load(&root->version) == 0)
        return 0;
    cl_int made = root->real[residence_index] ? CL_SUCCESS
                                              : memory_make_real(root, residence, residence_index);
    if (made != CL_SUCCESS)
        return replay_fail(r, -ENOMEM,
                           "an object of %zu bytes cannot be made on %s (OpenCL error %d)",
                           root->size, device_name(residence->device), made);
    if (replay_would_meet_program(root, residence_index))
        return replay_fail(
            r, -ENOTSUP,
            "%s would write to memory that the program maps or gave (CL_MEM_USE_HOST_PTR)",
            device_name(residence->device));
    compare_forget(root);
    for (size_t at = 0;
         error == 0 && index != SIZE_MAX && snapshot_run(r->snapshot, index, at, &run);
         at = run.range.end) {
        if (!run.bytes)
            continue;
        /* A transfer item's host pointer is that of the object's first byte. */
        struct transfer_item item = {.to = root->real[residence_index],
                                     .host = (char *)((uintptr_t)run.bytes - run.range.begin),
                                     .offset = run.range.begin,
                                     .size = run.range.end - run.range.begin,
                                     .image = root->image};
        error = transfer_add(transfer, &item);
    }
    replica_written(root, residence_index, replica_whole(root));
    return error;
}

static int replay_restore(const struct replay *r, const struct move_context *entry)
{
    struct residence *residence = entry->context->at[entry->to];
    const struct transfer_limits none = {0};
    struct transfer *transfer;
    uintptr_t cursor = 0;
    struct memory *memory;
    int error = transfer_create(NULL, residence, snapshot_bytes(), &none, &transfer);
    if (error != 0)
        return replay_fail(r, error, "nothing can be copied to %s", device_name(residence->device));
    for (; (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory))
        if (error == 0 && memory->context == entry->context && memory->root == memory &&
            memory->type != CL_MEM_OBJECT_PIPE)
            error = replay_restore_root(r, transfer, memory, entry->to);
    int flushed = transfer_flush(transfer);
    if (error == 0 && flushed != 0)
        error = replay_fail(r, flushed, "copying to %s failed", device_name(residence->device));
    transfer_destroy(transfer);
    return error;
}

/* Most commands in a queue before a wait: some drivers take longer for each command the more are
 * queued, and reads that are compared need memory. */
#define PENDING_MOST  256
#define PENDING_BYTES ((size_t)16 << 20)

struct reread {
    struct journal_entry *entry;
    char *bytes; /* owned */
    void *given; /* the program's */
    size_t size;
};

/* A queue with commands that have not been waited for. */
struct pending {
    struct residence *residence;
    cl_command_queue real;
    unsigned count; /* commands */
    struct reread reads[PENDING_MOST];
    unsigned read_count;
    size_t read_bytes;
};

static _Atomic uint64_t differences;

uint64_t replay_differences(void)
{
    return atomic_load(&differences);
}

/* A read has ended: compare its bytes, or give them to the program. */
static void replay_give_or_compare(const struct pending *pending, const struct reread *read)
{
    const struct journal_entry *entry = read->entry;
    if (!entry->ended)
        memcpy(read->given, read->bytes, read->size);
    else if (journal_digest(read->bytes, read->size) != entry->event->digest) {
        atomic_fetch_add(&differences, 1);
        log_warn("done again on %s, a read of %zu bytes gives others than the program was given",
                 device_name(pending->residence->device), read->size);
    }
    free(read->bytes);
}

/* Wait for the pending commands. After a failure the buffers of reads are leaked, since the driver
 * may still write to them. */
static int replay_finish(const struct replay *r, struct pending *pending)
{
    cl_int error =
        pending->real ? residence_await_queue(pending->residence, pending->real) : CL_SUCCESS;
    for (unsigned i = 0; error == CL_SUCCESS && i < pending->read_count; i++)
        replay_give_or_compare(pending, &pending->reads[i]);
    pending->real = NULL;
    pending->count = pending->read_count = 0;
    pending->read_bytes = 0;
    return error == CL_SUCCESS
               ? 0
               : replay_fail(r, -EIO, "%s failed with what was given again (OpenCL error %d)",
                             device_name(pending->residence->device), error);
}

/* Called before a command is given to @real. */
static int replay_make_way(const struct replay *r, struct pending *pending, cl_command_queue real)
{
    bool waits = pending->real != real || pending->count >= PENDING_MOST ||
                 pending->read_bytes >= PENDING_BYTES;
    return pending->real && waits ? replay_finish(r, pending) : 0;
}

static void replay_is_given(struct pending *pending, struct residence *residence,
                            cl_command_queue real)
{
    pending->residence = residence;
    pending->real = real;
    pending->count++;
}

/* True for a command that changes no memory that is read. */
static bool replay_is_idle(const struct journal_entry *entry)
{
    const struct command_ops *ops = entry->command->ops;
    return ops->waits_for_all || (ops->reads_to_host && entry->ended);
}

static cl_int replay_make_ready(struct command *command, struct residence *residence,
                                uint8_t residence_index)
{
    struct memory *memory;
    bool writes;
    for (unsigned i = 0; (memory = command_use(command, &i, &writes));) {
        cl_int error = memory->root->real[residence_index]
                           ? CL_SUCCESS
                           : memory_make_real(memory->root, residence, residence_index);
        if (error == CL_SUCCESS && !memory->real[residence_index])
            error = memory_make_real(memory, residence, residence_index);
        if (error != CL_SUCCESS)
            return error;
    }
    command_begin_anew(command);
    return command->queue ? command_ready(command, residence, residence_index) : CL_SUCCESS;
}

/* Do a read again, into memory of ours, and compare it with what the program was given. A read that
 * the program was not given yet goes through our memory too: if the device is lost during this
 * recovery, its driver may write there later, when the program uses its own memory again. */
static int replay_read_again(const struct replay *r, struct journal_entry *entry,
                             struct residence *residence, uint8_t residence_index,
                             struct pending *pending)
{
    struct command *command = entry->command;
    cl_command_queue real = command->queue->real;
    size_t size;
    void **output = command->ops->output(command, &size), *given = *output;
    int failed = replay_make_way(r, pending, real);
    char *again = failed == 0 ? malloc(size) : NULL;
    if (failed != 0)
        return failed;
    if (!again)
        return replay_fail(r, -ENOMEM, "there is no memory for what is read again");
    *output = again;
    cl_int error = replay_make_ready(command, residence, residence_index);
    if (error == CL_SUCCESS)
        error = command_issue_in(command, residence, residence_index, real, 0, NULL, NULL);
    *output = given;
    if (error != CL_SUCCESS)
        return replay_fail(r, -EIO, "%s does not read again (OpenCL error %d)",
                           device_name(residence->device), error);
    replay_is_given(pending, residence, real);
    pending->reads[pending->read_count++] = (struct reread){entry, again, given, size};
    pending->read_bytes += size;
    /* Later commands may read from the program's memory what this one gives. */
    return entry->ended && command->queue->in_order ? 0 : replay_finish(r, pending);
}

/* True for a read that is only compared, since the program has its bytes. */
static bool replay_is_read_again(const struct journal_entry *entry)
{
    return entry->command->queue && entry->command->ops->output &&
           (!entry->ended || (entry->event && entry->event->digest != 0));
}

/* Give one command. All commands run one after the other, even those of different or out-of-order
 * queues. */
static int replay_give(const struct replay *r, struct journal_entry *entry, struct pending *pending)
{
    struct command *command = entry->command;
    const struct queue *queue = command->queue;
    const struct context *context = queue ? queue->context : command->uses[0]->context;
    uint8_t residence_index = replay_index_of(r, context);
    if (residence_index != RESIDENCE_NONE && replay_is_read_again(entry))
        return replay_read_again(r, entry, context->at[residence_index], residence_index, pending);
    if (replay_is_idle(entry) || residence_index == RESIDENCE_NONE)
        return 0;
    if (command->ops->is_current && !command->ops->is_current(command)) {
        journal_break("a program was built anew");
        return replay_fail(r, -ESTALE, "a program was built anew since the last snapshot");
    }
    struct residence *residence = context->at[residence_index];
    cl_command_queue real = queue ? queue->real : residence->io;
    int failed = replay_make_way(r, pending, real);
    if (failed != 0)
        return failed;
    cl_int error = replay_make_ready(command, residence, residence_index);
    if (error == CL_SUCCESS)
        error = command_issue_in(command, residence, residence_index, real, 0, NULL, NULL);
    if (error != CL_SUCCESS)
        return replay_fail(r, -EIO, "%s does not take a command again (OpenCL error %d)",
                           device_name(residence->device), error);
    replay_is_given(pending, residence, real);
    return queue && !queue->in_order ? replay_finish(r, pending) : 0;
}

void replay_end_events(cl_int status)
{
    for (struct journal_entry *entry = journal_first(); entry; entry = entry->next) {
        struct event *event = entry->event;
        if (event && event_state(event) == EVENT_ISSUED && event->parts)
            parts_end_lost(event, status);
        if (!event || event_state(event) != EVENT_DEFERRED)
            continue;
        if (event->profiled)
            event_ended_at(event, device_clock_guess(&event->queue->vdev->clock));
        event_finish(event, status);
    }
    journal_all_ended();
}

int replay_run(struct move_context *contexts, size_t count, char *ret_reason, size_t reason_size)
{
    struct snapshot *snapshot = snapshot_pin();
    const struct replay r = {contexts, count, snapshot, ret_reason, reason_size};
    struct pending pending = {0};
    if (!snapshot || journal_broken()) {
        snapshot_unpin(snapshot);
        return replay_fail(&r, -ENOENT, "the program is not protected: %s", journal_broken());
    }
    int error = 0;
    uint64_t begun = span_begin();
    journal_settle();
    recovery_step(RECOVERY_RESTORING);
    for (size_t i = 0; error == 0 && i < count; i++)
        error = replay_restore(&r, &contexts[i]);
    span_end(begun, "recovery", "restore", NULL, 0);
    if (error == 0)
        recovery_step(RECOVERY_REPLAYING);
    begun = span_begin();
    for (struct journal_entry *entry = journal_first(); error == 0 && entry; entry = entry->next)
        error = replay_give(&r, entry, &pending);
    if (error == 0)
        error = replay_finish(&r, &pending);
    if (error == 0)
        replay_end_events(CL_COMPLETE);
    span_end(begun, "recovery", "journal", NULL, 0);
    snapshot_unpin(snapshot);
    return error;
}
