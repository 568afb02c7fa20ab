#include "calls_generated.h"

/*
 * Which bytes of its objects each command names, for replicas that are kept by ranges of bytes.
 * What was checked before fits. A box is counted as the run of bytes from its first to its last.
 */

static struct range ranges_run(size_t offset, size_t size)
{
    return (struct range){offset, offset + size};
}

static struct range ranges_box(const size_t origin[3], const size_t region[3], size_t row,
                               size_t slice)
{
    row = row ? row : region[0];
    slice = slice ? slice : row * region[1];
    size_t begin = origin[2] * slice + origin[1] * row + origin[0];
    return ranges_run(begin, (region[2] - 1) * slice + (region[1] - 1) * row + region[0]);
}

/* As many bytes as @region of @image has, packed. */
static struct range ranges_packed(const struct memory *image, const size_t region[3], size_t offset)
{
    return ranges_run(offset, image->image->element_size * region[0] * region[1] * region[2]);
}

void range_read_buffer(const struct command *base, unsigned use, struct range *range)
{
    const struct read_buffer *command = (const struct read_buffer *)base;
    (void)use;
    *range = ranges_run(command->offset, command->size);
}

void range_write_buffer(const struct command *base, unsigned use, struct range *range)
{
    const struct write_buffer *command = (const struct write_buffer *)base;
    (void)use;
    *range = ranges_run(command->offset, command->size);
}

void range_read_buffer_rect(const struct command *base, unsigned use, struct range *range)
{
    const struct read_buffer_rect *command = (const struct read_buffer_rect *)base;
    (void)use;
    *range = ranges_box(command->buffer_origin, command->region, command->buffer_row_pitch,
                        command->buffer_slice_pitch);
}

void range_write_buffer_rect(const struct command *base, unsigned use, struct range *range)
{
    const struct write_buffer_rect *command = (const struct write_buffer_rect *)base;
    (void)use;
    *range = ranges_box(command->buffer_origin, command->region, command->buffer_row_pitch,
                        command->buffer_slice_pitch);
}

void range_fill_buffer(const struct command *base, unsigned use, struct range *range)
{
    const struct fill_buffer *command = (const struct fill_buffer *)base;
    (void)use;
    *range = ranges_run(command->offset, command->size);
}

void range_copy_buffer(const struct command *base, unsigned use, struct range *range)
{
    const struct copy_buffer *command = (const struct copy_buffer *)base;
    *range = ranges_run(use == 0 ? command->src_offset : command->dst_offset, command->size);
}

void range_copy_buffer_rect(const struct command *base, unsigned use, struct range *range)
{
    const struct copy_buffer_rect *command = (const struct copy_buffer_rect *)base;
    *range = use == 0 ? ranges_box(command->src_origin, command->region, command->src_row_pitch,
                                   command->src_slice_pitch)
                      : ranges_box(command->dst_origin, command->region, command->dst_row_pitch,
                                   command->dst_slice_pitch);
}

void range_read_image(const struct command *base, unsigned use, struct range *range)
{
    const struct read_image *command = (const struct read_image *)base;
    *range = image_range(base->uses[use]->image, command->origin, command->region);
}

void range_write_image(const struct command *base, unsigned use, struct range *range)
{
    const struct write_image *command = (const struct write_image *)base;
    *range = image_range(base->uses[use]->image, command->origin, command->region);
}

void range_fill_image(const struct command *base, unsigned use, struct range *range)
{
    const struct fill_image *command = (const struct fill_image *)base;
    *range = image_range(base->uses[use]->image, command->origin, command->region);
}

void range_copy_image(const struct command *base, unsigned use, struct range *range)
{
    const struct copy_image *command = (const struct copy_image *)base;
    *range = image_range(base->uses[use]->image,
                         use == 0 ? command->src_origin : command->dst_origin, command->region);
}

void range_copy_image_to_buffer(const struct command *base, unsigned use, struct range *range)
{
    const struct copy_image_to_buffer *command = (const struct copy_image_to_buffer *)base;
    const struct memory *image = base->uses[0];
    *range = use == 0 ? image_range(image->image, command->src_origin, command->region)
                      : ranges_packed(image, command->region, command->dst_offset);
}

void range_copy_buffer_to_image(const struct command *base, unsigned use, struct range *range)
{
    const struct copy_buffer_to_image *command = (const struct copy_buffer_to_image *)base;
    const struct memory *image = base->uses[1];
    *range = use == 0 ? ranges_packed(image, command->region, command->src_offset)
                      : image_range(image->image, command->dst_origin, command->region);
}

/* Which bytes each command reads of the program's memory, counted from the pointer that it was
 * given.
 */

struct range host_write_buffer(const struct write_buffer *command)
{
    return ranges_run(0, command->size);
}

struct range host_write_buffer_rect(const struct write_buffer_rect *command)
{
    return ranges_box(command->host_origin, command->region, command->host_row_pitch,
                      command->host_slice_pitch);
}

struct range host_write_image(const struct write_image *command)
{
    const struct image_shape *image = command->base.uses[0]->image;
    bool layers = image->desc.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    const size_t *region = command->region;
    size_t length = image->element_size * region[0];
    size_t row = command->input_row_pitch ? command->input_row_pitch : length;
    size_t slice = command->input_slice_pitch ? command->input_slice_pitch : row * region[1];
    /* A 1D array's layers are a slice pitch apart. */
    if (layers)
        row = command->input_slice_pitch ? command->input_slice_pitch : row;
    return ranges_run(0, (region[2] - 1) * slice + (region[1] - 1) * row + length);
}
