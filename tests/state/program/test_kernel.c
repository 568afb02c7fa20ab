#include "state/memory/memory.h"
#include "state/object/usage.h"
#include "state/program/kernel_priv.h"
#include "state/program/sampler.h"
#include "tests/state/program/pair.h"
#include "tests/support/calls.h"

static struct pair pair;
static struct program *program;

static const char source[] =
    "struct big { int n[20]; };\n"
    "kernel void k(global int *a, int x, struct big y, constant int *c, local int *l)\n"
    "{ l[0] = 1; a[0] = x; a[1] = y.n[7]; a[2] = c ? c[0] : -1; a[3] = l[0]; }\n"
    "kernel void i(global int *a, read_only image2d_t r, write_only image2d_t w, sampler_t s,\n"
    "              ulong eight)\n"
    "{ a[0] = read_imagei(r, s, (int2)(0, 0)).x + (int)eight; }\n"
    "kernel __attribute__((reqd_work_group_size(4, 1, 1))) void r(global int *a) { a[0] = 1; }\n";

static void setup(void)
{
    pair_init(&pair);
    program = pair_source(&pair, source);
    OK(program_build(program, 1, NULL, (struct program_notify){NULL, NULL}));
}
TestSuite(kernel, .init = setup, .fini = pair_finish);

static struct kernel *make(const char *name)
{
    struct kernel *kernel;
    OK(kernel_create(program, name, &kernel));
    return kernel;
}

static struct memory *buffer(const void *bytes, size_t size)
{
    struct memory *memory;
    OK(memory_create_buffer(pair.context, NULL, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, size,
                            (void *)(uintptr_t)bytes, &memory));
    return memory;
}

static cl_int set(struct kernel *kernel, cl_uint index, size_t size, const void *value)
{
    return kernel_set_arg(kernel, index, size, value);
}

Test(kernel, knows_what_its_parameters_are)
{
    static const uint8_t k[] = {ARGUMENT_BUFFER, ARGUMENT_VALUE, ARGUMENT_UNKNOWN, ARGUMENT_BUFFER,
                                ARGUMENT_LOCAL};
    static const uint8_t i[] = {ARGUMENT_BUFFER, ARGUMENT_IMAGE, ARGUMENT_IMAGE, ARGUMENT_SAMPLER,
                                ARGUMENT_VALUE};
    struct kernel *kernels[] = {make("k"), make("i")};
    cr_assert_eq(kernels[0]->arg_count, 5);
    cr_assert_eq(kernels[1]->arg_count, 5);
    for (int a = 0; a < 5; a++) {
        cr_assert_eq(kernels[0]->args[a].declared, k[a], "argument %d", a);
        cr_assert_eq(kernels[1]->args[a].declared, i[a], "argument %d", a);
    }
    cr_assert(kernels[0]->args[0].writes);
    cr_assert(!kernels[0]->args[3].writes);
    cr_assert(!kernels[1]->args[1].writes);
    cr_assert(kernels[1]->args[2].writes);
}

/* Arguments of every kind that the engine remembers, given to a real kernel on the other device. */
Test(kernel, has_the_same_arguments_on_the_other_device)
{
    struct kernel *kernel = make("k");
    const int x = 11, c = 33;
    int big[20] = {[7] = 22}, numbers[4];
    struct memory *a = buffer(big, sizeof(big)), *constant = buffer(&c, sizeof(c));
    OK(set(kernel, 0, sizeof(cl_mem), &a));
    OK(set(kernel, 1, sizeof(x), &x));
    OK(set(kernel, 2, sizeof(big), big));
    OK(set(kernel, 3, sizeof(cl_mem), &constant));
    OK(set(kernel, 4, 64, NULL));
    /* The program may reuse its bytes once it has given them. */
    memset(big, 0, sizeof(big));
    OK(program_make_real(program, pair.other, OTHER, NULL));
    OK(kernel_make_real(kernel, pair.other, OTHER));
    cr_assert_neq(kernel->applied[OTHER], kernel->edition);
    OK(memory_make_real(constant, pair.other, OTHER));
    OK(pair.other->cl->clEnqueueWriteBuffer(pair.other->io, constant->real[OTHER], CL_TRUE, 0,
                                            sizeof(c), &c, 0, NULL, NULL));
    OK(kernel_apply(kernel, pair.other, OTHER));
    cr_assert_eq(kernel->applied[OTHER], kernel->edition);
    pair_run(pair.other, kernel->real[OTHER], numbers, 4);
    cr_assert_eq(numbers[0], 11);
    cr_assert_eq(numbers[1], 22);
    cr_assert_eq(numbers[2], 33);
    cr_assert_eq(numbers[3], 1);
}

