#include <CL/cl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "state/driver/between.h"

/*
 * Many devices at once: every device of every platform.
 *
 *   bench-many program            one program on each, in a context of its own, all at once, and a
 *                                 launch that is compared. A device may fail. `begins` is printed
 *                                 before.
 *   bench-many ptrans N SIDE WAY  HPCC's PTRANS on the first N: A = A^T + B, of SIDE * SIDE blocks
 *                                 of BLOCK * BLOCK numbers, laid out block-cyclically. WAY is
 *                                 `copy` (the devices have one context, in which blocks are
 *                                 copied), `host` (each has its own, and blocks come to this
 *                                 process and go on), or `direct` (the same without that: by the
 *                                 remote driver's own function). The result is compared.
 *
 *   bench-many tasks COUNT ITEMS  so many launches, of ITEMS work-items each, which all devices
 * take from one list, in one context. A line of its number for each that is done, then the seconds
 * of all. The results are compared.
 *
 * tests/bench/many.py starts the devices and draws the table; tests/bench/joined.py has devices
 * join those that work on the tasks.
 */

#define DEVICES_MAX 64
#define BLOCK       128
#define BLOCK_BYTES (sizeof(float) * BLOCK * BLOCK)

struct node {
    cl_device_id device;
    cl_context context;
    cl_command_queue work, carry;
    cl_program program;
    cl_kernel kernel;
    cl_mem a, b, c, received;
    size_t blocks; /* Of each matrix. */
};

static struct node nodes[DEVICES_MAX];
static size_t node_count;
static between_function between;

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void check(cl_int error, const char *what)
{
    if (error == CL_SUCCESS)
        return;
    fprintf(stderr, "%s: error %d\n", what, error);
    exit(1);
}

static void find_devices(void)
{
    cl_platform_id platforms[DEVICES_MAX];
    cl_uint count = 0;
    check(clGetPlatformIDs(DEVICES_MAX, platforms, &count), "clGetPlatformIDs");
    for (cl_uint i = 0; i < count; i++) {
        cl_device_id devices[DEVICES_MAX];
        cl_uint found = 0;
        check(clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, DEVICES_MAX, devices, &found),
              "clGetDeviceIDs");
        for (cl_uint j = 0; j < found && node_count < DEVICES_MAX; j++)
            nodes[node_count++].device = devices[j];
    }
    between =
        (between_function)clGetExtensionFunctionAddressForPlatform(platforms[0], BETWEEN_NAME);
}

/* ---- programs ---- */

static const char *const source =
    "kernel void add_transposed(global float *c, global const float *a, global const float *b,\n"
    "                           uint a_at, uint at)\n"
    "{\n"
    "    uint x = get_global_id(0), y = get_global_id(1);\n"
    "    c[at + y * BLOCK + x] = a[a_at + x * BLOCK + y] + b[at + y * BLOCK + x];\n"
    "}\n";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static size_t building;

static void CL_CALLBACK on_built(cl_program program, void *data)
{
    (void)program, (void)data;
    pthread_mutex_lock(&lock);
    building--;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static cl_int built(const struct node *node)
{
    cl_build_status status = CL_BUILD_NONE;
    cl_int error = clGetProgramBuildInfo(node->program, node->device, CL_PROGRAM_BUILD_STATUS,
                                         sizeof(status), &status, NULL);
    return error ? error : status;
}

/* All at once. Nodes whose device fails have no program afterwards. */
static void build_all(size_t count)
{
    char options[32];
    snprintf(options, sizeof(options), "-DBLOCK=%d", BLOCK);
    building = count;
    for (size_t i = 0; i < count; i++) {
        struct node *node = &nodes[i];
        cl_int error = CL_INVALID_CONTEXT;
        if (node->context)
            node->program =
                clCreateProgramWithSource(node->context, 1, (const char **)&source, NULL, &error);
        if (!node->program ||
            clBuildProgram(node->program, 1, &node->device, options, on_built, NULL) != CL_SUCCESS)
            on_built(NULL, NULL);
    }
    pthread_mutex_lock(&lock);
    while (building)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < count; i++)
        if (nodes[i].program && built(&nodes[i]) != CL_SUCCESS) {
            clReleaseProgram(nodes[i].program);
            nodes[i].program = NULL;
        }
}

