#include "policy/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "state/base/bytes/size.h"

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))
#define FIELD(name)                                                                                \
    .offset = offsetof(struct policy_settings, name),                                              \
    .size = sizeof(((struct policy_settings *)NULL)->name)

#define DAY_S (24 * 60 * 60)

const struct setting settings_table[] = {
    {"order", SETTING_WAYS,
     "What to try, in this order, when memory does not fit on a program's device: upgrade "
     "(move to a device with room), spill (keep a part in host memory), wait, suspend "
     "(release the device and queue for one). A program may exclude some. The ways after wait "
     "are tried only if waiting cannot succeed. If none is left, the request is refused.",
     .initial_ways = "upgrade, spill, wait, suspend", FIELD(order)},
    {"wait-deadline", SETTING_SECONDS,
     "A call that has waited for memory this long is refused. 0: no deadline.", 0, 30 * DAY_S, 0,
     FIELD(wait_deadline_s)},
    {"minimum-stay", SETTING_SECONDS,
     "Least time a program stays on a device before the policy moves it again.", 0, DAY_S, 30,
     FIELD(stay_s)},
    {"return-after", SETTING_SECONDS,
     "Least time before the policy moves a program back to a device that it moved the program "
     "away from. Doubles each time the program returns as soon as that time is over.",
     0, DAY_S, 600, FIELD(return_s)},
    {"budget", SETTING_NUMBER,
     "Most moves by the policy of all programs in one budget-window. 0: none.", 0, 100000, 12,
     FIELD(budget)},
    {"budget-program", SETTING_NUMBER,
     "Most moves by the policy of one program in one budget-window. 0: none.", 0, 1000, 2,
     FIELD(budget_program)},
    {"budget-window", SETTING_SECONDS, "Length of the window of budget and budget-program.", 1,
     DAY_S, 60, FIELD(budget_s)},
    {"busy-high", SETTING_NUMBER,
     "Thousandths of a device's time. Programs on a device that is busier than this move to "
     "one where they run faster.",
     500, 1000, 850, FIELD(busy_high)},
    {"busy-low", SETTING_NUMBER,
     "Thousandths of a device's time. A program that uses less than this moves to a cheaper "
     "device, or to one shared with others if that frees its own.",
     0, 499, 150, FIELD(busy_low)},
    {"gain", SETTING_NUMBER,
     "Thousandths. Least improvement that justifies a move by the policy: more speed, less "
     "cost, or more of what the program prefers. Prevents moving to and fro.",
     10, 10000, 250, FIELD(gain)},
    {"weight-speed", SETTING_NUMBER,
     "Thousandths. Weight of a device's speed, and of how well it matches what a program "
     "prefers, when devices are compared.",
     0, 10000, 1000, FIELD(weight_speed)},
    {"weight-price", SETTING_NUMBER,
     "Thousandths. Weight of a device's price when devices are compared.", 0, 10000, 200,
     FIELD(weight_price)},
    {"weight-fill", SETTING_NUMBER,
     "Thousandths. Weight of the memory in use when devices are compared: in favour of a full "
     "device for programs below busy-low, against it for others.",
     0, 10000, 100, FIELD(weight_fill)},
    {"aging", SETTING_SECONDS,
     "Waiting this long raises a program by one step of priority, so that low priorities are "
     "served. 0: never.",
     0, 30 * DAY_S, 600, FIELD(age_s)},
    {"automatic", SETTING_FLAG,
     "Let the policy move programs: to a better device when theirs slows them down or lacks "
     "what they prefer, and to a cheaper one when they use little of it. Memory that does not "
     "fit is handled in any case.",
     0, 1, 1, FIELD(automatic)},
    {"max-downtime", SETTING_NUMBER,
     "Milliseconds for which a move should stop a program at most: the bytes that the program "
     "writes meanwhile are copied in rounds until the rest takes no longer, or rounds do not "
     "help. reseat move --max-downtime sets it for one move, which then fails rather than "
     "stop the program longer.",
     1, 3600000, 50, FIELD(max_downtime_ms)},
    {"bandwidth", SETTING_SIZE,
     "Limit for what one move copies in a second while its program runs, such as \"100MiB\". 0: no "
     "limit. reseat move --bandwidth sets it for one move. Bytes copied while the program is "
     "stopped "
     "are not limited.",
     0, UINT64_C(1) << 50, 0, FIELD(bandwidth)},
    {"prewarm", SETTING_FLAG,
     "Prewarm programs for the device of their likely next move: the move then saves the time "
     "to open the device and to build programs there. Costs a context on that device, which "
     "counts against no limit.",
     0, 1, 0, FIELD(prewarm)},
    {"library-limit", SETTING_NUMBER,
     "Size limit of the user's library of device binaries on disk, in MiB. The least recently "
     "used entries are removed. 0: no library.",
     0, 1u << 20, 1024, FIELD(library_mib)},
    {"slice", SETTING_NUMBER,
     "Milliseconds. About how long a move may wait for a running kernel; longer launches run "
     "in pieces. For programs that are started from now on; reseat run --slice sets it for "
     "one. 0: launches stay whole.",
     0, 60000, 10, FIELD(slice_ms)},
    {"isolate", SETTING_FLAG,
     "Run the drivers of programs in separate processes. For programs that are started from "
     "now on; reseat run --isolate sets it for one.",
     0, 1, 0, FIELD(isolate)},
    {"protect", SETTING_FLAG,
     "Protect programs from the loss of their device, by snapshots in host memory and a "
     "journal of the commands since. reseat run --protect and reseat protect set it, and how "
     "often, for one program.",
     0, 1, 0, FIELD(protect)},
    {"power-cap", SETTING_NUMBER,
     "Watts that all devices together may draw. Launches wait so that this is kept. 0: no cap.", 0,
     1000000, 0, FIELD(power_cap)},
};

