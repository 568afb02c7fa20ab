#include <pthread.h>

#include "tests/contract/samples.h"
#include "tests/support/calls.h"

/* Programs, kernels, arguments and launches, as the specification words their errors. */

static cl_program program;

static const char source[] =
    "kernel void images(read_only image2d_t r, write_only image2d_t w, sampler_t s,\n"
    "                   global int *a)\n"
    "{ a[0] = read_imagei(r, s, (int2)(0)).x; write_imagef(w, (int2)(0), (float4)(0)); }\n"
    "kernel void values(char a, uchar3 b, ushort4 c, int8 d, ulong e, float16 f, local int *g,\n"
    "                   global int *h) { g[0] = a; h[0] = g[0]; }\n"
    "kernel __attribute__((reqd_work_group_size(4, 2, 1))) void required(global int *a)\n"
    "{ a[get_global_id(0)] = (int)get_local_size(0) * 10 + (int)get_local_size(1); }\n";

static cl_program make_program(const char *text)
{
    return MADE(clCreateProgramWithSource, s.context, 1, &text, NULL);
}

static void make(void)
{
    samples_make(&s);
    program = make_program(source);
    OK(clBuildProgram(program, 0, NULL, "", NULL, NULL));
}

static void release(void)
{
    cr_expect_eq(clReleaseProgram(program), CL_SUCCESS);
    samples_release(&s);
}

TestSuite(kernels, .init = make, .fini = release, .timeout = 60);

static cl_kernel make_kernel(const char *name)
{
    cl_kernel kernel = MADE(clCreateKernel, program, name);
    return kernel;
}

static cl_mem make_image(cl_mem_flags flags)
{
    const cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 4, .image_height = 4};
    return MADE(clCreateImage, s.context, flags, &format, &desc, NULL);
}

Test(kernels, image_arguments_fit_the_access_that_is_declared)
{
    cl_kernel kernel = make_kernel("images");
    cl_mem reads = make_image(CL_MEM_READ_ONLY), writes = make_image(CL_MEM_WRITE_ONLY);
    cl_mem none = NULL;
    expect_error(clSetKernelArg(kernel, 0, sizeof(cl_mem), &writes), CL_INVALID_ARG_VALUE);
    expect_error(clSetKernelArg(kernel, 1, sizeof(cl_mem), &reads), CL_INVALID_ARG_VALUE);
    expect_error(clSetKernelArg(kernel, 0, sizeof(cl_mem), &reads), CL_SUCCESS);
    expect_error(clSetKernelArg(kernel, 1, sizeof(cl_mem), &writes), CL_SUCCESS);
    expect_error(clSetKernelArg(kernel, 0, sizeof(cl_mem), &s.image), CL_SUCCESS);
    expect_error(clSetKernelArg(kernel, 1, sizeof(cl_mem), &s.image), CL_SUCCESS);
    expect_error(clSetKernelArg(kernel, 0, sizeof(cl_mem), &s.buffer), CL_INVALID_MEM_OBJECT);
    expect_error(clSetKernelArg(kernel, 0, sizeof(cl_mem), &none), CL_INVALID_MEM_OBJECT);
    expect_error(clSetKernelArg(kernel, 0, sizeof(cl_mem), NULL), CL_INVALID_ARG_VALUE);
    expect_error(clSetKernelArg(kernel, 0, sizeof(cl_mem) * 2, &reads), CL_INVALID_ARG_SIZE);
    expect_error(clSetKernelArg(kernel, 2, sizeof(cl_sampler), NULL), CL_INVALID_ARG_VALUE);
    expect_error(clSetKernelArg(kernel, 2, sizeof(cl_sampler), &s.buffer), CL_INVALID_SAMPLER);
    expect_error(clSetKernelArg(kernel, 2, 4, &s.sampler), CL_INVALID_ARG_SIZE);
    expect_error(clSetKernelArg(kernel, 2, sizeof(cl_sampler), &s.sampler), CL_SUCCESS);
    RELEASE(reads, writes, kernel);
}

