#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/cli/client.h"
#include "agent/cli/image/images.h"
#include "agent/cli/launch.h"
#include "agent/cli/verb.h"
#include "agent/config/config.h"
#include "agent/config/device_names.h"
#include "agent/config/process.h"
#include "agent/protocol/common_messages.h"
#include "state/base/bytes/text.h"
#include "state/base/cleanup.h"
#include "state/driver/served.h"
#include "state/image/image_graph.h"

/* The first listing of devices starts every driver on the machine. */
#define REGISTER_MS     60000
#define DEFAULT_VENDORS "/etc/OpenCL/vendors"

/*
 * A forked child has the stacks of its parent's threads but not the threads. An exit handler of
 * Mesa joins those threads nevertheless, which works only as long as the C library keeps their
 * stacks mapped. By default it keeps 40 MiB, the stacks of five threads; a program under reseat may
 * have more, those of several drivers and our own. A stack that is kept uses no memory, only
 * addresses.
 */
#define STACKS      "glibc.pthread.stack_cache_size"
#define STACKS_KEPT STACKS "=4294967296"

/* With less, drivers that compile with LLVM cannot be opened or fail to build. */
#define ADDRESSES_LEAST (1ull << 30)

#define NAME_MAX_BYTES 63

/* Duration of a piece of a launch if launches are to be split and no duration was given. */
#define SLICE_MS 10

#define EXIT_CANNOT_EXEC 126
#define EXIT_NOT_FOUND   127

struct run {
    const struct output *output;
    const char *given; /**< As in struct call. */
    const char *name, *present, *profile, *only;
    const char *objective, *floats; /**< As the options say; NULL: not given. */
    uint64_t memory;                /**< Device memory that the program sees; 0: not given. */
    uint32_t devices;               /**< 0: not given. */
    uint32_t slice_ms;              /**< UINT32_MAX: not given. */
    const char *restore;            /**< A folder of images, or the path of one. */
    struct registration said;       /**< What the agent is told of the program. */
    uint64_t every_ms, keep;        /**< Of further images; 0: not given. */
    uint64_t cap_w;                 /**< 0: not given. */
    bool isolate, whole;            /**< --isolate, --no-isolate. */
    bool alone;                     /**< No agent was reached. */
    int error;                      /**< The first of setting variables; 0: none. */
    struct names where,
        spread; /**< Devices that it starts on, and devices that share its long launches. */
    struct device_wish wish;
    char library[PATH_MAX], image[PATH_MAX];
    struct paths paths;
    char id[64], inventory[PATH_MAX];
    char keys[PROTOCOL_VDEVS_MAX * DEVICE_KEY_TEXT_MAX]; /**< Separated by spaces. */
};

/* ---- options ---- */

static int run_take_name(struct call *call, const struct option_row *option, const char *text)
{
    size_t length = strlen(text);

    if (!length || length > NAME_MAX_BYTES || !text_is_safe(text, length)) {
        return output_usage(&call->output,
                            "--%s must be 1 to %d bytes of UTF-8, without control characters",
                            option->name, NAME_MAX_BYTES);
    }
    ((struct run *)call->options)->name = text;
    return 0;
}

static int run_take_priority(struct call *call, const struct option_row *option, const char *text)
{
    char *end;
    long value = strtol(text, &end, 10);

    if (end == text || *end || value < -1000 || value > 1000) {
        return output_usage(&call->output, "--%s must be -1000 to 1000, not \"%s\"", option->name,
                            text);
    }
    struct registration *said = &((struct run *)call->options)->said;
    said->priority = (int32_t)value;
    said->has_priority = true;
    return 0;
}

/** For options that are one of the words of the setting of the same name. */
static int run_take_word(struct call *call, const struct option_row *option, const char *text)
{
    struct run *run = call->options;
    const char *const *words = settings_find(option->name)->words;

    while (*words && strcmp(*words, text) != 0)
        words++;
    if (!*words) {
        return output_usage(&call->output, "--%s must be %s, not \"%s\"", option->name,
                            option->argument, text);
    }
    *(strcmp(option->name, "float") == 0 ? &run->floats : &run->objective) = *words;
    return 0;
}

