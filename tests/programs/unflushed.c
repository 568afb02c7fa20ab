/**
 * Commands of two queues that wait for each other's events, in programs that flush no queue: most
 * drivers begin commands all the same, so many programs rely on it.
 */
#include "prog.h"

#include <stdio.h>

enum { ITEMS = 4096, ROUNDS = 20 };

static const char source[] =
    "kernel void add(global uint *a) { a[get_global_id(0)] += get_global_id(0); }";

int main(void)
{
    static uint32_t words[ITEMS];
    struct prog p;
    uint64_t sum = 0;
    prog_open(&p);
    cl_program program = prog_build(&p, source, "");
    cl_kernel kernel = prog_kernel(program, "add");
    cl_command_queue queues[] = {prog_queue(&p, 0), prog_queue(&p, 0)};
    cl_mem buffer = prog_buffer(p.context, CL_MEM_COPY_HOST_PTR, sizeof(words), words);
    prog_arg(kernel, 0, sizeof(buffer), &buffer);
    do {
        const size_t items = ITEMS;
        const uint32_t zero = 0;
        cl_event event = NULL, next;
        OK(clEnqueueFillBuffer(queues[0], buffer, &zero, sizeof(zero), 0, sizeof(words), 0, NULL,
                               &event));
        for (int i = 0; i < ROUNDS; i++) {
            OK(clEnqueueNDRangeKernel(queues[(i + 1) % 2], kernel, 1, NULL, &items, NULL, 1, &event,
                                      &next));
            OK(clReleaseEvent(event));
            event = next;
        }
        OK(clEnqueueReadBuffer(queues[0], buffer, CL_TRUE, 0, sizeof(words), words, 1, &event,
                               NULL));
        OK(clReleaseEvent(event));
        for (uint32_t i = 0; i < ITEMS; i++)
            REQUIRE(words[i] == i * ROUNDS);
    } while (prog_again());
    sum_bytes(&sum, words, sizeof(words));
    for (int i = 0; i < 2; i++)
        OK(clReleaseCommandQueue(queues[i]));
    RELEASE(buffer, kernel, program);
    prog_close(&p);
    printf("unflushed checksum %016lx\n", (unsigned long)sum);
    return 0;
}
