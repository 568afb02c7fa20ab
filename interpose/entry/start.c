#include "interpose/entry/start.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/protocol/protocol.h"
#include "interpose/aware/aware.h"
#include "interpose/control/control.h"
#include "interpose/entry/calls.h"
#include "state/base/bytes/size.h"
#include "state/base/clock.h"
#include "state/base/files/owned.h"
#include "state/base/log.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"
#include "state/base/threads/thread_own.h"
#include "state/base/threads/work.h"
#include "state/budget/budget.h"
#include "state/command/place.h"
#include "state/driver/inventory.h"
#include "state/driver/links.h"
#include "state/driver/served.h"
#include "state/library/library.h"
#include "state/object/context.h"
#include "state/object/lost.h"
#include "state/program/pace.h"
#include "state/program/program.h"
#include "state/recovery/protect.h"
#include "state/recovery/recovery.h"

/** How long the agent may take to say where to start, before the environment decides. */
#define AGENT_TIMEOUT_MS 200

/** The units of the setting library-limit. */
#define LIBRARY_MIB     1024u
#define LIBRARY_MIB_MAX (1u << 20)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int result = -EAGAIN; /* written once */

/* What is known of the machine's devices while the library starts. */
struct machine {
    struct inventory inventory;
    struct device **listed; /* Owned; where there is no inventory. */
    size_t listed_count;
};

static void start_machine_finish(struct machine *machine)
{
    inventory_finish(&machine->inventory);
    free(machine->listed);
}

static void start_machine_read(struct machine *machine)
{
    const char *path = getenv(START_ENV_INVENTORY);
    if (!path || !path[0])
        return;
    int err = inventory_read(path, &machine->inventory);
    if (err != 0)
        log_warn("cannot read the inventory %s: %s; what this program is told about its device is "
                 "what its first device says",
                 path, strerror(-err));
}

static bool start_is_gpu(const struct devinfo *info)
{
    return (devinfo_scalar(info, CL_DEVICE_TYPE, 0) & CL_DEVICE_TYPE_GPU) != 0;
}

/* Most of all that goes wrong where it is limited does so for want of it. */
static const char *start_limit_words(void)
{
    static char words[96];
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return "";
    (void)!snprintf(words, sizeof(words), " (the address space is limited to %llu MiB: ulimit -v)",
                    (unsigned long long)(limit.rlim_cur >> 20));
    return words;
}

/* The devices that the program's virtual devices start on. */
struct start {
    struct device *devices[VDEVS];
    uint32_t count; /* opened so far */
    uint32_t wanted;
};

/* Open all of @keys. If one fails, none stays open. */
static int start_open_named(const struct device_key *keys, uint32_t count, struct start *start)
{
    int err = 0;
    for (start->count = 0; err == 0 && start->count < count; start->count += err == 0) {
        const struct device_key *key = &keys[start->count];
        err = driver_open_device(key, &start->devices[start->count]);
        if (err != 0)
            log_error("cannot open %s of %s: %s%s", key->device, key->icd, strerror(-err),
                      start_limit_words());
    }
    start->count = err == 0 ? count : 0;
    return err;
}

/* Open the first GPUs that can be opened, else the first devices. */
static int start_open_from_inventory(const struct inventory *inventory, struct start *start)
{
    int err = -ENOENT;
    for (int gpu = 1; gpu >= 0 && start->count == 0; gpu--)
        for (size_t i = 0; i < inventory->count && start->count < start->wanted; i++)
            if (start_is_gpu(&inventory->entries[i].info) == (gpu == 1)) {
                err = driver_open_device(&inventory->entries[i].key, &start->devices[start->count]);
                start->count += err == 0;
            }
    return start->count != 0 ? 0 : err;
}

