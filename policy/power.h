#ifndef RESEAT_POLICY_POWER_H
#define RESEAT_POLICY_POWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Who may give launches to its device so that no power cap is exceeded. Power is granted as memory
 * is: a program that may launch counts with its peak until its launches have ended. Pure: no I/O,
 * no clock.
 *
 * Powers are milliwatts. A device draws what it draws idle, what programs here draw above that, and
 * what others draw above that; but no more than the most it can draw, where that is known. A peak
 * that is not known counts as the most that the device can draw; where neither is known, the
 * program does not fit under any cap.
 */

#define POWER_NO_CAP    0
#define POWER_NO_DEVICE UINT32_MAX
/** How long a program keeps its grant while others wait for power. */
#define POWER_SLICE_MS 500
#define POWER_REASON   256

struct power_device {
    const char *name;
    uint64_t idle_mw;
    uint64_t most_mw;    /**< The most it can draw; 0: unknown. */
    uint64_t foreign_mw; /**< Above idle, drawn by others than programs here. */
    uint64_t cap_mw;
};

struct power_program {
    uint32_t device;   /**< POWER_NO_DEVICE: it is on none. */
    uint64_t peak_mw;  /**< Above idle, on that device; 0: unknown. */
    uint64_t cap_mw;   /**< Of what it draws, and what its device draws idle. */
    bool granted;      /**< It may launch now. */
    bool runs;         /**< It may launch, or launches of it have not ended. */
    bool wants;        /**< It has launches to give. */
    uint64_t since_ms; /**< Since when it is granted, or waits. */
};

struct power_world {
    const struct power_device *devices;
    uint32_t device_count;
    const struct power_program *programs;
    uint32_t program_count;
    uint64_t cap_mw; /**< Of the host: all devices together. */
    uint64_t now_ms;
};

struct power_choice {
    bool grant;
    char why[POWER_REASON]; /**< Why it waits; "" where it does not. */
    /* Of power_choose() alone. */
    bool seen, chosen, counts, keeps;
};

/** True when a cap concerns the program. Others need no grant. */
bool power_is_capped(const struct power_world *world, uint32_t program);

/**
 * Choose who may launch from now on, among programs that want to and those that are granted. A
 * program that is not chosen has to end its launches before its power is given to others: until
 * then it `runs`, and what it takes is not granted. The longest waiting program comes first once
 * those before it had POWER_SLICE_MS.
 *
 * @ret_choices  One for each program.
 * O(programs squared).
 */
void power_choose(const struct power_world *world, struct power_choice *ret_choices);

/** What the device draws while programs that `run` launch: the sum that caps are compared with. */
uint64_t power_draw(const struct power_world *world, uint32_t device);

/**
 * The least cap of @device, or with POWER_NO_DEVICE of the host, under which one program that is
 * there could run; without a program, anything. 0: not known.
 */
uint64_t power_least(const struct power_world *world, uint32_t device);
#define POWER_NO_PROGRAM UINT32_MAX

#endif
