/*
 * A client of streams, for stream.py: bench-stream KERNEL FOLDER MODE N [SECONDS]
 *
 * FOLDER has the files records, answers and constant-NAME, from tests/stream/kernels/references.py.
 * The records are sent again and again, and every answer is compared.
 *
 *   sequential  packs N records, sends them, waits for their answers, unpacks them; again
 *   pipelined   packs in one thread, unpacks in another, with at most N records in between
 *   latency     N times one record, with a pause before each
 *   native      N records with OpenCL alone: a write, a launch, a read, one after another; further
 *               arguments are the path of the source, work-items, bytes of a record and of an
 * answer
 *
 * Prints JSON, with seconds for a record; of native, seconds for all N.
 */

#include <CL/cl.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "stream/client/reseat_stream.h"

#define CONSTANTS_MAX 8
#define PAUSE_NS      1000000
#define NATIVE_TIMES  21
#define LOCAL         64 /* as the worker's */

struct bytes {
    char *at;
    size_t size;
};

static struct {
    const char *kernel, *folder;
    struct bytes records, answers;
    struct reseat_stream_constant constants[CONSTANTS_MAX];
    size_t constant_count, input, output, count; /* count: different records */
    struct reseat_stream *stream;
    double seconds;
    atomic_bool over;
    atomic_ullong sent, taken;
    double pack_s, unpack_s; /* by the thread that does it */
} bench;

static _Noreturn void bench_fail(const char *what, const char *why)
{
    fprintf(stderr, "bench-stream: %s: %s\n", what, why);
    exit(1);
}

static double bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static struct bytes bench_file(const char *folder, const char *name)
{
    char path[4096];
    struct bytes bytes = {0};
    snprintf(path, sizeof(path), "%s%s%s", folder, *folder ? "/" : "", name);
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        bench_fail(path, strerror(errno));
    bytes.size = (size_t)ftell(file);
    rewind(file);
    bytes.at = calloc(1, bytes.size + 1);
    if (!bytes.at || fread(bytes.at, 1, bytes.size, file) != bytes.size)
        bench_fail(path, "cannot be read");
    fclose(file);
    return bytes;
}

static void bench_read_folder(void)
{
    static const char prefix[] = "constant-";
    bench.records = bench_file(bench.folder, "records");
    bench.answers = bench_file(bench.folder, "answers");
    DIR *folder = opendir(bench.folder);
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) || bench.constant_count == CONSTANTS_MAX)
            continue;
        struct bytes value = bench_file(bench.folder, entry->d_name);
        bench.constants[bench.constant_count++] = (struct reseat_stream_constant){
            strdup(entry->d_name + strlen(prefix)), value.at, value.size};
    }
    if (folder)
        closedir(folder);
}

static void bench_check(int error)
{
    if (error)
        bench_fail(bench.kernel, reseat_stream_reason(bench.stream));
}

/* Pack and send at most @most records; how many. */
static size_t bench_pack(size_t most)
{
    void *at;
    size_t count;
    bench_check(reseat_stream_pack(bench.stream, most, &at, &count));
    double begin = bench_now();
    size_t next = atomic_load(&bench.sent) % bench.count;
    for (size_t i = 0, together; i < count; i += together, next = 0) {
        together = count - i < bench.count - next ? count - i : bench.count - next;
        memcpy((char *)at + i * bench.input, bench.records.at + next * bench.input,
               together * bench.input);
    }
    bench.pack_s += bench_now() - begin;
    atomic_fetch_add(&bench.sent, count);
    bench_check(reseat_stream_packed(bench.stream, count));
    return count;
}

/* Wait for answers, and unpack at most @most; how many. */
static size_t bench_unpack(size_t most)
{
    const void *at;
    size_t count;
    bench_check(reseat_stream_unpack(bench.stream, most, &at, &count));
    double begin = bench_now();
    size_t next = atomic_load(&bench.taken) % bench.count;
    for (size_t i = 0, together; i < count; i += together, next = 0) {
        together = count - i < bench.count - next ? count - i : bench.count - next;
        if (memcmp((const char *)at + i * bench.output, bench.answers.at + next * bench.output,
                   together * bench.output))
            bench_fail(bench.kernel, "an answer is wrong");
    }
    bench.unpack_s += bench_now() - begin;
    atomic_fetch_add(&bench.taken, count);
    bench_check(reseat_stream_unpacked(bench.stream, count));
    return count;
}

