/**
 * A plain program for the road of OPENCL_LAYERS, and for calls that come by two
 * roads at once: whatever way they came, each is handled exactly once.
 *
 *   layered [--platform TEXT]
 *
 * With --platform, the platform's name must contain TEXT: the calls did come
 * through the library that says so.
 */
#include "prog.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 4096, NAME_BYTES = 256, QUIET_US = 20000, PATIENCE = 1000 };

static const char source[] = "__kernel void add(__global uint *a) {\n"
                             "    a[get_global_id(0)] += 1u;\n"
                             "}\n";

static void CL_CALLBACK on_complete(cl_event event, cl_int status, void *data)
{
    (void)event;
    (void)status;
    atomic_fetch_add((atomic_int *)data, 1);
}

int main(int argc, char **argv)
{
    const char *wanted = prog_option_text(argc, argv, "--platform", "");
    const size_t items = WORDS;
    static atomic_int calls;
    uint32_t got[WORDS], want[WORDS];
    char name[NAME_BYTES] = "";
    uint64_t sum = 0;
    cl_uint references, n_platforms;
    struct prog p;
    cl_event event;

    prog_open(&p);
    OK(clGetPlatformInfo(p.platform, CL_PLATFORM_NAME, sizeof name, name, NULL));
    if (!strstr(name, wanted))
        prog_fail("platform is %s, not %s", name, wanted);
    OK(clGetPlatformIDs(0, NULL, &n_platforms));
    REQUIRE(n_platforms >= 1);
    for (uint32_t i = 0; i < WORDS; i++)
        want[i] = i;
    cl_mem mem =
        prog_buffer(p.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof want, want);
    OK(clRetainMemObject(mem));
    OK(clGetMemObjectInfo(mem, CL_MEM_REFERENCE_COUNT, sizeof references, &references, NULL));
    REQUIRE(references == 2);
    OK(clReleaseMemObject(mem));
    cl_program program = prog_build(&p, source, "");
    cl_kernel kernel = prog_kernel(program, "add");
    prog_arg(kernel, 0, sizeof mem, &mem);
    OK(clEnqueueNDRangeKernel(p.queue, kernel, 1, NULL, &items, NULL, 0, NULL, &event));
    OK(clSetEventCallback(event, CL_COMPLETE, on_complete, &calls));
    prog_read(p.queue, mem, 0, sizeof got, got);
    /* Added once: a launch that was handled twice would have added two. */
    for (uint32_t i = 0; i < WORDS; i++)
        want[i] = i + 1;
    prog_same("one launch", got, want, sizeof got);
    for (unsigned i = 0; atomic_load(&calls) == 0 && i < PATIENCE; i++)
        usleep(QUIET_US);
    usleep(QUIET_US);
    REQUIRE(atomic_load(&calls) == 1);
    sum_bytes(&sum, got, sizeof got);
    RELEASE(event, kernel, program, mem);
    prog_close(&p);
    printf("layered checksum %016lx\n", (unsigned long)sum);
    return 0;
}
