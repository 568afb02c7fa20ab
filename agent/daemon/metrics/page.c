#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/daemon/metrics/metrics_priv.h"
#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/operation.h"
#include "agent/daemon/power/power.h"
#include "agent/daemon/servers/servers.h"
#include "state/base/cleanup.h"
#include "state/server/exposition.h"

#define USERS_MAX 256 /* Of users with the most programs; the others are left out. */
#define MW        1000.0

/** What the programs of one user have. */
struct user_sum {
    uid_t uid;
    uint64_t programs, granted, held, busy_permil;
};

/** One answer to a scrape. */
struct page {
    struct exposition text;
    struct agent *agent;
    const struct peer *viewer;
    struct device_use *uses; /**< One for each device of the ledger. */
    struct user_sum *users;  /**< Those that the viewer may see. */
    size_t user_count;
};

/** A metric, and one of the ways in which its samples are written. */
struct page_metric {
    struct metric head;
    void (*put)(struct page *page);
    /** For each listed device: its value; NAN: it has none. */
    double (*device)(const struct page *page, uint32_t device);
    /** For each listed device: writes its samples. */
    void (*put_device)(const struct page *page, uint32_t device);
    /** Offsets of a uint64_t in struct metrics, ledger_device and user_sum. Not 0. */
    size_t number, ledger, user;
    double per; /**< How many of that number are one unit; 0: 1. */
    /** Offset of a histogram in struct metrics. */
    size_t histogram;
    /** Names of the labels of tallies of this kind. */
    const char *labels[3];
    enum tally_kind tallies;
};

/* ---- the agent ---- */

static void page_build_info(struct page *page)
{
    exposition_put_labelled(&page->text, "version", RESEAT_VERSION, 1);
}

static void page_start_time(struct page *page)
{
    exposition_put_one(&page->text, page->agent->metrics->counts.began_s);
}

static void page_connections(struct page *page)
{
    exposition_put_one(&page->text, page->agent->peer_count);
}

/* ---- devices ---- */

static const struct ledger_device *page_ledger(const struct page *page, uint32_t device)
{
    return &page->agent->ledger.devices[device];
}

static void page_device_info(const struct page *page, uint32_t device)
{
    const struct inventory_entry *entry = devices_entry(page->agent, device);

    if (entry)
        exposition_put(&page->text, "",
                       (struct label[3]){{"device", page_ledger(page, device)->name},
                                         {"kind", device_kind(&entry->info)},
                                         {"model", entry->key.device}},
                       1);
}

static double page_device_up(const struct page *page, uint32_t device)
{
    const struct inventory_entry *entry = devices_entry(page->agent, device);

    return entry && !entry->lost && !page_ledger(page, device)->lost;
}

static double page_device_closed(const struct page *page, uint32_t device)
{
    return ledger_closed(page_ledger(page, device));
}

static double page_device_programs(const struct page *page, uint32_t device)
{
    double count = 0;

    for (const struct program *program = page->agent->programs; program; program = program->next)
        for (size_t i = 0; i < program->vdev_count; i++)
            count += program->vdevs[i].entry.device == device;
    return count;
}

static double page_device_capacity(const struct page *page, uint32_t device)
{
    uint64_t bytes = ledger_capacity(page_ledger(page, device));

    return bytes < LEDGER_BYTES_MAX ? (double)bytes : NAN;
}

static double page_device_wanted(const struct page *page, uint32_t device)
{
    return (double)page->uses[device].wanted_bytes;
}

/** Of a value that a meter shows, or that is the sum of the programs. */
static void page_put_metered(const struct page *page, uint32_t device, const char *direction,
                             bool metered, double value)
{
    exposition_put(&page->text, "",
                   (struct label[3]){{"device", page_ledger(page, device)->name},
                                     {"source", metered ? "meter" : "programs"},
                                     {direction ? "direction" : NULL, direction}},
                   value);
}

static void page_device_busy(const struct page *page, uint32_t device)
{
    const struct device_use *use = &page->uses[device];

    page_put_metered(page, device, NULL, use->busy_metered, (double)use->busy_permil / 1000);
}

static void page_device_transfers(const struct page *page, uint32_t device)
{
    const struct device_use *use = &page->uses[device];

    page_put_metered(page, device, "from", use->transfers_metered, (double)use->from_bytes_s);
    page_put_metered(page, device, "to", use->transfers_metered, (double)use->to_bytes_s);
}

