#include <errno.h>
#include <string.h>

#include "simulate/sim_csv.h"

/* Reads the openb format: a file of nodes with their GPUs, and one of tasks. */

#define NODES_HEADER "sn,cpu_milli,memory_mib,gpu,model"
#define TASKS_HEADER                                                                               \
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"            \
    "deletion_time,scheduled_time"
#define HOST_MAX    1000000000ull /* Thousandths of a processor, or MiB. */
#define GPUS_MAX    SIM_NODE_MAX
#define MIB         (1ull << 20)
#define ROWS_MAX    SIM_PROGRAMS_MAX
#define MILLISECOND 1000ull

enum { SN, NODE_CPU, NODE_MEMORY, NODE_GPU, NODE_MODEL };
enum { NAME, CPU, MEMORY, GPUS, SHARE, SPEC, QOS, PHASE, CREATED, DELETED, SCHEDULED };

static uint32_t sim_openb_find_model(struct sim_csv *csv, const struct sim_models *models,
                                     const char *name, size_t length)
{
    uint32_t model = sim_models_find(models, name, length);

    if (model == SIM_NONE) {
        sim_csv_refuse(csv, "model \"%.*s\" is not in the table of models (%s); see --models",
                       (int)(length < 40 ? length : 40), name, models->from);
    }
    return model;
}

static int sim_openb_read_node(struct sim_csv *csv, struct sim_trace *trace)
{
    const char *name = csv->fields[NODE_MODEL];
    uint64_t count, memory, unused;

    if (!csv->fields[SN][0])
        return sim_csv_refuse(csv, "sn is empty");
    if (sim_csv_number(csv, NODE_CPU, 0, HOST_MAX, &unused) ||
        sim_csv_number(csv, NODE_MEMORY, 0, HOST_MAX, &memory) ||
        sim_csv_number(csv, NODE_GPU, 0, GPUS_MAX, &count))
        return -EINVAL;
    if (!count && !*name)
        return 0;
    uint32_t model = sim_openb_find_model(csv, &trace->models, name, strlen(name));
    if (model == SIM_NONE)
        return -EINVAL;
    if (trace->device_count + count > SIM_DEVICES_MAX)
        return sim_csv_refuse(csv, "there are more than %d devices", SIM_DEVICES_MAX);
    int result = count ? sim_trace_add_node(trace, 0, memory * MIB) : 0;
    for (; !result && count; count--)
        result = sim_trace_add_device(trace, model);
    return result;
}

/* "T4|P100": the models that it may run on. Empty: all. */
static int sim_openb_read_rule(struct sim_csv *csv, struct sim_trace *trace, uint64_t *ret_models)
{
    const char *at = csv->fields[SPEC];
    uint64_t models = 0;

    for (; *at; at += *at == '|') {
        size_t length = strcspn(at, "|");
        uint32_t model = sim_openb_find_model(csv, &trace->models, at, length);
        if (model == SIM_NONE)
            return -EINVAL;
        models |= 1ull << model;
        at += length;
        if (at[0] == '|' && !at[1])
            return sim_csv_refuse(csv, "gpu_spec \"%.40s\" ends with |", csv->fields[SPEC]);
    }
    *ret_models = models ? models : UINT64_MAX;
    return 0;
}

static int sim_openb_read_class(struct sim_csv *csv, struct sim_task *task)
{
    static const struct {
        const char *name;
        int8_t priority;
        bool preemptible;
    } classes[] = {
        {"Guaranteed", 2, false}, {"LS", 1, false}, {"Burstable", 0, false}, {"BE", 0, true}};

    for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
        if (strcmp(csv->fields[QOS], classes[i].name) == 0) {
            task->priority = classes[i].priority;
            task->preemptible = classes[i].preemptible;
            return 0;
        }
    }
    return sim_csv_refuse(csv, "qos is \"%.40s\", not one of Guaranteed, LS, Burstable, BE",
                          csv->fields[QOS]);
}

enum phase { RAN, FAILED, PENDING };

static int sim_openb_read_phase(struct sim_csv *csv, enum phase *ret_phase)
{
    static const struct {
        const char *name;
        enum phase phase;
    } phases[] = {{"Running", RAN}, {"Succeeded", RAN}, {"Failed", FAILED}, {"Pending", PENDING}};

    for (size_t i = 0; i < ARRAY_SIZE(phases); i++) {
        if (strcmp(csv->fields[PHASE], phases[i].name) == 0) {
            *ret_phase = phases[i].phase;
            return 0;
        }
    }
    return sim_csv_refuse(csv,
                          "pod_phase is \"%.40s\", not one of Running, Succeeded, Failed, Pending",
                          csv->fields[PHASE]);
}

