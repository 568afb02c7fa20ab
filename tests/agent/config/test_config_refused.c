#include <sys/stat.h>

#include "tests/agent/config/config_rig.h"
#include "tests/support/leaks.h"

/* What is refused, in which line, and why. */

TestSuite(config_refused, .init = config_rig_init, .fini = leaks_check, .timeout = 100);

struct refused {
    const char *text;
    unsigned line;
    const char *why;
};

static void expect_refused_bytes(const char *text, size_t size, unsigned line, const char *why)
{
    struct config_error error = {.file = "untouched"};
    struct config config = {.path = "untouched"};
    char path[128], report[PATH_MAX + CONFIG_REASON_MAX], start[160];
    int result = config_try(text, size, &config, &error);

    cr_expect_eq(result, -EINVAL, "%d: %s", result, text);
    cr_expect_str_eq(config.path, "untouched");
    cr_expect_eq(error.line, line, "line %u: %s\n%s", error.line, error.reason, text);
    cr_expect(strstr(error.reason, why), "\"%s\"\nis not\n\"%s\"\n%s", error.reason, why, text);
    for (const char *at = error.reason; *at; at++)
        cr_expect((unsigned char)*at >= ' ', "%s", error.reason);
    snprintf(path, sizeof(path), "%s/test.conf", config_folder);
    cr_expect_str_eq(error.file, path);
    config_error_format(&error, report, sizeof(report));
    snprintf(start, sizeof(start), line ? "%s:%u: " : "%s: ", path, line);
    cr_expect_eq(strncmp(report, start, strlen(start)), 0, "%s", report);
}

Test(config_refused, files_whose_names_could_write_to_a_terminal_are_named_without)
{
    const struct config_error error = {.file = "a\033[31m.conf", .line = 3, .reason = "wrong"};
    char report[64];

    config_error_format(&error, report, sizeof(report));
    cr_expect_str_eq(report, "a?[31m.conf:3: wrong");
}

static void expect_refused(const struct refused *refused, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        expect_refused_bytes(refused[i].text, strlen(refused[i].text), refused[i].line,
                             refused[i].why);
    }
}

Test(config_refused, names_that_nobody_knows_with_the_nearest)
{
    static const struct refused unknown[] = {
        {"polcy = { };", 1, "no \"polcy\" at the top of a configuration; did you mean \"policy\"?"},
        {"\nDevices = ( );", 2, "did you mean \"devices\"?"},
        {"\n\nprogram = ( );", 3, "did you mean \"programs\"?"},
        {"gain = 20;", 1, "no \"gain\" at the top"},
        {"policy = {\n gain = 20;\n minimumstay = 3;\n};", 3, "did you mean \"minimum-stay\"?"},
        {"policy = { wait = 3; };", 1, "did you mean"},
        {"policy = { Budget-Program = 3; };", 1, "did you mean \"budget-program\"?"},
        {"policy = { wieght-speed\n=\n3; };", 1, "did you mean \"weight-speed\"?"},
        {"devices = ( { match = \"a\";\n memroy = \"1GiB\"; } );", 2,
         "no \"memroy\" in \"devices\"; did you mean \"memory\"?"},
        {"devices = ( { match = \"a\" }, {\n match = \"b\"; priority = 1; } );", 2,
         "no \"priority\" in \"devices\""},
        {"programs = (\n { match = \"a\";\n memory = \"1GiB\"; } );", 3,
         "no \"memory\" in \"programs\""},
        {"programs = ( { match = \"a\"; preemtible = true; } );", 1,
         "did you mean \"preemptible\"?"},
    };

    expect_refused(unknown, ARRAY_SIZE(unknown));
    /* A name of any length. */
    char *text = malloc(10100);
    memset(text, 'a', 10000);
    strcpy(text + 10000, " = 5;");
    expect_refused_bytes(text, strlen(text), 1, "did you mean");
    free(text);
}