static double page_gauge(const struct page *page, uint32_t device, enum meter_gauge gauge)
{
    uint64_t value = page->uses[device].gauges.values[gauge];

    return value == METER_UNKNOWN ? NAN : (double)value;
}

static double page_device_temperature(const struct page *page, uint32_t device)
{
    return page_gauge(page, device, METER_TEMPERATURE);
}

static double page_device_clock(const struct page *page, uint32_t device)
{
    return page_gauge(page, device, METER_CLOCK) * 1e6;
}

static void page_device_power(const struct page *page, uint32_t device)
{
    bool modelled = power_is_modelled(page->agent, device);
    uint64_t mw;

    if (power_reading(page->agent, device, &mw))
        exposition_put(&page->text, "",
                       (struct label[3]){{"device", page_ledger(page, device)->name},
                                         {"source", modelled ? "model" : "meter"}},
                       (double)mw / MW);
}

static double page_device_cap(const struct page *page, uint32_t device)
{
    uint64_t cap_mw = page_ledger(page, device)->cap_mw;

    return cap_mw ? (double)cap_mw / MW : NAN;
}

/* ---- programs ---- */

static void page_programs(struct page *page)
{
    static const char *const states[] = {"starting",  "away",    "fenced",  "moving", "lost",
                                         "suspended", "waiting", "spilled", "running"};

    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        double count = 0;
        for (const struct program *one = page->agent->programs; one; one = one->next)
            count += strcmp(program_state(one), states[i]) == 0;
        exposition_put_labelled(&page->text, "state", states[i], count);
    }
}

/* ---- queues and operations ---- */

static void page_queue(struct page *page)
{
    double programs = 0;

    for (const struct program *program = page->agent->programs; program; program = program->next) {
        bool queues = false;
        for (size_t i = 0; i < program->vdev_count; i++)
            queues = queues || (program->vdevs[i].displaced && vdev_is_off(&program->vdevs[i]));
        programs += queues;
    }
    exposition_put_labelled(&page->text, "queue", "memory", (double)page->agent->governor->waiting);
    exposition_put_labelled(&page->text, "queue", "device", programs);
}

static void page_under_way(struct page *page)
{
    for (unsigned verb = 0; verb < REQUEST_VERBS; verb++) {
        double count = 0;
        for (const struct operation *op = page->agent->operations; op; op = op->next)
            count += op->verb == verb;
        exposition_put_labelled(&page->text, "operation", request_verbs[verb], count);
    }
}

static void page_put_tallies(const struct page *page, const struct page_metric *metric)
{
    const struct counts *counts = &page->agent->metrics->counts;

    for (unsigned i = 0; i < counts->tally_count; i++) {
        const struct tally *tally = &counts->tallies[i];
        if (tally_kind(tally) == metric->tallies)
            exposition_put(&page->text, "_total",
                           (struct label[3]){{metric->labels[0], tally->what},
                                             {metric->labels[1], tally->state},
                                             {metric->labels[2], tally->by}},
                           (double)tally->count);
    }
}

static void page_put_histogram(const struct page *page, const struct histogram *histogram)
{
    uint64_t count = 0;
    char bound[32];

    for (unsigned i = 0; i <= BUCKETS; i++) {
        count += histogram->counts[i];
        if (i < BUCKETS) /* A float, as OpenMetrics wants it. */
            (void)snprintf(bound, sizeof(bound), "%.3f", histogram_bounds[i]);
        exposition_put(&page->text, "_bucket",
                       (struct label[3]){{"le", i < BUCKETS ? bound : "+Inf"}}, (double)count);
    }
    exposition_put(&page->text, "_sum", NULL, histogram->sum_s);
    exposition_put(&page->text, "_count", NULL, (double)count);
}

/* ---- the table ---- */

