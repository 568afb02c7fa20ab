#include "tests/state/move/test_moves_state.h"

#define SUB_ORIGIN  4096
#define SUB_WORDS   STATE_ITEMS
#define IMAGE_SIDE  8
#define MAPPED_FROM (STATE_ITEMS / 2)
#define MAPPED_ROW  2

static const char *const header_text = "uint twice(uint value);\n"
                                       "struct pair { uint a; uint b; };\n";
static const char *const library_text = "#include \"twice.h\"\n"
                                        "uint twice(uint value) { return 2 * value; }\n";
static const char *const object_text =
    "#include \"twice.h\"\n"
    "__kernel void every(__global uint *out, const __global uint *in, __constant uint *table,\n"
    "    __local uint *scratch, uint value, struct pair pair, read_only image2d_t texture,\n"
    "    sampler_t sampler, write_only image2d_t target, __global uint *sub,\n"
    "    __global uint *none, read_only image1d_buffer_t view)\n"
    "{\n"
    "    size_t i = get_global_id(0), l = get_local_id(0), n = get_local_size(0);\n"
    "    scratch[l] = in[i];\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    uint texel = read_imageui(texture, sampler, (int2)(i % 8, i / 8)).y;\n"
    "    out[i] = 3 * out[i] + scratch[n - 1 - l] + twice(table[i]) + value + pair.a * pair.b +\n"
    "        texel + read_imageui(view, (int)i).x + (none ? 1 : 0);\n"
    "    sub[i] += i + 1;\n"
    "    if (i / 8 != 2)\n"
    "        write_imageui(target, (int2)(i % 8, i / 8), (uint4)(out[i]) & 0xff);\n"
    "}\n";
static const char *const plain_text =
    "__kernel void add(__global uint *words, uint value)\n"
    "{ words[get_global_id(0)] += value * (uint)(get_global_id(0) + 1); }\n";

struct pair {
    cl_uint a, b;
};
static const struct pair the_pair = {7, 11};
static const cl_uint the_value = 5;

static void make_programs(struct state *s)
{
    const char *text = header_text, *name = "twice.h";
    cl_program header = MADE(clCreateProgramWithSource, s->context, 1, &text, NULL);
    s->library = MADE(clCreateProgramWithSource, s->context, 1, (const char **)&library_text, NULL);
    s->object = MADE(clCreateProgramWithSource, s->context, 1, (const char **)&object_text, NULL);
    /* What nothing is added to is built once, so that each failure of a build is its last. */
    OK(clCompileProgram(s->library, 0, NULL, "-cl-kernel-arg-info", 1, &header, &name, NULL, NULL));
    OK(clCompileProgram(s->object, 0, NULL, "-cl-kernel-arg-info", 1, &header, &name, NULL, NULL));
    const cl_program inputs[] = {s->library, s->object};
    s->program = MADE(clLinkProgram, s->context, 0, NULL, "", 2, inputs, NULL, NULL);
    OK(clReleaseProgram(header));
    s->plain = BUILT(s->other, plain_text, "-DUNUSED=1 -cl-kernel-arg-info");
    s->every = engine_kernel(s->program, "every");
    s->add = engine_kernel(s->plain, "add");
}

static void fill_model(struct state *s)
{
    for (cl_uint i = 0; i < STATE_ITEMS; i++) {
        s->in_bytes[i] = 1000 + i * i;
        s->out_bytes[i] = 17 * i;
        s->used_bytes[i] = ~i;
        s->mapped_bytes[i] = 5 * i + 3;
        s->table_bytes[i] = 13 * i + 1;
        s->others_bytes[i] = i;
    }
    for (cl_uint i = 0; i < STATE_BIG / 4; i++)
        s->big_bytes[i] = i * 2654435761u;
    for (cl_uint i = 0; i < sizeof(s->texture_bytes); i++)
        s->texture_bytes[i] = (cl_uchar)(i * 7);
    for (cl_uint i = 0; i < sizeof(s->target_bytes); i++)
        s->target_bytes[i] = (cl_uchar)(200 - i);
}

