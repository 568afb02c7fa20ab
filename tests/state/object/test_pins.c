#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/threads/gate.h"
#include "tests/state/object/test_pins_common.h"

/* What cannot be carried runs where it is, and keeps the program there. On POCL's two devices. */

static const char source[] = "__kernel void add(__global uint *words, uint value)\n"
                             "{ words[get_global_id(0)] += value; }\n"
                             "struct node { __global uint *words; };\n"
                             "__kernel void follow(__global struct node *node, uint value)\n"
                             "{ node->words[get_global_id(0)] += value; }\n";

static void launch(cl_command_queue queue, cl_kernel kernel, cl_event wait)
{
    const size_t items = WORDS;
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, wait ? 1 : 0,
                              wait ? &wait : NULL, NULL));
}

static cl_uint *words_new(cl_context context, cl_svm_mem_flags flags)
{
    cl_uint *words = clSVMAlloc(context, CL_MEM_READ_WRITE | flags, SIZE, 0);
    cr_assert_not_null(words);
    return words;
}

static void fill(cl_command_queue queue, cl_uint *words, cl_uint value)
{
    OK(clEnqueueSVMMemFill(queue, words, &value, sizeof(value), SIZE, 0, NULL, NULL));
    OK(clFinish(queue));
}

static void expect_words(cl_command_queue queue, cl_uint *words, cl_uint value)
{
    OK(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ, words, SIZE, 0, NULL, NULL));
    for (size_t i = 0; i < WORDS; i++)
        cr_assert_eq(words[i], value, "word %zu is %u, not %u", i, words[i], value);
    OK(clEnqueueSVMUnmap(queue, words, 0, NULL, NULL));
    OK(clFinish(queue));
}

/* A driver's tables with some of its calls replaced. */
static cl_icd_dispatch real_calls, changed_calls;

static cl_icd_dispatch *change_calls(struct device *device)
{
    real_calls = changed_calls = *device->cl;
    device->cl = &changed_calls;
    return &changed_calls;
}

/* Variables: no driver here tells of any, so this one is made to. */

static cl_int CL_API_CALL with_variables(cl_program program, cl_device_id device,
                                         cl_program_build_info name, size_t size, void *value,
                                         size_t *ret_size)
{
    const size_t bytes = 64;
    if (name != CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE)
        return real_calls.clGetProgramBuildInfo(program, device, name, size, value, ret_size);
    if (value)
        memcpy(value, &bytes, sizeof(bytes));
    if (ret_size)
        *ret_size = sizeof(bytes);
    return CL_SUCCESS;
}

Test(pins, variables_of_a_program_pin_while_it_lives)
{
    struct engine_rig rig;
    struct engine_program p;
    engine_rig_open_pocl(&rig, "basic pthread");
    change_calls(rig.devices[0])->clGetProgramBuildInfo = with_variables;
    engine_program_open(&rig, 0, source, &p);
    /* What OpenCL C 1.2 calls variables are constants. */
    cr_assert_null(pinned(), "%s", pinned());
    OK(clBuildProgram(p.program, 0, NULL, "-cl-std=CL2.0", NULL, NULL));
    expect_refused(&rig, "variables");
    /* Built otherwise, it is free again; and the pin ends with the last reference. */
    OK(clBuildProgram(p.program, 0, NULL, "-cl-std=CL1.2", NULL, NULL));
    cr_assert_null(pinned());
    OK(clBuildProgram(p.program, 0, NULL, "-cl-std=CL3.0", NULL, NULL));
    cl_kernel add = engine_kernel(p.program, "add");
    OK(clReleaseProgram(p.program));
    p.program = NULL;
    expect_refused(&rig, "variables");
    OK(clReleaseKernel(add));
    expect_free(&rig);
    engine_program_close(&p);
}