static const struct page_metric metrics[] = {
    {{"reseat_build_info", "", "Always 1. The label is the version of the agent.", METRIC_GAUGE},
     page_build_info},
    {{"reseat_start_time_seconds", "seconds", "When the agent started, since 1970.", METRIC_GAUGE},
     page_start_time},
    {{"reseat_connections", "", "Connections of programs and commands.", METRIC_GAUGE},
     page_connections},
    {{"reseat_scrapers_dropped", "", "Scrapers that were refused, or that were too slow.",
      METRIC_COUNTER},
     .number = offsetof(struct metrics, dropped)},

    {{"reseat_device_info", "", "Always 1. The labels say which kind and model a device is.",
      METRIC_GAUGE},
     .put_device = page_device_info},
    {{"reseat_device_up", "", "1: the device can be used. 0: it is lost, or its server is.",
      METRIC_GAUGE},
     .device = page_device_up},
    {{"reseat_device_closed", "", "1: no new program may come, as it drains or is cordoned.",
      METRIC_GAUGE},
     .device = page_device_closed},
    {{"reseat_device_programs", "", "Virtual devices of programs that are on the device.",
      METRIC_GAUGE},
     .device = page_device_programs},
    {{"reseat_device_busy_ratio", "ratio",
      "Share of recent time in which the device was at work: what its meter shows, or the sum of "
      "its programs.",
      METRIC_GAUGE},
     .put_device = page_device_busy},
    {{"reseat_device_memory_capacity_bytes", "bytes", "Memory that programs may have.",
      METRIC_GAUGE},
     .device = page_device_capacity},
    {{"reseat_device_memory_granted_bytes", "bytes", "Memory that is granted to programs.",
      METRIC_GAUGE},
     .ledger = offsetof(struct ledger_device, reserved)},
    {{"reseat_device_memory_held_bytes", "bytes", "Memory that programs hold.", METRIC_GAUGE},
     .ledger = offsetof(struct ledger_device, held)},
    {{"reseat_device_memory_wanted_bytes", "bytes", "Memory that programs there would use.",
      METRIC_GAUGE},
     .device = page_device_wanted},
    {{"reseat_device_transfer_bytes_per_second", "",
      "Bytes transferred from the device and to it: what its meter shows, or the sum of its "
      "programs.",
      METRIC_GAUGE},
     .put_device = page_device_transfers},
    {{"reseat_device_power_watts", "watts",
      "Power that the device draws: what its meter shows, or computed from the load.",
      METRIC_GAUGE},
     .put_device = page_device_power},
    {{"reseat_device_power_cap_watts", "watts", "The power cap, where one is set.", METRIC_GAUGE},
     .device = page_device_cap},
    {{"reseat_device_temperature_celsius", "celsius", "Temperature, where a meter shows it.",
      METRIC_GAUGE},
     .device = page_device_temperature},
    {{"reseat_device_clock_hertz", "hertz", "Clock of the compute units, where a meter shows it.",
      METRIC_GAUGE},
     .device = page_device_clock},

    {{"reseat_programs", "", "Programs by state.", METRIC_GAUGE}, page_programs},
    {{"reseat_user_programs", "", "Programs of a user, for those who may see them.", METRIC_GAUGE},
     .user = offsetof(struct user_sum, programs)},
    {{"reseat_user_memory_granted_bytes", "bytes", "Device memory granted to a user's programs.",
      METRIC_GAUGE},
     .user = offsetof(struct user_sum, granted)},
    {{"reseat_user_memory_held_bytes", "bytes", "Device memory that a user's programs hold.",
      METRIC_GAUGE},
     .user = offsetof(struct user_sum, held)},
    {{"reseat_user_busy_ratio", "ratio",
      "The sum of the shares of devices that a user's programs use; 1 is one device.",
      METRIC_GAUGE},
     .user = offsetof(struct user_sum, busy_permil),
     .per = 1000},

    {{"reseat_queue_length", "",
      "Calls that wait for memory, and suspended programs that wait for a device.", METRIC_GAUGE},
     page_queue},
    {{"reseat_memory_waits", "", "Calls that have waited for memory.", METRIC_COUNTER},
     .number = offsetof(struct metrics, counts.waits)},
    {{"reseat_memory_wait_seconds", "seconds", "The time for which calls waited for memory.",
      METRIC_COUNTER},
     .number = offsetof(struct metrics, counts.waited_ms),
     .per = 1000},
    {{"reseat_operations_running", "", "Operations under way.", METRIC_GAUGE}, page_under_way},
    {{"reseat_operations", "",
      "Moves and other operations that ended, by result and by who asked: a command, the policy, "
      "or the program that needed it.",
      METRIC_COUNTER},
     .labels = {"operation", "result", "by"},
     .tallies = TALLY_OPERATION},
    {{"reseat_move_downtime_seconds", "seconds",
      "For how long moves, suspends and resumes stopped their programs.", METRIC_HISTOGRAM},
     .histogram = offsetof(struct metrics, counts.downtimes)},
    {{"reseat_move_duration_seconds", "seconds", "How long moves, suspends and resumes took.",
      METRIC_HISTOGRAM},
     .histogram = offsetof(struct metrics, counts.moves)},
    {{"reseat_move_copied_bytes", "bytes", "Bytes that moves, suspends and resumes copied.",
      METRIC_COUNTER},
     .number = offsetof(struct metrics, counts.copied_bytes)},
    {{"reseat_policy_decisions", "", "Decisions of the policy that were carried out.",
      METRIC_COUNTER},
     .labels = {NULL, "action"},
     .tallies = TALLY_POLICY},
    {{"reseat_program_events", "",
      "What happened to programs: connected, ended, lost-device, recovered and others.",
      METRIC_COUNTER},
     .labels = {NULL, "event"},
     .tallies = TALLY_PROGRAM},
    {{"reseat_device_events", "", "What happened to devices: lost, back, drain.", METRIC_COUNTER},
     .labels = {NULL, "event"},
     .tallies = TALLY_DEVICE},
};

