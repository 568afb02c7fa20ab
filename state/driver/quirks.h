#ifndef RESEAT_STATE_DRIVER_QUIRKS_H
#define RESEAT_STATE_DRIVER_QUIRKS_H

#include <stddef.h>

/*
 * Peculiarities of drivers that OpenCL does not lead one to expect, in one table: also those that
 * are found by trying, or handled for every driver because that costs nothing. Code that must know
 * about a driver's peculiarity tests a bit (struct device) and compares no names.
 */

enum quirk {
    QUIRK_RUNS_IN_CALLER = 1u << 0,   /**< Commands run in the threads that wait for them. */
    QUIRK_FINISH_FORGETS = 1u << 1,   /**< clFinish returns at once after another's clFlush. */
    QUIRK_GROUP_SIZE_WRONG = 1u << 2, /**< CL_KERNEL_WORK_GROUP_SIZE is wrong. */
    QUIRK_WAITS_END = 1u << 3,        /**< Waits end, with an error, when the device fails. */
    QUIRK_BINARY_COMPILES = 1u << 4,  /**< Asked for a binary, it compiles for much longer. */
    QUIRK_BINARY_IS_IL = 1u << 5,     /**< Its binaries are not compiled: its kernels are, later. */
    QUIRK_OFFSETS_MIXED =
        1u << 6, /**< A kernel fails if launches with and without offsets run at the same time. */
    QUIRK_COMPILES_INSIDE = 1u << 7, /**< It compiles within the process. */
    QUIRK_NO_LOCKS = 1u << 8,        /**< Two threads must not call it at once. */
    QUIRK_RUNS_AT_ONCE = 1u << 9, /**< On a device with one compute unit, commands run in the call
                                     that enqueues them. */
    QUIRK_CALLS_COMPLETE = 1u << 10, /**< Callbacks report CL_COMPLETE for commands that failed. */
    QUIRK_LOCKS_EVENT = 1u << 11,    /**< It holds an event's lock while it calls back. */
    QUIRK_HOLDS_BACK = 1u << 12,     /**< Commands begin when their queue is flushed, whatever waits
                                        for them in others. */
};

struct quirk_row {
    unsigned quirk;       /**< One of the bits, or 0: no code tests it. */
    const char *platform; /**< CL_PLATFORM_NAME. */
    const char *versions; /**< In which it was seen. Later ones are taken to do the same. */
    const char *what;     /**< The driver does. */
    const char *why;      /**< Why it matters, or what is done about it. */
    const char *where;    /**< The file with the code for it. */
    const char *tested;   /**< The file of a test, program or bench that would notice; or NULL. */
    const char *untested; /**< Why there is none; NULL where there is. */
};
extern const struct quirk_row quirk_rows[];
extern const size_t quirk_row_count;

/** All bits of a platform. */
unsigned quirks_of(const char *platform);

#endif
