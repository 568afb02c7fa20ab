#include "tests/state/program/pair.h"

#include "tests/support/calls.h"

void pair_init(struct pair *pair)
{
    struct device **devices, *found[2];
    size_t count, pocl = 0;
    cl_int error = 0;
    cr_assert_eq(driver_list(&devices, &count), 0);
    for (size_t i = 0; i < count && pocl < 2; i++)
        if (strcmp(devices[i]->key.platform, "Portable Computing Language") == 0)
            found[pocl++] = devices[i];
    cr_assert_eq(pocl, 2, "POCL_DEVICES must name two devices");
    free(devices);
    cr_assert_eq(vdevs_init(found, 1), 0);
    OK(context_create(NULL, 1, the_vdevs, NULL, NULL, &pair->context));
    cr_assert_eq(residence_create(pair->context, found[1], &pair->other, &error), 0);
    pair->context->at[OTHER] = pair->other;
}

void pair_finish(void)
{
    static const enum object_type types[] = {OBJECT_KERNEL, OBJECT_PROGRAM, OBJECT_MEMORY,
                                             OBJECT_CONTEXT};
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        uintptr_t cursor = 0;
        struct object *object;
        while ((object = object_next(types[i], &cursor))) {
            while (object_refs(object) > 0)
                object_release(object);
            object_unhold(object);
        }
    }
}

void pair_move(struct pair *pair)
{
    uintptr_t cursor = 0;
    struct program *program;
    struct kernel *kernel;
    struct context *context = pair->context;
    struct residence *home = context->at[HOME];
    cr_assert_eq(gate_close(0), 0);
    cr_assert_eq(
        residence_reserve(home, object_count(OBJECT_KERNEL) + object_count(OBJECT_PROGRAM)), 0);
    while ((kernel = object_next(OBJECT_KERNEL, &cursor))) {
        residence_retire(home, OBJECT_KERNEL, kernel->real[HOME], NULL);
        kernel->real[HOME] = NULL;
        object_unhold(kernel);
    }
    cursor = 0;
    while ((program = object_next(OBJECT_PROGRAM, &cursor))) {
        residence_retire(home, OBJECT_PROGRAM, program->real[HOME], NULL);
        program->real[HOME] = NULL;
        object_unhold(program);
    }
    context->at[HOME] = NULL;
    context->residence_index[0] = OTHER;
    gate_open();
    residence_unref(home);
}

struct program *pair_source(struct pair *pair, const char *source)
{
    struct recipe *recipe;
    struct program *program;
    cr_assert_eq(recipe_source(1, &source, NULL, &recipe), 0);
    OK(program_create(pair->context, 1, recipe, false, &program));
    recipe_unref(recipe);
    return program;
}

void pair_run(struct residence *residence, cl_kernel kernel, int *ret_numbers, unsigned count)
{
    const cl_icd_dispatch *cl = residence->cl;
    size_t one = 1;
    cl_mem buffer =
        MADE(cl->clCreateBuffer, residence->context, CL_MEM_READ_WRITE, count * sizeof(int), NULL);
    OK(cl->clSetKernelArg(kernel, 0, sizeof(buffer), &buffer));
    OK(cl->clEnqueueNDRangeKernel(residence->io, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    OK(cl->clEnqueueReadBuffer(residence->io, buffer, CL_TRUE, 0, count * sizeof(int), ret_numbers,
                               0, NULL, NULL));
    cl->clReleaseMemObject(buffer);
}
