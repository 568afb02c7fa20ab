#include <stdint.h>

#include "tests/contract/tried.h"
#include "tests/support/leaks.h"

/* Every entry point with every kind of pointer that is not the handle it asks for. */

#define BAD_KINDS 7

TestSuite(handles, .fini = leaks_check, .timeout = 60);

struct bad {
    const char *kind;
    void *pointer;
};

/* The handle of each type in @of; NULL where there is none. */
static void *handle_of(const struct samples *of, enum object_type type)
{
    void *const handles[OBJECT_TYPES] = {
        [OBJECT_PLATFORM] = of->platform, [OBJECT_DEVICE] = of->device,
        [OBJECT_CONTEXT] = of->context,   [OBJECT_QUEUE] = of->queue,
        [OBJECT_MEMORY] = of->buffer,     [OBJECT_SAMPLER] = of->sampler,
        [OBJECT_PROGRAM] = of->program,   [OBJECT_KERNEL] = of->kernel,
        [OBJECT_EVENT] = of->event,
    };
    return handles[type];
}

static void *freed_handle(const struct samples *freed, enum object_type type)
{
    /* Platforms and root devices are never freed. */
    return type == OBJECT_PLATFORM || type == OBJECT_DEVICE ? NULL : handle_of(freed, type);
}

static void expect_tried(const struct tried *tried, const struct bad *bad, cl_int got)
{
    bool good = tried->expected == TRIED_ANY ? got < 0 : got == tried->expected;
    cr_expect(good, "%s with %s for %s gave %d, not %d", tried->call, bad->kind, tried->parameter,
              got, tried->expected);
}

static void try_one(const struct tried *tried, const struct samples *good,
                    const struct samples *freed)
{
    char on_stack[256] = {0};
    char *on_heap = calloc(1, 256);
    const struct bad bads[BAD_KINDS] = {
        {"NULL", NULL},
        {"a stack address", on_stack},
        {"a heap address", on_heap},
        {"an address where nothing is", (void *)(uintptr_t)0x1000},
        {"an address inside an object", (char *)good->context + sizeof(void *)},
        {"a handle of another type",
         tried->type == OBJECT_CONTEXT ? (void *)good->queue : (void *)good->context},
        {"a freed handle", freed_handle(freed, tried->type)},
    };
    for (size_t i = 0; i < BAD_KINDS; i++) {
        if (!bads[i].pointer && (i != 0 || tried->optional))
            continue;
        expect_tried(tried, &bads[i], tried->call_with(good, bads[i].pointer));
    }
    free(on_heap);
}

static cl_uint references(const struct samples *of)
{
    cl_uint sum = 0, count = 0;
    clGetContextInfo(of->context, CL_CONTEXT_REFERENCE_COUNT, sizeof(count), &count, NULL);
    sum += count;
    clGetCommandQueueInfo(of->queue, CL_QUEUE_REFERENCE_COUNT, sizeof(count), &count, NULL);
    sum += count;
    clGetMemObjectInfo(of->buffer, CL_MEM_REFERENCE_COUNT, sizeof(count), &count, NULL);
    sum += count;
    clGetMemObjectInfo(of->image, CL_MEM_REFERENCE_COUNT, sizeof(count), &count, NULL);
    sum += count;
    clGetSamplerInfo(of->sampler, CL_SAMPLER_REFERENCE_COUNT, sizeof(count), &count, NULL);
    sum += count;
    clGetProgramInfo(of->program, CL_PROGRAM_REFERENCE_COUNT, sizeof(count), &count, NULL);
    sum += count;
    clGetKernelInfo(of->kernel, CL_KERNEL_REFERENCE_COUNT, sizeof(count), &count, NULL);
    sum += count;
    clGetEventInfo(of->event, CL_EVENT_REFERENCE_COUNT, sizeof(count), &count, NULL);
    return sum + count;
}

Test(handles, every_call_names_the_handle_that_is_bad)
{
    struct samples good, freed;
    samples_make(&freed);
    samples_release(&freed);
    samples_make(&good);
    size_t handles = 0;
    for (size_t i = 0; i < tried_call_count; i++) {
        if (tried_calls[i].parameter[0] == '\0')
            continue;
        try_one(&tried_calls[i], &good, &freed);
        handles++;
    }
    cr_expect_gt(handles, 150);
    cr_expect_eq(references(&good), 8, "a failed call kept or dropped a reference");
    samples_release(&good);
}

Test(handles, no_call_needs_anything_to_have_been_called_before)
{
    /* Nothing was opened: there is not even a range of handles yet. */
    struct samples none = {.scratch = calloc(1, 65536)};
    char foreign[64] = {0};
    for (size_t i = 0; i < tried_call_count; i++) {
        tried_calls[i].call_with(&none, NULL);
        if (tried_calls[i].parameter[0] != '\0' && !tried_calls[i].optional)
            cr_expect_neq(tried_calls[i].call_with(&none, foreign), CL_SUCCESS, "%s: %s",
                          tried_calls[i].call, tried_calls[i].parameter);
    }
    free(none.scratch);
}

Test(handles, every_call_survives_nothing_but_zeros)
{
    struct samples good;
    samples_make(&good);
    for (size_t i = 0; i < tried_call_count; i++)
        if (tried_calls[i].parameter[0] == '\0')
            tried_calls[i].call_with(&good, NULL);
    cr_expect_eq(references(&good), 8);
    samples_release(&good);
}

Test(handles, addresses_are_given_of_what_is_offered)
{
    cl_platform_id platform;
    cr_assert_eq(clGetPlatformIDs(1, &platform, NULL), CL_SUCCESS);
    cr_expect_eq(clGetExtensionFunctionAddress("clIcdGetPlatformIDsKHR"),
                 (void *)clIcdGetPlatformIDsKHR);
    cr_expect_eq(clGetExtensionFunctionAddressForPlatform(platform, "clCreateProgramWithILKHR"),
                 (void *)clCreateProgramWithILKHR);
    cr_expect_null(clGetExtensionFunctionAddress("clCreateCommandBufferKHR"));
    cr_expect_null(clGetExtensionFunctionAddress("clSVMAlloc"));
    cr_expect_null(clGetExtensionFunctionAddress("clInitLayer"));
    cr_expect_null(clGetExtensionFunctionAddress(""));
    cr_expect_null(clGetExtensionFunctionAddress(NULL));
    cr_expect_null(clGetExtensionFunctionAddressForPlatform(NULL, "clFinish"));
}