static int run_take_protect(struct call *call, const struct option_row *option, const char *text)
{
    struct protection *protect = &((struct run *)call->options)->said.protect;
    char reason[PROTOCOL_TEXT_MAX];

    if (protection_parse(text ? text : "on", protect, reason, sizeof(reason)))
        return output_usage(&call->output, "--%s: %s", option->name, reason);
    return 0;
}

static int run_take_ways(struct call *call, const struct option_row *option, const char *text)
{
    struct run *run = call->options;
    struct names names = {.count = 0};
    int status = 0;

    run->said.has_ways = true;
    run->said.ways = 0;
    if (strcmp(text, "refuse") != 0) /* argv may be modified. */
        status = verb_take_names(call, "--on-full", (char *)text, POLICY_WAYS, &names);
    for (size_t i = 0; i < names.count && !status; i++) {
        unsigned way = policy_way_of(names.items[i], strlen(names.items[i]));
        run->said.ways |= way;
        if (!way)
            status = output_usage(&call->output,
                                  "--%s must be refuse, or some of upgrade, spill, wait and "
                                  "suspend with commas, not \"%s\"",
                                  option->name, names.items[i]);
    }
    return status;
}

static const struct option_row run_options[] = {
    {"device", "DEVICE[,DEVICE]",
     "Where each virtual device starts. Default, and for those not named: spread over the GPUs, or "
     "over all devices if there is no GPU.",
     OPTION_VALUE(struct run, where), .take = verb_take_list, .most = PROTOCOL_VDEVS_MAX},
    {"only", "DEVICE[,DEVICE]",
     "Devices that it is to stay on: it starts on one of them, and the policy moves it to no "
     "other; reseat move still does.",
     OPTION_VALUE(struct run, only)},
    {"devices", "N",
     "Number of virtual devices; each is placed and moved by itself. Default: as many as --device "
     "names, else 1.",
     OPTION_VALUE(struct run, devices), .kind = OPTION_NUMBER, .least = 1,
     .most = PROTOCOL_VDEVS_MAX},
    {"name", "NAME",
     "Name of the program: 1 to 63 bytes of UTF-8, without control characters. Default: its file's "
     "name, with a ? for each of these.",
     .take = run_take_name},
    {"present", "gpu|cpu|accelerator|native",
     "Device type that the program is told. Some programs only look for GPUs.",
     OPTION_VALUE(struct run, present)},
    {"profile", "portable|native",
     "portable (default): the limits, features and extensions that every device offers. native: "
     "those of the device where it starts (with several virtual devices, those that all of theirs "
     "offer); it then moves only to devices that offer them too. Each virtual device is described "
     "the same.",
     OPTION_VALUE(struct run, profile)},
    {"memory", "SIZE",
     "Device memory that the program is told, such as 512MiB or 2GiB. Default: that of the largest "
     "device where it may go.",
     OPTION_VALUE(struct run, memory), .kind = OPTION_SIZE, .least = 1},
    {"quota", "SIZE",
     "Device memory that the program may have at most; reseat limit changes it. What is more "
     "spills, or is refused; a kernel that needs more at once waits, suspended.",
     OPTION_VALUE(struct run, said.quota), .kind = OPTION_SIZE, .least = 1},
    {"cap", "WATTS",
     "Power in watts that the program, with its device's idle power, may draw; reseat limit "
     "changes it. Its launches wait so that it is kept, and it is moved to a device where it fits. "
     "Refused if it fits on none.",
     OPTION_VALUE(struct run, cap_w), .kind = OPTION_NUMBER, .least = 1, .most = 1000000},
    {"priority", "N",
     "From -1000 to 1000; default 0. Higher ones go first, and displace lower ones if nothing else "
     "helps; those come back by themselves.",
     .take = run_take_priority},
    {"preemptible", NULL, "Programs of the same priority that wait may displace it too.",
     OPTION_VALUE(struct run, said.preemptible)},
    {"on-full", "refuse|WAY[,WAY]",
     "What may be done when its memory does not fit: upgrade (move it to a device where it does), "
     "spill (keep on the device what each command needs), wait (block the call), suspend (queue "
     "for a device); or refuse: the call gets the error of a full device. Default: all, in the "
     "order of reseat.conf(5).",
     .take = run_take_ways},
    {"slice", "TIME",
     "About how long a move may have to wait for a running kernel; a number is in milliseconds. A "
     "launch longer than twice this is split into pieces of whole work-groups, where no program "
     "can tell (reseat explain says for which kernels). 0: no launch is split. Default: the "
     "setting slice of reseat.conf(5).",
     OPTION_VALUE(struct run, slice_ms), .kind = OPTION_TIME, .unit = "milliseconds",
     .own_seconds = 0.001, .most = 60000, .initial = UINT32_MAX},
    {"spread", "DEVICE[,DEVICE]|free",
     "Run parts of its long launches on these devices too, where the kernel allows that (reseat "
     "explain). free: on those that no program uses, as long as that is so, and of the same name "
     "and driver as its own unless --float any. What a launch needs there counts against no limit. "
     "Launches are then split even if "
     "the configuration says otherwise. reseat spread changes it while the program runs.",
     OPTION_VALUE(struct run, spread), .take = verb_take_list, .most = PROTOCOL_SPREAD_MAX},
    {"objective", "none|time|energy|energy-at-no-loss",
     "Choose a device for each single launch, its own or one of --spread, by learned times, the "
     "bytes to copy, and the power that is known of the devices (reseat profile; before a kernel's "
     "is, busy-watts of reseat.conf(5)). Launches that need nothing of each other then run at the "
     "same time, and none is divided. A launch whose energy is not known runs where it ends first. "
     "none: all launches run on its own device. Default: the setting objective of reseat.conf(5).",
     .take = run_take_word},
    {"float", "same|any",
     "same: for an objective and --spread free, launches go only to devices of the same name and "
     "driver, whose results are equal to the last bit. any: to every device of --spread. Default: "
     "the setting float of reseat.conf(5).",
     .take = run_take_word},
    {"protect", "[TIME|SIZE|off]",
     "Let it survive the loss of its device: its data is copied to host memory again and again, "
     "and the commands since the last copy are kept and repeated on another device. A time: "
     "between two copies, if they pause it for no more than 1% of its time. A size: host "
     "memory for those commands, 256MiB by default. Launches are then not split. Not protected: "
     "programs with several virtual devices, native kernels, shared virtual memory or "
     "program-scope variables. off: no protection, whatever the configuration says (protect in "
     "reseat.conf(5)). reseat protect changes it while it runs.",
     .take = run_take_protect},
    {"restore", "FOLDER[/IMAGE]",
     "Continue from its last image in FOLDER (reseat checkpoint), or from that image, on any "
     "device. The program must save its progress (reseat.h) and be called by the same name. The "
     "image stays.",
     OPTION_VALUE(struct run, restore)},
    {"every", "TIME",
     "With --restore: make further images in that folder at this interval, as reseat checkpoint "
     "--every does.",
     OPTION_SECONDS(struct run, every_ms, 3, 1, 86400000)},
    {"keep", "N", "With --every: keep only the program's last N images. Default: all.",
     OPTION_VALUE(struct run, keep), .kind = OPTION_NUMBER, .least = 1, .most = 1000000},
    {"isolate", NULL,
     "Open its drivers in other processes: it has no library, descriptor or mapping of theirs, and "
     "a driver that crashes is a lost device, not a crash of the program. Default: the setting "
     "isolate of reseat.conf(5).",
     OPTION_VALUE(struct run, isolate)},
    {"no-isolate", NULL, "Open its drivers in its own process, whatever the configuration says.",
     OPTION_VALUE(struct run, whole)},
    {NULL}};

