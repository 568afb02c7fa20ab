#include "remote/server/session/registration.h"

#include "state/base/log.h"

bool registration_begin(struct registration *registration, const cl_icd_dispatch *cl,
                        cl_context context, cl_device_id device, void *bytes, size_t size)
{
    cl_int error = CL_SUCCESS;
    *registration = (struct registration){.cl = cl};
    registration->queue = cl->clCreateCommandQueue(context, device, 0, &error);
    if (registration->queue)
        registration->buffer = cl->clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                                                  size, bytes, &error);
    if (registration->buffer)
        registration->map =
            cl->clEnqueueMapBuffer(registration->queue, registration->buffer, CL_TRUE,
                                   CL_MAP_READ | CL_MAP_WRITE, 0, size, 0, NULL, NULL, &error);
    if (registration->map == bytes)
        return true;
    log_info("host memory is not registered with a device (error %d)", error);
    return false;
}

void registration_end(const struct registration *registration)
{
    const cl_icd_dispatch *cl = registration->cl;
    if (registration->map)
        cl->clEnqueueUnmapMemObject(registration->queue, registration->buffer, registration->map, 0,
                                    NULL, NULL);
    if (registration->queue) {
        cl->clFinish(registration->queue);
        cl->clReleaseCommandQueue(registration->queue);
    }
    if (registration->buffer)
        cl->clReleaseMemObject(registration->buffer);
}
