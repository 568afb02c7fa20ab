#include "policy/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "policy/schedule.h"
#include "state/base/bytes/size.h"

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))
#define FIELD(name)                                                                                \
    .offset = offsetof(struct policy_settings, name),                                              \
    .size = sizeof(((struct policy_settings *)NULL)->name)

#define DAY_S (24 * 60 * 60)

const char *const settings_float_words[] = {"same", "any", NULL};

const struct setting settings_table[] = {
    {"ways", SETTING_WAYS,
     "What may be done when memory does not fit on a program's device: upgrade (move to a device "
     "with room), spill (keep a part in host memory), wait, suspend (release the device and queue "
     "for one). A program may exclude some. The program neither moves nor makes others leave where "
     "waiting is expected to take less time. If none is left, the request is refused.",
     .initial_text = "upgrade, spill, wait, suspend", FIELD(ways)},
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
     "Prewarm programs for the device of their likely next move, and the first in the queue for "
     "the device where it is to be resumed: that then saves the time to open the device and to "
     "build programs there. Costs a context on that device, which counts against no limit; not "
     "done while the device is busier than busy-high, or a program there is moved.",
     0, 1, 0, FIELD(prewarm)},
    {"prewarm-most", SETTING_NUMBER, "Most programs that are prewarmed for one device.", 0, 1000, 2,
     FIELD(prewarm_most)},
    {"prewarm-free", SETTING_NUMBER,
     "Thousandths of a device's memory. Programs are prewarmed only for devices with that much "
     "free memory, so that their contexts take none that running programs need.",
     0, 1000, 100, FIELD(prewarm_free)},
    {"library-limit", SETTING_NUMBER,
     "Size limit of the user's library of device binaries on disk, in MiB. The least recently "
     "used entries are removed. 0: no library.",
     0, 1u << 20, 1024, FIELD(library_mib)},
    {"slice", SETTING_NUMBER,
     "Milliseconds. About how long a move may wait for a running kernel; longer launches run "
     "in pieces. For programs that are started from now on; reseat run --slice sets it for "
     "one. 0: launches stay whole.",
     0, 60000, 10, FIELD(slice_ms)},
    {"objective", SETTING_WORD,
     "Choose a device for each single launch, among the program's own and those that it is spread "
     "over: time, energy or energy-at-no-loss; none: launches run on its own device. For programs "
     "that are started from now on; reseat run --objective sets it for one.",
     .words = schedule_objective_names, FIELD(objective)},
    {"float", SETTING_WORD,
     "same: for an objective, launches go only to devices of the same name and driver, whose "
     "results are equal to the last bit. any: to every device that the program is spread over. "
     "reseat run --float sets it for one program.",
     .words = settings_float_words, FIELD(floats)},
    {"metrics", SETTING_FLAG,
     "Serve metrics (doc/metrics.md) on a Unix socket, the agent's with .metrics appended. Whoever "
     "may use the agent may read them; figures of single users are for those who may see them.",
     0, 1, 1, FIELD(metrics)},
    {"metrics-port", SETTING_NUMBER,
     "Serve them on this TCP port of 127.0.0.1 too, as Prometheus needs it. Every user of the host "
     "may read them there, so figures of single users are left out. There is also a page for "
     "browsers, which shows nothing without the address that reseat page prints. 0: no port.",
     0, 65535, 0, FIELD(metrics_port)},
    {"isolate", SETTING_FLAG,
     "Run the drivers of programs in separate processes. For programs that are started from "
     "now on; reseat run --isolate sets it for one.",
     0, 1, 0, FIELD(isolate)},
    {"protect", SETTING_FLAG,
     "Protect programs from the loss of their device, by snapshots in host memory and a "
     "journal of the commands since. reseat run --protect and reseat protect set it, and how "
     "often, for one program.",
     0, 1, 0, FIELD(protect)},
    {"mean-time-to-fault", SETTING_SECONDS,
     "How long a device works, on average, until it is lost. Protected programs whose interval "
     "between snapshots is not set choose the one for which losses and snapshots together delay "
     "them least. For programs that are started from now on. 0: not known; then it is learnt from "
     "the losses that a program had, and before those the interval is 10 s.",
     0, INT64_C(10000) * DAY_S, 0, FIELD(fault_s)},
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

