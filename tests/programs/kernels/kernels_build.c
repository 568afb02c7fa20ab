/** Programs: headers, libraries, builds in the background, failures, binaries. */
#include "kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUILDS = 4, OPTION_BYTES = 64, LOG_BYTES = 1 << 16, TRIPS = 3 };

static cl_program source(struct bench *b, const char *text)
{
    return MADE(clCreateProgramWithSource, b->prog->context, 1, &text, NULL);
}

static cl_build_status status_of(const struct bench *b, cl_program program)
{
    cl_build_status status;

    OK(clGetProgramBuildInfo(program, b->prog->device, CL_PROGRAM_BUILD_STATUS, sizeof status,
                             &status, NULL));
    return status;
}

static cl_program_binary_type type_of(const struct bench *b, cl_program program)
{
    cl_program_binary_type type;

    OK(clGetProgramBuildInfo(program, b->prog->device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type,
                             NULL));
    return type;
}

/* The kernel "k" of @program stores @want. */
static void check_result(struct bench *b, const char *what, cl_program program, uint32_t want)
{
    cl_mem out = prog_buffer(b->prog->context, CL_MEM_WRITE_ONLY, sizeof want, NULL);
    cl_kernel kernel = prog_kernel(program, "k");

    prog_arg(kernel, 0, sizeof out, &out);
    prog_run(b->prog->queue, kernel, 1);
    kernels_verify(b, what, out, &want, sizeof want);
    RELEASE(kernel, out);
}

/* Headers that include one another, with the macros of the compilation. */
void kernels_headers(struct bench *b)
{
    cl_program outer = source(b, "#include \"in/ner.h\"\n#define OUTER (INNER * 10u)\n");
    cl_program inner = source(b, "#define INNER (BASE + 2u)\n");
    cl_program main = source(b, "#include \"outer.h\"\n"
                                "__kernel void k(__global uint *a) { *a = OUTER + INNER; }\n");
    const char *names[2] = {"outer.h", "in/ner.h"};
    cl_program headers[2] = {outer, inner};
    uint32_t base = rng_below(&b->rng, 4);
    char options[OPTION_BYTES];
    cl_int err;

    snprintf(options, sizeof options, "-D BASE=%uu", base);
    OK(clCompileProgram(main, 1, &b->prog->device, options, 2, headers, names, NULL, NULL));
    REQUIRE(type_of(b, main) == CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT);
    REQUIRE(!clCreateKernel(main, "k", &err) && err != CL_SUCCESS);
    cl_program linked = MADE(clLinkProgram, b->prog->context, 0, NULL, NULL, 1, &main, NULL, NULL);
    RELEASE(outer, inner, main);
    check_result(b, "nested headers", linked, (base + 2) * 11);
    OK(clReleaseProgram(linked));
}