static void open_nodes(size_t count, int together)
{
    cl_device_id devices[DEVICES_MAX];
    cl_int error;
    for (size_t i = 0; i < count; i++)
        devices[i] = nodes[i].device;
    for (size_t i = 0; i < count; i++) {
        nodes[i].context = together && i ? nodes[0].context
                                         : clCreateContext(NULL, together ? (cl_uint)count : 1,
                                                           &devices[i], NULL, NULL, &error);
        if (!nodes[i].context)
            fprintf(stderr, "device %zu: clCreateContext: error %d\n", i, error);
    }
}

/* ---- PTRANS ---- */

struct grid {
    size_t devices, rows, columns; /* Of devices. */
    size_t side;                   /* Of the matrix, in blocks. */
};

/* As square as can be. */
static struct grid grid_of(size_t devices, size_t side)
{
    struct grid grid = {devices, 1, devices, side};
    for (size_t rows = 1; rows * rows <= devices; rows++)
        if (devices % rows == 0)
            grid = (struct grid){devices, rows, devices / rows, side};
    return grid;
}

static size_t owner(const struct grid *grid, size_t i, size_t j)
{
    return i % grid->rows * grid->columns + j % grid->columns;
}

/* Where a block is in its owner's matrices: the number of those of its owner before it. */
static size_t place(const struct grid *grid, size_t i, size_t j)
{
    size_t columns = grid->side / grid->columns + (grid->side % grid->columns != 0);
    return i / grid->rows * columns + j / grid->columns;
}

static float value(size_t matrix, size_t row, size_t column)
{
    return (float)((row * 31 + column * 17 + matrix * 7) % 1021);
}

static void fill_block(float *block, size_t matrix, size_t i, size_t j)
{
    for (size_t y = 0; y < BLOCK; y++)
        for (size_t x = 0; x < BLOCK; x++)
            block[y * BLOCK + x] = value(matrix, i * BLOCK + y, j * BLOCK + x);
}

static void write_matrices(const struct grid *grid)
{
    float block[BLOCK * BLOCK];
    for (size_t i = 0; i < grid->side; i++)
        for (size_t j = 0; j < grid->side; j++) {
            const struct node *node = &nodes[owner(grid, i, j)];
            for (size_t matrix = 0; matrix < 2; matrix++) {
                fill_block(block, matrix, i, j);
                check(clEnqueueWriteBuffer(node->carry, matrix ? node->b : node->a, CL_TRUE,
                                           place(grid, i, j) * BLOCK_BYTES, BLOCK_BYTES, block, 0,
                                           NULL, NULL),
                      "clEnqueueWriteBuffer");
            }
        }
}

/* Wrong numbers of the result. */
static size_t compare(const struct grid *grid)
{
    float block[BLOCK * BLOCK];
    size_t wrong = 0;
    for (size_t i = 0; i < grid->side; i++)
        for (size_t j = 0; j < grid->side; j++) {
            const struct node *node = &nodes[owner(grid, i, j)];
            check(clEnqueueReadBuffer(node->carry, node->c, CL_TRUE,
                                      place(grid, i, j) * BLOCK_BYTES, BLOCK_BYTES, block, 0, NULL,
                                      NULL),
                  "clEnqueueReadBuffer");
            for (size_t y = 0; y < BLOCK; y++)
                for (size_t x = 0; x < BLOCK; x++)
                    wrong += block[y * BLOCK + x] != value(0, j * BLOCK + x, i * BLOCK + y) +
                                                         value(1, i * BLOCK + y, j * BLOCK + x);
        }
    return wrong;
}

