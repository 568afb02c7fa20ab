#include <stdlib.h>
#include <string.h>

/* In place of NVIDIA's management library: a device that draws 50 W, with a total only where
 * FAKE_NVML is "total". Its gauges are right, but wrong where that is "power". */

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **ret_device);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *ret_mj);
int nvmlDeviceGetPowerUsage(void *device, unsigned *ret_mw);

int nvmlDeviceGetUtilizationRates(void *device, unsigned ret_percent[2]);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *ret_degrees);
int nvmlDeviceGetClockInfo(void *device, int which, unsigned *ret_mhz);
int nvmlDeviceGetPcieThroughput(void *device, int direction, unsigned *ret_kb_s);

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **ret_device)
{
    static int device;

    *ret_device = &device;
    return strcmp(pci, "0000:3b:00.0") == 0 ? 0 : 6;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *ret_mj)
{
    static unsigned long long total = 7000;

    (void)device;
    *ret_mj = total += 50000;
    return strcmp(getenv("FAKE_NVML"), "total") == 0 ? 0 : 3;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *ret_mw)
{
    (void)device;
    *ret_mw = 50000;
    return 0;
}

static int is_wrong(void)
{
    return strcmp(getenv("FAKE_NVML"), "total") != 0;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned ret_percent[2])
{
    (void)device;
    ret_percent[0] = is_wrong() ? 101 : 37;
    ret_percent[1] = 12;
    return 0;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *ret_degrees)
{
    (void)device;
    *ret_degrees = is_wrong() ? (unsigned)-1 : 61;
    return sensor;
}

int nvmlDeviceGetClockInfo(void *device, int which, unsigned *ret_mhz)
{
    (void)device;
    *ret_mhz = which == 1 ? 1980 : 5;
    return is_wrong() ? 3 : 0;
}

int nvmlDeviceGetPcieThroughput(void *device, int direction, unsigned *ret_kb_s)
{
    (void)device;
    *ret_kb_s = direction ? 3000 : 2000;
    return is_wrong() ? 3 : 0;
}
