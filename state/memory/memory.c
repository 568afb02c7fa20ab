#include "state/memory/memory_priv.h"

#include <stdlib.h>
#include <string.h>

#include "state/base/memory/pages.h"
#include "state/memory/compare.h"
#include "state/memory/mapping.h"
#include "state/memory/svm.h"
#include "state/object/lost.h"
#include "state/object/upcalls.h"
#include "state/object/usage.h"
#include "state/opencl/create.h"

/* Smaller buffers are copied sooner than given host memory of their own. */
#define HOST_COPY_WORTH ((size_t)16 << 10)

/* The list is kept for clGetMemObjectInfo. No property is supported. */
static cl_int memory_take_properties(struct memory *memory, const cl_mem_properties *properties)
{
    if (properties && properties[0] != 0)
        return CL_INVALID_PROPERTY;
    memory->properties = properties_copy(properties, &memory->property_count);
    return properties && !memory->properties ? CL_OUT_OF_HOST_MEMORY : CL_SUCCESS;
}

static struct memory *memory_new(struct context *context, cl_mem_object_type type,
                                 cl_mem_flags flags, struct memory *root)
{
    struct memory *memory = object_create(OBJECT_MEMORY);
    if (!memory)
        return NULL;
    memory->real = calloc(context->residences, sizeof(cl_mem) + sizeof(uint64_t));
    if (!memory->real) {
        object_discard(memory);
        return NULL;
    }
    memory->held = (_Atomic uint64_t *)(memory->real + context->residences);
    memory->context = context;
    memory->root = root ? root : memory;
    memory->type = type;
    memory->flags = flags;
    atomic_init(&memory->writer, RESIDENCE_NONE);
    object_hold(context);
    if (root)
        object_hold(root);
    return memory;
}

static void memory_discard(struct memory *memory)
{
    memory_release_reals(memory);
    host_copy_unref(memory->host_copy);
    memory_let_go(memory);
    object_discard(memory);
}

/* The driver is given the flags for kernels' access, but not those that forbid the host's: our
 * transfers need it. */
static cl_mem_flags memory_real_flags(const struct memory *memory)
{
    return memory->flags & (MEMORY_ACCESS | CL_MEM_KERNEL_READ_AND_WRITE);
}

/* The program was told the limits of the largest device. An object within these that this device
 * refuses for its size is treated as one that does not fit in its memory. */
static cl_int memory_as_shortage(cl_int error)
{
    return error == CL_INVALID_BUFFER_SIZE || error == CL_INVALID_IMAGE_SIZE
               ? CL_MEM_OBJECT_ALLOCATION_FAILURE
               : error;
}

static bool memory_wants_host_copy(const struct memory *root, const struct residence *residence)
{
    return root->uses_svm || (residence->in_place && root->size >= HOST_COPY_WORTH) ||
           (residence->maps_host_ptr &&
            (root->flags & (CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR)) != 0);
}

/* After the object's creation a driver is given the program's memory only where it works in place
 * and nothing has to be written there first. Lent memory gets other pages when the lender's session
 * ends: a driver that had registered it would go on with the old ones. */
static bool memory_may_have_host_copy(const struct memory *root, const struct residence *residence)
{
    if (root->host_copy && root->host_copy->lent)
        return residence->in_place;
    return !memory_is_user_memory(root) ||
           (residence->in_place && memory_host_copy_is_latest(root));
}

static cl_int memory_make_root_buffer(struct memory *root, struct residence *residence,
                                      uint8_t residence_index, const void *initial)
{
    const cl_icd_dispatch *cl = residence->cl;
    cl_int error = CL_SUCCESS;
    if (memory_wants_host_copy(root, residence) &&
        (initial || memory_may_have_host_copy(root, residence))) {
        if (memory_host_copy(root, initial ? PAGES_ANY : 0) != 0)
            return CL_OUT_OF_HOST_MEMORY;
        if (initial && initial != root->host_copy->bytes)
            memcpy(root->host_copy->bytes, initial, root->size);
        root->real[residence_index] =
            cl->clCreateBuffer(residence->context, memory_real_flags(root) | CL_MEM_USE_HOST_PTR,
                               root->size, root->host_copy->bytes, &error);
        if (root->real[residence_index])
            root->backed |= residence_bit(residence_index);
        compare_forget_at(root, RESIDENCE_HOST);
        /* Read-only memory cannot be registered, but can be copied. */
        if (root->real[residence_index] || !initial || !memory_is_user_memory(root))
            return memory_as_shortage(error);
    }
    cl_mem_flags flags = memory_real_flags(root) | (root->flags & CL_MEM_ALLOC_HOST_PTR);
    if (initial)
        flags |= CL_MEM_COPY_HOST_PTR;
    root->real[residence_index] = cl->clCreateBuffer(residence->context, flags, root->size,
                                                     (void *)(uintptr_t)initial, &error);
    return memory_as_shortage(error);
}