/** Check options against each other. */
static int run_check(struct run *run)
{
    const struct names *where = &run->where;

    if (run->devices && where->count > run->devices) {
        return output_usage(run->output, "--device names %zu devices, --devices asks for %u",
                            where->count, run->devices);
    }
    if (run->only && strlen(run->only) >= PROTOCOL_PINNED_MAX)
        return output_usage(run->output, "the devices of --only are too many");
    if (run->isolate && run->whole)
        return output_usage(run->output, "give --isolate or --no-isolate, not both");
    if (run->spread.count && run->slice_ms == 0)
        return output_usage(run->output, "--spread needs launches in pieces, --slice 0 has none");
    if (run->every_ms ? !run->restore : run->keep != 0)
        return output_usage(run->output, "--every is for --restore, and --keep for --every");
    memcpy(run->wish.names, where->items, where->count * sizeof(*where->items));
    run->wish.named = where->count;
    run->wish.count = run->devices ? run->devices : where->count ? where->count : 1;
    return 0;
}

/* ---- the agent ---- */

static void run_add_key(struct run *run, const char *key)
{
    if (*key) {
        strcat(run->keys, run->keys[0] ? " " : "");
        strcat(run->keys, key);
    }
}

/**
 * Register this process with the agent before the program is executed. Returns 0, an exit status,
 * or -errno if the program should run without the agent.
 */
