#ifndef RESEAT_POLICY_INTERVAL_H
#define RESEAT_POLICY_INTERVAL_H

#include <math.h>

/*
 * The interval between the snapshots of a protected program. Vaishnav, Pham and Koch ("Live
 * Migration for OpenCL FPGA Accelerators", FPT 2018, equation 1) expect that a kernel of n groups
 * takes
 *
 *     T = n Lw (1 + (D + R + c Lw / 2) / mu) + n Lc / c
 *
 * where a group takes Lw, a snapshot is made every c groups and costs Lc, faults are mu apart, and
 * after each one D passes until there is another device, R until the snapshot is restored, and half
 * an interval, on average, is done again. With the work W = n Lw and the interval t = c Lw that is
 *
 *     T = W (1 + (D + R + t / 2) / mu + Lc / t)
 *
 * which is least for t = sqrt(2 mu Lc): D and R change how long a program takes, not how often it
 * should have a snapshot made. Pure; all times are in seconds.
 */

struct interval_costs {
    double fault; /**< mu: mean time between faults. */
    double down;  /**< D and R: from a fault until the snapshot's bytes are restored elsewhere. */
    double snapshot; /**< Lc: for how long a snapshot delays the program. */
};

/** The interval for which interval_expected() is least. */
static inline double interval_best(const struct interval_costs *costs)
{
    return sqrt(2 * costs->fault * costs->snapshot);
}

/** T: how long @work takes with a snapshot every @interval, which is more than 0. */
static inline double interval_expected(const struct interval_costs *costs, double work,
                                       double interval)
{
    return work * (1 + (costs->down + interval / 2) / costs->fault + costs->snapshot / interval);
}

#endif