static int start_open_from_list(struct machine *machine, struct start *start)
{
    int err = driver_list(&machine->listed, &machine->listed_count);
    if (err != 0)
        return err;
    for (int gpu = 1; gpu >= 0 && start->count == 0; gpu--)
        for (size_t i = 0; i < machine->listed_count && start->count < start->wanted; i++)
            if (start_is_gpu(&machine->listed[i]->info) == (gpu == 1))
                start->devices[start->count++] = machine->listed[i];
    return start->count != 0 ? 0 : -ENOENT;
}

static int start_open_any(struct machine *machine, struct start *start)
{
    int err = machine->inventory.count != 0 ? start_open_from_inventory(&machine->inventory, start)
                                            : start_open_from_list(machine, start);
    if (err != 0)
        log_error("no OpenCL device opens: %s%s", strerror(-err), start_limit_words());
    return err;
}

static uint32_t start_wanted_count(void)
{
    const char *text = getenv(START_ENV_DEVICES);
    uint64_t count = 1;
    if (text && (!number_parse(text, VDEVS, &count) || count < 1)) {
        log_warn("%s is not a number from 1 to %d: taken as 1", START_ENV_DEVICES, VDEVS);
        return 1;
    }
    return (uint32_t)count;
}

static int start_open_devices(struct machine *machine, struct start *start)
{
    struct device_key keys[PROTOCOL_VDEVS_MAX];
    uint32_t named = control_start_devices(AGENT_TIMEOUT_MS, keys);
    int err = 0;
    start->wanted = start_wanted_count();
    if (named > start->wanted)
        start->wanted = named;
    err = start_open_named(keys, named, start);
    /* The program was moved before it started, to devices that are gone: start where it was before.
     */
    if (err != 0) {
        named = control_environment_devices(keys);
        err = start_open_named(keys, named, start);
    }
    /* A program that outlives the loss of its device does so before it has it, too. */
    if (named == 0 ||
        (err != 0 && start->wanted == 1 && control_protect_is_wanted(getenv(START_ENV_PROTECT))))
        err = start_open_any(machine, start);
    if (err != 0)
        log_error("the program gets no OpenCL platform");
    /* If there are fewer devices than virtual ones, several share a device. */
    for (uint32_t i = start->count; err == 0 && i < start->wanted; i++)
        start->devices[i] = start->devices[i - start->count];
    return err;
}

static enum present_profile start_wanted_profile(void)
{
    const char *text = getenv(START_ENV_PROFILE);
    if (text && strcmp(text, "native") == 0)
        return PRESENT_NATIVE;
    if (text && text[0] && strcmp(text, "portable") != 0)
        log_warn("%s is neither portable nor native: taken as portable", START_ENV_PROFILE);
    return PRESENT_PORTABLE;
}

static cl_device_type start_wanted_type(void)
{
    static const struct {
        const char *word;
        cl_device_type type;
    } types[] = {
        {"gpu", CL_DEVICE_TYPE_GPU},
        {"cpu", CL_DEVICE_TYPE_CPU},
        {"accelerator", CL_DEVICE_TYPE_ACCELERATOR},
        {"native", 0},
    };
    const char *text = getenv(START_ENV_PRESENT);
    if (!text || !text[0])
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (strcmp(text, types[i].word) == 0)
            return types[i].type;
    log_warn("%s is none of gpu, cpu, accelerator, native: taken as native", START_ENV_PRESENT);
    return 0;
}

static uint64_t start_wanted_memory(enum present_profile profile)
{
    const char *text = getenv(START_ENV_MEMORY);
    char reason[128] = "there has to be some";
    uint64_t bytes = 0;
    if (!text || !text[0])
        return 0;
    if (profile != PRESENT_PORTABLE)
        log_warn("%s is for the portable profile: left out", START_ENV_MEMORY);
    else if (size_parse(text, &bytes, reason, sizeof(reason)) != 0 || bytes == 0)
        log_warn("%s: %s; the program is told the memory of the largest device", START_ENV_MEMORY,
                 reason);
    return bytes;
}

