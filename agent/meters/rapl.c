#include "agent/meters/meters.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Processor packages in sysfs, named intel-rapl:N for AMD too. RESEAT_SYSFS is another root. */

struct rapl {
    char folder[PATH_MAX];
    uint64_t most;
};

static void *rapl_open(const char *which)
{
    struct rapl *rapl = calloc(1, sizeof(*rapl));

    if (!rapl)
        return NULL;
    int size = snprintf(rapl->folder, sizeof(rapl->folder), "%s/class/powercap/intel-rapl:%s",
                        meter_root("RESEAT_SYSFS", "/sys"), which);
    if (size >= (int)sizeof(rapl->folder) || strchr(which, '/') ||
        meter_number(rapl->folder, "max_energy_range_uj", &rapl->most) || !rapl->most) {
        free(rapl);
        return NULL;
    }
    return rapl;
}

static int rapl_read(void *device, uint64_t *ret_value, uint64_t *ret_most, bool *ret_power)
{
    const struct rapl *rapl = device;

    *ret_most = rapl->most;
    *ret_power = false;
    return meter_number(rapl->folder, "energy_uj", ret_value);
}

const struct meter_kind meter_rapl = {
    .name = "rapl", .open = rapl_open, .close = free, .read = rapl_read};
