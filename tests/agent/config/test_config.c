#include <sys/stat.h>

#include "agent/config/paths.h"
#include "tests/agent/config/config_rig.h"
#include "tests/support/leaks.h"

TestSuite(config, .init = config_rig_init, .fini = leaks_check, .timeout = 100);

static void expect_setting(const struct config *config, const char *name, const char *value)
{
    char text[128];

    config_text_of(config, name, text);
    cr_expect_str_eq(text, value, "%s is %s", name, text);
}

static void expect_defaults(const struct config *config)
{
    char value[32];

    for (size_t i = 0; i < settings_count; i++) {
        const struct setting *setting = &settings_table[i];
        snprintf(value, sizeof(value), "%llu", (unsigned long long)setting->initial);
        expect_setting(config, setting->name,
                       setting->type == SETTING_WAYS   ? setting->initial_text
                       : setting->type == SETTING_WORD ? setting->words[0]
                       : setting->type == SETTING_FLAG ? (setting->initial ? "yes" : "no")
                                                       : value);
    }
}

Test(config, an_empty_file_and_none_give_the_defaults)
{
    static const char *const empty[] = {"",
                                        "\n",
                                        "# nothing",
                                        "// nothing",
                                        "/* nothing */",
                                        "policy = { };",
                                        "policy : { }; devices = ( ); programs = ()"};
    struct config_source none = {0};
    struct config_error error;
    struct config config;

    for (size_t i = 0; i < ARRAY_SIZE(empty); i++) {
        config = config_of(empty[i]);
        expect_defaults(&config);
        cr_expect_eq(config.lists[CONFIG_DEVICES].count + config.lists[CONFIG_PROGRAMS].count, 0);
        config_finish(&config);
    }
    cr_assert_eq(config_load(&none, &config, &error), 0);
    expect_defaults(&config);
    cr_expect_str_eq(config.path, "");
    config_finish(&config);
    config_finish(&config);
}

Test(config, what_the_file_says_of_the_policy_holds)
{
    struct config config = config_of("# of the policy\n"
                                     "policy = {\n"
                                     "    ways = \"wait, spill\"; // two ways\n"
                                     "    minimum-stay = 77, wait-deadline : 0x10\n"
                                     "    aging = \"2h\";\n"
                                     "    automatic = False;\n"
                                     "    budget = 5L; /* a budget\n of moves */ gain = 300\n"
                                     "}\n");

    expect_setting(&config, "ways", "spill, wait");
    expect_setting(&config, "minimum-stay", "77");
    expect_setting(&config, "wait-deadline", "16");
    expect_setting(&config, "aging", "7200");
    expect_setting(&config, "automatic", "no");
    expect_setting(&config, "budget", "5");
    expect_setting(&config, "gain", "300");
    cr_expect_eq(config_policy(&config)->stay_s, 77);
    cr_expect_eq(config_policy(&config)->ways, POLICY_WAIT | POLICY_SPILL);
    cr_expect_not(config_policy(&config)->automatic);
    cr_expect_eq(config.lines[settings_find("gain") - settings_table], 8);
    config_finish(&config);
}

static struct config_device device_of(const struct config *config, const char *name,
                                      enum place_kind kind, const char *model)
{
    struct config_device device;

    memset(&device, 0xee, sizeof(device));
    config_device(config, name, kind, model, &device);
    return device;
}

Test(config, the_first_entry_that_fits_decides_on_a_device)
{
    struct config config = config_of("devices = (\n"
                                     "  { match = \"gpu0\"; memory = \"3GiB\"; price = 2500; },\n"
                                     "  { match = \"gpu?\"; kind = \"cpu\"; closed = true; },\n"
                                     "  { match = \"gpu[1-3]\"; speed = 4000; },\n"
                                     "  { model = \"*H200*\"; kind = \"gpu\"; price = 9000; },\n"
                                     "  { kind = \"cpu\"; memory = \"1B\"; closed = true; },\n"
                                     "  { kind = \"accel\"; price = 7; },\n"
                                     "  { kind = \"dev\"; price = 8; }\n"
                                     ");");
    struct config_device device = device_of(&config, "gpu0", PLACE_GPU, "NVIDIA H200");

    cr_expect_eq(device.memory, 3221225472);
    cr_expect_eq(device.price, 2500);
    cr_expect_eq(device.speed, 0);
    cr_expect_not(device.closed);
    cr_expect_eq(device.line, 2);
    cr_expect_eq(device_of(&config, "gpu1", PLACE_GPU, "NVIDIA H200").line, 4);
    cr_expect_eq(device_of(&config, "gpu1", PLACE_GPU, NULL).speed, 4000);
    cr_expect_eq(device_of(&config, "gpu1", PLACE_GPU, NULL).memory, CONFIG_UNLIMITED);
    cr_expect_eq(device_of(&config, "gpu2", PLACE_CPU, "x").line, 3);
    cr_expect_eq(device_of(&config, "gpu4", PLACE_GPU, "NVIDIA H200").line, 5);
    cr_expect_eq(device_of(&config, "gpu4", PLACE_ACCELERATOR, "NVIDIA H200").line, 7);
    cr_expect_eq(device_of(&config, "cpu0", PLACE_CPU, "an H200").line, 6);
    cr_expect(device_of(&config, "cpu0", PLACE_CPU, NULL).closed);
    cr_expect_eq(device_of(&config, "cpu0", PLACE_CPU, NULL).memory, 1);
    cr_expect_eq(device_of(&config, "dev3", PLACE_OTHER, "").price, 8);
    /* No entry fits. */
    device = device_of(&config, "gpu4", PLACE_GPU, NULL);
    cr_expect_eq(device.memory, CONFIG_UNLIMITED);
    cr_expect_eq(device.speed + device.price + device.line, 0);
    cr_expect_not(device.closed);
    config_finish(&config);
}

