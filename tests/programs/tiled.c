/**
 * A tiled matrix product that picks its tile from the device it has, and picks again when it is
 * told of another one: what a program does with reseat.h.
 *
 *   tiled [--size N] [--passes N] [--seed N] [--log FILE]
 *
 * Every element is compared with a product made on the host. Natively it does the same with one
 * device. FILE gets a line for each choice: the tile, the device's work-group limit, its name.
 */
#include "prog.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policy/reseat.h"

/* Rows that one launch makes: a whole number of the largest tiles. */
enum { ROWS = 16, LEAST_TILE = 4 };

static const char source[] =
    "__kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))\n"
    "void multiply(__global const uint *a, __global const uint *b, __global uint *c, uint n,\n"
    "              uint first) {\n"
    "    __local uint left[TILE][TILE], right[TILE][TILE];\n"
    "    uint x = get_global_id(0), y = first + get_global_id(1);\n"
    "    uint i = get_local_id(0), j = get_local_id(1), sum = 0;\n"
    "    for (uint t = 0; t < n; t += TILE) {\n"
    "        left[j][i] = a[y * n + t + i];\n"
    "        right[j][i] = b[(t + j) * n + x];\n"
    "        barrier(CLK_LOCAL_MEM_FENCE);\n"
    "        for (uint k = 0; k < TILE; k++)\n"
    "            sum += left[j][k] * right[k][i];\n"
    "        barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    }\n"
    "    c[y * n + x] = sum;\n"
    "}\n";

struct tiled {
    struct prog prog;
    cl_uint n, done; /* rows of the product so far */
    uint32_t *a, *b, *c, *want;
    const char *log;

    /* What is made for one device. */
    size_t tile;
    cl_program program;
    cl_kernel kernel;
    cl_mem mem_a, mem_b, mem_c;

    /* Held by the main thread while it steps, and by the library's from checkpoint to resume. */
    pthread_mutex_t lock;
    bool stopped; /* the library's thread has it */
};

static size_t bytes_of(const struct tiled *t)
{
    return (size_t)t->n * t->n * sizeof(uint32_t);
}

static bool serves(const struct tiled *t, size_t tile)
{
    size_t group = 0;
    cl_ulong local = 0;
    OK(clGetDeviceInfo(t->prog.device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof group, &group, NULL));
    OK(clGetDeviceInfo(t->prog.device, CL_DEVICE_LOCAL_MEM_SIZE, sizeof local, &local, NULL));
    return tile * tile <= group && 2 * tile * tile * sizeof(uint32_t) <= local;
}

static void write_log(const struct tiled *t)
{
    struct reseat_device device = {.size = sizeof device};
    size_t group = 0;
    FILE *file = t->log ? fopen(t->log, "a") : NULL;
    if (!file)
        return;
    OK(clGetDeviceInfo(t->prog.device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof group, &group, NULL));
    if (reseat_current(t->prog.device, &device) != RESEAT_OK)
        snprintf(device.name, sizeof device.name, "native");
    fprintf(file, "%zu %zu %s\n", t->tile, group, device.name);
    fclose(file);
}

/** Choose a tile for the device that there is, and make what it takes. */
static void make(struct tiled *t)
{
    char options[32];
    t->tile = ROWS;
    while (t->tile > LEAST_TILE && !serves(t, t->tile))
        t->tile /= 2;
    snprintf(options, sizeof options, "-DTILE=%zu", t->tile);
    t->program = prog_build(&t->prog, source, options);
    t->kernel = prog_kernel(t->program, "multiply");
    t->mem_a =
        prog_buffer(t->prog.context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, bytes_of(t), t->a);
    t->mem_b =
        prog_buffer(t->prog.context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, bytes_of(t), t->b);
    t->mem_c =
        prog_buffer(t->prog.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes_of(t), t->c);
    prog_arg(t->kernel, 0, sizeof t->mem_a, &t->mem_a);
    prog_arg(t->kernel, 1, sizeof t->mem_b, &t->mem_b);
    prog_arg(t->kernel, 2, sizeof t->mem_c, &t->mem_c);
    prog_arg(t->kernel, 3, sizeof t->n, &t->n);
    write_log(t);
}

static void release(struct tiled *t)
{
    if (!t->program)
        return;
    RELEASE(t->kernel, t->program, t->mem_a, t->mem_b, t->mem_c);
    t->program = NULL;
}

/** Bring the rows that are done to the host. */
static void save(struct tiled *t)
{
    if (t->program && t->done)
        prog_read(t->prog.queue, t->mem_c, 0, (size_t)t->done * t->n * sizeof(uint32_t), t->c);
}

static void step(struct tiled *t)
{
    const size_t items[2] = {t->n, ROWS}, group[2] = {t->tile, t->tile};
    prog_arg(t->kernel, 4, sizeof t->done, &t->done);
    OK(clEnqueueNDRangeKernel(t->prog.queue, t->kernel, 2, NULL, items, group, 0, NULL, NULL));
    OK(clFinish(t->prog.queue));
    t->done += ROWS;
}