const size_t settings_count = COUNT_OF(settings_table);

static const char *const way_names[POLICY_WAYS] = {"upgrade", "spill", "wait", "suspend"};

const char *policy_way_name(enum policy_way way)
{
    for (unsigned i = 0; i < POLICY_WAYS; i++)
        if (way == 1u << i)
            return way_names[i];
    return "none";
}

unsigned policy_way_of(const char *name, size_t length)
{
    for (unsigned i = 0; i < POLICY_WAYS; i++)
        if (strlen(way_names[i]) == length && !memcmp(way_names[i], name, length))
            return 1u << i;
    return 0;
}

const struct setting *settings_find(const char *name)
{
    for (size_t i = 0; i < settings_count; i++)
        if (!strcmp(settings_table[i].name, name))
            return &settings_table[i];
    return NULL;
}

static void settings_store(struct policy_settings *settings, const struct setting *setting,
                           uint64_t value)
{
    char *field = (char *)settings + setting->offset;
    uint32_t narrow = (uint32_t)value;
    bool flag = value;

    if (setting->type == SETTING_FLAG)
        memcpy(field, &flag, sizeof(flag));
    else if (setting->size == sizeof(narrow))
        memcpy(field, &narrow, sizeof(narrow));
    else
        memcpy(field, &value, sizeof(value));
}

static uint64_t settings_load(const struct policy_settings *settings, const struct setting *setting)
{
    const char *field = (const char *)settings + setting->offset;
    uint64_t value;
    uint32_t narrow;
    bool flag;

    if (setting->type == SETTING_FLAG) {
        memcpy(&flag, field, sizeof(flag));
        return flag;
    }
    if (setting->size == sizeof(narrow)) {
        memcpy(&narrow, field, sizeof(narrow));
        return narrow;
    }
    memcpy(&value, field, sizeof(value));
    return value;
}

/* Parse digits, without sign or spaces; stop before the first other character. */
static int settings_read_number(const char *text, uint64_t *ret_value, const char **ret_end)
{
    uint64_t value = 0;
    const char *at = text;

    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return -EINVAL;
    if (at == text)
        return -EINVAL;
    *ret_value = value;
    *ret_end = at;
    return 0;
}

static int settings_read_seconds(const char *text, uint64_t *ret_value)
{
    const char *end;
    unsigned unit;
    uint64_t value;

    if (settings_read_number(text, &value, &end))
        return -EINVAL;
    unit = time_unit_seconds(end + (*end == ' '));
    return !unit || __builtin_mul_overflow(value, unit, ret_value) ? -EINVAL : 0;
}

static int settings_read_flag(const char *text, uint64_t *ret_value)
{
    static const char *const names[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};

    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (!strcmp(text, names[i])) {
            *ret_value = i % 2;
            return 0;
        }
    }
    return -EINVAL;
}