static struct config_program program_of(const struct config *config, const char *name)
{
    struct config_program program;

    memset(&program, 0xee, sizeof(program));
    config_program(config, name, &program);
    return program;
}

Test(config, the_first_entry_that_fits_decides_on_a_program)
{
    struct config config = config_of(
        "programs = (\n"
        "  { match = \"enc\"; priority = 7; quota = \"2GiB\"; presented = \"16GiB\"; warm = \"0\"; "
        "},\n"
        "  { match = \"train-*\"; priority = -10; preemptible = true; ways = \"wait, spill\"; },\n"
        "  { match = \"train-big\"; priority = 1; },\n"
        "  { match = \"sp\" \"lit\"; device = \"gpu1\"; ways = \"none\"; },\n"
        "  { match = \"a\\\\*\"; priority = 3; }\n"
        ");");
    struct config_program program = program_of(&config, "enc");

    cr_expect_eq(program.priority, 7);
    cr_expect_eq(program.quota, 2147483648);
    cr_expect_eq(program.presented, 17179869184);
    cr_expect_eq(program.warm, 0);
    cr_expect_eq(program.ways, POLICY_UPGRADE | POLICY_SPILL | POLICY_WAIT | POLICY_SUSPEND);
    cr_expect_not(program.preemptible);
    cr_expect_str_eq(program.device, "");
    cr_expect_eq(program.line, 2);
    program = program_of(&config, "train-big");
    cr_expect_eq(program.line, 3);
    cr_expect_eq(program.priority, -10);
    cr_expect_eq(program.ways, POLICY_SPILL | POLICY_WAIT);
    cr_expect(program.preemptible);
    cr_expect_eq(program.quota, CONFIG_UNLIMITED);
    program = program_of(&config, "split");
    cr_expect_str_eq(program.device, "gpu1");
    cr_expect_eq(program.ways, 0);
    cr_expect_eq(program_of(&config, "a*").priority, 3);
    cr_expect_eq(program_of(&config, "ab").line, 0);
    program = program_of(&config, "other");
    cr_expect_eq(program.priority, 0);
    cr_expect_eq(program.quota, CONFIG_UNLIMITED);
    cr_expect_eq(program.warm, CONFIG_UNLIMITED);
    cr_expect_eq(program.presented + program.line, 0);
    cr_expect_eq(program.ways, POLICY_UPGRADE | POLICY_SPILL | POLICY_WAIT | POLICY_SUSPEND);
    config_finish(&config);
}

/* ---- option over environment over file over default ---- */

/** A value that is not the one of @other sources: each has its own where the type has that many. */
static void value_of(const struct setting *setting, unsigned source, char *ret, size_t size)
{
    static const char *const ways[] = {"", "suspend", "spill, wait", "upgrade, spill, wait"};

    if (setting->type == SETTING_WAYS) {
        snprintf(ret, size, "%s", source ? ways[source] : setting->initial_text);
    } else if (setting->type == SETTING_WORD) {
        snprintf(ret, size, "%s", setting->words[source % (setting->words[2] ? 4 : 2)]);
    } else if (setting->type == SETTING_FLAG) {
        /* The opposite of what the next lower source says. */
        snprintf(ret, size, "%s", (setting->initial + source) % 2 ? "yes" : "no");
    } else {
        int64_t value = setting->min + source;
        value += value >= setting->initial;
        snprintf(ret, size, "%lld%s", (long long)(source ? value : setting->initial),
                 source && setting->type == SETTING_SIZE ? "MiB" : "");
    }
}

