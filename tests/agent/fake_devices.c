#include "tests/agent/fake_devices.h"

#include <stdio.h>
#include <string.h>

#define VALUES 10

static struct devinfo_value values[FAKE_DEVICES_MAX][VALUES];

static void fill(struct inventory_entry *entry, size_t index, const char *kind, const char *name,
                 const char *icd)
{
    static cl_device_type types[FAKE_DEVICES_MAX];
    static cl_uint all_units[FAKE_DEVICES_MAX];
    static cl_ulong memories[FAKE_DEVICES_MAX], local = 65536;
    static cl_device_fp_config fp64 = CL_FP_FMA | CL_FP_ROUND_TO_NEAREST;
    static cl_bool images = CL_TRUE;
    static size_t groups[FAKE_DEVICES_MAX];
    static char version[] = "OpenCL 1.2 fake", old[] = "OpenCL 1.1 fake";
    static char few[] = "cl_khr_byte_addressable_store",
                many[] = "cl_khr_byte_addressable_store cl_khr_fp16 cl_khr_gl_sharing";

    types[index] = CL_DEVICE_TYPE_ACCELERATOR;
    if (strcmp(kind, "gpu") == 0)
        types[index] = CL_DEVICE_TYPE_GPU;
    else if (strcmp(kind, "cpu") == 0)
        types[index] = CL_DEVICE_TYPE_CPU;
    snprintf(entry->key.icd, sizeof(entry->key.icd), "%s", icd);
    snprintf(entry->key.platform, sizeof(entry->key.platform), "Fake \xe2\x84\xa2");
    snprintf(entry->key.device, sizeof(entry->key.device), "%s", name);
    if (strcmp(kind, "gpu") == 0) {
        snprintf(entry->key.uuid, sizeof(entry->key.uuid), "%08zx001122334455667788990abc",
                 strlen(name) * 0x01010101);
        snprintf(entry->key.pci, sizeof(entry->key.pci), "0000:%02x:00.0",
                 (unsigned)(strlen(name) & 0xff));
    }
    bool gpu = strcmp(kind, "gpu") == 0;
    char *own = strcmp(kind, "old") == 0 ? old : version;
    groups[index] = strcmp(name, "narrow") == 0 ? 64 : gpu ? 256 : 4096;
    all_units[index] = strcmp(name, "wide") == 0 ? 64 : 4;
    memories[index] = (strcmp(name, "roomy") == 0 ? 8ull : 2ull) << 30;
    /* In the order of the names, as in any inventory. */
    const struct devinfo_value all[VALUES] = {
        {CL_DEVICE_TYPE, sizeof(types[index]), (uint8_t *)&types[index]},
        {CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(all_units[index]), (uint8_t *)&all_units[index]},
        {CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(groups[index]), (uint8_t *)&groups[index]},
        {CL_DEVICE_IMAGE_SUPPORT, sizeof(images), (uint8_t *)&images},
        {CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(memories[index]), (uint8_t *)&memories[index]},
        {CL_DEVICE_LOCAL_MEM_SIZE, sizeof(local), (uint8_t *)&local},
        {CL_DEVICE_NAME, (uint32_t)strlen(entry->key.device) + 1, (uint8_t *)entry->key.device},
        {CL_DEVICE_VERSION, sizeof(version), (uint8_t *)own},
        {CL_DEVICE_EXTENSIONS, (uint32_t)strlen(gpu ? few : many) + 1,
         (uint8_t *)(gpu ? few : many)},
        {CL_DEVICE_DOUBLE_FP_CONFIG, sizeof(fp64), (uint8_t *)&fp64},
    };
    memcpy(values[index], all, sizeof(all));
    entry->info.values = values[index];
    entry->info.value_count = VALUES;
}

size_t fake_devices(char *text, const char *icd, struct inventory_entry *ret_entries)
{
    size_t count = 0;

    for (char *one = strsep(&text, ","); one; one = strsep(&text, ",")) {
        char *colon = strchr(one, ':');
        if (!colon || count == FAKE_DEVICES_MAX)
            continue;
        *colon = '\0';
        fill(&ret_entries[count], count, one, colon + 1, icd);
        count++;
    }
    return count;
}
