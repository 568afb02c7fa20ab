#include "agent/meters/meters.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/base/clock.h"

/* Processor packages in sysfs, named intel-rapl:N for AMD too. RESEAT_SYSFS is another root. */

struct rapl {
    char folder[PATH_MAX];
    uint64_t most;
};

static void *sysfs_rapl_open(const char *which)
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

static int sysfs_rapl_read(void *device, uint64_t *ret_value, uint64_t *ret_most, bool *ret_power)
{
    const struct rapl *rapl = device;

    *ret_most = rapl->most;
    *ret_power = false;
    return meter_number(rapl->folder, "energy_uj", ret_value);
}

const struct meter_kind meter_rapl = {
    .name = "rapl", .open = sysfs_rapl_open, .close = free, .read = sysfs_rapl_read};

/*
 * GPUs whose Linux driver shows them in sysfs: amdgpu, i915, xe and others. The share of time in
 * which one is busy is gpu_busy_percent where the driver has that (amdgpu). Else the engine times
 * of the processes that have it open are added up, of which we may read those of our own user; root
 * reads all. RESEAT_SYSFS and RESEAT_PROC are other roots.
 */

#define ENGINES_MAX 16
#define CLIENTS_MAX 1024
#define FILES_MAX   65536 /* descriptors looked at in one scan */

/** The time for which one engine of the GPU worked for all clients that were found. */
struct engine {
    char name[32];
    uint64_t ns, before_ns; /* now, and in the scan before */
    bool known;             /* it has before_ns */
};

struct sysfs {
    char pci[16];
    char folder[PATH_MAX], hwmon[PATH_MAX]; /* "": there is none */
    struct engine engines[ENGINES_MAX];
    unsigned engine_count;
    uint64_t clients[CLIENTS_MAX]; /* of one scan: a client may have several descriptors */
    unsigned client_count, files;
    uint64_t scanned_ns; /* 0: never */
};

static bool sysfs_find_hwmon(struct sysfs *sysfs)
{
    char folder[PATH_MAX];
    struct dirent *entry = NULL;

    if (snprintf(folder, sizeof(folder), "%s/hwmon", sysfs->folder) >= (int)sizeof(folder))
        return false;
    DIR *list = opendir(folder);
    while (list && (entry = readdir(list)) && strncmp(entry->d_name, "hwmon", 5) != 0)
        ;
    bool found = entry && snprintf(sysfs->hwmon, sizeof(sysfs->hwmon), "%s/%s", folder,
                                   entry->d_name) < (int)sizeof(sysfs->hwmon);
    if (!found)
        sysfs->hwmon[0] = '\0';
    if (list)
        (void)closedir(list);
    return found;
}

static void *sysfs_open(const char *which)
{
    struct sysfs *sysfs = calloc(1, sizeof(*sysfs));

    if (!sysfs)
        return NULL;
    int size = snprintf(sysfs->folder, sizeof(sysfs->folder), "%s/bus/pci/devices/%s",
                        meter_root("RESEAT_SYSFS", "/sys"), which);
    if (size >= (int)sizeof(sysfs->folder) || strlen(which) >= sizeof(sysfs->pci) ||
        strspn(which, "0123456789abcdef:.") != strlen(which) || access(sysfs->folder, X_OK)) {
        free(sysfs);
        return NULL;
    }
    strcpy(sysfs->pci, which);
    (void)sysfs_find_hwmon(sysfs);
    return sysfs;
}

static int sysfs_read(void *device, uint64_t *ret_value, uint64_t *ret_most, bool *ret_power)
{
    const struct sysfs *sysfs = device;
    uint64_t uw;

    *ret_most = 0;
    *ret_power = false;
    if (!sysfs->hwmon[0])
        return -ENODEV;
    if (!meter_number(sysfs->hwmon, "energy1_input", ret_value))
        return 0;
    *ret_power = true;
    if (meter_number(sysfs->hwmon, "power1_average", &uw) &&
        meter_number(sysfs->hwmon, "power1_input", &uw))
        return -EIO;
    *ret_value = uw / 1000;
    return 0;
}

static void sysfs_look(void *device, struct meter_gauges *gauges)
{
    const struct sysfs *sysfs = device;
    uint64_t value;

    if (!meter_number(sysfs->folder, "gpu_busy_percent", &value) && value <= 100)
        gauges->values[METER_BUSY] = 10 * value;
    if (sysfs->hwmon[0] && !meter_number(sysfs->hwmon, "temp1_input", &value))
        gauges->values[METER_TEMPERATURE] = value / 1000;
    if (sysfs->hwmon[0] && !meter_number(sysfs->hwmon, "freq1_input", &value))
        gauges->values[METER_CLOCK] = value / 1000000;
}

/* ---- engine times of processes ---- */

