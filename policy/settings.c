#include "policy/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))
#define FIELD(name)                                                                                \
    .offset = offsetof(struct policy_settings, name),                                              \
    .size = sizeof(((struct policy_settings *)NULL)->name)

#define DAY_S (24 * 60 * 60)

const struct setting settings_table[] = {
    {"order", SETTING_WAYS,
     "What is tried, in this order, when memory does not fit where a program is: upgrade (move to "
     "a "
     "device that fits), spill (keep a part in host memory), wait, suspend (give the device back "
     "and "
     "queue for one). A program can rule out some of them. What follows wait is tried only where "
     "waiting would be in vain; with nothing left the program is refused.",
     .initial_ways = "upgrade, spill, wait, suspend", FIELD(order)},
    {"wait-deadline", SETTING_SECONDS,
     "A call that has waited for memory this long is refused. 0: it waits for as long as it takes.",
     0, 30 * DAY_S, 0, FIELD(wait_deadline_s)},
    {"minimum-stay", SETTING_SECONDS,
     "How long a program stays where it is before it is moved again without being asked for.", 0,
     DAY_S, 30, FIELD(stay_s)},
    {"return-after", SETTING_SECONDS,
     "How long a program is not moved back, without being asked for, to a device that it was moved "
     "away from so. It doubles each time that the program is moved back as soon as that is over.",
     0, DAY_S, 600, FIELD(return_s)},
    {"budget", SETTING_NUMBER,
     "How many programs may be moved without being asked for in one budget-window. 0: none.", 0,
     100000, 12, FIELD(budget)},
    {"budget-program", SETTING_NUMBER,
     "How often one program may be moved without being asked for in one budget-window. 0: never.",
     0, 1000, 2, FIELD(budget_program)},
    {"budget-window", SETTING_SECONDS, "The time that both budgets are for.", 1, DAY_S, 60,
     FIELD(budget_s)},
    {"busy-high", SETTING_NUMBER,
     "Thousandths of its time. A device that is busier holds its programs up: they move to one "
     "where "
     "they would be faster.",
     500, 1000, 850, FIELD(busy_high)},
    {"busy-low", SETTING_NUMBER,
     "Thousandths of its device's time. A program that keeps it less busy uses a fraction: it "
     "moves "
     "to a cheaper device, or beside others so that one is free.",
     0, 499, 150, FIELD(busy_low)},
    {"gain", SETTING_NUMBER,
     "Thousandths. A move that nobody asked for must promise this much more speed (up), this much "
     "less cost (down), or this much more of what a program said that it would make use of, so "
     "that programs do not go back and forth.",
     10, 10000, 250, FIELD(gain)},
    {"weight-speed", SETTING_NUMBER,
     "Thousandths. What a device's speed, and what it has of what a program said that it would "
     "make "
     "use of, count when there is a choice.",
     0, 10000, 1000, FIELD(weight_speed)},
    {"weight-price", SETTING_NUMBER,
     "Thousandths. What a device's price counts against it when there is a choice.", 0, 10000, 200,
     FIELD(weight_price)},
    {"weight-fill", SETTING_NUMBER,
     "Thousandths. What the memory in use counts: for a device when the program uses a fraction of "
     "one, against it otherwise.",
     0, 10000, 100, FIELD(weight_fill)},
    {"aging", SETTING_SECONDS,
     "Waiting this long counts as one step of priority, so that low ones have their turn. 0: "
     "never.",
     0, 30 * DAY_S, 600, FIELD(age_s)},
    {"automatic", SETTING_FLAG,
     "Move programs without being asked for, up when their device holds them up or has less than "
     "they would make use of, and down when they use a fraction of it. Memory that does not fit is "
     "dealt with in any case.",
     0, 1, 1, FIELD(automatic)},
    {"max-downtime", SETTING_NUMBER,
     "Milliseconds that a move should stop a program for: what the program writes meanwhile is "
     "copied in rounds until the rest takes no longer, or rounds do not help. reseat move "
     "--max-downtime says it for one move, and then it is kept or the move given up.",
     1, 3600000, 50, FIELD(max_downtime_ms)},
    {"bandwidth", SETTING_NUMBER,
     "MiB a second that one move copies while its program runs, at most, unless reseat move "
     "--bandwidth says otherwise. 0: no limit. What is copied while the program is stopped goes as "
     "fast as it can.",
     0, 1 << 30, 0, FIELD(bandwidth)},
    {"prewarm", SETTING_FLAG,
     "Make programs ready ahead for where they are likely to be moved next without being asked "
     "for: "
     "the move is then shorter by what opening a device and building programs there takes. Each "
     "costs that device a context, which no limit counts.",
     0, 1, 0, FIELD(prewarm)},
    {"library-limit", SETTING_NUMBER,
     "MiB. What the library of device binaries may take of the user's disk; beyond it what was not "
     "used for the longest goes. 0: programs use none.",
     0, 1u << 20, 1024, FIELD(library_mib)},
    {"slice", SETTING_NUMBER,
     "Milliseconds. About how long a move may have to wait for a kernel of a program that is "
     "started from now on: reseat run --slice, which says it for one. 0: launches stay whole.",
     0, 60000, 10, FIELD(slice_ms)},
    {"isolate", SETTING_FLAG,
     "Open the drivers of programs that are started from now on in processes of their own, so that "
     "programs hold nothing of them: reseat run --isolate, which says it for one.",
     0, 1, 0, FIELD(isolate)},
    {"protect", SETTING_FLAG,
     "Have programs outlive the loss of their device: what they have is copied to the host again "
     "and again, and what they do in between is kept. reseat run --protect and reseat protect say "
     "it for one, and how often.",
     0, 1, 0, FIELD(protect)},
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
    static const struct {
        const char *unit;
        uint64_t seconds;
    } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 60 * 60}, {"d", DAY_S}};
    const char *end;
    uint64_t value;

    if (settings_read_number(text, &value, &end))
        return -EINVAL;
    end += *end == ' ';
    for (size_t i = 0; i < COUNT_OF(units); i++)
        if (!strcmp(end, units[i].unit))
            return __builtin_mul_overflow(value, units[i].seconds, ret_value) ? -EINVAL : 0;
    return -EINVAL;
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
    size_t used = 0;

    if (setting->type == SETTING_FLAG) {
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
