#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/cmd.h"
#include "agent/doctor.h"
#include "agent/inventory.h"

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

static void check_inventory(const struct paths *paths)
{
    struct inventory inventory = {0};
    char path[PATH_MAX];
    int error = paths_join(paths->folder, "inventory", path);

    if (!error) {
        error = inventory_read(path, &inventory);
    }
    if (error) {
        printf("note  devices: not listed yet (%s); reseat devices does\n", strerror(-error));
    } else if (!inventory.count) {
        printf("note  devices: no OpenCL driver shows any; install one, such as pocl-opencl-icd\n");
    } else {
        printf("ok    devices: %zu in %s\n", inventory.count, path);
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
