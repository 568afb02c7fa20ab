#ifndef RESEAT_POLICY_POWER_H
#define RESEAT_POLICY_POWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Chooses which programs may launch so that no power cap is exceeded. Power is granted as memory
 * is: a program is charged its peak until its launches have ended. Pure: no I/O, no clock.
 *
 * All powers are in milliwatts. A device draws its idle power, plus what programs here draw, plus
 * what other users draw, but at most most_mw where that is known. If the peak of a program is not
 * known, it is charged most_mw less the idle power; if that is not known either, it fits under no
 * cap.
 */

#define POWER_NO_CAP    0
#define POWER_NO_DEVICE UINT32_MAX
/** How long a program keeps its grant while others wait. */
#define POWER_SLICE_MS 500
#define POWER_REASON   256

struct power_device {
    const char *name;
    uint64_t idle_mw;
    uint64_t most_mw;    /**< The most that the device can draw; 0: unknown. */
    uint64_t foreign_mw; /**< Above idle, drawn by users that are not our programs. */
    uint64_t cap_mw;
    /* Used by power_choose() only. */
    uint64_t above_mw; /**< Above idle, drawn by the programs that were counted so far. */
    bool kept;         /**< Power is kept for a program that waits. */
};

struct power_program {
    uint32_t device;   /**< POWER_NO_DEVICE: no device. */
    uint64_t peak_mw;  /**< Above idle, on that device; 0: unknown. */
    uint64_t cap_mw;   /**< Limits the program's peak plus its device's idle power; 0: no cap. */
    bool granted;      /**< It is allowed to launch. */
    bool runs;         /**< It is allowed to launch, or its launches have not ended. */
    bool wants;        /**< It has launches to submit. */
    uint64_t since_ms; /**< Time at which it was granted, or began to wait. */
};

struct power_world {
    struct power_device *devices;
    uint32_t device_count;
    const struct power_program *programs;
    uint32_t program_count;
    uint64_t cap_mw; /**< Of the host: all devices together. */
    uint64_t now_ms;
};

struct power_choice {
    bool grant;
    char why[POWER_REASON]; /**< Reason for waiting; "" if it does not wait. */
    uint64_t least_mw;      /**< It waits although no other runs; the lowest cap that would do. */
    /* Used by power_choose() only. */
    bool seen, chosen, counts;
};

/** True when a cap concerns the program. Other programs need no grant. */
bool power_program_is_capped(const struct power_world *world, uint32_t program);

/**
 * Choose which programs may launch, among those that want to and those that are granted. A program
 * that loses its grant still `runs` until its launches have ended, and its power is not given to
 * others before. The program that waits longest comes first once those before it had
 * POWER_SLICE_MS.
 *
 * @ret_choices  One for each program. Takes time in the square of the number of programs, and in
 *               the number of devices.
 */
void power_choose(const struct power_world *world, struct power_choice *ret_choices);

#endif