static void bench_print(const char *mode, double seconds, double count)
{
    printf("{\"mode\": \"%s\", \"program\": \"%s\", \"rate\": %.1f, \"seconds\": %.9g, "
           "\"pack\": %.4g, \"unpack\": %.4g}\n",
           mode, reseat_stream_program(bench.stream), count / seconds, seconds / count,
           bench.pack_s / count, bench.unpack_s / count);
}

static void bench_round(size_t payload)
{
    for (size_t done = 0; done < payload;)
        done += bench_pack(payload - done);
    for (size_t done = 0; done < payload;)
        done += bench_unpack(payload - done);
}

/* The first round does not count: drivers finish a kernel at its first launch. */
static void bench_sequential(size_t payload)
{
    bench_round(payload);
    unsigned long long first = atomic_load(&bench.taken);
    bench.pack_s = bench.unpack_s = 0;
    double begin = bench_now();
    do
        bench_round(payload);
    while (bench_now() - begin < bench.seconds);
    bench_print("sequential", bench_now() - begin, (double)(atomic_load(&bench.taken) - first));
}

static void *bench_send(void *most)
{
    size_t flight = *(size_t *)most;
    while (!atomic_load(&bench.over)) {
        size_t payload = reseat_stream_pack_payload(bench.stream);
        size_t room = flight - (size_t)(atomic_load(&bench.sent) - atomic_load(&bench.taken));
        payload = payload ? payload : 1;
        if (room)
            bench_pack(payload < room ? payload : room);
        else
            usleep(50);
    }
    bench_check(reseat_stream_finish(bench.stream));
    return NULL;
}

/* Rates count from when the first fifth of the time is over: payloads are chosen by then. */
static void bench_pipelined(size_t flight)
{
    pthread_t sender;
    unsigned long long begun_at = 0, ended_at = 0;
    double begin = bench_now(), warm = 0, end = 0;
    if (pthread_create(&sender, NULL, bench_send, &flight))
        bench_fail("pipelined", "no thread");
    for (;;) {
        size_t most = reseat_stream_unpack_payload(bench.stream);
        if (bench_unpack(most ? most : 1) == 0)
            break;
        double now = bench_now();
        if (!warm && now - begin > bench.seconds / 5) {
            warm = now;
            begun_at = atomic_load(&bench.taken);
            bench.pack_s = bench.unpack_s = 0;
        }
        if (warm && !end && now - warm > bench.seconds) {
            end = now;
            ended_at = atomic_load(&bench.taken);
            atomic_store(&bench.over, true);
        }
    }
    pthread_join(sender, NULL);
    bench_print("pipelined", end - warm, (double)(ended_at - begun_at));
}

static int bench_compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void bench_latency(size_t times)
{
    const struct timespec pause = {0, PAUSE_NS};
    double *took = calloc(times, sizeof(*took));
    if (!took)
        bench_fail("latency", "no memory");
    for (size_t i = 0; i < times; i++) {
        nanosleep(&pause, NULL);
        double begin = bench_now();
        bench_pack(1);
        bench_unpack(1);
        took[i] = bench_now() - begin;
    }
    qsort(took, times, sizeof(*took), bench_compare);
    printf("{\"mode\": \"latency\", \"median\": %.9g, \"p99\": %.9g, \"least\": %.9g}\n",
           took[times / 2], took[times * 99 / 100], took[0]);
    free(took);
}

/* ---- with OpenCL alone */

enum { WRITE, COMPUTE, READ, STAGES };

static void bench_cl(cl_int error, const char *what)
{
    char text[32];
    snprintf(text, sizeof(text), "OpenCL error %d", error);
    if (error)
        bench_fail(what, text);
}

static double bench_lasted(cl_event event)
{
    cl_ulong begin = 0, end = 0;
    clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof(begin), &begin, NULL);
    clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof(end), &end, NULL);
    clReleaseEvent(event);
    return (double)(end - begin) * 1e-9;
}

