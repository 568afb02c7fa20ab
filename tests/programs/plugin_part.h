#ifndef TESTS_PROGRAMS_PLUGIN_PART_H
#define TESTS_PROGRAMS_PLUGIN_PART_H

#include <CL/cl.h>

/** Run a kernel. An OpenCL error, or CL_SUCCESS and how many of its words were wrong. */
cl_int plugin_use(cl_uint k, cl_uint *ret_wrong);

#endif
