#include "state/command/journal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "state/base/log.h"
#include "state/base/threads/fork.h"

READ_MOSTLY atomic_bool journal_is_kept;
_Atomic uint64_t journal_limit;

/* Held while a command is given to the driver, so that the journal has the drivers' order. Only
 * inside the gate, or with it closed. Nothing called with it waits for a thread that needs it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct journal_entry *first, **last = &first;
static _Atomic uint64_t count, bytes;
static const char *_Atomic broken = JOURNAL_NONE;

static struct journal_entry *journal_take_all(void)
{
    struct journal_entry *list = first;
    first = NULL;
    last = &first;
    atomic_store(&count, 0);
    atomic_store(&bytes, 0);
    return list;
}

struct journal_entry *journal_begin(void)
{
    struct journal_entry *list = journal_take_all();
    atomic_store(&broken, NULL);
    atomic_store(&journal_is_kept, true);
    return list;
}

struct journal_entry *journal_end(const char *why)
{
    atomic_store(&journal_is_kept, false);
    atomic_store(&broken, why);
    return journal_take_all();
}

static void journal_entry_free(struct journal_entry *entry)
{
    struct queue *queue = NULL;
    if (entry->command) {
        queue = entry->command->queue;
        command_drop(entry->command);
    }
    for (cl_uint i = 0; i < entry->waits; i++)
        object_unhold(entry->wait_list[i]);
    object_unhold(entry->event);
    object_unhold(queue);
    free(entry->command);
    free(entry->bytes);
    free(entry);
}

void journal_free(struct journal_entry *list)
{
    while (list) {
        struct journal_entry *next = list->next;
        journal_entry_free(list);
        list = next;
    }
}

void journal_break(const char *why)
{
    const char *whole = NULL;
    if (atomic_load(&journal_is_kept) && atomic_compare_exchange_strong(&broken, &whole, why))
        log_info("the program is not protected until the next snapshot: %s", why);
}

const char *journal_broken(void)
{
    return atomic_load(&broken);
}

void journal_size(uint64_t *ret_count, uint64_t *ret_bytes)
{
    *ret_count = atomic_load(&count);
    *ret_bytes = atomic_load(&bytes);
}

/* Record a copy of @command that can be replayed, with the bytes it writes from the program's
 * memory. */
static bool journal_record(struct journal_entry *entry, const struct command *command, bool held)
{
    const struct command_ops *ops = command->ops;
    size_t size = 0;
    if (ops->record) {
        if (ops->record(command, &entry->command, &entry->bytes, &size) != 0)
            return false;
    } else if (!held) {
        struct command *copy = malloc(ops->size);
        if (!copy)
            return false;
        memcpy(copy, command, ops->size);
        if (command_defer(copy) != CL_SUCCESS) {
            free(copy);
            return false;
        }
        entry->command = copy;
    }
    entry->cost = sizeof(*entry) + ops->size + size + entry->waits * sizeof(struct event *);
    return true;
}

struct journal_entry *journal_prepare(const struct command *command, bool held, cl_uint waits,
                                      struct event *const *wait_list)
{
    pthread_mutex_lock(&lock);
    if (journal_broken())
        return NULL;
    struct journal_entry *entry = NULL;
    if (command->ops->unrepeatable)
        journal_break(command->ops->unrepeatable);
    else
        entry = calloc(1, sizeof(*entry) + waits * sizeof(struct event *));
    if (entry && !journal_record(entry, command, held)) {
        free(entry);
        entry = NULL;
    }
    for (cl_uint i = 0; entry && i < waits; i++) {
        object_hold(wait_list[i]);
        entry->wait_list[entry->waits++] = wait_list[i];
    }
    return entry;
}

/* Lock held. */
static void journal_append(struct journal_entry *entry)
{
    uint64_t limit = atomic_load(&journal_limit);
    *last = entry;
    last = &entry->next;
    atomic_fetch_add(&count, 1);
    if (atomic_fetch_add(&bytes, entry->cost) + entry->cost > limit && limit != 0)
        journal_break("what it did since the last snapshot takes more memory than it may");
}

bool journal_add(struct journal_entry *entry, struct command *command, struct event *event)
{
    bool takes = entry && !entry->command;
    struct queue *queue = command->queue;
    if (!entry)
        journal_break("there is no memory for what it does");
    if (takes)
        entry->command = command;
    if (entry) {
        entry->event = event;
        if (event) {
            event->kept = true;
            object_hold(event);
        }
        object_hold(queue);
        entry->command->queue = queue;
        entry->given = queue_order(queue);
        journal_append(entry);
    }
    pthread_mutex_unlock(&lock);
    return takes;
}

void journal_drop(struct journal_entry *entry)
{
    pthread_mutex_unlock(&lock);
    if (!entry)
        return;
    /* The entry does not hold its queue yet. */
    if (entry->command)
        entry->command->queue = NULL;
    journal_entry_free(entry);
}

uint64_t journal_digest(const void *from, size_t size)
{
    uint64_t digest = XXH3_64bits(from, size);
    return digest != 0 ? digest : 1;
}

struct journal_entry *journal_first(void)
{
    return first;
}

/*
 * Commands that write bytes again: those of a mapping that was unmapped, and the content that an
 * object was created with, which is in no queue.
 */

struct rewrite {
    struct command base;
    size_t origin[3], region[3];
    size_t offset, length; /* range of the root's bytes */
    const char *bytes;
};