/* Has @node add block (i, j), whose other one is in @a, from @a_at on. */
static void launch(struct node *node, cl_mem a, size_t a_at, size_t at, const cl_event *after)
{
    const size_t size[2] = {BLOCK, BLOCK}, group[2] = {16, 16};
    cl_uint a_first = (cl_uint)(a_at * BLOCK * BLOCK), first = (cl_uint)(at * BLOCK * BLOCK);
    check(clSetKernelArg(node->kernel, 0, sizeof(cl_mem), &node->c), "clSetKernelArg");
    check(clSetKernelArg(node->kernel, 1, sizeof(cl_mem), &a), "clSetKernelArg");
    check(clSetKernelArg(node->kernel, 2, sizeof(cl_mem), &node->b), "clSetKernelArg");
    check(clSetKernelArg(node->kernel, 3, sizeof(a_first), &a_first), "clSetKernelArg");
    check(clSetKernelArg(node->kernel, 4, sizeof(first), &first), "clSetKernelArg");
    check(clEnqueueNDRangeKernel(node->work, node->kernel, 2, NULL, size, group, after != NULL,
                                 after, NULL),
          "clEnqueueNDRangeKernel");
}

enum way { COPY, HOST, DIRECT };
static const char *const ways[] = {"copy", "host", "direct"};

struct share {
    pthread_t thread;
    const struct grid *grid;
    size_t node;
    enum way way;
};

static void bring(const struct share *share, size_t i, size_t j)
{
    const struct grid *grid = share->grid;
    struct node *to = &nodes[share->node], *from = &nodes[owner(grid, j, i)];
    size_t origin = place(grid, j, i) * BLOCK_BYTES, target = place(grid, i, j) * BLOCK_BYTES;
    float block[BLOCK * BLOCK];
    cl_event arrived = NULL;
    if (share->way == DIRECT) {
        check(between(from->carry, to->carry, from->a, to->received, origin, target, BLOCK_BYTES, 0,
                      NULL, &arrived),
              BETWEEN_NAME);
    } else if (share->way == COPY) {
        check(clEnqueueCopyBuffer(to->carry, from->a, to->received, origin, target, BLOCK_BYTES, 0,
                                  NULL, &arrived),
              "clEnqueueCopyBuffer");
    } else {
        check(clEnqueueReadBuffer(from->carry, from->a, CL_TRUE, origin, BLOCK_BYTES, block, 0,
                                  NULL, NULL),
              "clEnqueueReadBuffer");
        check(clEnqueueWriteBuffer(to->carry, to->received, CL_TRUE, target, BLOCK_BYTES, block, 0,
                                   NULL, &arrived),
              "clEnqueueWriteBuffer");
    }
    launch(to, to->received, place(grid, i, j), place(grid, i, j), &arrived);
    check(clReleaseEvent(arrived), "clReleaseEvent");
}

/* All blocks of one device: first those that are there. */
static void *run_share(void *data)
{
    const struct share *share = data;
    const struct grid *grid = share->grid;
    struct node *node = &nodes[share->node];
    for (int remote = 0; remote < 2; remote++)
        for (size_t i = 0; i < grid->side; i++)
            for (size_t j = 0; j < grid->side; j++) {
                if (owner(grid, i, j) != share->node ||
                    (owner(grid, j, i) != share->node) != (remote != 0))
                    continue;
                if (remote)
                    bring(share, i, j);
                else
                    launch(node, node->a, place(grid, j, i), place(grid, i, j), NULL);
            }
    check(clFinish(node->work), "clFinish");
    return NULL;
}

static cl_mem make_buffer(const struct node *node)
{
    cl_int error;
    cl_mem buffer = clCreateBuffer(node->context, 0, node->blocks * BLOCK_BYTES, NULL, &error);
    check(error, "clCreateBuffer");
    return buffer;
}

static void prepare(const struct grid *grid, enum way way)
{
    cl_int error;
    open_nodes(grid->devices, way == COPY);
    build_all(grid->devices);
    for (size_t i = 0; i < grid->devices; i++) {
        struct node *node = &nodes[i];
        check(node->program ? CL_SUCCESS : CL_BUILD_PROGRAM_FAILURE, "a build");
        node->blocks = place(grid, grid->side - 1, grid->side - 1) + grid->side + 1;
        node->work = clCreateCommandQueue(node->context, node->device,
                                          CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &error);
        check(error, "clCreateCommandQueue");
        node->carry = clCreateCommandQueue(node->context, node->device,
                                           CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &error);
        check(error, "clCreateCommandQueue");
        node->kernel = clCreateKernel(node->program, "add_transposed", &error);
        check(error, "clCreateKernel");
        node->a = make_buffer(node);
        node->b = make_buffer(node);
        node->c = make_buffer(node);
        node->received = make_buffer(node);
        /* The first launch compiles for its work-groups. */
        launch(node, node->a, 0, 0, NULL);
        check(clFinish(node->work), "clFinish");
    }
}

