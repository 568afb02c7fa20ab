#ifndef RESEAT_INTERPOSE_AWARE_AWARE_H
#define RESEAT_INTERPOSE_AWARE_AWARE_H

#include <CL/cl.h>
#include <stdbool.h>
#include <stdint.h>

#include "policy/reseat.h"

/*
 * The program's side of policy/reseat.h: who registered, and the thread that calls it back.
 */

/** What the agent is told of a program that registered. */
struct aware_wish {
    uint64_t edition; /**< Changes with the rest. */
    bool registered;
    struct reseat_limits minimum, preferred;
};
/** Thread-safe. */
void aware_wish(struct aware_wish *ret_wish);

/**
 * Have the program notified, if it registered and wants to be. Never blocks.
 *
 * @what  RESEAT_DEVICE_ADDED...
 * @seat  UINT32_MAX: of none.
 * @text  Copied.
 */
void aware_notice(uint32_t what, uint32_t seat, uint64_t in_ns, uint64_t value, const char *text);

/** The program's virtual devices are there. */
void aware_started(void);

/** clGetDeviceInfo of what follows the device: false when it is what every program is told. */
struct info_request;
bool aware_device_info(uint32_t seat, cl_device_info name, const struct info_request *request,
                       cl_int *ret_error);

/** What libreseat.so exports: see policy/reseat.h. */
__attribute__((visibility("default"))) const struct reseat_api *reseat_api(uint32_t version);

#endif
