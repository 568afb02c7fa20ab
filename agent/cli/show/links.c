#include "agent/cli/show/reports.h"

#include <errno.h>
#include <sched.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/cli/launch.h"
#include "state/driver/cost.h"
#include "state/driver/device_key.h"
#include "state/driver/links.h"

static const uint64_t sizes[] = {1ull << 20, 64ull << 20, 1ull << 30};

struct link {
    const struct inventory_entry *entry;
    bool measured;
    uint64_t measured_s;
    struct link_figures figures;
    char problem[128]; /* why this measurement failed, or "" */
};

struct links_known {
    struct link *links;
    size_t count;
    bool host_measured;
    struct host_figures host;
};

/* ---- measuring ---- */

/* Measure one link. An error is stored as the link's problem. */
static void links_measure(const struct output *output, struct link *link, uint64_t limit_ms)
{
    char path[PATH_MAX], key[DEVICE_KEY_TEXT_MAX];
    const char *const words[] = {path, key, NULL};
    pid_t helper;
    int status = 0;
    int error = paths_of(PATHS_MEASURE, path);

    device_key_format(&link->entry->key, key);
    /* Standard output is for our answer only. */
    int errors = output->json ? -1 : STDERR_FILENO;
    if (!error)
        error = launch(words, errors, errors, POSIX_SPAWN_SETPGROUP, &helper);
    if (error)
        snprintf(link->problem, sizeof(link->problem), "reseat-measure cannot be started: %s",
                 strerror(-error));
    else if (!launch_await(helper, true, limit_ms, &status))
        snprintf(link->problem, sizeof(link->problem),
                 "not measured in %llu s: its driver may hang; see --timeout",
                 (unsigned long long)(limit_ms / 1000));
    else if (WIFSIGNALED(status))
        snprintf(link->problem, sizeof(link->problem), "reseat-measure crashed (%s)",
                 strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status))
        snprintf(link->problem, sizeof(link->problem), "reseat-measure failed");
}

/* ---- stored measurements ---- */

static int links_know(const struct output *output, const struct inventory *inventory,
                      uint64_t limit_ms, struct links_known *ret_known)
{
    struct links_known known = {.links = calloc(inventory->count, sizeof(*known.links)),
                                .count = inventory->count};
    struct links links = {""};

    if (!known.links)
        return -ENOMEM;
    if (paths_links(links.folder))
        links.folder[0] = '\0';
    for (size_t i = 0; i < known.count; i++) {
        struct link *link = &known.links[i];
        link->entry = &inventory->entries[i];
        if (limit_ms)
            links_measure(output, link, limit_ms);
        link->measured = links_find(&links, &link->entry->key, &link->entry->info, &link->figures,
                                    &link->measured_s) == 0;
    }
    known.host_measured = links_find_host(&links, &known.host, NULL) == 0;
    *ret_known = known;
    return 0;
}

static json_t *links_json_stage(const struct cost_stage *stage, bool measured)
{
    return measured ? json_pack("{sIsI}", "setup_ns", (json_int_t)(stage->setup * 1e9),
                                "bytes_per_s", (json_int_t)stage->bandwidth)
                    : json_null();
}

static json_t *links_json_link(const struct link *link)
{
    const struct link_figures *figures = &link->figures;
    const struct inventory_entry *entry = link->entry;
    bool measured = link->measured;

    return json_pack(
        "{s:o, s:o, s:b, s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "name", output_text(entry->name),
        "device", output_text(entry->key.device), "measured", (int)measured, "measured_s",
        measured ? json_integer((json_int_t)link->measured_s) : json_null(), "measured_ms",
        measured ? (json_int_t)link->measured_s * 1000 : (json_int_t)0, "problem",
        output_text(link->problem), "read", links_json_stage(&figures->read, measured), "write",
        links_json_stage(&figures->write, measured), "plain_read",
        links_json_stage(&figures->plain_read, measured), "plain_write",
        links_json_stage(&figures->plain_write, measured));
}

static bool links_has_link(const struct link *link)
{
    return link && !devinfo_scalar(&link->entry->info, CL_DEVICE_HOST_UNIFIED_MEMORY, 0);
}

