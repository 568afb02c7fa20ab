#include <errno.h>

#include "state/base/clock.h"
#include "state/driver/served.h"
#include "state/object/residence.h"
#include "state/transfer/transfer.h"
#include "tests/remote/seat.h"
#include "tests/support/calls.h"

/* Images that go from a served device to another one, of another server or of the same: past the
   host, and by it where a step of that fails. */

struct image_case {
    cl_mem_object_type type;
    size_t dims[3];
    cl_channel_order order;
    cl_channel_type channel;
    size_t element;
};

/* All of 64 KiB at least, as less goes by the host; two of more than what passes at once, whose
   chunks are rows and slices. */
static const struct image_case cases[] = {
    {CL_MEM_OBJECT_IMAGE1D, {8191, 1, 1}, CL_RGBA, CL_FLOAT, 16},
    {CL_MEM_OBJECT_IMAGE1D_ARRAY, {501, 61, 1}, CL_RGBA, CL_UNSIGNED_INT8, 4},
    {CL_MEM_OBJECT_IMAGE2D, {257, 301, 1}, CL_R, CL_UNSIGNED_INT8, 1},
    {CL_MEM_OBJECT_IMAGE2D, {257, 131, 1}, CL_RGBA, CL_UNSIGNED_INT16, 8},
    {CL_MEM_OBJECT_IMAGE2D, {4099, 1101, 1}, CL_RGBA, CL_SIGNED_INT8, 4},
    {CL_MEM_OBJECT_IMAGE2D_ARRAY, {127, 203, 3}, CL_RGBA, CL_HALF_FLOAT, 8},
    {CL_MEM_OBJECT_IMAGE3D, {97, 53, 23}, CL_RGBA, CL_UNSIGNED_INT32, 16},
    {CL_MEM_OBJECT_IMAGE3D, {331, 203, 71}, CL_RGBA, CL_UNORM_INT8, 4},
};
#define CASE_LARGE (&cases[4])

static struct served served[2];
static unsigned server_count;
static struct residence *ends[2];
static const cl_icd_dispatch *real; /* The driver's own table. */

/* ---- what the ends' drivers do, and do not ---- */

enum step { MAKE_BUFFER, FROM_IMAGE, OVER, TO_IMAGE, STEPS };

static cl_icd_dispatch table;
static between_function between;
static unsigned by_host; /* Calls that have bytes go by the host. */
static enum step armed;  /* The step that fails, when it comes to that for the `left`th time: */
static int left;         /* 0: none does. */
static atomic_bool cancel;
static bool cancels; /* Once bytes are on their way. */

static bool fails(enum step step)
{
    return left > 0 && step == armed && --left == 0;
}

static cl_mem CL_API_CALL make_buffer(cl_context context, cl_mem_flags flags, size_t size,
                                      void *host, cl_int *ret_error)
{
    if (!fails(MAKE_BUFFER))
        return real->clCreateBuffer(context, flags, size, host, ret_error);
    *ret_error = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return NULL;
}

static cl_int CL_API_CALL from_image(cl_command_queue queue, cl_mem image, cl_mem buffer,
                                     const size_t *origin, const size_t *region, size_t offset,
                                     cl_uint count, const cl_event *waits, cl_event *event)
{
    return fails(FROM_IMAGE)
               ? CL_OUT_OF_RESOURCES
               : real->clEnqueueCopyImageToBuffer(queue, image, buffer, origin, region, offset,
                                                  count, waits, event);
}

static cl_int CL_API_CALL to_image(cl_command_queue queue, cl_mem buffer, cl_mem image,
                                   size_t offset, const size_t *origin, const size_t *region,
                                   cl_uint count, const cl_event *waits, cl_event *event)
{
    return fails(TO_IMAGE) ? CL_OUT_OF_RESOURCES
                           : real->clEnqueueCopyBufferToImage(queue, buffer, image, offset, origin,
                                                              region, count, waits, event);
}

static cl_int CL_API_CALL over(cl_command_queue source_queue, cl_command_queue target_queue,
                               cl_mem source, cl_mem target, size_t source_offset,
                               size_t target_offset, size_t size, cl_uint count,
                               const cl_event *waits, cl_event *event)
{
    cr_assert_leq(size, 16u << 20);
    if (cancels)
        atomic_store(&cancel, true);
    return fails(OVER) ? CL_INVALID_OPERATION
                       : between(source_queue, target_queue, source, target, source_offset,
                                 target_offset, size, count, waits, event);
}

