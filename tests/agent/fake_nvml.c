#include <stdlib.h>
#include <string.h>

/* In place of NVIDIA's management library: a device that draws 50 W, with a total only where
 * FAKE_NVML is "total". */

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **ret_device);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *ret_mj);
int nvmlDeviceGetPowerUsage(void *device, unsigned *ret_mw);

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
