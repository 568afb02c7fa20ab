#include "state/library/library.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "state/base/array.h"
#include "state/base/bytes/hex.h"
#include "state/base/bytes/little_endian.h"
#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/base/files/file.h"
#include "state/base/files/folder.h"
#include "state/base/log.h"
#include "state/recipe/recipe.h"

struct library the_library;

/* Part of every key: change it when the meaning of entries changes. */
#define FORMAT "reseat library 1"

/* What the compiler's output depends on: model, driver version, and features, which settings of the
 * driver change. Equal devices share entries. */
static void library_hash_device(const struct device_key *device, const struct devinfo *info,
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
    library_hash_device(device, info, &hash);
    int err = recipe_hash(recipe, prologue, &hash);
    if (err)
        return err;
    content_hash_end(&hash, ret_key->bytes);
    return 0;
}

void library_name(const struct library_key *key, char ret[LIBRARY_NAME_MAX])
{
    hex_put(ret, key->bytes, sizeof(key->bytes));
}

bool library_key_read(const char *name, struct library_key *ret_key)
{
    return hex_get(ret_key->bytes, name, sizeof(ret_key->bytes));
}

/* ---- an entry's file ---- */

/*
 * An entry's file, little-endian: a header, then the strings, each with its NUL, then what reading
 * the source said (not in version 1), then the binary. The checksum is against damage, of which a
 * folder that is the user's alone has to fear nothing worse: it is of everything but itself.
 */

#define VERSION     2u
#define VERSION_OLD 1u
/* Bytes at the front of a file, which have all strings but the log, unless there are thousands of
 * kernels. */
#define FRONT_SIZE ((size_t)256 << 10)

static const char magic[8] = {'R', 'E', 'S', 'E', 'A', 'T', 'B', '\n'};

enum {
    VERSION_OFFSET = 8,
    ORIGIN_OFFSET = 12,
    CHECKSUM_OFFSET = 16,
    KEY_OFFSET = 32,
    ANSWERS_OFFSET = 64,
    CREATED_OFFSET = 96,
    GLOBALS_OFFSET = 104,
    TYPE_OFFSET = 112,
    KERNEL_COUNT_OFFSET = 116,
    LENGTHS_OFFSET = 120,
    BINARY_SIZE_OFFSET = LENGTHS_OFFSET + 5 * 8,
    FACTS_SIZE_OFFSET = BINARY_SIZE_OFFSET + 8,
    HEADER_SIZE = FACTS_SIZE_OFFSET + 8,
};

static size_t library_entry_header_size(const unsigned char *bytes)
{
    return little_endian_get(bytes + VERSION_OFFSET, 4) == VERSION ? HEADER_SIZE
                                                                   : FACTS_SIZE_OFFSET;
}

/* The log is last, so that the front of a file has all other strings. */
enum { DEVICE, PLATFORM, DRIVER, KERNELS, LOG, STRINGS };

_Static_assert(sizeof(XXH128_canonical_t) == KEY_OFFSET - CHECKSUM_OFFSET, "room for a checksum");

static XXH128_canonical_t library_entry_checksum(const unsigned char *bytes, size_t size)
{
    XXH128_canonical_t canonical;
    XXH64_hash_t front = XXH64(bytes, CHECKSUM_OFFSET, 0);
    XXH128_canonicalFromHash(&canonical,
                             XXH3_128bits_withSeed(bytes + KEY_OFFSET, size - KEY_OFFSET, front));
    return canonical;
}

