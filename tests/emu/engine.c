#include <stdlib.h>

#include "tests/emu/call.h"
#include "tests/emu/object.h"

/*
 * A device's engines, with engines=yes: one for each direction of its link, and its cores. Each has
 * one command at a time, which begins when it could (its queue and wait list) and the engine is
 * free; the call that enqueues it does not wait. In the driver's queue there are three commands: a
 * marker that says when it could begin, a barrier until the engine has had its time, itself.
 */

struct turn {
    struct emu_device *device;
    enum emu_engine engine;
    uint64_t duration;
    cl_event ready, over; /* owned */
};

static void *engine_serve(void *data)
{
    struct turn *turn = data;
    struct emu_device *device = turn->device;
    emu_driver->clWaitForEvents(1, &turn->ready);
    uint64_t end = emu_engine_take(device, turn->engine, turn->duration);
    (void)emu_engine_wait(device, end);
    emu_driver->clSetUserEventStatus(turn->over, CL_COMPLETE);
    emu_driver->clReleaseEvent(turn->ready);
    emu_driver->clReleaseEvent(turn->over);
    free(turn);
    return NULL;
}

cl_int emu_engine_gate(struct emu_device *device, enum emu_engine engine, cl_command_queue queue,
                       uint64_t duration, cl_uint count, const cl_event *real_waits)
{
    struct emu_object *object = emu_object_of(queue);
    pthread_t thread;
    cl_int err;
    if (duration == 0)
        return CL_SUCCESS;
    struct turn *turn = malloc(sizeof(*turn));
    if (turn == NULL)
        return CL_OUT_OF_HOST_MEMORY;
    *turn = (struct turn){.device = device, .engine = engine, .duration = duration};
    err = emu_driver->clEnqueueMarkerWithWaitList(object->real, count, real_waits, &turn->ready);
    if (err != CL_SUCCESS)
        goto no_ready;
    turn->over = emu_driver->clCreateUserEvent(object->context->object.real, &err);
    if (err != CL_SUCCESS)
        goto no_over;
    err = emu_driver->clEnqueueBarrierWithWaitList(object->real, 1, &turn->over, NULL);
    if (err != CL_SUCCESS)
        goto no_thread;
    emu_driver->clFlush(object->real);
    emu_call_lasts(duration);
    if (pthread_create(&thread, NULL, engine_serve, turn) != 0)
        engine_serve(turn); /* inside the call, then */
    else
        (void)pthread_detach(thread);
    return CL_SUCCESS;

no_thread:
    emu_driver->clReleaseEvent(turn->over);
no_over:
    emu_driver->clReleaseEvent(turn->ready);
no_ready:
    free(turn);
    return err;
}

cl_int emu_transfer(struct emu_device *device, enum emu_engine engine, uint64_t bytes,
                    cl_command_queue queue, cl_uint count, const cl_event *waits)
{
    if (!device->config.engines)
        return emu_link_wait(device, engine, bytes);
    struct emu_list real CLEANUP(emu_list_finish);
    cl_int err = emu_list_init(&real, count, waits, EMU_EVENT);
    if (err != CL_SUCCESS)
        return err;
    return emu_engine_gate(device, engine, queue, emu_link_ns(device, bytes), count,
                           (const cl_event *)(const void *)real.real);
}
