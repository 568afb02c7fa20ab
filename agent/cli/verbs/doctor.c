#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/cli/image/process.h"
#include "agent/cli/show/reports.h"
#include "agent/cli/verb.h"
#include "agent/config/process.h"
#include "agent/doctor/doctor.h"
#include "state/base/cleanup.h"
#include "state/base/files/access.h"
#include "state/driver/icd.h"
#include "state/driver/served.h"

#define LIST_MS      30000
#define OFFERS_SHOWN 6

static bool doctor_line(FILE *to, bool good, const char *what, const char *detail,
                        const char *advice)
{
    fprintf(to, "%-5s %s: %s%s%s\n", good ? "ok" : "stop", what, detail, good ? "" : "; ",
            good ? "" : advice);
    return good;
}

static bool doctor_check_agent(FILE *to, const struct paths *paths)
{
    CLEANUP(client_close) struct client client = {.fd = -1};
    int error = client_connect(paths, &client);

    if (error == -ENOENT || error == -ECONNREFUSED) {
        fprintf(to, "note  agent: none runs; reseat run starts one\n");
        return true;
    }
    return doctor_line(to, !error, "agent",
                       error ? (client.problem[0] ? client.problem : strerror(-error))
                             : paths->socket,
                       "stop it with reseat agent stop, or look into agent.log beside its socket");
}

/** Find the inventory of this environment; without an agent, the last agent's. */
static int doctor_find_inventory(const struct paths *paths, char ret_path[PATH_MAX])
{
    CLEANUP(client_close) struct client client;
    CLEANUP(message_finish) struct message message = {.zone = NULL};
    struct frame frame;
    char own[PATH_MAX];

    frame_init(&frame, MSG_DEVICES);
    ask_put_environment(&frame);
    if (client_ask(paths, &frame, LIST_MS, &client, &message) != 1 ||
        !field_string(&message.root, "inventory", own, sizeof(own)) || !own[0])
        return paths_join(paths->folder, "inventory", ret_path);
    strcpy(ret_path, own);
    return 0;
}

/** Print what programs lose on their default device because they may move to the others. */
static void doctor_say_cost(FILE *to, const struct inventory *inventory)
{
    struct words names = {0}, devices = {0};
    struct presented presented;
    size_t extensions = 0, limits = 0;

    if (presented_build(inventory, 0, &presented))
        return;
    for (size_t i = 0; i < presented.reasons.count; i++) {
        const struct reason *reason = &presented.reasons.items[i];
        bool named = reason->kind == REASON_EXTENSION || reason->kind == REASON_FEATURE;
        if (reason->by[0] || (reason->rule != REASON_MISSING && reason->rule != REASON_LEAST &&
                              reason->rule != REASON_COMMON))
            continue;
        if (named && extensions++ < OFFERS_SHOWN)
            words_add(&names, "%s%s", names.used ? ", " : "", reason->name);
        limits += reason->kind == REASON_ANSWER;
    }
    for (size_t d = 1; d < presented.count && extensions + limits; d++) {
        bool costs = false;
        for (size_t i = 0; i < presented.reasons.count && !costs; i++) {
            const struct reason *reason = &presented.reasons.items[i];
            costs = reason->kind <= REASON_FEATURE && !reason->by[0] && reason->by[d];
        }
        if (costs)
            words_add(&devices, "%s%s", devices.used ? ", " : "", presented.devices[d]->name);
    }
    if (devices.used) {
        fprintf(
            to,
            "note  choice: because %s %s allowed, programs are not offered %zu extensions and "
            "features of %s (%s%s), and get %zu smaller limits. reseat devices --presented lists "
            "them; reseat run --profile native offers all, and the program then moves only to "
            "devices that have them\n",
            devices.text, strchr(devices.text, ',') ? "are" : "is", extensions,
            presented.devices[0]->name, names.used ? names.text : "none",
            extensions > OFFERS_SHOWN ? "..." : "", limits);
    }
    presented_finish(&presented);
}

/** Print which devices programs of this environment cannot use, as they lack the driver. */
static void doctor_say_missing(FILE *to, const struct inventory *inventory)
{
    struct icd_list drivers;

    if (icd_list_read(&drivers))
        return;
    for (size_t i = 0; i < inventory->count; i++) {
        const struct device_key *key = &inventory->entries[i].key;
        bool there = served_is_address(key->icd);
        for (size_t d = 0; d < drivers.count && !there; d++)
            there = strcmp(drivers.libraries[d], key->icd) == 0;
        if (!there)
            fprintf(to,
                    "note  drivers: %s needs %s, which no .icd file names here; programs started "
                    "here do not move there\n",
                    inventory->entries[i].name, key->icd);
    }
    icd_list_finish(&drivers);
}

