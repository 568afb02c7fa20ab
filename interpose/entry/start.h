#ifndef RESEAT_INTERPOSE_ENTRY_START_H
#define RESEAT_INTERPOSE_ENTRY_START_H

#include "state/present/presented.h"

/*
 * The first use of OpenCL. Before it the library is a mapping and nothing else: no thread, no
 * descriptor, no driver, no memory.
 */

/** Environment, beside control.h's and driver.h's. */
#define START_ENV_INVENTORY "RESEAT_INVENTORY" /**< A file of inventory_write: all devices. */
#define START_ENV_PRESENT   "RESEAT_PRESENT" /**< gpu, cpu, accelerator or native: the type told. */
#define START_ENV_DEVICES   "RESEAT_DEVICES" /**< How many virtual devices; 1 without it. */
#define START_ENV_PROFILE   "RESEAT_PROFILE" /**< portable or native. */
#define START_ENV_BINARIES  "RESEAT_BINARIES"      /**< The library's folder; none without it. */
#define START_ENV_LIMIT     "RESEAT_LIBRARY_LIMIT" /**< MiB of it, as the setting; 1024. */
#define START_ENV_LINKS     "RESEAT_LINKS"  /**< Where figures of links are kept; or nowhere. */
#define START_ENV_REMOTE    "RESEAT_REMOTE" /**< Our driver in front of device servers. */
#define START_ENV_MEMORY                                                                           \
    "RESEAT_MEMORY" /**< A size (state/base/bytes/size.h): device memory to tell.                  \
                     */
#define START_ENV_SLICE                                                                            \
    "RESEAT_SLICE" /**< Milliseconds that a piece of a long launch takes; 0: none is cut. */

#define START_ENV_OBJECTIVE "RESEAT_OBJECTIVE" /**< time...: place_configure. */
#define START_ENV_FLOAT     "RESEAT_FLOAT"     /**< any: place_configure. */
#define START_ENV_PROTECT                                                                          \
    "RESEAT_PROTECTION" /**< Its device may be lost: as agent/protocol/protection.h takes it. */
#define START_ENV_FAULT "RESEAT_MEAN_TIME_TO_FAULT" /**< Seconds; 0: not known. */

/** Without START_ENV_SLICE. */
#define START_SLICE_MS      10
#define START_SLICE_MOST_MS 60000u

/**
 * Open the devices that the program starts on, make the platform and tell the agent, once.
 *
 * Every call that a program can make without a handle of ours begins with it. Thread-safe; blocks
 * on the driver the first time. Returns 0, or -errno when there is no device to run on (the reason
 * is in the log), or -EDEADLK when a driver calls back while it is being opened.
 */
MUST_CHECK int start(void);

#endif
