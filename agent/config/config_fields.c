#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "agent/config/config_priv.h"
#include "agent/config/servers.h"
#include "state/base/bytes/size.h"

/* The fields of entries in "devices", "programs" and "servers". */

#define ALL_WAYS (POLICY_UPGRADE | POLICY_SPILL | POLICY_WAIT | POLICY_SUSPEND)

const struct config_kind config_kinds[CONFIG_KINDS] = {
    {"gpu", PLACE_GPU}, {"accel", PLACE_ACCELERATOR}, {"cpu", PLACE_CPU}, {"dev", PLACE_OTHER}};

static const struct config_field device_fields[] = {
    {"match", CONFIG_TEXT, offsetof(struct config_device_entry, entry.match), 0, 0,
     "its name as reseat devices shows it, or a pattern: \"gpu0\", \"gpu*\"", NULL},
    {"model", CONFIG_TEXT, offsetof(struct config_device_entry, model), 0, 0,
     "what its driver calls it, or a pattern: \"*H200*\"", NULL},
    {"kind", CONFIG_KIND, offsetof(struct config_device_entry, kind), 0, 0,
     "\"gpu\", \"accel\", \"cpu\" or \"dev\"", NULL},
    {"memory", CONFIG_SIZE, offsetof(struct config_device_entry, says.memory), 1, 0,
     "what all programs together may have of its memory", "all of it"},
    {"speed", CONFIG_NUMBER, offsetof(struct config_device_entry, says.speed), 1, 1000000,
     "how fast it is, in thousandths of a device that you compare with",
     "a guess from its units and clock"},
    {"price", CONFIG_NUMBER, offsetof(struct config_device_entry, says.price), 1, 1000000,
     "what an hour of it costs, in thousandths of that device's", "1000"},
    {"closed", CONFIG_TRUTH, offsetof(struct config_device_entry, says.closed), 0, 1,
     "true: it takes no new program", "false"},
    {"meter", CONFIG_TEXT, offsetof(struct config_device_entry, says.meter), 0, 0,
     "what measures its energy: \"file:PATH\", a file with microjoules since some time, and the "
     "nanosecond of that; \"nvml:PCI\"; \"rapl:N\", a package of processors, for root",
     "NVIDIA's own, for its devices; else it is computed from busy-watts"},
    {"idle-watts", CONFIG_NUMBER, offsetof(struct config_device_entry, says.idle_w), 1, 100000,
     "what it draws when nothing runs", "the least that its meter said"},
    {"busy-watts", CONFIG_NUMBER, offsetof(struct config_device_entry, says.busy_w), 1, 100000,
     "the most that it draws", "not known"},
};

static const struct config_field program_fields[] = {
    {"match", CONFIG_TEXT, offsetof(struct config_program_entry, entry.match), 0, 0,
     "its name as reseat ps shows it, or a pattern: \"train-*\"", NULL},
    {"priority", CONFIG_NUMBER, offsetof(struct config_program_entry, says.priority), -1000, 1000,
     "who goes first when memory is short: higher before lower", "0"},
    {"preemptible", CONFIG_TRUTH, offsetof(struct config_program_entry, says.preemptible), 0, 1,
     "true: programs of the same priority that wait may displace it", "false"},
    {"quota", CONFIG_SIZE, offsetof(struct config_program_entry, says.quota), 1, 0,
     "the most device memory that it may have", "no limit"},
    {"presented", CONFIG_SIZE, offsetof(struct config_program_entry, says.presented), 1, 0,
     "the device memory that it is told of", "that of the largest device"},
    {"cap", CONFIG_NUMBER, offsetof(struct config_program_entry, says.cap_w), 1, 1000000,
     "the most watts that it and what its device draws idle may take", "no cap"},
    {"warm", CONFIG_SIZE, offsetof(struct config_program_entry, says.warm), 0, 0,
     "host memory that it keeps ready for its next move or suspend, while the host has enough",
     "a sixteenth of the host's, 1 GiB at most"},
    {"ways", CONFIG_WAYS, offsetof(struct config_program_entry, says.ways), 0, 0,
     "what it allows when something does not fit: as \"ways\" above, \"none\" too",
     "\"upgrade, spill, wait, suspend\""},
    {"protect", CONFIG_PROTECTION, offsetof(struct config_program_entry, says.protect), 0, 0,
     "true: it outlives its device; or seconds between two copies of what it has, or the memory "
     "that what it does in between may take: \"512MiB\"",
     "\"protect\" above"},
    {"device", CONFIG_TEXT, offsetof(struct config_program_entry, says.device), 0, 0,
     "where it has to be, as reseat move takes it", "anywhere"},
};