static cl_int journal_rewrite_issue(struct command *command, struct residence *residence,
                                    uint8_t residence_index, cl_command_queue queue, cl_uint waits,
                                    const cl_event *wait_list, cl_event *ret_event)
{
    const struct rewrite *rewrite = (const struct rewrite *)command;
    const struct memory *memory = command->uses[0];
    if (rewrite->length == 0)
        return residence->cl->clEnqueueMarkerWithWaitList(queue, waits, wait_list, ret_event);
    if (!memory->image || memory->type == CL_MEM_OBJECT_IMAGE1D_BUFFER)
        return residence->cl->clEnqueueWriteBuffer(queue, memory->root->real[residence_index],
                                                   CL_FALSE, rewrite->offset, rewrite->length,
                                                   rewrite->bytes, waits, wait_list, ret_event);
    return residence->cl->clEnqueueWriteImage(
        queue, memory->real[residence_index], CL_FALSE, rewrite->origin, rewrite->region,
        memory->image->row_pitch, image_slice_argument(memory->image), rewrite->bytes, waits,
        wait_list, ret_event);
}

static void journal_rewrite_range(const struct command *command, unsigned use, struct range *range)
{
    const struct rewrite *rewrite = (const struct rewrite *)command;
    (void)use;
    range->begin = rewrite->offset - command->uses[0]->origin;
    range->end = range->begin + rewrite->length;
}

static const struct command_ops rewrite_ops = {
    .type = CL_COMMAND_UNMAP_MEM_OBJECT,
    .size = sizeof(struct rewrite),
    .issue = journal_rewrite_issue,
    .range = journal_rewrite_range,
};

int journal_rewrite(struct queue *queue, struct memory *memory, const size_t origin[3],
                    const size_t region[3], struct range range, const void *from,
                    struct command **ret_command, char **ret_bytes)
{
    struct rewrite *rewrite = calloc(1, sizeof(*rewrite));
    char *copy = malloc(range.end - range.begin + 1);
    if (!rewrite || !copy) {
        free(rewrite);
        free(copy);
        return -ENOMEM;
    }
    memcpy(copy, from, range.end - range.begin);
    command_init(&rewrite->base, &rewrite_ops, queue);
    rewrite->base.uses[0] = memory;
    rewrite->base.use_count = 1;
    rewrite->base.writes = range.end != range.begin;
    memcpy(rewrite->origin, origin, sizeof(rewrite->origin));
    memcpy(rewrite->region, region, sizeof(rewrite->region));
    rewrite->offset = range.begin;
    rewrite->length = range.end - range.begin;
    rewrite->bytes = copy;
    command_hold_uses(&rewrite->base);
    *ret_command = &rewrite->base;
    *ret_bytes = copy;
    return 0;
}

void journal_add_content(struct memory *root, const void *content)
{
    static const size_t zero[3];
    size_t whole[3] = {root->size, 1, 1};
    if (LIKELY(!atomic_load_explicit(&journal_is_kept, memory_order_relaxed)) || journal_broken())
        return;
    if (root->image)
        memcpy(whole, root->image->dims, sizeof(whole));
    for (int i = 0; i < 3; i++)
        whole[i] = whole[i] ? whole[i] : 1;
    struct journal_entry *entry = calloc(1, sizeof(*entry));
    if (!entry || journal_rewrite(NULL, root, zero, whole, replica_whole(root), content,
                                  &entry->command, &entry->bytes) != 0) {
        free(entry);
        journal_break("there is no memory for what it does");
        return;
    }
    entry->cost = sizeof(*entry) + sizeof(struct rewrite) + root->size;
    entry->ended = true;
    pthread_mutex_lock(&lock);
    journal_append(entry);
    pthread_mutex_unlock(&lock);
}

/*
 * Finds the commands that have ended as far as the program may know: those that it was told of, and
 * those that these came after.
 */

static bool journal_comes_after_all(const struct command *command, cl_uint waits)
{
    return command->ops->waits_for_all && waits == 0;
}

static bool journal_is_known(const struct journal_entry *entry)
{
    const struct queue *queue = entry->command->queue;
    if (entry->ended || (entry->event && event_has_ended(entry->event)))
        return true;
    return queue && (entry->given <= atomic_load(&queue->past) ||
                     (entry->event && event_state(entry->event) == EVENT_ISSUED &&
                      !entry->event->parts && queue_is_past(queue, entry->event)));
}

static struct journal_entry *journal_reversed(struct journal_entry *list)
{
    struct journal_entry *before = NULL;
    while (list) {
        struct journal_entry *next = list->next;
        list->next = before;
        before = list;
        list = next;
    }
    return before;
}

/* An entry comes after earlier entries only, so one pass from the last to the first is enough. */
static void journal_settle_entry(struct journal_entry *entry, uint64_t serial)
{
    struct queue *queue = entry->command->queue;
    entry->ended = journal_is_known(entry) || (queue && queue->settled == serial) ||
                   (entry->event && entry->event->settled == serial);
    if (!entry->ended || !queue)
        return;
    if (queue->in_order || journal_comes_after_all(entry->command, entry->waits))
        queue->settled = serial;
    for (cl_uint i = 0; i < entry->waits; i++)
        entry->wait_list[i]->settled = serial;
}

void journal_settle(void)
{
    static uint64_t serial; /* only one thread can have the gate closed */
    serial++;
    first = journal_reversed(first);
    for (struct journal_entry *entry = first; entry; entry = entry->next)
        journal_settle_entry(entry, serial);
    first = journal_reversed(first);
}

void journal_all_ended(void)
{
    for (struct journal_entry *entry = first; entry; entry = entry->next)
        entry->ended = true;
}

/* The commands were given by the parent. */
static void journal_in_child(void)
{
    (void)journal_take_all();
    atomic_store(&journal_is_kept, false);
    atomic_store(&broken, JOURNAL_NONE);
}

FORK_PART = {.rank = FORK_OBJECT, .long_lock = &lock, .in_child = journal_in_child};