/* The predicted transfer of @size bytes from one device to another; NULL stands for host memory. */
static json_t *links_json_way(const struct links_known *known, const struct link *from,
                              const struct link *to, uint64_t size)
{
    cpu_set_t set;
    unsigned cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
    const struct cost_way way = {.from = from ? &from->figures : NULL,
                                 .to = to ? &to->figures : NULL,
                                 .host = &known->host,
                                 .total = size,
                                 .cores = cores,
                                 .link = links_has_link(from) || links_has_link(to)};
    struct cost_choice choice;

    cost_route(&way, &choice);
    return json_pack("{s:o, s:o, s:I, s:b, s:I, s:i, s:i, s:I}", "from",
                     from ? output_text(from->entry->name) : json_null(), "to",
                     to ? output_text(to->entry->name) : json_null(), "bytes", (json_int_t)size,
                     "straight", (int)(choice.chunk == 0), "chunk_bytes", (json_int_t)choice.chunk,
                     "chunks", (int)choice.chunks, "threads", (int)choice.threads, "predicted_ns",
                     (json_int_t)(choice.seconds * 1e9));
}

static json_t *links_json_ways(const struct links_known *known)
{
    json_t *ways = json_array();

    for (size_t from = 0; known->host_measured && from <= known->count; from++) {
        for (size_t to = 0; to <= known->count; to++) {
            const struct link *source = from < known->count ? &known->links[from] : NULL;
            const struct link *target = to < known->count ? &known->links[to] : NULL;
            if (source == target || (source && !source->measured) || (target && !target->measured))
                continue;
            for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
                json_array_append_new(ways, links_json_way(known, source, target, sizes[i]));
        }
    }
    return ways;
}

/* ---- as text ---- */

static int links_print_text(const struct output *output, const struct links_known *known,
                            const json_t *object)
{
    static const struct table_column link_columns[] = {
        {"NAME", "{name}"},
        {"DEVICE", "{device}", TABLE_WRAP},
        {"READ GB/s", "{read.bytes_per_s:gb}", TABLE_RIGHT},
        {"WRITE GB/s", "{write.bytes_per_s:gb}", TABLE_RIGHT},
        {"PLAIN READ", "{plain_read.bytes_per_s:gb}", TABLE_RIGHT},
        {"PLAIN WRITE", "{plain_write.bytes_per_s:gb}", TABLE_RIGHT},
        {"SET-UP us", "{read.setup_ns:us}", TABLE_RIGHT},
        {"MEASURED", "{measured_ms:date}"},
        {NULL},
    };
    static const struct table_column way_columns[] = {
        {"FROM", "{from}[{!from}host memory]"},
        {"TO", "{to}[{!to}host memory]"},
        {"SIZE", "{bytes}", TABLE_RIGHT},
        {"CHUNK", "[{?straight}straight][{!straight}{chunk_bytes}]", TABLE_RIGHT},
        {"CHUNKS", "[{!straight}{chunks}]", TABLE_RIGHT},
        {"THREADS", "[{!straight}{threads}]", TABLE_RIGHT},
        {"PREDICTED", "{predicted_ns}", TABLE_RIGHT},
        {NULL},
    };
    struct words missing = {0};
    const json_t *ways = json_object_get(object, "ways");
    int status = table_print_list(json_object_get(object, "links"), link_columns);

    if (!status && json_array_size(ways)) {
        putchar('\n');
        status = table_print_list(ways, way_columns);
    }
    for (size_t i = 0; i < known->count; i++) {
        const struct link *link = &known->links[i];
        if (link->problem[0])
            output_note(output, "%s: %s", link->entry->name, link->problem);
        else if (!link->measured)
            words_add(&missing, "%s%s", missing.used ? ", " : "", link->entry->name);
    }
    if (missing.used)
        output_note(output,
                    "not measured yet: %s; a program's first large move does it, or --measure",
                    missing.text);
    return status;
}

int links_print(const struct output *output, const char *file, uint64_t limit_ms)
{
    struct inventory CLEANUP(inventory_finish) inventory = {0};
    struct links_known known = {0};
    int error = inventory_read(file, &inventory);

    if (!error)
        error = links_know(output, &inventory, limit_ms, &known);
    if (error) {
        return output_fail(output, ERR_FAILED, "the list of devices cannot be read: %s",
                           strerror(-error));
    }
    json_t *links = json_array();
    for (size_t i = 0; i < known.count; i++)
        json_array_append_new(links, links_json_link(&known.links[i]));
    bool measured = known.host_measured;
    json_auto_t *object = output_object(output, STATUS_DONE);
    json_object_update_new(
        object,
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "links", links, "copy",
                  links_json_stage(&known.host.copy, measured), "out",
                  links_json_stage(&known.host.out, measured), "fresh",
                  links_json_stage(&known.host.fresh, measured), "ring",
                  links_json_stage(&known.host.ring, measured), "hand_ns",
                  measured ? json_integer((json_int_t)(known.host.hand.setup * 1e9)) : json_null(),
                  "ways", links_json_ways(&known)));
    int status = output->json ? output_print(json_incref(object), STATUS_DONE)
                              : links_print_text(output, &known, object);
    free(known.links);
    return status;
}