static int run_register_program(struct run *run, struct client *client, const char *name)
{
    struct registration said = run->said;
    CLEANUP(message_finish) struct message message = {.zone = NULL};
    struct frame frame;
    char problem[PROTOCOL_TEXT_MAX];

    snprintf(said.name, sizeof(said.name), "%s", name);
    said.named = run->name != NULL;
    said.count = (uint32_t)run->wish.count;
    said.cap_mw = run->cap_w * 1000;
    snprintf(said.pinned_to, sizeof(said.pinned_to), "%s", run->only ? run->only : "");
    frame_init(&frame, MSG_REGISTER);
    put_registration(&frame, &said);
    ask_put_texts(&frame, "devices", run->where.items, run->where.count);
    ask_put_texts(&frame, "spread", run->spread.items, run->spread.count);
    if (run->floats)
        frame_bool(&frame, "any_float", strcmp(run->floats, "any") == 0);
    if (run->every_ms) {
        frame_u64(&frame, "every_ms", run->every_ms);
        frame_u64(&frame, "keep", run->keep);
        char folder[PATH_MAX];
        snprintf(folder, sizeof(folder), "%s", run->image);
        *strrchr(folder, '/') = '\0';
        frame_string(&frame, "folder", folder);
    }
    ask_put_environment(&frame);
    int result = client_send(client, &frame);
    if (!result)
        result = client_receive(client, REGISTER_MS, -1, &message);
    if (result != 1)
        return result ? result : -EPROTO;
    if (!field_is(&message.root, "type", MSG_REGISTER))
        return output_fail_message(run->output, &message);
    field_string(&message.root, "id", run->id, sizeof(run->id));
    const msgpack_object *keys;
    size_t count = field_array(&message.root, "devices", &keys);
    for (size_t i = 0; i < count && i < PROTOCOL_VDEVS_MAX; i++) {
        char key[DEVICE_KEY_TEXT_MAX];
        if (object_string(&keys[i], key, sizeof(key)))
            run_add_key(run, key);
    }
    field_path(&message.root, "inventory", run->inventory, sizeof(run->inventory));
    if (field_text(&message.root, "problem", problem, sizeof(problem)) && problem[0])
        output_note(run->output, "devices could not be listed: %s", problem);
    return 0;
}

static int run_place_alone(const struct run *run, const struct inventory *inventory,
                           const struct inventory_entry **ret_entries, char *ret_error, size_t size)
{
    CLEANUP(cleanup_free) struct device_fill *fills = calloc(inventory->count + 1, sizeof(*fills));

    if (!fills)
        return -ENOMEM;
    for (size_t i = 0; i < inventory->count; i++)
        fills[i] = (struct device_fill){
            .memory = 1,
            .closed = run->only && !device_listed(inventory, run->only, &inventory->entries[i])};
    int result = device_place(inventory, &run->wish, fills, ret_entries, ret_error, size);
    return result ? result
                  : device_check_only(inventory, run->only ? run->only : "", &run->wish,
                                      ret_entries, ret_error, size);
}

