#ifndef RESEAT_STATE_MEMORY_SVM_H
#define RESEAT_STATE_MEMORY_SVM_H

#include "state/object/context.h"

/*
 * Shared virtual memory (5.6): the program has addresses that belong to one device. It cannot be
 * moved, so each allocation pins its context (pin.h) until it is freed; all calls go to the driver.
 */

struct queue;

/**
 * clSVMAlloc. All virtual devices of the context must be on one real device, since the addresses
 * are valid only there. Waits while the context is suspended; not inside the gate.
 *
 * @ret_stray  As of pin_enter.
 * Returns NULL on failure, as 5.6.1 does.
 */
void *svm_alloc(struct context *context, cl_svm_mem_flags flags, size_t size, cl_uint alignment,
                struct vdev **ret_stray);
/** clSVMFree. A pointer that is not an allocation of the context is ignored. */
void svm_free(struct context *context, void *pointer);

/** True when @pointer lies in an allocation of the table. Any thread. */
bool svm_has(const struct svm_table *table, const void *pointer);

/**
 * clEnqueueSVMFree (5.6.2).
 *
 * The command waits in the queue; @call (or svm_free of each pointer, when it is NULL) runs on the
 * callback thread, outside the gate, and only then the command has ended: what follows it on an
 * in-order queue is held so long.
 */
cl_int svm_enqueue_free(struct queue *queue, cl_uint count, void *const *pointers,
                        void(CL_CALLBACK *call)(cl_command_queue, cl_uint, void *[], void *),
                        void *data, cl_uint waits, const cl_event *wait_list, cl_event *ret_event);

#endif