static const struct config_field server_fields[] = {
    {"name", CONFIG_TEXT, offsetof(struct config_server_entry, entry.match), 0, 0,
     "what its devices are called by: \"gpuhost\" for gpuhost/gpu0; letters in lower case, digits, "
     "\"-\" and \".\", 20 at most",
     NULL},
    {"address", CONFIG_TEXT, offsetof(struct config_server_entry, address), 0, 0,
     "where it is: \"tcp:HOST:PORT\", \"vsock:CID:PORT\" or \"unix:PATH\"", NULL},
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

const struct config_list config_list_devices = {
    .name = "devices",
    .help = "Devices. The first entry counts of which match, model and kind, where given, all fit; "
            "what it leaves out is as without an entry. In patterns * stands for any characters, ? "
            "for one, [abc] for one of these. An entry says:",
    .example = "#     { match = \"gpu0\"; memory = \"8GiB\"; price = 2500; },\n"
               "#     { kind = \"cpu\"; closed = true; }\n",
    .fields = device_fields,
    .field_count = ARRAY_SIZE(device_fields),
    .selectors = 3,
    .entry_size = sizeof(struct config_device_entry),
    .init = config_fields_device_init,
};

const struct config_list config_list_programs = {
    .name = "programs",
    .help = "Programs. The first entry counts whose match fits the program's name; what it leaves "
            "out is as without an entry. An entry says:",
    .example = "#     { match = \"train-*\"; priority = -10; preemptible = true; },\n"
               "#     { match = \"render\"; quota = \"2GiB\"; ways = \"spill, wait\"; }\n",
    .fields = program_fields,
    .field_count = ARRAY_SIZE(program_fields),
    .selectors = 1,
    .entry_size = sizeof(struct config_program_entry),
    .init = config_fields_program_init,
};

const struct config_list config_list_servers = {
    .name = "servers",
    .help =
        "Device servers (doc/remote.md) that are always known; reseat server add names more while "
        "the agent runs. Their devices are used as soon as the server can be reached and lets us "
        "in. An entry says:",
    .example = "#     { name = \"gpuhost\"; address = \"tcp:gpuhost.lan:7460\"; }\n",
    .fields = server_fields,
    .field_count = ARRAY_SIZE(server_fields),
    .selectors = 1,
    .entry_size = sizeof(struct config_server_entry),
    .init = config_fields_server_init,
    .is_wrong = config_fields_server_is_wrong,
};

const char *config_settings_reason(const struct setting *setting, const char *reason)
{
    size_t length = strlen(setting->name);
    bool named = strncmp(reason, setting->name, length) == 0 && reason[length] == ':' &&
                 reason[length + 1] == ' ';

    return reason + (named ? length + 2 : 0);
}

int config_ways_parse(const char *text, unsigned *ret_ways, char *ret_reason, size_t reason_size)
{
    const struct setting *ways = settings_find("ways");
    struct policy_settings settings;
    char reason[CONFIG_REASON_MAX];

    if (settings_set(&settings, ways, text, reason, sizeof(reason))) {
        snprintf(ret_reason, reason_size, "%s", config_settings_reason(ways, reason));
        return -EINVAL;
    }
    *ret_ways = settings.ways;
    return 0;
}

static void config_fields_ways_text(unsigned ways, char *ret, size_t size)
{
    struct policy_settings settings = {.ways = ways};

    settings_text(&settings, settings_find("ways"), ret, size);
}

void config_quote(const char *text, char *ret, size_t size)
{
    size_t used = 1;

    ret[0] = '"';
    for (; *text && used + 4 < size; text++) {
        if (*text == '"' || *text == '\\')
            ret[used++] = '\\';
        ret[used++] = *text;
    }
    ret[used++] = '"';
    ret[used] = '\0';
}

/* Quote a value unless it is a boolean or a number. */
static void config_fields_protection_text(const struct protection *protection, char *ret,
                                          size_t size)
{
    char words[PROTECTION_TEXT_MAX];

    protection_format(protection, words);
    if (protection->word == PROTECTION_ON && protection->bytes)
        config_quote(words, ret, size);
    else if (protection->word == PROTECTION_ON && protection->seconds)
        snprintf(ret, size, "%s", words);
    else
        snprintf(ret, size, "%s", protection->word == PROTECTION_ON ? "true" : "false");
}

static const char *config_fields_kind_name(int kind)
{
    for (size_t i = 0; i < CONFIG_KINDS; i++)
        if ((int)config_kinds[i].kind == kind)
            return config_kinds[i].name;
    return "";
}

void config_field_text(const struct config_field *field, const struct config_entry *entry,
                       char ret_text[CONFIG_VALUE_MAX])
{
    const void *at = (const char *)entry + field->offset;
    char words[CONFIG_NAME_MAX] = "";

    switch (field->type) {
    case CONFIG_TEXT:
        config_quote(at, ret_text, CONFIG_VALUE_MAX);
        break;
    case CONFIG_KIND:
        config_quote(config_fields_kind_name(*(const int *)at), ret_text, CONFIG_VALUE_MAX);
        break;
    case CONFIG_SIZE:
        size_format(*(const uint64_t *)at, words);
        config_quote(words, ret_text, CONFIG_VALUE_MAX);
        break;
    case CONFIG_WAYS:
        config_fields_ways_text(*(const unsigned *)at, words, sizeof(words));
        config_quote(words, ret_text, CONFIG_VALUE_MAX);
        break;
    case CONFIG_PROTECTION:
        config_fields_protection_text(at, ret_text, CONFIG_VALUE_MAX);
        break;
    case CONFIG_NUMBER:
        snprintf(ret_text, CONFIG_VALUE_MAX, "%" PRId32, *(const int32_t *)at);
        break;
    case CONFIG_TRUTH:
        snprintf(ret_text, CONFIG_VALUE_MAX, "%s", *(const bool *)at ? "true" : "false");
        break;
    }
}
