#include "tests/support/cases.h"
#include <jansson.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/agent/harness.h"

/* reseat doctor, on programs made for it. tests/interpose/entry/test_roads.c goes the roads that it
 * names. */

TestSuite(doctor, .init = harness_init, .fini = harness_finish, .timeout = 60);

static const char *built(const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", getenv("TEST_FOLDER"), name);
    return path;
}

Test(doctor, names_the_road)
{
    harness_says(RESEAT("doctor", built("doctor_opens")), 0, "can be moved: it takes road ICD");
    struct result *result = harness_says(RESEAT("doctor", built("doctor_linked")), 0,
                                         "can be moved: it takes road preload");
    cr_assert(strstr(result->out, "all 1 OpenCL functions"), "%s", result->out);
    harness_says(RESEAT("doctor", built("doctor_plain")), 0, "no sign of OpenCL");
    cr_assert_eq(RESEAT("doctor", "/nonexistent")->status, 3);
}

Test(doctor, names_what_stops_it)
{
    struct result *result = RESEAT("doctor", built("doctor_uncovered"));
    char path[128];

    cr_assert_eq(result->status, 1);
    cr_assert(strstr(result->out, "clFinish"), "%s", result->out);
    result = harness_ends(RESEAT("doctor", built("doctor_static")), 1);
    cr_assert(strstr(result->out, "statically"), "%s", result->out);

    snprintf(path, sizeof(path), "%s/setuid", harness_folder());
    harness_run("cp", built("doctor_linked"), path, NULL);
    cr_assert_eq(chmod(path, 04755), 0);
    result = harness_ends(RESEAT("doctor", path), 1);
    cr_assert(strstr(result->out, "set-user-id"), "%s", result->out);

    snprintf(path, sizeof(path), "%s/script", harness_folder());
    FILE *file = fopen(path, "w");
    fprintf(file, "#!/usr/bin/env -S %s\n", built("doctor_static"));
    fclose(file);
    chmod(path, 0755);
    result = RESEAT("doctor", path);
    cr_assert(strstr(result->out, "is a script"), "%s", result->out);
    cr_assert_eq(result->status, 1);
    harness_write(path, "neither\n");
    cr_assert_eq(RESEAT("doctor", path)->status, 1);
}

Test(doctor, checks_the_setup)
{
    cr_assert_eq(RESEAT("doctor")->status, 0);
    setenv("RESEAT_LIBRARY", "/nonexistent", 1);
    struct result *result = harness_ends(RESEAT("doctor"), 1);
    cr_assert(strstr(result->out, "stop  library"), "%s", result->out);
}

/* The sanitizer reserves more. */
#ifndef __SANITIZE_ADDRESS__
Test(doctor, says_that_the_address_space_is_limited)
{
    struct result *result = RESEAT("doctor");
    const struct rlimit limit = {(rlim_t)3 << 30, (rlim_t)3 << 30};
    const struct rlimit cramped = {(rlim_t)1 << 29, (rlim_t)3 << 30};

    cr_assert_not(strstr(result->out, "address space"), "%s", result->out);
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    harness_says(RESEAT("doctor"), 0, "note  address space: limited to 3072 MiB");
    result = RESEAT("doctor", "true");
    cr_assert(strstr(result->out, "note  address space"), "%s", result->out);
    cr_assert_str_eq(RESEAT("run", "true")->err, "");
    cr_assert_eq(setrlimit(RLIMIT_AS, &cramped), 0);
    result = harness_ends(RESEAT("run", "true"), 0);
    cr_assert(strstr(result->err, "limited to 512 MiB"), "%s", result->err);
}
#endif

/** The first check that says @mark; NULL: none does. Borrowed from @object. */
static const char *check_of(json_t *object, const char *mark)
{
    return json_string_value(
        json_object_get(harness_find(object, "checks", "result", mark), "text"));
}

static json_t *doctor_json(struct result *result, int status)
{
    cr_assert_eq(result->status, status);
    return harness_json(result, "doctor");
}

