#include "agent/meters/meters.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/clock.h"

#define PERIOD_MS 1000
#define STEP_MS   50
#define GAP_NS    (30 * NS_PER_S) /* a total may wrap twice in a gap this long, unnoticed */

struct meter {
    const struct meter_kind *kind;
    char which[128];
    atomic_bool stops;
    atomic_int references; /* one of the caller and one of the thread */
    pthread_mutex_t lock;
    struct meter_total total; /* guarded by lock */
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
    pthread_mutex_destroy(&meter->lock);
    free(meter);
}

static void meter_read_once(struct meter *meter, void *device)
{
    uint64_t value, most = 0;
    bool power = false;
    int error = meter->kind->read(device, &value, &most, &power);
    uint64_t now_ns = clock_boot_ns();

    if (error)
        return;
    pthread_mutex_lock(&meter->lock);
    if (power)
        meter_power_add(&meter->total, value, now_ns);
    else
        meter_total_add(&meter->total, value, most, now_ns);
    pthread_mutex_unlock(&meter->lock);
}

static void *meter_main(void *data)
{
    struct meter *meter = data;
    void *device = meter->kind->open(meter->which);

    while (device && !atomic_load(&meter->stops)) {
        meter_read_once(meter, device);
        for (unsigned i = 0; i < PERIOD_MS / STEP_MS && !atomic_load(&meter->stops); i++)
            clock_sleep(STEP_MS * NS_PER_MS);
    }
    if (device)
        meter->kind->close(device);
    meter_unref(meter);
    return NULL;
}

static const struct meter_kind *meter_kind_of(const char *name, const char **ret_which)
{
    static const struct meter_kind *const kinds[] = {&meter_rapl, &meter_nvml};

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
    pthread_mutex_init(&meter->lock, NULL);
    if (pthread_create(&thread, NULL, meter_main, meter)) {
        pthread_mutex_destroy(&meter->lock);
        free(meter);
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
    atomic_store(&meter->stops, true);
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