static cl_int CL_API_CALL read_image(cl_command_queue queue, cl_mem image, cl_bool blocking,
                                     const size_t *origin, const size_t *region, size_t row,
                                     size_t slice, void *to, cl_uint count, const cl_event *waits,
                                     cl_event *event)
{
    by_host++;
    return real->clEnqueueReadImage(queue, image, blocking, origin, region, row, slice, to, count,
                                    waits, event);
}

static cl_int CL_API_CALL write_image(cl_command_queue queue, cl_mem image, cl_bool blocking,
                                      const size_t *origin, const size_t *region, size_t row,
                                      size_t slice, const void *from, cl_uint count,
                                      const cl_event *waits, cl_event *event)
{
    by_host++;
    return real->clEnqueueWriteImage(queue, image, blocking, origin, region, row, slice, from,
                                     count, waits, event);
}

static cl_int CL_API_CALL read_buffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                      size_t offset, size_t size, void *to, cl_uint count,
                                      const cl_event *waits, cl_event *event)
{
    by_host++;
    return real->clEnqueueReadBuffer(queue, buffer, blocking, offset, size, to, count, waits,
                                     event);
}

/* ---- devices ---- */

/* Of one server or two, and of the device of each with that index. */
static void start(unsigned servers, unsigned index)
{
    char addresses[2 * sizeof(served[0].address)] = "";
    struct device **devices = NULL;
    size_t count = 0;
    cl_int error = CL_SUCCESS;
    server_count = servers;
    for (unsigned i = 0; i < servers; i++) {
        served_start(&served[i], NULL);
        size_t used = strlen(addresses);
        snprintf(addresses + used, sizeof(addresses) - used, "%s%s", i ? " " : "",
                 served[i].address);
    }
    served_use(&served[0]);
    setenv("RESEAT_SERVER", addresses, 1);
    cr_assert_eq(driver_list(&devices, &count), 0);
    for (unsigned i = 0; i < 2; i++) {
        struct device *device = devices[index + i * (count / 2) * (servers - 1)];
        cr_assert_eq(residence_create(NULL, device, &ends[i], &error), 0);
        real = ends[i]->cl;
        between = device->between == over ? between : device->between;
        cr_assert(between);
        device->between = over;
    }
    table = *real;
    table.clCreateBuffer = make_buffer;
    table.clEnqueueCopyImageToBuffer = from_image;
    table.clEnqueueCopyBufferToImage = to_image;
    table.clEnqueueReadImage = read_image;
    table.clEnqueueWriteImage = write_image;
    table.clEnqueueReadBuffer = read_buffer;
    for (int i = 0; i < 2; i++)
        ends[i]->cl = &table;
    free(devices);
}

static void stop(void)
{
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(atomic_load(&ends[i]->device->budget.held), 0, "a buffer is still counted");
        residence_unref(ends[i]);
    }
    for (unsigned i = 0; i < server_count; i++) {
        cr_assert(!served_wrote(&served[i], "was ended") && !served_wrote(&served[i], "crashed"));
        served_stop(&served[i]);
    }
}

/* ---- images ---- */

struct picture {
    struct image_shape shape;
    cl_mem images[2];
    size_t size;
    unsigned char *bytes, *got;
};