static void settings_store(const struct setting *setting, void *of, int64_t value)
{
    uint32_t narrow = (uint32_t)value;
    bool flag = value;

    memcpy(setting_field(setting, of),
           setting->type == SETTING_FLAG     ? (const void *)&flag
           : setting->size == sizeof(narrow) ? (const void *)&narrow
                                             : &value,
           setting->size);
}

int64_t setting_value(const struct setting *setting, const void *of)
{
    const char *field = (const char *)of + setting->offset;
    int64_t value = 0;
    uint32_t narrow;
    bool flag;

    if (setting->type == SETTING_FLAG) {
        memcpy(&flag, field, sizeof(flag));
        return flag;
    }
    if (setting->size == sizeof(narrow)) {
        memcpy(&narrow, field, sizeof(narrow));
        return setting->min < 0 ? (int32_t)narrow : (int64_t)narrow;
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

static int settings_read_flag(const char *text, int64_t *ret_value)
{
    static const char *const names[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};

    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (!strcmp(text, names[i])) {
            *ret_value = (int64_t)(i % 2);
            return 0;
        }
    }
    return -EINVAL;
}

static int settings_read_ways(const char *text, unsigned *ret_ways, char *ret_reason,
                              size_t reason_size)
{
    static const char gap[] = ", \t";
    unsigned ways = 0;

    if (strcmp(text, "none") && !text[strspn(text, gap)]) {
        snprintf(ret_reason, reason_size,
                 "no way is named; give some of upgrade, spill, wait, suspend, or none");
        return -EINVAL;
    }
    for (const char *at = text + strspn(text, gap); strcmp(text, "none") && *at;
         at += strspn(at, gap)) {
        size_t length = strcspn(at, gap);
        unsigned way = policy_way_of(at, length);

        if (!way || ways & way) {
            snprintf(ret_reason, reason_size, "\"%.*s\" %s", length < 64 ? (int)length : 64, at,
                     way ? "is named twice"
                         : "is not a way; give some of upgrade, spill, wait, suspend, or none");
            return -EINVAL;
        }
        ways |= way;
        at += length;
    }
    *ret_ways = ways;
    return 0;
}

static int settings_read_size(const struct setting *setting, const char *text, uint64_t *ret_value,
                              char *ret_reason, size_t reason_size)
{
    char most[SIZE_TEXT_MAX];
    int ret = size_parse(text, ret_value, ret_reason, reason_size);

    if (ret)
        return ret;
    if (!*ret_value && setting->min) {
        snprintf(ret_reason, reason_size, "it has to be more than 0");
        return -EINVAL;
    }
    if (setting->max && *ret_value > (uint64_t)setting->max) {
        size_format((uint64_t)setting->max, most);
        snprintf(ret_reason, reason_size, "\"%.64s\" is more than %s", text, most);
        return -EINVAL;
    }
    return 0;
}

/** A whole number, or seconds. */
static int settings_read_integer(const struct setting *setting, const char *text,
                                 int64_t *ret_value, char *ret_reason, size_t reason_size)
{
    bool seconds = setting->type == SETTING_SECONDS, negative = setting->min < 0 && *text == '-';
    const char *end = "";
    uint64_t size = 0;
    int ret = seconds ? settings_read_seconds(text, &size)
                      : settings_read_number(text + negative, &size, &end);
    int64_t value = size <= INT64_MAX ? (int64_t)size : INT64_MAX;

    value = negative ? -value : value;
    if (!ret && !*end && value >= setting->min && value <= setting->max) {
        *ret_value = value;
        return 0;
    }
    snprintf(ret_reason, reason_size,
             "\"%.64s\" is not a whole number%s from %" PRId64 " to %" PRId64, text,
             seconds ? " of seconds" : "", setting->min, setting->max);
    return -EINVAL;
}

static int settings_read_word(const struct setting *setting, const char *text, int64_t *ret_value,
                              char *ret_reason, size_t reason_size)
{
    size_t used = 0;

    for (int64_t i = 0; setting->words[i]; i++) {
        if (!strcmp(setting->words[i], text)) {
            *ret_value = setting->min + i;
            return 0;
        }
    }
    used = (size_t)snprintf(ret_reason, reason_size, "\"%.64s\" is none of", text);
    for (size_t i = 0; setting->words[i] && used < reason_size; i++)
        used += (size_t)snprintf(ret_reason + used, reason_size - used, "%s %s", i ? "," : "",
                                 setting->words[i]);
    return -EINVAL;
}

static int settings_read_text(const struct setting *setting, const char *text, char *ret_text,
                              char *ret_reason, size_t reason_size)
{
    size_t length = strlen(text);

    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) {
            snprintf(ret_reason, reason_size, "it has a control character in it");
            return -EINVAL;
        }
    }
    if (!length || length >= setting->size) {
        snprintf(ret_reason, reason_size, "it has to have 1 to %zu characters, not %zu",
                 setting->size - 1, length);
        return -EINVAL;
    }
    memcpy(ret_text, text, length + 1);
    return 0;
}

