#include "agent/cli/show/reports.h"

#include <inttypes.h>
#include <math.h>

static const char *const names[PUBLISHED_SCHEDULERS] = {
    [PUBLISHED_ALONE] = "GPU alone",
    [PUBLISHED_RULE] = "paper's rule",
    [PUBLISHED_FASTEST] = "reseat, time",
    [PUBLISHED_NO_LOSS] = "reseat, energy at no loss",
    [PUBLISHED_CLOCKS] = "reseat, and a lower clock",
};

#define RIGHT(title)                                                                               \
    {                                                                                              \
        title, .flags = TABLE_RIGHT                                                                \
    }

struct percent {
    char text[16];
};

/* A percentage; "" if the paper has none or none was computed. */
static struct percent published_report_percent(double percent)
{
    struct percent ret = {""};

    if (!isnan(percent))
        snprintf(ret.text, sizeof(ret.text), "%+.1f %%", percent);
    return ret;
}

/* Add a line: @first (some cells), and the changes. */
static void published_report_change(struct table *table, const char *first,
                                    const struct published_change *change)
{
    table_add_line(table, "%s\t%s\t%s\t%s\t%s\t%s", first,
                   published_report_percent(change->throughput).text,
                   published_report_percent(change->power).text,
                   published_report_percent(change->per_watt).text,
                   published_report_percent(change->energy).text,
                   published_report_percent(change->bound).text);
}

/* The paper's changes, and the energy that its throughput per watt implies. */
static struct published_change published_report_paper(const struct published_claim *claim)
{
    return (struct published_change){.throughput = claim->throughput,
                                     .power = claim->power,
                                     .per_watt = claim->per_watt,
                                     .energy = 100 * (1 / (1 + claim->per_watt / 100) - 1),
                                     .bound = NAN};
}

/* The bound holds for schedules as fast as the GPUs alone: hide it for others. */
static struct published_change published_report_computed(const struct published_change *change,
                                                         unsigned scheduler)
{
    struct published_change shown = *change;

    if (scheduler != PUBLISHED_NO_LOSS)
        shown.bound = NAN;
    return shown;
}

static int published_report_networks(const struct published_all *all)
{
    static const struct table_column columns[] = {
        {""},           {"SCHEDULER"},     RIGHT("SAMPLES/S"), RIGHT("W"),     RIGHT("THROUGHPUT"),
        RIGHT("POWER"), RIGHT("PER WATT"), RIGHT("ENERGY"),    RIGHT("BOUND"), {NULL}};
    static const struct published_change none = {NAN, NAN, NAN, NAN, NAN};
    struct table *table = table_create(columns);
    char first[128];

    for (size_t n = 0; n <= PUBLISHED_NETWORKS; n++) {
        bool one = n < PUBLISHED_NETWORKS;
        struct published_change paper = published_report_paper(&published_claims[PUBLISHED_THREE]);
        if (one)
            paper = (struct published_change){NAN, published_networks[n].power, NAN, NAN, NAN};
        snprintf(first, sizeof(first), "%s\tpaper\t\t",
                 one ? published_networks[n].name : "average");
        published_report_change(table, first, &paper);
        for (unsigned s = one ? PUBLISHED_ALONE : PUBLISHED_ALONE + 1; s < PUBLISHED_CLOCKS; s++) {
            struct published_change change =
                published_report_computed(&all->changes[PUBLISHED_THREE][n][s], s);
            const struct published_result *result = &all->free[PUBLISHED_THREE][n][s];
            if (one)
                snprintf(first, sizeof(first), "\t%s\t%.*f\t%.0f", names[s],
                         result->samples_s < 100, result->samples_s,
                         result->joules / result->seconds);
            else
                snprintf(first, sizeof(first), "\t%s\t\t", names[s]);
            published_report_change(table, first, s == PUBLISHED_ALONE ? &none : &change);
        }
    }
    return table_print(table);
}

static int published_report_configurations(const struct published_all *all)
{
    static const struct table_column columns[] = {
        {"GPUS+FPGAS"},    {"SCHEDULER"},   RIGHT("THROUGHPUT"), RIGHT("POWER"),
        RIGHT("PER WATT"), RIGHT("ENERGY"), RIGHT("BOUND"),      {NULL}};
    struct table *table = table_create(columns);
    char first[128];

    for (size_t c = 0; c < PUBLISHED_CONFIGURATIONS; c++) {
        const struct published_claim *claim = &published_claims[c];
        struct published_change change = published_report_paper(claim);
        snprintf(first, sizeof(first), "%u+%u\tpaper (%s)", claim->gpus, claim->fpgas, claim->from);
        published_report_change(table, first, &change);
        for (unsigned s = PUBLISHED_ALONE + 1; s < PUBLISHED_CLOCKS; s++) {
            change = published_report_computed(&all->changes[c][PUBLISHED_NETWORKS][s], s);
            snprintf(first, sizeof(first), "\t%s", names[s]);
            published_report_change(table, first, &change);
        }
    }
    return table_print(table);
}

