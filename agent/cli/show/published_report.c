#include "agent/cli/show/published_report.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>

static const char *const names[PUBLISHED_SCHEDULERS] = {
    [PUBLISHED_ALONE] = "GPU alone",
    [PUBLISHED_RULE] = "paper's rule",
    [PUBLISHED_FASTEST] = "reseat, time",
    [PUBLISHED_NO_LOSS] = "reseat, energy at no loss",
    [PUBLISHED_CLOCKS] = "reseat, and a lower clock",
};

static const struct table_column change_columns[] = {
    {""},
    {"SCHEDULER"},
    {"SAMPLES/S", .right = true},
    {"W", .right = true},
    {"THROUGHPUT", .right = true},
    {"POWER", .right = true},
    {"PER WATT", .right = true},
    {"ENERGY", .right = true},
    {"BOUND", .right = true},
};

static void published_report_put(struct table *table, size_t column, const char *format, ...)
    PRINTF(3, 4);

static void published_report_put(struct table *table, size_t column, const char *format, ...)
{
    char text[64];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    table_put(table, column, text);
}

/* Put a percentage; " " if the paper has none or none was computed. */
static void published_report_percent(struct table *table, size_t column, double percent)
{
    if (isnan(percent))
        table_put(table, column, " ");
    else
        published_report_put(table, column, "%+.1f %%", percent);
}

static void published_report_change(struct table *table, const char *title, const char *scheduler,
                                    const struct published_result *result,
                                    const struct published_change *change)
{
    table_add(table, NULL);
    table_put(table, 0, title);
    table_put(table, 1, scheduler);
    published_report_put(table, 2, result ? "%.*f" : " ", result && result->samples_s < 100,
                         result ? result->samples_s : 0);
    published_report_put(table, 3, result ? "%.0f" : " ",
                         result ? result->joules / result->seconds : 0);
    const double values[] = {change->throughput, change->power, change->per_watt, change->energy,
                             change->bound};
    for (size_t i = 0; i < ARRAY_SIZE(values); i++)
        published_report_percent(table, 4 + i, values[i]);
}

/*
 * The changes that the paper prints, and the energy that follows from throughput per watt, which is
 * samples per joule.
 */
static struct published_change published_report_paper(const struct published_claim *claim)
{
    return (struct published_change){.throughput = claim->throughput,
                                     .power = claim->power,
                                     .per_watt = claim->per_watt,
                                     .energy = 100 * (1 / (1 + claim->per_watt / 100) - 1),
                                     .bound = NAN};
}

/*
 * The bound is on the energy of schedules that are as fast as the GPUs alone: hide it for others.
 */
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
    struct table *table = table_create(change_columns, ARRAY_SIZE(change_columns));

    for (size_t n = 0; n <= PUBLISHED_NETWORKS; n++) {
        const char *name = n < PUBLISHED_NETWORKS ? published_networks[n].name : "average";
        struct published_change paper = published_report_paper(&published_claims[PUBLISHED_THREE]);
        if (n < PUBLISHED_NETWORKS)
            paper = (struct published_change){NAN, published_networks[n].power, NAN, NAN, NAN};
        published_report_change(table, name, "paper", NULL, &paper);
        for (unsigned s = PUBLISHED_ALONE; s < PUBLISHED_CLOCKS; s++) {
            struct published_change change =
                published_report_computed(&all->changes[PUBLISHED_THREE][n][s], s);
            if (s == PUBLISHED_ALONE && n == PUBLISHED_NETWORKS)
                continue;
            if (s == PUBLISHED_ALONE)
                change = (struct published_change){NAN, NAN, NAN, NAN, NAN};
            published_report_change(
                table, " ", names[s],
                n < PUBLISHED_NETWORKS ? &all->free[PUBLISHED_THREE][n][s] : NULL, &change);
        }
    }
    return table_print(table);
}