/* The specification leaves that open, and programs in C++ do it: drivers copy samplers. */
Test(kernels, samplers_may_be_released_once_they_are_arguments)
{
    static const char reads[] =
        "kernel void reads(read_only image2d_t r, sampler_t s, global float *a)\n"
        "{ a[0] = read_imagef(r, s, (float2)(9.5f, 0.5f)).x; }\n";
    const float white[4] = {1, 1, 1, 1}, none = 0;
    const size_t origin[3] = {0}, region[3] = {4, 4, 1}, one = 1;
    float found = 0;
    cl_program reader = BUILT(s.context, reads, "");
    cl_kernel kernel = MADE(clCreateKernel, reader, "reads");
    cl_mem image = make_image(CL_MEM_READ_WRITE);
    OK(clEnqueueFillImage(s.queue, image, white, origin, region, 0, NULL, NULL));
    for (int waits = 0; waits < 2; waits++) {
        cl_event event = MADE(clCreateUserEvent, s.context);
        cl_sampler sampler =
            MADE(clCreateSampler, s.context, CL_FALSE, CL_ADDRESS_CLAMP_TO_EDGE, CL_FILTER_NEAREST);
        ARGS(kernel, image, sampler, s.buffer);
        OK(clReleaseSampler(sampler));
        OK(clEnqueueFillBuffer(s.queue, s.buffer, &none, sizeof(none), 0, sizeof(none), 0, NULL,
                               NULL));
        OK(clEnqueueNDRangeKernel(s.queue, kernel, 1, NULL, &one, NULL, (cl_uint)waits,
                                  waits ? &event : NULL, NULL));
        OK(clSetUserEventStatus(event, CL_COMPLETE));
        OK(clEnqueueReadBuffer(s.queue, s.buffer, CL_TRUE, 0, sizeof(found), &found, 0, NULL,
                               NULL));
        cr_expect_eq(found, 1);
        RELEASE(event);
    }
    RELEASE(image, kernel, reader);
}

Test(kernels, values_have_the_size_of_their_type)
{
    static const size_t sizes[] = {1, 4, 8, 32, 8, 64};
    const char bytes[128] = {0};
    const size_t one = 1;
    cl_kernel kernel = make_kernel("values");
    for (cl_uint i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        expect_error(clSetKernelArg(kernel, i, sizes[i] + 1, bytes), CL_INVALID_ARG_SIZE);
        expect_error(clSetKernelArg(kernel, i, sizes[i] * 2, bytes), CL_INVALID_ARG_SIZE);
        expect_error(clSetKernelArg(kernel, i, 0, bytes), CL_INVALID_ARG_SIZE);
        expect_error(clSetKernelArg(kernel, i, sizes[i], NULL), CL_INVALID_ARG_VALUE);
        expect_error(clEnqueueTask(s.queue, kernel, 0, NULL, NULL), CL_INVALID_KERNEL_ARGS);
        expect_error(clSetKernelArg(kernel, i, sizes[i], bytes), CL_SUCCESS);
    }
    expect_error(clSetKernelArg(kernel, 6, 0, NULL), CL_INVALID_ARG_SIZE);
    expect_error(clSetKernelArg(kernel, 6, 16, bytes), CL_INVALID_ARG_VALUE);
    expect_error(clSetKernelArg(kernel, 6, 16, NULL), CL_SUCCESS);
    expect_error(clSetKernelArg(kernel, 7, sizeof(cl_mem), &s.buffer), CL_SUCCESS);
    expect_error(clSetKernelArg(kernel, 8, sizeof(cl_mem), &s.buffer), CL_INVALID_ARG_INDEX);
    expect_error(clEnqueueNDRangeKernel(s.queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL),
                 CL_SUCCESS);
    expect_error(clFinish(s.queue), CL_SUCCESS);
    clReleaseKernel(kernel);
}

Test(kernels, a_clone_misses_the_arguments_that_its_model_misses)
{
    cl_kernel kernel = make_kernel("required");
    const size_t items[2] = {4, 2};
    cl_kernel unset = MADE(clCloneKernel, kernel);
    expect_error(clSetKernelArg(kernel, 0, sizeof(cl_mem), &s.buffer), CL_SUCCESS);
    cl_kernel set = MADE(clCloneKernel, kernel);
    expect_error(clEnqueueNDRangeKernel(s.queue, unset, 2, NULL, items, items, 0, NULL, NULL),
                 CL_INVALID_KERNEL_ARGS);
    expect_error(clEnqueueNDRangeKernel(s.queue, set, 2, NULL, items, items, 0, NULL, NULL),
                 CL_SUCCESS);
    expect_error(clFinish(s.queue), CL_SUCCESS);
    RELEASE(unset, set, kernel);
}