int setting_read(const struct setting *setting, const char *text, void *of, char *ret_reason,
                 size_t reason_size)
{
    void *field = setting_field(setting, of);
    int64_t value = 0;
    int ret = 0;

    switch (setting->type) {
    case SETTING_FLAG:
        ret = settings_read_flag(text, &value);
        if (ret)
            snprintf(ret_reason, reason_size, "\"%.64s\" is neither yes nor no", text);
        break;
    case SETTING_SIZE:
        ret = settings_read_size(setting, text, (uint64_t *)&value, ret_reason, reason_size);
        break;
    case SETTING_NUMBER:
    case SETTING_SECONDS:
        ret = settings_read_integer(setting, text, &value, ret_reason, reason_size);
        break;
    case SETTING_WAYS:
        return settings_read_ways(text, field, ret_reason, reason_size);
    case SETTING_WORD:
        ret = settings_read_word(setting, text, &value, ret_reason, reason_size);
        break;
    case SETTING_TEXT:
        return settings_read_text(setting, text, field, ret_reason, reason_size);
    case SETTING_KIND:
    case SETTING_PROTECTION:
        return setting->read(text, field, ret_reason, reason_size);
    }
    if (!ret)
        settings_store(setting, of, value);
    return ret;
}

int settings_set(struct policy_settings *settings, const struct setting *setting, const char *text,
                 char *ret_reason, size_t reason_size)
{
    char wrong[POLICY_REASON];
    int ret = setting_read(setting, text, settings, wrong, sizeof(wrong));

    if (ret)
        snprintf(ret_reason, reason_size, "%s: %s", setting->name, wrong);
    return ret;
}

static void settings_text_ways(unsigned ways, char *ret_text, size_t size)
{
    size_t used = 0;

    for (unsigned i = 0; i < POLICY_WAYS && used < size; i++)
        if (ways & 1u << i)
            used += (size_t)snprintf(ret_text + used, size - used, "%s%s", used ? ", " : "",
                                     way_names[i]);
    if (!ways)
        snprintf(ret_text, size, "none");
}

void setting_text(const struct setting *setting, const void *of, char *ret_text, size_t size)
{
    const void *field = (const char *)of + setting->offset;
    char bytes[SIZE_TEXT_MAX] = "0";
    int64_t value;

    switch (setting->type) {
    case SETTING_FLAG:
        snprintf(ret_text, size, "%s", setting_value(setting, of) ? "yes" : "no");
        break;
    case SETTING_SIZE:
        if (setting_value(setting, of))
            size_format((uint64_t)setting_value(setting, of), bytes);
        snprintf(ret_text, size, "%s", bytes);
        break;
    case SETTING_NUMBER:
    case SETTING_SECONDS:
        snprintf(ret_text, size, "%" PRId64, setting_value(setting, of));
        break;
    case SETTING_WAYS:
        settings_text_ways((unsigned)setting_value(setting, of), ret_text, size);
        break;
    case SETTING_WORD:
        value = setting_value(setting, of) - setting->min;
        snprintf(ret_text, size, "%s", value >= 0 ? setting->words[value] : "");
        break;
    case SETTING_TEXT:
        snprintf(ret_text, size, "%s", (const char *)field);
        break;
    case SETTING_KIND:
    case SETTING_PROTECTION:
        setting->text(field, ret_text, size);
        break;
    }
}

void settings_init(struct policy_settings *ret_settings)
{
    char reason[POLICY_REASON];

    memset(ret_settings, 0, sizeof(*ret_settings));
    for (size_t i = 0; i < settings_count; i++)
        if (settings_table[i].type == SETTING_WAYS)
            (void)setting_read(&settings_table[i], settings_table[i].initial_text, ret_settings,
                               reason, sizeof(reason));
        else
            settings_store(&settings_table[i], ret_settings, settings_table[i].initial);
}
