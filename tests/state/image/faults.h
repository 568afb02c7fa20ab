#ifndef RESEAT_TESTS_STATE_IMAGE_FAULTS_H
#define RESEAT_TESTS_STATE_IMAGE_FAULTS_H

/*
 * A disk with faults: the calls of the C library that change files, by the linker's --wrap. What
 * was written and not synced is lost when the process is killed, the worst that a crash of the
 * machine does: such files are empty, and such renames have not happened.
 */

enum fault {
    FAULT_NONE,
    FAULT_KILL,  /**< The process ends at the call, with FAULT_KILLED. */
    FAULT_ERROR, /**< The call fails with `error`, and does nothing. */
    FAULT_FULL,  /**< From the call on nothing can be written any more. */
};
#define FAULT_KILLED 71

/** From now on count calls from 1, and do that at number @at. */
void faults_arm(enum fault fault, unsigned at, int error);
/** How many there were. */
unsigned faults_count(void);

#endif