static void make_images(struct state *s)
{
    const cl_image_format bytes = {CL_RGBA, CL_UNSIGNED_INT8}, words = {CL_R, CL_UNSIGNED_INT32};
    const cl_image_desc square = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = IMAGE_SIDE, .image_height = IMAGE_SIDE};
    const cl_image_desc line = {.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER,
                                .image_width = STATE_ITEMS,
                                .mem_object = s->in};
    s->texture = MADE(clCreateImage, s->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, &bytes,
                      &square, s->texture_bytes);
    s->target = MADE(clCreateImage, s->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, &bytes,
                     &square, s->target_bytes);
    s->view = MADE(clCreateImage, s->context, CL_MEM_READ_ONLY, &words, &line, NULL);
    s->sampler =
        MADE(clCreateSampler, s->context, CL_FALSE, CL_ADDRESS_CLAMP_TO_EDGE, CL_FILTER_NEAREST);
}

static void make_buffers(struct state *s)
{
    const cl_mem_flags copied = CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR;
    const cl_buffer_region region = {SUB_ORIGIN, SUB_WORDS * sizeof(cl_uint)};
    const size_t size = sizeof(s->in_bytes);
    s->used_pointer = aligned_alloc(4096, 4096);
    cr_assert_not_null(s->used_pointer);
    memcpy(s->used_pointer, s->used_bytes, size);
    s->in = engine_buffer(s->context, copied, size, s->in_bytes);
    s->out = engine_buffer(s->context, copied | CL_MEM_ALLOC_HOST_PTR, size, s->out_bytes);
    s->used =
        engine_buffer(s->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, size, s->used_pointer);
    s->big = engine_buffer(s->context, copied, STATE_BIG, s->big_bytes);
    s->sub = MADE(clCreateSubBuffer, s->big, 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
    s->never = engine_buffer(s->context, CL_MEM_WRITE_ONLY, size, NULL);
    s->mapped = engine_buffer(s->context, copied, size, s->mapped_bytes);
    s->table =
        engine_buffer(s->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, size, s->table_bytes);
    s->others_buffer = engine_buffer(s->other, copied, size, s->others_bytes);
}

static void set_args(struct state *s)
{
    ARGS(s->every, s->out, s->in, s->table);
    OK(clSetKernelArg(s->every, 3, IMAGE_SIDE * sizeof(cl_uint), NULL));
    OK(clSetKernelArg(s->every, 4, sizeof(the_value), &the_value));
    OK(clSetKernelArg(s->every, 5, sizeof(the_pair), &the_pair));
    OK(clSetKernelArg(s->every, 6, sizeof(cl_mem), &s->texture));
    OK(clSetKernelArg(s->every, 7, sizeof(cl_sampler), &s->sampler));
    OK(clSetKernelArg(s->every, 8, sizeof(cl_mem), &s->target));
    OK(clSetKernelArg(s->every, 9, sizeof(cl_mem), &s->sub));
    OK(clSetKernelArg(s->every, 10, sizeof(cl_mem), NULL));
    OK(clSetKernelArg(s->every, 11, sizeof(cl_mem), &s->view));
    OK(clSetKernelArg(s->add, 0, sizeof(cl_mem), &s->others_buffer));
}

static void make_maps(struct state *s)
{
    const size_t origin[3] = {0, MAPPED_ROW, 0}, region[3] = {IMAGE_SIDE, 1, 1};
    s->mapped_pointer = MADE(clEnqueueMapBuffer, s->in_order, s->mapped, CL_TRUE,
                             CL_MAP_READ | CL_MAP_WRITE, MAPPED_FROM * sizeof(cl_uint),
                             (STATE_ITEMS - MAPPED_FROM) * sizeof(cl_uint), 0, NULL, NULL);
    s->image_pointer =
        MADE(clEnqueueMapImage, s->in_order, s->target, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, origin,
             region, &s->image_row, NULL, 0, NULL, NULL);
}

/* What the info calls answer, one answer behind another. */

struct told {
    unsigned char *bytes;
    size_t size;
};

static void tell(struct told *told, const void *bytes, size_t size)
{
    told->bytes = realloc(told->bytes, told->size + size + sizeof(size));
    cr_assert_not_null(told->bytes);
    memcpy(told->bytes + told->size, &size, sizeof(size));
    memcpy(told->bytes + told->size + sizeof(size), bytes, size);
    told->size += size + sizeof(size);
}

typedef cl_int (*ask)(const void *handle, const void *with, cl_uint name, size_t size, void *value,
                      size_t *ret_size);

static void tell_answer(struct told *told, ask call, const void *handle, const void *with,
                        cl_uint name)
{
    size_t size = 0;
    cl_int error = call(handle, with, name, 0, NULL, &size);
    tell(told, &error, sizeof(error));
    if (error != CL_SUCCESS || size == 0)
        return;
    void *value = calloc(1, size);
    cr_assert_not_null(value);
    OK(call(handle, with, name, size, value, NULL));
    tell(told, value, size);
    free(value);
}

#define ASK(function, type)                                                                        \
    static cl_int ask_##function(const void *handle, const void *with, cl_uint name, size_t size,  \
                                 void *value, size_t *ret_size)                                    \
    {                                                                                              \
        (void)with;                                                                                \
        return function((type)(uintptr_t)handle, name, size, value, ret_size);                     \
    }