/** @answers: false if the agent did not answer before, so that it is not waited for again. */
static void doctor_check_inventory(FILE *to, const struct paths *paths, bool answers)
{
    CLEANUP(inventory_finish) struct inventory inventory = {0};
    char path[PATH_MAX];
    int error =
        answers ? doctor_find_inventory(paths, path) : paths_join(paths->folder, "inventory", path);

    if (!error)
        error = inventory_read(path, &inventory);
    if (error) {
        fprintf(to, "note  devices: not listed yet (%s); reseat devices does\n", strerror(-error));
    } else if (!inventory.count) {
        fprintf(
            to,
            "note  devices: no OpenCL driver shows any; install one, such as pocl-opencl-icd\n");
    } else {
        fprintf(to, "ok    devices: %zu in %s\n", inventory.count, path);
        doctor_say_cost(to, &inventory);
        doctor_say_missing(to, &inventory);
    }
}

static bool doctor_check_vendors(FILE *to, const struct paths *paths, const char *library)
{
    char folder[PATH_MAX];
    const char *vendors = getenv("OCL_ICD_VENDORS");

    if (!paths_vendors(library, folder)) {
        fprintf(to, "ok    vendors folder: %s\n", folder);
    } else {
        fprintf(
            to,
            "note  vendors folder: none beside the library names it; reseat run makes one in %s\n",
            paths->folder);
    }
    if (vendors && access(vendors, R_OK))
        return doctor_line(to, false, "OCL_ICD_VENDORS", vendors,
                           "it is not there: unset the variable");
    return true;
}

/** Report a limit of the address space: drivers that run out of addresses do not say so. */
static void doctor_check_limit(FILE *to)
{
    uint64_t limit = process_address_limit();

    if (limit) {
        fprintf(to,
                "note  address space: limited to %llu MiB (ulimit -v); drivers that need more show "
                "no device, or fail, without reseat too\n",
                (unsigned long long)limit >> 20);
    }
}

/** True if this process has another namespace of this kind than the host's, whose number is fixed.
 */
static bool doctor_is_apart(const char *kind, unsigned hosts)
{
    char path[64];
    struct stat stat_now;

    snprintf(path, sizeof(path), "/proc/self/ns/%s", kind);
    return stat(path, &stat_now) == 0 && stat_now.st_ino != hosts;
}

/** Report what does not work in this container, if this is one. */
static bool doctor_check_container(FILE *to)
{
    /* include/linux/proc_ns.h */
    bool users = doctor_is_apart("user", 0xEFFFFFFD), pids = doctor_is_apart("pid", 0xEFFFFFFC);
    bool hosts = access(ACCESS_HOST_SOCKET, F_OK) == 0;

    if (!users && !pids)
        return true;
    if (!hosts && !getenv("RESEAT_SOCKET"))
        fprintf(to, "note  container: the host's agent is not here, and the host does not see "
                    "programs; mount " ACCESS_HOST_FOLDER "\n");
    if (hosts && !users && geteuid() == 0)
        fprintf(to, "note  container: root here is root to the host's agent, too; run programs as "
                    "a user\n");
    if (hosts && pids)
        fprintf(to, "note  container: processes have other numbers on the host; use names of "
                    "programs (reseat run --name)\n");
    return access_same_user(geteuid(), geteuid()) ||
           doctor_line(to, false, "container", "its user has the number of all users without one",
                       "run programs as another user");
}

/** Check CRIU. It is optional: only checkpoint --process needs it. */
static void doctor_check_criu(FILE *to)
{
    char path[PATH_MAX], problem[CRIU_PROBLEM_MAX];

    if (criu_find(NULL, path))
        fprintf(to, "note  images of processes: CRIU is not here; install criu for "
                    "reseat checkpoint --process\n");
    else if (criu_works(path, problem))
        fprintf(to, "ok    images of processes: %s\n", path);
    else
        fprintf(to,
                "note  images of processes: %s cannot keep any here%s: %s; other images need "
                "none\n",
                path, geteuid() != 0 ? ", where you are not root" : "", problem);
}