/** Without an agent, resolve --device and --only in the list that the last agent left. */
static int run_resolve_alone(struct run *run)
{
    struct inventory inventory = {0};
    const struct inventory_entry *entries[PROTOCOL_VDEVS_MAX] = {NULL};
    char error[PROTOCOL_TEXT_MAX] = "no list of devices was left by an earlier agent";
    int result = -ENODEV;

    if (run->paths.folder[0] && !paths_join(run->paths.folder, "inventory", run->inventory) &&
        !inventory_read(run->inventory, &inventory))
        result = run_place_alone(run, &inventory, entries, error, sizeof(error));
    else
        run->inventory[0] = '\0';
    for (size_t i = 0; i < PROTOCOL_VDEVS_MAX && entries[i]; i++) {
        char key[DEVICE_KEY_TEXT_MAX];
        device_key_format(&entries[i]->key, key);
        run_add_key(run, key);
    }
    inventory_finish(&inventory);
    if (result && (run->wish.named || run->only))
        return output_fail(run->output, result == -EINVAL ? ERR_USAGE : ERR_NO_DEVICE, "%s", error);
    return 0;
}

static int run_find_agent(struct run *run, const char *name)
{
    struct client client = {.fd = -1};
    char why[PROTOCOL_TEXT_MAX] = "";
    int result = paths_find(&run->paths);

    output_note_paths(run->output, &run->paths);
    if (!result) {
        result = client_connect(&run->paths, &client);
        if (result == -ENOENT || result == -ECONNREFUSED) {
            result = launch_agent(why, sizeof(why));
            result = result ? result : client_connect(&run->paths, &client);
        }
    }
    if (!result)
        result = run_register_program(run, &client, name);
    client_close(&client);
    if (result >= 0)
        return result;
    run->alone = true;
    const char *problem = result == -EPROTO && client.problem[0] ? client.problem
                          : why[0]                               ? why
                          : run->paths.problem[0]                ? run->paths.problem
                          : result == -ETIMEDOUT                 ? "it does not answer"
                          : result == -EPERM                     ? "it is owned by another user"
                                                                 : strerror(-result);
    output_note(run->output, "cannot reach the agent (%s); %s runs without it and %s", problem,
                name,
                run->paths.socket[0] ? "can be moved when one runs (reseat agent start)"
                                     : "cannot be moved");
    if (run->spread.count)
        output_note(run->output, "--spread needs an agent: launches are done on one device");
    return run_resolve_alone(run);
}

/* ---- the environment ---- */

/** Set a variable, or clear it without a value. The first error stays in @run. */
static void run_set(struct run *run, const char *name, const char *value)
{
    int result = value && *value ? setenv(name, value, 1) : unsetenv(name);

    if (result && !run->error)
        run->error = -errno;
}

static void run_set_number(struct run *run, const char *name, uint64_t number)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    run_set(run, name, text);
}

/**
 * Find a folder of vendors with our driver as its only one: beside the library or, if there is none
 * there, in the runtime folder. Without a runtime folder, return the library's path, which one of
 * the two loaders accepts as well.
 */
static int run_find_vendors(const struct run *run, char ret_folder[PATH_MAX])
{
    char file[PATH_MAX], line[PATH_MAX + 1];

    if (!paths_vendors(run->library, ret_folder))
        return 0;
    if (!run->paths.folder[0]) {
        memcpy(ret_folder, run->library, PATH_MAX);
        return 0;
    }
    int error = paths_join(run->paths.folder, "vendors", ret_folder);
    if (!error)
        error = paths_make(ret_folder);
    if (!error)
        error = paths_join(ret_folder, "reseat.icd", file);
    if (error)
        return error;
    snprintf(line, sizeof(line), "%s\n", run->library);
    CLEANUP(cleanup_free) char *old = NULL;
    size_t size;
    if (!paths_read(file, sizeof(line), &old, &size) && strcmp(old, line) == 0)
        return 0;
    return file_replace_path(file, line, strlen(line));
}

/** Prepend @item to a list in a variable, unless the list contains @known already. */
static void run_set_first(struct run *run, const char *name, const char *item, const char *known)
{
    const char *old = getenv(name);
    CLEANUP(cleanup_free) char *all = NULL;

    if (old && strstr(old, known))
        return;
    if (asprintf(&all, "%s%s%s", item, old && *old ? ":" : "", old ? old : "") < 0) {
        all = NULL;
        run->error = -ENOMEM;
        return;
    }
    run_set(run, name, all);
}

/**
 * Set the variables that lead to our library, and save the user's values for the library, which
 * opens the real drivers with them. If this process already runs under reseat, the variables are
 * ours, and the saved values must not be overwritten.
 */
