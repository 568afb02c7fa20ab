#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "state/base/memory/pages.h"
#include "state/transfer/transfer_priv.h"

/*
 * What the transfer engine makes of each device's link and of each pair of devices, beside plain
 * blocking calls into warm pageable memory, in one run, and of a suspend and a resume
 * ("extraction", "injection": host memory is taken and given back, fresh or kept warm) beside
 * copies through registered memory. Every engine run's bytes are checked.
 *
 * transfer_bench [--pipeline [--all]] [MIB...]: sizes, by default 64, 1024 and 8192 MiB.
 * --pipeline: instead, what the cost model chooses beside the best of all chunk sizes, numbers of
 * chunks and threads, each tried (and told: --all).
 */

#define MIB         (1ull << 20)
#define DEVICES_MAX 8
#define ITEM        (512 * MIB) /* the most that one buffer holds */
#define PINNED      (64 * MIB)  /* registered at a time, to see what the link can do */

struct end {
    struct device device;
    struct residence residence;
    uint64_t memory, largest;
    size_t count, size; /* buffers, and bytes of each but the last */
    cl_mem *buffers;
};

static struct end ends[DEVICES_MAX];
static unsigned end_count;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool end_init(struct end *end, cl_platform_id platform, cl_device_id id)
{
    cl_int error;
    const cl_icd_dispatch *cl = *(const cl_icd_dispatch *const *)platform;
    end->device = (struct device){.cl = cl, .platform = platform, .id = id};
    if (devinfo_query(cl, id, &end->device.info) != 0)
        return false;
    snprintf(end->device.key.device, sizeof(end->device.key.device), "%s",
             devinfo_string(&end->device.info, CL_DEVICE_NAME));
    end->memory = devinfo_scalar(&end->device.info, CL_DEVICE_GLOBAL_MEM_SIZE, 0);
    end->largest = devinfo_scalar(&end->device.info, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 0);
    end->residence.device = &end->device;
    end->residence.cl = cl;
    end->residence.context = cl->clCreateContext(NULL, 1, &id, NULL, NULL, &error);
    if (!end->residence.context)
        return false;
    end->residence.io =
        cl->clCreateCommandQueue(end->residence.context, id, CL_QUEUE_PROFILING_ENABLE, &error);
    return end->residence.io != NULL;
}

static void find_ends(void)
{
    cl_platform_id platforms[8];
    cl_uint platform_count = 0;
    void *loader = dlopen("libOpenCL.so.1", RTLD_NOW);
    cl_int (*list)(cl_uint, cl_platform_id *, cl_uint *) = NULL;
    if (loader)
        *(void **)&list = dlsym(loader, "clGetPlatformIDs");
    if (!list || list(ARRAY_SIZE(platforms), platforms, &platform_count) != CL_SUCCESS)
        return;
    for (cl_uint p = 0; p < platform_count && p < ARRAY_SIZE(platforms); p++) {
        const cl_icd_dispatch *cl = *(const cl_icd_dispatch *const *)platforms[p];
        cl_device_id devices[DEVICES_MAX];
        cl_uint count = 0;
        if (cl->clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, DEVICES_MAX, devices, &count) !=
            CL_SUCCESS)
            continue;
        for (cl_uint d = 0; d < count && d < DEVICES_MAX && end_count < DEVICES_MAX; d++)
            if (end_init(&ends[end_count], platforms[p], devices[d]))
                end_count++;
    }
}

static size_t item_size(const struct end *end, size_t i, size_t total)
{
    size_t left = total - i * end->size;
    return left < end->size ? left : end->size;
}

static void buffers_free(struct end *end)
{
    for (size_t i = 0; end->buffers && i < end->count; i++)
        end->residence.cl->clReleaseMemObject(end->buffers[i]);
    free(end->buffers);
    end->buffers = NULL;
    end->count = 0;
}

