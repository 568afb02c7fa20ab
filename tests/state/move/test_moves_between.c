#include "state/driver/driver.h"
#include "tests/support/engine_rig.h"

/* Moves between devices whose driver has a way past the host, which a test plays here: all of a
   program's objects take it, and where it fails the host is the way. */

#define WIDTH  256
#define HEIGHT 301
#define SIZE   ((size_t)WIDTH * HEIGHT * 4)

static const char devices[] = "[one]\nname=one\n[two]\nname=two base=1\n";
struct moved {
    struct engine_rig rig;
    struct engine_program program;
    cl_mem image, buffer;
    unsigned char bytes[SIZE], got[SIZE];
};

static const size_t origin[3], region[3] = {WIDTH, HEIGHT, 1};

static void moved_open(struct moved *moved)
{
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = WIDTH, .image_height = HEIGHT};
    unsigned seed = 1;
    engine_rig_open(&moved->rig, devices);
    engine_between_play(&moved->rig);
    engine_program_open(&moved->rig, 0, NULL, &moved->program);
    for (size_t i = 0; i < SIZE; i++)
        moved->bytes[i] = (unsigned char)(rand_r(&seed) >> 5);
    moved->image = MADE(clCreateImage, moved->program.context,
                        CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, &format, &desc, moved->bytes);
    moved->buffer = engine_buffer(moved->program.context, CL_MEM_READ_WRITE, SIZE, NULL);
    OK(clEnqueueCopyImageToBuffer(moved->program.queue, moved->image, moved->buffer, origin, region,
                                  0, 0, NULL, NULL));
    OK(clFinish(moved->program.queue));
}

static void moved_check(struct moved *moved)
{
    OK(clEnqueueReadImage(moved->program.queue, moved->image, CL_TRUE, origin, region, 0, 0,
                          moved->got, 0, NULL, NULL));
    cr_assert(memcmp(moved->got, moved->bytes, SIZE) == 0);
    OK(clEnqueueReadBuffer(moved->program.queue, moved->buffer, CL_TRUE, 0, SIZE, moved->got, 0,
                           NULL, NULL));
    cr_assert(memcmp(moved->got, moved->bytes, SIZE) == 0);
}

static void moved_close(struct moved *moved)
{
    RELEASE(moved->image, moved->buffer);
    engine_program_close(&moved->program);
    engine_rig_ends_empty(&moved->rig);
}

static struct moved moved;

/* Of the image, the host has its copy from the beginning: so it is written where it is. */
static void write_image(void)
{
    OK(clEnqueueCopyBufferToImage(moved.program.queue, moved.buffer, moved.image, 0, origin, region,
                                  0, NULL, NULL));
    OK(clFinish(moved.program.queue));
}

static uint64_t by_host(const char *device)
{
    return emu_shared_calls(moved.rig.emu, device, "clEnqueueReadImage") +
           emu_shared_calls(moved.rig.emu, device, "clEnqueueWriteImage");
}

Test(moves_between, images_go_past_the_host, .timeout = 60)
{
    moved_open(&moved);
    write_image();
    uint64_t one = by_host("one");
    engine_rig_moves(&moved.rig, "two");
    cr_assert_eq(engine_between.passed, 2);
    cr_assert_eq(by_host("one"), one);
    cr_assert_eq(by_host("two"), 0);
    moved_check(&moved);
    moved_close(&moved);
}

static void fail(unsigned nth)
{
    moved_open(&moved);
    write_image();
    engine_between.failing = nth;
    engine_rig_moves(&moved.rig, "two");
    cr_assert_geq(engine_between.passed, nth);
    moved_check(&moved);
    moved_close(&moved);
}

TestCall(moves_between, where_the_first_fails_all_go_by_the_host, fail(1), .timeout = 60);
TestCall(moves_between, where_the_last_fails_all_go_by_the_host, fail(2), .timeout = 60);
