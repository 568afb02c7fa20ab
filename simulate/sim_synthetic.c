#include <errno.h>
#include <string.h>

#include "simulate/sim_csv.h"
#include "simulate/sim_random.h"

/* Generates a synthetic trace. Each program is drawn from its number alone. */

#define HOUR_MS  3600000ull
#define TEXT_MAX 512

enum stream { ARRIVE = 1, WORK, BYTES, SHARE, CLASS, LATE };

struct recipe {
    uint64_t devices, programs, hours;
    uint64_t load;        /**< Work asked for, in percent of what all devices could do. */
    uint64_t best_effort; /**< Percent of the programs. */
    uint64_t late;        /**< Percent of the nodes that are added while it runs. */
    uint64_t node;        /**< Devices per node. */
    uint64_t host;        /**< GiB of host memory of a node, for each of its devices. */
    uint32_t parts[SIM_MODELS_MAX];
    uint32_t parts_total;
};

/* "T4*6+A10*2": parts of the devices. */
static int sim_synthetic_read_mix(const struct sim_models *models, const char *text,
                                  struct recipe *recipe, char *ret_error)
{
    memset(recipe->parts, 0, sizeof(recipe->parts));
    recipe->parts_total = 0;
    for (const char *at = text;; at++) {
        size_t whole = strcspn(at, "+"), name = strcspn(at, "*+");
        uint32_t model = sim_models_find(models, at, name);
        char digits[16];
        uint64_t part = 1;
        if (model == SIM_NONE) {
            snprintf(ret_error, SIM_ERROR,
                     "mix: model \"%.*s\" is not in the table of models (%s); see --models",
                     (int)(name < 40 ? name : 40), at, models->from);
            return -EINVAL;
        }
        if (name < whole) {
            snprintf(digits, sizeof(digits), "%.*s", (int)(whole - name - 1), at + name + 1);
            if (whole - name > sizeof(digits) || !sim_parse(digits, 0, 1000, &part) || !part) {
                snprintf(ret_error, SIM_ERROR, "mix: \"%.*s\" is not MODEL*N with N from 1 to 1000",
                         (int)(whole < 60 ? whole : 60), at);
                return -EINVAL;
            }
        }
        recipe->parts[model] += (uint32_t)part;
        recipe->parts_total += (uint32_t)part;
        at += whole;
        if (!*at)
            return 0;
    }
}

static int sim_synthetic_read_pair(const struct sim_models *models, char *pair,
                                   struct recipe *recipe, char *ret_error)
{
    const struct {
        const char *key;
        uint64_t least, most;
        uint64_t *value;
    } keys[] = {
        {"devices", 1, SIM_DEVICES_MAX, &recipe->devices},
        {"programs", 1, SIM_PROGRAMS_MAX, &recipe->programs},
        {"hours", 1, 87600, &recipe->hours},
        {"load", 1, 1000, &recipe->load},
        {"best-effort", 0, 100, &recipe->best_effort},
        {"late", 0, 100, &recipe->late},
        {"node", 1, SIM_NODE_MAX, &recipe->node},
        {"host", 0, 4096, &recipe->host},
    };
    char *value = strchr(pair, '=');
    uint64_t number;

    if (!value) {
        snprintf(ret_error, SIM_ERROR, "synthetic: \"%.60s\" is not key=value", pair);
        return -EINVAL;
    }
    *value++ = '\0';
    if (strcmp(pair, "mix") == 0)
        return sim_synthetic_read_mix(models, value, recipe, ret_error);
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        if (strcmp(pair, keys[i].key))
            continue;
        if (!sim_parse(value, 0, keys[i].most, &number) || number < keys[i].least) {
            snprintf(ret_error, SIM_ERROR,
                     "synthetic: %s is \"%.40s\", not a whole number from %llu to %llu", pair,
                     value, (unsigned long long)keys[i].least, (unsigned long long)keys[i].most);
            return -EINVAL;
        }
        *keys[i].value = number;
        return 0;
    }
    snprintf(ret_error, SIM_ERROR,
             "synthetic: there is no \"%.40s\"; there are devices, programs, hours, load, "
             "best-effort, late, node, host, mix",
             pair);
    return -EINVAL;
}

static int sim_synthetic_read_recipe(const struct sim_models *models, const char *text,
                                     struct recipe *recipe, char *ret_error)
{
    char copy[TEXT_MAX], *rest = NULL;

    for (size_t i = 0; i < models->count; i++) {
        recipe->parts[i] = 1;
        recipe->parts_total++;
    }
    if (strlen(text) >= sizeof(copy)) {
        snprintf(ret_error, SIM_ERROR, "synthetic: over %d bytes of it", TEXT_MAX - 1);
        return -EINVAL;
    }
    memcpy(copy, text, strlen(text) + 1);
    for (char *pair = strtok_r(copy, ",", &rest); pair; pair = strtok_r(NULL, ",", &rest))
        if (sim_synthetic_read_pair(models, pair, recipe, ret_error))
            return -EINVAL;
    return 0;
}