/* A library of two objects, and a program that was compiled beside it. */
void kernels_libraries(struct bench *b)
{
    cl_program parts[2] = {source(b, "uint twice(uint x) { return x * 2u; }\n"),
                           source(b, "uint twice(uint x);\n"
                                     "uint more(uint x) { return twice(x) + 1u; }\n")};
    cl_program user = source(b, "uint more(uint x);\n"
                                "__kernel void k(__global uint *a) { *a = more(SEED); }\n");
    uint32_t seed = rng_below(&b->rng, 4);
    char options[OPTION_BYTES];

    for (unsigned i = 0; i < 2; i++)
        OK(clCompileProgram(parts[i], 0, NULL, NULL, 0, NULL, NULL, NULL, NULL));
    cl_program library = MADE(clLinkProgram, b->prog->context, 1, &b->prog->device,
                              "-create-library", 2, parts, NULL, NULL);
    REQUIRE(type_of(b, library) == CL_PROGRAM_BINARY_TYPE_LIBRARY);
    snprintf(options, sizeof options, "-DSEED=%uu", seed);
    OK(clCompileProgram(user, 0, NULL, options, 0, NULL, NULL, NULL, NULL));
    cl_program inputs[2] = {user, library};
    cl_program linked =
        MADE(clLinkProgram, b->prog->context, 1, &b->prog->device, "", 2, inputs, NULL, NULL);
    REQUIRE(type_of(b, linked) == CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
    RELEASE(user, library, parts[0], parts[1]);
    check_result(b, "a library", linked, seed * 2 + 1);
    OK(clReleaseProgram(linked));
}

/* Builds that call back. */
struct notices {
    pthread_mutex_t lock;
    pthread_cond_t more;
    cl_device_id device;
    unsigned count, good, bad;
};

static void CL_CALLBACK noticed(cl_program program, void *data)
{
    struct notices *notices = data;
    cl_build_status status = CL_BUILD_NONE;

    OK(clGetProgramBuildInfo(program, notices->device, CL_PROGRAM_BUILD_STATUS, sizeof status,
                             &status, NULL));
    pthread_mutex_lock(&notices->lock);
    notices->count++;
    notices->good += status == CL_BUILD_SUCCESS;
    notices->bad += status == CL_BUILD_ERROR;
    pthread_cond_broadcast(&notices->more);
    pthread_mutex_unlock(&notices->lock);
}

void kernels_background(struct bench *b)
{
    struct notices notices = {
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, b->prog->device, 0, 0, 0};
    cl_program programs[BUILDS];
    uint32_t first = rng_below(&b->rng, 4);

    for (uint32_t i = 0; i < BUILDS; i++) {
        char options[OPTION_BYTES];
        snprintf(options, sizeof options, "-DX=%uu", first + i);
        programs[i] = source(b, i == 1 ? "__kernel void k(__global uint *a) { *a = wrong; }\n"
                                       : "__kernel void k(__global uint *a) { *a = X * 7u; }\n");
        cl_int err = clBuildProgram(programs[i], 1, &b->prog->device, options, noticed, &notices);
        REQUIRE(err == CL_SUCCESS || (i == 1 && err == CL_BUILD_PROGRAM_FAILURE));
    }
    pthread_mutex_lock(&notices.lock);
    while (notices.count < BUILDS)
        pthread_cond_wait(&notices.more, &notices.lock);
    REQUIRE(notices.good == BUILDS - 1 && notices.bad == 1);
    pthread_mutex_unlock(&notices.lock);
    for (uint32_t i = 0; i < BUILDS; i++) {
        REQUIRE(status_of(b, programs[i]) == (i == 1 ? CL_BUILD_ERROR : CL_BUILD_SUCCESS));
        if (i != 1)
            check_result(b, "a build in the background", programs[i], (first + i) * 7);
        OK(clReleaseProgram(programs[i]));
    }
    REQUIRE(notices.count == BUILDS);
}

void kernels_failures(struct bench *b)
{
    cl_program program = source(b, "__kernel void k(__global uint *a) { *a = X; }\n");
    char options[OPTION_BYTES], *log = prog_alloc(LOG_BYTES);
    size_t size = 0;
    cl_int err;

    REQUIRE(status_of(b, program) == CL_BUILD_NONE);
    REQUIRE(!clCreateKernel(program, "k", &err) && err == CL_INVALID_PROGRAM_EXECUTABLE);
    REQUIRE(clBuildProgram(program, 0, NULL, "-DX=undeclared_word", NULL, NULL) ==
            CL_BUILD_PROGRAM_FAILURE);
    REQUIRE(status_of(b, program) == CL_BUILD_ERROR);
    OK(clGetProgramBuildInfo(program, b->prog->device, CL_PROGRAM_BUILD_LOG, LOG_BYTES, log,
                             &size));
    REQUIRE(strstr(log, "undeclared_word") && size == strlen(log) + 1);
    REQUIRE(!clCreateKernel(program, "k", &err) && err != CL_SUCCESS);
    /* Then it is built all the same. */
    OK(clBuildProgram(program, 0, NULL, "-DX=5u", NULL, NULL));
    OK(clGetProgramBuildInfo(program, b->prog->device, CL_PROGRAM_BUILD_OPTIONS, sizeof options,
                             options, NULL));
    REQUIRE(strcmp(options, "-DX=5u") == 0);
    REQUIRE(status_of(b, program) == CL_BUILD_SUCCESS);
    check_result(b, "a build after a failure", program, 5);
    OK(clReleaseProgram(program));
    free(log);
}

static cl_program from_binary(struct bench *b, cl_program program)
{
    size_t size = 0;
    cl_int status;

    OK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
    REQUIRE(size > 0);
    unsigned char *binary = prog_alloc(size);
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
    const unsigned char *given = binary;
    cl_program loaded = MADE(clCreateProgramWithBinary, b->prog->context, 1, &b->prog->device,
                             &size, &given, &status);
    OK(status);
    free(binary);
    OK(clBuildProgram(loaded, 0, NULL, "", NULL, NULL));
    OK(clReleaseProgram(program));
    return loaded;
}

void kernels_binaries(struct bench *b)
{
    uint32_t x = rng_below(&b->rng, 4);
    char options[OPTION_BYTES];

    snprintf(options, sizeof options, "-DX=%uu", x);
    cl_program program =
        prog_build(b->prog, "__kernel void k(__global uint *a) { *a = X + 40u; }\n", options);
    for (unsigned i = 0; i < TRIPS; i++)
        program = from_binary(b, program);
    check_result(b, "a binary of a binary", program, x + 40);
    OK(clReleaseProgram(program));
}

void kernels_all_at_once(struct bench *b)
{
    cl_program program = prog_build(b->prog,
                                    "__kernel void one(__global uint *a) { *a = 1u; }\n"
                                    "__kernel void two(__global uint *a) { *a = 2u; }\n",
                                    "");
    cl_mem out = prog_buffer(b->prog->context, CL_MEM_WRITE_ONLY, sizeof(uint32_t), NULL);
    cl_kernel kernels[2];
    cl_uint count = 0;
    size_t number = 0;
    char names[32] = "";
    uint32_t seen = 0;

    OK(clCreateKernelsInProgram(program, 0, NULL, &count));
    REQUIRE(count == 2);
    REQUIRE(clCreateKernelsInProgram(program, 1, kernels, NULL) == CL_INVALID_VALUE);
    OK(clCreateKernelsInProgram(program, 2, kernels, NULL));
    OK(clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof number, &number, NULL));
    REQUIRE(number == 2);
    OK(clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, sizeof names, names, NULL));
    REQUIRE(strcmp(names, "one;two") == 0 || strcmp(names, "two;one") == 0);
    for (unsigned i = 0; i < 2; i++) {
        char name[16] = "";
        OK(clGetKernelInfo(kernels[i], CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL));
        uint32_t want = strcmp(name, "one") == 0 ? 1 : 2;
        prog_arg(kernels[i], 0, sizeof out, &out);
        prog_run(b->prog->queue, kernels[i], 1);
        kernels_verify(b, "kernels made all at once", out, &want, sizeof want);
        seen |= want;
        OK(clReleaseKernel(kernels[i]));
    }
    REQUIRE(seen == 3);
    RELEASE(out, program);
}