static void picture_make(struct picture *picture, const struct image_case *c)
{
    static const size_t origin[3];
    const cl_image_format format = {c->order, c->channel};
    cl_image_desc desc = {.image_type = c->type, .image_width = c->dims[0]};
    cl_int error = CL_SUCCESS;
    unsigned seed = (unsigned)(c - cases);
    if (c->type == CL_MEM_OBJECT_IMAGE1D_ARRAY)
        desc.image_array_size = c->dims[1];
    else if (c->type != CL_MEM_OBJECT_IMAGE1D)
        desc.image_height = c->dims[1];
    if (c->type == CL_MEM_OBJECT_IMAGE2D_ARRAY)
        desc.image_array_size = c->dims[2];
    if (c->type == CL_MEM_OBJECT_IMAGE3D)
        desc.image_depth = c->dims[2];
    image_shape_init(&picture->shape, &format, &desc, c->element);
    picture->size = c->dims[0] * c->dims[1] * c->dims[2] * c->element;
    picture->bytes = malloc(picture->size);
    picture->got = malloc(picture->size);
    cr_assert(picture->bytes && picture->got);
    for (size_t i = 0; i < picture->size; i++)
        picture->bytes[i] = (unsigned char)(rand_r(&seed) >> 5);
    for (int i = 0; i < 2; i++) {
        picture->images[i] =
            real->clCreateImage(ends[i]->context, CL_MEM_READ_WRITE, &format, &desc, NULL, &error);
        cr_assert_eq(error, CL_SUCCESS, "type %x: %d", c->type, error);
        memset(picture->got, 0x5a, picture->size);
        OK(real->clEnqueueWriteImage(ends[i]->io, picture->images[i], CL_TRUE, origin, c->dims, 0,
                                     0, i ? picture->got : picture->bytes, 0, NULL, NULL));
    }
}

static void must_be_at(const struct picture *picture, int end)
{
    static const size_t origin[3];
    memset(picture->got, 0xa5, picture->size);
    OK(real->clEnqueueReadImage(ends[end]->io, picture->images[end], CL_TRUE, origin,
                                picture->shape.dims, 0, 0, picture->got, 0, NULL, NULL));
    cr_assert(memcmp(picture->got, picture->bytes, picture->size) == 0, "type %x, end %d",
              picture->shape.desc.image_type, end);
}

static void picture_free(struct picture *picture)
{
    for (int i = 0; i < 2; i++)
        OK(real->clReleaseMemObject(picture->images[i]));
    free(picture->bytes);
    free(picture->got);
}

static int transfer(const struct picture *picture, bool through_host)
{
    _Atomic uint64_t done = 0;
    const struct transfer_limits limits = {
        .through_host = through_host, .done = &done, .cancel = &cancel};
    const struct transfer_item item = {.from = picture->images[0],
                                       .to = picture->images[1],
                                       .image = &picture->shape,
                                       .size = picture->shape.size};
    struct transfer *transfer;
    struct transfer_shape shape;
    by_host = 0;
    int error = transfer_create(ends[0], ends[1], item.size, &limits, &transfer);
    cr_assert_eq(error, 0);
    transfer_describe(transfer, &shape);
    cr_assert_eq(shape.passes, !through_host);
    error = transfer_add(transfer, &item);
    int flushed = transfer_flush(transfer);
    transfer_destroy(transfer);
    cr_assert(error || flushed || done == item.size);
    return error ? error : flushed;
}

/* ---- right bytes ---- */

static void all_go_past_the_host(unsigned servers)
{
    start(servers, 1);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct picture picture;
        picture_make(&picture, &cases[i]);
        cr_assert_eq(transfer(&picture, false), 0, "case %zu", i);
        cr_assert_eq(by_host, 0, "bytes of case %zu went through the program", i);
        must_be_at(&picture, 1);
        must_be_at(&picture, 0);
        picture_free(&picture);
    }
    stop();
}

TestCall(remote_images, all_kinds_go_from_server_to_server, all_go_past_the_host(2),
         .timeout = 180);
TestCall(remote_images, all_kinds_go_between_contexts_of_one_server, all_go_past_the_host(1),
         .timeout = 180);

/* ---- what fails ---- */

/* What is left of it is nothing but the source's bytes: they go by the host then. */
static void must_fail_and_go_by_the_host(const struct picture *picture, const char *what, int n)
{
    cr_assert_eq(transfer(picture, false), -EIO, "%s %d", what, n);
    cr_assert_eq(by_host, 0);
    must_be_at(picture, 0);
    cr_assert_eq(transfer(picture, true), 0);
    cr_assert_gt(by_host, 0);
    must_be_at(picture, 1);
}

/* Nothing of what failed is in the way of the next. */
static void must_go_past_the_host(const struct picture *picture)
{
    static const size_t origin[3];
    memset(picture->got, 0x5a, picture->size);
    OK(real->clEnqueueWriteImage(ends[1]->io, picture->images[1], CL_TRUE, origin,
                                 picture->shape.dims, 0, 0, picture->got, 0, NULL, NULL));
    cr_assert_eq(transfer(picture, false), 0);
    cr_assert_eq(by_host, 0);
    must_be_at(picture, 1);
}