Test(config_refused, values_of_another_type)
{
    static const struct refused types[] = {
        {"policy = 5;", 1, "\"policy\" has to be a group in { }, not a number"},
        {"policy = ( );", 1, "not a list in ( )"},
        {"\npolicy = [ ];", 2, "not an array in [ ]"},
        {"devices = { };", 1, "\"devices\" has to be a list"},
        {"devices = [ ];", 1, "\"devices\" has to be a list"},
        {"programs = \"a\";", 1, "\"programs\" has to be a list"},
        {"devices = (\n\n5 );", 3, "\"devices\" has to hold groups in { }, not a number"},
        {"programs = (\n( ) );", 2, "not a list in ( )"},
        {"policy = {\n gain = \"20\"; };", 2, "\"gain\" has to be a whole number"},
        {"policy = {\n gain = true; };", 2, "\"gain\" has to be a whole number"},
        {"policy = {\n minimum-stay = true; };", 2, "seconds"},
        {"policy = {\n automatic = 1; };", 2,
         "\"automatic\" has to be true or false, not a number"},
        {"policy = {\n automatic = \"yes\"; };", 2, "\"automatic\" has to be true or false"},
        {"policy = {\n ways = 1; };", 2, "\"ways\" has to be a text"},
        {"policy = {\n ways = [ \"spill\" ]; };", 2, "\"ways\" has to be a text"},
        {"policy = {\n gain = { }; };", 2, "not a group in { }"},
        {"devices = ( { match = 5; } );", 1, "\"match\" has to be a text in \"quotes\""},
        {"devices = ( { match = \"a\";\n\n memory = 5; } );", 3, "\"memory\" has to be a size"},
        {"devices = ( { match = \"a\"; closed = 0; } );", 1, "\"closed\" has to be true or false"},
        {"devices = ( { match = \"a\"; speed = \"1\"; } );", 1,
         "\"speed\" has to be a whole number"},
        {"devices = ( { kind = 1; } );", 1, "\"kind\" has to be \"gpu\""},
        {"programs = ( { match = \"a\"; ways = 1; } );", 1, "\"ways\" has to be a text"},
        {"programs = ( { match = \"a\"; protect = 1.5; } );", 1, "is not a whole number"},
        {"programs = ( { match = \"a\"; protect = ( 1 ); } );", 1, "\"protect\" has to be true"},
        {"programs = ( { match = \"a\"; protect = 0; } );", 1, "1 to 86400 seconds"},
        {"programs = ( { match = \"a\"; protect = -1; } );", 1, "not a size"},
        {"programs = ( { match = \"a\"; protect = \"\"; } );", 1, "not a size"},
        {"programs = ( { match = \"a\"; protect = \"yes\"; } );", 1, "not a size"},
        {"policy = { protect = 10; };", 1, "true or false"},
        {"programs = ( { match = \"a\"; device = 0; } );", 1, "\"device\" has to be a text"},
        {"programs = ( { match = \"a\"; preemptible = \"true\"; } );", 1,
         "has to be true or false"},
    };

    expect_refused(types, ARRAY_SIZE(types));
}

Test(config_refused, values_out_of_range)
{
    static const struct refused ranges[] = {
        {"policy = {\n gain = 9;\n};", 2, "\"gain\": \"9\""},
        {"policy = {\n gain = 10001;\n};", 2, "\"10001\""},
        {"policy = {\n gain = -20;\n};", 2, "\"-20\""},
        {"policy = {\n gain = 4294967316L;\n};", 2, "\"4294967316\""},
        {"policy = {\n minimum-stay = \"2d\";\n};", 2, "\"2d\""},
        {"policy = {\n minimum-stay = \"soon\";\n};", 2, "\"soon\""},
        {"policy = {\n ways = \"spill, spill\";\n};", 2, "\"spill\""},
        {"policy = {\n ways = \"swap\";\n};", 2, "\"swap\""},
        {"policy = {\n ways = \"\";\n};", 2, "\"ways\": "},
        {"devices = ( { match = \"a\";\nmemory = \"0GiB\"; } );", 2,
         "\"memory\": it has to be more than 0"},
        {"devices = ( { match = \"a\";\nmemory = \"1GB\"; } );", 2, "\"1GB\" is not a size"},
        {"devices = ( { match = \"a\";\nmemory = \"\"; } );", 2, "\"\" is not a size"},
        {"devices = ( { match = \"a\";\nmemory = \"99999999TiB\"; } );", 2, "is too large"},
        {"devices = ( { match = \"a\";\nmemory = \"1\\n\"; } );", 2, "\"1?\" is not a size"},
        {"devices = ( { match = \"a\"; speed = 0; } );", 1,
         "\"speed\": \"0\" is not a whole number from 1 to 1000000"},
        {"devices = ( { match = \"a\"; price = 1000001; } );", 1, "\"1000001\" is not"},
        {"devices = ( { match = \"a\"; price = -1; } );", 1, "\"-1\" is not"},
        {"devices = ( { match = \"a\"; price = 0x7fffffffffffffffL; } );", 1,
         "\"9223372036854775807\" is not"},
        {"devices = ( { kind = \"GPU\"; } );", 1, "not \"GPU\""},
        {"devices = ( { match = \"\"; } );", 1,
         "\"match\": it has to have 1 to 127 characters, not 0"},
        {"devices = ( { match = \"a\\tb\"; } );", 1, "control character"},
        {"programs = ( { match = \"a\"; priority = 1001; } );", 1,
         "\"1001\" is not a whole number from -1000 to 1000"},
        {"programs = ( { match = \"a\"; priority = -1001; } );", 1, "\"-1001\" is not"},
        {"programs = ( { match = \"a\"; quota = \"0\"; } );", 1,
         "\"quota\": it has to be more than 0"},
        {"programs = ( { match = \"a\"; ways = \"upgrade, swap\"; } );", 1, "\"swap\""},
        {"programs = ( { match = \"a\"; device = \"\"; } );", 1, "1 to 127 characters"},
    };
    char text[400];

    expect_refused(ranges, ARRAY_SIZE(ranges));
    for (int length = 127; length <= 300; length += 173) {
        snprintf(text, sizeof(text), "programs = ( {\nmatch = \"%0*d\"; } );", length, 0);
        struct config_error error;
        struct config config;
        if (length == 127) {
            cr_assert_eq(config_try(text, strlen(text), &config, &error), 0);
            config_finish(&config);
        } else {
            expect_refused_bytes(text, strlen(text), 2, "not 300");
        }
    }
}

