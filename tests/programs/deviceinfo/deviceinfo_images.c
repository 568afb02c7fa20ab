#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deviceinfo.h"

/* Image limits, the formats that images may have, and what both say of each other. */

static const cl_mem_object_type types[] = {
    CL_MEM_OBJECT_IMAGE2D,       CL_MEM_OBJECT_IMAGE3D, CL_MEM_OBJECT_IMAGE2D_ARRAY,
    CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_MEM_OBJECT_IMAGE1D, CL_MEM_OBJECT_IMAGE1D_BUFFER};

#define TYPES   (sizeof(types) / sizeof(types[0]))
#define WRITTEN 3 /* Of accesses: those for which kernels write. */

static const cl_mem_flags accesses[] = {CL_MEM_WRITE_ONLY, CL_MEM_READ_WRITE,
                                        CL_MEM_KERNEL_READ_AND_WRITE, CL_MEM_READ_ONLY};

/* How many formats there are; @ret_depth counts those of depth. */
static cl_uint count_formats(cl_mem_flags access, cl_mem_object_type type, cl_uint *ret_depth)
{
    cl_image_format *formats;
    cl_uint count = 0, again = 0;

    if (clGetSupportedImageFormats(facts.context, access, type, 0, NULL, &count) != CL_SUCCESS) {
        check_failed("clGetSupportedImageFormats", __FILE__, __LINE__);
        return 0;
    }
    formats = calloc(count + 1, sizeof(*formats));
    if (count)
        CHECK(clGetSupportedImageFormats(facts.context, access, type, count, formats, &again) ==
                  CL_SUCCESS &&
              again == count);
    for (cl_uint i = 0; i < count; i++) {
        *ret_depth += formats[i].image_channel_order == CL_DEPTH;
        for (cl_uint j = 0; j < i; j++)
            CHECK(memcmp(&formats[i], &formats[j], sizeof(formats[i])) != 0);
    }
    free(formats);
    return count;
}

static void check_formats(bool images)
{
    cl_uint all = 0, written_3d = 0, both = 0, depth = 0, count = 0, ignored = 0;
    cl_image_format format;

    for (size_t i = 0; i < sizeof(accesses) / sizeof(accesses[0]); i++) {
        if (accesses[i] == CL_MEM_KERNEL_READ_AND_WRITE && facts.version < V(2, 0))
            continue;
        for (size_t j = 0; j < TYPES; j++) {
            bool plain = types[j] == CL_MEM_OBJECT_IMAGE2D && i < WRITTEN;
            cl_uint here = count_formats(accesses[i], types[j], plain ? &depth : &ignored);

            all += here;
            written_3d += types[j] == CL_MEM_OBJECT_IMAGE3D && i < WRITTEN ? here : 0;
            both += accesses[i] == CL_MEM_KERNEL_READ_AND_WRITE ? here : 0;
        }
    }
    CHECK((all != 0) == images);
    if (facts.version >= V(3, 0)) {
        CHECK((both != 0) == (number32(CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS) != 0));
        CHECK((depth != 0) == words_have(facts.extensions, "cl_khr_depth_images"));
        CHECK((written_3d != 0) == words_have(facts.extensions, "cl_khr_3d_image_writes"));
    }
    CHECK(clGetSupportedImageFormats(NULL, CL_MEM_READ_WRITE, types[0], 0, NULL, &count) ==
          CL_INVALID_CONTEXT);
    CHECK(clGetSupportedImageFormats(facts.context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_BUFFER, 0,
                                     NULL, &count) == CL_INVALID_VALUE);
    CHECK(clGetSupportedImageFormats(facts.context, CL_MEM_READ_WRITE, types[0], 0, &format,
                                     &count) == CL_INVALID_VALUE);
}

static void check_image_limits(bool images)
{
    size_t flat = facts.full ? 8192 : 2048, deep = facts.full ? 2048 : 0;
    size_t array = facts.full ? 2048 : 256, buffer = facts.full ? 65536 : 2048;

    if (facts.version >= V(2, 0) && facts.full && wanted("image2d"))
        flat = 16384;
    if (!images)
        flat = deep = array = buffer = 0;
    CHECK(number_size(CL_DEVICE_IMAGE2D_MAX_WIDTH) >= flat);
    CHECK(number_size(CL_DEVICE_IMAGE2D_MAX_HEIGHT) >= flat);
    CHECK(number_size(CL_DEVICE_IMAGE3D_MAX_WIDTH) >= deep);
    CHECK(number_size(CL_DEVICE_IMAGE3D_MAX_HEIGHT) >= deep);
    CHECK(number_size(CL_DEVICE_IMAGE3D_MAX_DEPTH) >= deep);
    CHECK(number_size(CL_DEVICE_IMAGE_MAX_ARRAY_SIZE) >= array);
    CHECK(number_size(CL_DEVICE_IMAGE_MAX_BUFFER_SIZE) >= buffer);
    CHECK(number32(CL_DEVICE_MAX_READ_IMAGE_ARGS) >= (images ? facts.full ? 128 : 8 : 0));
    CHECK(number32(CL_DEVICE_MAX_WRITE_IMAGE_ARGS) >= (images ? facts.full ? 8 : 1 : 0));
    CHECK(number32(CL_DEVICE_MAX_SAMPLERS) >= (images ? facts.full ? 16 : 8 : 0));
    if (!images) {
        CHECK(number_size(CL_DEVICE_IMAGE2D_MAX_WIDTH) == 0);
        CHECK(number32(CL_DEVICE_MAX_SAMPLERS) == 0);
    }
}

/* A 2D image from a buffer: two alignments and an extension, or an error of its own. */
static void check_from_buffer(void)
{
    const cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 2, .image_height = 2};
    bool there = words_have(facts.extensions, "cl_khr_image2d_from_buffer");
    cl_int error = CL_SUCCESS;

    if (facts.version < V(3, 0) && !there)
        return;
    CHECK((number32(CL_DEVICE_IMAGE_PITCH_ALIGNMENT) != 0) == there);
    CHECK((number32(CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT) != 0) == there);
    if (there || !wanted("from-buffer"))
        return;
    desc.mem_object = prog_buffer(facts.context, CL_MEM_READ_ONLY, 64, NULL);
    CHECK(!clCreateImage(facts.context, CL_MEM_READ_ONLY, &format, &desc, NULL, &error));
    CHECK(error == CL_INVALID_OPERATION);
    clReleaseMemObject(desc.mem_object);
}

void check_images(void)
{
    bool images = truth(CL_DEVICE_IMAGE_SUPPORT);

    check_formats(images);
    check_image_limits(images);
    if (images)
        check_from_buffer();
}