static void bench_native(size_t count, const char *source_path, size_t items)
{
    /* A record alone finds a device and threads that rest, with a stream (latency) and without. */
    const struct timespec alone = {0, PAUSE_NS};
    cl_platform_id platform;
    cl_device_id device;
    cl_int error;
    struct bytes source = bench_file("", source_path);
    const char *text = source.at;
    double took[STAGES + 1][NATIVE_TIMES];
    bench_cl(clGetPlatformIDs(1, &platform, NULL), "platform");
    bench_cl(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "device");
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    bench_cl(error, "context");
    cl_command_queue queue =
        clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &error);
    bench_cl(error, "queue");
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &error);
    bench_cl(error, "program");
    bench_cl(clBuildProgram(program, 1, &device, "", NULL, NULL), "build");
    cl_kernel kernel = clCreateKernel(program, bench.kernel, &error);
    bench_cl(error, "kernel");
    char *in = malloc(count * bench.input), *out = malloc(count * bench.output);
    for (size_t i = 0; in && i < count; i++)
        memcpy(in + i * bench.input, bench.records.at + i % bench.count * bench.input, bench.input);
    cl_mem mems[2] = {
        clCreateBuffer(context, CL_MEM_READ_WRITE, count * bench.input, NULL, &error),
        clCreateBuffer(context, CL_MEM_READ_WRITE, count * bench.output, NULL, &error)};
    for (cl_uint i = 0; i < 2 + bench.constant_count; i++) {
        cl_mem mem = i < 2 ? mems[i]
                           : clCreateBuffer(context, CL_MEM_COPY_HOST_PTR | CL_MEM_READ_ONLY,
                                            bench.constants[i - 2].size,
                                            (void *)bench.constants[i - 2].bytes, &error);
        bench_cl(clSetKernelArg(kernel, i, sizeof(mem), &mem), "argument");
    }
    size_t global = count * items, local = global % LOCAL ? 1 : LOCAL;
    for (int i = -1; i < NATIVE_TIMES; i++) {
        cl_event events[STAGES];
        if (count == 1)
            nanosleep(&alone, NULL);
        double begin = bench_now();
        bench_cl(clEnqueueWriteBuffer(queue, mems[0], CL_FALSE, 0, count * bench.input, in, 0, NULL,
                                      &events[WRITE]),
                 "write");
        bench_cl(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL,
                                        &events[COMPUTE]),
                 "launch");
        bench_cl(clEnqueueReadBuffer(queue, mems[1], CL_TRUE, 0, count * bench.output, out, 0, NULL,
                                     &events[READ]),
                 "read");
        double end = bench_now();
        for (int j = 0; j < STAGES; j++) {
            double lasted = bench_lasted(events[j]);
            if (i >= 0)
                took[j][i] = lasted;
        }
        if (i >= 0)
            took[STAGES][i] = end - begin;
    }
    for (int j = 0; j <= STAGES; j++)
        qsort(took[j], NATIVE_TIMES, sizeof(double), bench_compare);
    const int median = NATIVE_TIMES / 2;
    printf("{\"mode\": \"native\", \"records\": %zu, \"write\": %.9g, \"compute\": %.9g, "
           "\"read\": %.9g, \"all\": %.9g}\n",
           count, took[WRITE][median], took[COMPUTE][median], took[READ][median],
           took[STAGES][median]);
}

int main(int argc, char **argv)
{
    static char reason[RESEAT_STREAM_REASON];
    if (argc < 5)
        bench_fail("usage",
                   "bench-stream KERNEL FOLDER MODE N [SECONDS | SOURCE ITEMS INPUT OUTPUT]");
    const char *mode = argv[3];
    size_t number = strtoull(argv[4], NULL, 10);
    bench.kernel = argv[1];
    bench.folder = argv[2];
    bench_read_folder();
    if (strcmp(mode, "native") == 0 && argc == 9) {
        bench.input = strtoull(argv[7], NULL, 10);
        bench.output = strtoull(argv[8], NULL, 10);
        bench.count = bench.records.size / bench.input;
        bench_native(number, argv[5], strtoull(argv[6], NULL, 10));
        return 0;
    }
    bench.seconds = argc > 5 ? strtod(argv[5], NULL) : 1;
    struct reseat_stream_options options = {
        .size = sizeof(options), .constants = bench.constants, .count = bench.constant_count};
    if (reseat_stream_open(bench.kernel, &options, &bench.stream, reason))
        bench_fail(bench.kernel, reason);
    bench.input = reseat_stream_input(bench.stream);
    bench.output = reseat_stream_output(bench.stream);
    bench.count = bench.records.size / bench.input;
    if (strcmp(mode, "sequential") == 0)
        bench_sequential(number);
    else if (strcmp(mode, "pipelined") == 0)
        bench_pipelined(number);
    else if (strcmp(mode, "latency") == 0)
        bench_latency(number);
    else
        bench_fail(mode, "sequential, pipelined, latency or native");
    reseat_stream_close(bench.stream);
    return 0;
}