/* Buffers of @total bytes, with real memory behind them. */
static bool buffers_make(struct end *end, size_t total, const char *bytes)
{
    end->size = total < ITEM ? total : ITEM;
    if (end->size > end->largest || total > end->memory / 10 * 8)
        return false;
    end->buffers = calloc((total + end->size - 1) / end->size, sizeof(cl_mem));
    for (size_t at = 0; end->buffers && at < total; at += end->size) {
        cl_int error;
        cl_mem buffer =
            end->residence.cl->clCreateBuffer(end->residence.context, CL_MEM_READ_WRITE,
                                              item_size(end, end->count, total), NULL, &error);
        if (!buffer)
            break;
        end->buffers[end->count++] = buffer;
        if (end->residence.cl->clEnqueueWriteBuffer(end->residence.io, buffer, CL_TRUE, 0,
                                                    item_size(end, end->count - 1, total),
                                                    bytes + at, 0, NULL, NULL) != CL_SUCCESS)
            break;
        if (at + end->size >= total)
            return true;
    }
    buffers_free(end);
    return false;
}

/* Blocking calls, one a buffer. Seconds; a failure ends the program. */
static double plain(struct end *end, size_t total, char *bytes, bool read)
{
    const cl_icd_dispatch *cl = end->residence.cl;
    double begin = seconds();
    for (size_t i = 0; i < end->count; i++) {
        size_t size = item_size(end, i, total);
        char *at = bytes + i * end->size;
        cl_int error = read ? cl->clEnqueueReadBuffer(end->residence.io, end->buffers[i], CL_TRUE,
                                                      0, size, at, 0, NULL, NULL)
                            : cl->clEnqueueWriteBuffer(end->residence.io, end->buffers[i], CL_TRUE,
                                                       0, size, at, 0, NULL, NULL);
        if (error != CL_SUCCESS) {
            fprintf(stderr, "%s: error %d\n", end->device.key.device, error);
            exit(1);
        }
    }
    return seconds() - begin;
}

struct result {
    double whole, moving; /* seconds, with and without create and destroy */
    struct transfer_shape shape;
};

static struct result engine(struct end *from, struct end *to, size_t total, char *bytes,
                            const struct transfer_shape *shape)
{
    const struct transfer_limits limits = {0};
    struct result result;
    struct transfer *transfer = NULL;
    const struct end *any = from ? from : to;
    struct residence *source = from ? &from->residence : NULL;
    struct residence *target = to ? &to->residence : NULL;
    double begin = seconds();
    int error = shape ? transfer_create_shaped(source, target, shape, &limits, &transfer)
                      : transfer_create(source, target, total, &limits, &transfer);
    double created = seconds();
    for (size_t i = 0; i < any->count && error == 0; i++) {
        struct transfer_item item = {.from = from ? from->buffers[i] : NULL,
                                     .to = to ? to->buffers[i] : NULL,
                                     .host = from && to ? NULL : bytes + i * any->size,
                                     .size = item_size(any, i, total)};
        error = transfer_add(transfer, &item);
    }
    if (error == 0)
        error = transfer_flush(transfer);
    result.moving = seconds() - created;
    if (error) {
        fprintf(stderr, "the engine failed: %d (%d)\n", error,
                transfer ? transfer_error(transfer) : 0);
        exit(1);
    }
    transfer_describe(transfer, &result.shape);
    transfer_destroy(transfer);
    result.whole = seconds() - begin;
    return result;
}

static void row(const char *what, size_t total, double plainly, const struct result *result)
{
    double gb = (double)total * 1e-9;
    printf("  %-26s %6llu %8.2f %8.2f %8.2f %6.2fx %9.2f %8zu %6u %7u %4s\n", what,
           (unsigned long long)(total / MIB), gb / plainly, gb / result->whole, gb / result->moving,
           plainly / result->whole, (result->whole - result->moving) * 1e3,
           result->shape.chunk >> 10, result->shape.chunks, result->shape.threads,
           result->shape.registered ? "yes" : "no");
    fflush(stdout);
}

static void expect_same(const char *a, const char *b, size_t size, const char *what)
{
    if (memcmp(a, b, size) != 0) {
        fprintf(stderr, "%s: bytes differ\n", what);
        exit(1);
    }
}

static char *warm(size_t size, unsigned seed)
{
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    pages_populate(memory, size, PAGES_THREADS, NULL);
    uint64_t *words = (uint64_t *)memory, x = seed;
    for (size_t i = 0; i < size / sizeof(*words); i++)
        words[i] = x += 0x9e3779b97f4a7c15u;
    return memory;
}