/* Add the line of a scheduler under a cap: means and sums over the networks. */
static void published_report_cap(struct table *table, const struct published_all *all, size_t c,
                                 unsigned s)
{
    double ratio = 0, watts = 0, highest = 0;
    uint64_t violations = 0, samples = 0;
    bool refused = false;
    char first[64];

    for (size_t n = 0; n < PUBLISHED_NETWORKS; n++) {
        const struct published_result *result = &all->capped[c][n][s];
        refused |= result->samples_s <= 0;
        ratio += result->samples_s / all->capped[c][n][PUBLISHED_ALONE].samples_s;
        watts += result->joules / result->seconds;
        highest = fmax(highest, result->highest_w);
        violations += result->violations;
        samples += result->samples_taken;
    }
    snprintf(first, sizeof(first), "%.0f W\tGPU alone, vendor's management", published_caps[c]);
    if (s)
        snprintf(first, sizeof(first), "\t%s", names[s]);
    if (refused)
        table_add_line(table, "%s\trefused\t-\tneeds %.1f\t-\t-", first, highest);
    else
        table_add_line(table, "%s\t%.3f\t%.0f\t%.1f\t%" PRIu64 "\t%" PRIu64, first,
                       ratio / PUBLISHED_NETWORKS, watts / PUBLISHED_NETWORKS, highest, violations,
                       samples);
}

static int published_report_caps(const struct published_all *all)
{
    static const struct table_column columns[] = {
        RIGHT("CAP"),       {"SCHEDULER"},       RIGHT("THROUGHPUT"), RIGHT("MEAN W"),
        RIGHT("HIGHEST W"), RIGHT("VIOLATIONS"), RIGHT("OF SAMPLES"), {NULL}};
    struct table *table = table_create(columns);

    for (size_t c = 0; c < PUBLISHED_CAPS; c++)
        for (unsigned s = 0; s < PUBLISHED_SCHEDULERS; s++)
            if (s != PUBLISHED_NO_LOSS)
                published_report_cap(table, all, c, s);
    return table_print(table);
}

static int published_report_table3(const struct published_all *all)
{
    static const struct table_column columns[] = {{"230 W"},
                                                  RIGHT("GPU ALONE"),
                                                  RIGHT("PAPER"),
                                                  RIGHT("RATIO"),
                                                  RIGHT("PAPER'S RULE"),
                                                  RIGHT("RESEAT"),
                                                  RIGHT("RESEAT, LOWER CLOCK"),
                                                  {NULL}};
    static const unsigned schedulers[] = {PUBLISHED_RULE, PUBLISHED_FASTEST, PUBLISHED_CLOCKS};
    struct table *table = table_create(columns);

    for (size_t n = 0; n < PUBLISHED_NETWORKS; n++) {
        const struct published_network *network = &published_networks[n];
        const struct published_result *results = all->capped[PUBLISHED_TABLE3][n];
        double alone = results[PUBLISHED_ALONE].samples_s;
        char ratios[ARRAY_SIZE(schedulers)][16];
        for (size_t i = 0; i < ARRAY_SIZE(schedulers); i++) {
            double ratio = results[schedulers[i]].samples_s / alone;
            snprintf(ratios[i], sizeof(ratios[i]), ratio > 0 ? "%.3f" : "refused", ratio);
        }
        table_add_line(table, "%s\t%.0f\t%u\t%.3f\t%s\t%s\t%s", network->name, alone,
                       network->capped_fpga, (double)network->capped_fpga / network->capped_gpu,
                       ratios[0], ratios[1], ratios[2]);
    }
    return table_print(table);
}

static int published_report_assumed(const struct published_options *options,
                                    const struct published_all *all)
{
    static const struct table_column columns[] = {{"ASSUMED"},     RIGHT("VALUE"),
                                                  RIGHT("OTHER"),  RIGHT("RULE: THROUGHPUT"),
                                                  RIGHT("ENERGY"), RIGHT("RESEAT: THROUGHPUT"),
                                                  RIGHT("ENERGY"), RIGHT("BOUND"),
                                                  {NULL}};
    struct table *table = table_create(columns);

    for (size_t a = 0; a < PUBLISHED_ASSUMPTIONS; a++) {
        const struct published_assumed *assumed = &published_assumed[a];
        const struct published_change *rule = &all->others[a][PUBLISHED_RULE];
        const struct published_change *ours = &all->others[a][PUBLISHED_NO_LOSS];
        if (isnan(assumed->other))
            table_add_line(table, "%s\t%g\t\t\t\t\t\t", assumed->name, options->value[a]);
        else
            table_add_line(table, "%s\t%g\t%g\t%s\t%s\t%s\t%s\t%s", assumed->name,
                           options->value[a], assumed->other,
                           published_report_percent(rule->throughput).text,
                           published_report_percent(rule->energy).text,
                           published_report_percent(ours->throughput).text,
                           published_report_percent(ours->energy).text,
                           published_report_percent(ours->bound).text);
    }
    int status = table_print(table);
    if (status)
        return status;
    putchar('\n');
    for (size_t a = 0; a < PUBLISHED_ASSUMPTIONS; a++) {
        const struct published_assumed *assumed = &published_assumed[a];
        struct words words = {0};
        words_add(&words, "%s (%s): %s.", assumed->name, assumed->unit, assumed->why);
        say_wrapped(stdout, 0, 2, words.text);
    }
    for (const char *const *text = published_fixed; *text; text++)
        say_wrapped(stdout, 0, 2, *text);
    return STATUS_DONE;
}