static bool doctor_check_setup(FILE *to)
{
    struct paths paths;
    char found[PATH_MAX];
    int error = paths_find(&paths);
    bool good =
        doctor_line(to, !error, "runtime folder", error ? paths.problem : paths.folder,
                    "it must be yours alone (mode 0700), and so must what is above it be yours or "
                    "root's; set XDG_RUNTIME_DIR to another");

    static const struct {
        const char *name;
        enum paths_file file;
    } files[] = {
        {"library", PATHS_LIBRARY}, {"reseatd", PATHS_AGENT}, {"reseat-lister", PATHS_LISTER}};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        bool there = !paths_of(files[i].file, found);
        good &=
            doctor_line(to, there, files[i].name, there ? found : "it is not beside this binary",
                        "reinstall reseat, so that its files lie beside each other");
    }
    char library[PATH_MAX];
    bool no_library = paths_of(PATHS_LIBRARY, library) != 0;
    if (!error) {
        bool answers = doctor_check_agent(to, &paths);
        doctor_check_inventory(to, &paths, answers);
        good &= answers;
        good &= no_library || doctor_check_vendors(to, &paths, library);
    }
    good &= server_looks(to);
    good &= doctor_check_container(to);
    doctor_check_criu(to);
    return good;
}

/* ---- as JSON ---- */

/** Add a line of the text report: one with a mark is a check, one without is the summary. */
static void doctor_add_line(json_t *checks, json_t *object, char *line, const char **ret_stop)
{
    static const char *const marks[] = {"ok", "note", "stop"};
    size_t length = strcspn(line, " ");

    for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
        if (strlen(marks[i]) != length || strncmp(marks[i], line, length) != 0)
            continue;
        const char *text = line + length + strspn(line + length, " ");
        json_array_append_new(
            checks, json_pack("{s:s, s:o}", "result", marks[i], "text", output_text(text)));
        *ret_stop = i == 2 && !*ret_stop ? text : *ret_stop;
        return;
    }
    if (line[0])
        json_object_set_new(object, "summary", output_text(line));
}

static int doctor_print_json(const struct output *output, char *text, const char *road, bool good)
{
    json_t *object = output_object(output, good ? STATUS_DONE : STATUS_ROLLED_BACK);
    json_t *checks = json_array();
    const char *stop = NULL;

    for (char *line = strsep(&text, "\n"); line; line = strsep(&text, "\n"))
        doctor_add_line(checks, object, line, &stop);
    json_object_set_new(object, "checks", checks);
    json_object_set_new(object, "road", road ? json_string(road) : json_null());
    if (!good)
        output_add_error(object, ERR_FAILED, stop ? stop : "something is broken");
    return output_print(object, good ? STATUS_DONE : STATUS_ROLLED_BACK);
}

static int doctor_run_look(const struct output *output, char **command, FILE *to,
                           enum road *ret_road)
{
    char library[PATH_MAX];
    int error =
        doctor_program(command, paths_of(PATHS_LIBRARY, library) ? NULL : library, to, ret_road);

    if (error == -ENOENT) {
        return output_fail(output, ERR_NO_APP,
                           "%s is not a program that can be found; give its path", command[0]);
    }
    return error ? output_fail(output, ERR_FAILED, "%s cannot be looked at: %s", command[0],
                               strerror(-error))
                 : 0;
}

static int doctor_run(struct call *call)
{
    static const char *const roads[] = {"unknown", "preload", "icd", "none"};
    const struct output *output = &call->output;
    CLEANUP(cleanup_free) char *text = NULL;
    enum road road = ROAD_UNKNOWN;
    size_t size;

    FILE *to = output->json ? open_memstream(&text, &size) : stdout;
    if (!to)
        return output_fail(output, ERR_FAILED, "there is not enough memory");
    bool setup = !call->count;
    bool good = setup ? doctor_check_setup(to) : true;
    int status = setup ? 0 : doctor_run_look(output, call->words, to, &road);
    doctor_check_limit(to);
    good = good && road != ROAD_NONE;
    if (output->json && fclose(to))
        return output_fail(output, ERR_FAILED, "there is not enough memory");
    if (!output->json && output_done())
        return STATUS_ROLLED_BACK;
    if (status)
        return status;
    if (output->json)
        return doctor_print_json(output, text, setup ? NULL : roads[road], good);
    return good ? STATUS_DONE : STATUS_ROLLED_BACK;
}

const struct verb verb_doctor = {
    .name = "doctor",
    .arguments = "[PROGRAM] [ARG...]",
    .summary = "Check the installation, or how a program reaches OpenCL.",
    .text = "It also says what would prevent moves. PROGRAM is not run; of a script, the "
            "interpreter is checked. Exit status 1: something is broken.",
    .run = doctor_run,
};
