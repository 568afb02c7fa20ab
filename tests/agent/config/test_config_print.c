#include <inttypes.h>

#include "policy/schedule.h"
#include "state/base/bytes/size.h"
#include "tests/agent/config/config_rig.h"
#include "tests/support/leaks.h"

/* What is printed is a configuration: it says what it was printed from. */

TestSuite(config_print, .init = config_rig_init, .fini = leaks_check, .timeout = 100);

static char *printed(const struct config *config)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);

    cr_assert_not_null(file);
    cr_assert_eq(config_print(config, file), 0);
    cr_assert_eq(fclose(file), 0);
    cr_assert_eq(strlen(text), size);
    return text;
}

/* ---- random configurations, kept beside what was written of them ---- */

#define ENTRIES 12

struct said_device {
    char match[32], model[32];
    const char *kind; /* NULL: none. */
    uint64_t memory;
    uint32_t speed, price;
    bool closed;
    char meter[32];
    uint32_t idle_w, busy_w;
};

struct said_program {
    char match[32], device[32];
    int priority;
    bool preemptible;
    uint64_t quota, warm, presented;
    uint32_t cap_w, objective, floats;
    unsigned ways;
    struct protection protect;
};

struct said {
    char policy[64][128]; /* As setting_text() says it. */
    struct said_device devices[ENTRIES];
    struct said_program programs[ENTRIES];
    size_t device_count, program_count;
};

static uint64_t any(uint64_t from, uint64_t to)
{
    uint64_t bits = (uint64_t)random() << 31 ^ (uint64_t)random();

    return from + bits % (to - from + 1);
}

/* With what has to be escaped, and no wildcard: the number keeps it unlike the others. */
static void any_name(char ret[32], size_t number)
{
    static const char *const pieces[] = {"gpu", "\"",       "#",  "//", "/*", " ", "@include",
                                         "'",   "\xc3\xa9", "};", "x",  "%s", "=", "."};
    size_t used = (size_t)sprintf(ret, "%zu", number);

    for (unsigned i = (unsigned)any(0, 3); i > 0; i--)
        used += (size_t)sprintf(ret + used, "%s", pieces[any(0, ARRAY_SIZE(pieces) - 1)]);
}

static uint64_t any_size(void)
{
    return any(1, 9999) << (10 * any(0, 4));
}

static void put_text(FILE *to, const char *name, const char *text)
{
    fprintf(to, "%s = \"", name);
    for (; *text; text++)
        fprintf(to, *text == '"' ? "\\%c" : "%c", *text);
    fputs("\";", to);
}

static void put_size(FILE *to, const char *name, uint64_t bytes)
{
    if (bytes % 1024 == 0)
        fprintf(to, "%s = \"%" PRIu64 "KiB\"; ", name, bytes / 1024);
    else
        fprintf(to, "%s = \"%" PRIu64 "B\"; ", name, bytes);
}

static unsigned any_ways(char *ret_text)
{
    static const char *const names[] = {"upgrade", "spill", "wait", "suspend"};
    unsigned ways = (unsigned)any(0, 15);

    strcpy(ret_text, ways ? "" : "none");
    for (unsigned i = 0; i < 4; i++)
        if (ways >> i & 1)
            sprintf(ret_text + strlen(ret_text), "%s%s", ret_text[0] ? ", " : "", names[i]);
    return ways;
}

static void write_policy(FILE *to, struct said *said)
{
    fputs("policy = {\n", to);
    for (size_t i = 0; i < settings_count; i++) {
        const struct setting *setting = &settings_table[i];
        char *text = said->policy[i];
        bool says = any(0, 3) != 0;
        if (setting->type == SETTING_WAYS) {
            any_ways(text);
            says ? fprintf(to, "%s = \"%s\";\n", setting->name, text)
                 : sprintf(text, "%s", setting->initial_text);
        } else if (setting->type == SETTING_WORD) {
            sprintf(text, "%s", setting->words[says ? any(0, 1) : 0]);
            says ? fprintf(to, "%s = \"%s\";\n", setting->name, text) : 0;
        } else if (setting->type == SETTING_FLAG) {
            unsigned value = says ? (unsigned)any(0, 1) : (unsigned)setting->initial;
            sprintf(text, "%s", value ? "yes" : "no");
            says ? fprintf(to, "%s = %s;\n", setting->name, value ? "true" : "false") : 0;
        } else if (setting->type == SETTING_SIZE) {
            sprintf(text, "0");
            if (says)
                size_format(any(1, (uint64_t)setting->max), text);
            says ? fprintf(to, "%s = \"%s\";\n", setting->name, text) : 0;
        } else {
            sprintf(text, "%" PRIu64,
                    says ? any((uint64_t)setting->min, (uint64_t)setting->max)
                         : (uint64_t)setting->initial);
            says ? fprintf(to, "%s = %sL;\n", setting->name, text) : 0;
        }
    }
    fputs("};\n", to);
}

