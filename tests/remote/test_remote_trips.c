#include "state/base/clock.h"
#include "tests/remote/proxy.h"
#include "tests/remote/served.h"
#include "tests/support/calls.h"

/* Which calls wait for a round trip. On a network that passes nothing on any more, those that wait
 * for none return; on a late one, those that have to wait do. */

#define ONE_WAY_NS (100 * NS_PER_MS)
#define ITEMS      64

static const char *const source =
    "__kernel void add(__global uint *words) { words[get_global_id(0)] += 1; }"
    "__kernel void set(__global uint *words, uint to) { words[get_global_id(0)] = to; }";

static struct served served;
static struct proxy *proxy;
static cl_context context;
static cl_program program;
static cl_device_id device;
static cl_kernel kernel;
static cl_mem buffer;

static void start(void)
{
    cl_platform_id platform;
    char path[PATH_MAX];
    const cl_uint zero[ITEMS] = {0};
    served_start_tcp(&served, NULL);
    proxy = proxy_create((uint16_t)strtoul(strrchr(served.address, ':') + 1, NULL, 10));
    cr_assert(proxy);
    (void)snprintf(served.address, sizeof(served.address), "tcp:127.0.0.1:%u", proxy_port(proxy));
    served_issue(&served, "laptop", NULL, NULL, path);
    setenv("RESEAT_CREDENTIALS", path, 1);
    served_use(&served);
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = MADE(clCreateContext, NULL, 1, &device, NULL, NULL);
    program = BUILT(context, source, "");
    kernel = MADE(clCreateKernel, program, "add");
    buffer = MADE(clCreateBuffer, context, CL_MEM_COPY_HOST_PTR, sizeof(zero), (void *)zero);
    OK(clSetKernelArg(kernel, 0, sizeof(buffer), &buffer));
}

static void stop(void)
{
    served_stop(&served);
    proxy_destroy(proxy);
}

TestSuite(trips, .init = start, .fini = stop, .timeout = 30);

static cl_command_queue queue_of(cl_command_queue_properties properties)
{
    return MADE(clCreateCommandQueue, context, device, properties);
}

static void launch(cl_command_queue queue)
{
    const size_t items = ITEMS;
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
}

static cl_uint read_word(cl_command_queue queue)
{
    cl_uint word;
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof(word), &word, 0, NULL, NULL));
    return word;
}

static uint64_t finish(cl_command_queue queue)
{
    uint64_t begun = clock_now_ns();
    OK(clFinish(queue));
    return clock_now_ns() - begun;
}

Test(trips, none_for_what_a_device_says_of_a_kernel)
{
    size_t size = 0;
    proxy_set_stalled(proxy, true);
    OK(clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof(size), &size,
                                NULL));
    cr_assert_geq(size, 1);
}

Test(trips, none_for_the_other_kernels_of_a_program)
{
    cl_uint arguments = 0;
    size_t size = 0;
    proxy_set_stalled(proxy, true);
    cl_kernel set = MADE(clCreateKernel, program, "set");
    OK(clGetKernelInfo(set, CL_KERNEL_NUM_ARGS, sizeof(arguments), &arguments, NULL));
    cr_assert_eq(arguments, 2);
    OK(clGetKernelWorkGroupInfo(set, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof(size), &size, NULL));
    cr_assert_geq(size, 1);
}

Test(trips, none_to_finish_a_queue_whose_end_was_told)
{
    cl_command_queue fresh = queue_of(0), queue = queue_of(0);
    launch(queue);
    cr_assert_eq(read_word(queue), 1);
    proxy_set_stalled(proxy, true);
    finish(fresh);
    finish(queue);
}

Test(trips, one_to_finish_what_may_still_run)
{
    cl_command_queue queue = queue_of(0), other = queue_of(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    read_word(queue);
    proxy_set_delay(proxy, ONE_WAY_NS);
    launch(queue);
    cr_assert_geq(finish(queue), 2 * ONE_WAY_NS);
    cr_assert_lt(finish(queue), ONE_WAY_NS);
    /* The read behind the launch says nothing of that. */
    launch(other);
    (void)read_word(other);
    cr_assert_geq(finish(other), 2 * ONE_WAY_NS);
    cr_assert_lt(finish(other), ONE_WAY_NS);
}
