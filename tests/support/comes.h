#ifndef RESEAT_TESTS_SUPPORT_COMES_H
#define RESEAT_TESTS_SUPPORT_COMES_H

#include "state/base/clock.h"

/** Whether @condition comes to hold within @ns; it is looked at each millisecond. */
#define COMES(condition, ns)                                                                       \
    ({                                                                                             \
        uint64_t comes_until_ = clock_now_ns() + (ns);                                             \
        bool comes_;                                                                               \
        while (!(comes_ = (condition)) && clock_now_ns() < comes_until_)                           \
            clock_sleep(NS_PER_MS);                                                                \
        comes_;                                                                                    \
    })

#endif
