#include "agent/daemon/devices/device_list.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "agent/config/environment.h"
#include "agent/config/process.h"
#include "agent/daemon/programs/registry.h"
#include "agent/daemon/servers/servers.h"
#include "agent/protocol/message.h"
#include "state/base/cleanup.h"
#include "state/driver/served.h"

#define PREFIX "inventory"
/* Unused lists to keep: a program's child may use one and outlive the program. */
#define LISTS_KEPT 8
#define DIGITS     16 /* Hexadecimal digits in a list's file name, after the prefix and a dash. */

struct list {
    char name[PROGRAM_INVENTORY_MAX];
    struct timespec changed;
};

static bool device_list_files_is_list(const char *name)
{
    const char *digits = name + strlen(PREFIX "-");

    return strncmp(name, PREFIX "-", strlen(PREFIX "-")) == 0 && strlen(digits) == DIGITS &&
           strspn(digits, "0123456789abcdef") == DIGITS;
}

static bool device_list_files_is_read(const struct agent *agent, const char *name)
{
    const char *last = strrchr(agent->devices.own_path, '/');

    if (strcmp(name, PREFIX) == 0 || (last && strcmp(name, last + 1) == 0))
        return true;
    for (const struct program *program = agent->programs; program; program = program->next)
        if (strcmp(name, program->inventory) == 0)
            return true;
    return false;
}

static bool device_list_files_is_older(const struct list *a, const struct list *b)
{
    return a->changed.tv_sec != b->changed.tv_sec ? a->changed.tv_sec < b->changed.tv_sec
                                                  : a->changed.tv_nsec < b->changed.tv_nsec;
}

/** Keep @name among the newest files; of too many, remove the oldest. */
static void device_list_files_keep_newest(int folder, const char *name, struct list *kept,
                                          size_t *count)
{
    struct list one;
    struct stat stat;

    if (fstatat(folder, name, &stat, AT_SYMLINK_NOFOLLOW))
        return;
    one.changed = stat.st_mtim;
    memcpy(one.name, name, strlen(name) + 1);
    if (*count < LISTS_KEPT) {
        kept[(*count)++] = one;
        return;
    }
    struct list *oldest = &kept[0];
    for (size_t i = 1; i < *count; i++)
        oldest = device_list_files_is_older(&kept[i], oldest) ? &kept[i] : oldest;
    if (device_list_files_is_older(&one, oldest)) {
        unlinkat(folder, one.name, 0);
    } else {
        unlinkat(folder, oldest->name, 0);
        *oldest = one;
    }
}

static void device_list_files_tidy_folder(const struct agent *agent, const char *path)
{
    struct list kept[LISTS_KEPT];
    const struct dirent *entry;
    size_t count = 0;
    DIR *folder = opendir(path);

    while (folder && (entry = readdir(folder))) {
        const char *name = entry->d_name;
        if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || device_list_files_is_read(agent, name))
            continue;
        if (device_list_files_is_list(name))
            device_list_files_keep_newest(dirfd(folder), name, kept, &count);
        else
            unlinkat(dirfd(folder), name, 0);
    }
    if (folder)
        closedir(folder);
}

/**
 * Remove lists of devices that no process will read. The lists that living programs use, the last
 * list, and the newest of the others stay. Also removes partial files that a killed helper or agent
 * left; no helper may be writing at that time. Blocks on files.
 */
static void device_list_files_tidy(const struct agent *agent)
{
    device_list_files_tidy_folder(agent, agent->paths.folder);
    if (strcmp(agent->devices.lists, agent->paths.folder) != 0)
        device_list_files_tidy_folder(agent, agent->devices.lists);
}

/** Remove devices of servers: their list comes from the files that the servers' watchers wrote. */
static void device_list_drop_served(struct inventory *inventory)
{
    size_t kept = 0;

    for (size_t i = 0; i < inventory->count; i++)
        if (served_is_address(inventory->entries[i].key.icd))
            devinfo_finish(&inventory->entries[i].info);
        else
            inventory->entries[kept++] = inventory->entries[i];
    inventory->count = kept;
}

static void device_list_load_last(struct agent *agent)
{
    struct devices *devices = &agent->devices;
    bool grew;

    if (inventory_read(devices->inventory_path, &devices->inventory))
        return;
    device_list_drop_served(&devices->inventory);
    if (device_names_assign(&devices->names, &devices->inventory, &grew) ||
        servers_append(agent, &devices->inventory, &grew))
        inventory_finish(&devices->inventory);
}

