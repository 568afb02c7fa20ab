#include "state/driver/inventory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/base/bytes/msgcheck.h"
#include "state/base/bytes/text.h"
#include "state/base/files/owned.h"

/*
 * [MAGIC, VERSION, [entry...]] with entry = [name, icd, platform, device, ordinal, uuid, pci,
 * [[parameter, bytes]...], [[flags, type, bytes of cl_image_format...]...]].
 */
#define MAGIC        "reseat inventory"
#define VERSION      1
#define ENTRY_FIELDS 9
#define DEPTH        5
#define VALUES_MAX   1024
#define LISTS_MAX    256 /* Of image formats. */

static void inventory_free_pointer(void *pointer)
{
    free(*(void **)pointer);
}

static void inventory_pack_text(msgpack_packer *packer, const char *text)
{
    msgpack_pack_str(packer, strlen(text));
    msgpack_pack_str_body(packer, text, strlen(text));
}

static void inventory_pack_bytes(msgpack_packer *packer, const void *bytes, size_t size)
{
    msgpack_pack_bin(packer, size);
    msgpack_pack_bin_body(packer, bytes, size);
}

static void inventory_pack_entry(msgpack_packer *packer, const struct inventory_entry *entry)
{
    const struct devinfo *info = &entry->info;

    msgpack_pack_array(packer, ENTRY_FIELDS);
    inventory_pack_text(packer, entry->name);
    inventory_pack_text(packer, entry->key.icd);
    inventory_pack_text(packer, entry->key.platform);
    inventory_pack_text(packer, entry->key.device);
    msgpack_pack_uint32(packer, entry->key.ordinal);
    inventory_pack_text(packer, entry->key.uuid);
    inventory_pack_text(packer, entry->key.pci);
    msgpack_pack_array(packer, info->value_count);
    for (size_t i = 0; i < info->value_count; i++) {
        msgpack_pack_array(packer, 2);
        msgpack_pack_uint32(packer, info->values[i].name);
        inventory_pack_bytes(packer, info->values[i].bytes, info->values[i].size);
    }
    msgpack_pack_array(packer, info->format_count);
    for (size_t i = 0; i < info->format_count; i++) {
        const struct devinfo_formats *list = &info->formats[i];

        msgpack_pack_array(packer, 3);
        msgpack_pack_uint64(packer, list->flags);
        msgpack_pack_uint32(packer, list->type);
        inventory_pack_bytes(packer, list->formats, list->count * sizeof(*list->formats));
    }
}

int inventory_encode(const struct inventory *inv, char **ret_data, size_t *ret_size)
{
    msgpack_sbuffer CLEANUP(msgpack_sbuffer_destroy) buffer;
    msgpack_packer packer;

    msgpack_sbuffer_init(&buffer);
    if (inv->count > INVENTORY_COUNT_MAX)
        return -E2BIG;
    msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
    msgpack_pack_array(&packer, 3);
    inventory_pack_text(&packer, MAGIC);
    msgpack_pack_uint32(&packer, VERSION);
    msgpack_pack_array(&packer, inv->count);
    for (size_t i = 0; i < inv->count; i++)
        inventory_pack_entry(&packer, &inv->entries[i]);
    if (buffer.size > INVENTORY_SIZE_MAX)
        return -E2BIG;
    /* The packer's errors are a lack of memory, which leaves a torn object behind. */
    if (msgcheck(buffer.data, buffer.size, DEPTH))
        return -ENOMEM;
    *ret_size = buffer.size;
    *ret_data = msgpack_sbuffer_release(&buffer);
    return 0;
}

static bool inventory_is_array(const msgpack_object *object, uint32_t size)
{
    return object->type == MSGPACK_OBJECT_ARRAY && object->via.array.size == size;
}

static bool inventory_is_array_to(const msgpack_object *object, uint32_t most)
{
    return object->type == MSGPACK_OBJECT_ARRAY && object->via.array.size <= most;
}

static bool inventory_is_uint_to(const msgpack_object *object, uint64_t most)
{
    return object->type == MSGPACK_OBJECT_POSITIVE_INTEGER && object->via.u64 <= most;
}

/* Text that fits and that a terminal can show. */
static bool inventory_read_text(const msgpack_object *object, char *ret_text, size_t size)
{
    const msgpack_object_str *text = &object->via.str;

    if (object->type != MSGPACK_OBJECT_STR || text->size >= size)
        return false;
    if (!text_is_safe(text->ptr, text->size))
        return false;
    if (text->size) /* the unpacker may give NULL for an empty one */
        memcpy(ret_text, text->ptr, text->size);
    ret_text[text->size] = '\0';
    return true;
}