Test(kernels, launches_have_the_work_groups_that_the_source_requires)
{
    const size_t items[2] = {8, 2}, odd[2] = {6, 2}, group[2] = {4, 2}, turned[2] = {2, 4};
    const size_t far[2] = {0, SIZE_MAX - 1}, three = 3, eight = 8;
    cl_int words[8];
    cl_kernel kernel = make_kernel("required");
    expect_error(clSetKernelArg(kernel, 0, sizeof(cl_mem), &s.buffer), CL_SUCCESS);
#define LAUNCH(dims, offset, global, local)                                                        \
    clEnqueueNDRangeKernel(s.queue, kernel, dims, offset, global, local, 0, NULL, NULL)
    /* Behind an event too: the error is the call's. */
    for (int held = 0; held < 2; held++) {
        cl_event marker = NULL;
        if (held)
            expect_error(clEnqueueMarkerWithWaitList(s.queue, 1, &s.event, &marker), CL_SUCCESS);
        expect_error(LAUNCH(2, NULL, items, turned), CL_INVALID_WORK_GROUP_SIZE);
        expect_error(LAUNCH(1, NULL, items, group), CL_INVALID_WORK_GROUP_SIZE);
        expect_error(LAUNCH(2, NULL, odd, group), CL_INVALID_WORK_GROUP_SIZE);
        expect_error(LAUNCH(2, NULL, odd, NULL), CL_INVALID_WORK_GROUP_SIZE);
        expect_error(LAUNCH(2, far, items, group), CL_INVALID_GLOBAL_OFFSET);
        expect_error(clEnqueueTask(s.queue, kernel, 0, NULL, NULL), CL_INVALID_WORK_GROUP_SIZE);
        expect_error(
            clEnqueueNDRangeKernel(s.queue, s.kernel, 1, NULL, &eight, &three, 0, NULL, NULL),
            CL_INVALID_KERNEL_ARGS);
        expect_error(LAUNCH(2, NULL, items, NULL), CL_SUCCESS);
        if (held) {
            expect_error(clSetUserEventStatus(s.event, CL_COMPLETE), CL_SUCCESS);
            clReleaseEvent(marker);
        }
        expect_error(
            clEnqueueReadBuffer(s.queue, s.buffer, CL_TRUE, 0, sizeof(words), words, 0, NULL, NULL),
            CL_SUCCESS);
        for (int i = 0; i < 8; i++)
            cr_expect_eq(words[i], 42, "word %d is %d", i, words[i]);
        memset(words, 0, sizeof(words));
        expect_error(clEnqueueWriteBuffer(s.queue, s.buffer, CL_TRUE, 0, sizeof(words), words, 0,
                                          NULL, NULL),
                     CL_SUCCESS);
    }
#undef LAUNCH
    clReleaseKernel(kernel);
}

Test(kernels, launches_without_the_object_of_an_argument_are_refused)
{
    const size_t one = 1;
    cl_uint value = 3, word = 0;
    cl_int error;
    for (int held = 0; held < 2; held++) {
        cl_mem buffer = clCreateBuffer(s.context, CL_MEM_READ_WRITE, 64, NULL, &error);
        cl_event event = held ? clCreateUserEvent(s.context, &error) : NULL;
        clSetKernelArg(s.kernel, 0, sizeof(cl_mem), &buffer);
        clSetKernelArg(s.kernel, 1, sizeof(value), &value);
#define LAUNCH                                                                                     \
    clEnqueueNDRangeKernel(s.queue, s.kernel, 1, NULL, &one, NULL, held ? 1 : 0,                   \
                           held ? &event : NULL, NULL)
        expect_error(LAUNCH, CL_SUCCESS);
        /* What was enqueued has it still. */
        clReleaseMemObject(buffer);
        if (held)
            expect_error(clSetUserEventStatus(event, CL_COMPLETE), CL_SUCCESS);
        expect_error(clFinish(s.queue), CL_SUCCESS);
        for (int i = 0; i < 2; i++)
            expect_error(LAUNCH, CL_INVALID_KERNEL_ARGS);
        clSetKernelArg(s.kernel, 0, sizeof(cl_mem), &s.buffer);
        expect_error(LAUNCH, CL_SUCCESS);
#undef LAUNCH
        expect_error(
            clEnqueueReadBuffer(s.queue, s.buffer, CL_TRUE, 0, sizeof(word), &word, 0, NULL, NULL),
            CL_SUCCESS);
        cr_expect_eq(word, value++);
        if (held)
            clReleaseEvent(event);
    }
}

