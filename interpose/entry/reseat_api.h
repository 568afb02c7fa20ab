#ifndef RESEAT_INTERPOSE_ENTRY_RESEAT_API_H
#define RESEAT_INTERPOSE_ENTRY_RESEAT_API_H

#include "policy/reseat.h"

/** What libreseat.so exports beside OpenCL: see policy/reseat.h. */
__attribute__((visibility("default"))) const struct reseat_api *reseat_api(uint32_t version);

#endif
