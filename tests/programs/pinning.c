/**
 * A program that uses what cannot be carried from device to device, and checks every word of it.
 *
 *   pinning svm|fine|native|subdevices|variables
 *
 * Where the device does not offer it, it says so and makes sure that every call of it is refused.
 */
#include "prog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 4096, BYTES = WORDS * 4, ROUNDS = 8 };

static const char source[] = "__kernel void stir(__global uint *a, uint k) {\n"
                             "    a[get_global_id(0)] = a[get_global_id(0)] * 3u + k;\n"
                             "}\n"
                             "struct node { __global uint *a; uint k; };\n"
                             "__kernel void walk(__global const struct node *n) {\n"
                             "    n->a[get_global_id(0)] ^= n->k + get_global_id(0);\n"
                             "}\n";

struct node {
    uint32_t *words;
    uint32_t key;
};

static cl_ulong device_number(const struct prog *p, cl_device_info name)
{
    cl_ulong value = 0;

    if (clGetDeviceInfo(p->device, name, sizeof value, &value, NULL) != CL_SUCCESS)
        return 0;
    return value;
}

static void expect_mixed(uint32_t *want, uint32_t key)
{
    for (uint32_t i = 0; i < WORDS; i++)
        want[i] = want[i] * 3u + key;
}

static void expect_walked(uint32_t *want, uint32_t key)
{
    for (uint32_t i = 0; i < WORDS; i++)
        want[i] ^= key + i;
}

static uint64_t sum_of(const uint32_t *words)
{
    uint64_t sum = 0;

    sum_bytes(&sum, words, BYTES);
    return sum;
}

/* Shared virtual memory: coarse-grained is mapped to be looked at, fine-grained is not. */

struct svm {
    const struct prog *p;
    cl_kernel stir, walk;
    uint32_t *words, *copy;
    struct node *node;
    bool fine;
};

static void to_host(const struct svm *s, void *pointer, size_t size)
{
    if (!s->fine)
        OK(clEnqueueSVMMap(s->p->queue, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, pointer, size, 0, NULL,
                           NULL));
}

static void to_device(const struct svm *s, void *pointer)
{
    if (!s->fine)
        OK(clEnqueueSVMUnmap(s->p->queue, pointer, 0, NULL, NULL));
}

static void CL_CALLBACK free_list(cl_command_queue queue, cl_uint count, void *list[], void *data)
{
    cl_context context;

    OK(clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL));
    for (cl_uint i = 0; i < count; i++)
        clSVMFree(context, list[i]);
    *(cl_uint *)data += count;
}

static uint64_t svm_pass(const struct svm *s)
{
    uint32_t *want = prog_alloc(BYTES), *got = prog_alloc(BYTES);
    const uint32_t pattern[2] = {0x01234567, 0x89abcdef};
    cl_command_queue q = s->p->queue;
    cl_int err;

    OK(clEnqueueSVMMemFill(q, s->words, pattern, sizeof pattern, BYTES, 0, NULL, NULL));
    for (size_t i = 0; i < WORDS; i++)
        want[i] = pattern[i % 2];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        cl_event go = clCreateUserEvent(s->p->context, &err);
        const size_t items = WORDS;

        OK(err);
        OK(clSetKernelArgSVMPointer(s->stir, 0, s->words));
        prog_arg(s->stir, 1, sizeof round, &round);
        OK(clEnqueueNDRangeKernel(q, s->stir, 1, NULL, &items, NULL, 1, &go, NULL));
        expect_mixed(want, round);
        OK(clSetUserEventStatus(go, CL_COMPLETE));
        OK(clFinish(q));
        to_host(s, s->node, sizeof *s->node);
        *s->node = (struct node){s->words, round * 77};
        to_device(s, s->node);
        OK(clSetKernelArgSVMPointer(s->walk, 0, s->node));
        OK(clSetKernelExecInfo(s->walk, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof s->words, &s->words));
        prog_run(q, s->walk, WORDS);
        expect_walked(want, round * 77);
        OK(clEnqueueSVMMemcpy(q, CL_TRUE, s->copy, s->words, BYTES, 0, NULL, NULL));
        to_host(s, s->copy, BYTES);
        prog_same("the copy", s->copy, want, BYTES);
        to_device(s, s->copy);
        OK(clReleaseEvent(go));
    }
    OK(clEnqueueSVMMemcpy(q, CL_TRUE, got, s->words, BYTES, 0, NULL, NULL));
    prog_same("the words", got, want, BYTES);
    uint64_t sum = sum_of(got);
    free(got);
    free(want);
    return sum;
}

