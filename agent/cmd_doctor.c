#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/cmd.h"
#include "agent/doctor.h"
#include "agent/inventory.h"
#include "agent/told.h"

#define LIST_MS   30000
#define NAMES_MAX 6

static bool line(bool good, const char *what, const char *detail, const char *advice)
{
    printf("%-5s %s: %s%s%s\n", good ? "ok" : "stop", what, detail, good ? "" : "; ",
           good ? "" : advice);
    return good;
}

static bool check_agent(const struct paths *paths)
{
    struct client client = {.fd = -1};
    int error = client_connect(paths, &client);

    client_close(&client);
    if (error == -ENOENT || error == -ECONNREFUSED) {
        printf("note  agent: none runs; reseat run starts one\n");
        return true;
    }
    return line(!error, "agent",
                error ? (client.problem[0] ? client.problem : strerror(-error)) : paths->socket,
                "stop it with reseat agent stop, or look into agent.log beside its socket");
}

/** Where the list is of what this environment shows; without an agent, what the last one left. */
static int find_inventory(const struct paths *paths, char ret_path[PATH_MAX])
{
    struct client client = {.fd = -1};
    struct message message;
    struct frame frame;
    int error = paths_join(paths->folder, "inventory", ret_path);

    if (!error && client_connect(paths, &client) == 0) {
        frame_init(&frame, MSG_DEVICES);
        cmd_put_environment(&frame);
        if (client_send(&client, &frame) == 0 &&
            client_receive(&client, LIST_MS, -1, &message) == 1) {
            char own[PATH_MAX] = "";
            if (field_string(&message.root, "inventory", own, sizeof(own)) && own[0]) {
                strcpy(ret_path, own);
            }
            message_finish(&message);
        }
    }
    client_close(&client);
    return error;
}

/** What the device that programs start on by default has and others have not. */
static void say_cost(const struct inventory *inventory)
{
    struct words names = {0}, devices = {0};
    struct told told;
    size_t extensions = 0, limits = 0;

    if (told_build(inventory, 0, &told)) {
        return;
    }
    for (size_t i = 0; i < told.reasons.count; i++) {
        const struct reason *reason = &told.reasons.items[i];
        bool named = reason->kind == REASON_EXTENSION || reason->kind == REASON_FEATURE;
        if (reason->by[0] || (reason->rule != REASON_MISSING && reason->rule != REASON_LEAST &&
                              reason->rule != REASON_COMMON)) {
            continue;
        }
        if (named && extensions++ < NAMES_MAX) {
            words_add(&names, "%s%s", names.used ? ", " : "", reason->name);
        }
        limits += reason->kind == REASON_ANSWER;
    }
    for (size_t d = 1; d < told.count && extensions + limits; d++) {
        bool costs = false;
        for (size_t i = 0; i < told.reasons.count && !costs; i++) {
            const struct reason *reason = &told.reasons.items[i];
            costs = reason->kind <= REASON_FEATURE && !reason->by[0] && reason->by[d];
        }
        if (costs) {
            words_add(&devices, "%s%s", devices.used ? ", " : "", told.devices[d]->name);
        }
    }
    if (devices.used) {
        printf(
            "note  choice: that programs may go to %s costs them, of what %s has, %zu extensions "
            "and features (%s%s) and %zu limits; reseat devices --presented tells which, and "
            "--profile native leaves them on what is like it\n",
            devices.text, told.devices[0]->name, extensions, names.used ? names.text : "none",
            extensions > NAMES_MAX ? "..." : "", limits);
    }
    told_finish(&told);
}

static void check_inventory(const struct paths *paths)
{
    struct inventory inventory = {0};
    char path[PATH_MAX];
    int error = find_inventory(paths, path);

    if (!error) {
        error = inventory_read(path, &inventory);
    }
    if (error) {
        printf("note  devices: not listed yet (%s); reseat devices does\n", strerror(-error));
    } else if (!inventory.count) {
        printf("note  devices: no OpenCL driver shows any; install one, such as pocl-opencl-icd\n");
    } else {
        printf("ok    devices: %zu in %s\n", inventory.count, path);
        say_cost(&inventory);
    }
    inventory_finish(&inventory);
}

static bool check_vendors(const struct paths *paths, const char *library)
{
    char folder[PATH_MAX];
    const char *vendors = getenv("OCL_ICD_VENDORS");

    if (!paths_vendors(library, folder)) {
        printf("ok    vendors folder: %s\n", folder);
    } else {
        printf(
            "note  vendors folder: none beside the library names it; reseat run makes one in %s\n",
            paths->folder);
    }
    if (vendors && access(vendors, R_OK)) {
        return line(false, "OCL_ICD_VENDORS", vendors, "it is not there: unset the variable");
    }
    return true;
}

static int check_setup(void)
{
    struct paths paths;
    char found[PATH_MAX];
    int error = paths_find(&paths);
    bool good = line(!error, "runtime folder", error ? paths.problem : paths.folder,
                     "it must be yours alone (mode 0700), and so must what is above it be yours or "
                     "root's; set XDG_RUNTIME_DIR to another");

    const char *advice = "reinstall reseat, so that its files lie beside each other";
    char library[PATH_MAX];
    bool no_library = paths_library(library) != 0;
    good &= line(!no_library, "library",
                 no_library ? "libreseat.so is not beside this binary" : library, advice);
    good &= line(!paths_agent(found), "reseatd",
                 paths_agent(found) ? "it is not beside this binary" : found, advice);
    good &= line(!paths_lister(found), "reseat-lister",
                 paths_lister(found) ? "it is not beside this binary" : found, advice);
    if (!error) {
        good &= check_agent(&paths);
        check_inventory(&paths);
        good &= no_library || check_vendors(&paths, library);
    }
    return good && !fflush(stdout) ? STATUS_DONE : STATUS_ROLLED_BACK;
}

int cmd_doctor(int argc, char **argv)
{
    struct output output;
    char library[PATH_MAX];
    enum road road = ROAD_NONE;

    output_init(&output, "doctor", 0, NULL);
    if (argc > 1 && argv[1][0] == '-' && strcmp(argv[1], "--")) {
        return output_usage(&output, "option %s is unknown", argv[1]);
    }
    int first = argc > 1 && strcmp(argv[1], "--") == 0 ? 2 : 1;
    if (argc == first) {
        return check_setup();
    }
    int error =
        doctor_program(argv + first, paths_library(library) ? NULL : library, stdout, &road);
    if (error == -ENOENT) {
        return output_fail(&output, ERR_NO_APP,
                           "%s is not a program that can be found; give its path", argv[first]);
    }
    if (error) {
        return output_fail(&output, ERR_FAILED, "%s cannot be looked at: %s", argv[first],
                           strerror(-error));
    }
    return road != ROAD_NONE && !fflush(stdout) ? STATUS_DONE : STATUS_ROLLED_BACK;
}