static int settings_set_ways(struct policy_settings *settings, const char *text, char *ret_reason,
                             size_t reason_size)
{
    static const char gap[] = ", \t";
    unsigned order[POLICY_WAYS] = {0}, seen = 0, count = 0;

    if (strcmp(text, "none") && !text[strspn(text, gap)]) {
        snprintf(ret_reason, reason_size,
                 "order: no way is named; give some of upgrade, spill, wait, suspend, or none");
        return -EINVAL;
    }
    for (const char *at = text + strspn(text, gap); strcmp(text, "none") && *at;
         at += strspn(at, gap)) {
        size_t length = strcspn(at, gap);
        unsigned way = policy_way_of(at, length);

        if (!way || seen & way) {
            snprintf(ret_reason, reason_size, "order: \"%.*s\" %s", length < 64 ? (int)length : 64,
                     at,
                     way ? "is named twice"
                         : "is not a way; give some of upgrade, spill, wait, suspend, or none");
            return -EINVAL;
        }
        order[count++] = way;
        seen |= way;
        at += length;
    }
    memcpy(settings->order, order, sizeof(order));
    return 0;
}

int settings_set(struct policy_settings *settings, const struct setting *setting, const char *text,
                 char *ret_reason, size_t reason_size)
{
    const char *end = "";
    uint64_t value = 0;
    int ret;

    if (setting->type == SETTING_WAYS)
        return settings_set_ways(settings, text, ret_reason, reason_size);
    if (setting->type == SETTING_FLAG) {
        ret = settings_read_flag(text, &value);
        if (ret)
            snprintf(ret_reason, reason_size, "%s: \"%.64s\" is neither yes nor no", setting->name,
                     text);
    } else if (setting->type == SETTING_SIZE) {
        char wrong[POLICY_REASON], most[SIZE_TEXT_MAX];

        ret = size_parse(text, &value, wrong, sizeof(wrong));
        if (!ret && (value < setting->min || value > setting->max)) {
            size_format(setting->max, most);
            snprintf(wrong, sizeof(wrong), "\"%.64s\" is more than %s", text, most);
            ret = -EINVAL;
        }
        if (ret)
            snprintf(ret_reason, reason_size, "%s: %s", setting->name, wrong);
    } else {
        ret = setting->type == SETTING_SECONDS ? settings_read_seconds(text, &value)
                                               : settings_read_number(text, &value, &end);
        if (!ret && (*end || value < setting->min || value > setting->max))
            ret = -EINVAL;
        if (ret)
            snprintf(ret_reason, reason_size,
                     "%s: \"%.64s\" is not a whole number%s from %" PRIu64 " to %" PRIu64,
                     setting->name, text, setting->type == SETTING_SECONDS ? " of seconds" : "",
                     setting->min, setting->max);
    }
    if (!ret)
        settings_store(settings, setting, value);
    return ret;
}

void settings_text(const struct policy_settings *settings, const struct setting *setting,
                   char *ret_text, size_t size)
{
    char bytes[SIZE_TEXT_MAX];
    size_t used = 0;

    if (setting->type == SETTING_SIZE && settings_load(settings, setting)) {
        size_format(settings_load(settings, setting), bytes);
        snprintf(ret_text, size, "%s", bytes);
    } else if (setting->type == SETTING_FLAG) {
        snprintf(ret_text, size, "%s", settings_load(settings, setting) ? "yes" : "no");
    } else if (setting->type != SETTING_WAYS) {
        snprintf(ret_text, size, "%" PRIu64, settings_load(settings, setting));
    } else {
        snprintf(ret_text, size, "none");
        for (unsigned i = 0; i < POLICY_WAYS && settings->order[i] && used < size; i++)
            used += (size_t)snprintf(ret_text + used, size - used, "%s%s", i ? ", " : "",
                                     policy_way_name(settings->order[i]));
    }
}

void settings_init(struct policy_settings *ret_settings)
{
    char reason[POLICY_REASON];

    memset(ret_settings, 0, sizeof(*ret_settings));
    for (size_t i = 0; i < settings_count; i++)
        if (settings_table[i].type == SETTING_WAYS)
            settings_set_ways(ret_settings, settings_table[i].initial_ways, reason, sizeof(reason));
        else
            settings_store(ret_settings, &settings_table[i], settings_table[i].initial);
}