ASK(clGetContextInfo, cl_context)
ASK(clGetCommandQueueInfo, cl_command_queue)
ASK(clGetMemObjectInfo, cl_mem)
ASK(clGetImageInfo, cl_mem)
ASK(clGetSamplerInfo, cl_sampler)
ASK(clGetKernelInfo, cl_kernel)
ASK(clGetEventInfo, cl_event)
ASK(clGetEventProfilingInfo, cl_event)
ASK(clGetDeviceInfo, cl_device_id)

static cl_int ask_program(const void *handle, const void *with, cl_uint name, size_t size,
                          void *value, size_t *ret_size)
{
    (void)with;
    return clGetProgramInfo((cl_program)(uintptr_t)handle, name, size, value, ret_size);
}

static cl_int ask_build(const void *handle, const void *with, cl_uint name, size_t size,
                        void *value, size_t *ret_size)
{
    return clGetProgramBuildInfo((cl_program)(uintptr_t)handle, (cl_device_id)(uintptr_t)with, name,
                                 size, value, ret_size);
}

static cl_int ask_group(const void *handle, const void *with, cl_uint name, size_t size,
                        void *value, size_t *ret_size)
{
    return clGetKernelWorkGroupInfo((cl_kernel)(uintptr_t)handle, (cl_device_id)(uintptr_t)with,
                                    name, size, value, ret_size);
}

static cl_int ask_arg(const void *handle, const void *with, cl_uint name, size_t size, void *value,
                      size_t *ret_size)
{
    return clGetKernelArgInfo((cl_kernel)(uintptr_t)handle, (cl_uint)(uintptr_t)with, name, size,
                              value, ret_size);
}

static void tell_range(struct told *told, ask call, const void *handle, const void *with,
                       cl_uint first, cl_uint last)
{
    for (cl_uint name = first; name <= last; name++)
        tell_answer(told, call, handle, with, name);
}

static void tell_binaries(struct told *told, cl_program program)
{
    size_t size = 0;
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(size), &size, NULL));
    unsigned char *bytes = malloc(size);
    cr_assert_not_null(bytes);
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(bytes), &bytes, NULL));
    tell(told, bytes, size);
    free(bytes);
}

static void tell_program(struct told *told, const struct state *s, cl_program program)
{
    for (cl_uint name = CL_PROGRAM_REFERENCE_COUNT; name <= CL_PROGRAM_KERNEL_NAMES; name++)
        if (name != CL_PROGRAM_BINARIES)
            tell_answer(told, ask_program, program, NULL, name);
    tell_binaries(told, program);
    tell_range(told, ask_build, program, s->device, CL_PROGRAM_BUILD_STATUS,
               CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE);
}

static void tell_kernel(struct told *told, const struct state *s, cl_kernel kernel)
{
    cl_uint args;
    tell_range(told, ask_clGetKernelInfo, kernel, NULL, CL_KERNEL_FUNCTION_NAME,
               CL_KERNEL_ATTRIBUTES);
    tell_range(told, ask_group, kernel, s->device, CL_KERNEL_WORK_GROUP_SIZE,
               CL_KERNEL_PRIVATE_MEM_SIZE);
    OK(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof(args), &args, NULL));
    for (cl_uint i = 0; i < args; i++)
        tell_range(told, ask_arg, kernel, (void *)(uintptr_t)i, CL_KERNEL_ARG_ADDRESS_QUALIFIER,
                   CL_KERNEL_ARG_NAME);
}