Test(config_refused, entries_for_nothing_and_for_the_same)
{
    static const struct refused entries[] = {
        {"devices = (\n\n{ memory = \"1GiB\"; } );", 3, "does not say for which"},
        {"programs = ( { } );", 1, "does not say for which"},
        {"devices = ( { match = \"a\"; },\n{ match = \"b\" },\n{ match = \"a\"; closed = true; } "
         ");",
         3, "that of line 1 is for the same"},
        {"devices = ( { kind = \"cpu\"; },\n{ kind = \"cpu\"; } );", 2, "that of line 1"},
        {"devices = ( { model = \"x\"; match = \"a\"; },\n{ match = \"a\"; model = \"x\"; } );", 2,
         "that of line 1"},
        {"programs = ( { match = \"a\"; },\n{ match = \"b\"; },\n{ match = \"b\"; } );", 3,
         "that of line 2"},
    };

    expect_refused(entries, ARRAY_SIZE(entries));
    struct config config = config_of(
        "devices = ( { match = \"a\"; kind = \"cpu\"; }, { match = \"a\"; kind = \"gpu\"; },"
        "{ match = \"a\"; }, { kind = \"cpu\"; }, { model = \"a\"; } );");
    cr_expect_eq(config.lists[CONFIG_DEVICES].count, 5);
    config_finish(&config);
}

Test(config_refused, names_that_are_given_twice)
{
    static const struct refused twice[] = {
        {"policy = { };\n\npolicy = { };", 3, "a second time"},
        {"devices = ( );\ndevices = ( );", 2, "a second time"},
        {"policy = {\n gain = 20;\n budget = 1;\n gain = 30;\n};", 4, "a second time"},
        {"devices = (\n { match = \"a\";\n match = \"b\"; } );", 3, "a second time"},
    };

    expect_refused(twice, ARRAY_SIZE(twice));
}