static void write_device(FILE *to, struct said_device *device, size_t number)
{
    static const char *const kinds[] = {NULL, "gpu", "accel", "cpu", "dev"};

    *device = (struct said_device){.memory = CONFIG_UNLIMITED, .kind = kinds[any(0, 4)]};
    any_name(device->match, number);
    put_text(to, "{ match", device->match);
    if (any(0, 1)) {
        any_name(device->model, any(0, 9));
        put_text(to, "model", device->model);
    }
    if (device->kind)
        put_text(to, "kind", device->kind);
    if (any(0, 1))
        put_size(to, "memory", device->memory = any_size());
    if (any(0, 1))
        fprintf(to, "speed = %u;", device->speed = (unsigned)any(1, 1000000));
    if (any(0, 1))
        fprintf(to, "price = %u;", device->price = (unsigned)any(1, 1000000));
    if (any(0, 1))
        fprintf(to, "closed = %s;", (device->closed = any(0, 1)) ? "true" : "false");
    if (any(0, 1)) {
        any_name(device->meter, any(0, 9));
        put_text(to, "meter", device->meter);
    }
    if (any(0, 1))
        fprintf(to, "idle-watts = %u;", device->idle_w = (unsigned)any(1, 100000));
    if (any(0, 1))
        fprintf(to, "busy-watts = %u;", device->busy_w = (unsigned)any(1, 100000));
    fputs(" }", to);
}

static void write_protection(FILE *to, struct protection *protect)
{
    switch (any(0, 4)) {
    case 0:
        fprintf(to, "protect = %s;", any(0, 1) ? "true" : "\"on\"");
        protect->word = PROTECTION_ON;
        return;
    case 1:
        fprintf(to, "protect = %s;", any(0, 1) ? "false" : "\"off\"");
        protect->word = PROTECTION_OFF;
        return;
    case 2:
        protect->word = PROTECTION_ON;
        fprintf(to, "protect = %u;", protect->seconds = (unsigned)any(1, PROTECTION_SECONDS_MAX));
        return;
    case 3:
        protect->word = PROTECTION_ON;
        put_size(to, "protect", protect->bytes = any_size());
        return;
    default:
        return;
    }
}

static void write_program(FILE *to, struct said_program *program, size_t number)
{
    char ways[64];

    *program =
        (struct said_program){.quota = CONFIG_UNLIMITED, .warm = CONFIG_UNLIMITED, .ways = 15};
    any_name(program->match, number);
    put_text(to, "{ match", program->match);
    if (any(0, 1))
        fprintf(to, "priority = %d;", program->priority = (int)any(0, 2000) - 1000);
    if (any(0, 1))
        fprintf(to, "preemptible = %s;", (program->preemptible = any(0, 1)) ? "true" : "false");
    if (any(0, 1))
        put_size(to, "quota", program->quota = any_size());
    if (any(0, 1))
        put_size(to, "presented", program->presented = any_size());
    if (any(0, 1))
        fprintf(to, "cap = %u;", program->cap_w = (unsigned)any(1, 1000000));
    if (any(0, 1)) {
        program->objective = (uint32_t)any(1, 4);
        put_text(to, "objective", schedule_objective_names[program->objective - 1]);
    }
    if (any(0, 1)) {
        program->floats = (uint32_t)any(1, 2);
        put_text(to, "float", settings_float_words[program->floats - 1]);
    }
    if (any(0, 1))
        put_size(to, "warm", program->warm = any(0, 1) ? any_size() : 0);
    if (any(0, 1)) {
        program->ways = any_ways(ways);
        put_text(to, "ways", ways);
    }
    if (any(0, 1)) {
        any_name(program->device, any(0, 9));
        put_text(to, "device", program->device);
    }
    write_protection(to, &program->protect);
    fputs(" }", to);
}

