/** Bad handles at the entry points that make, keep, ask and free objects. */
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#include "badinput.h"

#include <stddef.h>

enum { ANSWER_BYTES = 1024 };

static cl_uint answer[ANSWER_BYTES / sizeof(cl_uint)];

static void CL_CALLBACK ignore_context(cl_context context, void *data)
{
    (void)context;
    (void)data;
}

static void CL_CALLBACK ignore_mem(cl_mem mem, void *data)
{
    (void)mem;
    (void)data;
}

static void CL_CALLBACK ignore_program(cl_program program, void *data)
{
    (void)program;
    (void)data;
}

static void CL_CALLBACK ignore_event(cl_event event, cl_int status, void *data)
{
    (void)event;
    (void)status;
    (void)data;
}

void bad_platforms(struct bad *b)
{
    /* What NULL means is the implementation's choice, and nothing frees a platform. */
    if (b->how == HOW_NULL || b->how == HOW_FREED)
        return;
    cl_platform_id x = bad_handle(b, b->prog.platform, NULL, b->good.mem);
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)x, 0};

    EXPECT(b, CL_INVALID_PLATFORM,
           clGetPlatformInfo(x, CL_PLATFORM_NAME, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_PLATFORM, clGetDeviceIDs(x, CL_DEVICE_TYPE_ALL, 0, NULL, answer));
    EXPECT(b, CL_INVALID_PLATFORM, clUnloadPlatformCompiler(x));
    EXPECT_NONE(b, CL_INVALID_PLATFORM,
                clCreateContext(properties, 1, &b->prog.device, NULL, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_PLATFORM,
                clCreateContextFromType(properties, CL_DEVICE_TYPE_ALL, NULL, NULL, &b->err));
}

void bad_devices(struct bad *b)
{
    if (b->how == HOW_FREED)
        return;
    cl_device_id x = bad_handle(b, b->prog.device, NULL, b->good.mem);
    const cl_device_partition_property partition[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    const size_t size = 4;
    const unsigned char binary[4] = {0}, *binaries = binary;
    cl_ulong time;

    EXPECT(b, CL_INVALID_DEVICE, clGetDeviceInfo(x, CL_DEVICE_NAME, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_DEVICE, clRetainDevice(x));
    EXPECT(b, CL_INVALID_DEVICE, clReleaseDevice(x));
    EXPECT(b, CL_INVALID_DEVICE, clCreateSubDevices(x, partition, 0, NULL, answer));
    EXPECT(b, CL_INVALID_DEVICE, clGetDeviceAndHostTimer(x, &time, &time));
    EXPECT(b, CL_INVALID_DEVICE, clGetHostTimer(x, &time));
    EXPECT(b, CL_INVALID_DEVICE, clBuildProgram(b->good.compiled, 1, &x, "", NULL, NULL));
    EXPECT(b, CL_INVALID_DEVICE,
           clGetProgramBuildInfo(b->good.program, x, CL_PROGRAM_BUILD_STATUS, sizeof answer, answer,
                                 NULL));
    EXPECT_NONE(b, CL_INVALID_DEVICE, clCreateContext(NULL, 1, &x, NULL, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_DEVICE, clCreateCommandQueue(b->good.context, x, 0, &b->err));
    EXPECT_NONE(b, CL_INVALID_DEVICE,
                clCreateCommandQueueWithProperties(b->good.context, x, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_DEVICE,
                clCreateProgramWithBinary(b->good.context, 1, &x, &size, &binaries, NULL, &b->err));
    EXPECT_NONE(
        b, CL_INVALID_DEVICE,
        clLinkProgram(b->good.context, 1, &x, "", 1, &b->good.compiled, NULL, NULL, &b->err));
}

void bad_contexts(struct bad *b)
{
    cl_context x = bad_handle(b, b->good.context, b->freed.context, b->good.mem);
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 4, .image_height = 4};
    const cl_sampler_properties sampling[] = {CL_SAMPLER_NORMALIZED_COORDS, CL_FALSE, 0};
    const char *program = "__kernel void k(void) {}";
    const size_t size = 4;
    const unsigned char binary[4] = {0}, *binaries = binary;
    cl_device_id device = b->prog.device;

    EXPECT(b, CL_INVALID_CONTEXT, clRetainContext(x));
    EXPECT(b, CL_INVALID_CONTEXT, clReleaseContext(x));
    EXPECT(b, CL_INVALID_CONTEXT,
           clGetContextInfo(x, CL_CONTEXT_DEVICES, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_CONTEXT, clSetContextDestructorCallback(x, ignore_context, NULL));
    EXPECT(b, CL_INVALID_CONTEXT, clSetDefaultDeviceCommandQueue(x, device, b->good.queue));
    EXPECT(
        b, CL_INVALID_CONTEXT,
        clGetSupportedImageFormats(x, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 0, NULL, answer));
    EXPECT_NONE(b, CL_INVALID_CONTEXT, clCreateCommandQueue(x, device, 0, &b->err));
    EXPECT_NONE(b, CL_INVALID_CONTEXT,
                clCreateCommandQueueWithProperties(x, device, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_CONTEXT, clCreateBuffer(x, CL_MEM_READ_WRITE, 4, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_CONTEXT,
                clCreateBufferWithProperties(x, NULL, CL_MEM_READ_WRITE, 4, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_CONTEXT,
                clCreateImage(x, CL_MEM_READ_WRITE, &format, &desc, NULL, &b->err));
    EXPECT_NONE(
        b, CL_INVALID_CONTEXT,
        clCreateImageWithProperties(x, NULL, CL_MEM_READ_WRITE, &format, &desc, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_CONTEXT,
                clCreateImage2D(x, CL_MEM_READ_WRITE, &format, 4, 4, 0, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_CONTEXT,
                clCreateImage3D(x, CL_MEM_READ_WRITE, &format, 4, 4, 2, 0, 0, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_CONTEXT, clCreatePipe(x, 0, 4, 4, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_CONTEXT,
                clCreateSampler(x, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &b->err));
    EXPECT_NONE(b, CL_INVALID_CONTEXT, clCreateSamplerWithProperties(x, sampling, &b->err));
    EXPECT_NONE(b, CL_INVALID_CONTEXT, clCreateProgramWithSource(x, 1, &program, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_CONTEXT,
                clCreateProgramWithBinary(x, 1, &device, &size, &binaries, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_CONTEXT,
                clCreateProgramWithBuiltInKernels(x, 1, &device, "none", &b->err));
    EXPECT_NONE(b, CL_INVALID_CONTEXT, clCreateProgramWithIL(x, binary, sizeof binary, &b->err));
    EXPECT_NONE(b, CL_INVALID_CONTEXT,
                clLinkProgram(x, 1, &device, "", 1, &b->good.compiled, NULL, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_CONTEXT, clCreateUserEvent(x, &b->err));
    b->err = CL_INVALID_CONTEXT;
    EXPECT_NONE(b, CL_INVALID_CONTEXT, clSVMAlloc(x, CL_MEM_READ_WRITE, 4, 0));
}

void bad_queues(struct bad *b)
{
    cl_command_queue x = bad_handle(b, b->good.queue, b->freed.queue, b->good.mem);
    cl_command_queue_properties old;

    EXPECT(b, CL_INVALID_COMMAND_QUEUE, clRetainCommandQueue(x));
    EXPECT(b, CL_INVALID_COMMAND_QUEUE, clReleaseCommandQueue(x));
    EXPECT(b, CL_INVALID_COMMAND_QUEUE,
           clGetCommandQueueInfo(x, CL_QUEUE_CONTEXT, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_COMMAND_QUEUE,
           clSetCommandQueueProperty(x, CL_QUEUE_PROFILING_ENABLE, CL_TRUE, &old));
    EXPECT(b, CL_INVALID_COMMAND_QUEUE, clFlush(x));
    EXPECT(b, CL_INVALID_COMMAND_QUEUE, clFinish(x));
}

void bad_mems(struct bad *b)
{
    cl_mem x = bad_handle(b, b->good.mem, b->freed.mem, b->good.queue);
    cl_mem i = bad_handle(b, b->good.image, b->freed.image, b->good.queue);
    const cl_buffer_region region = {0, 4};

    EXPECT(b, CL_INVALID_MEM_OBJECT, clRetainMemObject(x));
    EXPECT(b, CL_INVALID_MEM_OBJECT, clReleaseMemObject(x));
    EXPECT(b, CL_INVALID_MEM_OBJECT,
           clGetMemObjectInfo(x, CL_MEM_SIZE, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_MEM_OBJECT,
           clGetImageInfo(i, CL_IMAGE_WIDTH, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_MEM_OBJECT,
           clGetPipeInfo(x, CL_PIPE_PACKET_SIZE, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_MEM_OBJECT, clSetMemObjectDestructorCallback(x, ignore_mem, NULL));
    EXPECT_NONE(b, CL_INVALID_MEM_OBJECT,
                clCreateSubBuffer(x, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &b->err));
    if (b->how != HOW_NULL) /* NULL is a legal argument: no buffer */
        EXPECT(b, CL_INVALID_MEM_OBJECT, clSetKernelArg(b->good.kernel, 0, sizeof x, &x));
}

void bad_samplers(struct bad *b)
{
    cl_sampler x = bad_handle(b, b->good.sampler, b->freed.sampler, b->good.mem);

    EXPECT(b, CL_INVALID_SAMPLER, clRetainSampler(x));
    EXPECT(b, CL_INVALID_SAMPLER, clReleaseSampler(x));
    EXPECT(b, CL_INVALID_SAMPLER,
           clGetSamplerInfo(x, CL_SAMPLER_CONTEXT, sizeof answer, answer, NULL));
}

void bad_programs(struct bad *b)
{
    cl_program x = bad_handle(b, b->good.program, b->freed.program, b->good.mem);
    cl_device_id device = b->prog.device;
    const char *name = "header.h";
    cl_kernel kernel;

    EXPECT(b, CL_INVALID_PROGRAM, clRetainProgram(x));
    EXPECT(b, CL_INVALID_PROGRAM, clReleaseProgram(x));
    EXPECT(b, CL_INVALID_PROGRAM,
           clGetProgramInfo(x, CL_PROGRAM_SOURCE, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_PROGRAM,
           clGetProgramBuildInfo(x, device, CL_PROGRAM_BUILD_LOG, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_PROGRAM, clBuildProgram(x, 1, &device, "", NULL, NULL));
    EXPECT(b, CL_INVALID_PROGRAM, clCompileProgram(x, 1, &device, "", 0, NULL, NULL, NULL, NULL));
    EXPECT(b, CL_INVALID_PROGRAM,
           clCompileProgram(b->good.compiled, 1, &device, "", 1, &x, &name, NULL, NULL));
    EXPECT(b, CL_INVALID_PROGRAM, clSetProgramReleaseCallback(x, ignore_program, NULL));
    EXPECT(b, CL_INVALID_PROGRAM, clSetProgramSpecializationConstant(x, 0, 4, answer));
    EXPECT(b, CL_INVALID_PROGRAM, clCreateKernelsInProgram(x, 1, &kernel, NULL));
    EXPECT_NONE(b, CL_INVALID_PROGRAM, clCreateKernel(x, "one", &b->err));
    EXPECT_NONE(b, CL_INVALID_PROGRAM,
                clLinkProgram(b->good.context, 1, &device, "", 1, &x, NULL, NULL, &b->err));
}

void bad_kernels(struct bad *b)
{
    cl_kernel x = bad_handle(b, b->good.kernel, b->freed.kernel, b->good.mem);
    const cl_uint word = 0;
    const size_t one = 1;

    EXPECT(b, CL_INVALID_KERNEL, clRetainKernel(x));
    EXPECT(b, CL_INVALID_KERNEL, clReleaseKernel(x));
    EXPECT(b, CL_INVALID_KERNEL, clSetKernelArg(x, 1, sizeof word, &word));
    EXPECT(b, CL_INVALID_KERNEL, clSetKernelArgSVMPointer(x, 0, NULL));
    EXPECT(b, CL_INVALID_KERNEL,
           clSetKernelExecInfo(x, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof(void *), answer));
    EXPECT(b, CL_INVALID_KERNEL,
           clGetKernelInfo(x, CL_KERNEL_NUM_ARGS, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_KERNEL,
           clGetKernelArgInfo(x, 0, CL_KERNEL_ARG_NAME, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_KERNEL,
           clGetKernelWorkGroupInfo(x, b->prog.device, CL_KERNEL_WORK_GROUP_SIZE, sizeof answer,
                                    answer, NULL));
    EXPECT(b, CL_INVALID_KERNEL,
           clGetKernelSubGroupInfo(x, b->prog.device, CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE,
                                   sizeof one, &one, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_KERNEL,
           clEnqueueNDRangeKernel(b->good.queue, x, 1, NULL, &one, NULL, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_KERNEL, clEnqueueTask(b->good.queue, x, 0, NULL, NULL));
    EXPECT_NONE(b, CL_INVALID_KERNEL, clCloneKernel(x, &b->err));
}

void bad_events(struct bad *b)
{
    cl_event x = bad_handle(b, b->good.event, b->freed.event, b->good.mem);

    EXPECT(b, CL_INVALID_EVENT, clRetainEvent(x));
    EXPECT(b, CL_INVALID_EVENT, clReleaseEvent(x));
    EXPECT(b, CL_INVALID_EVENT, clGetEventInfo(x, CL_EVENT_CONTEXT, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_EVENT,
           clGetEventProfilingInfo(x, CL_PROFILING_COMMAND_END, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_EVENT, clSetEventCallback(x, CL_COMPLETE, ignore_event, NULL));
    EXPECT(b, CL_INVALID_EVENT, clSetUserEventStatus(x, CL_COMPLETE));
    EXPECT(b, CL_INVALID_EVENT, clWaitForEvents(1, &x));
    EXPECT(b, CL_INVALID_EVENT, clEnqueueWaitForEvents(b->good.queue, 1, &x));
}

void bad_sizes_queries(struct bad *b)
{
    const struct objects *o = &b->good;
    const cl_uint none = 0xffff;
    cl_uint n;

    EXPECT(b, CL_INVALID_VALUE, clGetPlatformIDs(0, NULL, NULL));
    EXPECT(b, CL_INVALID_VALUE, clGetPlatformIDs(0, (cl_platform_id *)answer, NULL));
    EXPECT(b, CL_INVALID_VALUE,
           clGetPlatformInfo(b->prog.platform, none, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_VALUE,
           clGetPlatformInfo(b->prog.platform, CL_PLATFORM_NAME, 1, answer, NULL));
    EXPECT(b, CL_INVALID_DEVICE_TYPE, clGetDeviceIDs(b->prog.platform, 1u << 20, 0, NULL, &n));
    EXPECT(b, CL_INVALID_VALUE,
           clGetDeviceIDs(b->prog.platform, CL_DEVICE_TYPE_ALL, 0, (cl_device_id *)answer, NULL));
    EXPECT(b, CL_INVALID_VALUE, clGetDeviceInfo(b->prog.device, none, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_VALUE, clGetDeviceInfo(b->prog.device, CL_DEVICE_TYPE, 1, answer, NULL));
    EXPECT(b, CL_INVALID_VALUE, clGetContextInfo(o->context, none, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_VALUE, clGetContextInfo(o->context, CL_CONTEXT_DEVICES, 1, answer, NULL));
    EXPECT(b, CL_INVALID_VALUE, clGetCommandQueueInfo(o->queue, none, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_VALUE, clGetCommandQueueInfo(o->queue, CL_QUEUE_CONTEXT, 1, answer, NULL));
    EXPECT(b, CL_INVALID_VALUE, clGetMemObjectInfo(o->mem, none, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_VALUE, clGetMemObjectInfo(o->mem, CL_MEM_SIZE, 1, answer, NULL));
    EXPECT(b, CL_INVALID_VALUE, clGetImageInfo(o->image, none, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_MEM_OBJECT,
           clGetImageInfo(o->mem, CL_IMAGE_WIDTH, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_VALUE, clGetSamplerInfo(o->sampler, none, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_VALUE, clGetProgramInfo(o->program, none, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_VALUE, clGetProgramInfo(o->program, CL_PROGRAM_SOURCE, 1, answer, NULL));
    EXPECT(b, CL_INVALID_VALUE,
           clGetProgramBuildInfo(o->program, b->prog.device, none, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_VALUE, clGetKernelInfo(o->kernel, none, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_ARG_INDEX,
           clGetKernelArgInfo(o->kernel, 9, CL_KERNEL_ARG_NAME, sizeof answer, answer, NULL));
    EXPECT(b, CL_KERNEL_ARG_INFO_NOT_AVAILABLE,
           clGetKernelArgInfo(o->kernel, 0, CL_KERNEL_ARG_NAME, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_VALUE,
           clGetKernelWorkGroupInfo(o->kernel, b->prog.device, none, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_VALUE, clGetEventInfo(o->event, none, sizeof answer, answer, NULL));
    EXPECT(
        b, CL_PROFILING_INFO_NOT_AVAILABLE,
        clGetEventProfilingInfo(o->event, CL_PROFILING_COMMAND_END, sizeof answer, answer, NULL));
    EXPECT(b, CL_INVALID_VALUE, clSetEventCallback(o->event, CL_COMPLETE, NULL, NULL));
    EXPECT(b, CL_INVALID_VALUE, clSetEventCallback(o->event, 99, ignore_event, NULL));
    EXPECT(b, CL_INVALID_VALUE, clSetUserEventStatus(o->event, CL_RUNNING));
    EXPECT(b, CL_INVALID_VALUE, clSetMemObjectDestructorCallback(o->mem, NULL, NULL));
    EXPECT(b, CL_INVALID_VALUE, clSetContextDestructorCallback(o->context, NULL, NULL));
    EXPECT(b, CL_INVALID_VALUE, clWaitForEvents(0, NULL));
}