Test(config_refused, text_that_is_no_configuration)
{
    static const struct refused syntax[] = {
        {"policy", 1, "no NAME = VALUE"},
        {"policy =\n\n", 1, "no NAME = VALUE"},
        {"= 5;", 1, "no NAME = VALUE"},
        {"policy = {\n gain = ;\n};", 2, "no NAME = VALUE"},
        {"policy = {\n gain 20;\n};", 2, "no NAME = VALUE"},
        {"policy = {\n gain = 20;;\n};", 2, "no NAME = VALUE"},
        {"policy = {\n gain =\n budget = 3;\n};", 3, "no NAME = VALUE"},
        {"policy = {\n gain = unquoted;\n};", 2,
         "no NAME = VALUE; texts and sizes are in \"quotes\""},
        {"policy = {\n automatic = yes;\n};", 2,
         "no NAME = VALUE; texts and sizes are in \"quotes\""},
        {"policy = {\n ways : /* a */\n spill;\n};", 3,
         "no NAME = VALUE; texts and sizes are in \"quotes\""},
        {"devices = ( { match = \"a\" }\n{ match = \"b\" } );", 2, "no NAME = VALUE"},
        {"devices = ( { match = \"a\"; },\n);", 2, "no NAME = VALUE"},
        {"policy = {\n gain = 20;\n", 1, "the \"{\" of this line is not closed"},
        {"a = 1;\ndevices = (\n{ match = \"a\" }\n", 2, "the \"(\" of this line is not closed"},
        {"policy = { };\n};", 2, "\"}\" closes nothing"},
        {"devices = (\n{ match = \"a\"\n);", 3, "\")\" does not close the \"{\" of line 2"},
        {"a = [ 1\n);", 2, "\")\" does not close the \"[\" of line 1"},
        {"a = ((((((((\n(", 2, "more than 8 brackets"},
        {"policy = {\n ways = \"spill;\n};", 2, "quote that begins here does not end"},
        {"policy = {\n ways = \"spill\\\";\n};", 2, "quote that begins here does not end"},
        {"a = \"\\\\\"\"", 1, "quote that begins here does not end"},
        {"# a\n/* b\n\n# c", 2, "comment that begins here does not end"},
        {"/* \"\n* / \" ", 1, "comment that begins here does not end"},
        {"policy = {\n gain = 1.5;\n};", 2, "\"1.5\" is not a whole number"},
        {"policy = {\n gain = .5;\n};", 2, "\".5\" is not a whole number"},
        {"policy = {\n gain = 1e2;\n};", 2, "\"1e2\" is not a whole number"},
        {"\ndevices = ( { match = \"a\"; memory = 5GiB; } );", 2, "sizes such as"},
        {"a = 0x;", 1, "\"0x\" is not a whole number"},
        {"policy = {\n gain = \xe2\x80\x9c"
         "20\xe2\x80\x9d; };",
         2, "no NAME = VALUE; texts and sizes are in \"quotes\""},
        {"a = 'b';", 1, "no NAME = VALUE; texts and sizes are in \"quotes\""},
        {"a / b", 1, "no NAME = VALUE; texts and sizes are in \"quotes\""},
        {"a = $HOME;", 1, "no NAME = VALUE; texts and sizes are in \"quotes\""},
        {"\n\n<xml>", 3, "no NAME = VALUE; texts and sizes are in \"quotes\""},
        {"a = \"b\\x00c\";", 1, "\\x00"},
        {"a = \"b\\X00\";", 1, "\\x00"},
        {"a = \"\x01\";", 1, "byte 0x01 is no text"},
        {"\n\x7f"
         "ELF",
         2, "byte 0x7f is no text"},
    };

    expect_refused(syntax, ARRAY_SIZE(syntax));
    expect_refused_bytes("a = 1;\nb = \0;\n", 14, 2, "byte 0x00 is no text");
    expect_refused_bytes("# \0", 3, 1, "byte 0x00 is no text");
}

Test(config_refused, numbers_that_libconfig_would_cut)
{
    static const struct refused large[] = {
        {"policy = {\n budget = 4294967297;\n};", 2, "4294967297 is too large"},
        {"policy = {\n budget = 2147483648;\n};", 2, "is too large"},
        {"policy = {\n budget = 0x100000001;\n};", 2, "is too large"},
        {"policy = {\n budget = 9223372036854775808L;\n};", 2, "is too large"},
        {"policy = {\n budget = 18446744073709551617L;\n};", 2, "is too large"},
        {"policy = {\n budget = 0x10000000000000001L;\n};", 2, "is too large"},
        {"policy = {\n budget = 99999999999999999999999999;\n};", 2, "is too large"},
    };

    expect_refused(large, ARRAY_SIZE(large));
    struct config config =
        config_of("policy = { wait-deadline = 000000000000000000000600; budget = 5LL; };");
    cr_expect_eq(config_policy(&config)->wait_deadline_s, 600);
    cr_expect_eq(config_policy(&config)->budget, 5);
    config_finish(&config);
}