static cl_int memory_make_sub_buffer(struct memory *memory, struct residence *residence,
                                     uint8_t residence_index)
{
    cl_int error;
    cl_buffer_region region = {memory->origin, memory->size};
    memory->real[residence_index] = residence->cl->clCreateSubBuffer(
        memory->root->real[residence_index], memory_real_flags(memory),
        CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
    return error;
}

static cl_int memory_make_image(struct memory *memory, struct residence *residence,
                                uint8_t residence_index, const void *initial)
{
    cl_int error;
    cl_image_desc desc = memory->image->desc;
    if (memory->associated)
        desc.mem_object = memory->associated->real[residence_index];
    bool over_buffer = memory->associated && !memory->associated->image;
    if (!initial && !over_buffer)
        desc.image_row_pitch = desc.image_slice_pitch = 0;
    cl_mem_flags flags = memory_real_flags(memory) | (initial ? CL_MEM_COPY_HOST_PTR : 0);
    memory->real[residence_index] =
        residence->cl->clCreateImage(residence->context, flags, &memory->image->format, &desc,
                                     (void *)(uintptr_t)initial, &error);
    return memory_as_shortage(error);
}

static cl_int memory_make_real_with(struct memory *memory, struct residence *residence,
                                    uint8_t residence_index, const void *initial)
{
    if (memory->real[residence_index])
        return CL_SUCCESS;
    if (memory->associated) {
        cl_int error = memory_make_real_with(memory->associated, residence, residence_index, NULL);
        if (error != CL_SUCCESS)
            return error;
    }
    bool owns = memory->root == memory;
    if (owns && !budget_take(&residence->device->budget, memory->size))
        return OVER_BUDGET;
    cl_int error = memory->image ? memory_make_image(memory, residence, residence_index, initial)
                   : owns ? memory_make_root_buffer(memory, residence, residence_index, initial)
                          : memory_make_sub_buffer(memory, residence, residence_index);
    if (owns && error == CL_SUCCESS)
        budget_note(&residence->device->budget);
    else if (owns)
        budget_return(&residence->device->budget, memory->size);
    return error;
}

cl_int memory_make_real(struct memory *memory, struct residence *residence, uint8_t residence_index)
{
    return memory_make_real_with(memory, residence, residence_index, NULL);
}

/* Put the initial content into host memory only; the first command that needs it brings it to its
 * device. */
static cl_int memory_make_in_host(struct memory *memory, const void *initial)
{
    if (!initial)
        return CL_SUCCESS;
    if (memory_host_copy(memory, PAGES_ANY) != 0)
        return CL_OUT_OF_HOST_MEMORY;
    /* An image's host copy has the pitches of the program's pointer. */
    if (initial != memory->host_copy->bytes)
        memcpy(memory->host_copy->bytes, initial, memory->size);
    replica_written_whole(memory, RESIDENCE_HOST);
    return CL_SUCCESS;
}

/* The driver has copied the initial content: record it in @residence_index, and in the host copy if
 * there is one. The whole object is one extent still, since most are first written as a whole. */
static void memory_begin_content(struct memory *memory, uint8_t residence_index)
{
    replica_written_whole(memory, residence_index);
    if (memory->host_ptr && memory_host_copy(memory, 0) != 0)
        return;
    if (memory->host_copy)
        extents_refreshed(memory, RESIDENCE_HOST, replica_whole(memory),
                          atomic_load(&memory->version));
}

uint64_t memory_only_at(const struct memory *root, uint8_t residence_index)
{
    const struct context *context = root->context;
    uint64_t only = residence_index == RESIDENCE_NONE ? 0 : residence_bit(residence_index),
             keeping = residence_bit(RESIDENCE_HOST);
    uint64_t bytes = 0;
    for (uint8_t i = 0; i < context->residences; i++)
        if (root->real[i] && context_keeps(context, i))
            keeping |= residence_bit(i);
    for (size_t at = 0; at < root->size;) {
        struct extent extent = extent_at(root, at);
        if (extent.version != 0 && (extent.latest & keeping) == only)
            bytes += extent.range.end - at;
        at = extent.range.end;
    }
    return bytes;
}

static _Atomic uint64_t stamps;

void memory_stamp(struct memory *root)
{
    atomic_store_explicit(&root->stamp,
                          atomic_fetch_add_explicit(&stamps, 1, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

uint64_t memory_stamp_latest(void)
{
    return atomic_load(&stamps);
}

/* Inside the gate. Where is_shortage() is true of the error, nothing was made: @ret_device has no
 * room. */
static cl_int memory_make_at_home(struct memory *memory, const void *initial, bool in_host,
                                  struct device **ret_device)
{
    struct context *context = memory->context;
    uint8_t residence_index = context_home(context);
    *ret_device = context->at[residence_index]->device;
    /* The root is in host memory only: the view is made when the root is. */
    if (memory->root != memory && !memory->root->real[residence_index] &&
        budget_is_tight(&(*ret_device)->budget))
        return CL_SUCCESS;
    if (in_host)
        return memory_make_in_host(memory, initial);
    cl_int error =
        memory_make_real_with(memory, context->at[residence_index], residence_index, initial);
    if (error == OVER_BUDGET && memory->root != memory)
        return CL_SUCCESS; /* its root is on another device: the view is made with it */
    if (error == CL_SUCCESS && memory->root == memory && initial)
        memory_begin_content(memory, residence_index);
    return error;
}

/* What was done so far to make room for an object. */
struct settling {
    enum budget_answer answer;
    bool relieved;
};

/* Free objects that are kept only for the program's protection, once. @at_once: even if that was
 * done a moment ago. */
static bool memory_relieve(struct settling *settling, bool at_once)
{
    if (settling->relieved || !the_upcalls || !the_upcalls->relieve(at_once))
        return false;
    settling->relieved = true;
    return true;
}

/* It does not fit. Returns CL_SUCCESS when it may now, or the error of the call. */
static cl_int memory_make_room(const struct memory *memory, struct device *device, cl_int error,
                               struct settling *settling)
{
    if (memory_relieve(settling, error != OVER_BUDGET))
        return CL_SUCCESS;
    settling->answer =
        the_upcalls->ask_for_budget(device, memory->size, memory->size, false, error);
    if (settling->answer != BUDGET_AGAIN && memory_relieve(settling, true))
        settling->answer = BUDGET_AGAIN;
    if (settling->answer != BUDGET_REFUSE)
        return CL_SUCCESS;
    return error == OVER_BUDGET ? CL_MEM_OBJECT_ALLOCATION_FAILURE : error;
}

/* It was not made, by @error. Inside the gate, which this leaves. Returns CL_SUCCESS when it is to
 * be tried again, or the error of the call. */
static cl_int memory_answer_failure(const struct memory *memory, struct device *device,
                                    cl_int error, struct settling *settling)
{
    struct residence *residence = memory->context->at[context_home(memory->context)];
    residence_ref(residence);
    gate_leave();
    bool lost = residence_failed(residence, error);
    bool recovered = lost && the_upcalls && the_upcalls->await_recovery(residence);
    residence_unref(residence);
    if (lost)
        return recovered ? CL_SUCCESS : CL_OUT_OF_RESOURCES;
    if (!is_shortage(error) || memory->root != memory || settling->answer != BUDGET_AGAIN)
        return error;
    return memory_make_room(memory, device, error, settling);
}

/* Make it where the context lives now, with its initial content, and publish it. What does not fit
 * there goes to the policy. */
static cl_int memory_settle(struct memory *memory, const void *initial, struct memory **ret_memory)
{
    struct settling settling = {.answer = BUDGET_AGAIN};
    struct device *device;
    for (;;) {
        context_enter(memory->context);
        cl_int error =
            memory_make_at_home(memory, initial, settling.answer == BUDGET_SPILL, &device);
        if (LIKELY(error == CL_SUCCESS))
            break;
        error = memory_answer_failure(memory, device, error, &settling);
        if (error != CL_SUCCESS) {
            memory_discard(memory);
            return error;
        }
    }
    if (initial && memory->root == memory && the_upcalls)
        the_upcalls->made_with(memory, initial);
    object_publish(memory);
    gate_leave();
    *ret_memory = memory;
    return CL_SUCCESS;
}

cl_int memory_create_buffer(struct context *context, const cl_mem_properties *properties,
                            cl_mem_flags flags, size_t size, void *host_ptr,
                            struct memory **ret_memory)
{
    if (!memory_flags_valid(flags, MEMORY_FLAGS))
        return CL_INVALID_VALUE;
    if (size == 0)
        return CL_INVALID_BUFFER_SIZE;
    if (!memory_host_ptr_valid(flags, host_ptr))
        return CL_INVALID_HOST_PTR;
    struct memory *memory = memory_new(context, CL_MEM_OBJECT_BUFFER, flags, NULL);
    if (!memory)
        return CL_OUT_OF_HOST_MEMORY;
    memory->size = size;
    memory->host_ptr = flags & CL_MEM_USE_HOST_PTR ? host_ptr : NULL;
    memory->uses_svm = memory->host_ptr && svm_has(&context->svm, host_ptr);
    cl_int error = memory_take_properties(memory, properties);
    if (error != CL_SUCCESS) {
        memory_discard(memory);
        return error;
    }
    error = memory_settle(memory, host_ptr, ret_memory);
    if (error == CL_SUCCESS)
        usage_note_object(size);
    return error;
}

cl_int memory_create_sub_buffer(struct memory *buffer, cl_mem_flags flags,
                                cl_buffer_create_type type, const void *info, size_t alignment,
                                struct memory **ret_memory)
{
    const cl_buffer_region *region = info;
    if (buffer->type != CL_MEM_OBJECT_BUFFER || buffer->root != buffer)
        return CL_INVALID_MEM_OBJECT;
    if (!memory_flags_inherit(buffer->flags, MEMORY_ACCESS | MEMORY_HOST, &flags))
        return CL_INVALID_VALUE;
    cl_int error = sub_buffer_check(buffer->size, type, info, alignment);
    if (error != CL_SUCCESS)
        return error;
    struct memory *memory = memory_new(buffer->context, CL_MEM_OBJECT_BUFFER, flags, buffer);
    if (!memory)
        return CL_OUT_OF_HOST_MEMORY;
    memory->size = region->size;
    memory->origin = region->origin;
    memory->host_ptr = buffer->host_ptr ? (char *)buffer->host_ptr + region->origin : NULL;
    memory->associated = buffer;
    memory->uses_svm = buffer->uses_svm;
    object_hold(buffer);
    error = memory_settle(memory, NULL, ret_memory);
    if (error == CL_SUCCESS)
        usage_note_sub_buffer(region->origin);
    return error;
}

static cl_int memory_image_prepare(struct memory *memory, const cl_image_format *format,
                                   const cl_image_desc *desc, void *host_ptr, struct memory *source)
{
    memory->image = calloc(1, sizeof(*memory->image));
    if (!memory->image)
        return CL_OUT_OF_HOST_MEMORY;
    cl_image_desc normal = *desc;
    if (source && source->image)
        normal.image_row_pitch = source->image->row_pitch; /* it shares the source's bytes */
    image_shape_init(memory->image, format, &normal, image_element_size(format));
    memory->size = memory->image->size;
    memory->host_ptr = memory->flags & CL_MEM_USE_HOST_PTR ? host_ptr : NULL; /* NULL for a view */
    if (source) {
        memory->origin = source->origin;
        memory->associated = source;
        object_hold(source);
    }
    return CL_SUCCESS;
}

cl_int memory_create_image(struct context *context, const cl_mem_properties *properties,
                           cl_mem_flags flags, const cl_image_format *format,
                           const cl_image_desc *desc, void *host_ptr, struct memory **ret_memory)
{
    if (!memory_flags_valid(flags, IMAGE_FLAGS))
        return CL_INVALID_VALUE;
    if (!format || image_element_size(format) == 0)
        return CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
    if (!desc)
        return CL_INVALID_IMAGE_DESCRIPTOR;
    struct memory *source = memory_get(desc->mem_object);
    const struct image_parent from = {source && source->context == context,
                                      source ? source->flags : 0, source ? source->size : 0,
                                      source ? source->image : NULL};
    cl_int error = image_parent_check(desc, image_element_size(format), host_ptr, &from, &flags);
    if (error != CL_SUCCESS)
        return error;
    struct memory *memory =
        memory_new(context, desc->image_type, flags, source ? source->root : NULL);
    if (!memory)
        return CL_OUT_OF_HOST_MEMORY;
    error = memory_image_prepare(memory, format, desc, host_ptr, source);
    if (error == CL_SUCCESS)
        error = memory_take_properties(memory, properties);
    if (error != CL_SUCCESS) {
        memory_discard(memory);
        return error;
    }
    struct image_shape shape = *memory->image;
    error = memory_settle(memory, host_ptr, ret_memory);
    if (error == CL_SUCCESS)
        usage_note_image(&shape);
    return error;
}