static void check_precedence(const struct setting *setting, unsigned sources)
{
    struct config_source source = {.environment = true};
    struct config_option option = {.name = setting->name};
    struct config_error error = {0};
    struct config config;
    char value[128], variable[128], text[512], given[128];
    size_t index = (size_t)(setting - settings_table);
    unsigned highest = sources & 4 ? 3 : sources & 2 ? 2 : sources & 1;

    if (sources & 1) {
        bool quoted = setting->type == SETTING_WAYS || setting->type == SETTING_WORD ||
                      setting->type == SETTING_SIZE;
        const char *quote = quoted ? "\"" : "";
        value_of(setting, 1, value, sizeof(value));
        const char *word = strcmp(value, "yes") == 0 ? "true"
                           : strcmp(value, "no")     ? value
                                                     : "false";
        snprintf(text, sizeof(text), "\n\npolicy = {\n\n%s = %s%s%s; };", setting->name, quote,
                 word, quote);
        source.path = config_put("test.conf", text, strlen(text));
    }
    config_variable(setting, variable, sizeof(variable));
    if (sources & 2) {
        value_of(setting, 2, value, sizeof(value));
        setenv(variable, value, 1);
    }
    if (sources & 4) {
        value_of(setting, 3, given, sizeof(given));
        option.value = given;
        source.options = &option;
        source.option_count = 1;
    }
    cr_assert_eq(config_load(&source, &config, &error), 0, "%s", error.reason);
    unsetenv(variable);
    value_of(setting, highest, value, sizeof(value));
    expect_setting(&config, setting->name, value);
    static const enum config_origin origins[] = {CONFIG_DEFAULT, CONFIG_FILE, CONFIG_ENVIRONMENT,
                                                 CONFIG_OPTION};
    cr_expect_eq(config.origins[index], origins[highest], "%s", setting->name);
    cr_expect_eq(config.lines[index], sources & 1 ? 5 : 0, "%s", setting->name);
    /* The others are as ever. */
    for (size_t i = 0; i < settings_count; i++) {
        if (i != index) {
            value_of(&settings_table[i], 0, value, sizeof(value));
            expect_setting(&config, settings_table[i].name, value);
        }
    }
    config_finish(&config);
}

Test(config, an_option_goes_before_the_environment_before_the_file_before_the_default)
{
    for (size_t i = 0; i < settings_count; i++)
        for (unsigned sources = 0; sources < 8; sources++)
            check_precedence(&settings_table[i], sources);
}

Test(config, the_environment_counts_only_where_it_is_asked_for)
{
    struct config_source source = {0};
    struct config_error error = {0};
    struct config config;

    setenv("RESEAT_GAIN", "junk", 1);
    cr_assert_eq(config_load(&source, &config, &error), 0);
    config_finish(&config);
    source.environment = true;
    config.path[0] = 'x';
    cr_assert_eq(config_load(&source, &config, &error), -EINVAL);
    cr_expect_eq(config.path[0], 'x');
    cr_expect_str_eq(error.file, "");
    cr_expect_eq(error.line, 0);
    cr_expect(strstr(error.reason, "RESEAT_GAIN") && strstr(error.reason, "\"junk\""), "%s",
              error.reason);
    /* As if it were not set. */
    setenv("RESEAT_GAIN", "", 1);
    cr_assert_eq(config_load(&source, &config, &error), 0);
    expect_setting(&config, "gain", "250");
    config_finish(&config);
}

Test(config, of_options_the_last_counts_and_wrong_ones_are_refused)
{
    struct config_option options[] = {{"gain", "20"}, {"budget", "1"}, {"gain", "30"}};
    struct config_source source = {.options = options, .option_count = 3};
    struct config_error error = {0};
    struct config config;

    cr_assert_eq(config_load(&source, &config, &error), 0);
    expect_setting(&config, "gain", "30");
    expect_setting(&config, "budget", "1");
    config_finish(&config);
    options[1].name = "budgets";
    cr_expect_eq(config_load(&source, &config, &error), -EINVAL);
    cr_expect(strstr(error.reason, "--budgets"), "%s", error.reason);
    options[1] = (struct config_option){"budget", "-1"};
    cr_expect_eq(config_load(&source, &config, &error), -EINVAL);
    cr_expect(strstr(error.reason, "--budget:") && strstr(error.reason, "\"-1\""), "%s",
              error.reason);
}