/**
 * Choose the folder of lists. If another user has taken its name, the agent's own is used, where
 * programs of other users cannot read the lists and ask all drivers themselves.
 */
static int device_list_folder(struct agent *agent)
{
    char *lists = agent->devices.lists;
    int error = paths_lists(&agent->paths, lists);

    if (error != -EPERM)
        return error;
    agent_log("%s is not this user's folder alone, so programs of other users get no list of "
              "devices and start more slowly; remove it and restart the agent",
              lists);
    strcpy(lists, agent->paths.folder);
    return 0;
}

int devices_init(struct agent *agent, uint64_t timeout_ms)
{
    struct devices *devices = &agent->devices;
    char state[PATH_MAX];
    int error;

    if ((error = paths_state(state)) ||
        (error = paths_join(state, "devices", devices->names_path)) ||
        (error = paths_join(agent->paths.folder, "inventory", devices->inventory_path)) ||
        (error = paths_join(agent->paths.folder, "inventory.new", devices->fresh_path)) ||
        (error = device_list_folder(agent)) ||
        (error = device_names_load(devices->names_path, &devices->names)) ||
        (error = uv_timer_init(&agent->loop, &devices->timeout)))
        return error;
    devices->timeout_ms = timeout_ms;
    device_list_load_last(agent);
    return 0;
}

void devices_finish(struct agent *agent)
{
    struct devices *devices = &agent->devices;

    inventory_finish(&devices->inventory);
    device_names_finish(&devices->names);
    free(devices->environment);
    free(devices->wanted);
}

/** A digest that identifies an environment; never 0. */
static uint64_t device_list_digest_of(const char *environment)
{
    uint64_t digest = XXH64(environment, strlen(environment), 0);
    return digest ? digest : 1;
}

/** True when a living program sees @entry. Removes from it the digests that none has. */
static bool device_list_others_see(const struct agent *agent, struct inventory_entry *entry,
                                   uint64_t but)
{
    size_t kept = 0;

    for (size_t i = 0; i < INVENTORY_SEEN_MAX && entry->seen[i]; i++) {
        bool lives = false;
        for (const struct program *program = agent->programs; program && !lives;
             program = program->next) {
            lives = program->environment &&
                    device_list_digest_of(program->environment) == entry->seen[i] &&
                    (program->peer || process_alive(program->pid, program->start));
        }
        if (lives && entry->seen[i] != but)
            entry->seen[kept++] = entry->seen[i];
    }
    memset(entry->seen + kept, 0, (INVENTORY_SEEN_MAX - kept) * sizeof(entry->seen[0]));
    return kept > 0;
}

uint64_t devices_digest(const struct agent *agent, const char *environment)
{
    environment = environment ? environment : agent->devices.environment;
    return environment ? device_list_digest_of(environment) : 0;
}

bool devices_shown(uint64_t digest, const struct inventory_entry *entry)
{
    size_t i = 0;

    if (!digest || !entry->seen[0])
        return true;
    while (i < INVENTORY_SEEN_MAX && entry->seen[i] && entry->seen[i] != digest)
        i++;
    return i < INVENTORY_SEEN_MAX && entry->seen[i] == digest;
}

/** Write the devices of @fresh, for programs that have the environment of this listing. */
static int device_list_write_own(struct devices *devices, const struct inventory *fresh)
{
    CLEANUP(cleanup_free) char *data = NULL;
    char path[PATH_MAX];
    size_t size;
    int error = inventory_encode(fresh, &data, &size);

    if (!error && snprintf(path, sizeof(path), "%s/inventory-%016llx", devices->lists,
                           (unsigned long long)XXH64(data, size, 0)) >= (int)sizeof(path))
        error = -ENAMETOOLONG;
    if (!error && access(path, R_OK))
        error = inventory_write(path, fresh);
    /* Programs of all users read it; where the folder is private, its mode alone decides. */
    if (!error && chmod(path, 0644))
        error = -errno;
    if (!error)
        strcpy(devices->own_path, path);
    return error;
}

static struct inventory_entry *device_list_entry_by_key(const struct inventory *inventory,
                                                        size_t count, const struct device_key *key)
{
    for (size_t i = 0; i < count; i++)
        if (device_key_equal(&inventory->entries[i].key, key))
            return &inventory->entries[i];
    return NULL;
}