static void sysfs_add_engine(struct sysfs *sysfs, const char *name, size_t length, uint64_t ns)
{
    unsigned i = 0;

    if (length >= sizeof(sysfs->engines[0].name))
        return;
    while (i < sysfs->engine_count &&
           (strncmp(sysfs->engines[i].name, name, length) != 0 || sysfs->engines[i].name[length]))
        i++;
    if (i == ENGINES_MAX)
        return;
    if (i == sysfs->engine_count) {
        sysfs->engines[sysfs->engine_count++] = (struct engine){.known = false};
        memcpy(sysfs->engines[i].name, name, length);
    }
    sysfs->engines[i].ns += ns < UINT64_MAX / CLIENTS_MAX ? ns : 0;
}

/** True for a client of the GPU that was not met in this scan yet. */
static bool sysfs_is_new(struct sysfs *sysfs, uint64_t client)
{
    for (unsigned i = 0; i < sysfs->client_count; i++)
        if (sysfs->clients[i] == client)
            return false;
    if (sysfs->client_count == CLIENTS_MAX)
        return false;
    sysfs->clients[sysfs->client_count++] = client;
    return true;
}

/** What the kernel says of a descriptor: "drm-pdev:", "drm-client-id:" and then engines. */
static void sysfs_read_fdinfo(struct sysfs *sysfs, const char *path)
{
    char line[256];
    bool ours = false, counts = false;
    FILE *file = fopen(path, "re");

    while (file && fgets(line, sizeof(line), file)) {
        char *value = strchr(line, ':');
        if (!value)
            continue;
        *value++ = '\0';
        value += strspn(value, " \t");
        if (strcmp(line, "drm-pdev") == 0)
            ours = strncmp(value, sysfs->pci, strlen(sysfs->pci)) == 0;
        else if (strcmp(line, "drm-client-id") == 0)
            counts = ours && sysfs_is_new(sysfs, strtoull(value, NULL, 10));
        else if (counts && strncmp(line, "drm-engine-", 11) == 0 &&
                 isdigit((unsigned char)*value) && strstr(value, " ns"))
            sysfs_add_engine(sysfs, line + 11, strlen(line + 11), strtoull(value, NULL, 10));
    }
    if (file)
        (void)fclose(file);
}

static void sysfs_scan_process(struct sysfs *sysfs, const char *root, const char *pid)
{
    char path[PATH_MAX], target[PATH_MAX];
    const struct dirent *entry;

    if (snprintf(path, sizeof(path), "%s/%s/fd", root, pid) >= (int)sizeof(path))
        return;
    DIR *list = opendir(path);
    while (list && (entry = readdir(list)) && sysfs->files++ < FILES_MAX) {
        if (snprintf(path, sizeof(path), "%s/%s/fd/%s", root, pid, entry->d_name) >=
            (int)sizeof(path))
            continue;
        ssize_t length = readlink(path, target, sizeof(target) - 1);
        if (length <= 0)
            continue;
        target[length] = '\0';
        if (strncmp(target, "/dev/dri/", 9) == 0 &&
            snprintf(path, sizeof(path), "%s/%s/fdinfo/%s", root, pid, entry->d_name) <
                (int)sizeof(path))
            sysfs_read_fdinfo(sysfs, path);
    }
    if (list)
        (void)closedir(list);
}

/** The share of the busiest engine. It is not known when the times of a client are missing that has
 * ended since the last scan. */
static uint64_t sysfs_busiest(struct sysfs *sysfs, uint64_t elapsed_ns)
{
    uint64_t most = 0;
    bool known = false, less = false;

    for (unsigned i = 0; i < sysfs->engine_count; i++) {
        struct engine *engine = &sysfs->engines[i];
        uint64_t ns = engine->ns - engine->before_ns;
        uint64_t share = ns < elapsed_ns ? ns * 1000 / elapsed_ns : 1000;
        less = less || engine->ns < engine->before_ns;
        known = known || engine->known;
        most = engine->known && share > most ? share : most;
        engine->before_ns = engine->ns;
        engine->known = true;
        engine->ns = 0;
    }
    return known && !less ? most : METER_UNKNOWN;
}

static void sysfs_scan(void *device, struct meter_gauges *gauges)
{
    const char *root = meter_root("RESEAT_PROC", "/proc");
    struct sysfs *sysfs = device;
    const struct dirent *entry;
    uint64_t percent, now_ns = clock_boot_ns(), before_ns = sysfs->scanned_ns;

    if (!meter_number(sysfs->folder, "gpu_busy_percent", &percent))
        return;
    sysfs->client_count = sysfs->files = 0;
    DIR *list = opendir(root);
    while (list && (entry = readdir(list)))
        if (isdigit((unsigned char)entry->d_name[0]))
            sysfs_scan_process(sysfs, root, entry->d_name);
    if (list)
        (void)closedir(list);
    uint64_t busy = sysfs_busiest(sysfs, now_ns > before_ns ? now_ns - before_ns : 1);
    sysfs->scanned_ns = now_ns;
    if (before_ns)
        gauges->values[METER_BUSY] = busy;
}

const struct meter_kind meter_sysfs = {"sysfs",    sysfs_open, free,
                                       sysfs_read, sysfs_look, sysfs_scan};