/* ---- what reseat calls ---- */

/** Stop the main thread between two steps; it fails where that does not come in time. */
static int on_checkpoint(void *data, const struct reseat_change *change)
{
    struct tiled *t = data;
    struct timespec until = {(time_t)(change->deadline_ns / 1000000000u),
                             (long)(change->deadline_ns % 1000000000u)};
    if (!t->stopped && pthread_mutex_clocklock(&t->lock, CLOCK_MONOTONIC, &until) != 0)
        return 1;
    t->stopped = true;
    save(t);
    return 0;
}

static int on_clean_up(void *data, const struct reseat_change *change)
{
    (void)change;
    release(data);
    return 0;
}

static int on_configure(void *data, const struct reseat_change *change)
{
    (void)change;
    release(data); /* an earlier one's, for a device that it did not get */
    make(data);
    return 0;
}

static int on_resume(void *data, const struct reseat_change *change)
{
    struct tiled *t = data;
    (void)change;
    if (t->stopped) {
        t->stopped = false;
        pthread_mutex_unlock(&t->lock);
    }
    return 0;
}

static void take_part(struct tiled *t)
{
    struct reseat_program program = {
        .size = sizeof program,
        .checkpoint_ms = 20000,
        .clean_up_ms = 20000,
        .configure_ms = 60000,
        .resume_ms = 20000,
        .minimum = {.memory = 3 * bytes_of(t),
                    .allocation = bytes_of(t),
                    .local_memory = 2 * LEAST_TILE * LEAST_TILE * sizeof(uint32_t),
                    .work_group_size = LEAST_TILE * LEAST_TILE},
        .preferred = {.memory = 3 * bytes_of(t),
                      .allocation = bytes_of(t),
                      .local_memory = 2 * ROWS * ROWS * sizeof(uint32_t),
                      .work_group_size = ROWS * ROWS},
        .checkpoint = on_checkpoint,
        .clean_up = on_clean_up,
        .configure = on_configure,
        .resume = on_resume,
        .data = t,
    };
    int error = reseat_register(&program);
    if (error != RESEAT_OK && error != RESEAT_NOT_UNDER)
        prog_fail("reseat_register: %s", reseat_error_text(error));
}

/* ---- the program ---- */

static void multiply_on_host(struct tiled *t)
{
    memset(t->want, 0, bytes_of(t));
    for (size_t y = 0; y < t->n; y++)
        for (size_t k = 0; k < t->n; k++)
            for (size_t x = 0; x < t->n; x++)
                t->want[y * t->n + x] += t->a[y * t->n + k] * t->b[k * t->n + x];
}

static void pass(struct tiled *t)
{
    bool more = true;
    while (more) {
        pthread_mutex_lock(&t->lock);
        if (t->done < t->n)
            step(t);
        more = t->done < t->n;
        if (!more) {
            save(t);
            prog_same("product", t->c, t->want, bytes_of(t));
        }
        pthread_mutex_unlock(&t->lock);
    }
    pthread_mutex_lock(&t->lock);
    t->done = 0;
    memset(t->c, 0, bytes_of(t));
    pthread_mutex_unlock(&t->lock);
}

int main(int argc, char **argv)
{
    static struct tiled t = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct rng rng = rng_seed((uint64_t)prog_option(argc, argv, "--seed", 1));
    long passes = prog_option(argc, argv, "--passes", 3);
    uint64_t sum = 0;

    t.n = (cl_uint)prog_option(argc, argv, "--size", 256);
    t.log = prog_option_text(argc, argv, "--log", NULL);
    REQUIRE(t.n >= ROWS && t.n % ROWS == 0);
    t.a = prog_alloc(bytes_of(&t));
    t.b = prog_alloc(bytes_of(&t));
    t.c = prog_alloc(bytes_of(&t));
    t.want = prog_alloc(bytes_of(&t));
    rng_fill(&rng, t.a, bytes_of(&t));
    rng_fill(&rng, t.b, bytes_of(&t));
    memset(t.c, 0, bytes_of(&t));
    multiply_on_host(&t);
    sum_bytes(&sum, t.want, bytes_of(&t));

    prog_open(&t.prog);
    take_part(&t);
    pthread_mutex_lock(&t.lock);
    make(&t);
    pthread_mutex_unlock(&t.lock);
    do {
        for (long i = 0; i < passes; i++)
            pass(&t);
    } while (prog_again());
    (void)reseat_unregister();
    release(&t);
    prog_close(&t.prog);
    free(t.a);
    free(t.b);
    free(t.c);
    free(t.want);
    printf("tiled: product %016llx\n", (unsigned long long)sum);
    return 0;
}