Test(config_refused, other_files_are_not_included)
{
    char inner[256], text[600];

    snprintf(inner, sizeof(inner), "%s",
             config_put("inner.conf", "policy = { gain = 20; };\n", 25));
    static const struct {
        const char *before;
        const char *behind;
        unsigned line;
    } forms[] = {{"@include \"", "\"\n", 1},
                 {"\n \t@include \"", "\"\n", 2},
                 {"policy = { };\n@include \"", "\"\n", 2},
                 {"/**/\n@include\t\"", "\"", 2}};
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        snprintf(text, sizeof(text), "%s%s%s", forms[i].before, inner, forms[i].behind);
        expect_refused_bytes(text, strlen(text), forms[i].line, "without @include");
    }
    /* Nor is what only looks like it refused. */
    snprintf(text, sizeof(text),
             "# x\n/*\n@include \"%s\"\n*/ programs = ( { match = \"@include\"; } );", inner);
    struct config config = config_of(text);
    cr_expect_eq(config.lists[CONFIG_PROGRAMS].count, 1);
    cr_expect_eq(config_policy(&config)->gain, 250);
    config_finish(&config);
}

Test(config_refused, files_of_more_than_a_bounded_size)
{
    size_t size = CONFIG_FILE_MAX + 1;
    char *text = malloc(size + 1);
    struct config_error error;
    struct config config;

    /* The largest, of one comment. */
    memset(text, '#', size);
    cr_assert_eq(config_try(text, size - 1, &config, &error), 0, "%s", error.reason);
    config_finish(&config);
    expect_refused_bytes(text, size, 0, "has more than 256 KiB");
    /* The largest, of the most that can be in it. */
    size_t used = (size_t)sprintf(text, "policy = {\n");
    for (unsigned i = 0; i < 8191; i++)
        used += (size_t)sprintf(text + used, "k%x=1;\n", i);
    expect_refused_bytes(text, used, 1, "is not closed");
    memcpy(text + used, "};", 3);
    expect_refused_bytes(text, used + 2, 2, "no \"k0\" in \"policy\"");
    memcpy(text + used, "\na=1;};", 8);
    expect_refused_bytes(text, used + 7, 8194, "more than 8192 settings");
    /* The most entries, and one more. */
    for (unsigned more = 0; more < 2; more++) {
        used = (size_t)sprintf(text, "programs = (");
        for (unsigned i = 0; i < CONFIG_ENTRIES_MAX + more; i++)
            used += (size_t)sprintf(text + used, "%s{match=\"%u\"}", i ? "," : "", i);
        used += (size_t)sprintf(text + used, ");");
        if (more) {
            expect_refused_bytes(text, used, 1, "has 1025 entries");
        } else {
            config = config_of(text);
            struct config_program program;
            config_program(&config, "1023", &program);
            cr_expect_eq(program.line, 1);
            config_finish(&config);
        }
    }
    free(text);
}

static void expect_unread(const char *path, int result, const char *why)
{
    struct config_source source = {.path = path};
    struct config_error error = {.line = 7};
    struct config config;

    cr_expect_eq(config_load(&source, &config, &error), result, "%s", path);
    cr_expect_str_eq(error.file, path);
    cr_expect_eq(error.line, 0);
    cr_expect(strstr(error.reason, why), "%s: %s", path, error.reason);
}

Test(config_refused, files_that_cannot_be_read)
{
    char path[200];

    expect_unread("/nonexistent/reseat.conf", -ENOENT, "No such file");
    expect_unread(config_folder, -EINVAL, "is not a regular file");
    expect_unread("/dev/zero", -EINVAL, "is not a regular file");
    snprintf(path, sizeof(path), "%s/fifo", config_folder);
    cr_assert_eq(mkfifo(path, 0600), 0);
    expect_unread(path, -EINVAL, "is not a regular file");
    snprintf(path, sizeof(path), "%s/loop", config_folder);
    cr_assert_eq(symlink(path, path), 0);
    expect_unread(path, -ELOOP, "cannot be read");
    if (geteuid() != 0) {
        snprintf(path, sizeof(path), "%s", config_put("closed.conf", "", 0));
        cr_assert_eq(chmod(path, 0), 0);
        expect_unread(path, -EACCES, "Permission denied");
    }
    /* A link to a file is a file. */
    char target[200];
    snprintf(target, sizeof(target), "%s", config_put("good.conf", "policy = { gain = 99; };", 24));
    snprintf(path, sizeof(path), "%s/link.conf", config_folder);
    cr_assert_eq(symlink(target, path), 0);
    struct config_source source = {.path = path};
    struct config_error error;
    struct config config;
    cr_assert_eq(config_load(&source, &config, &error), 0);
    cr_expect_eq(config_policy(&config)->gain, 99);
    config_finish(&config);
}