static void tell_all(const struct state *s, struct told *told)
{
    const cl_context contexts[] = {s->context, s->other};
    const cl_command_queue queues[] = {s->in_order, s->out_of_order, s->others};
    const cl_mem mems[] = {s->in,     s->out,   s->used,    s->big,    s->sub,  s->never,
                           s->mapped, s->table, s->texture, s->target, s->view, s->others_buffer};
    const cl_mem images[] = {s->texture, s->target, s->view};
    const cl_program programs[] = {s->library, s->object, s->program, s->plain};
    const cl_kernel kernels[] = {s->every, s->add};
    const cl_event events[] = {s->early, s->user, s->held[0], s->held[1]};
    for (cl_uint name = CL_DEVICE_TYPE; name <= CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF; name++)
        tell_answer(told, ask_clGetDeviceInfo, s->device, NULL, name);
    for (size_t i = 0; i < ARRAY_SIZE(contexts); i++)
        tell_range(told, ask_clGetContextInfo, contexts[i], NULL, CL_CONTEXT_REFERENCE_COUNT,
                   CL_CONTEXT_NUM_DEVICES);
    for (size_t i = 0; i < ARRAY_SIZE(queues); i++)
        tell_range(told, ask_clGetCommandQueueInfo, queues[i], NULL, CL_QUEUE_CONTEXT,
                   CL_QUEUE_PROPERTIES);
    for (size_t i = 0; i < ARRAY_SIZE(mems); i++)
        tell_range(told, ask_clGetMemObjectInfo, mems[i], NULL, CL_MEM_TYPE,
                   CL_MEM_USES_SVM_POINTER);
    for (size_t i = 0; i < ARRAY_SIZE(images); i++)
        tell_range(told, ask_clGetImageInfo, images[i], NULL, CL_IMAGE_FORMAT,
                   CL_IMAGE_NUM_SAMPLES);
    tell_range(told, ask_clGetSamplerInfo, s->sampler, NULL, CL_SAMPLER_REFERENCE_COUNT,
               CL_SAMPLER_FILTER_MODE);
    for (size_t i = 0; i < ARRAY_SIZE(programs); i++)
        tell_program(told, s, programs[i]);
    for (size_t i = 0; i < ARRAY_SIZE(kernels); i++)
        tell_kernel(told, s, kernels[i]);
    for (size_t i = 0; i < ARRAY_SIZE(events); i++)
        tell_range(told, ask_clGetEventInfo, events[i], NULL, CL_EVENT_COMMAND_QUEUE,
                   CL_EVENT_CONTEXT);
    tell_range(told, ask_clGetEventProfilingInfo, s->early, NULL, CL_PROFILING_COMMAND_QUEUED,
               CL_PROFILING_COMMAND_COMPLETE);
}

/* What the kernels compute. */

static void model_every(struct state *s)
{
    for (cl_uint i = 0; i < STATE_ITEMS; i++) {
        cl_uint local = i % IMAGE_SIDE, group = i - local;
        s->out_bytes[i] = 3 * s->out_bytes[i] + s->in_bytes[group + IMAGE_SIDE - 1 - local] +
                          2 * s->table_bytes[i] + the_value + the_pair.a * the_pair.b +
                          s->texture_bytes[4 * i + 1] + s->in_bytes[i];
        s->big_bytes[SUB_ORIGIN / 4 + i] += i + 1;
        if (i / IMAGE_SIDE != MAPPED_ROW)
            memset(s->target_bytes + 4 * i, (int)(s->out_bytes[i] & 0xff), 4);
    }
}

static void model_add(cl_uint *words, cl_uint value)
{
    for (cl_uint i = 0; i < STATE_ITEMS; i++)
        words[i] += value * (i + 1);
}

static void launch_every(struct state *s, cl_command_queue queue, cl_uint waits,
                         const cl_event *wait_list, cl_event *ret_event)
{
    const size_t items = STATE_ITEMS, group = IMAGE_SIDE;
    OK(clEnqueueNDRangeKernel(queue, s->every, 1, NULL, &items, &group, waits, wait_list,
                              ret_event));
}

