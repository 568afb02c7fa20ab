#include "agent/meters/meters.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/clock.h"

#define PERIOD_NS NS_PER_S
#define SCAN_NS   (5 * NS_PER_S)  /* between two scans */
#define ASKED_NS  (60 * NS_PER_S) /* scans go on for this long after meter_look() */
#define GAP_NS    (30 * NS_PER_S) /* a total may wrap twice in a gap this long, unnoticed */

struct meter {
    const struct meter_kind *kind;
    char which[128];
    atomic_int references; /* one of the caller and one of the thread */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Guarded by lock. */
    bool stops;
    struct meter_total total;
    struct meter_gauges gauges;
    uint64_t looked_ns; /* when the gauges were read; 0: never */
    uint64_t asked_ns;  /* when meter_look() was called last; 0: never */
    /* Used by the thread. */
    struct meter_gauges scanned;
    uint64_t scanned_ns;
};

static const struct meter_gauges meter_none = {
    {METER_UNKNOWN, METER_UNKNOWN, METER_UNKNOWN, METER_UNKNOWN, METER_UNKNOWN}};

/* Values above are wrong. */
static const uint64_t meter_most[METER_GAUGES] = {
    [METER_BUSY] = 1000,
    [METER_TEMPERATURE] = 250,
    [METER_CLOCK] = 100000,
    [METER_FROM] = UINT64_C(1) << 44,
    [METER_TO] = UINT64_C(1) << 44,
};

static void meter_accept(struct meter_total *total, double uj, uint64_t now_ns)
{
    double most = (double)METER_MOST_MW * (double)(now_ns - total->value_ns) / 1e6;

    total->at_ns = 0;
    if (uj < 0 || uj > most || now_ns - total->value_ns > GAP_NS)
        return;
    total->uj += (uint64_t)uj;
    total->at_ns = now_ns;
}

void meter_total_add(struct meter_total *total, uint64_t value, uint64_t most, uint64_t now_ns)
{
    double uj = (double)value - (double)total->value;

    if (now_ns <= total->value_ns)
        return;
    if (value < total->value && most >= total->value)
        uj = (double)(most - total->value) + (double)value;
    if (total->value_ns)
        meter_accept(total, uj, now_ns);
    total->value = value;
    total->value_ns = now_ns;
}

void meter_power_add(struct meter_total *total, uint64_t mw, uint64_t now_ns)
{
    if (now_ns <= total->value_ns)
        return;
    if (total->value_ns)
        meter_accept(
            total, ((double)mw + (double)total->mw) / 2 * (double)(now_ns - total->value_ns) / 1e6,
            now_ns);
    total->mw = mw;
    total->value_ns = now_ns;
}

static void meter_unref(struct meter *meter)
{
    if (atomic_fetch_sub(&meter->references, 1) != 1)
        return;
    pthread_cond_destroy(&meter->changed);
    pthread_mutex_destroy(&meter->lock);
    free(meter);
}

/** All gauges, of which those of the last scan count until the next one. */
static struct meter_gauges meter_gauges_read(struct meter *meter, void *device, bool scans)
{
    struct meter_gauges gauges = meter_none;
    uint64_t now_ns = clock_boot_ns();

    if (!scans) {
        meter->scanned = meter_none;
    } else if (meter->kind->scan && now_ns - meter->scanned_ns >= SCAN_NS) {
        meter->scanned_ns = now_ns;
        meter->scanned = meter_none;
        meter->kind->scan(device, &meter->scanned);
    }
    if (meter->kind->look)
        meter->kind->look(device, &gauges);
    for (unsigned i = 0; i < METER_GAUGES; i++) {
        if (gauges.values[i] > meter_most[i])
            gauges.values[i] = meter->scanned.values[i];
        if (gauges.values[i] > meter_most[i])
            gauges.values[i] = METER_UNKNOWN;
    }
    return gauges;
}

/** @scans: somebody wants the gauges that are costly. */
static void meter_read_once(struct meter *meter, void *device, bool scans)
{
    uint64_t value, most = 0;
    bool power = false;
    int error = meter->kind->read(device, &value, &most, &power);
    uint64_t now_ns = clock_boot_ns();
    struct meter_gauges gauges = meter_gauges_read(meter, device, scans);

    pthread_mutex_lock(&meter->lock);
    if (!error && power)
        meter_power_add(&meter->total, value, now_ns);
    else if (!error)
        meter_total_add(&meter->total, value, most, now_ns);
    meter->gauges = gauges;
    meter->looked_ns = now_ns;
    pthread_mutex_unlock(&meter->lock);
}