Test(pins, shared_virtual_memory_pins_until_it_is_freed)
{
    struct engine_rig rig;
    struct engine_program p;
    cl_event freed;
    engine_rig_open_pocl(&rig, "basic pthread");
    engine_program_open(&rig, 0, NULL, &p);
    cl_uint *coarse = words_new(p.context, 0);
    cl_uint *fine = words_new(p.context, CL_MEM_SVM_FINE_GRAIN_BUFFER);
    expect_refused(&rig, "shared virtual memory");
    clSVMFree(p.context, fine);
    expect_refused(&rig, "shared virtual memory");
    clSVMFree(p.context, fine + 1); /* none of ours */
    clSVMFree(p.context, NULL);
    expect_refused(&rig, "shared virtual memory");
    void *list[] = {coarse};
    OK(clEnqueueSVMFree(p.queue, 1, list, NULL, NULL, 0, NULL, &freed));
    OK(clWaitForEvents(1, &freed));
    OK(clReleaseEvent(freed));
    expect_free(&rig);
    /* On another device than the first, too; and what is never freed ends with its context. */
    engine_rig_moves(&rig, rig.devices[1]->key.device);
    cl_uint *words = words_new(p.context, 0);
    fill(p.queue, words, 7);
    expect_words(p.queue, words, 7);
    struct move_report report;
    cr_assert_eq(engine_rig_move(&rig, rig.devices[0]->key.device, &report), MOVE_REFUSED);
    engine_program_close(&p);
    cr_assert_null(pinned(), "%s", pinned());
}