static void run_set_roads(struct run *run)
{
    const char *vendors = getenv("OCL_ICD_VENDORS");
    char folder[PATH_MAX];

    run->error = run_find_vendors(run, folder);
    if (run->error)
        return;
    if (!vendors || !getenv(DRIVER_ENV_VENDORS) || strcmp(vendors, folder) != 0) {
        run_set(run, DRIVER_ENV_VENDORS, vendors && *vendors ? vendors : DEFAULT_VENDORS);
        run_set(run, DRIVER_ENV_FILENAMES, getenv("OCL_ICD_FILENAMES"));
    }
    run_set(run, "OCL_ICD_FILENAMES", NULL);
    run_set(run, "OCL_ICD_VENDORS", folder);
    run_set_first(run, "LD_PRELOAD", run->library, run->library);
}

static void run_set_slice(struct run *run, uint32_t configured_ms)
{
    const char *set = getenv("RESEAT_SLICE");

    if (run->spread.count && !configured_ms)
        configured_ms = SLICE_MS;
    if (run->slice_ms != UINT32_MAX)
        run_set_number(run, "RESEAT_SLICE", run->slice_ms);
    else if (!set || !*set)
        run_set_number(run, "RESEAT_SLICE", configured_ms);
}

/** Set isolation. If it fails the program is not run: the user wants no drivers in its process. */
static void run_set_isolation(struct run *run, bool isolate)
{
    char driver[PATH_MAX] = "", address[PATH_MAX] = "";
    bool alone = run->alone || run->paths.shared;

    if (isolate && !run->error)
        run->error = launch_isolated(&run->paths, alone, driver, address);
    run_set(run, ISOLATED_ENV_DRIVER, driver);
    run_set(run, ISOLATED_ENV_SERVER, address);
}

/** Set what the configuration says about this program. */
static void run_set_configured(struct run *run, const char *name)
{
    struct config_program said = {.protect = {.word = PROTECTION_UNSAID}};
    char folder[PATH_MAX] = "", protection[PROTECTION_TEXT_MAX];
    char objective[CONFIG_NAME_MAX] = "", floats[CONFIG_NAME_MAX] = "";
    struct policy_settings policy;
    struct config_error wrong;
    struct config config;
    uint32_t slice_ms = SLICE_MS;
    bool isolate = run->isolate;

    if (config_load_effective(NULL, 0, &config, &wrong)) {
        char text[CONFIG_REASON_MAX + PATH_MAX];
        config_error_format(&wrong, text, sizeof(text));
        output_note(run->output, "no library of device binaries is used: %s", text);
    } else {
        /* Without a folder of binaries, programs are built. */
        if (paths_binaries(folder))
            folder[0] = '\0';
        else
            run_set_number(run, "RESEAT_LIBRARY_LIMIT", config_policy(&config)->library_mib);
        isolate = isolate || (config_policy(&config)->isolate && !run->whole);
        slice_ms = config_policy(&config)->slice_ms;
        run_set_number(run, "RESEAT_MEAN_TIME_TO_FAULT", config_policy(&config)->fault_s);
        config_program(&config, name, &said);
        policy = *config_policy(&config);
        policy.objective = said.objective ? said.objective - 1 : policy.objective;
        policy.floats = said.floats ? said.floats - 1 : policy.floats;
        setting_text(settings_find("objective"), &policy, objective, sizeof(objective));
        setting_text(settings_find("float"), &policy, floats, sizeof(floats));
        config_finish(&config);
    }
    run_set(run, "RESEAT_BINARIES", folder);
    const struct protection *protect = &run->said.protect;
    protection_format(protect->word == PROTECTION_UNSAID ? &said.protect : protect, protection);
    run_set(run, "RESEAT_PROTECTION", protection);
    run_set_isolation(run, isolate);
    run_set_slice(run, slice_ms);
    run_set(run, "RESEAT_OBJECTIVE", run->objective ? run->objective : objective);
    run_set(run, "RESEAT_FLOAT", run->floats ? run->floats : floats);
}

