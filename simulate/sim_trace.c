#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "simulate/sim_csv.h"
#include "simulate/sim_random.h"

#define GIB        (1ull << 30)
#define MEMORY_MAX 4096000 /* Thousandths of a GiB. */
#define FACTOR_MAX 1000000
#define SPEED_MIN  100

/*
 * Speeds are for a mix of arithmetic and memory access, prices are those of clouds on demand; both
 * are rounded, relative to the T4. G2 and G3 are undisclosed: taken as cards of the A10's and the
 * A100's class.
 */
static const struct sim_model built_in[] = {
    {"T4", 16 * GIB, 1000, 1000},      {"P100", 16 * GIB, 1500, 2000},
    {"V100M16", 16 * GIB, 2500, 4500}, {"V100M32", 32 * GIB, 2500, 5000},
    {"A10", 24 * GIB, 2000, 2000},     {"G2", 24 * GIB, 2000, 2000},
    {"G3", 80 * GIB, 5000, 7000},
};

void sim_models_init(struct sim_models *ret_models)
{
    *ret_models = (struct sim_models){.count = ARRAY_SIZE(built_in), .from = "built in"};
    memcpy(ret_models->items, built_in, sizeof(built_in));
}

uint32_t sim_models_find(const struct sim_models *models, const char *name, size_t length)
{
    for (size_t i = 0; i < models->count; i++) {
        const char *known = models->items[i].name;
        if (strlen(known) == length && memcmp(known, name, length) == 0)
            return (uint32_t)i;
    }
    return SIM_NONE;
}

static bool sim_trace_is_name(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_.-";
    size_t length = strlen(text);

    return length && length < sizeof(((struct sim_model *)0)->name) &&
           strspn(text, allowed) == length;
}

static int sim_trace_read_model(struct sim_csv *csv, struct sim_models *models)
{
    const char *name = csv->fields[0];
    uint64_t memory, speed, price;

    if (!sim_trace_is_name(name)) {
        return sim_csv_refuse(csv, "model is \"%.40s\", not 1 to 31 letters, digits and _ . -",
                              name);
    }
    if (sim_models_find(models, name, strlen(name)) != SIM_NONE)
        return sim_csv_refuse(csv, "model %s is there twice", name);
    if (models->count == SIM_MODELS_MAX)
        return sim_csv_refuse(csv, "there are more than %d models", SIM_MODELS_MAX);
    if (sim_csv_thousandths(csv, 1, 1, MEMORY_MAX, &memory) ||
        sim_csv_thousandths(csv, 2, SPEED_MIN, FACTOR_MAX, &speed) ||
        sim_csv_thousandths(csv, 3, 0, FACTOR_MAX, &price))
        return -EINVAL;
    struct sim_model *model = &models->items[models->count++];
    memcpy(model->name, name, strlen(name) + 1);
    model->memory = memory * GIB / 1000;
    model->speed = (uint32_t)speed;
    model->price = (uint32_t)price;
    return 0;
}

int sim_models_read(const char *path, struct sim_models *ret_models, char *ret_error)
{
    struct sim_models models = {0};
    struct sim_csv csv;
    int result = sim_csv_open(&csv, path, "model,memory_gib,speed,price", ret_error);

    snprintf(models.from, sizeof(models.from), "%s", path);
    while (!result && (result = sim_csv_next(&csv)) > 0)
        result = sim_trace_read_model(&csv, &models);
    if (!result && !models.count)
        result = sim_csv_refuse(&csv, "there is no model");
    sim_csv_close(&csv);
    if (!result)
        *ret_models = models;
    return result;
}

#define STREAM_GROW 0x67726f77

uint32_t sim_rate(uint32_t speed, uint32_t share)
{
    uint64_t parts = (uint64_t)(1000 - share) * speed + (uint64_t)share * 1000;
    uint64_t rate = (uint64_t)speed * 1000000 / parts;

    return rate ? (uint32_t)rate : 1;
}

uint32_t sim_busy(uint32_t speed, uint32_t share)
{
    uint64_t parts = (uint64_t)(1000 - share) * speed + (uint64_t)share * 1000;

    return (uint32_t)(((uint64_t)share * 1000000 + parts - 1) / parts);
}