/* Arrival and duration, in seconds. For a task that never ran: from creation to deletion. */
static int sim_openb_read_times(struct sim_csv *csv, enum phase phase, uint64_t *ret_arrive,
                                uint64_t *ret_took)
{
    bool ran = phase != PENDING || csv->fields[SCHEDULED][0];
    uint64_t created, deleted, scheduled;

    if (sim_csv_number(csv, CREATED, 0, SIM_SECONDS_MAX, &created) ||
        sim_csv_number(csv, DELETED, 0, SIM_SECONDS_MAX, &deleted))
        return -EINVAL;
    scheduled = created;
    if (ran && sim_csv_number(csv, SCHEDULED, 0, SIM_SECONDS_MAX, &scheduled))
        return -EINVAL;
    if (scheduled < created || deleted < scheduled) {
        return sim_csv_refuse(csv, "%s is before %s",
                              scheduled < created ? "scheduled_time" : "deletion_time",
                              scheduled < created || !ran ? "creation_time" : "scheduled_time");
    }
    *ret_arrive = created;
    *ret_took = deleted > scheduled ? deleted - scheduled : 1;
    return 0;
}

/* Derive memory and work from the smallest and the slowest model in the trace that the task may
 * use. */
static void sim_openb_size_task(const struct sim_trace *trace, uint64_t models, uint64_t present,
                                uint64_t took_s, struct sim_task *task)
{
    uint64_t memory = UINT64_MAX, least = 1ull << 20;
    uint32_t speed = UINT32_MAX;

    models = models & present ? models & present : models;
    for (size_t i = 0; i < trace->models.count; i++) {
        const struct sim_model *model = &trace->models.items[i];
        if (models >> i & 1) {
            memory = model->memory < memory ? model->memory : memory;
            speed = model->speed < speed ? model->speed : speed;
        }
    }
    task->bytes = memory / 1000 * task->share;
    task->bytes = task->bytes < least ? least : task->bytes;
    task->work = took_s * MILLISECOND * sim_rate(speed, task->share);
}

static int sim_openb_read_task(struct sim_csv *csv, struct sim_trace *trace,
                               const struct sim_load *load, uint64_t present)
{
    struct sim_task task = {0};
    uint64_t unused, memory = 0, count = 0, share = 0, models = 0, arrive = 0, took = 0;
    enum phase phase = RAN;

    if (!csv->fields[NAME][0])
        return sim_csv_refuse(csv, "name is empty");
    if (sim_csv_number(csv, CPU, 0, HOST_MAX, &unused) ||
        sim_csv_number(csv, MEMORY, 0, HOST_MAX, &memory) ||
        sim_csv_number(csv, GPUS, 0, GPUS_MAX, &count) ||
        sim_csv_number(csv, SHARE, count ? 1 : 0, 1000, &share) ||
        sim_openb_read_rule(csv, trace, &models) || sim_openb_read_class(csv, &task) ||
        sim_openb_read_phase(csv, &phase) || sim_openb_read_times(csv, phase, &arrive, &took))
        return -EINVAL;
    if (trace->task_count == SIM_PROGRAMS_MAX || trace->counts.rows == ROWS_MAX)
        return sim_csv_refuse(csv, "there are more than %d tasks", SIM_PROGRAMS_MAX);
    trace->counts.rows++;
    trace->counts.without_gpu += !count;
    trace->counts.pending += count && phase == PENDING;
    if (!count || (phase == PENDING && !load->pending))
        return 0;
    trace->counts.failed += phase == FAILED;
    trace->counts.several += count > 1;
    task.arrive_ms = arrive * MILLISECOND;
    task.share = (uint32_t)share;
    task.more = (uint8_t)(count - 1);
    task.host = memory * MIB;
    sim_openb_size_task(trace, models, present, took, &task);
    int result = sim_trace_rule(trace, models, &task.rule);
    return result ? result : sim_trace_add_task(trace, &task);
}

int sim_trace_read(struct sim_trace *trace, const char *nodes, const char *tasks,
                   const struct sim_load *load, char *ret_error)
{
    struct sim_csv csv;
    uint64_t present = 0;
    int result = sim_csv_open(&csv, nodes, NODES_HEADER, ret_error);

    snprintf(trace->name, sizeof(trace->name), "%s", tasks);
    while (!result && (result = sim_csv_next(&csv)) > 0)
        result = sim_openb_read_node(&csv, trace);
    sim_csv_close(&csv);
    if (result)
        return result;
    for (uint32_t i = 0; i < trace->device_count; i++)
        present |= 1ull << trace->devices[i].model;
    result = sim_csv_open(&csv, tasks, TASKS_HEADER, ret_error);
    while (!result && (result = sim_csv_next(&csv)) > 0)
        result = sim_openb_read_task(&csv, trace, load, present);
    sim_csv_close(&csv);
    return result ? result : sim_trace_seal(trace, load, ret_error);
}
