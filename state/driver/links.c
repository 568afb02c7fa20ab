#include "state/driver/links.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "state/base/files/file.h"
#include "state/base/files/folder.h"
#include "state/base/log.h"

struct links the_links;

#define MAGIC "reseat link 3"

/* A file's content: only for this machine, so its numbers are stored as they lie in memory. */
struct record {
    char magic[16];
    uint64_t of[2]; /* the same as in the file's name */
    uint64_t measured_s, count;
    struct {
        double setup, bandwidth;
    } stages[5];
    uint64_t check; /* checksum of everything before it */
};

/* The figures of a device, and of the host, are these stages and nothing else. */
static const enum cost_kind device_stages[] = {COST_LINK, COST_LINK, COST_LINK, COST_LINK};
static const enum cost_kind host_stages[] = {COST_WORK, COST_WORK, COST_WORK, COST_RING, COST_HAND};
_Static_assert(sizeof(struct link_figures) == ARRAY_SIZE(device_stages) * sizeof(struct cost_stage),
               "stages and nothing else");
_Static_assert(sizeof(struct host_figures) == ARRAY_SIZE(host_stages) * sizeof(struct cost_stage),
               "stages and nothing else");

#define NAME_MAX_HERE 33 /* of[] in hexadecimal, and the NUL */

/* ---- what a file is of ---- */

struct text {
    char bytes[4096];
    size_t used;
};

static void links_add(struct text *text, const char *more)
{
    size_t room = sizeof(text->bytes) - text->used;
    int length = snprintf(text->bytes + text->used, room, "%s\n", more);
    text->used += length < 0 ? 0 : (size_t)length < room ? (size_t)length : room - 1;
}

/* A line of a file, the first or the one that begins so; "" where it cannot be read. */
static void links_add_line(struct text *text, const char *path, const char *begin)
{
    char bytes[4096] = "";
    struct owned CLEANUP(owned_close) file = OWNED_NONE;
    if (owned_take(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), &file) == 0) {
        ssize_t got = read(owned_fd(&file), bytes, sizeof(bytes) - 1);
        bytes[got > 0 ? got : 0] = '\0';
    }
    char *line = strstr(bytes, begin);
    if (line)
        line[strcspn(line, "\n")] = '\0';
    links_add(text, line ? line : "");
}

/* The record for a device without figures; for the host when @key is NULL. */
static struct record links_identify(const struct device_key *key, const struct devinfo *info)
{
    struct record record = {.magic = MAGIC,
                            .count = key ? ARRAY_SIZE(device_stages) : ARRAY_SIZE(host_stages)};
    struct text text = {.used = 0};
    struct utsname names = {0};
    /* The same until the machine gets another kernel or CPU. */
    (void)uname(&names);
    links_add(&text, names.nodename);
    links_add(&text, names.machine);
    links_add(&text, names.release);
    links_add_line(&text, "/etc/machine-id", "");
    links_add_line(&text, "/proc/cpuinfo", "model name");
    if (key) {
        char ordinal[16];
        snprintf(ordinal, sizeof(ordinal), "%u", (unsigned)key->ordinal);
        links_add(&text, key->icd);
        links_add(&text, key->platform);
        links_add(&text, key->device);
        links_add(&text, ordinal);
        links_add(&text, key->uuid);
        links_add(&text, key->pci);
        links_add(&text, devinfo_string(info, CL_DRIVER_VERSION));
    }
    XXH128_hash_t hash = XXH3_128bits(text.bytes, text.used);
    record.of[0] = hash.high64;
    record.of[1] = hash.low64;
    return record;
}

static uint64_t links_check_of(const struct record *record)
{
    return XXH3_64bits(record, offsetof(struct record, check));
}

static bool links_is_plausible(const struct record *record)
{
    for (size_t i = 0; i < record->count; i++) {
        double setup = record->stages[i].setup, bandwidth = record->stages[i].bandwidth;
        if (!(setup >= 0 && setup <= 1 && bandwidth >= 1e6 && bandwidth <= 1e13))
            return false;
    }
    return true;
}

/* ---- files ---- */

static int links_open_folder(const struct links *links, struct owned *ret_folder)
{
    char path[PATH_MAX], problem[FOLDER_PROBLEM_MAX];
    if (!links->folder[0])
        return -ENOENT;
    int err = folder_make_private(links->folder, path, problem);
    if (err)
        log_info("figures of links are not kept: %s", problem);
    return err ? err : file_folder(NULL, path, ret_folder);
}

