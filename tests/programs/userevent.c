/**
 * Chains of commands held by user events, set by another thread after a while;
 * chains that end with an error; blocking calls that wait for held commands.
 *
 *   userevent [--rounds N] [--delay MILLISECONDS] [--seed N]
 */
#include "prog.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WORDS = 1024, BYTES = WORDS * 4, CHAIN = 8, US_PER_MS = 1000 };

static const char source[] = "__kernel void advance(__global uint *a, uint k) {\n"
                             "    a[get_global_id(0)] = a[get_global_id(0)] * 5u + k;\n"
                             "}\n";

struct setter {
    cl_event event;
    cl_int status;
    long delay_us;
};

static void *set_later(void *arg)
{
    const struct setter *s = arg;

    usleep((useconds_t)s->delay_us);
    OK(clSetUserEventStatus(s->event, s->status));
    return NULL;
}

static cl_int status_of(cl_event event)
{
    cl_int status = 0;

    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    return status;
}

/** A chain that is let go: its results come, in order, through a blocking read. */
static void released(const struct prog *p, cl_kernel kernel, struct rng *r, long delay_us,
                     uint64_t *sum)
{
    uint32_t want[WORDS], got[WORDS];
    cl_int err;
    cl_event gate = clCreateUserEvent(p->context, &err), last;
    struct setter setter = {gate, CL_COMPLETE, delay_us};
    const size_t items = WORDS;
    pthread_t thread;

    OK(err);
    rng_fill(r, want, sizeof want);
    cl_mem mem = prog_buffer(p->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BYTES, want);
    prog_arg(kernel, 0, sizeof mem, &mem);
    for (cl_uint i = 0; i < CHAIN; i++) {
        prog_arg(kernel, 1, sizeof i, &i);
        OK(clEnqueueNDRangeKernel(p->queue, kernel, 1, NULL, &items, NULL, i ? 0 : 1,
                                  i ? NULL : &gate, i == CHAIN - 1 ? &last : NULL));
        for (size_t k = 0; k < WORDS; k++)
            want[k] = want[k] * 5 + i;
    }
    REQUIRE(status_of(last) > CL_RUNNING);
    REQUIRE(pthread_create(&thread, NULL, set_later, &setter) == 0);
    prog_read(p->queue, mem, 0, sizeof got, got);
    prog_same("after a held chain", got, want, sizeof got);
    OK(clWaitForEvents(1, &last)); /* rusticl says so late of what lies before a blocking read */
    REQUIRE(status_of(last) == CL_COMPLETE);
    sum_bytes(sum, got, sizeof got);
    REQUIRE(pthread_join(thread, NULL) == 0);
    RELEASE(gate, last, mem);
}

/** An event set to an error ends what waits for it with an error; the queue goes on. */
static void failed(const struct prog *p, cl_kernel kernel, long delay_us)
{
    cl_int err;
    cl_event gate = clCreateUserEvent(p->context, &err), held;
    struct setter setter = {gate, CL_OUT_OF_RESOURCES, delay_us};
    const size_t items = WORDS;
    pthread_t thread;
    cl_uint k = 1;

    OK(err);
    cl_command_queue queue = prog_queue(p, 0);
    cl_mem mem = prog_buffer(p->context, CL_MEM_READ_WRITE, BYTES, NULL);
    prog_arg(kernel, 0, sizeof mem, &mem);
    prog_arg(kernel, 1, sizeof k, &k);
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 1, &gate, &held));
    REQUIRE(pthread_create(&thread, NULL, set_later, &setter) == 0);
    REQUIRE(clWaitForEvents(1, &held) == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    REQUIRE(status_of(held) < 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
    REQUIRE(clSetUserEventStatus(gate, CL_COMPLETE) == CL_INVALID_OPERATION);
    RELEASE(held, gate, queue, mem);
}

int main(int argc, char **argv)
{
    long rounds = prog_option(argc, argv, "--rounds", 10);
    long delay_ms = prog_option(argc, argv, "--delay", 20);
    uint64_t seed = (uint64_t)prog_option(argc, argv, "--seed", 1), first = 0;
    struct prog p;

    prog_open(&p);
    cl_program program = prog_build(&p, source, "");
    cl_kernel kernel = prog_kernel(program, "advance");
    do {
        struct rng r = rng_seed(seed);
        uint64_t sum = 0;
        for (long i = 0; i < rounds; i++) {
            released(&p, kernel, &r, delay_ms * US_PER_MS, &sum);
            failed(&p, kernel, delay_ms * US_PER_MS / 4);
        }
        REQUIRE(first == 0 || sum == first);
        first = sum;
    } while (prog_again());
    RELEASE(kernel, program);
    prog_close(&p);
    printf("userevent checksum %016lx\n", (unsigned long)first);
    return 0;
}