Test(kernels, work_groups_divide_the_launch)
{
    const size_t ten = 10, three = 3, five = 5;
    cl_uint value = 1;
    cl_bool any = CL_FALSE;
    OK(clGetDeviceInfo(s.device, CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT, sizeof(any), &any,
                       NULL));
    clSetKernelArg(s.kernel, 0, sizeof(cl_mem), &s.buffer);
    clSetKernelArg(s.kernel, 1, sizeof(value), &value);
    expect_error(clEnqueueNDRangeKernel(s.queue, s.kernel, 1, NULL, &ten, &three, 0, NULL, NULL),
                 any ? CL_SUCCESS : CL_INVALID_WORK_GROUP_SIZE);
    expect_error(clEnqueueNDRangeKernel(s.queue, s.kernel, 1, NULL, &ten, &five, 0, NULL, NULL),
                 CL_SUCCESS);
    expect_error(clFinish(s.queue), CL_SUCCESS);
}

Test(kernels, are_told_of_kernels_what_the_device_says)
{
    cl_kernel kernel = make_kernel("values");
    size_t sizes[3], group = 0, most = 0;
    cl_ulong before = 0, after = 0;
#define INFO(name, to) clGetKernelWorkGroupInfo(kernel, s.device, name, sizeof(to), &(to), NULL)
    expect_error(INFO(CL_KERNEL_GLOBAL_WORK_SIZE, sizes), CL_INVALID_VALUE);
    expect_error(INFO(CL_KERNEL_LOCAL_MEM_SIZE, before), CL_SUCCESS);
    expect_error(clSetKernelArg(kernel, 6, 100, NULL), CL_SUCCESS);
    expect_error(INFO(CL_KERNEL_LOCAL_MEM_SIZE, after), CL_SUCCESS);
    cr_expect_eq(after, before + 100);
    expect_error(clSetKernelArg(kernel, 6, 60, NULL), CL_SUCCESS);
    expect_error(INFO(CL_KERNEL_LOCAL_MEM_SIZE, after), CL_SUCCESS);
    cr_expect_eq(after, before + 60);
    expect_error(INFO(CL_KERNEL_WORK_GROUP_SIZE, group), CL_SUCCESS);
    clGetDeviceInfo(s.device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(most), &most, NULL);
    cr_expect(group >= 1 && group <= most);
    expect_error(INFO(CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, group), CL_SUCCESS);
    cr_expect(group >= 1 && group <= most);
    expect_error(INFO(CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizes), CL_SUCCESS);
    cr_expect(sizes[0] == 0 && sizes[1] == 0 && sizes[2] == 0);
#undef INFO
    cl_uint groups = 1;
    clGetDeviceInfo(s.device, CL_DEVICE_MAX_NUM_SUB_GROUPS, sizeof(groups), &groups, NULL);
    if (groups == 0)
        expect_error(clGetKernelSubGroupInfo(kernel, s.device, CL_KERNEL_MAX_NUM_SUB_GROUPS, 0,
                                             NULL, sizeof(most), &most, NULL),
                     CL_INVALID_OPERATION);
    clReleaseKernel(kernel);
}

/* Builds that call back. */

struct notice {
    pthread_mutex_t lock;
    pthread_cond_t called;
    unsigned count;
    pthread_t thread;
    cl_program program;
    cl_build_status status;
    cl_int kernel_error;
    bool makes_kernel;
};

static void CL_CALLBACK notice_call(cl_program built, void *data)
{
    struct notice *notice = data;
    cl_build_status status = CL_BUILD_NONE;
    cl_int error = CL_SUCCESS;
    clGetProgramBuildInfo(built, s.device, CL_PROGRAM_BUILD_STATUS, sizeof(status), &status, NULL);
    if (notice->makes_kernel)
        clReleaseKernel(clCreateKernel(built, "k", &error));
    pthread_mutex_lock(&notice->lock);
    notice->count++;
    notice->thread = pthread_self();
    notice->program = built;
    notice->status = status;
    notice->kernel_error = error;
    pthread_cond_broadcast(&notice->called);
    pthread_mutex_unlock(&notice->lock);
}

