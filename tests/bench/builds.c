#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * What a build costs, and what the library of device binaries makes of it: one source of many
 * kernels, built again and again in one process, under `reseat run` with an empty library the first
 * time from source and then from it; natively each time by the driver. The source is another one in
 * each process, so that no driver's cache knows it.
 *
 *   bench-builds [KERNELS]
 */

#define ROUNDS 6

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void check(cl_int error, const char *what)
{
    if (error == CL_SUCCESS)
        return;
    fprintf(stderr, "%s: error %d\n", what, error);
    exit(1);
}

static char *write_source(unsigned kernels)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    fprintf(out, "#define SEED %llu\n", (unsigned long long)(now_ms() * 1e6));
    for (unsigned i = 0; i < kernels; i++)
        fprintf(out,
                "kernel void k%u(global float *a, float b)\n"
                "{ float s = a[get_global_id(0)]; for (int j = 0; j < %u; j++) s = s * b + sin(s) "
                "+ (SEED %% 1000 + %u); a[get_global_id(0)] = s; }\n",
                i, 100 + i, i);
    fclose(out);
    return text;
}

static double build(cl_context context, cl_device_id device, const char *source)
{
    cl_int error;
    double before = now_ms();
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &error);
    check(error, "clCreateProgramWithSource");
    check(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    double took = now_ms() - before;
    check(clReleaseProgram(program), "clReleaseProgram");
    return took;
}

int main(int argc, char **argv)
{
    unsigned kernels = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 100;
    cl_platform_id platform;
    cl_device_id device;
    cl_int error;
    char name[256] = "";
    check(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
    check(clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof(name) - 1, name, NULL), "clGetDeviceInfo");
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    check(error, "clCreateContext");
    char *source = write_source(kernels);
    double first = build(context, device, source), least = first;
    for (int i = 1; i < ROUNDS; i++) {
        double again = build(context, device, source);
        least = again < least ? again : least;
    }
    printf("%s, %u kernels: first %.1f ms, then %.2f ms, ratio %.0f\n", name, kernels, first, least,
           first / least);
    free(source);
    check(clReleaseContext(context), "clReleaseContext");
    return 0;
}