static bool inventory_read_key(const msgpack_object *fields, struct device_key *ret_key)
{
    size_t uuid;

    if (!inventory_read_text(&fields[0], ret_key->icd, sizeof(ret_key->icd)) || !ret_key->icd[0] ||
        !inventory_read_text(&fields[1], ret_key->platform, sizeof(ret_key->platform)) ||
        !inventory_read_text(&fields[2], ret_key->device, sizeof(ret_key->device)) ||
        !inventory_is_uint_to(&fields[3], UINT32_MAX) ||
        !inventory_read_text(&fields[4], ret_key->uuid, sizeof(ret_key->uuid)) ||
        !inventory_read_text(&fields[5], ret_key->pci, sizeof(ret_key->pci)))
        return false;
    ret_key->ordinal = (uint32_t)fields[3].via.u64;
    uuid = strlen(ret_key->uuid);
    return (uuid == 0 || uuid == sizeof(ret_key->uuid) - 1) &&
           strspn(ret_key->uuid, "0123456789abcdef") == uuid &&
           !ret_key->pci[strspn(ret_key->pci, "0123456789abcdef:.")];
}

/* Ascending names, so that devinfo_find can search. */
static int inventory_read_values(const msgpack_object *object, struct devinfo *info)
{
    if (!inventory_is_array_to(object, VALUES_MAX))
        return -EPROTO;
    info->values = calloc(object->via.array.size + 1, sizeof(*info->values));
    if (!info->values)
        return -ENOMEM;
    for (uint32_t i = 0; i < object->via.array.size; i++) {
        const msgpack_object *pair = &object->via.array.ptr[i];
        struct devinfo_value *value = &info->values[i];
        const msgpack_object_bin *bytes;

        if (!inventory_is_array(pair, 2) ||
            !inventory_is_uint_to(&pair->via.array.ptr[0], UINT32_MAX) ||
            pair->via.array.ptr[1].type != MSGPACK_OBJECT_BIN)
            return -EPROTO;
        bytes = &pair->via.array.ptr[1].via.bin;
        value->name = (cl_device_info)pair->via.array.ptr[0].via.u64;
        if (bytes->size > DEVINFO_VALUE_MAX || (i && value->name <= value[-1].name))
            return -EPROTO;
        value->bytes = calloc(1, (size_t)bytes->size + 1);
        if (!value->bytes)
            return -ENOMEM;
        value->size = bytes->size;
        memcpy(value->bytes, bytes->ptr, bytes->size);
        info->value_count++;
    }
    return 0;
}

static int inventory_read_formats(const msgpack_object *object, struct devinfo *info)
{
    if (!inventory_is_array_to(object, LISTS_MAX))
        return -EPROTO;
    if (!object->via.array.size)
        return 0;
    info->formats = calloc(object->via.array.size, sizeof(*info->formats));
    if (!info->formats)
        return -ENOMEM;
    for (uint32_t i = 0; i < object->via.array.size; i++) {
        const msgpack_object *fields = object->via.array.ptr[i].via.array.ptr;
        struct devinfo_formats *list = &info->formats[i];
        const msgpack_object_bin *bytes;

        if (!inventory_is_array(&object->via.array.ptr[i], 3) ||
            !inventory_is_uint_to(&fields[0], UINT64_MAX) ||
            !inventory_is_uint_to(&fields[1], UINT32_MAX) || fields[2].type != MSGPACK_OBJECT_BIN)
            return -EPROTO;
        bytes = &fields[2].via.bin;
        if (bytes->size % sizeof(*list->formats) ||
            bytes->size / sizeof(*list->formats) > DEVINFO_FORMATS_MAX)
            return -EPROTO;
        list->formats = calloc(1, (size_t)bytes->size + 1);
        if (!list->formats)
            return -ENOMEM;
        list->flags = fields[0].via.u64;
        list->type = (cl_mem_object_type)fields[1].via.u64;
        list->count = bytes->size / sizeof(*list->formats);
        memcpy(list->formats, bytes->ptr, bytes->size);
        info->format_count++;
    }
    return 0;
}

static int inventory_read_entry(const msgpack_object *object, struct inventory_entry *entry)
{
    const msgpack_object *fields = object->via.array.ptr;
    int err;

    if (!inventory_is_array(object, ENTRY_FIELDS) ||
        !inventory_read_text(&fields[0], entry->name, sizeof(entry->name)) ||
        !inventory_read_key(&fields[1], &entry->key))
        return -EPROTO;
    err = inventory_read_values(&fields[7], &entry->info);
    return err ? err : inventory_read_formats(&fields[8], &entry->info);
}