static char *write_any(struct said *said)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);

    cr_assert_not_null(to);
    write_policy(to, said);
    said->device_count = any(0, ENTRIES);
    fputs("devices = (", to);
    for (size_t i = 0; i < said->device_count; i++) {
        fputs(i ? ",\n" : "", to);
        write_device(to, &said->devices[i], i);
    }
    fputs(");\n", to);
    said->program_count = any(0, ENTRIES);
    fputs("programs = (", to);
    for (size_t i = 0; i < said->program_count; i++) {
        fputs(i ? ",\n" : "", to);
        write_program(to, &said->programs[i], i);
    }
    fputs(");\n", to);
    fclose(to);
    return text;
}

static void expect_device(const struct config *config, const struct said_device *said)
{
    static const char *const kinds[] = {"gpu", "accel", "cpu", "dev"};
    struct config_device device;

    for (int kind = PLACE_GPU; kind <= PLACE_OTHER; kind++) {
        bool fits = !said->kind || strcmp(kinds[kind], said->kind) == 0;
        config_device(config, said->match, kind, said->model, &device);
        cr_assert_eq(device.line != 0, fits);
        cr_assert_eq(device.memory, fits ? said->memory : CONFIG_UNLIMITED);
        cr_assert_eq(device.speed, fits ? said->speed : 0);
        cr_assert_eq(device.price, fits ? said->price : 0);
        cr_assert_eq(device.closed, fits && said->closed);
        cr_assert_str_eq(device.meter, fits ? said->meter : "");
        cr_assert_eq(device.idle_w, fits ? said->idle_w : 0);
        cr_assert_eq(device.busy_w, fits ? said->busy_w : 0);
        if (said->model[0]) {
            config_device(config, said->match, kind, "another", &device);
            cr_assert_eq(device.line, 0);
        }
    }
}

static void expect_said(const struct config *config, const struct said *said)
{
    struct config_program program;
    char text[128];

    for (size_t i = 0; i < settings_count; i++) {
        config_text_of(config, settings_table[i].name, text);
        cr_assert_str_eq(text, said->policy[i], "%s", settings_table[i].name);
    }
    for (size_t i = 0; i < said->device_count; i++)
        expect_device(config, &said->devices[i]);
    for (size_t i = 0; i < said->program_count; i++) {
        const struct said_program *expected = &said->programs[i];
        config_program(config, expected->match, &program);
        cr_assert_neq(program.line, 0, "%s", expected->match);
        cr_assert_eq(program.priority, expected->priority);
        cr_assert_eq(program.preemptible, expected->preemptible);
        cr_assert_eq(program.quota, expected->quota);
        cr_assert_eq(program.presented, expected->presented);
        cr_assert_eq(program.cap_w, expected->cap_w);
        cr_assert_eq(program.objective, expected->objective);
        cr_assert_eq(program.floats, expected->floats);
        cr_assert_eq(program.warm, expected->warm);
        cr_assert_eq(program.ways, expected->ways);
        cr_assert_str_eq(program.device, expected->device);
        bool on = expected->protect.word == PROTECTION_ON ||
                  (expected->protect.word == PROTECTION_UNSAID && config_policy(config)->protect);
        cr_assert_eq(program.protect.word, on ? PROTECTION_ON : PROTECTION_OFF);
        cr_assert_eq(program.protect.seconds, expected->protect.seconds);
        cr_assert_eq(program.protect.bytes, expected->protect.bytes);
    }
}

Test(config_print, any_configuration_is_the_same_when_it_is_read_again)
{
    static struct said said;

    cr_assert_leq(settings_count, ARRAY_SIZE(said.policy));
    srandom(4);
    for (int i = 0; i < 300; i++) {
        char *text = write_any(&said);
        struct config config = config_of(text);
        expect_said(&config, &said);
        char *once = printed(&config);
        config_finish(&config);
        config = config_of(once);
        expect_said(&config, &said);
        config_finish(&config);
        free(once);
        free(text);
    }
}

