#include "agent/config/bytes.h"

#include <stdio.h>

#include "state/base/compiler.h"

void bytes_text(uint64_t bytes, char *ret, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 1024 && unit + 1 < ARRAY_SIZE(units)) {
        value /= 1024;
        unit++;
    }
    snprintf(ret, size, "%.*f %s", unit && value < 100 ? 1 : 0, value, units[unit]);
}