static int published_report_configurations(const struct published_all *all)
{
    static const struct table_column columns[] = {
        {"GPUS+FPGAS"},
        {"SCHEDULER"},
        {"THROUGHPUT", .right = true},
        {"POWER", .right = true},
        {"PER WATT", .right = true},
        {"ENERGY", .right = true},
        {"BOUND", .right = true},
    };
    struct table *table = table_create(columns, ARRAY_SIZE(columns));

    for (size_t c = 0; c < PUBLISHED_CONFIGURATIONS; c++) {
        const struct published_claim *claim = &published_claims[c];
        for (unsigned s = PUBLISHED_ALONE; s < PUBLISHED_CLOCKS; s++) {
            struct published_change change =
                s ? published_report_computed(&all->changes[c][PUBLISHED_NETWORKS][s], s)
                  : published_report_paper(claim);
            const double values[] = {change.throughput, change.power, change.per_watt,
                                     change.energy, change.bound};
            table_add(table, NULL);
            published_report_put(table, 0, s ? " " : "%u+%u", claim->gpus, claim->fpgas);
            published_report_put(table, 1, s ? "%s" : "paper (%s)", s ? names[s] : claim->from);
            for (size_t i = 0; i < ARRAY_SIZE(values); i++)
                published_report_percent(table, 2 + i, values[i]);
        }
    }
    return table_print(table);
}

static int published_report_caps(const struct published_all *all)
{
    static const struct table_column columns[] = {
        {"CAP", .right = true},        {"SCHEDULER"},
        {"THROUGHPUT", .right = true}, {"MEAN W", .right = true},
        {"HIGHEST W", .right = true},  {"VIOLATIONS", .right = true},
        {"OF SAMPLES", .right = true},
    };
    struct table *table = table_create(columns, ARRAY_SIZE(columns));

    for (size_t c = 0; c < PUBLISHED_CAPS; c++) {
        for (unsigned s = 0; s < PUBLISHED_SCHEDULERS; s++) {
            double ratio = 0, watts = 0, highest = 0;
            uint64_t violations = 0, samples = 0;
            bool refused = false;
            if (s == PUBLISHED_NO_LOSS)
                continue;
            for (size_t n = 0; n < PUBLISHED_NETWORKS; n++) {
                const struct published_result *result = &all->capped[c][n][s];
                refused |= result->samples_s <= 0;
                ratio += result->samples_s / all->capped[c][n][PUBLISHED_ALONE].samples_s;
                watts += result->joules / result->seconds;
                highest = fmax(highest, result->highest_w);
                violations += result->violations;
                samples += result->samples_taken;
            }
            table_add(table, NULL);
            published_report_put(table, 0, s ? " " : "%.0f W", published_caps[c]);
            table_put(table, 1, s ? names[s] : "GPU alone, vendor's management");
            if (refused) {
                published_report_put(table, 2, "refused");
                published_report_put(table, 4, "needs %.1f", highest);
                continue;
            }
            published_report_put(table, 2, "%.3f", ratio / PUBLISHED_NETWORKS);
            published_report_put(table, 3, "%.0f", watts / PUBLISHED_NETWORKS);
            published_report_put(table, 4, "%.1f", highest);
            published_report_put(table, 5, "%" PRIu64, violations);
            published_report_put(table, 6, "%" PRIu64, samples);
        }
    }
    return table_print(table);
}

static int published_report_table3(const struct published_all *all)
{
    static const struct table_column columns[] = {
        {"230 W"},
        {"GPU ALONE", .right = true},
        {"PAPER", .right = true},
        {"RATIO", .right = true},
        {"PAPER'S RULE", .right = true},
        {"RESEAT", .right = true},
        {"RESEAT, LOWER CLOCK", .right = true},
    };
    static const unsigned schedulers[] = {PUBLISHED_RULE, PUBLISHED_FASTEST, PUBLISHED_CLOCKS};
    struct table *table = table_create(columns, ARRAY_SIZE(columns));

    for (size_t n = 0; n < PUBLISHED_NETWORKS; n++) {
        const struct published_network *network = &published_networks[n];
        const struct published_result *results = all->capped[PUBLISHED_TABLE3][n];
        table_add(table, NULL);
        table_put(table, 0, network->name);
        published_report_put(table, 1, "%.0f", results[PUBLISHED_ALONE].samples_s);
        published_report_put(table, 2, "%u", network->capped_fpga);
        published_report_put(table, 3, "%.3f", (double)network->capped_fpga / network->capped_gpu);
        for (size_t i = 0; i < ARRAY_SIZE(schedulers); i++) {
            double ratio = results[schedulers[i]].samples_s / results[PUBLISHED_ALONE].samples_s;
            published_report_put(table, 4 + i, ratio > 0 ? "%.3f" : "refused", ratio);
        }
    }
    return table_print(table);
}

