#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/inventory.h"

/*
 * In place of reseat-lister: writes the devices that POCL_FAKE_DEVICES names (a variable that
 * concerns drivers, so that it reaches us from the client), as "kind:name,kind:name...". "hang"
 * never ends, "crash" does at once. The one whose name is "roomy" has more memory than the others.
 */

#define DEVICES_MAX 16

static struct devinfo_value values[DEVICES_MAX][7];

static void fill(struct inventory_entry *entry, size_t index, const char *kind, const char *name)
{
    static cl_device_type types[DEVICES_MAX];
    static cl_uint units = 4;
    static cl_ulong memories[DEVICES_MAX];
    static size_t groups[DEVICES_MAX];
    static char version[] = "OpenCL 1.2 fake", old[] = "OpenCL 1.1 fake";
    static char few[] = "cl_khr_byte_addressable_store",
                many[] = "cl_khr_byte_addressable_store cl_khr_fp16 cl_khr_gl_sharing";

    types[index] = CL_DEVICE_TYPE_ACCELERATOR;
    if (strcmp(kind, "gpu") == 0) {
        types[index] = CL_DEVICE_TYPE_GPU;
    } else if (strcmp(kind, "cpu") == 0) {
        types[index] = CL_DEVICE_TYPE_CPU;
    }
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
    groups[index] = gpu ? 256 : 4096;
    memories[index] = (strcmp(name, "roomy") == 0 ? 8ull : 2ull) << 30;
    struct devinfo_value *value = values[index];
    value[0] =
        (struct devinfo_value){CL_DEVICE_TYPE, sizeof(types[index]), (uint8_t *)&types[index]};
    value[1] =
        (struct devinfo_value){CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(units), (uint8_t *)&units};
    value[2] = (struct devinfo_value){CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(groups[index]),
                                      (uint8_t *)&groups[index]};
    value[3] = (struct devinfo_value){CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(memories[index]),
                                      (uint8_t *)&memories[index]};
    value[4] = (struct devinfo_value){CL_DEVICE_NAME, (uint32_t)strlen(entry->key.device) + 1,
                                      (uint8_t *)entry->key.device};
    value[5] = (struct devinfo_value){CL_DEVICE_VERSION, sizeof(version), (uint8_t *)own};
    value[6] = (struct devinfo_value){CL_DEVICE_EXTENSIONS, (uint32_t)strlen(gpu ? few : many) + 1,
                                      (uint8_t *)(gpu ? few : many)};
    entry->info.values = value;
    entry->info.value_count = 7;
}

int main(int argc, char **argv)
{
    const char *devices = getenv("POCL_FAKE_DEVICES");
    struct inventory_entry entries[DEVICES_MAX] = {0};
    struct inventory inventory = {.entries = entries};

    if (argc != 2) {
        return 2;
    }
    char *copy = strdup(devices ? devices : "gpu:Fake GPU,cpu:Fake one,cpu:Fake two");
    char *rest = copy;
    for (char *one = strsep(&rest, ","); one; one = strsep(&rest, ",")) {
        if (strcmp(one, "hang") == 0) {
            pause();
        } else if (strcmp(one, "crash") == 0) {
            abort();
        }
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