static int inventory_read_entries(const msgpack_object *root, struct inventory *inv)
{
    const msgpack_object *fields = root->via.array.ptr;
    char magic[sizeof(MAGIC)];

    if (!inventory_is_array(root, 3) || !inventory_read_text(&fields[0], magic, sizeof(magic)) ||
        strcmp(magic, MAGIC) != 0 || !inventory_is_uint_to(&fields[1], UINT32_MAX) ||
        fields[1].via.u64 != VERSION || !inventory_is_array_to(&fields[2], INVENTORY_COUNT_MAX))
        return -EPROTO;
    inv->entries = calloc(fields[2].via.array.size + 1, sizeof(*inv->entries));
    if (!inv->entries)
        return -ENOMEM;
    for (uint32_t i = 0; i < fields[2].via.array.size; i++) {
        int err;

        inv->count++;
        err = inventory_read_entry(&fields[2].via.array.ptr[i], &inv->entries[i]);
        if (err)
            return err;
    }
    return 0;
}

int inventory_decode(const char *data, size_t size, struct inventory *ret_inv)
{
    struct inventory CLEANUP(inventory_finish) inv = {0};
    msgpack_unpacked CLEANUP(msgpack_unpacked_destroy) unpacked;
    size_t offset = 0;
    msgpack_unpack_return status;
    int err;

    msgpack_unpacked_init(&unpacked);
    if (size > INVENTORY_SIZE_MAX)
        return -EPROTO;
    err = msgcheck(data, size, DEPTH);
    if (err)
        return err;
    status = msgpack_unpack_next(&unpacked, data, size, &offset);
    if (status == MSGPACK_UNPACK_NOMEM_ERROR)
        return -ENOMEM;
    if (status != MSGPACK_UNPACK_SUCCESS)
        return -EPROTO;
    err = inventory_read_entries(&unpacked.data, &inv);
    if (err)
        return err;
    *ret_inv = inv;
    inv = (struct inventory){0};
    return 0;
}

static int inventory_read_all(const struct owned *file, char *data, size_t size)
{
    for (size_t used = 0; used < size;) {
        ssize_t got = read(owned_fd(file), data + used, size - used);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (!got)
            return -EPROTO;
        used += (size_t)got;
    }
    return 0;
}

static int inventory_read_file(const struct owned *file, struct inventory *ret_inv)
{
    char CLEANUP(inventory_free_pointer) *data = NULL;
    struct stat status;
    int err;

    if (fstat(owned_fd(file), &status) < 0)
        return -errno;
    /* It names the driver libraries that are opened. */
    if ((status.st_uid != geteuid() && status.st_uid != 0) || status.st_mode & 022)
        return -EPERM;
    if (!S_ISREG(status.st_mode) || status.st_size <= 0 || status.st_size > INVENTORY_SIZE_MAX)
        return -EPROTO;
    data = malloc((size_t)status.st_size);
    if (!data)
        return -ENOMEM;
    err = inventory_read_all(file, data, (size_t)status.st_size);
    return err ? err : inventory_decode(data, (size_t)status.st_size, ret_inv);
}

int inventory_read(const char *path, struct inventory *ret_inv)
{
    /* O_NONBLOCK: not to hang on a FIFO. */
    struct owned CLEANUP(owned_close) file = OWNED_NONE;
    int err = owned_take(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), &file);

    return err ? err : inventory_read_file(&file, ret_inv);
}

static int inventory_write_all(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t put = write(fd, data, size);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -errno;
        data += put;
        size -= (size_t)put;
    }
    return fsync(fd) < 0 ? -errno : 0;
}

/* A rename is on the disk once its folder is. Errors only cost what a crash would lose. */
static void inventory_sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    int fd;

    if (slash == path)
        slash++;
    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)fsync(fd);
    close(fd);
}

int inventory_write(const char *path, const struct inventory *inv)
{
    char CLEANUP(inventory_free_pointer) *data = NULL;
    char temporary[PATH_MAX];
    size_t size;
    int fd, err, length;

    length = snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
    if (length < 0 || (size_t)length >= sizeof(temporary))
        return -ENAMETOOLONG;
    err = inventory_encode(inv, &data, &size);
    if (err)
        return err;
    fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    err = inventory_write_all(fd, data, size);
    if (close(fd) < 0 && !err)
        err = -errno;
    if (!err && rename(temporary, path) < 0)
        err = -errno;
    if (err) {
        unlink(temporary);
        return err;
    }
    inventory_sync_folder(path);
    return 0;
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