static void notice_wait(struct notice *notice)
{
    pthread_mutex_lock(&notice->lock);
    while (notice->count == 0)
        pthread_cond_wait(&notice->called, &notice->lock);
    pthread_mutex_unlock(&notice->lock);
}

#define NOTICE                                                                                     \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, .makes_kernel = true                  \
    }

Test(kernels, builds_that_call_back_run_in_the_background)
{
    static struct notice notices[2] = {NOTICE, NOTICE};
    cl_program good = make_program("kernel void k(global int *a) { *a = 1; }");
    cl_program bad = make_program("kernel void k(global int *a) { *a = wrong; }");
    cl_int error;
    expect_error(clBuildProgram(good, 1, &s.device, "", notice_call, &notices[0]), CL_SUCCESS);
    expect_error(clBuildProgram(bad, 1, &s.device, "", notice_call, &notices[1]), CL_SUCCESS);
    /* Whoever does not wait finds what a compiler that works within the call would have left. */
    cl_kernel kernel = clCreateKernel(good, "k", &error);
    cr_expect_eq(error, CL_SUCCESS);
    clCreateKernel(bad, "k", &error);
    cr_expect_eq(error, CL_INVALID_PROGRAM_EXECUTABLE);
    notice_wait(&notices[0]);
    notice_wait(&notices[1]);
    cr_expect_eq(notices[0].status, CL_BUILD_SUCCESS);
    cr_expect_eq(notices[1].status, CL_BUILD_ERROR);
    cr_expect_eq(notices[0].kernel_error, CL_SUCCESS);
    cr_expect_eq(notices[1].kernel_error, CL_INVALID_PROGRAM_EXECUTABLE);
    cr_expect_eq(notices[0].program, good);
    for (int i = 0; i < 2; i++) {
        cr_expect(!pthread_equal(notices[i].thread, pthread_self()));
        cr_expect_eq(notices[i].count, 1);
    }
    expect_error(clBuildProgram(good, 1, &s.device, "", notice_call, &notices[0]),
                 CL_INVALID_OPERATION);
    cr_expect_eq(notices[0].count, 1);
    RELEASE(kernel, good, bad);
}

Test(kernels, the_callback_has_a_program_that_was_released_meanwhile)
{
    static struct notice notice = NOTICE;
    cl_program built = make_program("kernel void k(global int *a) { *a = 21; }");
    expect_error(clBuildProgram(built, 0, NULL, "", notice_call, &notice), CL_SUCCESS);
    expect_error(clReleaseProgram(built), CL_SUCCESS);
    notice_wait(&notice);
    cr_expect_eq(notice.status, CL_BUILD_SUCCESS);
    cr_expect_eq(notice.kernel_error, CL_SUCCESS);
}

static cl_program compiled(const char *text, struct notice *notice)
{
    cl_program object = make_program(text);
    expect_error(
        clCompileProgram(object, 0, NULL, "", 0, NULL, NULL, notice ? notice_call : NULL, notice),
        CL_SUCCESS);
    return object;
}

