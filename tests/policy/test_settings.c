#include <errno.h>
#include <inttypes.h>

#include "policy/settings.h"
#include "tests/support/leaks.h"

TestSuite(settings, .fini = leaks_check, .timeout = 60);

static int set(struct policy_settings *settings, const char *name, const char *text, char *reason)
{
    const struct setting *setting = settings_find(name);

    cr_assert(setting, "%s", name);
    return settings_set(settings, setting, text, reason, POLICY_REASON);
}

Test(settings, defaults_are_what_the_page_says)
{
    struct policy_settings s;

    memset(&s, 0xff, sizeof(s));
    settings_init(&s);
    cr_expect_eq(s.ways, POLICY_UPGRADE | POLICY_SPILL | POLICY_WAIT | POLICY_SUSPEND);
    cr_expect_eq(s.wait_deadline_s, 0);
    cr_expect_eq(s.stay_s, 30);
    cr_expect_eq(s.return_s, 600);
    cr_expect_eq(s.budget, 12);
    cr_expect_eq(s.budget_program, 2);
    cr_expect_eq(s.budget_s, 60);
    cr_expect_eq(s.busy_high, 850);
    cr_expect_eq(s.busy_low, 150);
    cr_expect_eq(s.gain, 250);
    cr_expect_eq(s.weight_speed, 1000);
    cr_expect_eq(s.weight_price, 200);
    cr_expect_eq(s.weight_fill, 100);
    cr_expect_eq(s.age_s, 600);
    cr_expect(s.automatic);
}

/* Bytes of the settings that no entry of the table covers are padding alone. */
Test(settings, every_field_has_a_name_and_each_its_own)
{
    unsigned char seen[sizeof(struct policy_settings)] = {0};
    size_t covered = 0;

    for (size_t i = 0; i < settings_count; i++) {
        const struct setting *setting = &settings_table[i];

        cr_expect_eq(settings_find(setting->name), setting);
        cr_expect_eq(setting->name[strspn(setting->name, "abcdefghijklmnopqrstuvwxyz-")], '\0');
        cr_expect_gt(strlen(setting->help), 20);
        cr_expect_leq(setting->min, setting->initial);
        cr_expect_leq(setting->initial, setting->max);
        cr_assert_leq(setting->offset + setting->size, sizeof(seen));
        for (size_t k = 0; k < setting->size; k++)
            cr_expect_eq(seen[setting->offset + k]++, 0, "%s", setting->name);
        covered += setting->size;
    }
    cr_expect_geq(covered + sizeof(uint64_t) + 7, sizeof(seen));
    cr_expect_null(settings_find("no-such-setting"));
    cr_expect_null(settings_find(""));
}

Test(settings, what_is_printed_is_read_back)
{
    struct policy_settings s, t;
    char text[64], reason[POLICY_REASON];

    settings_init(&s);
    cr_assert_eq(set(&s, "ways", "wait,suspend  spill", reason), 0);
    cr_assert_eq(set(&s, "automatic", "off", reason), 0);
    cr_assert_eq(set(&s, "minimum-stay", "2h", reason), 0);
    cr_assert_eq(set(&s, "budget", "100000", reason), 0);
    cr_assert_eq(set(&s, "objective", "energy-at-no-loss", reason), 0);
    cr_assert_eq(set(&s, "float", "any", reason), 0);
    cr_expect_eq(s.objective, 3);
    cr_expect_eq(s.floats, 1);
    cr_expect_eq(s.ways, POLICY_WAIT | POLICY_SUSPEND | POLICY_SPILL);
    cr_expect_not(s.automatic);
    cr_expect_eq(s.stay_s, 7200);
    cr_expect_eq(s.budget, 100000);
    settings_init(&t);
    for (size_t i = 0; i < settings_count; i++) {
        setting_text(&settings_table[i], &s, text, sizeof(text));
        cr_assert_eq(settings_set(&t, &settings_table[i], text, reason, sizeof(reason)), 0);
    }
    cr_expect_eq(s.ways, t.ways);
    cr_expect_eq(t.stay_s, 7200);
    cr_expect_eq(t.budget, 100000);
    cr_expect_eq(t.objective, 3);
    cr_expect_eq(t.floats, 1);
    cr_expect_not(t.automatic);
    setting_text(settings_find("ways"), &s, text, sizeof(text));
    cr_expect_str_eq(text, "spill, wait, suspend");
    setting_text(settings_find("minimum-stay"), &s, text, sizeof(text));
    cr_expect_str_eq(text, "7200");
    cr_assert_eq(set(&s, "ways", "none", reason), 0);
    cr_expect_eq(s.ways, 0);
    setting_text(settings_find("ways"), &s, text, sizeof(text));
    cr_expect_str_eq(text, "none");
}

Test(settings, seconds_take_units)
{
    static const struct {
        const char *text;
        uint64_t seconds;
    } cases[] = {{"0", 0}, {"90", 90}, {"90s", 90}, {"5 m", 300}, {"24h", 86400}, {"1d", 86400}};
    struct policy_settings s;
    char reason[POLICY_REASON];

    settings_init(&s);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        cr_expect_eq(set(&s, "minimum-stay", cases[i].text, reason), 0, "%s", cases[i].text);
        cr_expect_eq(s.stay_s, cases[i].seconds, "%s", cases[i].text);
    }
}