/* The bytes of an entry's file: free(). NULL without memory, or where it is too long. */
static unsigned char *library_entry_write(const struct library_entry *entry,
                                          const struct library_key *key, size_t *ret_size)
{
    const char *const strings[STRINGS] = {entry->device, entry->platform, entry->driver,
                                          entry->kernels, entry->log};
    size_t size = HEADER_SIZE;
    if (entry->binary_size > LIBRARY_ENTRY_MAX || entry->facts_size > LIBRARY_ENTRY_MAX)
        return NULL;
    for (size_t i = 0; i < STRINGS; i++)
        size += strlen(strings[i]) + 1;
    size += entry->facts_size + entry->binary_size;
    unsigned char *bytes = size <= LIBRARY_ENTRY_MAX ? calloc(1, size) : NULL;
    if (!bytes)
        return NULL;
    memcpy(bytes, magic, sizeof(magic));
    little_endian_put(bytes + VERSION_OFFSET, VERSION, 4);
    little_endian_put(bytes + ORIGIN_OFFSET, entry->origin, 4);
    memcpy(bytes + KEY_OFFSET, key->bytes, sizeof(key->bytes));
    memcpy(bytes + ANSWERS_OFFSET, entry->answers, sizeof(entry->answers));
    little_endian_put(bytes + CREATED_OFFSET, entry->created_ms, 8);
    little_endian_put(bytes + GLOBALS_OFFSET, entry->globals, 8);
    little_endian_put(bytes + TYPE_OFFSET, entry->type, 4);
    little_endian_put(bytes + KERNEL_COUNT_OFFSET, entry->kernel_count, 4);
    little_endian_put(bytes + BINARY_SIZE_OFFSET, entry->binary_size, 8);
    little_endian_put(bytes + FACTS_SIZE_OFFSET, entry->facts_size, 8);
    unsigned char *at = bytes + HEADER_SIZE;
    for (size_t i = 0; i < STRINGS; i++) {
        size_t length = strlen(strings[i]);
        little_endian_put(bytes + LENGTHS_OFFSET + 8 * i, length, 8);
        memcpy(at, strings[i], length);
        at += length + 1;
    }
    if (entry->facts_size)
        memcpy(at, entry->facts, entry->facts_size);
    if (entry->binary_size)
        memcpy(at + entry->facts_size, entry->binary, entry->binary_size);
    XXH128_canonical_t sum = library_entry_checksum(bytes, size);
    memcpy(bytes + CHECKSUM_OFFSET, &sum, sizeof(sum));
    *ret_size = size;
    return bytes;
}

/* Read the strings that lie within @size. The facts and the binary follow them in the file. */
static int library_entry_read_strings(const unsigned char *bytes, size_t size, uint64_t file_size,
                                      size_t count, const char **ret_strings)
{
    uint64_t at = library_entry_header_size(bytes), left;
    for (size_t i = 0; i < STRINGS; i++) {
        uint64_t length = little_endian_get(bytes + LENGTHS_OFFSET + 8 * i, 8);
        if (length >= file_size - at)
            return -EBADMSG;
        if (i < count) {
            const char *string = (const char *)bytes + at;
            if (length >= size - at || memchr(string, '\0', (size_t)length) || string[length])
                return -EBADMSG;
            ret_strings[i] = string;
        }
        at += length + 1;
    }
    left = file_size - at;
    if (library_entry_header_size(bytes) == HEADER_SIZE) {
        uint64_t facts_size = little_endian_get(bytes + FACTS_SIZE_OFFSET, 8);
        if (facts_size > left)
            return -EBADMSG;
        left -= facts_size;
    }
    return little_endian_get(bytes + BINARY_SIZE_OFFSET, 8) == left ? 0 : -EBADMSG;
}

/*
 * Read what library_entry_write() wrote; nothing in @bytes is trusted.
 *
 * @size       How much of the file is at @bytes.
 * @file_size  Size of the file. If it is more than @size, the log and the binary are not read, and
 *             the checksum is not compared.
 * @ret_entry  Its strings point into @bytes; the caller sets entry.bytes.
 * Returns 0 or -EBADMSG.
 */