static int bench_ptrans(size_t devices, size_t side, const char *named)
{
    const struct grid grid = grid_of(devices, side);
    struct share shares[DEVICES_MAX];
    enum way way = COPY;
    while (way < DIRECT && strcmp(named, ways[way]) != 0)
        way++;
    if (devices == 0 || devices > node_count || side == 0 || strcmp(named, ways[way]) != 0 ||
        (way == DIRECT && !between)) {
        fprintf(stderr, "there are %zu devices%s\n", node_count,
                between ? "" : ", which do not reach each other");
        return 1;
    }
    prepare(&grid, way);
    write_matrices(&grid);
    double before = now();
    for (size_t i = 0; i < devices; i++) {
        shares[i] = (struct share){.grid = &grid, .node = i, .way = way};
        check(pthread_create(&shares[i].thread, NULL, run_share, &shares[i]), "pthread_create");
    }
    for (size_t i = 0; i < devices; i++)
        pthread_join(shares[i].thread, NULL);
    double took = now() - before;
    size_t wrong = compare(&grid);
    printf("{\"devices\": %zu, \"side\": %zu, \"block\": %d, \"way\": \"%s\", \"seconds\": %.3f, "
           "\"wrong\": %zu}\n",
           devices, side, BLOCK, ways[way], took, wrong);
    return wrong != 0;
}

/* ---- programming ---- */

/* Whether the device computes what it was programmed for. */
static int computes(struct node *node)
{
    const size_t size[2] = {BLOCK, BLOCK};
    static float block[BLOCK * BLOCK];
    float got[2] = {0, 0};
    const cl_uint zero = 0;
    cl_int error;
    if (!node->program)
        return 0;
    fill_block(block, 0, 0, 0);
    cl_mem given = clCreateBuffer(node->context, CL_MEM_COPY_HOST_PTR, BLOCK_BYTES, block, &error);
    cl_mem sum = clCreateBuffer(node->context, 0, BLOCK_BYTES, NULL, &error);
    cl_command_queue queue = clCreateCommandQueue(node->context, node->device, 0, &error);
    cl_kernel kernel = clCreateKernel(node->program, "add_transposed", &error);
    int good = given && sum && queue && kernel;
    const void *const arguments[] = {&sum, &given, &given, &zero, &zero};
    for (cl_uint i = 0; i < 5 && good; i++)
        good = !clSetKernelArg(kernel, i, i < 3 ? sizeof(cl_mem) : sizeof(zero), arguments[i]);
    return good && !clEnqueueNDRangeKernel(queue, kernel, 2, NULL, size, NULL, 0, NULL, NULL) &&
           !clEnqueueReadBuffer(queue, sum, CL_TRUE, BLOCK_BYTES - sizeof(got), sizeof(got), got, 0,
                                NULL, NULL) &&
           got[1] == 2 * block[BLOCK * BLOCK - 1] &&
           got[0] == block[BLOCK * BLOCK - 2] + block[BLOCK * (BLOCK - 1) - 1];
}

static int bench_program(void)
{
    size_t programmed = 0, good = 0;
    open_nodes(node_count, 0);
    printf("begins\n");
    fflush(stdout);
    double before = now();
    build_all(node_count);
    double took = now() - before;
    for (size_t i = 0; i < node_count; i++) {
        programmed += nodes[i].program != NULL;
        good += computes(&nodes[i]) != 0;
    }
    printf("{\"devices\": %zu, \"seconds\": %.3f, \"programmed\": %zu, \"compute\": %zu}\n",
           node_count, took, programmed, good);
    return 0;
}

/* ---- tasks ---- */

static const char *const task_source =
    "kernel void task(global uint *out, uint number)\n"
    "{\n"
    "    out[get_global_id(0)] = number * 2654435761u + get_global_id(0);\n"
    "}\n";

