#include "agent/config/device_names.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config/paths.h"
#include "agent/config/servers.h"
#include "state/base/cleanup.h"
#include "state/driver/device_key.h"

#define NUMBER_MAX 10000

/** The name of a served device begins with its server's name: "gpuhost/gpu0". */
static bool device_names_valid_name(const char *name)
{
    const char *slash = strchr(name, '/');

    if (slash) {
        char server[SERVER_NAME_MAX] = "";
        if (slash - name < (ptrdiff_t)sizeof(server))
            memcpy(server, name, (size_t)(slash - name));
        if (!server_name_is_valid(server))
            return false;
        name = slash + 1;
    }
    for (const char *at = name; *at; at++)
        if (!islower((unsigned char)*at) && !isdigit((unsigned char)*at))
            return false;
    return islower((unsigned char)name[0]);
}

static const struct device_name *device_names_by_name(const struct device_names *names,
                                                      const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->names[i].name, name) == 0)
            return &names->names[i];
    return NULL;
}

static int device_names_add(struct device_names *names, const char *name,
                            const struct device_key *key)
{
    struct device_name *grown = realloc(names->names, (names->count + 1) * sizeof(*names->names));

    if (!grown)
        return -ENOMEM;
    names->names = grown;
    snprintf(grown[names->count].name, sizeof(grown->name), "%s", name);
    grown[names->count].key = *key;
    names->count++;
    return 0;
}

static int device_names_take(void *data, char *const words[])
{
    struct device_names *names = data;
    struct device_key key;

    return strlen(words[0]) >= sizeof(names->names->name) || !device_names_valid_name(words[0]) ||
                   device_key_parse(words[1], &key) || device_names_by_name(names, words[0])
               ? 0
               : device_names_add(names, words[0], &key);
}

int device_names_load(const char *path, struct device_names *ret_names)
{
    struct device_names names = {0};

    if (paths_read_lines(path, 2, device_names_take, &names) == -ENOMEM) {
        device_names_finish(&names);
        return -ENOMEM;
    }
    *ret_names = names;
    return 0;
}

static void device_names_print(const void *data, FILE *out)
{
    const struct device_names *names = data;

    for (size_t i = 0; i < names->count; i++) {
        char key[DEVICE_KEY_TEXT_MAX];
        device_key_format(&names->names[i].key, key);
        fprintf(out, "%s %s\n", names->names[i].name, key);
    }
}

int device_names_save(const char *path, const struct device_names *names)
{
    return paths_write_lines(path, "The names of the devices of this machine.", device_names_print,
                             names);
}

void device_names_finish(struct device_names *names)
{
    free(names->names);
    *names = (struct device_names){0};
}

const char *device_kind(const struct devinfo *info)
{
    uint64_t type = devinfo_scalar(info, CL_DEVICE_TYPE, 0);

    if (type & CL_DEVICE_TYPE_GPU)
        return "gpu";
    if (type & CL_DEVICE_TYPE_CPU)
        return "cpu";
    return type & CL_DEVICE_TYPE_ACCELERATOR ? "accel" : "dev";
}

static int device_names_give_name(struct device_names *names, const char *prefix,
                                  struct inventory_entry *entry)
{
    for (unsigned number = 0; number < NUMBER_MAX; number++) {
        char name[32];
        snprintf(name, sizeof(name), "%s%s%u", prefix, device_kind(&entry->info), number);
        if (!device_names_by_name(names, name)) {
            memcpy(entry->name, name, sizeof(name));
            return device_names_add(names, name, &entry->key);
        }
    }
    return -ENOSPC;
}

int device_names_assign(struct device_names *names, struct inventory *inventory, bool *ret_new)
{
    size_t before = names->count;

    for (size_t i = 0; i < inventory->count; i++) {
        struct inventory_entry *entry = &inventory->entries[i];
        entry->name[0] = '\0';
        for (size_t j = 0; j < before && !entry->name[0]; j++)
            if (device_key_equal(&names->names[j].key, &entry->key))
                memcpy(entry->name, names->names[j].name, sizeof(entry->name));
        int error = entry->name[0] ? 0 : device_names_give_name(names, "", entry);
        if (error)
            return error;
    }
    *ret_new = names->count != before;
    return 0;
}