Test(kernels, links_in_the_background_have_their_program_at_once)
{
    static struct notice object = NOTICE, linked = NOTICE, failed = NOTICE;
    object.makes_kernel = false;
    cl_program parts[2] = {
        compiled("int f(int x) { return x + 5; }", &object),
        compiled("int f(int x); kernel void k(global int *a) { *a = f(2); }", NULL)};
    cl_program_binary_type type = 0;
    cl_int error, word = 0;
    const size_t one = 1;
    cl_program whole = MADE(clLinkProgram, s.context, 0, NULL, "", 2, parts, notice_call, &linked);
    cr_assert_not_null(whole);
    cl_program hollow =
        clLinkProgram(s.context, 0, NULL, "", 1, &parts[1], notice_call, &failed, &error);
    notice_wait(&object);
    notice_wait(&linked);
    cr_expect_eq(object.status, CL_BUILD_SUCCESS);
    cr_expect_eq(linked.status, CL_BUILD_SUCCESS);
    cr_expect_eq(linked.program, whole);
    clGetProgramBuildInfo(whole, s.device, CL_PROGRAM_BINARY_TYPE, sizeof(type), &type, NULL);
    cr_expect_eq(type, CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
    cl_kernel kernel = MADE(clCreateKernel, whole, "k");
    clSetKernelArg(kernel, 0, sizeof(cl_mem), &s.buffer);
    expect_error(clEnqueueNDRangeKernel(s.queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL),
                 CL_SUCCESS);
    expect_error(clEnqueueReadBuffer(s.queue, s.buffer, CL_TRUE, 0, 4, &word, 0, NULL, NULL),
                 CL_SUCCESS);
    cr_expect_eq(word, 7);
    /* What has no f may link with some drivers; the callback comes in any case. */
    if (hollow) {
        notice_wait(&failed);
        clReleaseProgram(hollow);
    }
    RELEASE(kernel, whole, parts[0], parts[1]);
}

Test(kernels, only_what_was_compiled_is_linked)
{
    cl_program plain = make_program("int f(int x) { return x; }");
    cl_program object = compiled("kernel void k(global int *a) { *a = 2; }", NULL);
    cl_program mixed[2] = {object, plain}, executable[2] = {object, program};
    cl_int error;
    cr_expect_null(clLinkProgram(s.context, 0, NULL, "", 1, &plain, NULL, NULL, &error));
    cr_expect_eq(error, CL_INVALID_OPERATION);
    cr_expect_null(clLinkProgram(s.context, 0, NULL, "", 2, mixed, NULL, NULL, &error));
    cr_expect_eq(error, CL_INVALID_OPERATION);
    cr_expect_null(clLinkProgram(s.context, 0, NULL, "", 2, executable, NULL, NULL, &error));
    cr_expect_eq(error, CL_INVALID_OPERATION);
    cr_expect_null(clLinkProgram(s.context, 0, NULL, "", 0, NULL, NULL, NULL, &error));
    cr_expect_eq(error, CL_INVALID_VALUE);
    clCreateKernel(object, "k", &error);
    cr_expect_eq(error, CL_INVALID_PROGRAM_EXECUTABLE);
    expect_error(clBuildProgram(object, 0, NULL, "", NULL, NULL), CL_SUCCESS);
    RELEASE(plain, object);
}

Test(kernels, a_held_launch_keeps_its_program_from_being_rebuilt)
{
    cl_program text = make_program("kernel void k(global int *a) { *a = X; }");
    cl_int word = 0;
    const size_t one = 1;
    expect_error(clBuildProgram(text, 0, NULL, "-DX=1", NULL, NULL), CL_SUCCESS);
    cl_kernel kernel = MADE(clCreateKernel, text, "k");
    clSetKernelArg(kernel, 0, sizeof(cl_mem), &s.buffer);
    expect_error(clEnqueueNDRangeKernel(s.queue, kernel, 1, NULL, &one, NULL, 1, &s.event, NULL),
                 CL_SUCCESS);
    clReleaseKernel(kernel);
    expect_error(clBuildProgram(text, 0, NULL, "-DX=2", NULL, NULL), CL_INVALID_OPERATION);
    expect_error(clSetUserEventStatus(s.event, CL_COMPLETE), CL_SUCCESS);
    expect_error(clEnqueueReadBuffer(s.queue, s.buffer, CL_TRUE, 0, 4, &word, 0, NULL, NULL),
                 CL_SUCCESS);
    cr_expect_eq(word, 1);
    expect_error(clBuildProgram(text, 0, NULL, "-DX=2", NULL, NULL), CL_SUCCESS);
    clReleaseProgram(text);
}

static unsigned char *binary_of(cl_program of, size_t *ret_size)
{
    OK(clGetProgramInfo(of, CL_PROGRAM_BINARY_SIZES, sizeof(*ret_size), ret_size, NULL));
    cr_assert_gt(*ret_size, 0);
    unsigned char *bytes = malloc(*ret_size);
    cr_assert_not_null(bytes);
    OK(clGetProgramInfo(of, CL_PROGRAM_BINARIES, sizeof(bytes), &bytes, NULL));
    return bytes;
}

Test(kernels, a_binary_stays_the_same_however_often_it_is_loaded_and_built)
{
    size_t size, again;
    cl_int status;
    unsigned char *bytes = binary_of(program, &size);
    for (int i = 0; i < 3; i++) {
        const unsigned char *given = bytes;
        cl_program loaded =
            MADE(clCreateProgramWithBinary, s.context, 1, &s.device, &size, &given, &status);
        expect_error(clBuildProgram(loaded, 0, NULL, i % 2 ? "-DY" : "", NULL, NULL), CL_SUCCESS);
        unsigned char *copy = binary_of(loaded, &again);
        cr_assert_eq(again, size);
        cr_assert_eq(memcmp(copy, bytes, size), 0);
        free(bytes);
        bytes = copy;
        clReleaseProgram(loaded);
    }
    free(bytes);
}

Test(kernels, constants_are_for_what_was_made_of_il)
{
    const cl_uint value = 1;
    char il[256] = "";
    clGetDeviceInfo(s.device, CL_DEVICE_IL_VERSION, sizeof(il), il, NULL);
    expect_error(clSetProgramSpecializationConstant(program, 0, sizeof(value), &value),
                 il[0] ? CL_INVALID_PROGRAM : CL_INVALID_OPERATION);
    expect_error(clSetProgramSpecializationConstant(NULL, 0, sizeof(value), &value),
                 CL_INVALID_PROGRAM);
    expect_error(clUnloadPlatformCompiler(NULL), CL_INVALID_PLATFORM);
    expect_error(clUnloadPlatformCompiler(s.platform), CL_SUCCESS);
}

static void CL_CALLBACK never_called(cl_program of, void *data)
{
    (void)of;
    *(bool *)data = true;
}

/* OpenCL 3.0 has no destructors of a program's own. */
Test(kernels, nobody_is_told_that_a_program_is_released)
{
    bool called = false;
    const char *text = "kernel void k() {}";
    cl_program released = MADE(clCreateProgramWithSource, s.context, 1, &text, NULL);
    expect_error(clSetProgramReleaseCallback(released, never_called, &called),
                 CL_INVALID_OPERATION);
    expect_error(clSetProgramReleaseCallback(released, NULL, NULL), CL_INVALID_VALUE);
    expect_error(clSetProgramReleaseCallback(NULL, never_called, &called), CL_INVALID_PROGRAM);
    expect_error(clReleaseProgram(released), CL_SUCCESS);
    cr_expect(!called);
}

/* The driver hears of a held launch when the program has gone on. */
Test(kernels, a_held_launch_without_its_arguments_is_refused_at_the_call)
{
    const size_t one = 1;
    cl_kernel bare = MADE(clCreateKernel, s.program, "fill");
    cl_event gate = MADE(clCreateUserEvent, s.context);
    for (int given = 0; given <= 2; given++) {
        expect_error(clEnqueueNDRangeKernel(s.queue, bare, 1, NULL, &one, NULL, 1, &gate, NULL),
                     given < 2 ? CL_INVALID_KERNEL_ARGS : CL_SUCCESS);
        const cl_uint value = 3;
        if (given == 0)
            expect_error(clSetKernelArg(bare, 0, sizeof(s.buffer), &s.buffer), CL_SUCCESS);
        else
            expect_error(clSetKernelArg(bare, 1, sizeof(value), &value), CL_SUCCESS);
    }
    expect_error(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
    expect_error(clFinish(s.queue), CL_SUCCESS);
    RELEASE(gate, bare);
}

Test(kernels, memory_arguments_are_of_the_kernels_context)
{
    cl_int error;
    const size_t one = 1;
    cl_context context = MADE(clCreateContext, NULL, 1, &s.device, NULL, NULL);
    cl_mem foreign = MADE(clCreateBuffer, context, CL_MEM_READ_WRITE, 64, NULL);
    cl_mem wrong[] = {foreign, (cl_mem)s.queue, (cl_mem)(uintptr_t)&error};
    cl_kernel bare = MADE(clCreateKernel, s.program, "fill");
    for (size_t i = 0; i < 3; i++)
        expect_error(clSetKernelArg(bare, 0, sizeof(wrong[i]), &wrong[i]), CL_INVALID_MEM_OBJECT);
    expect_error(clEnqueueNDRangeKernel(s.queue, bare, 1, NULL, &one, NULL, 0, NULL, NULL),
                 CL_INVALID_KERNEL_ARGS);
    RELEASE(bare, foreign, context);
}