static void launch_add(struct state *s, cl_uint value)
{
    const size_t items = STATE_ITEMS;
    OK(clSetKernelArg(s->add, 1, sizeof(value), &value));
    OK(clEnqueueNDRangeKernel(s->others, s->add, 1, NULL, &items, NULL, 0, NULL, NULL));
    model_add(s->others_bytes, value);
}

void state_make(const struct engine_rig *rig, struct state *s)
{
    const cl_queue_properties list[] = {
        CL_QUEUE_PROPERTIES, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE, 0};
    memset(s, 0, sizeof(*s));
    fill_model(s);
    s->device = rig->device;
    s->context = MADE(clCreateContext, NULL, 1, &rig->device, NULL, NULL);
    s->other = MADE(clCreateContext, NULL, 1, &rig->device, NULL, NULL);
    s->in_order = MADE(clCreateCommandQueue, s->context, rig->device, CL_QUEUE_PROFILING_ENABLE);
    s->out_of_order = MADE(clCreateCommandQueueWithProperties, s->context, rig->device, list);
    s->others = MADE(clCreateCommandQueue, s->other, rig->device, 0);
    make_buffers(s);
    make_images(s);
    make_programs(s);
    set_args(s);
    launch_every(s, s->in_order, 0, NULL, &s->early);
    model_every(s);
    OK(clFinish(s->in_order));
    launch_add(s, 1);
    OK(clFinish(s->others));
    make_maps(s);
    OK(clRetainMemObject(s->big));
    OK(clRetainKernel(s->every));
}

void state_hold(struct state *s)
{
    static const cl_uint pattern = 0xfeed;
    s->user = MADE(clCreateUserEvent, s->context);
    launch_every(s, s->out_of_order, 1, &s->user, &s->held[0]);
    OK(clEnqueueFillBuffer(s->out_of_order, s->used, &pattern, sizeof(pattern), 0,
                           sizeof(pattern) * 4, 1, &s->held[0], &s->held[1]));
    struct told told = {0};
    tell_all(s, &told);
    s->told = told.bytes;
    s->told_size = told.size;
}

void state_let_go(struct state *s)
{
    OK(clSetUserEventStatus(s->user, CL_COMPLETE));
    OK(clWaitForEvents(2, s->held));
    model_every(s);
    for (int i = 0; i < 4; i++)
        s->used_bytes[i] = 0xfeed;
    OK(clReleaseEvent(s->user));
    for (int i = 0; i < 2; i++)
        OK(clReleaseEvent(s->held[i]));
    s->user = s->held[0] = s->held[1] = NULL;
    free(s->told);
    s->told = NULL;
}

static void check_buffer(cl_command_queue queue, cl_mem buffer, const void *model, size_t size,
                         const char *name, const char *when)
{
    unsigned char *bytes = malloc(size);
    cr_assert_not_null(bytes);
    cl_int error = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, size, bytes, 0, NULL, NULL);
    cr_assert_eq(error, CL_SUCCESS, "%s: reading %s: %d", when, name, error);
    cr_assert(memcmp(bytes, model, size) == 0, "%s: %s has other bytes", when, name);
    free(bytes);
}

static void check_image(const struct state *s, cl_mem image, const void *model, const char *name,
                        const char *when)
{
    const size_t origin[3] = {0}, region[3] = {IMAGE_SIDE, IMAGE_SIDE, 1};
    cl_uchar bytes[STATE_ITEMS * 4];
    cl_int error =
        clEnqueueReadImage(s->in_order, image, CL_TRUE, origin, region, 0, 0, bytes, 0, NULL, NULL);
    cr_assert_eq(error, CL_SUCCESS, "%s: reading %s: %d", when, name, error);
    /* The row that is mapped is the host's. */
    memcpy(bytes + MAPPED_ROW * IMAGE_SIDE * 4,
           (const cl_uchar *)model + MAPPED_ROW * IMAGE_SIDE * 4, IMAGE_SIDE * 4);
    cr_assert(memcmp(bytes, model, sizeof(bytes)) == 0, "%s: %s has other bytes", when, name);
}