/* ---- origins ---- */

static void expect_line(const char *text, const char *line)
{
    char wanted[400];

    snprintf(wanted, sizeof(wanted), "\n%s\n", line);
    cr_expect(strstr(text, wanted), "no line \"%s\" in\n%s", line, text);
}

Test(config_print, each_value_has_its_origin)
{
    static const char file[] = "policy = { gain = 20;\n budget = 5; };\n\n"
                               "programs = ( { match = \"a\" },\n { match = \"b\" } );";
    struct config_option option = {"aging", "1h"};
    struct config_source source = {
        .path = config_put("test.conf", file, strlen(file)),
        .environment = true,
        .options = &option,
        .option_count = 1,
    };
    struct config_error error;
    struct config config;
    char line[200];

    setenv("RESEAT_BUDGET", "6", 1);
    setenv("RESEAT_WAYS", "spill,wait", 1);
    cr_assert_eq(config_load(&source, &config, &error), 0);
    char *text = printed(&config);
    snprintf(line, sizeof(line), "    gain = 20; # %s/test.conf:1", config_folder);
    expect_line(text, line);
    expect_line(text, "    budget = 6; # environment, RESEAT_BUDGET");
    expect_line(text, "    ways = \"spill, wait\"; # environment, RESEAT_WAYS");
    expect_line(text, "    aging = 3600; # option --aging");
    expect_line(text, "    automatic = true; # default");
    snprintf(line, sizeof(line), "    { # %s/test.conf:5", config_folder);
    expect_line(text, line);
    free(text);
    config_finish(&config);
}

Test(config_print, a_path_cannot_end_the_comment_that_it_is_in)
{
    static const char file[] = "policy = { gain = 20; };";
    struct config_source source = {.path = config_put("a\nb = 1; #.conf", file, strlen(file))};
    struct config_error error;
    struct config config;

    cr_assert_eq(config_load(&source, &config, &error), 0);
    char *text = printed(&config);
    config_finish(&config);
    config = config_of(text);
    cr_expect_eq(config_policy(&config)->gain, 20);
    config_finish(&config);
    free(text);
}

Test(config_print, what_cannot_be_written_is_an_error)
{
    struct config config = config_of("");
    FILE *full = fopen("/dev/full", "we");

    cr_assert_not_null(full);
    cr_expect_eq(config_print(&config, full), -EIO);
    fclose(full);
    config_finish(&config);
}

static char *manual_page(void)
{
    static char page[65536];
    FILE *file = fopen(CONFIG_PAGE, "re");

    cr_assert_not_null(file);
    page[fread(page, 1, sizeof(page) - 1, file)] = '\0';
    fclose(file);
    return page;
}

Test(config_print, the_manual_page_shows_it_as_it_is)
{
    struct config_source none = {0};
    struct config_error error;
    struct config config;
    const char *page = manual_page();

    cr_assert_eq(config_load(&none, &config, &error), 0);
    char *text = printed(&config);
    config_finish(&config);
    cr_expect(strstr(page, text), "the page does not have this:\n%s", text);
    /* Nor is a line wider than a page of 80 columns, with its margin, shows. */
    for (const char *at = text; *at; at += strcspn(at, "\n") + 1)
        cr_expect_leq(strcspn(at, "\n"), 68, "%.80s", at);
    free(text);
}

Test(config_print, every_example_of_the_manual_page_is_right)
{
    char *at = manual_page();
    unsigned entries = 0;

    for (int i = 0; i < 4; i++) {
        char *begin = strstr(at, "\n```\n"), *end = begin ? strstr(begin + 5, "\n```\n") : NULL;
        cr_assert(end, "%d examples", i);
        end[1] = '\0';
        struct config config = config_of(begin + 5);
        for (unsigned j = 0; j < CONFIG_LISTS; j++)
            entries += config.lists[j].count;
        config_finish(&config);
        at = end + 4;
    }
    cr_expect_not(strstr(at, "\n```\n"));
    cr_expect_eq(entries, 7);
}