void sim_trace_init(struct sim_trace *ret_trace, const struct sim_models *models)
{
    *ret_trace = (struct sim_trace){.models = *models};
}

void sim_trace_finish(struct sim_trace *trace)
{
    for (uint32_t i = 0; i < trace->rule_count; i++)
        free(trace->rules[i].barred);
    free(trace->rules);
    free(trace->devices);
    free(trace->nodes);
    free(trace->tasks);
    *trace = (struct sim_trace){0};
}

/* @items with room for one more of @size bytes: it doubles whenever @count is a power of two. */
static void *sim_trace_grow(void *items, uint32_t count, size_t size)
{
    return count & (count - 1) ? items : reallocarray(items, count ? (size_t)count * 2 : 1, size);
}

static int sim_trace_parse_node(struct sim_trace *trace, uint64_t from_ms, uint64_t host,
                                uint32_t id)
{
    void *items = sim_trace_grow(trace->nodes, trace->node_count, sizeof(*trace->nodes));

    if (!items)
        return -ENOMEM;
    trace->nodes = items;
    trace->nodes[trace->node_count++] =
        (struct sim_node){.from_ms = from_ms, .host = host, .first = trace->device_count, .id = id};
    return 0;
}

static int sim_trace_parse_device(struct sim_trace *trace, uint32_t model, uint32_t id)
{
    void *items = sim_trace_grow(trace->devices, trace->device_count, sizeof(*trace->devices));

    if (!items)
        return -ENOMEM;
    trace->devices = items;
    trace->devices[trace->device_count++] =
        (struct sim_device){.model = model, .node = trace->node_count - 1, .id = id};
    trace->nodes[trace->node_count - 1].count++;
    return 0;
}

int sim_trace_add_node(struct sim_trace *trace, uint64_t from_ms, uint64_t host)
{
    return sim_trace_parse_node(trace, from_ms, host, trace->node_count);
}

int sim_trace_add_device(struct sim_trace *trace, uint32_t model)
{
    return sim_trace_parse_device(trace, model, trace->device_count);
}

int sim_trace_add_task(struct sim_trace *trace, const struct sim_task *task)
{
    void *items = sim_trace_grow(trace->tasks, trace->task_count, sizeof(*task));

    if (!items)
        return -ENOMEM;
    trace->tasks = items;
    trace->tasks[trace->task_count] = *task;
    trace->tasks[trace->task_count].order = trace->task_count;
    trace->task_count++;
    return 0;
}

int sim_trace_rule(struct sim_trace *trace, uint64_t models, uint32_t *ret_rule)
{
    uint32_t i = 0;

    while (i < trace->rule_count && trace->rules[i].models != models)
        i++;
    if (i == trace->rule_count) {
        void *items = sim_trace_grow(trace->rules, trace->rule_count, sizeof(*trace->rules));
        if (!items)
            return -ENOMEM;
        trace->rules = items;
        trace->rules[trace->rule_count++] = (struct sim_rule){.models = models};
    }
    *ret_rule = i;
    return 0;
}

/* Keep whole nodes, evenly spread over the list, with about @wanted devices; at least one node. */
static int sim_trace_keep_nodes(struct sim_trace *trace, uint32_t wanted, char *ret_error)
{
    struct sim_trace kept = {0};
    int result = 0;

    if (wanted > trace->device_count) {
        snprintf(ret_error, SIM_ERROR, "%s has %u devices: --devices is a number from 1 to %u",
                 trace->name, trace->device_count, trace->device_count);
        return -EINVAL;
    }
    uint64_t nodes =
        ((uint64_t)trace->node_count * wanted + trace->device_count / 2) / trace->device_count;
    nodes = nodes ? nodes : 1;
    for (uint64_t i = 0; !result && i < nodes; i++) {
        const struct sim_node *node = &trace->nodes[(2 * i + 1) * trace->node_count / (2 * nodes)];
        result = sim_trace_add_node(&kept, node->from_ms, node->host);
        for (uint32_t j = 0; !result && j < node->count; j++)
            result = sim_trace_add_device(&kept, trace->devices[node->first + j].model);
    }
    free(trace->nodes);
    free(trace->devices);
    trace->nodes = kept.nodes;
    trace->devices = kept.devices;
    trace->node_count = kept.node_count;
    trace->device_count = kept.device_count;
    return result;
}