Test(settings, every_bound_is_the_last_that_is_taken)
{
    char text[32], reason[POLICY_REASON];
    struct policy_settings s;

    settings_init(&s);
    for (size_t i = 0; i < settings_count; i++) {
        const struct setting *setting = &settings_table[i];

        if (setting->type == SETTING_WAYS || setting->type == SETTING_WORD ||
            setting->type == SETTING_FLAG)
            continue;
        const char *unit = setting->type == SETTING_SIZE ? "B" : "";
        snprintf(text, sizeof(text), "%" PRIu64 "%s", setting->max, unit);
        cr_expect_eq(settings_set(&s, setting, text, reason, sizeof(reason)), 0);
        snprintf(text, sizeof(text), "%" PRIu64 "%s", setting->max + 1, unit);
        cr_expect_eq(settings_set(&s, setting, text, reason, sizeof(reason)), -EINVAL);
        snprintf(text, sizeof(text), "%" PRIu64 "%s", setting->min, unit);
        cr_expect_eq(settings_set(&s, setting, text, reason, sizeof(reason)), 0);
        if (!setting->min)
            continue;
        snprintf(text, sizeof(text), "%" PRIu64 "%s", setting->min - 1, unit);
        cr_expect_eq(settings_set(&s, setting, text, reason, sizeof(reason)), -EINVAL);
    }
}

Test(settings, what_is_not_a_value_is_refused_with_the_range_and_changes_nothing)
{
    static const struct {
        const char *name, *text, *reason;
    } cases[] = {
        {"objective", "tim", "objective: \"tim\" is none of none, time, energy, energy-at-no-loss"},
        {"float", "", "float: \"\" is none of same, any"},
        {"gain", "", "gain: \"\" is not a whole number from 10 to 10000"},
        {"gain", "9", "gain: \"9\" is not a whole number from 10 to 10000"},
        {"gain", "-20", "gain: \"-20\" is not a whole number from 10 to 10000"},
        {"gain", " 20", "gain: \" 20\" is not a whole number from 10 to 10000"},
        {"gain", "20x", "gain: \"20x\" is not a whole number from 10 to 10000"},
        {"gain", "18446744073709551636",
         "gain: \"18446744073709551636\" is not a whole number from 10 to 10000"},
        {"minimum-stay", "1w",
         "minimum-stay: \"1w\" is not a whole number of seconds from 0 to 86400"},
        {"minimum-stay", "213503982334602d",
         "minimum-stay: \"213503982334602d\" is not a whole number of seconds from 0 to 86400"},
        {"automatic", "maybe", "automatic: \"maybe\" is neither yes nor no"},
        {"ways", "upgrade, fly",
         "ways: \"fly\" is not a way; give some of upgrade, spill, wait, suspend, or none"},
        {"ways", "wait, spill wait", "ways: \"wait\" is named twice"},
        {"ways", "wait, none",
         "ways: \"none\" is not a way; give some of upgrade, spill, wait, suspend, or none"},
        {"ways", " ,",
         "ways: no way is named; give some of upgrade, spill, wait, suspend, or none"},
    };
    struct policy_settings s, before;
    char reason[POLICY_REASON];

    settings_init(&s);
    before = s;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        cr_expect_eq(set(&s, cases[i].name, cases[i].text, reason), -EINVAL, "%s", cases[i].text);
        cr_expect_str_eq(reason, cases[i].reason);
    }
    cr_expect_eq(memcmp(&s, &before, sizeof(s)), 0);
}

Test(settings, ways_have_names)
{
    static const char *const names[] = {"upgrade", "spill", "wait", "suspend"};

    for (unsigned i = 0; i < POLICY_WAYS; i++) {
        cr_expect_str_eq(policy_way_name(1u << i), names[i]);
        cr_expect_eq(policy_way_of(names[i], strlen(names[i])), 1u << i);
    }
    cr_expect_eq(policy_way_of("spil", 4), 0);
    cr_expect_eq(policy_way_of("spillx", 6), 0);
    cr_expect_eq(policy_way_of("spillx", 5), POLICY_SPILL);
    cr_expect_eq(policy_way_of("", 0), 0);
}

Test(settings, bandwidth_is_a_size)
{
    struct policy_settings s;
    char reason[256], text[64];

    settings_init(&s);
    setting_text(settings_find("bandwidth"), &s, text, sizeof(text));
    cr_expect_str_eq(text, "0");
    cr_assert_eq(set(&s, "bandwidth", "100MiB", reason), 0);
    cr_expect_eq(s.bandwidth, 100u << 20);
    setting_text(settings_find("bandwidth"), &s, text, sizeof(text));
    cr_expect_str_eq(text, "100MiB");
    cr_expect_eq(set(&s, "bandwidth", "100", reason), -EINVAL);
    cr_expect(strstr(reason, "bandwidth: \"100\" is not a size"), "%s", reason);
    cr_expect_eq(set(&s, "bandwidth", "2000TiB", reason), -EINVAL);
    cr_expect(strstr(reason, "is more than 1024TiB"), "%s", reason);
    cr_expect_eq(s.bandwidth, 100u << 20);
}

Test(settings, a_text_has_room_for_its_end)
{
    static const struct setting setting = {.name = "text", .type = SETTING_TEXT, .size = 5};
    struct {
        char text[5], beyond;
    } of = {.beyond = 'x'};
    char reason[POLICY_REASON];

    cr_expect_eq(setting_read(&setting, "four", &of, reason, sizeof(reason)), 0);
    cr_expect_str_eq(of.text, "four");
    cr_expect_eq(setting_read(&setting, "fives", &of, reason, sizeof(reason)), -EINVAL);
    cr_expect_str_eq(reason, "it has to have 1 to 4 characters, not 5");
    cr_expect_str_eq(of.text, "four");
    cr_expect_eq(of.beyond, 'x');
}
