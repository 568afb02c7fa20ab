#include "state/driver/inventory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/base/bytes/schema.h"
#include "state/base/cleanup.h"
#include "state/base/files/access.h"
#include "state/base/files/file.h"

/*
 * [MAGIC, VERSION, [entry...]] with entry = [name, icd, platform, device, ordinal, uuid, pci,
 * [[parameter, bytes]...], [[flags, type, bytes of cl_image_format...]...]].
 */
#define MAGIC      "reseat inventory"
#define VERSION    1
#define DEPTH      5
#define VALUES_MAX 1024
#define LISTS_MAX  256 /* Of image formats. */

static const struct schema_field value_fields[] = {
    {SCHEMA_NUMBER(devinfo_value, name, UINT32_MAX)},
    {SCHEMA_BYTES(devinfo_value, bytes, size, DEVINFO_VALUE_MAX)},
    {NULL},
};
static const struct schema value_schema = {sizeof(struct devinfo_value), value_fields, NULL};

static const struct schema_field formats_fields[] = {
    {SCHEMA_NUMBER(devinfo_formats, flags, UINT64_MAX)},
    {SCHEMA_NUMBER(devinfo_formats, type, UINT32_MAX)},
    {SCHEMA_BYTES(devinfo_formats, formats, count, DEVINFO_FORMATS_MAX)},
    {NULL},
};
static const struct schema formats_schema = {sizeof(struct devinfo_formats), formats_fields, NULL};

static const struct schema_field entry_fields[] = {
    {SCHEMA_CHARS(inventory_entry, name)},
    {SCHEMA_CHARS(inventory_entry, key.icd)},
    {SCHEMA_CHARS(inventory_entry, key.platform)},
    {SCHEMA_CHARS(inventory_entry, key.device)},
    {SCHEMA_NUMBER(inventory_entry, key.ordinal, UINT32_MAX)},
    {SCHEMA_CHARS(inventory_entry, key.uuid)},
    {SCHEMA_CHARS(inventory_entry, key.pci)},
    {SCHEMA_LIST(inventory_entry, info.values, info.value_count, VALUES_MAX, &value_schema)},
    {SCHEMA_LIST(inventory_entry, info.formats, info.format_count, LISTS_MAX, &formats_schema)},
    {NULL},
};

static const char *inventory_check_entry(const void *body)
{
    const struct inventory_entry *entry = body;
    const struct device_key *key = &entry->key;
    size_t uuid = strlen(key->uuid);

    if (!key->icd[0] || (uuid != 0 && uuid != sizeof(key->uuid) - 1) ||
        strspn(key->uuid, "0123456789abcdef") != uuid ||
        key->pci[strspn(key->pci, "0123456789abcdef:.")])
        return "it names no device";
    /* devinfo_find needs sorted values. */
    for (size_t i = 1; i < entry->info.value_count; i++)
        if (entry->info.values[i].name <= entry->info.values[i - 1].name)
            return "its values are not in their order";
    return NULL;
}
static const struct schema entry_schema = {sizeof(struct inventory_entry), entry_fields,
                                           inventory_check_entry};

/* The content of the file. */
struct inventory_file {
    char magic[sizeof(MAGIC)];
    uint32_t version;
    struct inventory inventory;
};

static const struct schema_field file_fields[] = {
    {SCHEMA_CHARS(inventory_file, magic)},
    {SCHEMA_NUMBER(inventory_file, version, UINT32_MAX)},
    {SCHEMA_LIST(inventory_file, inventory.entries, inventory.count, INVENTORY_COUNT_MAX,
                 &entry_schema)},
    {NULL},
};

static const char *inventory_check_file(const void *body)
{
    const struct inventory_file *file = body;

    return strcmp(file->magic, MAGIC) == 0 && file->version == VERSION ? NULL
                                                                       : "it is no inventory";
}
static const struct schema file_schema = {sizeof(struct inventory_file), file_fields,
                                          inventory_check_file};

int inventory_encode(const struct inventory *inv, char **ret_data, size_t *ret_size)
{
    msgpack_sbuffer CLEANUP(msgpack_sbuffer_destroy) buffer;
    const struct inventory_file file = {MAGIC, VERSION, *inv};
    msgpack_packer packer;

    msgpack_sbuffer_init(&buffer);
    if (inv->count > INVENTORY_COUNT_MAX)
        return -E2BIG;
    msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
    int err = schema_put(&packer, &file_schema, &file, false);
    if (err || buffer.size > INVENTORY_SIZE_MAX)
        return err ? err : -E2BIG;
    *ret_size = buffer.size;
    *ret_data = msgpack_sbuffer_release(&buffer);
    return 0;
}

int inventory_decode(const char *data, size_t size, struct inventory *ret_inv)
{
    msgpack_unpacked CLEANUP(msgpack_unpacked_destroy) unpacked;
    struct inventory_file file = {.version = 0};
    struct schema_problem problem;

    if (size > INVENTORY_SIZE_MAX)
        size = 0;
    int err = schema_unpack(data, size, DEPTH, &unpacked);
    if (!err)
        err = schema_take(&unpacked.data, &file_schema, &file, false, &problem);
    if (!err)
        *ret_inv = file.inventory;
    else
        schema_finish(&file_schema, &file);
    return err == -EBADMSG ? -EPROTO : err;
}

int inventory_read(const char *path, struct inventory *ret_inv)
{
    /* O_NONBLOCK: not to hang on a FIFO. */
    struct owned CLEANUP(owned_close) file = OWNED_NONE;
    char *CLEANUP(cleanup_free) data = NULL;
    struct stat status;
    size_t size;
    int err = owned_take(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), &file);

    if (err)
        return err;
    if (fstat(owned_fd(&file), &status) < 0)
        return -errno;
    /* Checked because the file decides which driver libraries are opened. */
    if (!access_may_believe(path, status.st_uid) || status.st_mode & 022)
        return -EPERM;
    err = file_load(owned_fd(&file), INVENTORY_SIZE_MAX, &data, &size);
    if (err == -EINVAL || err == -EFBIG)
        return -EPROTO;
    return err ? err : inventory_decode(data, size, ret_inv);
}

int inventory_write(const char *path, const struct inventory *inv)
{
    char *CLEANUP(cleanup_free) data = NULL;
    size_t size;
    int err = inventory_encode(inv, &data, &size);

    return err ? err : file_replace_path(path, data, size);
}

int inventory_append(struct inventory *inv, struct inventory *more)
{
    struct inventory_entry *grown;

    if (inv->count + more->count > INVENTORY_COUNT_MAX)
        return -E2BIG;
    if (more->count) {
        grown = realloc(inv->entries, (inv->count + more->count) * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        memcpy(grown + inv->count, more->entries, more->count * sizeof(*grown));
        inv->entries = grown;
        inv->count += more->count;
    }
    free(more->entries);
    *more = (struct inventory){0};
    return 0;
}

void inventory_finish(struct inventory *inv)
{
    for (size_t i = 0; i < inv->count; i++)
        devinfo_finish(&inv->entries[i].info);
    free(inv->entries);
    *inv = (struct inventory){0};
}
