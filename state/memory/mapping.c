#include <stdlib.h>

#include "state/base/clock.h"
#include "state/base/threads/fork.h"
#include "state/memory/memory_priv.h"

/* Guards every root's list of mappings, and visits. Nothing else is locked under it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t visit_ended = PTHREAD_COND_INITIALIZER;

bool mapping_link(struct mapping *mapping)
{
    struct memory *root = mapping->memory->root;
    pthread_mutex_lock(&lock);
    bool linked = !root->visited;
    if (linked) {
        mapping->pointer = root->host_copy->bytes + mapping->offset;
        mapping->refs++;
        if (root->host_copy->lent)
            atomic_fetch_add(&root->host_copy->lent->maps, 1);
        mapping->next = root->mappings;
        root->mappings = mapping;
        atomic_fetch_add_explicit(&root->maps, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&mapping->memory->map_count, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lock);
    return linked;
}

static void mapping_unref_locked(struct mapping *mapping)
{
    if (--mapping->refs == 0)
        free(mapping);
}

void mapping_ref(struct mapping *mapping)
{
    pthread_mutex_lock(&lock);
    mapping->refs++;
    pthread_mutex_unlock(&lock);
}

void mapping_unref(struct mapping *mapping)
{
    pthread_mutex_lock(&lock);
    mapping_unref_locked(mapping);
    pthread_mutex_unlock(&lock);
}

static void mapping_unlink_locked(struct mapping *mapping)
{
    struct mapping **link = &mapping->memory->root->mappings;
    while (*link != mapping)
        link = &(*link)->next;
    *link = mapping->next;
    mapping->unlinked = true;
    const struct host_copy *host_copy = mapping->memory->root->host_copy;
    if (host_copy->lent)
        atomic_fetch_sub(&host_copy->lent->maps, 1);
    atomic_fetch_sub_explicit(&mapping->memory->map_count, 1, memory_order_release);
    mapping_unref_locked(mapping);
}

void mapping_unlink(struct mapping *mapping)
{
    pthread_mutex_lock(&lock);
    if (!mapping->unlinked)
        mapping_unlink_locked(mapping);
    pthread_mutex_unlock(&lock);
}

/* Of several maps at one address the oldest is unmapped first, and one whose command is still held
 * last. */
static bool mapping_is_sooner(const struct mapping *mapping, const struct mapping *than)
{
    return !than || !mapping->pending || than->pending;
}

struct mapping *mapping_close(struct memory *memory, const void *pointer)
{
    struct mapping *mapping = NULL;
    pthread_mutex_lock(&lock);
    for (struct mapping *m = memory->root->mappings; m; m = m->next)
        if (m->memory == memory && m->pointer == pointer && !m->closing &&
            mapping_is_sooner(m, mapping))
            mapping = m;
    if (mapping)
        mapping->closing = true;
    pthread_mutex_unlock(&lock);
    return mapping;
}

void mapping_reopen(struct mapping *mapping)
{
    pthread_mutex_lock(&lock);
    mapping->closing = false;
    pthread_mutex_unlock(&lock);
}

static void mapping_settle_locked(struct mapping *mapping)
{
    if (!mapping->settled) {
        mapping->settled = true;
        mapping_unref_locked(mapping);
    }
}

void mapping_issued(struct mapping *mapping, uint8_t residence_index)
{
    pthread_mutex_lock(&lock);
    mapping->residence_index = residence_index;
    mapping->pending = false;
    mapping_settle_locked(mapping);
    pthread_mutex_unlock(&lock);
}

void mapping_settle(struct mapping *mapping)
{
    pthread_mutex_lock(&lock);
    mapping_settle_locked(mapping);
    pthread_mutex_unlock(&lock);
}