static int published_report_assumed(const struct published_options *options,
                                    const struct published_all *all)
{
    static const struct table_column columns[] = {
        {"ASSUMED"},
        {"VALUE", .right = true},
        {"OTHER", .right = true},
        {"RULE: THROUGHPUT", .right = true},
        {"ENERGY", .right = true},
        {"RESEAT: THROUGHPUT", .right = true},
        {"ENERGY", .right = true},
        {"BOUND", .right = true},
    };
    struct table *table = table_create(columns, ARRAY_SIZE(columns));

    for (size_t a = 0; a < PUBLISHED_ASSUMPTIONS; a++) {
        const struct published_assumed *assumed = &published_assumed[a];
        const struct published_change *changes = all->others[a];
        table_add(table, NULL);
        table_put(table, 0, assumed->name);
        published_report_put(table, 1, "%g", options->value[a]);
        if (isnan(assumed->other)) {
            for (size_t i = 2; i < ARRAY_SIZE(columns); i++)
                table_put(table, i, " ");
            continue;
        }
        published_report_put(table, 2, "%g", assumed->other);
        published_report_percent(table, 3, changes[PUBLISHED_RULE].throughput);
        published_report_percent(table, 4, changes[PUBLISHED_RULE].energy);
        published_report_percent(table, 5, changes[PUBLISHED_NO_LOSS].throughput);
        published_report_percent(table, 6, changes[PUBLISHED_NO_LOSS].energy);
        published_report_percent(table, 7, changes[PUBLISHED_NO_LOSS].bound);
    }
    int status = table_print(table);
    if (status)
        return status;
    putchar('\n');
    for (size_t a = 0; a < PUBLISHED_ASSUMPTIONS; a++) {
        const struct published_assumed *assumed = &published_assumed[a];
        struct words words = {0};
        words_add(&words, "%s (%s): %s.", assumed->name, assumed->unit, assumed->why);
        output_wrapped(stdout, OUTPUT_COLUMNS, 0, 2, words.text);
    }
    for (const char *const *text = published_fixed; *text; text++)
        output_wrapped(stdout, OUTPUT_COLUMNS, 0, 2, *text);
    return STATUS_DONE;
}

static void published_report_note(const char *text)
{
    putchar('\n');
    output_wrapped(stdout, OUTPUT_COLUMNS, 0, 0, text);
    putchar('\n');
}

int published_report_print(const struct published_options *options, const struct published_all *all)
{
    output_wrapped(stdout, OUTPUT_COLUMNS, 0, 0,
                   "One GPU with three FPGAs, compared with the GPU alone. The paper's \"44.3 % "
                   "energy reduction\" is throughput per watt (PER WATT); it is 30.7 % less energy "
                   "a sample (ENERGY). BOUND: the least energy a sample that any schedule takes "
                   "that is as fast as the GPU alone.");
    putchar('\n');
    int status = published_report_networks(all);
    if (status)
        return status;
    published_report_note("All configurations, on average of the six networks, compared with as "
                          "many GPUs alone.");
    status = published_report_configurations(all);
    if (status)
        return status;
    published_report_note(
        "Power caps, one GPU with three FPGAs: throughput in parts of the GPU alone under the "
        "vendor's power management; of all networks the highest power at any time, with every "
        "running launch at its peak, and the samples above the cap. The paper counts 0 for its "
        "rule, and up to 127459 (Vgg16, 250 W) and 306811 (Resnet50, 210 W) for the vendor's.");
    status = published_report_caps(all);
    if (status)
        return status;
    published_report_note("Table 3, samples a second: the GPU alone is an input here; the "
                          "paper's figure with three FPGAs, its ratio to the GPU alone, and the "
                          "ratios that come out.");
    status = published_report_table3(all);
    if (status)
        return status;
    published_report_note("What is assumed, each for all tables, and what comes out for one GPU "
                          "with three FPGAs with one other value: for the paper's rule, and for "
                          "reseat's energy at no loss. --assume NAME=VALUE sets it.");
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

int published_report_json(const struct published_options *options, const struct published_all *all,
                          json_t *object)
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
    return json_object_set_new(object, "assumed", assumed) ||
                   json_object_set_new(object, "runs", runs)
               ? -ENOMEM
               : 0;
}