Test(kernel, takes_types_of_the_program_for_what_they_are)
{
    struct program *own = pair_source(
        &pair, "typedef struct { int n[11]; } int9;\ntypedef struct { int n[5]; } sampler_tables;\n"
               "typedef struct { int n[5]; } doubles;\ntypedef struct { int n[5]; } half_t;\n"
               "kernel void k(global int *a, int9 b, sampler_tables c, doubles d, half_t e)\n"
               "{ a[0] = b.n[10] + c.n[4] + d.n[4] + e.n[4]; }");
    static const size_t sizes[] = {8, 44, 20, 20, 20};
    const char zeros[44] = {0};
    struct kernel *kernel;
    OK(program_build(own, 1, NULL, (struct program_notify){NULL, NULL}));
    OK(kernel_create(own, "k", &kernel));
    for (cl_uint a = 1; a < 5; a++) {
        cr_expect_eq(kernel->args[a].declared, ARGUMENT_UNKNOWN, "argument %u", a);
        cr_expect_eq(set(kernel, a, sizes[a], zeros), CL_SUCCESS, "argument %u", a);
    }
    cr_expect_not(kernel->details->usage.fp64);
    cr_expect_not(kernel->details->usage.fp16);
}

/* The driver's own clSetKernelArg, counted. */
static cl_icd_dispatch counting;
static const cl_icd_dispatch *counted;
static unsigned calls;
static cl_int CL_API_CALL count_call(cl_kernel kernel, cl_uint index, size_t size,
                                     const void *value)
{
    calls++;
    return counted->clSetKernelArg(kernel, index, size, value);
}

Test(kernel, does_not_tell_the_driver_what_it_knows)
{
    struct residence *home = pair.context->at[HOME];
    struct kernel *kernel = make("k");
    struct memory *first = buffer("....", 4), *second = buffer("....", 4);
    int x = 1, big[20] = {0};
    counted = home->cl;
    counting = *counted;
    counting.clSetKernelArg = count_call;
    home->cl = &counting;
    for (int i = 0; i < 3; i++) {
        OK(set(kernel, 0, 8, &first));
        OK(set(kernel, 1, 4, &x));
        OK(set(kernel, 2, 80, big));
        OK(set(kernel, 4, 64, NULL));
    }
    cr_assert_eq(calls, 4);
    big[19] = 1;
    OK(set(kernel, 0, 8, &second));
    OK(set(kernel, 0, 8, &first));
    OK(set(kernel, 2, 80, big));
    OK(set(kernel, 4, 128, NULL));
    x = 2;
    OK(set(kernel, 1, 4, &x));
    cr_assert_eq(calls, 9);
    home->cl = counted;
}

Test(kernel, a_clone_has_arguments_of_its_own)
{
    struct kernel *kernel = make("k"), *clone;
    int big[20] = {[7] = 3}, numbers[4];
    int x = 1, other = 2;
    OK(set(kernel, 1, 4, &x));
    OK(set(kernel, 2, 80, big));
    OK(set(kernel, 3, 8, NULL));
    OK(set(kernel, 4, 64, NULL));
    OK(kernel_clone(kernel, &clone));
    OK(set(kernel, 1, 4, &other));
    object_release(kernel);
    OK(kernel_apply(clone, pair.context->at[HOME], HOME));
    pair_run(pair.context->at[HOME], clone->real[HOME], numbers, 4);
    cr_assert_eq(numbers[0], 1);
    cr_assert_eq(numbers[1], 3);
    cr_assert_eq(numbers[2], -1);
}

Test(kernel, a_captured_args_keeps_the_arguments_of_its_time)
{
    struct kernel *kernel = make("k");
    struct kernel_captured_args *captured_args;
    struct memory *memory = buffer("....", 4);
    int big[20] = {[7] = 3}, numbers[4];
    int x = 1, other = 2;
    cl_kernel real;
    bool writes = true;
    OK(set(kernel, 0, 8, &memory));
    OK(set(kernel, 1, 4, &x));
    OK(set(kernel, 2, 80, big));
    OK(set(kernel, 3, 8, &memory));
    OK(set(kernel, 4, 64, NULL));
    cr_assert_eq(kernel_captured_args_take(kernel, &captured_args), 0);
    big[7] = 4;
    OK(set(kernel, 1, 4, &other));
    OK(set(kernel, 2, 80, big));
    /* Held: it outlives the program's own reference. */
    object_release(memory);
    cr_assert_eq(kernel_captured_args_memory(captured_args, 0, &writes), memory);
    cr_assert(writes);
    cr_assert_eq(kernel_captured_args_memory(captured_args, 1, &writes), memory);
    cr_assert(!writes);
    cr_assert_null(kernel_captured_args_memory(captured_args, 2, &writes));
    OK(kernel_captured_args_make(captured_args, pair.context->at[HOME], HOME,
                                 kernel->program->real[HOME], &real));
    pair_run(pair.context->at[HOME], real, numbers, 4);
    cr_assert_eq(numbers[0], 1);
    cr_assert_eq(numbers[1], 3);
    pair.context->at[HOME]->cl->clReleaseKernel(real);
    uint64_t live = object_count(OBJECT_MEMORY);
    kernel_captured_args_unref(captured_args);
    cr_assert_eq(object_count(OBJECT_MEMORY), live - 1);
}