static struct {
    pthread_mutex_t lock;
    size_t next, done, count, items;
    cl_program program;
    cl_context context;
} tasks = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t task_take(void)
{
    pthread_mutex_lock(&tasks.lock);
    size_t number = tasks.next < tasks.count ? tasks.next++ : tasks.count;
    pthread_mutex_unlock(&tasks.lock);
    return number;
}

static void task_end(void)
{
    pthread_mutex_lock(&tasks.lock);
    printf("%zu\n", ++tasks.done);
    fflush(stdout);
    pthread_mutex_unlock(&tasks.lock);
}

/* Some of the tasks of one device, which has another when one has ended. */
static void *run_tasks(void *data)
{
    const struct node *node = data;
    cl_int error;
    size_t bytes = tasks.items * sizeof(cl_uint);
    cl_uint *got = malloc(bytes);
    cl_kernel kernel = clCreateKernel(tasks.program, "task", &error);
    check(error, "clCreateKernel");
    cl_mem buffer = clCreateBuffer(tasks.context, 0, bytes, NULL, &error);
    check(error, "clCreateBuffer");
    check(got ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY, "malloc");
    check(clSetKernelArg(kernel, 0, sizeof(buffer), &buffer), "clSetKernelArg");
    for (size_t number; (number = task_take()) < tasks.count; task_end()) {
        const cl_uint which = (cl_uint)number;
        check(clSetKernelArg(kernel, 1, sizeof(which), &which), "clSetKernelArg");
        check(
            clEnqueueNDRangeKernel(node->work, kernel, 1, NULL, &tasks.items, NULL, 0, NULL, NULL),
            "clEnqueueNDRangeKernel");
        check(clEnqueueReadBuffer(node->work, buffer, CL_TRUE, 0, bytes, got, 0, NULL, NULL),
              "clEnqueueReadBuffer");
        for (size_t i = 0; i < tasks.items; i++)
            check(got[i] == which * 2654435761u + (cl_uint)i ? CL_SUCCESS : CL_INVALID_VALUE,
                  "a result");
    }
    free(got);
    return NULL;
}

static int bench_tasks(size_t count, size_t items)
{
    cl_device_id devices[DEVICES_MAX];
    pthread_t threads[2 * DEVICES_MAX];
    cl_int error;
    for (size_t i = 0; i < node_count; i++)
        devices[i] = nodes[i].device;
    tasks.count = count;
    tasks.items = items;
    tasks.context = clCreateContext(NULL, (cl_uint)node_count, devices, NULL, NULL, &error);
    check(error, "clCreateContext");
    tasks.program =
        clCreateProgramWithSource(tasks.context, 1, (const char **)&task_source, NULL, &error);
    check(error, "clCreateProgramWithSource");
    check(clBuildProgram(tasks.program, 0, NULL, "", NULL, NULL), "clBuildProgram");
    for (size_t i = 0; i < node_count; i++) {
        nodes[i].work = clCreateCommandQueue(tasks.context, devices[i], 0, &error);
        check(error, "clCreateCommandQueue");
    }
    printf("begins\n");
    fflush(stdout);
    double before = now();
    for (size_t i = 0; i < 2 * node_count; i++)
        check(pthread_create(&threads[i], NULL, run_tasks, &nodes[i % node_count]),
              "pthread_create");
    for (size_t i = 0; i < 2 * node_count; i++)
        pthread_join(threads[i], NULL);
    printf("{\"devices\": %zu, \"tasks\": %zu, \"seconds\": %.3f}\n", node_count, count,
           now() - before);
    return 0;
}

int main(int argc, char **argv)
{
    find_devices();
    if (argc == 4 && !strcmp(argv[1], "tasks"))
        return bench_tasks(strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10));
    if (argc == 2 && !strcmp(argv[1], "program"))
        return bench_program();
    if (argc == 5 && !strcmp(argv[1], "ptrans"))
        return bench_ptrans(strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10), argv[4]);
    fprintf(stderr, "usage: bench-many program | ptrans DEVICES SIDE copy|host|direct | "
                    "tasks COUNT ITEMS\n");
    return 2;
}