Test(config, no_setting_has_a_variable_that_means_something_else)
{
    static const char *const taken[] = {
        "SOCKET",  "AGENT",   "LIBRARY", "LISTER",    "ICD_VENDORS",    "ICD_FILENAMES", "DEVICE",
        "DEVICES", "NAME",    "ID",      "INVENTORY", "PRESENT",        "PROFILE",       "LOG",
        "CONFIG",  "VERSION", "HELP",    "DAEMON",    "LISTER_TIMEOUT", "JSON",          "EMU"};
    char variable[128], other[128];

    for (size_t i = 0; i < settings_count; i++) {
        config_variable(&settings_table[i], variable, sizeof(variable));
        for (size_t j = 0; j < ARRAY_SIZE(taken); j++) {
            snprintf(other, sizeof(other), "RESEAT_%s", taken[j]);
            cr_expect_str_neq(variable, other);
        }
        cr_expect_eq(strspn(variable, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"), strlen(variable), "%s",
                     variable);
    }
    config_variable(settings_find("minimum-stay"), variable, sizeof(variable));
    cr_expect_str_eq(variable, "RESEAT_MINIMUM_STAY");
}

/* ---- which file ---- */

static void expect_found(const char *system, int result, const char *expected)
{
    char path[PATH_MAX] = "";

    cr_expect_eq(config_find(system, path), result, "%s", path);
    cr_expect_str_eq(path, expected);
}

Test(config, the_file_is_looked_for_in_order)
{
    char folder[128], system[160], own[160], home[160];

    snprintf(folder, sizeof(folder), "%s/home", config_folder);
    snprintf(system, sizeof(system), "%s/system.conf", config_folder);
    snprintf(own, sizeof(own), "%s/reseat/reseat.conf", config_folder);
    snprintf(home, sizeof(home), "%s/.config/reseat/reseat.conf", folder);
    setenv("HOME", folder, 1);
    expect_found(system, -ENOENT, own);
    config_put("system.conf", "", 0);
    expect_found(system, 0, system);
    snprintf(folder, sizeof(folder), "%s/reseat", config_folder);
    cr_assert_eq(mkdir(folder, 0700), 0);
    config_put("reseat/reseat.conf", "", 0);
    expect_found(system, 0, own);
    /* One that is not absolute does not count, then it is ~/.config. */
    setenv("XDG_CONFIG_HOME", "relative", 1);
    expect_found(system, 0, system);
    expect_found("/nonexistent", -ENOENT, home);
    unsetenv("XDG_CONFIG_HOME");
    snprintf(folder, sizeof(folder), "%s/home/.config/reseat", config_folder);
    cr_assert_eq(paths_make(folder), 0);
    config_put("home/.config/reseat/reseat.conf", "", 0);
    expect_found(system, 0, home);
    /* One that is named counts, whether it is there or not. */
    setenv("RESEAT_CONFIG", "/nonexistent/reseat.conf", 1);
    expect_found(system, 0, "/nonexistent/reseat.conf");
    setenv("RESEAT_CONFIG", "", 1);
    expect_found(system, 0, home);
    /* What cannot be looked at is not passed over. */
    snprintf(folder, sizeof(folder), "%s/loop", config_folder);
    cr_assert_eq(symlink(folder, folder), 0);
    setenv("XDG_CONFIG_HOME", folder, 1);
    snprintf(own, sizeof(own), "%s/reseat/reseat.conf", folder);
    expect_found(system, 0, own);
    char *large = malloc(PATH_MAX + 2);
    memset(large, '/', PATH_MAX + 1);
    large[PATH_MAX + 1] = '\0';
    char path[PATH_MAX];
    setenv("RESEAT_CONFIG", large, 1);
    cr_expect_eq(config_find(system, path), -ENAMETOOLONG);
    unsetenv("RESEAT_CONFIG");
    setenv("XDG_CONFIG_HOME", large, 1);
    cr_expect_eq(config_find(system, path), -ENAMETOOLONG);
    free(large);
}

Test(config, what_is_in_effect_is_the_file_that_is_found_and_the_environment)
{
    struct config_option option = {"budget", "3"};
    struct config_error error = {0};
    struct config config;
    char path[128];

    snprintf(path, sizeof(path), "%s/reseat", config_folder);
    cr_assert_eq(mkdir(path, 0700), 0);
    static const char text[] = "policy = { gain = 11; budget = 1; aging = 2; };";
    config_put("reseat/reseat.conf", text, strlen(text));
    setenv("RESEAT_BUDGET", "2", 1);
    setenv("RESEAT_AGING", "1", 1);
    cr_assert_eq(config_load_effective(&option, 1, &config, &error), 0, "%s", error.reason);
    expect_setting(&config, "gain", "11");
    expect_setting(&config, "budget", "3");
    expect_setting(&config, "aging", "1");
    snprintf(path, sizeof(path), "%s/reseat/reseat.conf", config_folder);
    cr_expect_str_eq(config.path, path);
    config_finish(&config);
    setenv("RESEAT_CONFIG", "/nonexistent", 1);
    cr_expect_eq(config_load_effective(NULL, 0, &config, &error), -ENOENT);
    cr_expect_str_eq(error.file, "/nonexistent");
}
