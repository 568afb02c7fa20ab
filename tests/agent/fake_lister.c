#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/wire/inventory.h"

/*
 * In place of reseat-lister: writes the devices that POCL_FAKE_DEVICES names (a variable that
 * concerns drivers, so that it reaches us from the client), as "kind:name,kind:name...". "hang"
 * never ends, "crash" does at once. More of them are in the file
 * FAKE_MORE_DEVICES, where there is one. The one whose name is "roomy" has more memory than the
 * others, the one whose name is "wide" more compute units, the one whose name is "narrow" smaller
 * groups.
 */

#define DEVICES_MAX 16
#define VALUES      10

static struct devinfo_value values[DEVICES_MAX][VALUES];

static void fill(struct inventory_entry *entry, size_t index, const char *kind, const char *name)
{
    static cl_device_type types[DEVICES_MAX];
    static cl_uint all_units[DEVICES_MAX];
    static cl_ulong memories[DEVICES_MAX], local = 65536;
    static cl_device_fp_config fp64 = CL_FP_FMA | CL_FP_ROUND_TO_NEAREST;
    static cl_bool images = CL_TRUE;
    static size_t groups[DEVICES_MAX];
    static char version[] = "OpenCL 1.2 fake", old[] = "OpenCL 1.1 fake";
    static char few[] = "cl_khr_byte_addressable_store",
                many[] = "cl_khr_byte_addressable_store cl_khr_fp16 cl_khr_gl_sharing";

    types[index] = CL_DEVICE_TYPE_ACCELERATOR;
    if (strcmp(kind, "gpu") == 0)
        types[index] = CL_DEVICE_TYPE_GPU;
    else if (strcmp(kind, "cpu") == 0)
        types[index] = CL_DEVICE_TYPE_CPU;
    snprintf(entry->key.icd, sizeof(entry->key.icd), "libfake.so");
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

int main(int argc, char **argv)
{
    const char *devices = getenv("POCL_FAKE_DEVICES");
    struct inventory_entry entries[DEVICES_MAX] = {0};
    struct inventory inventory = {.entries = entries};

    if (argc != 2)
        return 2;
    char more[256] = "", *copy;
    FILE *file = getenv("FAKE_MORE_DEVICES") ? fopen(getenv("FAKE_MORE_DEVICES"), "r") : NULL;

    if (file) {
        more[fread(more, 1, sizeof(more) - 1, file)] = '\0';
        fclose(file);
    }
    if (asprintf(&copy, "%s,%s", devices ? devices : "gpu:Fake GPU,cpu:Fake one,cpu:Fake two",
                 more) < 0)
        return 1;
    char *rest = copy;
    for (char *one = strsep(&rest, ","); one; one = strsep(&rest, ",")) {
        if (strcmp(one, "hang") == 0)
            pause();
        else if (strcmp(one, "crash") == 0)
            abort();
        char *colon = strchr(one, ':');
        if (colon && inventory.count < DEVICES_MAX) {
            *colon = '\0';
            fill(&entries[inventory.count], inventory.count, one, colon + 1);
            inventory.count++;
        }
    }
    int error = inventory_write(argv[1], &inventory);
    free(copy);
    return error ? 1 : 0;
}