bool mapping_is_covered(struct mapping *mapping)
{
    bool covered = false;
    pthread_mutex_lock(&lock);
    for (struct mapping *m = mapping->memory->root->mappings; m && !covered; m = m->next)
        covered = m != mapping && !m->pending && (m->flags & WRITE_FLAGS) && !m->memory->image &&
                  mapping->offset >= m->offset &&
                  mapping->offset + mapping->length <= m->offset + m->length;
    pthread_mutex_unlock(&lock);
    return covered;
}

cl_int mapping_enter(const struct mapping *mapping, struct residence *residence,
                     uint8_t residence_index, cl_command_queue queue, cl_map_flags flags,
                     cl_uint waits, const cl_event *wait_list, cl_event *ret_event)
{
    cl_int error;
    void *pointer = residence->cl->clEnqueueMapBuffer(
        queue, mapping->memory->root->real[residence_index], CL_FALSE, flags, mapping->offset,
        mapping->length, waits, wait_list, ret_event, &error);
    return pointer ? CL_SUCCESS : error;
}

/* Invalidating, even for a map to read and write: the host's bytes must not be replaced. */
static cl_int mapping_enter_again(const struct mapping *mapping, struct residence *residence,
                                  uint8_t residence_index)
{
    cl_map_flags flags =
        mapping->flags & WRITE_FLAGS ? CL_MAP_WRITE_INVALIDATE_REGION : CL_MAP_READ;
    return mapping_enter(mapping, residence, residence_index, residence->io, flags, 0, NULL, NULL);
}

static cl_int mapping_leave(const struct mapping *mapping, struct residence *residence)
{
    const struct memory *root = mapping->memory->root;
    return residence_unmap(residence, root->real[mapping->residence_index],
                           root->host_copy->bytes + mapping->offset);
}

cl_int mapping_carry(struct mapping *mapping, uint8_t residence_index)
{
    const struct memory *root = mapping->memory->root;
    struct context *context = root->context;
    cl_int error = CL_SUCCESS;
    if (mapping->residence_index != RESIDENCE_NONE && mapping->residence_index != residence_index) {
        struct residence *from = context->at[mapping->residence_index];
        bool lost = residence_is_lost(from);
        error = lost ? CL_SUCCESS : mapping_leave(mapping, from);
        if (error == CL_SUCCESS && !lost)
            error = residence_await_queue(from, from->io);
        if (error != CL_SUCCESS)
            return error;
        mapping->residence_index = RESIDENCE_NONE;
    }
    if (mapping->residence_index == RESIDENCE_NONE && memory_is_backed(root, residence_index)) {
        struct residence *to = context->at[residence_index];
        error = mapping_enter_again(mapping, to, residence_index);
        if (error == CL_SUCCESS)
            error = residence_await_queue(to, to->io);
        if (error == CL_SUCCESS)
            mapping->residence_index = residence_index;
    }
    return error;
}

bool map_any(struct memory *root)
{
    pthread_mutex_lock(&lock);
    bool any = root->mappings != NULL;
    pthread_mutex_unlock(&lock);
    return any;
}

void map_forget(struct memory *memory)
{
    /* The program has released it, so that no map is added; most objects have none. */
    if (atomic_load_explicit(&memory->map_count, memory_order_acquire) == 0)
        return;
    pthread_mutex_lock(&lock);
    for (struct mapping *m = memory->root->mappings, *next; m; m = next) {
        next = m->next;
        if (m->memory == memory)
            mapping_unlink_locked(m);
    }
    pthread_mutex_unlock(&lock);
}

bool map_visit(struct memory *root)
{
    pthread_mutex_lock(&lock);
    bool given_back = root->host_ptr && object_refs(root) == 0;
    bool may = !root->visited && !root->mappings && !given_back;
    if (may)
        root->visited = true;
    pthread_mutex_unlock(&lock);
    return may;
}

void map_visit_end(struct memory *root)
{
    pthread_mutex_lock(&lock);
    root->visited = false;
    pthread_cond_broadcast(&visit_ended);
    pthread_mutex_unlock(&lock);
}

