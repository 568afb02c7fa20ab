#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config/device_names.h"
#include "state/driver/device_key.h"
#include "state/driver/inventory.h"
#include "state/driver/offer.h"
#include "state/present/present.h"
#include "tests/fuzz/fuzz.h"

/*
 * The inventory file: what the agent and every program read, and what they then do with it, which
 * is naming the devices, finding them, comparing them and deciding what a program is told.
 */

static void same(const void *a, size_t a_size, const void *b, size_t b_size)
{
    EXPECT(a_size == b_size);
    EXPECT(memcmp(a, b, a_size) == 0);
}

/* Written again it is read as the same, and has one form. */
static void round_trip(const struct inventory *inv)
{
    struct inventory again = {0};
    char *data, *data2;
    size_t size, size2;
    EXPECT(inventory_encode(inv, &data, &size) == 0);
    char *exact = fuzz_copy(data, size);
    EXPECT(inventory_decode(exact, size, &again) == 0);
    free(exact);
    EXPECT(again.count == inv->count);
    EXPECT(inventory_encode(&again, &data2, &size2) == 0);
    same(data, size, data2, size2);
    inventory_finish(&again);
    free(data);
    free(data2);
}

static void try_key(const struct device_key *key)
{
    char text[DEVICE_KEY_TEXT_MAX];
    struct device_key read = {0};
    device_key_format(key, text);
    EXPECT(strlen(text) < sizeof(text));
    /* Keys without a device's name are good for nothing and not read. */
    EXPECT(device_key_parse(text, &read) == (key->device[0] ? 0 : -EINVAL));
    if (!key->device[0])
        return;
    EXPECT(strcmp(read.icd, key->icd) == 0 && strcmp(read.platform, key->platform) == 0);
    EXPECT(strcmp(read.device, key->device) == 0 && read.ordinal == key->ordinal);
    EXPECT(strcmp(read.uuid, key->uuid) == 0 && strcmp(read.pci, key->pci) == 0);
}

static void try_names(struct inventory *inv)
{
    struct device_names names = {0};
    const struct inventory_entry *entry;
    char error[256];
    bool grew;
    EXPECT(device_names_assign(&names, inv, &grew) == 0);
    EXPECT(grew == (inv->count > 0));
    const struct device_wish wish = {.count = PROTOCOL_VDEVS_MAX};
    const struct inventory_entry *places[PROTOCOL_VDEVS_MAX];
    EXPECT(device_place(inv, &wish, NULL, places, error, sizeof(error)) == 0);
    for (size_t i = 0; i < PROTOCOL_VDEVS_MAX; i++)
        EXPECT((places[i] == NULL) == (inv->count == 0));
    for (size_t i = 0; i < inv->count && i < 16; i++) {
        try_key(&inv->entries[i].key);
        EXPECT(inv->entries[i].name[0]);
        EXPECT(device_by_key(inv, &inv->entries[i].key));
        int err = device_resolve(inv, inv->entries[i].name, &entry, error, sizeof(error));
        /* Two that are the same device have one name. */
        EXPECT(err == -ENOTUNIQ || (err == 0 && entry == &inv->entries[i]));
        err = device_resolve(inv, inv->entries[i].key.uuid, &entry, error, sizeof(error));
        EXPECT(err == 0 || error[0]);
    }
    device_names_finish(&names);
}

static void try_info(const struct present *present)
{
    unsigned char value[64];
    cl_uint count;
    size_t size;
    for (size_t i = 0; i < devinfo_param_count; i++)
        (void)present_device_info(present, devinfo_params[i].name, sizeof(value), value, &size);
    (void)present_platform_info(present, CL_PLATFORM_EXTENSIONS, sizeof(value), value, &size);
    (void)present_image_formats(present, CL_MEM_READ_ONLY, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &count);
}

static void try_present(const struct inventory *inv)
{
    const struct devinfo *infos[4];
    size_t count = inv->count < ARRAY_SIZE(infos) ? inv->count : ARRAY_SIZE(infos);
    for (size_t i = 0; i < count; i++)
        infos[i] = &inv->entries[i].info;
    for (int profile = PRESENT_PORTABLE; profile <= PRESENT_NATIVE; profile++) {
        const struct present_terms terms = {
            .profile = (enum present_profile)profile,
            .type = profile == PRESENT_NATIVE ? 0 : CL_DEVICE_TYPE_GPU,
            .memory = profile == PRESENT_PORTABLE && count > 1
                          ? devinfo_scalar(infos[1], CL_DEVICE_MAX_MEM_ALLOC_SIZE, 0)
                          : 0,
        };
        struct present present;
        int err = present_build(infos, count, &terms, &present);
        EXPECT(err == (count ? 0 : -EINVAL));
        if (err != 0)
            continue;
        try_info(&present);
        present_finish(&present);
    }
    for (size_t i = 0; i < count; i++) {
        struct plan_offer offer;
        offer_from_devinfo(infos[i], &offer);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct inventory inv = {0};
    char *bytes = fuzz_copy(data, size);
    int err = inventory_decode(bytes, size, &inv);
    EXPECT(err == 0 || err == -EPROTO || err == -ENOMEM);
    free(bytes);
    if (err != 0) {
        EXPECT(inv.count == 0 && !inv.entries);
        return 0;
    }
    round_trip(&inv);
    try_names(&inv);
    try_present(&inv);
    inventory_finish(&inv);
    return 0;
}