static int sim_trace_by_arrival(const void *left, const void *right)
{
    const struct sim_task *a = left, *b = right;

    if (a->arrive_ms != b->arrive_ms)
        return a->arrive_ms < b->arrive_ms ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

static int sim_trace_lay_out(const struct sim_trace *trace, struct sim_rule *rule)
{
    for (uint32_t i = 0; i < trace->device_count; i++) {
        if (rule->models >> trace->devices[i].model & 1)
            continue;
        if (!rule->barred) {
            rule->barred = calloc((trace->device_count + 63) / 64, sizeof(*rule->barred));
            if (!rule->barred)
                return -ENOMEM;
        }
        rule->barred[i / 64] |= 1ull << (i % 64);
    }
    return 0;
}

static void sim_trace_count_tasks(struct sim_trace *trace, const struct sim_load *load)
{
    for (uint32_t i = 0; i < trace->task_count; i++) {
        struct sim_task *task = &trace->tasks[i];
        uint64_t number = sim_random(load->seed, STREAM_GROW, task->order);
        if (!task->steps && !task->more && number % 100 < load->grow_percent)
            task->steps = (uint8_t)(1 + (number >> 32) % SIM_STEPS_MAX);
        trace->counts.growing += task->steps > 0;
        trace->counts.preemptible += task->preemptible;
        trace->counts.ruled += trace->rules[task->rule].models != UINT64_MAX;
    }
}

int sim_trace_seal(struct sim_trace *trace, const struct sim_load *load, char *ret_error)
{
    uint64_t work = 0;

    if (!trace->device_count || !trace->task_count) {
        snprintf(ret_error, SIM_ERROR, "%s has no %s: there is nothing to simulate", trace->name,
                 trace->device_count ? "task that wants a device" : "device");
        return -EINVAL;
    }
    int result = load->devices ? sim_trace_keep_nodes(trace, load->devices, ret_error) : 0;
    if (result)
        return result;
    for (uint32_t i = 0; i < trace->rule_count; i++)
        if (sim_trace_lay_out(trace, &trace->rules[i]))
            return -ENOMEM;
    for (uint32_t i = 0; i < trace->task_count; i++) {
        if (__builtin_add_overflow(work, trace->tasks[i].work, &work) || work > UINT64_MAX / 4) {
            snprintf(ret_error, SIM_ERROR, "%s: all tasks together take over 100,000 years",
                     trace->name);
            return -EINVAL;
        }
    }
    sim_trace_count_tasks(trace, load);
    qsort(trace->tasks, trace->task_count, sizeof(*trace->tasks), sim_trace_by_arrival);
    return 0;
}

int sim_trace_part(const struct sim_trace *trace, uint32_t cell, uint32_t cells,
                   struct sim_trace *ret_part)
{
    *ret_part = *trace;
    ret_part->devices = NULL;
    ret_part->nodes = NULL;
    ret_part->device_count = ret_part->node_count = 0;
    ret_part->rules = calloc(trace->rule_count, sizeof(*trace->rules));
    if (!ret_part->rules)
        return -ENOMEM;
    for (uint32_t i = cell; i < trace->node_count; i += cells) {
        const struct sim_node *node = &trace->nodes[i];
        if (sim_trace_parse_node(ret_part, node->from_ms, node->host, i))
            return -ENOMEM;
        for (uint32_t j = node->first; j < node->first + node->count; j++)
            if (sim_trace_parse_device(ret_part, trace->devices[j].model, j))
                return -ENOMEM;
    }
    for (uint32_t i = 0; i < trace->rule_count; i++) {
        ret_part->rules[i].models = trace->rules[i].models;
        if (sim_trace_lay_out(ret_part, &ret_part->rules[i]))
            return -ENOMEM;
    }
    return 0;
}

void sim_trace_part_finish(struct sim_trace *part)
{
    part->tasks = NULL;
    if (!part->rules)
        part->rule_count = 0;
    sim_trace_finish(part);
}
