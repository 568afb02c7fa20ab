#include "agent/meters/meters.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Processor packages in sysfs, named intel-rapl:N for AMD too. RESEAT_SYSFS is another root. */

struct rapl {
    char energy[PATH_MAX];
    uint64_t most;
};

static int rapl_number(const char *path, uint64_t *ret_number)
{
    char text[32] = "", *end;
    FILE *file = fopen(path, "re");

    if (!file)
        return -errno;
    bool read = fgets(text, sizeof(text), file) != NULL;
    (void)fclose(file);
    errno = 0;
    uint64_t number = strtoull(text, &end, 10);
    if (!read || !isdigit((unsigned char)text[0]) || errno || (*end && *end != '\n'))
        return -EIO;
    *ret_number = number;
    return 0;
}

static void *rapl_open(const char *which)
{
    const char *root = getenv("RESEAT_SYSFS");
    char path[PATH_MAX];
    struct rapl *rapl = calloc(1, sizeof(*rapl));
    int size;

    if (!rapl)
        return NULL;
    root = root && *root ? root : "/sys";
    size = snprintf(rapl->energy, sizeof(rapl->energy), "%s/class/powercap/intel-rapl:%s/energy_uj",
                    root, which);
    if (size >= (int)sizeof(rapl->energy) || strchr(which, '/') ||
        snprintf(path, sizeof(path), "%s/class/powercap/intel-rapl:%s/max_energy_range_uj", root,
                 which) >= (int)sizeof(path) ||
        rapl_number(path, &rapl->most) || !rapl->most) {
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
    return rapl_number(rapl->energy, ret_value);
}

const struct meter_kind meter_rapl = {"rapl", rapl_open, free, rapl_read};