static uint64_t start_wanted_slice_ns(void)
{
    const char *text = getenv(START_ENV_SLICE);
    uint64_t ms = START_SLICE_MS;
    if (text && text[0] && !number_parse(text, START_SLICE_MOST_MS, &ms))
        log_warn("%s is not a number of milliseconds up to %u: taken as %u", START_ENV_SLICE,
                 START_SLICE_MOST_MS, START_SLICE_MS);
    return ms * NS_PER_MS;
}

static uint64_t start_fault_ns(void)
{
    uint64_t seconds = 0;
    (void)number_parse(getenv(START_ENV_FAULT), UINT64_MAX / NS_PER_S, &seconds);
    return seconds * NS_PER_S;
}

static void start_placing(void)
{
    const char *objective = getenv(START_ENV_OBJECTIVE), *floats = getenv(START_ENV_FLOAT);
    unsigned at = 0;
    if (!objective || !objective[0])
        return;
    while (schedule_objective_names[at] && strcmp(schedule_objective_names[at], objective) != 0)
        at++;
    if (!schedule_objective_names[at])
        log_warn("%s is no objective: launches are not placed", START_ENV_OBJECTIVE);
    else if (at != 0) /* 0: "none" */
        place_configure((enum schedule_objective)(at - 1), floats && strcmp(floats, "any") == 0);
}

/*
 * The device's answers with its image formats. The inventory has them; asking costs a context,
 * which is only done where there is none.
 */
static int start_own_answers(struct machine *machine, struct device *device,
                             const struct devinfo **ret_info)
{
    for (size_t i = 0; i < machine->inventory.count; i++)
        if (device_key_equal(&machine->inventory.entries[i].key, &device->key)) {
            *ret_info = &machine->inventory.entries[i].info;
            return 0;
        }
    int err = device->info.formats
                  ? 0
                  : devinfo_query_formats(device->cl, device->platform, device->id, &device->info);
    if (err != 0)
        log_warn("%s does not list its image formats: presented without images",
                 device->key.device);
    *ret_info = &device->info;
    return err == -ENOMEM ? err : 0;
}

static bool start_is_among(const struct devinfo *const *infos, size_t count,
                           const struct devinfo *info)
{
    for (size_t i = 0; i < count; i++)
        if (infos[i] == info)
            return true;
    return false;
}

/* Several virtual devices get the same answers: under --profile native those that all the devices
 * give on which they start. */
static int start_build_present(struct machine *machine, const struct start *start)
{
    size_t most = machine->inventory.count + start->wanted, count = 0;
    const struct devinfo **infos = calloc(most, sizeof(struct devinfo *));
    enum present_profile profile = start_wanted_profile();
    struct present_terms terms = {profile, start_wanted_type(), start_wanted_memory(profile),
                                  isolated_is_on()};
    int err = 0;
    if (!infos)
        return -ENOMEM;
    for (uint32_t i = 0; err == 0 && i < start->wanted; i++) {
        err = start_own_answers(machine, start->devices[i], &infos[count]);
        count += err == 0 && !start_is_among(infos, count, infos[count]);
    }
    if (profile == PRESENT_NATIVE && count > 1)
        terms.profile = PRESENT_COMMON;
    else if (profile == PRESENT_PORTABLE)
        for (size_t i = 0; i < machine->inventory.count; i++)
            if (!start_is_among(infos, count, &machine->inventory.entries[i].info))
                infos[count++] = &machine->inventory.entries[i].info;
    if (err == 0)
        err = present_build(infos, count, &terms, &the_present);
    free(infos);
    return err;
}

/* Not for set-uid programs, which would run what is in a folder that their caller names. */
static void start_library_begin(void)
{
    const char *folder = secure_getenv(START_ENV_BINARIES), *text = getenv(START_ENV_LIMIT);
    uint64_t limit = LIBRARY_MIB;
    if (!folder || folder[0] != '/' || strlen(folder) >= sizeof(the_library.folder))
        return;
    if (text && !number_parse(text, LIBRARY_MIB_MAX, &limit))
        log_warn("%s is not a number of MiB up to %u: taken as %u", START_ENV_LIMIT,
                 LIBRARY_MIB_MAX, LIBRARY_MIB);
    strcpy(the_library.folder, folder);
    the_library.limit = limit << 20;
}