/** Keep devices that only other environments show, while programs of these live. */
static int device_list_keep_others(struct agent *agent, struct inventory *fresh)
{
    struct devices *devices = &agent->devices;
    size_t room = fresh->count + devices->inventory.count;
    struct inventory_entry *grown;
    uint64_t digest = device_list_digest_of(devices->wanted);

    grown = realloc(fresh->entries, (room ? room : 1) * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    fresh->entries = grown;
    size_t kept = 0, listed = fresh->count;
    for (size_t i = 0; i < devices->inventory.count; i++) {
        struct inventory_entry *entry = &devices->inventory.entries[i];
        bool shared = device_list_others_see(agent, entry, digest);
        struct inventory_entry *same = device_list_entry_by_key(fresh, listed, &entry->key);
        if (same)
            memcpy(same->seen, entry->seen, sizeof(same->seen));
        if (same || !shared)
            devices->inventory.entries[kept++] = *entry;
        else
            fresh->entries[fresh->count++] = *entry;
    }
    devices->inventory.count = kept;
    for (size_t i = 0; i < listed; i++) {
        struct inventory_entry *entry = &fresh->entries[i];
        if (served_is_address(entry->key.icd))
            continue; /* Every environment shows this device. */
        memmove(entry->seen + 1, entry->seen, sizeof(entry->seen) - sizeof(entry->seen[0]));
        entry->seen[0] = digest;
    }
    return 0;
}

static void device_list_save_names(const struct devices *devices)
{
    int error = device_names_save(devices->names_path, &devices->names);

    if (error)
        agent_log("%s: cannot keep the names of devices (%s); they may change at the next start",
                  devices->names_path, strerror(-error));
}

/** Write the devices that the last listing and the servers show now. */
static int device_list_write_shown(const struct agent *agent, struct devices *devices)
{
    const struct inventory *all = &devices->inventory;
    struct inventory shown = {.entries = calloc(all->count + 1, sizeof(*shown.entries))};

    if (!shown.entries)
        return -ENOMEM;
    for (size_t i = 0; i < all->count; i++)
        if (devices_shown(devices_digest(agent, NULL), &all->entries[i]))
            shown.entries[shown.count++] = all->entries[i]; /* Borrowed. */
    int error = device_list_write_own(devices, &shown);
    free(shown.entries);
    return error;
}

void devices_recompose(struct agent *agent)
{
    struct devices *devices = &agent->devices;
    bool grew;

    device_list_drop_served(&devices->inventory);
    int error = servers_append(agent, &devices->inventory, &grew);
    if (!error && devices->own_path[0])
        error = device_list_write_shown(agent, devices);
    if (!error)
        error = inventory_write(devices->inventory_path, &devices->inventory);
    if (error)
        agent_log("devices of servers: %s; programs that start now may not know all of them",
                  strerror(-error));
    if (!devices->listing)
        device_list_files_tidy(agent);
    if (grew)
        device_list_save_names(devices);
    agent->events->devices_changed(agent);
}

void devices_forget(struct agent *agent, const char *server)
{
    if (device_names_forget(&agent->devices.names, server))
        device_list_save_names(&agent->devices);
    devices_recompose(agent);
}

static int device_list_take_fresh(struct agent *agent)
{
    struct devices *devices = &agent->devices;
    struct inventory fresh = {0};
    bool grew = false, more = false;
    int error = inventory_read(devices->fresh_path, &fresh);

    unlink(devices->fresh_path);
    if (!error)
        device_list_drop_served(&fresh);
    if (error || (error = device_names_assign(&devices->names, &fresh, &grew)) ||
        (error = servers_append(agent, &fresh, &more)) ||
        (error = device_list_write_own(devices, &fresh)) ||
        (error = device_list_keep_others(agent, &fresh)) ||
        (error = inventory_write(devices->inventory_path, &fresh))) {
        inventory_finish(&fresh);
        return error;
    }
    if (grew || more)
        device_list_save_names(devices);
    inventory_finish(&devices->inventory);
    devices->inventory = fresh;
    return 0;
}

static void device_list_ready(struct agent *agent)
{
    struct devices *devices = &agent->devices;

    devices->listing = false;
    devices->listed_ms = uv_now(&agent->loop) + 1;
    if (devices->problem[0] && devices->wanted && devices->environment &&
        strcmp(devices->wanted, devices->environment))
        devices->own_path[0] = '\0'; /* The last file belongs to another environment. */
    free(devices->environment);
    devices->environment = devices->wanted;
    devices->wanted = NULL;
    if (devices->problem[0])
        agent_log("devices: %s; the list stays as it was", devices->problem);
    agent->events->devices_listed(agent);
}

static void device_list_lister_closed(uv_handle_t *handle)
{
    device_list_ready(handle->data);
}

static void device_list_lister_exited(uv_process_t *process, int64_t status, int signal)
{
    struct agent *agent = process->data;
    struct devices *devices = &agent->devices;
    int error;

    uv_timer_stop(&devices->timeout);
    if (devices->hung) {
        snprintf(devices->problem, sizeof(devices->problem),
                 "the helper that lists them did not end within %llu s and was killed",
                 (unsigned long long)devices->timeout_ms / 1000);
    } else if (signal) {
        snprintf(devices->problem, sizeof(devices->problem),
                 "the helper that lists them was ended by signal %d", signal);
    } else if (status) {
        snprintf(devices->problem, sizeof(devices->problem),
                 "the helper that lists them failed (status %d)", (int)status);
    } else if ((error = device_list_take_fresh(agent))) {
        snprintf(devices->problem, sizeof(devices->problem), "cannot take the new list: %s",
                 strerror(-error));
    }
    device_list_files_tidy(agent);
    uv_close((uv_handle_t *)process, device_list_lister_closed);
}

static void device_list_lister_hangs(uv_timer_t *timer)
{
    struct agent *agent = timer->data;

    agent->devices.hung = true;
    uv_kill(-uv_process_get_pid(&agent->devices.lister), SIGKILL);
    uv_process_kill(&agent->devices.lister, SIGKILL);
}

static int device_list_spawn_lister(struct agent *agent)
{
    struct devices *devices = &agent->devices;
    char path[PATH_MAX];
    char *arguments[] = {path, devices->fresh_path, NULL};
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
        {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
    };
    uv_process_options_t options = {
        .exit_cb = device_list_lister_exited,
        .file = path,
        .args = arguments,
        .flags = UV_PROCESS_DETACHED,
        .stdio = stdio,
        .stdio_count = 3,
    };
    int error;

    if ((error = paths_of(PATHS_LISTER, path)) ||
        (error = environment_for_lister(environ, devices->wanted, &options.env)))
        return error;
    devices->lister.data = agent;
    devices->timeout.data = agent;
    error = uv_spawn(&agent->loop, &devices->lister, &options);
    free(options.env);
    if (error) {
        uv_close((uv_handle_t *)&devices->lister, device_list_lister_closed);
        return -EINPROGRESS;
    }
    uv_timer_start(&devices->timeout, device_list_lister_hangs, devices->timeout_ms, 0);
    return 0;
}

void devices_refresh(struct agent *agent, const char *environment)
{
    struct devices *devices = &agent->devices;

    if (devices->listing)
        return;
    if (!environment)
        environment = devices->environment ? devices->environment : "";
    devices->wanted = strdup(environment);
    devices->listing = true;
    devices->hung = false;
    devices->problem[0] = '\0';
    int error = devices->wanted ? device_list_spawn_lister(agent) : -ENOMEM;
    if (error) {
        snprintf(devices->problem, sizeof(devices->problem),
                 "the helper that lists them (reseat-lister) cannot be started: %s",
                 error == -EINPROGRESS ? "spawn failed" : strerror(-error));
    }
    if (error && error != -EINPROGRESS)
        device_list_ready(agent);
}

void devices_renew(struct agent *agent)
{
    if (agent->devices.environment)
        devices_refresh(agent, NULL);
}

bool devices_fresh(const struct agent *agent, const char *environment, uint64_t age_ms)
{
    const struct devices *devices = &agent->devices;

    return devices->listed_ms && uv_now(&agent->loop) < devices->listed_ms + age_ms &&
           (!environment ||
            (devices->environment && strcmp(environment, devices->environment) == 0));
}

const struct inventory_entry *devices_entry(const struct agent *agent, uint32_t device)
{
    const struct inventory *inventory = &agent->devices.inventory;

    if (device >= agent->ledger.count)
        return NULL;
    for (size_t i = 0; i < inventory->count; i++)
        if (strcmp(inventory->entries[i].name, agent->ledger.devices[device].name) == 0)
            return &inventory->entries[i];
    return NULL;
}

const char *devices_name(const struct agent *agent, const struct device_key *key)
{
    const struct inventory_entry *entry = device_by_key(&agent->devices.inventory, key);

    return entry ? entry->name : key->device;
}

uint32_t devices_index(struct agent *agent, const struct inventory_entry *entry)
{
    uint32_t index;

    return ledger_device(&agent->ledger, entry->name, &index) ? LEDGER_NONE : index;
}

uint32_t devices_index_of_key(struct agent *agent, const struct device_key *key)
{
    const struct device_names *names = &agent->devices.names;
    uint32_t index;

    for (size_t i = 0; i < names->count; i++)
        if (device_key_equal(&names->names[i].key, key))
            return ledger_device(&agent->ledger, names->names[i].name, &index) ? LEDGER_NONE
                                                                               : index;
    return LEDGER_NONE;
}

uint64_t devices_drain_in_ns(const struct agent *agent, const struct ledger_device *device)
{
    uint64_t now = uv_now(&agent->loop);

    if (!device->drains_ms)
        return 0;
    return (device->drains_ms > now ? device->drains_ms - now : 1) * 1000000;
}

/* Settings of devices from the configuration, as the governor needs them. */

static enum place_kind device_list_kind_of(const struct inventory_entry *entry)
{
    static const struct {
        const char *name;
        enum place_kind kind;
    } kinds[] = {{"gpu", PLACE_GPU}, {"accel", PLACE_ACCELERATOR}, {"cpu", PLACE_CPU}};

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if (strcmp(kinds[i].name, device_kind(&entry->info)) == 0)
            return kinds[i].kind;
    return PLACE_OTHER;
}

struct config_device device_settings_said(const struct agent *agent,
                                          const struct inventory_entry *entry)
{
    struct config_device said;

    config_device(&agent->config, entry->name, device_list_kind_of(entry), entry->key.device,
                  &said);
    return said;
}

/**
 * Estimate the speed of a device whose speed is not configured, from its compute units and clock. A
 * unit of a GPU counts many times as much as one of a CPU. 1000 stands for 60 units of a GPU at 1
 * GHz.
 */
static uint32_t device_list_guess_speed(const struct inventory_entry *entry, enum place_kind kind)
{
    uint64_t units = devinfo_scalar(&entry->info, CL_DEVICE_MAX_COMPUTE_UNITS, 1);
    uint64_t clock = devinfo_scalar(&entry->info, CL_DEVICE_MAX_CLOCK_FREQUENCY, 1000);
    const uint64_t share = kind == PLACE_CPU ? 8 : 1;

    units = units < 1u << 20 ? units : 1u << 20;
    clock = clock && clock < 1u << 20 ? clock : 1000;
    uint64_t speed = units * clock / 60 / share;
    /* Access to a server costs time: of two equal devices a local one is preferred. */
    speed -= served_is_address(entry->key.icd) ? speed / 8 : 0;
    return (uint32_t)(speed < 1 ? 1 : speed < 1000000 ? speed : 1000000);
}

void device_settings(const struct agent *agent, const struct inventory_entry *entry,
                     struct policy_device *device)
{
    struct config_device said = device_settings_said(agent, entry);

    device->kind = device_list_kind_of(entry);
    device->speed = said.speed ? said.speed : device_list_guess_speed(entry, device->kind);
    device->guessed = !said.speed;
    device->price = said.price ? said.price : 1000;
    device->closed = said.closed;
}

void devices_put_place(const struct agent *agent, struct frame *frame, const char *key,
                       uint32_t device)
{
    frame_string(frame, key, device == LEDGER_NONE ? "" : agent->ledger.devices[device].name);
}

uint32_t devices_take_place(struct agent *agent, const msgpack_object *map, const char *key)
{
    const msgpack_object *field = field_get(map, key);

    return field ? devices_item_place(agent, field) : LEDGER_NONE;
}

uint32_t devices_take_key(struct agent *agent, const msgpack_object *map, const char *key)
{
    struct device_key device = {.icd = ""};

    return message_take_device(map, key, &device) ? devices_index_of_key(agent, &device)
                                                  : LEDGER_NONE;
}

uint32_t devices_item_place(struct agent *agent, const msgpack_object *item)
{
    char name[sizeof(agent->ledger.devices->name)];
    uint32_t device;

    return object_string(item, name, sizeof(name)) && name[0] &&
                   !ledger_device(&agent->ledger, name, &device)
               ? device
               : LEDGER_NONE;
}