Test(doctor, says_it_as_json)
{
    json_t *object = doctor_json(RESEAT("doctor", "--json"), 0);

    cr_assert(strstr(check_of(object, "ok"), "runtime folder: "));
    cr_assert_null(check_of(object, "stop"));
    cr_assert(json_is_null(json_object_get(object, "road")));
    object = doctor_json(RESEAT("doctor", "--json", "--", "true", "--json"), 0);
    cr_assert_str_eq(harness_text(object, "road"), "unknown");
    cr_assert(strstr(harness_text(object, "summary"), "no sign of OpenCL"));
    doctor_json(RESEAT("doctor", "--json", "/nonexistent"), 3);
    setenv("RESEAT_LIBRARY", "/nonexistent", 1);
    object = doctor_json(RESEAT("doctor", "--json"), 1);
    cr_assert(strstr(check_of(object, "stop"), "library: "));
}

static const char *inside(const char *name)
{
    static char paths[8][512];
    static unsigned next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof(paths[0]), "%s/%s", harness_folder(), name);
    return path;
}

/** A file in the test's folder, executable. */
static const char *write_file(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static const char *write_file(const char *name, const char *format, ...)
{
    const char *path = inside(name);
    FILE *file = fopen(path, "w");
    va_list arguments;

    cr_assert(file);
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    cr_assert_eq(fclose(file), 0);
    cr_assert_eq(chmod(path, 0755), 0);
    return path;
}

static void expect(const struct result *result, int status, const char *line)
{
    cr_expect_eq(result->status, status, "%s%s", result->out, result->err);
    cr_expect(strstr(result->out, line), "no \"%s\" in: %s", line, result->out);
}

Test(doctor, a_linked_program_with_a_loader_of_its_own_takes_preload)
{
    const char *program = inside("program"), *loader = inside("private/libOpenCL.so.1");

    harness_run("cp", built("doctor_private"), program, NULL);
    cr_assert_eq(mkdir(inside("private"), 0755), 0);
    harness_run("sh", "-c",
                "cp \"$(ldconfig -p | sed -n 's/.*libOpenCL.so.1 .*=> //p' | head -1)\" \"$1\"",
                "sh", loader, NULL);
    struct result *result = RESEAT("doctor", program);
    expect(result, 0, "takes road preload");
    expect(result, 0, "a loader of its own: ");
    expect(result, 0, "which reads OCL_ICD_VENDORS");
    /* One that reads no variable. */
    harness_run("cp", built("doctor_module.so"), loader, NULL);
    expect(RESEAT("doctor", program), 0, "which does not read OCL_ICD_VENDORS");
}

Test(doctor, a_static_or_set_uid_program_is_told_what_to_do)
{
    expect(RESEAT("doctor", built("doctor_static")), 1, "link it dynamically");
    harness_run("cp", built("doctor_linked"), inside("setuid"), NULL);
    cr_assert_eq(chmod(inside("setuid"), 04755), 0);
    expect(RESEAT("doctor", inside("setuid")), 1, "run a copy without that bit");
    const char *script = write_file("script", "#!/bin/sh\nexec %s\n", built("doctor_linked"));
    cr_assert_eq(chmod(script, 04755), 0);
    expect(RESEAT("doctor", script), 0, "has no effect");
}

Test(doctor, a_script_says_that_what_it_starts_is_not_looked_at)
{
    const char *script = write_file("script", "#!/bin/sh\nexec %s\n", built("doctor_linked"));
    expect(RESEAT("doctor", script), 0, "what it starts or imports is not looked at");
    expect(RESEAT("doctor", script), 0, "programs that it runs");
    expect(RESEAT("doctor", write_file("by_script", "#!%s\n", script)), 0, "run by /bin/sh");
    expect(RESEAT("doctor", write_file("by_itself", "#!%s\n", inside("by_itself"))), 0,
           "no sign of OpenCL");
    expect(RESEAT("doctor", write_file("gone", "#!/nonexistent/python3\nimport os\n")), 1,
           "interpreter is not there");
}
