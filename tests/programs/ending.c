/**
 * Works for a while, then ends while it may be in the middle of a move, in one of the ways in which
 * programs do: what they made is released by handlers of exit() and by destructors, which still
 * call OpenCL, or by nobody.
 *
 *   ending return|exit|thread|callback|leave [--ms MILLISECONDS] [--status STATUS]
 *
 * Prints what its handlers found; its exit status is STATUS.
 */
#include "prog.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 4096, BYTES = WORDS * 4, US_PER_MS = 1000, FOREVER_S = 60 };

static const char source[] = "__kernel void add(__global uint *a, uint k) {\n"
                             "    a[get_global_id(0)] += k;\n"
                             "}\n";

static struct {
    struct prog prog;
    cl_program program;
    cl_kernel kernel;
    cl_mem mem;
    cl_command_queue held; /* behind a user event that is never set */
    cl_uint total;         /* of all words */
    atomic_int called;
    int status;
    bool open, kept;
} state;

static void launch(cl_uint k)
{
    prog_arg(state.kernel, 1, sizeof k, &k);
    prog_run(state.prog.queue, state.kernel, WORDS);
    state.total += k;
}

static void check(const char *who)
{
    static cl_uint got[WORDS];

    if (!state.open)
        return;
    prog_read(state.prog.queue, state.mem, 0, BYTES, got);
    for (int i = 0; i < WORDS; i++)
        if (got[i] != state.total)
            prog_fail("%s: word %d is %u, want %u", who, i, got[i], state.total);
    printf("ending: %s finds its bytes\n", who);
    fflush(stdout);
}

/* Registered after OpenCL was used: runs first. */
static void late_handler(void)
{
    launch(3);
    check("a late handler");
}

/* Registered before: runs last, as destructors of C++ objects do that were made before main. */
static void early_handler(void)
{
    if (state.kept)
        return;
    RELEASE(state.mem, state.kernel, state.program);
    OK(clFinish(state.prog.queue));
    RELEASE(state.prog.queue, state.prog.context);
    state.open = false;
    printf("ending: an early handler has released all\n");
    fflush(stdout);
}

__attribute__((destructor)) static void destructor(void)
{
    if (!state.open)
        return;
    RELEASE(state.mem, state.prog.queue);
    printf("ending: a destructor has released\n");
    fflush(stdout);
}

static void CL_CALLBACK on_complete(cl_event event, cl_int status, void *data)
{
    (void)event, (void)status, (void)data;
    atomic_fetch_add(&state.called, 1);
}

static void CL_CALLBACK exit_in_callback(cl_event event, cl_int status, void *data)
{
    (void)event, (void)status, (void)data;
    exit(state.status);
}

static void *exit_in_thread(void *unused)
{
    (void)unused;
    exit(state.status);
}

static void work_for(double seconds)
{
    double end = prog_now() + seconds;
    const size_t items = WORDS;
    cl_event event;

    for (cl_uint k = 0; prog_now() < end; k++) {
        prog_arg(state.kernel, 1, sizeof k, &k);
        OK(clEnqueueNDRangeKernel(state.prog.queue, state.kernel, 1, NULL, &items, NULL, 0, NULL,
                                  &event));
        state.total += k;
        OK(clSetEventCallback(event, CL_COMPLETE, on_complete, NULL));
        OK(clReleaseEvent(event));
        if (k % 8 == 7)
            OK(clFinish(state.prog.queue));
    }
    OK(clFinish(state.prog.queue));
}

static void end_by_callback(void)
{
    const size_t items = WORDS;
    cl_uint none = 0;
    cl_event event;

    prog_arg(state.kernel, 1, sizeof none, &none);
    OK(clEnqueueNDRangeKernel(state.prog.queue, state.kernel, 1, NULL, &items, NULL, 0, NULL,
                              &event));
    OK(clFlush(state.prog.queue));
    /* The last call of this thread: handlers release the queue as soon as it is called back. */
    OK(clSetEventCallback(event, CL_COMPLETE, exit_in_callback, NULL));
    sleep(FOREVER_S);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "return";
    double seconds = (double)prog_option(argc, argv, "--ms", 100) / 1000;
    static cl_uint zero[WORDS];
    const size_t items = WORDS;
    cl_int err;

    state.status = (int)prog_option(argc, argv, "--status", 0);
    state.kept = strcmp(how, "leave") == 0;
    atexit(early_handler);
    prog_open(&state.prog);
    state.program = prog_build(&state.prog, source, "");
    state.kernel = prog_kernel(state.program, "add");
    state.mem = prog_buffer(state.prog.context, CL_MEM_COPY_HOST_PTR, BYTES, zero);
    prog_arg(state.kernel, 0, sizeof state.mem, &state.mem);
    state.open = true;
    if (state.kept) {
        cl_event never = clCreateUserEvent(state.prog.context, &err);
        cl_uint k = 0;
        OK(err);
        state.held = prog_queue(&state.prog, 0);
        prog_arg(state.kernel, 1, sizeof k, &k);
        OK(clEnqueueNDRangeKernel(state.held, state.kernel, 1, NULL, &items, NULL, 1, &never,
                                  NULL));
    }
    printf("ending: begins\n"); /* whoever moves it may begin as well */
    fflush(stdout);
    work_for(seconds);
    atexit(late_handler);
    if (strcmp(how, "exit") == 0)
        exit(state.status);
    if (strcmp(how, "callback") == 0)
        end_by_callback();
    if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, exit_in_thread, NULL) == 0);
        pthread_join(thread, NULL);
    }
    return state.status;
}