static double best_plain(struct end *end, size_t total, char *bytes, bool read)
{
    double a = plain(end, total, bytes, read), b = plain(end, total, bytes, read);
    return a < b ? a : b;
}

static struct result best_engine(struct end *from, struct end *to, size_t total, char *bytes,
                                 const struct transfer_shape *shape)
{
    struct result a = engine(from, to, total, bytes, shape);
    struct result b = engine(from, to, total, bytes, shape);
    return a.whole < b.whole ? a : b;
}

/* Through memory that the driver has registered, PINNED bytes at a time: what the link can do.
 * Seconds; 0 where the driver registers none. */
static double pinned(struct end *end, size_t total, bool read)
{
    const cl_icd_dispatch *cl = end->residence.cl;
    struct pinned pin = {0};
    char *memory = host_ring_create(PINNED, PAGES_THREADS, NULL);
    double took = 0;
    if (!memory || !pinned_create(&end->residence, memory, PINNED, &pin)) {
        pages_give(memory, PINNED);
        return 0;
    }
    for (int turn = 0; turn < 2; turn++) { /* the first is not timed */
        double begin = seconds();
        for (size_t i = 0; i < end->count; i++) {
            size_t size = item_size(end, i, total);
            for (size_t at = 0; at < size; at += PINNED) {
                size_t part = size - at < PINNED ? size - at : PINNED;
                cl_int error =
                    read ? cl->clEnqueueReadBuffer(end->residence.io, end->buffers[i], CL_FALSE, at,
                                                   part, memory, 0, NULL, NULL)
                         : cl->clEnqueueWriteBuffer(end->residence.io, end->buffers[i], CL_FALSE,
                                                    at, part, memory, 0, NULL, NULL);
                if (error != CL_SUCCESS) {
                    fprintf(stderr, "%s: error %d\n", end->device.key.device, error);
                    exit(1);
                }
            }
        }
        (void)residence_await_queue(&end->residence, end->residence.io);
        took = seconds() - begin;
    }
    pinned_destroy(&pin);
    pages_give(memory, PINNED);
    return took;
}

/* Out as a suspend does, into memory that it takes, and in as a resume does, giving it back. */
static void out_and_in(struct end *end, size_t total, const char *source, const char *pages,
                       double out_pinned, double in_pinned)
{
    char what[64];
    double begin = seconds();
    char *memory = pages_take(total, PAGES_ANY);
    if (!memory)
        return;
    struct result out = engine(end, NULL, total, memory, NULL);
    out.whole = seconds() - begin;
    expect_same(source, memory, total, "extraction");
    begin = seconds();
    struct result in = engine(NULL, end, total, memory, NULL);
    pages_give(memory, total);
    in.whole = seconds() - begin;
    snprintf(what, sizeof(what), "extraction, %s pages", pages);
    row(what, total, out_pinned, &out);
    snprintf(what, sizeof(what), "injection, %s pages", pages);
    row(what, total, in_pinned, &in);
}

/* Beside plain copies through registered memory; where there is none, plain ones. */
static void bench_out_and_in(struct end *end, size_t total, char *source, char *target)
{
    if (!buffers_make(end, total, source))
        return;
    double in_pinned = pinned(end, total, false), out_pinned = pinned(end, total, true);
    if (in_pinned <= 0)
        in_pinned = best_plain(end, total, source, false);
    if (out_pinned <= 0)
        out_pinned = best_plain(end, total, target, true);
    plain(end, total, source, false);
    pages_set_limit(0);
    out_and_in(end, total, source, "fresh", out_pinned, in_pinned);
    pages_set_limit(total + 2 * PINNED);
    char *memory = pages_take(total, PAGES_ANY);
    pages_populate(memory, total, PAGES_THREADS, NULL);
    pages_give(memory, total);
    for (int i = 0; i < 2; i++) /* the first has no warm ring */
        out_and_in(end, total, source, "warm", out_pinned, in_pinned);
    pages_set_limit(0);
    buffers_free(end);
}

