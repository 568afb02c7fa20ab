#ifndef RESEAT_INTERPOSE_ENTRY_CALLS_H
#define RESEAT_INTERPOSE_ENTRY_CALLS_H

#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#include <CL/cl.h>
#include <CL/cl_egl.h>
#include <CL/cl_ext.h>
#include <CL/cl_gl.h>
#include <CL/cl_icd.h>
#include <CL/cl_layer.h>
#include <stddef.h>

/*
 * The entry points: those that calls.txt describes and generate.py writes, and those written by
 * hand in entry_*.c. Include this before any other header that includes OpenCL's.
 */

/** Our entry points, as every virtual object and every loader sees them. */
extern const cl_icd_dispatch calls_dispatch;

/** What clGetExtensionFunctionAddress knows, sorted by name. */
struct call_address {
    const char *name;
    void (*address)(void);
};
extern const struct call_address calls_addresses[];
extern const size_t calls_address_count;

#endif
