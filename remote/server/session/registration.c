#include "remote/server/session/registration.h"

#include "state/base/log.h"

bool registration_begin(struct registration *registration, const cl_icd_dispatch *cl,
                        cl_context context, void *bytes, size_t size)
{
    cl_int error = CL_SUCCESS;
    cl_mem_flags flags = CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR | CL_MEM_HOST_NO_ACCESS;
    *registration =
        (struct registration){cl, cl->clCreateBuffer(context, flags, size, bytes, &error)};
    if (!registration->buffer)
        log_info("host memory is not registered with a device (error %d)", error);
    return registration->buffer != NULL;
}

void registration_end(const struct registration *registration)
{
    if (registration->buffer)
        registration->cl->clReleaseMemObject(registration->buffer);
}