void map_visit_await(struct memory *root)
{
    pthread_mutex_lock(&lock);
    while (root->visited)
        (void)clock_wait(&visit_ended, &lock, 0);
    pthread_mutex_unlock(&lock);
}

bool map_written(struct memory *root)
{
    pthread_mutex_lock(&lock);
    bool written = false;
    for (struct mapping *m = root->mappings; m; m = m->next)
        written = written || (!m->pending && (m->flags & WRITE_FLAGS));
    pthread_mutex_unlock(&lock);
    return written;
}

cl_int map_leave(struct memory *root, struct residence *residence, uint8_t residence_index)
{
    for (struct mapping *m = root->mappings; m; m = m->next) {
        if (m->pending || m->residence_index != residence_index)
            continue;
        cl_int error = mapping_leave(m, residence);
        if (error != CL_SUCCESS)
            return error;
    }
    return CL_SUCCESS;
}

/* True for a mapping that a move from @from takes to the target. */
static bool mapping_goes_along(const struct mapping *m, uint8_t from)
{
    return !m->pending && (m->residence_index == from || m->residence_index == RESIDENCE_NONE);
}

static bool mapping_arrives(const struct memory *root, uint8_t to)
{
    return to != RESIDENCE_HOST && memory_is_backed(root, to) && replica_is_latest(root, to);
}

cl_int map_arrive(struct memory *root, struct residence *residence, uint8_t from, uint8_t to)
{
    cl_int error = CL_SUCCESS;
    if (!mapping_arrives(root, to))
        return CL_SUCCESS;
    for (struct mapping *m = root->mappings; m && error == CL_SUCCESS; m = m->next)
        if (mapping_goes_along(m, from))
            error = mapping_enter_again(m, residence, to);
    return error;
}

void map_moved(struct memory *root, uint8_t from, uint8_t to)
{
    for (struct mapping *m = root->mappings; m; m = m->next)
        if (mapping_goes_along(m, from))
            m->residence_index = mapping_arrives(root, to) ? to : RESIDENCE_NONE;
}

/* The first run of bytes from @at on that mapping @m covers; false: there is none. */
static bool mapping_next_run(const struct mapping *m, size_t at, size_t *ret_from, size_t *ret_to)
{
    const struct image_shape *image = m->memory->image;
    if (!image) {
        *ret_from = m->offset > at ? m->offset : at;
        *ret_to = m->offset + m->length;
        return *ret_from < *ret_to;
    }
    size_t row = m->region[0] * image->element_size;
    for (size_t z = 0; z < m->region[2]; z++)
        for (size_t y = 0; y < m->region[1]; y++) {
            size_t from = m->offset + z * image->slice_pitch + y * image->row_pitch;
            if (from + row <= at)
                continue;
            *ret_from = from > at ? from : at;
            *ret_to = from + row;
            return true;
        }
    return false;
}

int map_each_gap(struct memory *root, struct range range,
                 int (*copy)(void *data, size_t from, size_t to), void *data)
{
    size_t at = range.begin;
    while (at < range.end) {
        size_t from = range.end, to = from;
        for (struct mapping *m = root->mappings; m; m = m->next) {
            size_t run_from, run_to;
            if (!m->pending && (m->flags & WRITE_FLAGS) &&
                mapping_next_run(m, at, &run_from, &run_to) && run_from < from) {
                from = run_from;
                to = run_to;
            }
        }
        if (from > at) {
            int error = copy(data, at, from);
            if (error != 0)
                return error;
        }
        at = to > at ? to : range.end;
    }
    return 0;
}

/* Movers of the parent do not exist in the child: nothing is visited. */
static void mapping_in_child(void)
{
    uintptr_t cursor = 0;
    struct memory *memory;
    for (; (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory))
        memory->visited = false;
}

FORK_PART = {
    .rank = FORK_TABLE, .lock = &lock, .changed = {&visit_ended}, .in_child = mapping_in_child};