static int library_entry_read(const unsigned char *bytes, size_t size, uint64_t file_size,
                              const struct library_key *key, struct library_entry *ret_entry)
{
    const char *strings[STRINGS] = {"", "", "", "", ""};
    bool whole = size == file_size;
    uint64_t version = size < HEADER_SIZE ? 0 : little_endian_get(bytes + VERSION_OFFSET, 4);
    if ((version != VERSION && version != VERSION_OLD) || file_size > LIBRARY_ENTRY_MAX ||
        memcmp(bytes, magic, sizeof(magic)) != 0 ||
        memcmp(bytes + KEY_OFFSET, key->bytes, sizeof(key->bytes)) != 0)
        return -EBADMSG;
    if (whole) {
        XXH128_canonical_t sum = library_entry_checksum(bytes, size);
        if (memcmp(bytes + CHECKSUM_OFFSET, &sum, sizeof(sum)) != 0)
            return -EBADMSG;
    }
    struct library_entry entry = {
        .origin = (enum library_origin)little_endian_get(bytes + ORIGIN_OFFSET, 4),
        .created_ms = little_endian_get(bytes + CREATED_OFFSET, 8),
        .kernel_count = (uint32_t)little_endian_get(bytes + KERNEL_COUNT_OFFSET, 4),
        .type = (uint32_t)little_endian_get(bytes + TYPE_OFFSET, 4),
        .globals = little_endian_get(bytes + GLOBALS_OFFSET, 8),
        .binary_size = (size_t)little_endian_get(bytes + BINARY_SIZE_OFFSET, 8),
    };
    if (entry.origin < LIBRARY_BUILT || entry.origin > LIBRARY_UNFIT ||
        library_entry_read_strings(bytes, size, file_size, whole ? STRINGS : LOG, strings) != 0)
        return -EBADMSG;
    memcpy(entry.answers, bytes + ANSWERS_OFFSET, sizeof(entry.answers));
    entry.device = strings[DEVICE];
    entry.platform = strings[PLATFORM];
    entry.driver = strings[DRIVER];
    entry.kernels = strings[KERNELS];
    entry.log = strings[LOG];
    if (version == VERSION)
        entry.facts_size = (size_t)little_endian_get(bytes + FACTS_SIZE_OFFSET, 8);
    if (whole) {
        entry.binary = bytes + (size - entry.binary_size);
        entry.facts = (const unsigned char *)entry.binary - entry.facts_size;
    }
    *ret_entry = entry;
    return 0;
}

void library_entry_finish(struct library_entry *entry)
{
    free(entry->bytes);
    *entry = (struct library_entry){0};
}

/* ---- the folder ---- */

/* Warn once about the folder: each build would repeat it. */
static void library_complain(const char *problem)
{
    static atomic_bool told;
    if (!atomic_exchange(&told, true))
        log_warn("the library of device binaries is not used as it should be, and programs are "
                 "built from source: %s",
                 problem);
    else
        log_debug("the library of device binaries: %s", problem);
}

static int library_open(const struct library *library, struct owned *ret_folder,
                        char ret_problem[FOLDER_PROBLEM_MAX])
{
    char path[PATH_MAX];
    int err = folder_make_private(library->folder, path, ret_problem);
    if (err)
        return err;
    err = file_folder(NULL, path, ret_folder);
    if (err)
        snprintf(ret_problem, FOLDER_PROBLEM_MAX, "%.400s: %s", path, strerror(-err));
    return err;
}

static int library_open_or_complain(const struct library *library, struct owned *ret_folder)
{
    char problem[FOLDER_PROBLEM_MAX];
    int err = library_is_on(library) ? library_open(library, ret_folder, problem) : -ENOENT;
    if (err && library_is_on(library))
        library_complain(problem);
    return err;
}

int library_find(const struct library *library, const struct library_key *key,
                 struct library_entry *ret_entry)
{
    static const struct timespec now[] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    struct owned CLEANUP(owned_close) folder = OWNED_NONE;
    char *CLEANUP(cleanup_free) bytes = NULL;
    char name[LIBRARY_NAME_MAX];
    size_t size;
    int err = library_open_or_complain(library, &folder);
    if (err)
        return err;
    library_name(key, name);
    err = file_read_all(&folder, name, LIBRARY_ENTRY_MAX, &bytes, &size);
    if (!err)
        err = library_entry_read((const unsigned char *)bytes, size, size, key, ret_entry);
    if (!err) {
        /* The access time says which entries are removed first. */
        (void)!utimensat(owned_fd(&folder), name, now, AT_SYMLINK_NOFOLLOW);
        ret_entry->bytes = bytes;
        bytes = NULL;
        return 0;
    }
    if (err == -EBADMSG || err == -EFBIG) {
        log_warn("the entry %s of the library of device binaries is damaged: removed", name);
        (void)!unlinkat(owned_fd(&folder), name, 0);
    } else if (err == -EPERM) {
        log_warn("the entry %s of the library of device binaries can be written by others: not "
                 "used",
                 name);
    }
    return err == -ENOMEM ? err : -ENOENT;
}

