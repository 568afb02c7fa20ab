#include "interpose/entry/check.h"

#include "calls_generated.h"
#include "interpose/entry/start.h"
#include "state/opencl/box.h"

size_t image_color_size(const struct memory *image)
{
    return image->image->format.image_channel_order == CL_DEPTH ? sizeof(cl_float)
                                                                : sizeof(cl_float4);
}

static cl_int check_host_reads(const struct memory *memory)
{
    return memory->flags & (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS) ? CL_INVALID_OPERATION
                                                                            : CL_SUCCESS;
}

static cl_int check_host_writes(const struct memory *memory)
{
    return memory->flags & (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS) ? CL_INVALID_OPERATION
                                                                           : CL_SUCCESS;
}

/* A run of bytes of a buffer. None is an error up to 2.0 (5.2.2). */
static bool check_run_fits(const struct memory *buffer, size_t offset, size_t size)
{
    return range_fits(offset, size, buffer->size) && (size != 0 || the_limits.empty_commands);
}

cl_int check_read_buffer(const struct read_buffer *command)
{
    const struct memory *buffer = command->base.uses[0];
    if (!command->ptr || !check_run_fits(buffer, command->offset, command->size))
        return CL_INVALID_VALUE;
    return check_host_reads(buffer);
}

cl_int check_write_buffer(const struct write_buffer *command)
{
    const struct memory *buffer = command->base.uses[0];
    if (!command->ptr || !check_run_fits(buffer, command->offset, command->size))
        return CL_INVALID_VALUE;
    return check_host_writes(buffer);
}

/* The boxes of a transfer between a buffer and host memory. */
static bool check_host_boxes_fit(const struct memory *buffer, const size_t buffer_origin[3],
                                 const size_t host_origin[3], const size_t region[3],
                                 const size_t buffer_pitch[2], const size_t host_pitch[2])
{
    struct box box;
    if (!box_init(&box, host_origin, region, host_pitch[0], host_pitch[1]))
        return false;
    return box_init(&box, buffer_origin, region, buffer_pitch[0], buffer_pitch[1]) &&
           box.end <= buffer->size;
}

cl_int check_read_buffer_rect(const struct read_buffer_rect *command)
{
    const size_t buffer_pitch[2] = {command->buffer_row_pitch, command->buffer_slice_pitch};
    const size_t host_pitch[2] = {command->host_row_pitch, command->host_slice_pitch};
    if (!command->ptr ||
        !check_host_boxes_fit(command->base.uses[0], command->buffer_origin, command->host_origin,
                              command->region, buffer_pitch, host_pitch))
        return CL_INVALID_VALUE;
    return check_host_reads(command->base.uses[0]);
}

cl_int check_write_buffer_rect(const struct write_buffer_rect *command)
{
    const size_t buffer_pitch[2] = {command->buffer_row_pitch, command->buffer_slice_pitch};
    const size_t host_pitch[2] = {command->host_row_pitch, command->host_slice_pitch};
    if (!command->ptr ||
        !check_host_boxes_fit(command->base.uses[0], command->buffer_origin, command->host_origin,
                              command->region, buffer_pitch, host_pitch))
        return CL_INVALID_VALUE;
    return check_host_writes(command->base.uses[0]);
}

cl_int check_fill_buffer(const struct fill_buffer *command)
{
    size_t pattern = command->pattern_size;
    if (pattern == 0 || (pattern & (pattern - 1)) != 0 || command->offset % pattern != 0 ||
        command->size % pattern != 0 ||
        !range_fits(command->offset, command->size, command->base.uses[0]->size))
        return CL_INVALID_VALUE;
    return CL_SUCCESS;
}

cl_int check_copy_buffer(const struct copy_buffer *command)
{
    const struct memory *from = command->base.uses[0], *to = command->base.uses[1];
    if (!check_run_fits(from, command->src_offset, command->size) ||
        !check_run_fits(to, command->dst_offset, command->size))
        return CL_INVALID_VALUE;
    if (from->root == to->root) {
        size_t a = from->origin + command->src_offset, b = to->origin + command->dst_offset;
        if (a < b + command->size && b < a + command->size)
            return CL_MEM_COPY_OVERLAP;
    }
    return CL_SUCCESS;
}