static uint64_t run_svm(const struct prog *p, bool fine)
{
    const cl_svm_mem_flags flags = CL_MEM_READ_WRITE | (fine ? CL_MEM_SVM_FINE_GRAIN_BUFFER : 0);
    cl_program program = prog_build(p, source, "");
    struct svm s = {.p = p,
                    .stir = prog_kernel(program, "stir"),
                    .walk = prog_kernel(program, "walk"),
                    .words = clSVMAlloc(p->context, flags, BYTES, 0),
                    .copy = clSVMAlloc(p->context, flags, BYTES, 64),
                    .node = clSVMAlloc(p->context, flags, sizeof(struct node), 0),
                    .fine = fine};
    void *list[] = {s.words, s.copy, s.node};
    cl_uint freed = 0;
    cl_event done;

    REQUIRE(s.words && s.copy && s.node);
    uint64_t sum = svm_pass(&s);
    while (prog_again())
        REQUIRE(svm_pass(&s) == sum);
    OK(clEnqueueSVMFree(p->queue, 3, list, free_list, &freed, 0, NULL, &done));
    OK(clWaitForEvents(1, &done));
    REQUIRE(freed == 3);
    RELEASE(done, s.stir, s.walk, program);
    return sum;
}

static void refuse_svm(const struct prog *p)
{
    cl_uint word = 0;
    void *list[] = {&word};
    cl_program program = prog_build(p, source, "");
    cl_kernel stir = prog_kernel(program, "stir");

    REQUIRE(!clSVMAlloc(p->context, CL_MEM_READ_WRITE, BYTES, 0));
    clSVMFree(p->context, &word);
    REQUIRE(clEnqueueSVMFree(p->queue, 1, list, NULL, NULL, 0, NULL, NULL) == CL_INVALID_OPERATION);
    REQUIRE(clEnqueueSVMMemcpy(p->queue, CL_TRUE, &word, list, 4, 0, NULL, NULL) ==
            CL_INVALID_OPERATION);
    REQUIRE(clEnqueueSVMMemFill(p->queue, &word, &word, 4, 4, 0, NULL, NULL) ==
            CL_INVALID_OPERATION);
    REQUIRE(clEnqueueSVMMap(p->queue, CL_TRUE, CL_MAP_READ, &word, 4, 0, NULL, NULL) ==
            CL_INVALID_OPERATION);
    REQUIRE(clEnqueueSVMUnmap(p->queue, &word, 0, NULL, NULL) == CL_INVALID_OPERATION);
    REQUIRE(clEnqueueSVMMigrateMem(p->queue, 1, (const void **)list, NULL, 0, 0, NULL, NULL) ==
            CL_INVALID_OPERATION);
    REQUIRE(clSetKernelArgSVMPointer(stir, 0, &word) == CL_INVALID_OPERATION);
    REQUIRE(clSetKernelExecInfo(stir, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof list, list) ==
            CL_INVALID_OPERATION);
    RELEASE(stir, program);
}

/* Native kernels. */

struct native {
    uint32_t *words[2]; /* set by the driver */
    uint32_t key;
};

static void CL_CALLBACK native_stir(void *data)
{
    const struct native *n = data;

    for (uint32_t i = 0; i < WORDS; i++)
        n->words[!(n->key % 2)][i] = n->words[n->key % 2][i] * 3u + n->key;
}

/* POCL 3.1 gives the addresses in the order in which buffers were made, whatever the list's is. */
static uint64_t native_pass(const struct prog *p, const cl_mem buffers[2])
{
    uint32_t *want = prog_alloc(BYTES), *got = prog_alloc(BYTES);

    for (uint32_t i = 0; i < WORDS; i++)
        want[i] = i * i;
    OK(clEnqueueWriteBuffer(p->queue, buffers[0], CL_TRUE, 0, BYTES, want, 0, NULL, NULL));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct native n = {{NULL, NULL}, round};
        const void *places[] = {&n.words[0], &n.words[1]};

        OK(clEnqueueNativeKernel(p->queue, native_stir, &n, sizeof n, 2, buffers, places, 0, NULL,
                                 NULL));
        memset(&n, 0xff, sizeof n);
        expect_mixed(want, round);
    }
    prog_read(p->queue, buffers[0], 0, BYTES, got);
    prog_same("what native kernels wrote", got, want, BYTES);
    uint64_t sum = sum_of(got);
    free(got);
    free(want);
    return sum;
}

static uint64_t run_native(const struct prog *p)
{
    const cl_mem buffers[] = {prog_buffer(p->context, CL_MEM_READ_WRITE, BYTES, NULL),
                              prog_buffer(p->context, CL_MEM_READ_WRITE, BYTES, NULL)};
    uint64_t sum = native_pass(p, buffers);

    while (prog_again())
        REQUIRE(native_pass(p, buffers) == sum);
    RELEASE(buffers[0], buffers[1]);
    return sum;
}

static void refuse_native(const struct prog *p)
{
    struct native n = {0};

    REQUIRE(clEnqueueNativeKernel(p->queue, native_stir, &n, sizeof n, 0, NULL, NULL, 0, NULL,
                                  NULL) == CL_INVALID_OPERATION);
}

/* Sub-devices: each with a queue and a program of its own, in one context. */