static void bench_device(struct end *end, size_t total, char *source, char *target)
{
    if (!buffers_make(end, total, target)) {
        printf("  %llu MiB do not fit\n", (unsigned long long)(total / MIB));
        return;
    }
    double write = best_plain(end, total, target, false);
    struct result up = best_engine(NULL, end, total, source, NULL);
    double read = best_plain(end, total, target, true);
    expect_same(source, target, total, "upload");
    row("upload", total, write, &up);
    memset(target, 0, total);
    struct result down = best_engine(end, NULL, total, target, NULL);
    expect_same(source, target, total, "download");
    row("download", total, read, &down);

    for (int engines = 0; engines < 2; engines++) { /* into pages never touched */
        static double plainly;
        char *fresh = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (fresh == MAP_FAILED)
            break;
        if (!engines) {
            plainly = plain(end, total, fresh, true);
        } else {
            down = engine(end, NULL, total, fresh, NULL);
            expect_same(source, fresh, total, "download");
            row("download, fresh pages", total, plainly, &down);
        }
        munmap(fresh, total);
    }
    buffers_free(end);
}

static void bench_pair(struct end *from, struct end *to, size_t total, char *source, char *target)
{
    char what[64];
    memset(target, 0, total);
    if (!buffers_make(from, total, source) || !buffers_make(to, total, target)) {
        buffers_free(from);
        return;
    }
    struct result result = best_engine(from, to, total, NULL, NULL);
    plain(to, total, target, true);
    expect_same(source, target, total, "direct");
    double plainly = best_plain(from, total, target, true) + best_plain(to, total, target, false);
    snprintf(what, sizeof(what), "direct, device %td to %td", from - ends, to - ends);
    row(what, total, plainly, &result);
    buffers_free(from);
    buffers_free(to);
}

static uint64_t memory_available(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib * 1024;
}

/* ---- the pipeline ---- */

/* The least of a few, as machines are never quiet. */
static struct result least_engine(struct end *from, struct end *to, size_t total, char *bytes,
                                  const struct transfer_shape *shape)
{
    struct result least = {.whole = 1e9};
    for (int i = 0; i < 3; i++) {
        struct result result = engine(from, to, total, bytes, shape);
        least = result.whole < least.whole ? result : least;
    }
    return least;
}

static void shape_text(const struct transfer_shape *shape, char ret[64])
{
    if (shape->chunk)
        snprintf(ret, 64, "%zu KiB x %u, %u threads", shape->chunk >> 10, shape->chunks,
                 shape->threads);
    else
        snprintf(ret, 64, "straight");
}

static bool says_all; /* each that is tried */

static void try_shape(struct end *from, struct end *to, size_t total, char *bytes,
                      const struct transfer_shape *shape, struct result *best)
{
    struct result result = engine(from, to, total, bytes, shape);
    if (result.whole < best->whole) /* once may be luck */
        result = least_engine(from, to, total, bytes, shape);
    if (says_all) {
        char what[64];
        shape_text(shape, what);
        printf("    %-9s %-32s %8.2f ms\n", from ? "download" : "upload", what, result.whole * 1e3);
    }
    *best = result.whole < best->whole ? result : *best;
}

enum { TURNS = 11 };

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double values[TURNS])
{
    qsort(values, TURNS, sizeof(*values), compare);
    return values[TURNS / 2];
}