/* One file of the folder. */
struct library_file {
    char name[LIBRARY_NAME_MAX];
    uint64_t size, used_ns;
};

static uint64_t library_time_ns(const struct timespec *time)
{
    return (uint64_t)time->tv_sec * NS_PER_S + (uint64_t)time->tv_nsec;
}

static int library_by_use(const void *a, const void *b)
{
    const struct library_file *one = a, *other = b;
    if (one->used_ns != other->used_ns)
        return one->used_ns < other->used_ns ? -1 : 1;
    return strcmp(one->name, other->name);
}

static int library_add_file(const struct owned *folder, const char *name,
                            struct library_file **files, size_t *count)
{
    struct library_key key;
    struct stat stat;
    if (fstatat(owned_fd(folder), name, &stat, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(stat.st_mode))
        return 0;
    if (!library_key_read(name, &key))
        return 0;
    if (!array_make_room(files, *count, sizeof(**files)))
        return -ENOMEM;
    struct library_file *file = &(*files)[(*count)++];
    uint64_t read = library_time_ns(&stat.st_atim), written = library_time_ns(&stat.st_mtim);
    file->size = (uint64_t)stat.st_size;
    file->used_ns = read > written ? read : written;
    strcpy(file->name, name);
    return 0;
}

/* All entries' files, least recently used first. @ret_files: the caller's (free()). */
static int library_files(const struct owned *folder, struct library_file **ret_files,
                         size_t *ret_count)
{
    struct library_file *files = NULL;
    struct file_names names;
    size_t count = 0;
    int err = file_names(folder, &names);
    if (err)
        return err;
    for (size_t i = 0; !err && i < names.count; i++)
        err = library_add_file(folder, names.names[i], &files, &count);
    file_names_finish(&names);
    if (err) {
        free(files);
        return err;
    }
    if (count)
        qsort(files, count, sizeof(*files), library_by_use);
    *ret_files = files;
    *ret_count = count;
    return 0;
}

/* Remove the least recently used entries. Other processes may be doing the same. */
static void library_keep_to_limit(const struct library *library, const struct owned *folder)
{
    struct library_file *CLEANUP(cleanup_free) files = NULL;
    size_t count = 0;
    uint64_t total = 0;
    if (library_files(folder, &files, &count) != 0)
        return;
    for (size_t i = 0; i < count; i++)
        total += files[i].size;
    for (size_t i = 0; i < count && total > library->limit; i++) {
        log_debug("the library of device binaries is full: %s goes", files[i].name);
        if (unlinkat(owned_fd(folder), files[i].name, 0) == 0 || errno == ENOENT)
            total -= files[i].size;
    }
}

int library_keep(const struct library *library, const struct library_key *key,
                 const struct library_entry *entry)
{
    struct owned CLEANUP(owned_close) folder = OWNED_NONE;
    char name[LIBRARY_NAME_MAX], problem[FOLDER_PROBLEM_MAX];
    size_t size = 0;
    int err = library_open_or_complain(library, &folder);
    if (err)
        return err;
    unsigned char *CLEANUP(cleanup_free) bytes = library_entry_write(entry, key, &size);
    if (!bytes && entry->binary_size < LIBRARY_ENTRY_MAX / 2)
        return -ENOMEM;
    if (!bytes || size > library->limit)
        return -E2BIG;
    library_name(key, name);
    err = file_replace(&folder, name, bytes, size, false);
    if (!err) {
        file_sweep(&folder);
        library_keep_to_limit(library, &folder);
        return 0;
    }
    snprintf(problem, sizeof(problem), "%.400s cannot be written to: %s", library->folder,
             strerror(-err));
    library_complain(problem);
    return err;
}

int library_remove(const struct library *library, const char *name)
{
    struct owned CLEANUP(owned_close) folder = OWNED_NONE;
    char problem[FOLDER_PROBLEM_MAX];
    struct library_key key;
    if (!library_key_read(name, &key))
        return -EINVAL;
    int err = library_open(library, &folder, problem);
    if (!err && unlinkat(owned_fd(&folder), name, 0) != 0)
        err = -errno;
    return err;
}

void library_drop(const struct library *library, const struct library_key *key)
{
    char name[LIBRARY_NAME_MAX];
    library_name(key, name);
    int err = library_is_on(library) ? library_remove(library, name) : 0;
    if (err && err != -ENOENT)
        log_debug("the entry %s of the library of device binaries stays: %s", name, strerror(-err));
}

/* ---- for operators ---- */

/* Copy the strings that a listing shows; the file's bytes are freed. */
static int library_keep_strings(struct library_item *item)
{
    const char **const strings[] = {&item->entry.device, &item->entry.platform, &item->entry.driver,
                                    &item->entry.kernels};
    size_t size = 0;
    for (size_t i = 0; i < ARRAY_SIZE(strings); i++)
        size += strlen(*strings[i]) + 1;
    char *at = malloc(size);
    if (!at)
        return -ENOMEM;
    item->entry.bytes = at;
    for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
        size_t length = strlen(*strings[i]) + 1;
        *strings[i] = memcpy(at, *strings[i], length);
        at += length;
    }
    item->entry.log = "";
    item->entry.facts = item->entry.binary = NULL;
    return 0;
}