Test(pins, shared_virtual_memory_has_the_flags_and_sizes_of_the_specification)
{
    struct engine_rig rig;
    struct engine_program p;
    engine_rig_open_pocl(&rig, "basic pthread");
    engine_program_open(&rig, 0, NULL, &p);
    static const cl_svm_mem_flags wrong[] = {CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY,
                                             CL_MEM_SVM_ATOMICS, CL_MEM_USE_HOST_PTR,
                                             CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        cr_expect_null(clSVMAlloc(p.context, wrong[i], SIZE, 0), "flags %zu", i);
    cr_expect_null(clSVMAlloc(p.context, 0, 0, 0));
    cr_expect_null(clSVMAlloc(p.context, 0, SIZE_MAX, 0));
    cr_expect_null(clSVMAlloc(p.context, 0, SIZE, 3));
    cr_expect_null(clSVMAlloc(NULL, 0, SIZE, 0));
    cr_expect_null(pinned(), "%s", pinned());

    cl_uint *words = words_new(p.context, 0), pattern[32] = {0}, host[WORDS];
    void *list[] = {words};
    const void *migrated[] = {words};
    cl_command_queue q = p.queue;
    cr_expect_eq(clEnqueueSVMMemcpy(q, 1, NULL, words, 8, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueSVMMemcpy(q, 1, words, NULL, 8, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueSVMMemcpy(q, 1, words, words + 1, 8, 0, NULL, NULL), CL_MEM_COPY_OVERLAP);
    cr_expect_eq(clEnqueueSVMMemcpy(q, 1, words + 1, words, 8, 0, NULL, NULL), CL_MEM_COPY_OVERLAP);
    cr_expect_eq(clEnqueueSVMMemcpy(q, 1, words, words + 2, 8, 0, NULL, NULL), CL_SUCCESS);
    cr_expect_eq(clEnqueueSVMMemcpy(q, 1, host, words, SIZE, 1, NULL, NULL),
                 CL_INVALID_EVENT_WAIT_LIST);
    static const size_t widths[] = {0, 3, 256};
    for (size_t i = 0; i < ARRAY_SIZE(widths); i++)
        cr_expect_eq(clEnqueueSVMMemFill(q, words, pattern, widths[i], 768, 0, NULL, NULL),
                     CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueSVMMemFill(q, words, NULL, 4, 8, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueSVMMemFill(q, words + 1, pattern, 8, 8, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueSVMMemFill(q, words, pattern, 8, 12, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueSVMMemFill(q, words, pattern, 128, SIZE, 0, NULL, NULL), CL_SUCCESS);
    cr_expect_eq(clEnqueueSVMMap(q, 1, 1u << 20, words, 8, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueSVMMap(q, 1, CL_MAP_READ, NULL, 8, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueSVMMap(q, 1, CL_MAP_READ, words, 0, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueSVMUnmap(q, NULL, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueSVMMigrateMem(q, 0, migrated, NULL, 0, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueSVMMigrateMem(q, 1, NULL, NULL, 0, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueSVMMigrateMem(q, 1, migrated, NULL, 8, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueSVMMigrateMem(q, 1, migrated, NULL, 0, 0, NULL, NULL), CL_SUCCESS);
    migrated[0] = host;
    cr_expect_eq(clEnqueueSVMMigrateMem(q, 1, migrated, NULL, 0, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueSVMFree(q, 1, NULL, NULL, NULL, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueSVMFree(q, 0, list, NULL, NULL, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueSVMFree(NULL, 1, list, NULL, NULL, 0, NULL, NULL),
                 CL_INVALID_COMMAND_QUEUE);
    OK(clFinish(q));
    clSVMFree(p.context, words);
    engine_program_close(&p);
}

struct freeing {
    cl_context context;
    cl_command_queue queue;
    cl_uint *expected;
    bool outside;
    cl_int answers;
    _Atomic int calls;
};

static void CL_CALLBACK free_them(cl_command_queue queue, cl_uint count, void *pointers[],
                                  void *data)
{
    struct freeing *freeing = data;
    cl_context context = NULL;
    freeing->outside = !gate_is_inside();
    freeing->answers =
        clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof(context), &context, NULL);
    if (queue == freeing->queue && context == freeing->context && count == 1 &&
        pointers[0] == freeing->expected)
        clSVMFree(context, pointers[0]);
    atomic_fetch_add(&freeing->calls, 1);
}

Test(pins, freeing_waits_in_the_queue_and_calls_the_program_outside_the_gate)
{
    struct engine_rig rig;
    struct engine_program p;
    cl_int error, status;
    cl_event freed;
    engine_rig_open_pocl(&rig, "basic pthread");
    engine_program_open(&rig, 0, source, &p);
    cl_event go = MADE(clCreateUserEvent, p.context);
    struct freeing freeing = {p.context, p.queue, words_new(p.context, 0), false, 0, 0};
    void *list[] = {freeing.expected};
    fill(p.queue, freeing.expected, 3);
    OK(clEnqueueSVMFree(p.queue, 1, list, free_them, &freeing, 1, &go, &freed));
    list[0] = NULL; /* the list is the program's again */
    cl_command_type type;
    OK(clGetEventInfo(freed, CL_EVENT_COMMAND_TYPE, sizeof(type), &type, NULL));
    cr_expect_eq(type, CL_COMMAND_SVM_FREE);
    cl_command_queue other = MADE(clCreateCommandQueue, p.context, rig.device, 0);
    expect_words(other, freeing.expected, 3);
    OK(clReleaseCommandQueue(other));
    cr_expect_eq(atomic_load(&freeing.calls), 0);
    expect_refused(&rig, "shared virtual memory");
    OK(clSetUserEventStatus(go, CL_COMPLETE));
    OK(clFinish(p.queue)); /* which waits for the function too */
    cr_expect_eq(atomic_load(&freeing.calls), 1);
    cr_expect(freeing.outside);
    cr_expect_eq(freeing.answers, CL_SUCCESS);
    OK(clGetEventInfo(freed, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    cr_expect_eq(status, CL_COMPLETE);
    RELEASE(freed, go);
    expect_free(&rig);

    /* What it waits for ends in error: nothing is freed. */
    freeing.expected = list[0] = words_new(p.context, 0);
    go = clCreateUserEvent(p.context, &error);
    OK(clEnqueueSVMFree(p.queue, 1, list, free_them, &freeing, 1, &go, &freed));
    OK(clSetUserEventStatus(go, -7));
    cr_expect_eq(clWaitForEvents(1, &freed), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_expect_eq(atomic_load(&freeing.calls), 1);
    expect_refused(&rig, "shared virtual memory");
    RELEASE(freed, go);
    clSVMFree(p.context, freeing.expected);
    engine_program_close(&p);
}

/* Arguments of their time, clones, and pointers behind pointers. */
Test(pins, kernels_keep_their_pointers)
{
    struct engine_rig rig;
    struct engine_program p;
    cl_uint five = 5, seven = 7;
    engine_rig_open_pocl_on(&rig, "basic pthread", "pthread");
    engine_program_open(&rig, 0, source, &p);
    cl_uint *a = words_new(p.context, 0), *b = words_new(p.context, 0);
    fill(p.queue, a, 0);
    fill(p.queue, b, 0);
    cl_kernel add = engine_kernel(p.program, "add");
    cr_expect_eq(clSetKernelArgSVMPointer(add, 2, a), CL_INVALID_ARG_INDEX);
    cr_expect_eq(clSetKernelArgSVMPointer(NULL, 0, a), CL_INVALID_KERNEL);
    OK(clSetKernelArgSVMPointer(add, 0, a));
    OK(clSetKernelArg(add, 1, sizeof(five), &five));
    launch(p.queue, add, NULL);
    cl_kernel clone = MADE(clCloneKernel, add);
    /* Held: a launch has the pointer that was set when it was enqueued. */
    cl_event go = MADE(clCreateUserEvent, p.context);
    launch(p.queue, add, go);
    OK(clSetKernelArgSVMPointer(add, 0, b));
    OK(clSetKernelArg(add, 1, sizeof(seven), &seven));
    launch(p.queue, add, go);
    launch(p.queue, clone, go);
    OK(clSetUserEventStatus(go, CL_COMPLETE));
    OK(clFinish(p.queue));
    expect_words(p.queue, a, 15);
    expect_words(p.queue, b, 7);

    void **node = clSVMAlloc(p.context, CL_MEM_READ_WRITE, sizeof(*node), 0);
    cr_assert_not_null(node);
    OK(clEnqueueSVMMemcpy(p.queue, CL_TRUE, node, &a, sizeof(a), 0, NULL, NULL));
    cl_kernel follow = engine_kernel(p.program, "follow");
    void *list[] = {a};
    const cl_bool no = CL_FALSE, yes = CL_TRUE;
    cr_expect_eq(clSetKernelExecInfo(NULL, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof(list), list),
                 CL_INVALID_KERNEL);
    cr_expect_eq(clSetKernelExecInfo(follow, CL_KERNEL_EXEC_INFO_SVM_PTRS, 3, list),
                 CL_INVALID_VALUE);
    cr_expect_eq(clSetKernelExecInfo(follow, CL_KERNEL_EXEC_INFO_SVM_PTRS, 8, NULL),
                 CL_INVALID_VALUE);
    cr_expect_eq(clSetKernelExecInfo(follow, 0, 8, list), CL_INVALID_VALUE);
    cr_expect_eq(
        clSetKernelExecInfo(follow, CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM, sizeof(yes), &yes),
        CL_INVALID_OPERATION);
    OK(clSetKernelExecInfo(follow, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof(list), list));
    OK(clSetKernelExecInfo(follow, CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM, sizeof(no), &no));
    OK(clSetKernelArgSVMPointer(follow, 0, node));
    OK(clSetKernelArg(follow, 1, sizeof(five), &five));
    launch(p.queue, follow, NULL);
    cl_kernel follows = MADE(clCloneKernel, follow);
    launch(p.queue, follows, NULL);
    OK(clFinish(p.queue));
    expect_words(p.queue, a, 25);

    OK(clReleaseEvent(go));
    clSVMFree(p.context, a);
    clSVMFree(p.context, b);
    clSVMFree(p.context, node);
    /* They still name what was freed, and are moved all the same. */
    expect_free(&rig);
    RELEASE(add, clone, follow, follows);
    engine_program_close(&p);
}

Test(pins, buffers_over_shared_virtual_memory_are_that_memory)
{
    struct engine_rig rig;
    struct engine_program p;
    cl_uint value = 9;
    engine_rig_open_pocl_on(&rig, "basic pthread", "pthread");
    engine_program_open(&rig, 0, source, &p);
    cl_uint *words = words_new(p.context, CL_MEM_SVM_FINE_GRAIN_BUFFER);
    memset(words, 0, SIZE);
    cl_mem buffer = engine_buffer(p.context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, SIZE, words);
    cl_mem plain = engine_buffer(p.context, CL_MEM_READ_WRITE, SIZE, NULL);
    const cl_buffer_region region = {0, SIZE / 2};
    cl_mem part = MADE(clCreateSubBuffer, buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
    const struct {
        cl_mem memory;
        cl_bool uses;
    } expected[] = {{buffer, CL_TRUE}, {part, CL_TRUE}, {plain, CL_FALSE}};
    for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
        cl_bool uses = 5;
        OK(clGetMemObjectInfo(expected[i].memory, CL_MEM_USES_SVM_POINTER, sizeof(uses), &uses,
                              NULL));
        cr_expect_eq(uses, expected[i].uses, "object %zu", i);
    }
    cl_kernel add = engine_kernel(p.program, "add");
    ARGS(add, buffer, value);
    launch(p.queue, add, NULL);
    OK(clFinish(p.queue));
    for (size_t i = 0; i < WORDS; i++)
        cr_assert_eq(words[i], 9, "word %zu", i);
    RELEASE(add, part, plain, buffer);
    clSVMFree(p.context, words);
    engine_program_close(&p);
}

/* Races: a program pins itself while it is being moved. */

static cl_context racing;
static cl_uint *raced;
static bool race_over;

static cl_context CL_API_CALL pins_meanwhile(const cl_context_properties *properties, cl_uint count,
                                             const cl_device_id *devices,
                                             void(CL_CALLBACK *notify)(const char *, const void *,
                                                                       size_t, void *),
                                             void *data, cl_int *ret_error)
{
    if (!raced)
        raced = words_new(racing, 0);
    return real_calls.clCreateContext(properties, count, devices, notify, data, ret_error);
}

Test(pins, a_program_that_pins_itself_in_prepare_stays_where_it_is)
{
    struct engine_rig rig;
    struct engine_program p;
    struct move_report report;
    cl_uint value = 4;
    engine_rig_open_pocl(&rig, "basic pthread");
    change_calls(rig.devices[1])->clCreateContext = pins_meanwhile;
    engine_program_open(&rig, 0, source, &p);
    racing = p.context;
    cl_kernel add = engine_kernel(p.program, "add");
    OK(clSetKernelArg(add, 1, sizeof(value), &value));
    cr_assert_eq(engine_rig_move(&rig, rig.devices[1]->key.device, &report), MOVE_REFUSED, "%s: %s",
                 move_result_name(report.result), report.reason);
    cr_assert_not_null(raced);
    cr_assert_gt(report.reached, MOVE_PLAN);
    cr_assert_lt(report.reached, MOVE_COMMIT);
    cr_assert(strstr(report.reason, "shared virtual memory"), "%s", report.reason);
    fill(p.queue, raced, 1);
    OK(clSetKernelArgSVMPointer(add, 0, raced));
    launch(p.queue, add, NULL);
    expect_words(p.queue, raced, 5);
    expect_refused(&rig, "shared virtual memory");
    clSVMFree(p.context, raced);
    expect_free(&rig);
    OK(clReleaseKernel(add));
    engine_program_close(&p);
}

static void *pin_later(void *unused)
{
    (void)unused;
    raced = words_new(racing, 0);
    return NULL;
}

static pthread_t later;

/* Called with the gate closed, just before COMMIT. */
static cl_int CL_API_CALL finishes(cl_command_queue queue)
{
    if (!race_over && atomic_load(&gate_closed)) {
        race_over = true;
        cr_assert_eq(pthread_create(&later, NULL, pin_later, NULL), 0);
        engine_rig_sleep(50); /* most of the time it waits at the gate by then */
    }
    return real_calls.clFinish(queue);
}

Test(pins, a_program_that_pins_itself_in_copy_does_so_on_the_new_device)
{
    struct engine_rig rig;
    struct engine_program p;
    struct move_report report;
    cl_uint value = 4;
    engine_rig_open_pocl(&rig, "basic pthread");
    change_calls(rig.devices[1])->clFinish = finishes;
    engine_program_open(&rig, 0, source, &p);
    racing = p.context;
    cl_kernel add = engine_kernel(p.program, "add");
    engine_rig_moves(&rig, rig.devices[1]->key.device);
    cr_assert(race_over);
    cr_assert_eq(pthread_join(later, NULL), 0);
    fill(p.queue, raced, 1);
    OK(clSetKernelArg(add, 1, sizeof(value), &value));
    OK(clSetKernelArgSVMPointer(add, 0, raced));
    launch(p.queue, add, NULL);
    expect_words(p.queue, raced, 5);
    cr_assert_eq(engine_rig_move(&rig, rig.devices[0]->key.device, &report), MOVE_REFUSED);
    cr_assert_eq(report.reached, MOVE_PLAN);
    clSVMFree(p.context, raced);
    engine_rig_moves(&rig, rig.devices[0]->key.device);
    OK(clReleaseKernel(add));
    engine_program_close(&p);
}