int published_report_print(const struct published_options *options, const struct published_all *all)
{
    static const struct {
        const char *note;
        int (*print)(const struct published_all *all);
    } parts[] = {
        {"One GPU with three FPGAs, compared with the GPU alone. The paper's \"44.3 % "
         "energy reduction\" is throughput per watt (PER WATT); it is 30.7 % less energy "
         "a sample (ENERGY). BOUND: the least energy a sample that any schedule takes "
         "that is as fast as the GPU alone.",
         published_report_networks},
        {"All configurations, on average of the six networks, compared with as many GPUs alone.",
         published_report_configurations},
        {"Power caps, one GPU with three FPGAs: throughput in parts of the GPU alone under the "
         "vendor's power management; of all networks the highest power at any time, with every "
         "running launch at its peak, and the samples above the cap. The paper counts 0 for its "
         "rule, and up to 127459 (Vgg16, 250 W) and 306811 (Resnet50, 210 W) for the vendor's.",
         published_report_caps},
        {"Table 3, samples a second: the GPU alone is an input here; the paper's figure with three "
         "FPGAs, its ratio to the GPU alone, and the ratios that come out.",
         published_report_table3},
    };
    int status = 0;

    for (size_t i = 0; i < ARRAY_SIZE(parts) && !status; i++) {
        say_wrapped(stdout, 0, 0, parts[i].note);
        putchar('\n');
        status = parts[i].print(all);
        putchar('\n');
    }
    if (status)
        return status;
    say_wrapped(stdout, 0, 0,
                "What is assumed, each for all tables, and what comes out for one GPU with three "
                "FPGAs with one other value: for the paper's rule, and for reseat's energy at no "
                "loss. --assume NAME=VALUE sets it.");
    putchar('\n');
    status = published_report_assumed(options, all);
    return status ? status : output_done();
}

/* ---- JSON ---- */

static json_t *published_report_run(const char *network, unsigned gpus, unsigned fpgas,
                                    unsigned scheduler, double cap_w, unsigned batch,
                                    const struct published_result *result)
{
    double samples = batch * gpus;
    json_t *run =
        json_pack("{s:s, s:i, s:i, s:s, s:f, s:f, s:f}", "network", network, "gpus", (int)gpus,
                  "fpgas", scheduler ? (int)fpgas : 0, "scheduler", names[scheduler],
                  "samples_per_second", result->samples_s, "watts",
                  result->joules / result->seconds, "joules_per_sample", result->joules / samples);

    if (cap_w > 0) {
        json_object_set_new(run, "cap_watts", json_real(cap_w));
        json_object_set_new(run, "violations", json_integer((json_int_t)result->violations));
        json_object_set_new(run, "power_samples", json_integer((json_int_t)result->samples_taken));
    }
    json_object_set_new(run, "highest_watts", json_real(result->highest_w));
    if (result->bound_j > 0)
        json_object_set_new(run, "bound_joules_per_sample", json_real(result->bound_j / samples));
    return run;
}

json_t *published_report_json(const struct published_options *options,
                              const struct published_all *all)
{
    json_t *runs = json_array(), *assumed = json_object();

    for (size_t n = 0; n < PUBLISHED_NETWORKS; n++) {
        const struct published_network *network = &published_networks[n];
        for (size_t c = 0; c < PUBLISHED_CONFIGURATIONS; c++)
            for (unsigned s = 0; s < PUBLISHED_CLOCKS; s++)
                json_array_append_new(runs,
                                      published_report_run(network->name, published_claims[c].gpus,
                                                           published_claims[c].fpgas, s, 0,
                                                           network->batch, &all->free[c][n][s]));
        for (size_t c = 0; c < PUBLISHED_CAPS; c++)
            for (unsigned s = 0; s < PUBLISHED_SCHEDULERS; s++)
                if (all->capped[c][n][s].samples_s > 0)
                    json_array_append_new(
                        runs, published_report_run(network->name, 1, 3, s, published_caps[c],
                                                   network->batch, &all->capped[c][n][s]));
    }
    for (size_t a = 0; a < PUBLISHED_ASSUMPTIONS; a++)
        json_object_set_new(assumed, published_assumed[a].name, json_real(options->value[a]));
    return json_pack("{s:o, s:o}", "assumed", assumed, "runs", runs);
}
