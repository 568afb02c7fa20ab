#ifndef RESEAT_TESTS_STATE_MOVE_PLACEMENT_RIG_H
#define RESEAT_TESTS_STATE_MOVE_PLACEMENT_RIG_H

#include "tests/support/cases.h"
#include <unistd.h>

#include "interpose/entry/start.h"
#include "state/base/clock.h"
#include "state/command/place.h"
#include "state/move/elastic.h"
#include "state/program/kernel.h"
#include "tests/support/engine_rig.h"

/* Launches on other devices than their queue's: the bytes are those of one device. */

#define CONFIG                                                                                     \
    "[one] items_per_s=4000000 name=one type=cpu base=1 own_memory=yes "                           \
    "[two] items_per_s=4000000 name=two type=cpu base=1 own_memory=yes "                           \
    "[three] items_per_s=4000000 name=three type=cpu base=1 own_memory=yes"

enum { BUFFERS = 8, ITEMS = 8192, HALF = ITEMS / 2 };

/** Kernels `blend`, of whole buffers, and `part`, of a part of each. */
extern const char placement_source[];
/** What the buffers have, and room to read one. */
extern cl_uint model[BUFFERS][ITEMS], words[ITEMS];

/** How many launches @device was given. */
uint64_t launches(const struct engine_rig *rig, const char *device);
/** What `part` does in the model to @n words from @at on of three buffers. */
void mix_range(unsigned out, unsigned a, unsigned b, cl_uint k, unsigned at, unsigned n);
/** What `blend` does in the model. */
void mix(unsigned out, unsigned a, unsigned b, cl_uint k);
/**
 * Tell the engine that launches of @kernels take @home_ms on the first device, and @other_ms on
 * each other one. So no trials are needed, which a busy machine makes long, so that the next ones
 * are put off.
 */
void teach_times(const struct engine_rig *rig, const cl_kernel *kernels, unsigned count,
                 uint64_t home_ms, uint64_t other_ms);

#endif