cl_int check_copy_buffer_rect(const struct copy_buffer_rect *command)
{
    const struct memory *from = command->base.uses[0], *to = command->base.uses[1];
    struct box a, b;
    if (!box_init(&a, command->src_origin, command->region, command->src_row_pitch,
                  command->src_slice_pitch) ||
        !box_init(&b, command->dst_origin, command->region, command->dst_row_pitch,
                  command->dst_slice_pitch) ||
        a.end > from->size || b.end > to->size)
        return CL_INVALID_VALUE;
    if (from == to && (a.row != b.row || a.slice != b.slice))
        return CL_INVALID_VALUE;
    if (from->root == to->root && a.row == b.row && a.slice == b.slice) {
        a.start += from->origin;
        a.end += from->origin;
        b.start += to->origin;
        b.end += to->origin;
        if (box_overlaps(&a, &b, command->region))
            return CL_MEM_COPY_OVERLAP;
    }
    return CL_SUCCESS;
}

static cl_int check_image_region(const struct memory *image, const size_t origin[3],
                                 const size_t region[3])
{
    for (int i = 0; i < 3; i++)
        if (region[i] == 0 || !range_fits(origin[i], region[i], image->image->dims[i]))
            return CL_INVALID_VALUE;
    return CL_SUCCESS;
}

/* The pitches of host memory that an image is read into or written from (5.3.3). */
static bool check_host_pitches_fit(const struct memory *image, const size_t region[3], size_t row,
                                   size_t slice)
{
    size_t least = region[0] * image->image->element_size;
    if (row != 0 && row < least)
        return false;
    if (slice == 0)
        return true;
    switch (image->type) {
    case CL_MEM_OBJECT_IMAGE2D_ARRAY:
    case CL_MEM_OBJECT_IMAGE3D:
        return multiply_add(row != 0 ? row : least, region[1], 0, &least) && slice >= least;
    case CL_MEM_OBJECT_IMAGE1D_ARRAY:
        return slice >= (row != 0 ? row : least);
    default:
        return false;
    }
}

cl_int check_read_image(const struct read_image *command)
{
    const struct memory *image = command->base.uses[0];
    if (!command->ptr ||
        check_image_region(image, command->origin, command->region) != CL_SUCCESS ||
        !check_host_pitches_fit(image, command->region, command->row_pitch, command->slice_pitch))
        return CL_INVALID_VALUE;
    return check_host_reads(image);
}

cl_int check_write_image(const struct write_image *command)
{
    const struct memory *image = command->base.uses[0];
    if (!command->ptr ||
        check_image_region(image, command->origin, command->region) != CL_SUCCESS ||
        !check_host_pitches_fit(image, command->region, command->input_row_pitch,
                                command->input_slice_pitch))
        return CL_INVALID_VALUE;
    return check_host_writes(image);
}

cl_int check_fill_image(const struct fill_image *command)
{
    return check_image_region(command->base.uses[0], command->origin, command->region);
}

cl_int check_copy_image(const struct copy_image *command)
{
    const struct memory *from = command->base.uses[0], *to = command->base.uses[1];
    const cl_image_format *a = &from->image->format, *b = &to->image->format;
    if (a->image_channel_order != b->image_channel_order ||
        a->image_channel_data_type != b->image_channel_data_type)
        return CL_IMAGE_FORMAT_MISMATCH;
    if (check_image_region(from, command->src_origin, command->region) != CL_SUCCESS ||
        check_image_region(to, command->dst_origin, command->region) != CL_SUCCESS)
        return CL_INVALID_VALUE;
    if (from != to)
        return CL_SUCCESS;
    for (int i = 0; i < 3; i++)
        if (command->src_origin[i] >= command->dst_origin[i] + command->region[i] ||
            command->dst_origin[i] >= command->src_origin[i] + command->region[i])
            return CL_SUCCESS;
    return CL_MEM_COPY_OVERLAP;
}

/* The region's bytes, packed, at @offset of a buffer. The region lies in the image. */
static cl_int check_packed(const struct memory *image, const size_t region[3],
                           const struct memory *buffer, size_t offset)
{
    size_t bytes = image->image->element_size * region[0] * region[1] * region[2];
    return range_fits(offset, bytes, buffer->size) ? CL_SUCCESS : CL_INVALID_VALUE;
}

cl_int check_copy_image_to_buffer(const struct copy_image_to_buffer *command)
{
    const struct memory *image = command->base.uses[0];
    cl_int error = check_image_region(image, command->src_origin, command->region);
    return error != CL_SUCCESS
               ? error
               : check_packed(image, command->region, command->base.uses[1], command->dst_offset);
}

cl_int check_copy_buffer_to_image(const struct copy_buffer_to_image *command)
{
    const struct memory *image = command->base.uses[1];
    cl_int error = check_image_region(image, command->dst_origin, command->region);
    return error != CL_SUCCESS
               ? error
               : check_packed(image, command->region, command->base.uses[0], command->src_offset);
}