/* Read the front of the file, or all of it where @whole or where the strings do not fit into the
 * front. */
static int library_read_item(const struct owned *folder, bool whole, struct library_item *item)
{
    struct library_key key;
    char *CLEANUP(cleanup_free) bytes = NULL;
    uint64_t file_size = 0;
    size_t size = FRONT_SIZE;
    if (!library_key_read(item->name, &key))
        return -EINVAL;
    if (!whole && !(bytes = malloc(size)))
        return -ENOMEM;
    int err = whole ? file_read_all(folder, item->name, LIBRARY_ENTRY_MAX, &bytes, &size)
                    : file_read(folder, item->name, bytes, size, &file_size);
    if (err)
        return err;
    if (whole)
        file_size = size;
    size = file_size < size ? (size_t)file_size : size;
    err = library_entry_read((const unsigned char *)bytes, size, file_size, &key, &item->entry);
    if (err == -EBADMSG && size != file_size)
        return library_read_item(folder, true, item);
    return err ? err : library_keep_strings(item);
}

int library_list(const struct library *library, bool whole, struct library_list *ret_list,
                 char *ret_problem)
{
    struct owned CLEANUP(owned_close) folder = OWNED_NONE;
    struct library_file *CLEANUP(cleanup_free) files = NULL;
    struct library_list list = {0};
    size_t count = 0;
    int err = library_open(library, &folder, ret_problem);
    if (err)
        return err;
    err = library_files(&folder, &files, &count);
    if (!err && count && !(list.items = calloc(count, sizeof(*list.items))))
        err = -ENOMEM;
    /* The most recently used entry comes first. */
    for (size_t i = count; !err && i-- > 0;) {
        struct library_item *item = &list.items[list.count];
        strcpy(item->name, files[i].name);
        item->size = files[i].size;
        item->used_ms = files[i].used_ns / NS_PER_MS;
        int read = library_read_item(&folder, whole, item);
        /* Another process removed the file meanwhile. */
        if (read == -ENOENT)
            continue;
        err = read == -ENOMEM ? read : 0;
        item->damaged = read != 0;
        if (read)
            item->entry = (struct library_entry){0};
        list.size += item->size;
        list.count++;
    }
    if (err) {
        snprintf(ret_problem, FOLDER_PROBLEM_MAX, "%.400s: %s", library->folder, strerror(-err));
        library_list_finish(&list);
        return err;
    }
    *ret_list = list;
    return 0;
}

void library_list_finish(struct library_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        library_entry_finish(&list->items[i].entry);
    free(list->items);
    *list = (struct library_list){0};
}