/** Wait for the next reading. Returns false when the meter is to stop. */
static bool meter_wait(struct meter *meter, bool *ret_scans)
{
    uint64_t until_ns = clock_now_ns() + PERIOD_NS;

    pthread_mutex_lock(&meter->lock);
    while (!meter->stops && !clock_wait(&meter->changed, &meter->lock, until_ns))
        ;
    *ret_scans = meter->asked_ns && clock_boot_ns() - meter->asked_ns < ASKED_NS;
    bool goes_on = !meter->stops;
    pthread_mutex_unlock(&meter->lock);
    return goes_on;
}

static void *meter_main(void *data)
{
    struct meter *meter = data;
    void *device = meter->kind->open(meter->which);
    bool scans = false, goes_on = device != NULL;

    while (goes_on) {
        meter_read_once(meter, device, scans);
        goes_on = meter_wait(meter, &scans);
    }
    if (device)
        meter->kind->close(device);
    meter_unref(meter);
    return NULL;
}

static const struct meter_kind *meter_kind_of(const char *name, const char **ret_which)
{
    static const struct meter_kind *const kinds[] = {&meter_rapl, &meter_nvml, &meter_sysfs};

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        size_t length = strlen(kinds[i]->name);
        if (strncmp(name, kinds[i]->name, length) == 0 && name[length] == ':') {
            *ret_which = name + length + 1;
            return kinds[i];
        }
    }
    return NULL;
}

int meter_create(const char *name, struct meter **ret_meter)
{
    const char *which = "";
    const struct meter_kind *kind = meter_kind_of(name, &which);
    pthread_t thread;

    if (!kind || strlen(which) >= sizeof((*ret_meter)->which))
        return -EINVAL;
    struct meter *meter = calloc(1, sizeof(*meter));
    if (!meter)
        return -ENOMEM;
    meter->kind = kind;
    strcpy(meter->which, which);
    atomic_init(&meter->references, 2);
    meter->gauges = meter->scanned = meter_none;
    pthread_mutex_init(&meter->lock, NULL);
    pthread_cond_init(&meter->changed, NULL);
    if (pthread_create(&thread, NULL, meter_main, meter)) {
        atomic_store(&meter->references, 1);
        meter_unref(meter);
        return -EAGAIN;
    }
    (void)pthread_detach(thread);
    *ret_meter = meter;
    return 0;
}

void meter_destroy(struct meter *meter)
{
    if (!meter)
        return;
    pthread_mutex_lock(&meter->lock);
    meter->stops = true;
    pthread_cond_signal(&meter->changed);
    pthread_mutex_unlock(&meter->lock);
    meter_unref(meter);
}

bool meter_read(struct meter *meter, uint64_t *ret_uj, uint64_t *ret_at_ns)
{
    pthread_mutex_lock(&meter->lock);
    struct meter_total total = meter->total;
    pthread_mutex_unlock(&meter->lock);
    if (!total.at_ns || clock_boot_ns() - total.at_ns > METER_OLD_MS * NS_PER_MS)
        return false;
    *ret_uj = total.uj;
    *ret_at_ns = total.at_ns;
    return true;
}

void meter_look(struct meter *meter, struct meter_gauges *ret_gauges)
{
    uint64_t now_ns = clock_boot_ns();

    pthread_mutex_lock(&meter->lock);
    meter->asked_ns = now_ns;
    bool old = !meter->looked_ns || now_ns - meter->looked_ns > METER_OLD_MS * NS_PER_MS;
    *ret_gauges = old ? meter_none : meter->gauges;
    pthread_mutex_unlock(&meter->lock);
}

/* ---- files of numbers ---- */

const char *meter_root(const char *variable, const char *root)
{
    const char *other = getenv(variable);

    return other && *other ? other : root;
}

int meter_number(const char *folder, const char *name, uint64_t *ret_number)
{
    char path[PATH_MAX], text[32] = "", *end;

    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
        return -ENAMETOOLONG;
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