/* Not for set-uid programs, which would write to a folder that their caller names. */
static void start_links_begin(void)
{
    const char *folder = secure_getenv(START_ENV_LINKS);
    if (folder && folder[0] == '/' && strlen(folder) < sizeof(the_links.folder))
        strcpy(the_links.folder, folder);
}

/* The program's, and all libraries', because we are loaded before the C library. */
EXPORT void exit(int status)
{
    void (*end)(int) = (void (*)(int))dlsym(RTLD_NEXT, "exit");
    work_process_ends();
    if (end)
        end(status);
    _exit(status);
}

/* Likewise. Nobody else's reaches it where the program has us loaded later, as a driver: then every
 * thread counts as one that may be canceled. */
EXPORT int pthread_cancel(pthread_t thread)
{
    int (*cancel)(pthread_t) = (int (*)(pthread_t))dlsym(RTLD_NEXT, "pthread_cancel");
    cancel_begin();
    return cancel ? cancel(thread) : ENOSYS;
}

static bool start_has_cancel(void)
{
    Dl_info found, own;
    void *cancel = dlsym(RTLD_DEFAULT, "pthread_cancel");
    return cancel && dladdr(cancel, &found) && dladdr((void *)start_has_cancel, &own) &&
           found.dli_fbase == own.dli_fbase;
}

/* What there is to go to when the device is lost; without an inventory, what the drivers list. */
static void start_protect_start(const struct machine *machine)
{
    struct device_key *keys = calloc(machine->inventory.count + 1, sizeof(*keys));
    size_t count = keys ? machine->inventory.count : 0;
    for (size_t i = 0; i < count; i++)
        keys[i] = machine->inventory.entries[i].key;
    atomic_store(&protect_fault_ns, start_fault_ns());
    control_protect_start(keys, count, getenv(START_ENV_PROTECT));
    free(keys);
}

static int start_all(struct machine *machine)
{
    struct start start = {.count = 0};
    int err = fork_watch();
    if (err != 0)
        return err;
    start_machine_read(machine);
    /* Not for set-uid programs, which would load what their caller names. */
    served_set_library(secure_getenv(START_ENV_REMOTE));
    /* Before control_start(): the agent may ask for an image at once, or name helpers for launches.
     */
    recovery_install(control_agent_chooses);
    atomic_store(&pace_slice_ns, start_wanted_slice_ns());
    start_placing();
    err = start_open_devices(machine, &start);
    if (err != 0)
        return err;
    err = start_build_present(machine, &start);
    if (err == 0)
        err = vdevs_init(start.devices, start.wanted);
    if (err != 0) {
        log_error("cannot start on %s: %s%s; the program gets no OpenCL platform",
                  start.devices[0]->key.device, strerror(-err), start_limit_words());
        return err;
    }
    presented_limits_read();
    cancel_is_announced(start_has_cancel());
    start_links_begin();
    control_budget_begin();
    program_prologue = the_present.prologue;
    start_library_begin();
    aware_started();
    start_protect_start(machine);
    /* An error is only logged, because the program runs without an agent, too. */
    err = control_start();
    if (err != 0)
        log_warn("no connection to the agent: %s; this program cannot be moved", strerror(-err));
    return 0;
}

/* Before the program can change its environment, and has other threads. */
__attribute__((constructor)) static void start_loaded(void)
{
    isolated_init();
    owned_prepare();
}

static void start_once(void)
{
    struct machine machine = {0};
    object_dispatch = &calls_dispatch;
    the_thread.starting = true;
    result = start_all(&machine);
    the_thread.starting = false;
    start_machine_finish(&machine);
}

int start(void)
{
    /* A driver that is being opened may call our entry points, which it takes for a loader's. */
    if (the_thread.starting)
        return -EDEADLK;
    int before = cancel_hold();
    pthread_once(&once, start_once);
    cancel_allow(before);
    return result;
}
