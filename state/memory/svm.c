#include "state/memory/svm.h"

#include <pthread.h>
#include <string.h>

#include "state/base/array.h"
#include "state/base/threads/fork.h"

struct svm_block {
    char *start;
    size_t size;
};

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* for all tables; nothing is locked under it */

/* The index of the first block that begins after @pointer. Under lock. */
static size_t svm_after(const struct svm_table *table, const char *pointer)
{
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->blocks[middle].start <= pointer)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool svm_has(const struct svm_table *table, const void *pointer)
{
    const char *byte = pointer;
    pthread_mutex_lock(&lock);
    size_t at = svm_after(table, byte);
    bool found =
        at > 0 && (size_t)(byte - table->blocks[at - 1].start) < table->blocks[at - 1].size;
    pthread_mutex_unlock(&lock);
    return found;
}

/* Reserve room for one more block, beside the present ones and those that other threads reserved.
 */
static bool svm_reserve(struct svm_table *table)
{
    pthread_mutex_lock(&lock);
    bool enough =
        array_make_room(&table->blocks, table->count + table->reserved, sizeof(table->blocks[0]));
    table->reserved += enough;
    pthread_mutex_unlock(&lock);
    return enough;
}

/* Put @block into the reserved room; NULL: give the room up. */
static void svm_settle(struct svm_table *table, struct svm_block block)
{
    pthread_mutex_lock(&lock);
    table->reserved--;
    if (block.start) {
        size_t at = svm_after(table, block.start);
        memmove(&table->blocks[at + 1], &table->blocks[at],
                (table->count - at) * sizeof(table->blocks[0]));
        table->blocks[at] = block;
        table->count++;
    }
    pthread_mutex_unlock(&lock);
}

static bool svm_take_out(struct svm_table *table, const void *pointer)
{
    pthread_mutex_lock(&lock);
    size_t at = svm_after(table, pointer);
    bool found = at > 0 && table->blocks[at - 1].start == pointer;
    if (found) {
        table->count--;
        memmove(&table->blocks[at - 1], &table->blocks[at],
                (table->count - (at - 1)) * sizeof(table->blocks[0]));
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* The capabilities that an allocation takes (5.6.1). */
static uint64_t svm_capabilities(cl_svm_mem_flags flags)
{
    return CL_DEVICE_SVM_COARSE_GRAIN_BUFFER |
           (flags & CL_MEM_SVM_FINE_GRAIN_BUFFER ? CL_DEVICE_SVM_FINE_GRAIN_BUFFER : 0) |
           (flags & CL_MEM_SVM_ATOMICS ? CL_DEVICE_SVM_ATOMICS : 0);
}

static bool svm_in_one_place(const struct context *context)
{
    for (cl_uint i = 1; i < context->vdev_count; i++)
        if (atomic_load(&context->residence_index[i]) != atomic_load(&context->residence_index[0]))
            return false;
    return true;
}

void *svm_alloc(struct context *context, cl_svm_mem_flags flags, size_t size, cl_uint alignment,
                struct vdev **ret_stray)
{
    void *pointer = NULL;
    *ret_stray = NULL;
    if (!svm_reserve(&context->svm))
        return NULL;
    if (pin_enter(context, CL_DEVICE_SVM_CAPABILITIES, svm_capabilities(flags), ret_stray) ==
        CL_SUCCESS) {
        const struct residence *residence = context->at[context_home(context)];
        if (svm_in_one_place(context) && residence->cl->clSVMAlloc)
            pointer = residence->cl->clSVMAlloc(residence->context, flags, size, alignment);
        if (pointer)
            pin_take(&context->pins, PIN_SVM);
        svm_settle(&context->svm, (struct svm_block){pointer, size});
        gate_leave();
    } else {
        svm_settle(&context->svm, (struct svm_block){NULL, 0});
    }
    return pointer;
}

void svm_free(struct context *context, void *pointer)
{
    gate_enter();
    if (pointer && svm_take_out(&context->svm, pointer)) {
        /* Pinned, so never suspended. */
        const struct residence *residence = context->at[context_home(context)];
        residence->cl->clSVMFree(residence->context, pointer);
        pin_drop(&context->pins, PIN_SVM);
    }
    gate_leave();
}

FORK_PART = {.rank = FORK_TABLE, .lock = &lock};
