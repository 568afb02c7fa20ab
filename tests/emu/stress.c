#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/emu/emu.h"

/*
 * Threads that share one context, with callbacks and a device that comes and goes. Ends with
 * success when every read brought what was written, every callback came once and nothing is left.
 */

#define THREADS 4
#define ROUNDS  200
#define DEVICE  "emu"

static const cl_icd_dispatch *cl;
static cl_context context;
static cl_device_id device;
static int values[ROUNDS]; /* A write under way outlives its round when the read after it fails. */
static atomic_int callbacks_due, callbacks_come, wrong;

static void CL_CALLBACK on_event(cl_event event, cl_int status, void *data)
{
    (void)event;
    (void)status;
    (void)data;
    atomic_fetch_add(&callbacks_come, 1);
}

static void one_round(cl_command_queue queue, const int *value)
{
    cl_int err;
    int out = -1;
    cl_event written = NULL;
    cl_mem mem = cl->clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof(*value), NULL, &err);
    if (mem == NULL)
        return;
    if (cl->clEnqueueWriteBuffer(queue, mem, CL_FALSE, 0, sizeof(*value), value, 0, NULL,
                                 &written) == CL_SUCCESS) {
        if (cl->clSetEventCallback(written, CL_COMPLETE, on_event, NULL) == CL_SUCCESS)
            atomic_fetch_add(&callbacks_due, 1);
        if (cl->clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, sizeof(out), &out, 1, &written, NULL) ==
                CL_SUCCESS &&
            out != *value)
            atomic_fetch_add(&wrong, 1);
        cl->clReleaseEvent(written);
    }
    cl->clReleaseMemObject(mem);
}

static void *work(void *data)
{
    cl_int err;
    cl_command_queue queue = NULL;
    while (queue == NULL)
        queue = cl->clCreateCommandQueue(context, device, 0, &err);
    for (int i = 0; i < ROUNDS; i++)
        one_round(queue, &values[i]);
    while (cl->clFinish(queue) != CL_SUCCESS)
        continue;
    cl->clReleaseCommandQueue(queue);
    return data;
}

int main(void)
{
    const char *path = getenv("EMU_LIBRARY");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    clIcdGetPlatformIDsKHR_fn platforms = NULL;
    emu_control_shared_fn control = NULL;
    cl_platform_id platform;
    cl_int err;
    pthread_t threads[THREADS];
    if (library != NULL) {
        *(void **)&platforms = dlsym(library, "clIcdGetPlatformIDsKHR");
        *(void **)&control = dlsym(library, "emu_control_shared");
    }
    if (platforms == NULL || control == NULL || platforms(1, &platform, NULL) != CL_SUCCESS)
        return EXIT_FAILURE;
    cl = *(const cl_icd_dispatch **)platform;
    if (cl->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL) != CL_SUCCESS)
        return EXIT_FAILURE;
    context = cl->clCreateContext(NULL, 1, &device, NULL, NULL, &err);
    if (context == NULL)
        return EXIT_FAILURE;
    for (int i = 0; i < ROUNDS; i++)
        values[i] = i;
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        emu_shared_vanish(control(), DEVICE);
        emu_shared_restore(control(), DEVICE);
        if (emu_shared_arm(control(), DEVICE, THREADS, NULL, EMU_ERROR_NATURAL) != 0)
            return EXIT_FAILURE;
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    emu_shared_disarm(control(), DEVICE);
    cl->clReleaseContext(context);
    while (atomic_load(&callbacks_come) < atomic_load(&callbacks_due) ||
           emu_shared_live_all(control(), DEVICE) > 0)
        sched_yield();
    printf("%d callbacks, %d wrong\n", atomic_load(&callbacks_come), atomic_load(&wrong));
    return atomic_load(&wrong) == 0 && callbacks_come == callbacks_due ? EXIT_SUCCESS
                                                                       : EXIT_FAILURE;
}
