#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <string.h>

#include "agent/config/config_priv.h"
#include "agent/config/servers.h"
#include "policy/schedule.h"
#include "state/base/bytes/size.h"

/* The settings of entries in "devices", "programs", "servers" and "users". */

#define ALL_WAYS (POLICY_UPGRADE | POLICY_SPILL | POLICY_WAIT | POLICY_SUSPEND)
#define FIELD(entry, name)                                                                         \
    .offset = offsetof(struct entry, name), .size = sizeof(((struct entry *)NULL)->name)

static const struct {
    const char *name; /* As `reseat devices` shows it. */
    enum place_kind kind;
} kinds[] = {
    {"gpu", PLACE_GPU}, {"accel", PLACE_ACCELERATOR}, {"cpu", PLACE_CPU}, {"dev", PLACE_OTHER}};

static int config_fields_read_kind(const char *text, void *ret_kind, char *ret_reason, size_t size)
{
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (strcmp(kinds[i].name, text) == 0) {
            *(int *)ret_kind = (int)kinds[i].kind;
            return 0;
        }
    }
    snprintf(ret_reason, size,
             "it has to be \"gpu\", \"accel\", \"cpu\" or \"dev\" (as reseat devices shows it), "
             "not \"%.64s\"",
             text);
    return -EINVAL;
}