/** Set the options that are to hold wherever the program is started again (reseat recover). */
static void run_set_options(struct run *run)
{
    static const char *const here[] = {
        "--device=", "--spread=", "--restore=", "--every=", "--keep="};
    char text[VERB_GIVEN_MAX] = "";
    size_t used = 0;

    for (const char *line = run->given, *next; *line; line = next) {
        bool stays = false;
        next = line + strcspn(line, "\n") + 1;
        for (size_t i = 0; i < ARRAY_SIZE(here); i++)
            stays = stays || strncmp(line, here[i], strlen(here[i])) == 0;
        if (!stays)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%.*s", (int)(next - line),
                                     line);
    }
    run_set(run, COMMAND_LINE_ENV_OPTIONS, text);
}

static int run_set_environment(struct run *run, const char *name)
{
    char path[PATH_MAX], memory[SIZE_TEXT_MAX];

    run_set_roads(run);
    run_set_first(run, "GLIBC_TUNABLES", STACKS_KEPT, STACKS);
    run_set(run, "RESEAT_SOCKET", run->paths.socket);
    run_set(run, "RESEAT_INVENTORY", run->inventory);
    run_set(run, "RESEAT_DEVICE", run->keys);
    run_set_number(run, "RESEAT_DEVICES", run->wish.count);
    run_set(run, "RESEAT_ID", run->id);
    run_set(run, "RESEAT_NAME", name);
    run_set_options(run);
    run_set_configured(run, name);
    /* Without a folder of measurements of links, each program measures for itself. */
    run_set(run, "RESEAT_LINKS", paths_links(path) ? NULL : path);
    /* Without the driver for servers, programs cannot move to devices of servers. */
    run_set(run, "RESEAT_REMOTE", paths_of(PATHS_REMOTE, path) ? NULL : path);
    if (run->present)
        run_set(run, "RESEAT_PRESENT", run->present);
    if (run->profile)
        run_set(run, "RESEAT_PROFILE", run->profile);
    size_format(run->memory, memory);
    if (run->memory)
        run_set(run, "RESEAT_MEMORY", memory);
    run_set(run, "RESEAT_RESTORE", run->image);
    return run->error;
}

/** Execute the program. Returns an exit status, only if that fails. */
static int run_start(struct run *run, char **program, const char *name)
{
    int status = run_find_agent(run, name);

    if (status)
        return status;
    int error = run_set_environment(run, name);
    if (error) {
        return output_fail(run->output, ERR_FAILED, "cannot set up the environment: %s",
                           strerror(-error));
    }
    uint64_t addresses = process_address_limit();
    if (addresses && addresses < ADDRESSES_LEAST) {
        output_note(run->output,
                    "the address space is limited to %llu MiB (ulimit -v), which may be too little "
                    "for %s to find an OpenCL device; RESEAT_LOG=error says what fails",
                    (unsigned long long)addresses >> 20, name);
    }
    execvp(program[0], program);
    status = errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_EXEC;
    output_note(run->output, "cannot run %s: %s", program[0], strerror(errno));
    return status;
}

static int run_program(struct call *call)
{
    struct run *run = call->options;
    const char *slash = strrchr(call->words[0], '/');

    run->output = &call->output;
    run->given = call->given;
    int status = run_check(run);
    if (status)
        return status;
    if (paths_of(PATHS_LIBRARY, run->library)) {
        return output_fail(run->output, ERR_FAILED,
                           "libreseat.so is not installed beside this binary; reinstall reseat, or "
                           "name it in RESEAT_LIBRARY");
    }
    if (run->restore)
        status = images_find_start(run->output, run->restore,
                                   run->name ? run->name : call->words[0], run->image);
    if (status)
        return status;
    return run_start(run, call->words, run->name ? run->name : slash ? slash + 1 : call->words[0]);
}

const struct verb verb_run = {
    .name = "run",
    .arguments = "PROGRAM [ARG...]",
    .summary = "Run an OpenCL program so that it can be moved between devices.",
    .text = "The program keeps its exit status, signals, standard streams and working directory. "
            "An agent is started if none runs; if that fails, the program runs all the same, after "
            "a warning, and the next agent finds it.",
    .options = run_options,
    .plain = true,
    .size = sizeof(struct run),
    .run = run_program,
};
