#include "remote/driver/objects/objects.h"

#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"

/* ---- formats ---- */

/* A context offers each format that any of its devices offers. */
cl_int image_formats_list(struct context *context, cl_mem_flags flags,
                          cl_mem_object_type image_type, cl_uint num_entries,
                          cl_image_format *image_formats, cl_uint *num_image_formats)
{
    cl_mem_flags access;
    struct devinfo_formats all = {.count = 0};
    cl_int error = image_formats_check(flags, image_type, num_entries, image_formats, &access);
    for (cl_uint d = 0; error == CL_SUCCESS && d < context->device_count; d++) {
        const struct devinfo_formats *list =
            devinfo_formats_of(&context->devices[d]->answers->info, access, image_type);
        cl_image_format *more =
            reallocarray(all.formats, all.count + (list ? list->count : 0) + 1, sizeof(*more));
        if (!more)
            error = CL_OUT_OF_HOST_MEMORY;
        else
            all.formats = more;
        for (uint32_t i = 0; more && list && i < list->count; i++)
            if (!devinfo_formats_have(&all, &list->formats[i]))
                all.formats[all.count++] = list->formats[i];
    }
    if (error == CL_SUCCESS)
        error = image_formats_answer(all.formats, all.count, num_entries, image_formats,
                                     num_image_formats);
    free(all.formats);
    return error;
}

static cl_int image_check_format(const struct context *context, cl_mem_flags flags,
                                 const cl_image_format *format, cl_mem_object_type type)
{
    cl_mem_flags access;
    if (!memory_largest(context, CL_DEVICE_IMAGE_SUPPORT))
        return CL_INVALID_OPERATION;
    if (!format || image_element_size(format) == 0)
        return CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
    cl_int error = image_formats_check(flags, type, 0, NULL, &access);
    for (cl_uint d = 0; error == CL_SUCCESS && d < context->device_count; d++)
        if (devinfo_formats_have(
                devinfo_formats_of(&context->devices[d]->answers->info, access, type), format))
            return CL_SUCCESS;
    return error ? error : CL_IMAGE_FORMAT_NOT_SUPPORTED;
}

struct layout image_layout(const struct image_shape *shape, const size_t region[3],
                           size_t row_pitch, size_t slice_pitch)
{
    struct image_pitches pitches = image_host_pitches(shape, region, row_pitch, slice_pitch);
    return (struct layout){.row = region[0] * shape->element_size,
                           .rows = region[1],
                           .slices = region[2],
                           .row_pitch = pitches.row,
                           .slice_pitch = pitches.slice};
}

/* ---- what the driver makes ---- */

/* Which images a driver makes is more than its list of formats and its limits say: some make none
 * that a kernel reads and writes, or none of a part of a buffer. */
struct image_kind {
    cl_mem_flags access;
    cl_image_format format;
    cl_mem_object_type type;
    bool from_buffer, from_part, from_image;
};

static struct image_kind image_kind_of(const struct memory *image)
{
    const struct memory *parent = image->parent;
    struct image_kind kind;
    memset(&kind, 0, sizeof(kind)); /* Kinds are compared as bytes. */
    kind.access = image->flags & (MEMORY_ACCESS | CL_MEM_KERNEL_READ_AND_WRITE);
    kind.format = image->image->format;
    kind.type = image->type;
    kind.from_buffer = parent && !parent->image;
    kind.from_part = kind.from_buffer && parent->parent;
    kind.from_image = parent && parent->image;
    return kind;
}

static bool image_is_known(struct context *context, const struct image_kind *kind)
{
    bool known = false;
    pthread_mutex_lock(&context->lock);
    for (size_t i = 0; !known && i < context->kind_count; i++)
        known = !memcmp(&context->kinds[i], kind, sizeof(*kind));
    pthread_mutex_unlock(&context->lock);
    return known;
}

static void image_learn(struct context *context, const struct image_kind *kind)
{
    pthread_mutex_lock(&context->lock);
    if (array_make_room(&context->kinds, context->kind_count, sizeof(*kind)))
        context->kinds[context->kind_count++] = *kind;
    pthread_mutex_unlock(&context->lock);
}

/* Wait for the driver's answer to the context's first image of a kind. A server of before knows no
 * such question: the program hears of a refusal when it uses the image. */