static void config_fields_kind_text(const void *kind, char *ret_text, size_t size)
{
    ret_text[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if ((int)kinds[i].kind == *(const int *)kind)
            snprintf(ret_text, size, "%s", kinds[i].name);
}

static int config_fields_read_protection(const char *text, void *ret_protection, char *ret_reason,
                                         size_t size)
{
    return protection_parse(text, ret_protection, ret_reason, size);
}

static void config_fields_protection_text(const void *protection, char *ret_text, size_t size)
{
    char words[PROTECTION_TEXT_MAX];

    protection_format(protection, words);
    snprintf(ret_text, size, "%s", words);
}

static const struct setting device_fields[] = {
    {"match", SETTING_TEXT, "its name as reseat devices shows it, or a pattern: \"gpu0\", \"gpu*\"",
     FIELD(config_device_entry, entry.match)},
    {"model", SETTING_TEXT, "what its driver calls it, or a pattern: \"*H200*\"",
     FIELD(config_device_entry, model)},
    {"kind", SETTING_KIND, "\"gpu\", \"accel\", \"cpu\" or \"dev\"",
     .read = config_fields_read_kind, .text = config_fields_kind_text,
     FIELD(config_device_entry, kind)},
    {"memory", SETTING_SIZE, "what all programs together may have of its memory", .min = 1,
     .initial_text = "all of it", FIELD(config_device_entry, says.memory)},
    {"speed", SETTING_NUMBER, "how fast it is, in thousandths of a device that you compare with",
     .min = 1, .max = 1000000, .initial_text = "a guess from its units and clock",
     FIELD(config_device_entry, says.speed)},
    {"price", SETTING_NUMBER, "what an hour of it costs, in thousandths of that device's", .min = 1,
     .max = 1000000, .initial_text = "1000", FIELD(config_device_entry, says.price)},
    {"closed", SETTING_FLAG, "true: it takes no new program", .initial_text = "false",
     FIELD(config_device_entry, says.closed)},
    {"meter", SETTING_TEXT,
     "what measures its energy: \"file:PATH\", a file with microjoules since some time, and the "
     "nanosecond of that; and also its use: \"nvml:PCI\"; \"sysfs:PCI\", the files of other "
     "drivers; \"rapl:N\", a package of processors, for root, only energy",
     .initial_text = "that of its driver, for a PCI device; else it is computed from busy-watts",
     FIELD(config_device_entry, says.meter)},
    {"idle-watts", SETTING_NUMBER, "what it draws when nothing runs", .min = 1, .max = 100000,
     .initial_text = "the least that its meter said", FIELD(config_device_entry, says.idle_w)},
    {"busy-watts", SETTING_NUMBER, "the most that it draws", .min = 1, .max = 100000,
     .initial_text = "not known", FIELD(config_device_entry, says.busy_w)},
};

static const struct setting program_fields[] = {
    {"match", SETTING_TEXT, "its name as reseat ps shows it, or a pattern: \"train-*\"",
     FIELD(config_program_entry, entry.match)},
    {"priority", SETTING_NUMBER, "who goes first when memory is short: higher before lower",
     .min = -1000, .max = 1000, .initial_text = "0", FIELD(config_program_entry, says.priority)},
    {"preemptible", SETTING_FLAG, "true: programs of the same priority that wait may displace it",
     .initial_text = "false", FIELD(config_program_entry, says.preemptible)},
    {"quota", SETTING_SIZE, "the most device memory that it may have", .min = 1,
     .initial_text = "no limit", FIELD(config_program_entry, says.quota)},
    {"presented", SETTING_SIZE, "the device memory that it is told of", .min = 1,
     .initial_text = "that of the largest device", FIELD(config_program_entry, says.presented)},
    {"cap", SETTING_NUMBER, "the most watts that it and what its device draws idle may take",
     .min = 1, .max = 1000000, .initial_text = "no cap", FIELD(config_program_entry, says.cap_w)},
    {"objective", SETTING_WORD,
     "what a device is chosen for, launch by launch, as \"objective\" above", .min = 1,
     .initial_text = "\"objective\" above", .words = schedule_objective_names,
     FIELD(config_program_entry, says.objective)},
    {"float", SETTING_WORD, "which devices launches may then go to, as \"float\" above", .min = 1,
     .initial_text = "\"float\" above", .words = settings_float_words,
     FIELD(config_program_entry, says.floats)},
    {"warm", SETTING_SIZE,
     "host memory that it keeps ready for its next move or suspend, while the host has enough",
     .initial_text = "a sixteenth of the host's, 1 GiB at most",
     FIELD(config_program_entry, says.warm)},
    {"ways", SETTING_WAYS,
     "what it allows when something does not fit: as \"ways\" above, \"none\" too",
     .initial_text = "\"upgrade, spill, wait, suspend\"", FIELD(config_program_entry, says.ways)},
    {"protect", SETTING_PROTECTION,
     "true: it outlives its device; or seconds between two copies of what it has, or the memory "
     "that what it does in between may take: \"512MiB\"",
     .initial_text = "\"protect\" above", .read = config_fields_read_protection,
     .text = config_fields_protection_text, FIELD(config_program_entry, says.protect)},
    {"device", SETTING_TEXT, "where it has to be, as reseat move takes it",
     .initial_text = "anywhere", FIELD(config_program_entry, says.device)},
};

static const struct setting server_fields[] = {
    {"name", SETTING_TEXT,
     "what its devices are called by: \"gpuhost\" for gpuhost/gpu0; letters in lower case, digits, "
     "\"-\" and \".\", 20 at most",
     FIELD(config_server_entry, entry.match)},
    {"address", SETTING_TEXT, "where it is: \"tcp:HOST:PORT\", \"vsock:CID:PORT\" or \"unix:PATH\"",
     FIELD(config_server_entry, address)},
};

static const struct setting user_fields[] = {
    {"match", SETTING_TEXT, "the user's name or number, or \"*\" for all",
     FIELD(config_user_entry, entry.match)},
    {"group", SETTING_TEXT, "name or number of a group that the user is in",
     FIELD(config_user_entry, group)},
    {"operator", SETTING_FLAG,
     "true: may see and act on others' programs, and limit and drain devices",
     .initial_text = "false", FIELD(config_user_entry, says.operates)},
    {"memory", SETTING_SIZE, "the most device memory that the programs of one user may have",
     .min = 1, .initial_text = "no limit", FIELD(config_user_entry, says.memory)},
    {"programs", SETTING_NUMBER, "the most programs of one user", .min = 1, .max = 1000000,
     .initial_text = "no limit", FIELD(config_user_entry, says.programs)},
    {"all-memory", SETTING_SIZE, "the same for all users of this entry together", .min = 1,
     .initial_text = "no limit", FIELD(config_user_entry, says.all_memory)},
    {"all-programs", SETTING_NUMBER, "the most programs of all users of this entry together",
     .min = 1, .max = 1000000, .initial_text = "no limit",
     FIELD(config_user_entry, says.all_programs)},
};

static void config_fields_server_init(struct config_entry *entry)
{
    *(struct config_server_entry *)entry = (struct config_server_entry){.address = ""};
}

static bool config_fields_server_is_wrong(struct config_entry *entry, char *ret_reason, size_t size)
{
    struct config_server_entry *server = (struct config_server_entry *)entry;

    if (!server_name_is_valid(entry->match)) {
        snprintf(ret_reason, size,
                 "a server's name has letters in lower case, digits, \"-\" and \".\", %d at most",
                 SERVER_NAME_MAX - 1);
        return true;
    }
    return !server_address_read(server->address, server->address, ret_reason, size);
}

static void config_fields_user_init(struct config_entry *entry)
{
    *(struct config_user_entry *)entry =
        (struct config_user_entry){.uid = -1,
                                   .gid = -1,
                                   .says = {.memory = CONFIG_UNLIMITED,
                                            .programs = CONFIG_UNLIMITED,
                                            .all_memory = CONFIG_UNLIMITED,
                                            .all_programs = CONFIG_UNLIMITED}};
}

/** The number that @name stands for, of a user or of a group. False: there is none. */
static bool config_fields_number_of(const char *name, bool group, int64_t *ret_number)
{
    char strings[16384];
    struct passwd user, *found_user = NULL;
    struct group members, *found_group = NULL;
    uint64_t number;

    if (number_parse(name, UINT64_MAX, &number)) {
        *ret_number = (int64_t)number;
        return number < UINT32_MAX;
    }
    if (group && !getgrnam_r(name, &members, strings, sizeof(strings), &found_group) && found_group)
        *ret_number = members.gr_gid;
    if (!group && !getpwnam_r(name, &user, strings, sizeof(strings), &found_user) && found_user)
        *ret_number = user.pw_uid;
    return found_user || found_group;
}

/** A name that stands for nobody is a fault: an entry that is overlooked may be a limit. */
static bool config_fields_user_is_wrong(struct config_entry *entry, char *ret_reason, size_t size)
{
    struct config_user_entry *user = (struct config_user_entry *)entry;

    if (entry->match[0] && strcmp(entry->match, "*") != 0 &&
        !config_fields_number_of(entry->match, false, &user->uid))
        snprintf(ret_reason, size, "there is no user \"%.64s\"", entry->match);
    else if (user->group[0] && !config_fields_number_of(user->group, true, &user->gid))
        snprintf(ret_reason, size, "there is no group \"%.64s\"", user->group);
    else
        return false;
    return true;
}

static void config_fields_device_init(struct config_entry *entry)
{
    *(struct config_device_entry *)entry =
        (struct config_device_entry){.kind = CONFIG_ANY_KIND, .says = {.memory = CONFIG_UNLIMITED}};
}

static void config_fields_program_init(struct config_entry *entry)
{
    *(struct config_program_entry *)entry = (struct config_program_entry){
        .says = {.quota = CONFIG_UNLIMITED, .warm = CONFIG_UNLIMITED, .ways = ALL_WAYS}};
}

const struct config_list config_lists[CONFIG_LISTS] = {
    [CONFIG_DEVICES] =
        {
            .name = "devices",
            .help = "Devices. The first entry counts of which match, model and kind, where given, "
                    "all fit; what it leaves out is as without an entry. In patterns * stands for "
                    "any characters, ? for one, [abc] for one of these. An entry says:",
            .example = "#     { match = \"gpu0\"; memory = \"8GiB\"; price = 2500; },\n"
                       "#     { kind = \"cpu\"; closed = true; }\n",
            .fields = device_fields,
            .field_count = ARRAY_SIZE(device_fields),
            .selectors = 3,
            .entry_size = sizeof(struct config_device_entry),
            .init = config_fields_device_init,
        },
    [CONFIG_PROGRAMS] =
        {
            .name = "programs",
            .help = "Programs. The first entry counts whose match fits the program's name; what it "
                    "leaves out is as without an entry. An entry says:",
            .example = "#     { match = \"train-*\"; priority = -10; preemptible = true; },\n"
                       "#     { match = \"render\"; quota = \"2GiB\"; ways = \"spill, wait\"; }\n",
            .fields = program_fields,
            .field_count = ARRAY_SIZE(program_fields),
            .selectors = 1,
            .entry_size = sizeof(struct config_program_entry),
            .init = config_fields_program_init,
        },
    [CONFIG_SERVERS] =
        {
            .name = "servers",
            .help = "Device servers (doc/remote.md) that are always known; reseat server add names "
                    "more while the agent runs. Their devices are used as soon as the server can "
                    "be reached and lets us in. An entry says:",
            .example = "#     { name = \"gpuhost\"; address = \"tcp:gpuhost.lan:7460\"; }\n",
            .fields = server_fields,
            .field_count = ARRAY_SIZE(server_fields),
            .selectors = 1,
            .entry_size = sizeof(struct config_server_entry),
            .init = config_fields_server_init,
            .is_wrong = config_fields_server_is_wrong,
        },
    [CONFIG_USERS] =
        {
            .name = "users",
            .help = "Users of an agent for several users (reseatd(8)); root and the agent's own "
                    "user may do everything. The first entry counts of which match and group, "
                    "where given, both fit; what it leaves out is as without an entry. An entry "
                    "says:",
            .example = "#     { group = \"sudo\"; operator = true; },\n"
                       "#     { match = \"*\"; memory = \"16GiB\"; programs = 20; }\n",
            .fields = user_fields,
            .field_count = ARRAY_SIZE(user_fields),
            .selectors = 2,
            .entry_size = sizeof(struct config_user_entry),
            .init = config_fields_user_init,
            .is_wrong = config_fields_user_is_wrong,
        },
};
