#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/base/files/file.h"
#include "stream/area.h"
#include "stream/service/service.h"

/* The folders of kernels, and what `reseat stream list` shows. */

#define SUFFIX ".stream"
/* Over how long the rate of a stream is measured. */
#define RATE_NS (200 * NS_PER_MS)

static int kernels_read(const char *folder, const char *name, const char *suffix, char **ret_text)
{
    char path[PATH_MAX];
    size_t size;
    if (snprintf(path, sizeof(path), "%s/%s%s", folder, name, suffix) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    CLEANUP(cleanup_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int error = fd < 0 ? -errno : file_load(fd, STREAM_FRAME_MAX, ret_text, &size);
    if (!error && strlen(*ret_text) != size) {
        free(*ret_text);
        error = -EINVAL;
    }
    return error;
}

int kernels_find(const struct service *service, const char *name, char **ret_description,
                 char **ret_source, char ret_problem[STREAM_PROBLEM_MAX])
{
    int error = -ENOENT;
    if (!stream_name_is_valid(name)) {
        snprintf(ret_problem, STREAM_PROBLEM_MAX, "not the name of a kernel");
        return -EINVAL;
    }
    for (size_t i = 0; error == -ENOENT && i < service->folder_count; i++)
        error = kernels_read(service->folders[i], name, SUFFIX, ret_description);
    if (error) {
        snprintf(ret_problem, STREAM_PROBLEM_MAX,
                 "there is no kernel \"%s\"%s%s: reseat stream list names those that there are; "
                 "reseat stream serve --kernels adds a folder",
                 name, error == -ENOENT ? "" : ", ", error == -ENOENT ? "" : strerror(-error));
        return error;
    }
    error = -ENOENT;
    for (size_t i = 0; error == -ENOENT && i < service->folder_count; i++)
        error = kernels_read(service->folders[i], name, ".cl", ret_source);
    if (error) {
        snprintf(ret_problem, STREAM_PROBLEM_MAX, "%s.cl is not beside %s" SUFFIX ": %s", name,
                 name, strerror(-error));
        free(*ret_description);
    }
    return error;
}

/* ---- listing ---- */

static json_t *kernels_list_describe(const char *name, const char *folder)
{
    struct stream_description description;
    char problem[STREAM_PROBLEM_MAX];
    CLEANUP(cleanup_free) char *text = NULL;
    if (kernels_read(folder, name, SUFFIX, &text))
        return NULL;
    if (stream_description_parse(text, &description, problem))
        return json_pack("{s:s, s:s, s:s}", "name", name, "folder", folder, "problem", problem);
    json_t *constants = json_array();
    for (uint32_t i = 0; i < description.count; i++)
        json_array_append_new(constants,
                              json_pack("{s:s, s:I}", "name", description.constants[i].name,
                                        "bytes", (json_int_t)description.constants[i].bytes));
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:o}", "name", name, "folder", folder, "input",
                     (json_int_t)description.input, "output", (json_int_t)description.output,
                     "items", (json_int_t)description.items, "constants", constants);
}

static void kernels_list_add_folder(json_t *kernels, const char *folder)
{
    DIR *listed = opendir(folder);
    struct dirent *entry;
    while (listed && (entry = readdir(listed))) {
        char name[STREAM_NAME_MAX];
        size_t length = strlen(entry->d_name), end = strlen(SUFFIX);
        if (length <= end || length - end >= sizeof(name) ||
            strcmp(entry->d_name + length - end, SUFFIX) != 0)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)(length - end), entry->d_name);
        if (stream_name_is_valid(name))
            json_array_append_new(kernels, kernels_list_describe(name, folder));
    }
    if (listed)
        closedir(listed);
}

/* The header of a stream's area, mapped from its process; NULL: it has ended. */
static const struct stream_area_header *kernels_list_map(const struct service_slot *slot)
{
    char path[64];
    int area = atomic_load(&slot->area);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)atomic_load(&slot->pid), area);
    CLEANUP(cleanup_close) int fd = area ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *header =
        fd < 0 ? MAP_FAILED : mmap(NULL, STREAM_AREA_HEADER, PROT_READ, MAP_SHARED, fd, 0);
    return header == MAP_FAILED ? NULL : header;
}

static json_t *kernels_list_numbers(const _Atomic uint32_t *numbers)
{
    json_t *list = json_array();
    for (size_t i = 0; i < STREAM_STAGES; i++)
        json_array_append_new(list, json_integer(atomic_load(&numbers[i])));
    return list;
}

static json_t *kernels_list_stream(const struct service_slot *slot,
                                   const struct stream_area_header *header,
                                   uint64_t answered_before)
{
    uint64_t answered = atomic_load(&header->answered);
    double rate = (double)(answered - answered_before) * NS_PER_S / RATE_NS;
    return json_pack("{s:s, s:s, s:s, s:i, s:b, s:I, s:I, s:I, s:f, s:o, s:o}", "program",
                     slot->program, "kernel", slot->kernel, "client", slot->peer, "pid",
                     (int)atomic_load(&slot->pid), "shared", slot->shared, "sent",
                     (json_int_t)atomic_load(&header->sent), "answered", (json_int_t)answered,
                     "taken", (json_int_t)atomic_load(&header->taken), "records_s", rate,
                     "payloads", kernels_list_numbers(header->payloads), "depths",
                     kernels_list_numbers(header->depths));
}

static json_t *kernels_list_streams(const struct service_table *table)
{
    json_t *streams = json_array();
    const struct stream_area_header **headers = calloc(table->count, sizeof(*headers));
    uint64_t *answered = calloc(table->count, sizeof(*answered));
    bool any = false;
    for (unsigned i = 0; headers && answered && i < table->count; i++) {
        headers[i] = kernels_list_map(&table->slots[i]);
        answered[i] = headers[i] ? atomic_load(&headers[i]->answered) : 0;
        any = any || headers[i];
    }
    if (any)
        clock_sleep(RATE_NS);
    for (unsigned i = 0; any && i < table->count; i++)
        if (headers[i]) {
            json_array_append_new(streams,
                                  kernels_list_stream(&table->slots[i], headers[i], answered[i]));
            munmap((void *)headers[i], STREAM_AREA_HEADER);
        }
    free(headers);
    free(answered);
    return streams;
}

char *kernels_list(const struct service *service)
{
    json_t *kernels = json_array();
    for (size_t i = 0; i < service->folder_count; i++)
        kernels_list_add_folder(kernels, service->folders[i]);
    json_auto_t *all = json_pack("{s:o, s:o}", "kernels", kernels, "streams",
                                 kernels_list_streams(service->table));
    return json_dumps(all, JSON_COMPACT);
}