static uint64_t parts_pass(const struct prog *p, const cl_device_id *parts, cl_uint count)
{
    cl_int err;
    cl_context context = clCreateContext(NULL, count, parts, NULL, NULL, &err);
    uint32_t *want = prog_alloc(BYTES), *got = prog_alloc(BYTES);

    OK(err);
    for (uint32_t i = 0; i < WORDS; i++)
        want[i] = i;
    struct prog part = {.platform = p->platform, .device = parts[0], .context = context};
    const char *text = source;
    cl_program program = MADE(clCreateProgramWithSource, context, 1, &text, NULL);
    OK(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    cl_kernel stir = prog_kernel(program, "stir");
    cl_mem mem = prog_buffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BYTES, want);
    prog_arg(stir, 0, sizeof mem, &mem);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        part.device = parts[round % count];
        cl_command_queue queue = prog_queue(&part, 0);
        cl_device_id device;
        OK(clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL));
        REQUIRE(device == part.device);
        prog_arg(stir, 1, sizeof round, &round);
        prog_run(queue, stir, WORDS);
        expect_mixed(want, round);
        prog_read(queue, mem, 0, BYTES, got);
        prog_same("what parts of a device wrote", got, want, BYTES);
        OK(clReleaseCommandQueue(queue));
    }
    uint64_t sum = sum_of(got);
    RELEASE(mem, stir, program, context);
    free(got);
    free(want);
    return sum;
}

static uint64_t run_parts(const struct prog *p, cl_device_id parts[2])
{
    const cl_device_partition_property one_each[] = {CL_DEVICE_PARTITION_BY_COUNTS, 1, 1,
                                                     CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
    cl_device_id parent;
    cl_uint count = 0, units, references;

    OK(clCreateSubDevices(p->device, one_each, 2, parts, &count));
    REQUIRE(count == 2);
    for (cl_uint i = 0; i < count; i++) {
        OK(clGetDeviceInfo(parts[i], CL_DEVICE_PARENT_DEVICE, sizeof parent, &parent, NULL));
        REQUIRE(parent == p->device);
        OK(clGetDeviceInfo(parts[i], CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL));
        REQUIRE(units == 1);
        OK(clRetainDevice(parts[i]));
        OK(clGetDeviceInfo(parts[i], CL_DEVICE_REFERENCE_COUNT, sizeof references, &references,
                           NULL));
        REQUIRE(references == 2);
        OK(clReleaseDevice(parts[i]));
    }
    uint64_t sum = parts_pass(p, parts, count);
    while (prog_again())
        REQUIRE(parts_pass(p, parts, count) == sum);
    return sum;
}

static void refuse_parts(const struct prog *p)
{
    const cl_device_partition_property equally[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    cl_device_id parts[2];

    REQUIRE(clCreateSubDevices(p->device, equally, 2, parts, NULL) == CL_INVALID_VALUE);
}

/* Variables of a program, which keep their values from launch to launch. POCL 3.1 has them for each
 * kernel, and says that it has none. */

static const char counting[] = "__global uint count = 5;\n"
                               "__kernel void next(__global uint *a) { a[0] = count++; }\n";

static uint64_t run_variables(const struct prog *p)
{
    cl_program program = prog_build(p, counting, "-cl-std=CL2.0");
    cl_kernel next = prog_kernel(program, "next");
    cl_mem mem = prog_buffer(p->context, CL_MEM_READ_WRITE, 4, NULL);
    uint32_t want = 5, got;

    prog_arg(next, 0, sizeof mem, &mem);
    do {
        for (int i = 0; i < ROUNDS; i++) {
            prog_run(p->queue, next, 1);
            prog_read(p->queue, mem, 0, sizeof got, &got);
            REQUIRE(got == want++);
        }
    } while (prog_again());
    RELEASE(mem, next, program);
    return ROUNDS;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    bool svm = strcmp(what, "svm") == 0, fine = strcmp(what, "fine") == 0;
    bool native = strcmp(what, "native") == 0, parts = strcmp(what, "subdevices") == 0;
    bool variables = strcmp(what, "variables") == 0;
    cl_device_id halves[2] = {NULL};
    struct prog p;
    uint64_t sum;

    REQUIRE(svm || fine || native || parts || variables);
    prog_open(&p);
    cl_ulong capabilities = device_number(&p, CL_DEVICE_SVM_CAPABILITIES);
    if (!capabilities && (svm || fine)) {
        refuse_svm(&p);
    } else if (native &&
               !(device_number(&p, CL_DEVICE_EXECUTION_CAPABILITIES) & CL_EXEC_NATIVE_KERNEL)) {
        refuse_native(&p);
    } else if (parts && device_number(&p, CL_DEVICE_PARTITION_MAX_SUB_DEVICES) < 2) {
        refuse_parts(&p);
    } else {
        sum = native      ? run_native(&p)
              : parts     ? run_parts(&p, halves)
              : variables ? run_variables(&p)
                          : run_svm(&p, fine);
        printf("%s: %016llx\n", what, (unsigned long long)sum);
        prog_close(&p);
        fflush(stdout);
        if (parts) {
            /* POCL 3.1's threads look at a part after its release, and now and then crash. */
            RELEASE(halves[0], halves[1]);
            _exit(0);
        }
        return 0;
    }
    printf("%s: not offered\n", what);
    prog_close(&p);
    return 0;
}