static void links_name_of(const struct record *record, char ret[NAME_MAX_HERE])
{
    snprintf(ret, NAME_MAX_HERE, "%016llx%016llx", (unsigned long long)record->of[0],
             (unsigned long long)record->of[1]);
}

/* 0 or -ENOENT: it is not there, not ours alone, or no such record. */
static int links_read_record(const struct owned *folder, const struct record *wanted,
                             struct record *ret_record)
{
    char name[NAME_MAX_HERE];
    struct record record;
    uint64_t size;
    links_name_of(wanted, name);
    if (file_read(folder, name, &record, sizeof(record), &size) != 0)
        return -ENOENT;
    if (size != sizeof(record) || record.check != links_check_of(&record) ||
        memcmp(record.magic, wanted->magic, sizeof(record.magic)) != 0 ||
        memcmp(record.of, wanted->of, sizeof(record.of)) != 0 || record.count != wanted->count ||
        !links_is_plausible(&record)) {
        log_info("the figures %s are damaged: measured again", name);
        return -ENOENT;
    }
    /* After a clock was set back, their age is unknown. */
    uint64_t now = (uint64_t)time(NULL);
    if (record.measured_s > now || now - record.measured_s > LINKS_AGE_S)
        return -ENOENT;
    *ret_record = record;
    return 0;
}

static int links_find_record(const struct links *links, struct record *record)
{
    struct owned CLEANUP(owned_close) folder = OWNED_NONE;
    int err = links_open_folder(links, &folder);
    return err ? err : links_read_record(&folder, record, record);
}

static int links_keep_record(const struct links *links, struct record *record)
{
    struct owned CLEANUP(owned_close) folder = OWNED_NONE;
    char name[NAME_MAX_HERE];
    record->measured_s = (uint64_t)time(NULL);
    record->check = links_check_of(record);
    if (!links_is_plausible(record))
        return -EINVAL;
    int err = links_open_folder(links, &folder);
    if (err)
        return err;
    links_name_of(record, name);
    file_sweep(&folder);
    err = file_replace(&folder, name, record, sizeof(*record), false);
    if (err)
        log_info("figures of links could not be kept in %s: %s", links->folder, strerror(-err));
    return err;
}

/* ---- figures ---- */

/* Of the host when @key is NULL. */
static int links_find_stages(const struct links *links, const struct device_key *key,
                             const struct devinfo *info, struct cost_stage *ret_stages,
                             uint64_t *ret_measured_s)
{
    struct record record = links_identify(key, info);
    const enum cost_kind *kinds = key ? device_stages : host_stages;
    int err = links_find_record(links, &record);
    if (err)
        return err;
    for (size_t i = 0; i < record.count; i++)
        ret_stages[i] =
            (struct cost_stage){kinds[i], record.stages[i].setup, record.stages[i].bandwidth};
    if (ret_measured_s)
        *ret_measured_s = record.measured_s;
    return 0;
}

static int links_keep_stages(const struct links *links, const struct device_key *key,
                             const struct devinfo *info, const struct cost_stage *stages)
{
    struct record record = links_identify(key, info);
    for (size_t i = 0; i < record.count; i++) {
        record.stages[i].setup = stages[i].setup;
        record.stages[i].bandwidth = stages[i].bandwidth;
    }
    return links_keep_record(links, &record);
}

int links_find(const struct links *links, const struct device_key *key, const struct devinfo *info,
               struct link_figures *ret_figures, uint64_t *ret_measured_s)
{
    return links_find_stages(links, key, info, (struct cost_stage *)ret_figures, ret_measured_s);
}

int links_find_host(const struct links *links, struct host_figures *ret_figures,
                    uint64_t *ret_measured_s)
{
    return links_find_stages(links, NULL, NULL, (struct cost_stage *)ret_figures, ret_measured_s);
}

int links_keep(const struct links *links, const struct device_key *key, const struct devinfo *info,
               const struct link_figures *figures)
{
    return links_keep_stages(links, key, info, (const struct cost_stage *)figures);
}

int links_keep_host(const struct links *links, const struct host_figures *figures)
{
    return links_keep_stages(links, NULL, NULL, (const struct cost_stage *)figures);
}
