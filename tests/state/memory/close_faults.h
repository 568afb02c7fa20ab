#ifndef RESEAT_TESTS_STATE_MEMORY_CLOSE_FAULTS_H
#define RESEAT_TESTS_STATE_MEMORY_CLOSE_FAULTS_H

#include "tests/support/cases.h"
#include <unistd.h>

/** What closefrom(3) would do to dirty tracking. */
static inline void close_faults(void)
{
    char path[64], target[64];
    unsigned closed = 0;
    for (int fd = 3; fd < 2000; fd++) {
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t size = readlink(path, target, sizeof(target));
        if (size > 0 && memmem(target, (size_t)size, "userfaultfd", 11))
            closed += close(fd) == 0;
    }
    cr_assert_eq(closed, 1);
}

#endif