/* What is chosen beside the best of all. */
static void bench_choice(struct end *from, struct end *to, size_t total, char *bytes)
{
    static const unsigned thread_counts[] = {0, 2, 4, 6, 8, 10, 12, 14};
    static const unsigned chunk_counts[] = {1, 2, 3, 5};
    struct result chosen = least_engine(from, to, total, bytes, NULL), best = chosen;
    double predicted = chosen.shape.predicted;
    char what[64], best_what[64];
    try_shape(from, to, total, bytes, &(struct transfer_shape){0}, &best);
    for (size_t chunk = 1 << 20; chunk <= COST_CHUNK_MAX && chunk <= total; chunk *= 2) {
        for (size_t c = 0; c < ARRAY_SIZE(chunk_counts); c++) {
            for (size_t t = 0; t < ARRAY_SIZE(thread_counts); t++) {
                const struct transfer_shape shape = {
                    .chunk = chunk, .chunks = chunk_counts[c], .threads = thread_counts[t]};
                size_t ring = chunk * shape.chunks;
                if (shape.threads <= host_cores() && ring <= COST_RING_MAX && ring <= total)
                    try_shape(from, to, total, bytes, &shape, &best);
            }
        }
    }
    /* Both again, in turn: a machine that has changed meanwhile has for both. */
    double again[2][TURNS];
    for (int i = 0; i < TURNS; i++) {
        again[0][i] = engine(from, to, total, bytes, &chosen.shape).whole;
        again[1][i] = engine(from, to, total, bytes, &best.shape).whole;
    }
    chosen.whole = median(again[0]);
    best.whole = median(again[1]);
    shape_text(&chosen.shape, what);
    shape_text(&best.shape, best_what);
    printf("  %-9s chosen: %s: %.2f ms (predicted %.2f); best of all: %s: %.2f ms; ratio %.3f\n",
           from ? "download" : "upload", what, chosen.whole * 1e3, predicted * 1e3, best_what,
           best.whole * 1e3, chosen.whole / best.whole);
    fflush(stdout);
}

static int bench_pipelines(const unsigned long long *sizes, unsigned size_count)
{
    for (unsigned s = 0; s < size_count; s++) {
        size_t total = sizes[s] * MIB;
        char *source = warm(total, 1), *target = warm(total, 2);
        if (!source || !target || total > memory_available())
            break;
        for (unsigned i = 0; i < end_count; i++) {
            struct end *end = &ends[i];
            printf("%s, %llu MiB\n", end->device.key.device, sizes[s]);
            if (!buffers_make(end, total, source)) {
                printf("  they do not fit\n");
                continue;
            }
            if (residence_has_link(&end->residence)) {
                bench_choice(end, NULL, total, target);
                expect_same(source, target, total, "download");
                bench_choice(NULL, end, total, source);
                memset(target, 0, total);
                plain(end, total, target, true);
                expect_same(source, target, total, "upload");
            }
            buffers_free(end);
        }
        munmap(source, total);
        munmap(target, total);
    }
    return 0;
}

int main(int argc, char **argv)
{
    unsigned long long sizes[8] = {64, 1024, 8192};
    unsigned size_count = 3, given = 0;
    bool pipelines = false;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--pipeline") == 0)
            pipelines = true;
        else if (strcmp(argv[i], "--all") == 0)
            says_all = true;
        else if (given < ARRAY_SIZE(sizes) && (sizes[given] = strtoull(argv[i], NULL, 10)) > 0)
            size_count = ++given;
    find_ends();
    printf("%u cores\n", host_cores());
    for (unsigned i = 0; i < end_count; i++)
        printf("device %u: %s (%s)\n", i, ends[i].device.key.device,
               residence_has_link(&ends[i].residence) ? "has a link" : "shares the host's memory");
    if (pipelines)
        return bench_pipelines(sizes, size_count);
    printf("plain, engine (whole: with create and destroy; moving: without) in GB/s; set-up in ms; "
           "chunk in KiB\n  %-26s %6s %8s %8s %8s %7s %9s %8s %6s %7s %4s\n",
           "", "MiB", "plain", "whole", "moving", "ratio", "set-up", "chunk", "chunks", "threads",
           "reg.");
    for (unsigned s = 0; s < size_count; s++) {
        size_t total = sizes[s] * MIB;
        if (total > memory_available() / 5) {
            printf("%llu MiB: too little host memory\n", sizes[s]);
            continue;
        }
        char *source = warm(total, 1), *target = warm(total, 2);
        for (unsigned i = 0; i < end_count && source && target; i++) {
            printf("%s\n", ends[i].device.key.device);
            bench_device(&ends[i], total, source, target);
            bench_out_and_in(&ends[i], total, source, target);
        }
        for (unsigned from = 0; from < end_count && source && target; from++)
            for (unsigned to = 0; to < end_count; to++)
                if (from != to)
                    bench_pair(&ends[from], &ends[to], total, source, target);
        munmap(source, total);
        munmap(target, total);
    }
    return 0;
}