static bool device_names_is_of(const struct device_name *name, const char *prefix)
{
    return strncmp(name->name, prefix, strlen(prefix)) == 0;
}

int device_names_assign_served(struct device_names *names, const char *server,
                               struct inventory *inventory, bool *ret_new)
{
    char prefix[SERVER_NAME_MAX + 1];
    size_t before = names->count;
    bool moved = false;

    snprintf(prefix, sizeof(prefix), "%s/", server);
    for (size_t i = 0; i < inventory->count; i++) {
        struct inventory_entry *entry = &inventory->entries[i];
        entry->name[0] = '\0';
        for (size_t j = 0; j < before && !entry->name[0]; j++) {
            struct device_name *known = &names->names[j];
            struct device_key key = known->key;
            /* The server's address may have changed; the name identifies the server. */
            memcpy(key.icd, entry->key.icd, sizeof(key.icd));
            if (!device_names_is_of(known, prefix) || !device_key_equal(&key, &entry->key))
                continue;
            moved = moved || strcmp(known->key.icd, key.icd) != 0;
            known->key = key;
            memcpy(entry->name, known->name, sizeof(entry->name));
        }
        int error = entry->name[0] ? 0 : device_names_give_name(names, prefix, entry);
        if (error)
            return error;
    }
    *ret_new = moved || names->count != before;
    return 0;
}

bool device_names_forget(struct device_names *names, const char *server)
{
    char prefix[SERVER_NAME_MAX + 1];
    size_t before = names->count, kept = 0;

    snprintf(prefix, sizeof(prefix), "%s/", server);
    for (size_t i = 0; i < before; i++)
        if (!device_names_is_of(&names->names[i], prefix))
            names->names[kept++] = names->names[i];
    names->count = kept;
    return kept != before;
}

static bool device_names_starts_with(const char *text, const char *prefix)
{
    return strncasecmp(text, prefix, strlen(prefix)) == 0;
}

/** Remove the dashes of a UUID, because they are optional. */
static void device_names_plain_uuid(const char *text, char *ret, size_t size)
{
    size_t used = 0;

    for (; *text && used + 1 < size; text++)
        if (*text != '-')
            ret[used++] = (char)tolower((unsigned char)*text);
    ret[used] = '\0';
}

static bool device_names_matches(const struct inventory_entry *entry, const char *text, int how)
{
    char uuid[64];

    switch (how) {
    case 0:
        return strcmp(entry->name, text) == 0;
    case 1:
        /* The domain of a PCI address is optional. */
        return entry->key.pci[0] &&
               (strcasecmp(entry->key.pci, text) == 0 ||
                (strlen(entry->key.pci) > 5 && strcasecmp(entry->key.pci + 5, text) == 0));
    case 2:
        device_names_plain_uuid(device_names_starts_with(text, "GPU-") ? text + 4 : text, uuid,
                                sizeof(uuid));
        return strlen(uuid) >= 4 && entry->key.uuid[0] &&
               device_names_starts_with(entry->key.uuid, uuid);
    default:
        return strcasestr(entry->key.device, text) ||
               strcasestr(devinfo_string(&entry->info, CL_DEVICE_NAME), text);
    }
}

static void device_names_list_names(const struct inventory *inventory, const char *text, int how,
                                    char *ret, size_t size)
{
    size_t used = 0;

    ret[0] = '\0';
    for (size_t i = 0; i < inventory->count; i++) {
        const struct inventory_entry *entry = &inventory->entries[i];
        if (how >= 0 && !device_names_matches(entry, text, how))
            continue;
        int length = snprintf(ret + used, size - used, "%s%s", used ? ", " : "", entry->name);
        if (length < 0 || (size_t)length >= size - used)
            return;
        used += (size_t)length;
    }
}