static double page_number(const struct page_metric *metric, const void *of, size_t offset)
{
    const uint64_t *number = (const void *)((const char *)of + offset);

    return (double)*number / (metric->per > 0 ? metric->per : 1);
}

static void page_put_device(struct page *page, const struct page_metric *metric, uint32_t device)
{
    const struct ledger_device *own = page_ledger(page, device);

    if (metric->put_device)
        metric->put_device(page, device);
    else if (metric->device || metric->ledger)
        exposition_put_labelled(&page->text, "device", own->name,
                                metric->device ? metric->device(page, device)
                                               : page_number(metric, own, metric->ledger));
}

static void page_put_metric(struct page *page, const struct page_metric *metric)
{
    const struct metrics *numbers = page->agent->metrics;
    char uid[16];

    exposition_begin(&page->text, &metric->head);
    if (metric->put)
        metric->put(page);
    if (metric->number)
        exposition_put_one(&page->text, page_number(metric, numbers, metric->number));
    if (metric->histogram)
        page_put_histogram(page, (const void *)((const char *)numbers + metric->histogram));
    if (metric->labels[1])
        page_put_tallies(page, metric);
    for (uint32_t i = 0; i < page->agent->ledger.count; i++)
        if (page_ledger(page, i)->listed)
            page_put_device(page, metric, i);
    for (size_t i = 0; metric->user && i < page->user_count; i++) {
        (void)snprintf(uid, sizeof(uid), "%u", (unsigned)page->users[i].uid);
        exposition_put_labelled(&page->text, "user", uid,
                                page_number(metric, &page->users[i], metric->user));
    }
}

static void page_add_user(struct page *page, const struct program *program)
{
    struct user_sum *user = page->users;

    while (user < page->users + page->user_count && user->uid != program->uid)
        user++;
    if (user == page->users + USERS_MAX)
        return;
    if (user == page->users + page->user_count) {
        *user = (struct user_sum){.uid = program->uid};
        page->user_count++;
    }
    user->programs++;
    for (size_t i = 0; i < program->vdev_count; i++) {
        user->granted += ledger_reserved(&program->vdevs[i].entry);
        user->held += program->vdevs[i].entry.held;
    }
    for (uint32_t i = 0; i < page->agent->ledger.count; i++)
        user->busy_permil += utilisation_of_program(page->agent, program, i);
}

char *metrics_page(struct agent *agent, const struct peer *viewer, bool open, size_t *ret_size)
{
    CLEANUP(cleanup_free) struct device_use *uses = calloc(agent->ledger.count + 1, sizeof(*uses));
    CLEANUP(cleanup_free) struct user_sum *users = calloc(USERS_MAX, sizeof(*users));
    struct page page = {.agent = agent, .viewer = viewer, .uses = uses, .users = users};

    if (!uses || !users || exposition_init(&page.text, open))
        return NULL;
    for (uint32_t i = 0; i < agent->ledger.count; i++)
        uses[i] = utilisation_of_device(agent, i);
    for (const struct program *program = agent->programs; program; program = program->next)
        if (peer_sees(viewer, program->uid))
            page_add_user(&page, program);
    for (size_t i = 0; i < ARRAY_SIZE(metrics); i++)
        page_put_metric(&page, &metrics[i]);
    char *text = exposition_finish(&page.text);
    *ret_size = page.text.size;
    return text;
}
