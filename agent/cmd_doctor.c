#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/cleanup.h"
#include "agent/cmd.h"
#include "agent/doctor.h"
#include "agent/inventory.h"

static bool line(FILE *to, bool good, const char *what, const char *detail, const char *advice)
{
    fprintf(to, "%-5s %s: %s%s%s\n", good ? "ok" : "stop", what, detail, good ? "" : "; ",
            good ? "" : advice);
    return good;
}

static bool check_agent(FILE *to, const struct paths *paths)
{
    struct client client = {.fd = -1};
    int error = client_connect(paths, &client);

    client_close(&client);
    if (error == -ENOENT || error == -ECONNREFUSED) {
        fprintf(to, "note  agent: none runs; reseat run starts one\n");
        return true;
    }
    return line(to, !error, "agent",
                error ? (client.problem[0] ? client.problem : strerror(-error)) : paths->socket,
                "stop it with reseat agent stop, or look into agent.log beside its socket");
}

static void check_inventory(FILE *to, const struct paths *paths)
{
    struct inventory inventory = {0};
    char path[PATH_MAX];
    int error = paths_join(paths->folder, "inventory", path);

    if (!error) {
        error = inventory_read(path, &inventory);
    }
    if (error) {
        fprintf(to, "note  devices: not listed yet (%s); reseat devices does\n", strerror(-error));
    } else if (!inventory.count) {
        fprintf(
            to,
            "note  devices: no OpenCL driver shows any; install one, such as pocl-opencl-icd\n");
    } else {
        fprintf(to, "ok    devices: %zu in %s\n", inventory.count, path);
    }
    inventory_finish(&inventory);
}

static bool check_vendors(FILE *to, const struct paths *paths)
{
    char file[PATH_MAX];
    const char *vendors = getenv("OCL_ICD_VENDORS");

    if (paths_join(paths->folder, "vendors/reseat.icd", file) || access(file, R_OK)) {
        fprintf(to, "note  vendors folder: not made yet; reseat run makes it\n");
    } else {
        fprintf(to, "ok    vendors folder: %s\n", file);
    }
    if (vendors && access(vendors, R_OK)) {
        return line(to, false, "OCL_ICD_VENDORS", vendors, "it is not there: unset the variable");
    }
    return true;
}

static bool check_setup(FILE *to)
{
    struct paths paths;
    char found[PATH_MAX];
    int error = paths_find(&paths);
    bool good = line(to, !error, "runtime folder", error ? strerror(-error) : paths.folder,
                     "it must be yours alone (mode 0700); set XDG_RUNTIME_DIR to another");

    const char *advice = "reinstall reseat, so that its files lie beside each other";
    good &= line(to, !paths_library(found), "library",
                 paths_library(found) ? "libreseat.so is not beside this binary" : found, advice);
    good &= line(to, !paths_agent(found), "reseatd",
                 paths_agent(found) ? "it is not beside this binary" : found, advice);
    good &= line(to, !paths_lister(found), "reseat-lister",
                 paths_lister(found) ? "it is not beside this binary" : found, advice);
    if (!error) {
        good &= check_agent(to, &paths);
        check_inventory(to, &paths);
        good &= check_vendors(to, &paths);
    }
    return good;
}

/* ---- as JSON ---- */

/** A line that begins with a mark is a check; one without sums up. */
static void add_line(json_t *checks, json_t *object, char *line, const char **ret_stop)
{
    static const char *const marks[] = {"ok", "note", "stop"};
    size_t length = strcspn(line, " ");

    for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
        if (strlen(marks[i]) != length || strncmp(marks[i], line, length) != 0) {
            continue;
        }
        const char *text = line + length + strspn(line + length, " ");
        json_array_append_new(
            checks, json_pack("{s:s, s:o}", "result", marks[i], "text", output_text(text)));
        *ret_stop = i == 2 && !*ret_stop ? text : *ret_stop;
        return;
    }
    if (line[0]) {
        json_object_set_new(object, "summary", output_text(line));
    }
}

static int print_json(const struct output *output, char *text, const char *road, bool good)
{
    json_t *object = output_object(output, good ? STATUS_DONE : STATUS_ROLLED_BACK);
    json_t *checks = json_array();
    const char *stop = NULL;

    for (char *line = strsep(&text, "\n"); line; line = strsep(&text, "\n")) {
        add_line(checks, object, line, &stop);
    }
    json_object_set_new(object, "checks", checks);
    json_object_set_new(object, "road", road ? json_string(road) : json_null());
    if (!good) {
        json_object_set_new(object, "error",
                            json_pack("{s:s, s:o}", "code", ERR_FAILED, "message",
                                      output_text(stop ? stop : "something is broken")));
    }
    return output_print(object, good ? STATUS_DONE : STATUS_ROLLED_BACK);
}

static int look(const struct output *output, char **command, FILE *to, enum road *ret_road)
{
    char library[PATH_MAX];
    int error = doctor_program(command, paths_library(library) ? NULL : library, to, ret_road);

    if (error == -ENOENT) {
        return output_fail(output, ERR_NO_APP,
                           "%s is not a program that can be found; give its path", command[0]);
    }
    return error ? output_fail(output, ERR_FAILED, "%s cannot be looked at: %s", command[0],
                               strerror(-error))
                 : 0;
}

int cmd_doctor(int argc, char **argv)
{
    static const char *const roads[] = {"unknown", "preload", "icd", "none"};
    struct output output;
    CLEANUP(cleanup_free) char *text = NULL;
    enum road road = ROAD_UNKNOWN;
    size_t size;
    int first = 1;

    output_init(&output, "doctor", 0, NULL);
    while (first < argc && argv[first][0] == '-' && strcmp(argv[first], "--")) {
        output.json = output.json || strcmp(argv[first], "--json") == 0;
        if (strcmp(argv[first], "--json")) {
            return output_usage(&output, "option %s is unknown", argv[first]);
        }
        first++;
    }
    first += first < argc && strcmp(argv[first], "--") == 0;
    FILE *to = output.json ? open_memstream(&text, &size) : stdout;
    if (!to) {
        return output_fail(&output, ERR_FAILED, "no memory");
    }
    bool setup = argc == first;
    bool good = setup ? check_setup(to) : true;
    int status = setup ? 0 : look(&output, argv + first, to, &road);
    good = good && road != ROAD_NONE && !fflush(to);
    if (output.json && fclose(to)) {
        return STATUS_ROLLED_BACK;
    }
    if (status) {
        return status;
    }
    if (output.json) {
        return print_json(&output, text, setup ? NULL : roads[road], good);
    }
    return good ? STATUS_DONE : STATUS_ROLLED_BACK;
}