Test(remote_images, a_step_that_is_refused_leaves_the_host_as_the_way, .timeout = 180)
{
    /* How often each is done for one of two chunks. */
    static const int times[STEPS] = {2, 2, 2, 2};
    start(2, 1);
    for (armed = 0; armed < STEPS; armed++)
        for (int n = 1; n <= times[armed]; n++) {
            struct picture picture;
            picture_make(&picture, CASE_LARGE);
            left = n;
            must_fail_and_go_by_the_host(&picture, "step", (int)armed * 10 + n);
            cr_assert_eq(left, 0);
            picture_free(&picture);
        }
    stop();
}

Test(remote_images, without_room_for_a_buffer_the_host_is_the_way, .timeout = 180)
{
    start(2, 1);
    for (int i = 0; i < 2; i++) {
        struct budget *budget = &ends[i]->device->budget;
        struct picture picture;
        picture_make(&picture, CASE_LARGE);
        atomic_store(&budget->granted, (16u << 20) - 1);
        atomic_store(&budget->limited, true);
        must_fail_and_go_by_the_host(&picture, "end", i);
        atomic_store(&budget->granted, 16u << 20);
        cr_assert_eq(transfer(&picture, false), 0, "it needs more than it should");
        atomic_store(&budget->limited, false);
        picture_free(&picture);
    }
    stop();
}

Test(remote_images, one_that_is_cancelled_ends_between_two_chunks, .timeout = 180)
{
    struct picture picture;
    start(2, 1);
    picture_make(&picture, CASE_LARGE);
    cancels = true;
    cr_assert_eq(transfer(&picture, false), -ECANCELED);
    cancels = false;
    atomic_store(&cancel, false);
    cr_assert_eq(transfer(&picture, false), 0);
    must_be_at(&picture, 1);
    picture_free(&picture);
    stop();
}

/* At the server, which tells it when all has been given: by a call that its driver refuses, or a
   command that fails. */
static void fail_at_the_server(unsigned servers)
{
    static const char *const functions[] = {"clCreateBuffer", "clEnqueueCopyImageToBuffer",
                                            "clEnqueueCopyBufferToImage"};
    emulate("");
    start(servers, 0);
    for (size_t i = 0; i < ARRAY_SIZE(functions); i++)
        for (int error = EMU_ERROR_NATURAL; error <= EMU_ERROR_AT_END; error += EMU_ERROR_AT_END)
            for (unsigned n = 1; n <= 2; n++) {
                struct picture picture;
                if (i == 0 && error == EMU_ERROR_AT_END) /* Nothing is enqueued. */
                    continue;
                picture_make(&picture, CASE_LARGE);
                cr_assert_eq(emu_shared_arm(emulated, "emu", n, functions[i], error), 0);
                must_fail_and_go_by_the_host(&picture, functions[i], error * 10 + (int)n);
                must_go_past_the_host(&picture);
                picture_free(&picture);
            }
    stop();
}

TestCall(remote_images, a_command_that_fails_at_a_server_leaves_the_host_as_the_way,
         fail_at_the_server(2), .timeout = 240);
TestCall(remote_images, so_does_one_of_two_contexts_of_a_server, fail_at_the_server(1),
         .timeout = 240);

Test(remote_images, a_server_without_memory_for_a_buffer_leaves_the_host_as_the_way, .timeout = 240)
{
    struct picture large, small;
    size_t size = CASE_LARGE->dims[0] * CASE_LARGE->dims[1] * CASE_LARGE->element;
    char keys[64];
    setenv("RESEAT_RINGS", "no", 1); /* Descriptors come in line with what they are for. */
    /* Of both, who share it: their images, and one buffer. */
    snprintf(keys, sizeof(keys), "memory=%zu", 2 * size + (20u << 20));
    emulate(keys);
    start(2, 0);
    picture_make(&large, CASE_LARGE);
    must_fail_and_go_by_the_host(&large, "memory", 0);
    picture_make(&small, &cases[1]);
    must_go_past_the_host(&small);
    picture_free(&large);
    picture_free(&small);
    stop();
}
