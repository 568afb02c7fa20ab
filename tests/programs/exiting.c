/**
 * Ends while commands are queued and held, in each way a program can.
 *
 *   exiting return|exit|_exit|thread|abort|build|late STATUS
 *
 * build: as return, while programs are built in the background.
 * late: as return, with nothing queued, while the callback of a build, whose program nobody else
 * keeps, runs on until after the drivers' handlers; then the file $TEST_LAST gets the line "last".
 *
 * Its exit status is STATUS (for abort, the signal), soon, whatever is queued.
 */
#include "prog.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WORDS = 1 << 18,
    QUEUED = 50,
    BUILDS = 3,
    OPTION_BYTES = 64,
    STEP_US = 1000,
    STEPS = 2000,
    LAST_US = 300000
};

static const char source[] = "__kernel void spin(__global uint *a) {\n"
                             "    uint v = a[get_global_id(0)];\n"
                             "    for (int i = 0; i < 50; i++) v = v * 1664525u + 1013904223u;\n"
                             "    a[get_global_id(0)] = v;\n"
                             "}\n";

static void CL_CALLBACK built(cl_program program, void *data)
{
    (void)program;
    (void)data;
}

/* Each has something of its own, so that no compiler knows it from the last time. */
static void build_many(const struct prog *p)
{
    for (int i = 0; i < BUILDS; i++) {
        char options[OPTION_BYTES];
        const char *text = source;
        cl_program program = MADE(clCreateProgramWithSource, p->context, 1, &text, NULL);
        snprintf(options, sizeof options, "-DBUILD=%d -DBY=%d", i, getpid());
        OK(clBuildProgram(program, 1, &p->device, options, built, NULL));
    }
}

static atomic_bool begun, over;

/* Registered before any driver was opened, so it runs after their handlers. */
static void last(void)
{
    const char *path = getenv("TEST_LAST");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fputs("last\n", file);
        fclose(file);
    }
    atomic_store(&over, true);
    usleep(LAST_US);
}

/* A driver may call it in the thread that builds: not for ever, then. */
static void CL_CALLBACK built_late(cl_program program, void *data)
{
    (void)program;
    (void)data;
    atomic_store(&begun, true);
    for (int step = 0; step < STEPS && !atomic_load(&over); step++)
        usleep(STEP_US);
}

static void build_late(const struct prog *p)
{
    const char *text = source;
    cl_program program = MADE(clCreateProgramWithSource, p->context, 1, &text, NULL);
    OK(clBuildProgram(program, 1, &p->device, "", built_late, NULL));
    OK(clReleaseProgram(program));
    while (!atomic_load(&begun))
        usleep(STEP_US);
}

static void *exit_from_thread(void *status)
{
    exit(*(int *)status);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "return";
    int status = argc > 2 ? atoi(argv[2]) : 0;
    struct prog p;

    if (strcmp(how, "late") == 0)
        REQUIRE(atexit(last) == 0);
    prog_open(&p);
    cl_kernel kernel = prog_kernel(prog_build(&p, source, ""), "spin");
    cl_mem mem = prog_buffer(p.context, CL_MEM_READ_WRITE, WORDS * sizeof(cl_uint), NULL);
    cl_event never = MADE(clCreateUserEvent, p.context);
    cl_command_queue held = prog_queue(&p, 0);
    const size_t items = WORDS;
    prog_arg(kernel, 0, sizeof mem, &mem);
    for (int i = 0; i < QUEUED; i++)
        prog_run(p.queue, kernel, WORDS);
    OK(clEnqueueNDRangeKernel(held, kernel, 1, NULL, &items, NULL, 1, &never, NULL));
    OK(clFlush(p.queue));
    printf("exiting: %s %d\n", how, status);
    fflush(stdout);
    if (strcmp(how, "build") == 0)
        build_many(&p);
    if (strcmp(how, "late") == 0) {
        OK(clFinish(p.queue));
        build_late(&p);
    }
    if (strcmp(how, "exit") == 0)
        exit(status);
    if (strcmp(how, "_exit") == 0)
        _exit(status);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, exit_from_thread, &status) == 0);
        pthread_join(thread, NULL);
    }
    return status;
}