void state_check(struct state *s, const char *when)
{
    const size_t size = sizeof(s->in_bytes);
    if (s->told) {
        struct told told = {0};
        tell_all(s, &told);
        cr_assert_eq(told.size, s->told_size, "%s: answers have another size", when);
        size_t at = 0;
        while (at < told.size && told.bytes[at] == s->told[at])
            at++;
        cr_assert_eq(at, told.size, "%s: answers differ from byte %zu of %zu on", when, at,
                     told.size);
        free(told.bytes);
    }
    check_buffer(s->in_order, s->in, s->in_bytes, size, "in", when);
    check_buffer(s->in_order, s->out, s->out_bytes, size, "out", when);
    check_buffer(s->in_order, s->used, s->used_bytes, size, "used", when);
    check_buffer(s->in_order, s->big, s->big_bytes, STATE_BIG, "big", when);
    check_buffer(s->in_order, s->sub, s->big_bytes + SUB_ORIGIN / 4, SUB_WORDS * 4, "sub", when);
    check_buffer(s->in_order, s->mapped, s->mapped_bytes, size / 2, "mapped", when);
    check_buffer(s->in_order, s->table, s->table_bytes, size, "table", when);
    check_buffer(s->others, s->others_buffer, s->others_bytes, size, "others", when);
    check_image(s, s->texture, s->texture_bytes, "texture", when);
    check_image(s, s->target, s->target_bytes, "target", when);
    cr_assert(memcmp(s->mapped_pointer, s->mapped_bytes + MAPPED_FROM,
                     (STATE_ITEMS - MAPPED_FROM) * sizeof(cl_uint)) == 0,
              "%s: the mapped bytes changed", when);
    cr_assert(memcmp(s->image_pointer, s->target_bytes + MAPPED_ROW * IMAGE_SIDE * 4,
                     IMAGE_SIDE * 4) == 0,
              "%s: the mapped row changed", when);
}

void state_step(struct state *s, const char *when)
{
    cl_uint step = ++s->steps;
    launch_every(s, s->in_order, 0, NULL, NULL);
    model_every(s);
    launch_add(s, step);
    s->in_bytes[step % STATE_ITEMS] = step;
    OK(clEnqueueWriteBuffer(s->in_order, s->in, CL_FALSE, 0, sizeof(s->in_bytes), s->in_bytes, 0,
                            NULL, NULL));
    s->mapped_pointer[step % (STATE_ITEMS - MAPPED_FROM)] = step;
    s->mapped_bytes[MAPPED_FROM + step % (STATE_ITEMS - MAPPED_FROM)] = step;
    s->image_pointer[step % (IMAGE_SIDE * 4)] = (cl_uchar)step;
    s->target_bytes[MAPPED_ROW * IMAGE_SIDE * 4 + step % (IMAGE_SIDE * 4)] = (cl_uchar)step;
    OK(clFinish(s->in_order));
    OK(clFinish(s->others));
    state_check(s, when);
}

static void finish_maps(struct state *s)
{
    OK(clEnqueueUnmapMemObject(s->in_order, s->mapped, s->mapped_pointer, 0, NULL, NULL));
    OK(clEnqueueUnmapMemObject(s->in_order, s->target, s->image_pointer, 0, NULL, NULL));
    check_buffer(s->in_order, s->mapped, s->mapped_bytes, sizeof(s->mapped_bytes), "mapped",
                 "after the unmap");
    check_image(s, s->target, s->target_bytes, "target", "after the unmap");
}

void state_finish(struct state *s)
{
    const cl_mem mems[] = {s->sub,     s->big,    s->view,         s->in,     s->out,
                           s->used,    s->big,    s->never,        s->mapped, s->table,
                           s->texture, s->target, s->others_buffer};
    const cl_program programs[] = {s->library, s->object, s->program, s->plain};
    finish_maps(s);
    for (size_t i = 0; i < ARRAY_SIZE(mems); i++)
        OK(clReleaseMemObject(mems[i]));
    RELEASE(s->sampler, s->early, s->every, s->every, s->add);
    for (size_t i = 0; i < ARRAY_SIZE(programs); i++)
        OK(clReleaseProgram(programs[i]));
    RELEASE(s->in_order, s->out_of_order, s->others, s->context, s->other);
    free(s->used_pointer);
}
