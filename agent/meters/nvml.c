#include "agent/meters/meters.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

/* NVIDIA's management library. RESEAT_NVML names a file to open instead of libnvidia-ml.so.1. */

#define UJ_PER_MJ 1000 /* NVML counts millijoules */

struct nvml {
    void *library, *device;
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_pci)(const char *pci, void **ret_device);
    int (*energy)(void *device, unsigned long long *ret_mj);
    int (*power)(void *device, unsigned *ret_mw);
    int (*utilization)(void *device, unsigned ret_percent[2]); /* of its units, of its memory */
    int (*temperature)(void *device, int sensor, unsigned *ret_degrees);
    int (*clock)(void *device, int which, unsigned *ret_mhz);
    int (*throughput)(void *device, int direction, unsigned *ret_kb_s);
};

/* NVML's constants. */
enum { GPU_SENSOR = 0, UNITS_CLOCK = 1, DEVICE_SENDS = 0, DEVICE_RECEIVES = 1 };

static void nvml_close(void *data)
{
    struct nvml *nvml = data;

    (void)nvml->shutdown();
    (void)dlclose(nvml->library);
    free(nvml);
}

static void *nvml_open(const char *which)
{
    const char *file = getenv("RESEAT_NVML");
    struct nvml *nvml = calloc(1, sizeof(*nvml));

    if (!nvml)
        return NULL;
    nvml->library = dlopen(file && *file ? file : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (nvml->library) {
        *(void **)&nvml->init = dlsym(nvml->library, "nvmlInit_v2");
        *(void **)&nvml->shutdown = dlsym(nvml->library, "nvmlShutdown");
        *(void **)&nvml->by_pci = dlsym(nvml->library, "nvmlDeviceGetHandleByPciBusId_v2");
        *(void **)&nvml->energy = dlsym(nvml->library, "nvmlDeviceGetTotalEnergyConsumption");
        *(void **)&nvml->power = dlsym(nvml->library, "nvmlDeviceGetPowerUsage");
        *(void **)&nvml->utilization = dlsym(nvml->library, "nvmlDeviceGetUtilizationRates");
        *(void **)&nvml->temperature = dlsym(nvml->library, "nvmlDeviceGetTemperature");
        *(void **)&nvml->clock = dlsym(nvml->library, "nvmlDeviceGetClockInfo");
        *(void **)&nvml->throughput = dlsym(nvml->library, "nvmlDeviceGetPcieThroughput");
    }
    if (!nvml->library || !nvml->init || !nvml->shutdown || !nvml->by_pci || nvml->init() != 0) {
        if (nvml->library)
            (void)dlclose(nvml->library);
        free(nvml);
        return NULL;
    }
    if (nvml->by_pci(which, &nvml->device) == 0)
        return nvml;
    nvml_close(nvml);
    return NULL;
}

static int nvml_read(void *data, uint64_t *ret_value, uint64_t *ret_most, bool *ret_power)
{
    struct nvml *nvml = data;
    unsigned long long mj;
    unsigned mw;

    *ret_most = 0;
    *ret_power = false;
    if (nvml->energy && nvml->energy(nvml->device, &mj) == 0) {
        *ret_value = mj * UJ_PER_MJ;
        return 0;
    }
    nvml->energy = NULL; /* never switch from power back to totals */
    *ret_power = true;
    if (!nvml->power || nvml->power(nvml->device, &mw) != 0)
        return -EIO;
    *ret_value = mw;
    return 0;
}

static void nvml_look(void *data, struct meter_gauges *gauges)
{
    struct nvml *nvml = data;
    unsigned percent[2], value;

    if (nvml->utilization && nvml->utilization(nvml->device, percent) == 0)
        gauges->values[METER_BUSY] = percent[0] * UINT64_C(10);
    if (nvml->temperature && nvml->temperature(nvml->device, GPU_SENSOR, &value) == 0)
        gauges->values[METER_TEMPERATURE] = value;
    if (nvml->clock && nvml->clock(nvml->device, UNITS_CLOCK, &value) == 0)
        gauges->values[METER_CLOCK] = value;
}

/** NVML measures each direction for 20 ms, while this thread waits. */
static void nvml_scan(void *data, struct meter_gauges *gauges)
{
    struct nvml *nvml = data;
    unsigned kb_s;

    if (nvml->throughput && nvml->throughput(nvml->device, DEVICE_SENDS, &kb_s) == 0)
        gauges->values[METER_FROM] = kb_s * UINT64_C(1000);
    if (nvml->throughput && nvml->throughput(nvml->device, DEVICE_RECEIVES, &kb_s) == 0)
        gauges->values[METER_TO] = kb_s * UINT64_C(1000);
}

const struct meter_kind meter_nvml = {"nvml",    nvml_open, nvml_close,
                                      nvml_read, nvml_look, nvml_scan};
