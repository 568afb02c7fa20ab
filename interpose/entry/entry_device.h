#ifndef RESEAT_INTERPOSE_ENTRY_ENTRY_DEVICE_H
#define RESEAT_INTERPOSE_ENTRY_ENTRY_DEVICE_H

#include "state/object/context.h"

/**
 * The virtual devices that clGetDeviceIDs and clCreateContextFromType mean by @type (4.2). start()
 * returned 0.
 *
 * @ret_vdevs  At least SEATS long.
 * Returns CL_SUCCESS, CL_INVALID_DEVICE_TYPE or CL_DEVICE_NOT_FOUND.
 */
cl_int device_select(cl_device_type type, struct vdev **ret_vdevs, cl_uint *ret_count);

#endif