static size_t group_size(struct kernel *kernel)
{
    const void *value;
    size_t size, group;
    OK(kernel_work_group_info(kernel, 0, CL_KERNEL_WORK_GROUP_SIZE, &value, &size));
    cr_assert_eq(size, sizeof(group));
    memcpy(&group, value, sizeof(group));
    return group;
}

/* A device that would answer something else. */
static cl_int CL_API_CALL other_answer(cl_kernel kernel, cl_device_id device,
                                       cl_kernel_work_group_info name, size_t size, void *value,
                                       size_t *ret_size)
{
    const size_t number = 3;
    (void)kernel;
    (void)device;
    (void)name;
    if (value && size >= sizeof(number))
        memcpy(value, &number, sizeof(number));
    if (ret_size)
        *ret_size = sizeof(number);
    return CL_SUCCESS;
}

Test(kernel, says_after_a_move_what_it_said_before)
{
    struct kernel *kernel = make("k"), *asked_late = make("r");
    size_t before = group_size(kernel);
    cr_assert_neq(before, 3);
    OK(program_make_real(program, pair.other, OTHER, NULL));
    OK(kernel_make_real(kernel, pair.other, OTHER));
    pair_move(&pair);
    counting = *pair.other->cl;
    counting.clGetKernelWorkGroupInfo = other_answer;
    pair.other->cl = &counting;
    cr_assert_eq(group_size(kernel), before);
    cr_assert_eq(group_size(asked_late), 3);
    char *names = program_text(program, 0, PROGRAM_TEXT_KERNELS);
    cr_assert(strstr(names, "k"));
    cr_assert_eq(program_kernel_count(program), 3);
    free(names);
}

static cl_int CL_API_CALL nothing_known(cl_kernel kernel, cl_uint index, cl_kernel_arg_info name,
                                        size_t size, void *value, size_t *ret_size)
{
    (void)kernel;
    (void)index;
    (void)name;
    (void)size;
    (void)value;
    (void)ret_size;
    return CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
}

Test(kernel, errors_stay_after_a_move_as_answers_do)
{
    struct kernel *kernel = make("k");
    struct residence *home = pair.context->at[HOME];
    const void *value;
    size_t size;
    counted = home->cl;
    counting = *counted;
    counting.clGetKernelArgInfo = nothing_known;
    home->cl = &counting;
    cr_assert_eq(kernel_arg_info(kernel, 0, CL_KERNEL_ARG_NAME, &value, &size),
                 CL_KERNEL_ARG_INFO_NOT_AVAILABLE);
    home->cl = counted;
    OK(program_make_real(program, pair.other, OTHER, NULL));
    OK(kernel_make_real(kernel, pair.other, OTHER));
    pair_move(&pair);
    cr_assert_eq(kernel_arg_info(kernel, 0, CL_KERNEL_ARG_NAME, &value, &size),
                 CL_KERNEL_ARG_INFO_NOT_AVAILABLE);
    OK(kernel_arg_info(kernel, 1, CL_KERNEL_ARG_NAME, &value, &size));
    cr_assert_str_eq(value, "x");
}

Test(kernel, remembers_its_largest_launch)
{
    struct kernel *kernel = make("k");
    struct plan_use use;
    char reason[256] = "";
    const size_t global[] = {100, 8}, local[] = {16, 8}, small[] = {32, 1};
    OK(set(kernel, 4, 4096, NULL));
    const struct launch_space even = {2, NULL, global, local, .items = 128, .uneven = true},
                              wide = {2, NULL, global, small, .items = 32, .uneven = true};
    kernel_note_launch(kernel, &even);
    kernel_note_launch(kernel, &wide);
    usage_read(&use);
    cr_assert_eq(use.work_group_size, 128);
    cr_assert_eq(use.work_item_sizes[0], 32);
    cr_assert_eq(use.work_item_sizes[1], 8);
    cr_assert_eq(use.work_dimensions, 2);
    cr_assert_geq(use.local_memory, 4096);
    cr_assert(use.non_uniform);
    OK(program_make_real(program, pair.other, OTHER, NULL));
    OK(kernel_make_real(kernel, pair.other, OTHER));
    cr_assert(kernel_can_launch(kernel, pair.other, OTHER, reason, sizeof(reason)), "%s", reason);
    counting = *pair.other->cl;
    counting.clGetKernelWorkGroupInfo = other_answer;
    pair.other->cl = &counting;
    cr_assert(!kernel_can_launch(kernel, pair.other, OTHER, reason, sizeof(reason)));
    cr_assert(strstr(reason, "128") && strstr(reason, "3"), "%s", reason);
}