int device_resolve(const struct inventory *inventory, const char *text,
                   const struct inventory_entry **ret_entry, char *ret_error, size_t error_size)
{
    char names[512];

    for (int how = 0; how < 4 && *text; how++) {
        const struct inventory_entry *found = NULL;
        size_t count = 0;
        for (size_t i = 0; i < inventory->count; i++) {
            if (device_names_matches(&inventory->entries[i], text, how)) {
                found = &inventory->entries[i];
                count++;
            }
        }
        if (count == 1) {
            *ret_entry = found;
            return 0;
        }
        if (count > 1) {
            device_names_list_names(inventory, text, how, names, sizeof(names));
            snprintf(ret_error, error_size,
                     "device \"%s\" could be any of %s; use one of those names", text, names);
            return -ENOTUNIQ;
        }
    }
    device_names_list_names(inventory, text, -1, names, sizeof(names));
    if (names[0]) {
        snprintf(ret_error, error_size, "no device \"%s\"; there are %s (see reseat devices)", text,
                 names);
    } else {
        snprintf(ret_error, error_size,
                 "no device \"%s\": no OpenCL driver shows any; see reseat doctor", text);
    }
    return -ENODEV;
}

bool device_listed(const struct inventory *inventory, const char *list,
                   const struct inventory_entry *entry)
{
    const struct inventory_entry *found;
    char ignored[PROTOCOL_TEXT_MAX], name[PROTOCOL_WORD_MAX];

    if (!*list)
        return true;
    /* A driver's name for a device may have a comma. */
    if (device_resolve(inventory, list, &found, ignored, sizeof(ignored)) == 0)
        return found == entry;
    for (const char *at = list; *at;) {
        size_t length = strcspn(at, ",");
        snprintf(name, sizeof(name), "%.*s", (int)length, at);
        if (device_resolve(inventory, name, &found, ignored, sizeof(ignored)) == 0 &&
            found == entry)
            return true;
        at += length + (at[length] == ',');
    }
    return false;
}

int device_place(const struct inventory *inventory, const struct device_wish *wish,
                 const struct device_fill *fills, const struct inventory_entry **ret_entries,
                 char *ret_error, size_t error_size)
{
    const struct inventory_entry *entries[PROTOCOL_VDEVS_MAX] = {NULL};
    CLEANUP(cleanup_free)
    struct place_device *devices = calloc(inventory->count + 1, sizeof(*devices));
    CLEANUP(cleanup_free) unsigned *taken = calloc(inventory->count + 1, sizeof(*taken));
    int result = devices && taken ? 0 : -ENOMEM;

    if (result)
        snprintf(ret_error, error_size, "there is no memory to place the program");
    for (size_t i = 0; !result && i < inventory->count; i++) {
        const struct devinfo *info = &inventory->entries[i].info;
        devices[i] = (struct place_device){
            .name = inventory->entries[i].name,
            .kind = strcmp(device_kind(info), "gpu") == 0 ? PLACE_GPU : PLACE_OTHER,
            .memory_total = fills ? fills[i].memory : 1,
            .memory_used = fills ? fills[i].used : 0,
            .closed = fills && fills[i].closed,
            .small = fills && fills[i].small,
        };
    }
    for (size_t i = 0; !result && i < wish->count; i++) {
        size_t at;
        if (i < wish->named)
            result = device_resolve(inventory, wish->names[i], &entries[i], ret_error, error_size);
        else if (place_spread(devices, taken, inventory->count, &at) == 0)
            entries[i] = &inventory->entries[at];
        if (!result && entries[i])
            taken[entries[i] - inventory->entries]++;
    }
    if (!result)
        memcpy(ret_entries, entries, sizeof(entries));
    return result;
}

int device_check_only(const struct inventory *inventory, const char *only,
                      const struct device_wish *wish, const struct inventory_entry *const *entries,
                      char *ret_error, size_t error_size)
{
    if (*only && !entries[0]) {
        snprintf(ret_error, error_size, "no device of \"%.300s\" is here; see reseat devices",
                 only);
        return -ENODEV;
    }
    for (size_t i = 0; i < wish->named; i++)
        if (!device_listed(inventory, only, entries[i])) {
            snprintf(ret_error, error_size,
                     "--device %s is not among the devices of --only, %.300s", entries[i]->name,
                     only);
            return -EINVAL;
        }
    return 0;
}

const struct inventory_entry *device_by_key(const struct inventory *inventory,
                                            const struct device_key *key)
{
    for (size_t i = 0; i < inventory->count; i++)
        if (device_key_equal(&inventory->entries[i].key, key))
            return &inventory->entries[i];
    return NULL;
}