static cl_int image_ask(const struct memory *image)
{
    struct client *client = image->base.client;
    const struct image_kind kind = image_kind_of(image);
    if (!(client->features & FEATURE_ASK_MEMORY) || image_is_known(image->context, &kind))
        return CL_SUCCESS;
    struct call *call = call_create(client);
    if (!call)
        return client_state(client) ? CL_DEVICE_NOT_AVAILABLE : CL_OUT_OF_HOST_MEMORY;
    cl_int error = call_wait(
        call, POST(client, ask_memory, {.memory = handle_id(image), .call = handle_id(call)}));
    handle_release(call);
    if (error == CL_SUCCESS)
        image_learn(image->context, &kind);
    return error;
}

/* Extents that the type does not have are not sent: the server computes sizes from all. */
static cl_int image_post(struct memory *image, size_t row_pitch, const void *host)
{
    const struct image_shape *shape = image->image;
    size_t size = 0;
    void *packed = NULL;
    if (host) {
        const struct layout layout =
            image_layout(shape, shape->dims, image_row_answer(shape), image_slice_argument(shape));
        if (!layout_size(&layout, &size))
            return CL_INVALID_IMAGE_SIZE;
        packed = malloc(size);
        if (!packed)
            return CL_OUT_OF_HOST_MEMORY;
        layout_gather(&layout, packed, host);
    }
    cl_int error = POST(image->base.client, create_image,
                        {.memory = handle_id(image),
                         .context = handle_id(image->context),
                         .flags = image->flags,
                         .order = shape->format.image_channel_order,
                         .data_type = shape->format.image_channel_data_type,
                         .type = image->type,
                         .size = {shape->dims[0], image_extent(shape, CL_IMAGE_HEIGHT),
                                  image_extent(shape, CL_IMAGE_DEPTH)},
                         .layers = image_extent(shape, CL_IMAGE_ARRAY_SIZE),
                         .row_pitch = row_pitch,
                         .parent = handle_id(image->parent),
                         .content = packed,
                         .content_size = size});
    image->told = error == CL_SUCCESS;
    free(packed);
    return error ? error : image_ask(image);
}

/* Are 2D images made from buffers by any device? */
static bool image_takes_buffers(const struct context *context)
{
    for (cl_uint i = 0; i < context->device_count; i++)
        if (devinfo_names_have(context->devices[i]->extensions, "cl_khr_image2d_from_buffer"))
            return true;
    return false;
}

static uint64_t image_largest(const void *context, cl_device_info limit)
{
    return memory_largest(context, limit);
}

cl_int image_create(struct context *c, const cl_mem_properties *properties, cl_mem_flags flags,
                    const cl_image_format *format, const cl_image_desc *desc, void *host,
                    struct memory **ret_image)
{
    if (properties && properties[0]) /* No properties are known. */
        return CL_INVALID_PROPERTY;
    if (!memory_flags_valid(flags, IMAGE_FLAGS))
        return CL_INVALID_VALUE;
    if (!format)
        return CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
    cl_int error = desc ? image_extents_check(desc, image_largest, c) : CL_INVALID_IMAGE_DESCRIPTOR;
    if (error)
        return error;
    struct memory *parent = memory_get(desc->mem_object);
    const struct image_parent from = {parent && parent->context == c, parent ? parent->flags : 0,
                                      parent ? parent->size : 0, parent ? parent->image : NULL};
    error = image_parent_check(desc, image_element_size(format), host, &from, &flags);
    if (error == CL_SUCCESS && parent && !parent->image &&
        desc->image_type == CL_MEM_OBJECT_IMAGE2D && !image_takes_buffers(c))
        error = CL_INVALID_OPERATION;
    if (error == CL_SUCCESS)
        error = image_check_format(c, flags, format, desc->image_type);
    if (error)
        return error;
    struct memory *image = memory_create(c, desc->image_type, flags, parent);
    if (!image)
        return CL_OUT_OF_HOST_MEMORY;
    image->properties = properties_copy(properties, &image->property_count);
    image->image = malloc(sizeof(*image->image));
    if (!image->image) {
        handle_release(image);
        return CL_OUT_OF_HOST_MEMORY;
    }
    cl_image_desc normal = *desc;
    if (parent && parent->image)
        normal.image_row_pitch = parent->image->row_pitch; /* It has the parent's bytes. */
    image_shape_init(image->image, format, &normal, image_element_size(format));
    image->size = image->image->size;
    image->origin = parent ? parent->origin : 0;
    if (flags & CL_MEM_USE_HOST_PTR)
        image->host = parent ? parent->host : host;
    error = image_post(image, desc->image_row_pitch, host);
    return created_if(image, error, ret_image);
}
