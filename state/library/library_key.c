#include <stdio.h>
#include <string.h>

#include "state/library/library.h"
#include "state/recipe/recipe_hash.h"

/* Changes where entries mean something else from then on. */
#define FORMAT "reseat library 1"

/* What decides what a compiler makes: the device's model and its driver's version, and what it says
 * that it can, which settings of the driver change. Not which of several alike it is. */
static void library_key_hash_device(const struct device_key *device, const struct devinfo *info,
                                    struct content_hash *hash)
{
    static const cl_device_info strings[] = {
        CL_DEVICE_NAME,    CL_DEVICE_VENDOR,           CL_DEVICE_VERSION,
        CL_DRIVER_VERSION, CL_DEVICE_OPENCL_C_VERSION, CL_DEVICE_EXTENSIONS};
    const struct devinfo_value *features = devinfo_find(info, CL_DEVICE_OPENCL_C_FEATURES);
    size_t count = devinfo_list_count(features);

    content_hash_string(hash, device->platform);
    for (size_t i = 0; i < ARRAY_SIZE(strings); i++)
        content_hash_string(hash, devinfo_string(info, strings[i]));
    content_hash_number(hash, devinfo_scalar(info, CL_DEVICE_ADDRESS_BITS, 0));
    content_hash_number(hash, count);
    for (size_t i = 0; i < count; i++) {
        const cl_name_version entry = devinfo_list_entry(features, i);
        content_hash_string(hash, entry.name);
        content_hash_number(hash, entry.version);
    }
}

int library_key(const struct recipe *recipe, const char *prologue, const struct device_key *device,
                const struct devinfo *info, struct library_key *ret_key)
{
    struct content_hash hash;
    content_hash_begin(&hash);
    content_hash_string(&hash, FORMAT);
    library_key_hash_device(device, info, &hash);
    int err = recipe_hash(recipe, prologue, &hash);
    if (err)
        return err;
    content_hash_end(&hash, ret_key->bytes);
    return 0;
}

void library_name(const struct library_key *key, char ret[LIBRARY_NAME_MAX])
{
    for (size_t i = 0; i < sizeof(key->bytes); i++)
        snprintf(ret + 2 * i, 3, "%02x", key->bytes[i]);
}

bool library_key_read(const char *name, struct library_key *ret_key)
{
    static const char digits[] = "0123456789abcdef";
    struct library_key key = {{0}};
    if (strlen(name) != LIBRARY_NAME_MAX - 1)
        return false;
    for (size_t i = 0; name[i]; i++) {
        const char *digit = strchr(digits, name[i]);
        if (!digit)
            return false;
        key.bytes[i / 2] = (unsigned char)(key.bytes[i / 2] << 4 | (digit - digits));
    }
    *ret_key = key;
    return true;
}