static int sim_synthetic_make_node(struct sim_trace *trace, const struct recipe *recipe,
                                   uint64_t count, uint64_t seed)
{
    uint64_t number = sim_random(seed, LATE, trace->node_count), from_ms = 0;

    if (number % 100 < recipe->late)
        from_ms = (number >> 8) % (recipe->hours * HOUR_MS);
    return sim_trace_add_node(trace, from_ms, count * recipe->host << 30);
}

/* Nodes of one model each; the last of a model may be smaller. */
static int sim_synthetic_make_devices(struct sim_trace *trace, const struct recipe *recipe,
                                      uint64_t seed)
{
    uint32_t of = SIM_NONE, room = 0;

    for (uint64_t i = 0; i < recipe->devices; i++) {
        uint32_t part = (uint32_t)(i * recipe->parts_total / recipe->devices), model = 0;
        while (part >= recipe->parts[model])
            part -= recipe->parts[model++];
        if (model != of || !room) {
            of = model;
            room = (uint32_t)recipe->node;
            if (sim_synthetic_make_node(trace, recipe, recipe->node, seed))
                return -ENOMEM;
        }
        room--;
        if (sim_trace_add_device(trace, model))
            return -ENOMEM;
    }
    return 0;
}

/* Draw a program's memory: a sixteenth of a small device to all of one, and for some more than a
 * small device has. */
static void sim_synthetic_draw(struct sim_task *task, const struct recipe *recipe, uint64_t small,
                               uint64_t large, uint64_t seed, uint64_t i)
{
    static const uint32_t shares[] = {100, 250, 250, 500, 500, 750, 1000, 1000, 1000, 1000};
    uint64_t number = sim_random(seed, BYTES, i);

    task->arrive_ms = sim_random(seed, ARRIVE, i) % (recipe->hours * HOUR_MS);
    task->bytes = small / 16 * (1 + number % 16);
    if ((number >> 8) % 10 == 0 && large > small)
        task->bytes = small + (large - small) / 16 * (1 + (number >> 16) % 16);
    task->share = shares[sim_random(seed, SHARE, i) % ARRAY_SIZE(shares)];
    number = sim_random(seed, CLASS, i);
    task->preemptible = number % 100 < recipe->best_effort;
    task->priority = task->preemptible ? 0 : 1;
    /* One minute to six hours, log-uniform. */
    double minutes = exp(sim_unit(sim_random(seed, WORK, i)) * log(360));
    task->work = (uint64_t)(minutes * 60e6);
}

/* The memory of the smallest model there is, and of the largest. */
static void sim_synthetic_span(const struct sim_trace *trace, uint64_t *ret_small,
                               uint64_t *ret_large)
{
    *ret_small = UINT64_MAX;
    *ret_large = 0;
    for (uint32_t i = 0; i < trace->device_count; i++) {
        uint64_t memory = trace->models.items[trace->devices[i].model].memory;
        *ret_small = memory < *ret_small ? memory : *ret_small;
        *ret_large = memory > *ret_large ? memory : *ret_large;
    }
}

static int sim_synthetic_make_tasks(struct sim_trace *trace, const struct recipe *recipe,
                                    uint64_t seed)
{
    uint64_t small, large;
    double asked = 0, able = 0;

    sim_synthetic_span(trace, &small, &large);
    for (uint64_t i = 0; i < recipe->programs; i++) {
        struct sim_task task = {0};
        sim_synthetic_draw(&task, recipe, small, large, seed, i);
        asked += (double)task.work * task.share / 1000;
        if (sim_trace_rule(trace, UINT64_MAX, &task.rule) || sim_trace_add_task(trace, &task))
            return -ENOMEM;
    }
    for (uint32_t i = 0; i < trace->device_count; i++)
        able += (double)trace->models.items[trace->devices[i].model].speed;
    double longer = able * (double)(recipe->hours * HOUR_MS) * (double)recipe->load / 100 / asked;
    for (uint32_t i = 0; i < trace->task_count; i++) {
        double work = (double)trace->tasks[i].work * longer;
        double most = (double)SIM_SECONDS_MAX * 1e6;
        trace->tasks[i].work = 1 + (uint64_t)(work < most ? work : most);
    }
    return 0;
}

int sim_trace_make(struct sim_trace *trace, const char *text, const struct sim_load *load,
                   char *ret_error)
{
    struct recipe recipe = {.devices = 100,
                            .programs = 2000,
                            .hours = 24,
                            .load = 60,
                            .best_effort = 40,
                            .node = 4,
                            .host = 64};

    if (sim_synthetic_read_recipe(&trace->models, text, &recipe, ret_error))
        return -EINVAL;
    snprintf(trace->name, sizeof(trace->name), "synthetic%s%.200s", *text ? ":" : "", text);
    if (sim_synthetic_make_devices(trace, &recipe, load->seed) ||
        sim_synthetic_make_tasks(trace, &recipe, load->seed))
        return -ENOMEM;
    trace->counts.rows = trace->task_count;
    return sim_trace_seal(trace, load, ret_error);
}
