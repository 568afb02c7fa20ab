#include <errno.h>
#include <string.h>

#include "agent/simulate/sim_csv.h"

#define GIB        (1ull << 30)
#define MEMORY_MAX 4096000 /* Thousandths of a GiB. */
#define FACTOR_MAX 1000000
#define SPEED_MIN  100

/*
 * Speeds are of a mix of arithmetic and memory, prices what clouds ask on demand, both rounded, the
 * T4 being 1. G2 and G3 are undisclosed: taken as cards of the A10's and the A100's class.
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

static bool is_name(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_.-";
    size_t length = strlen(text);

    return length && length < sizeof(((struct sim_model *)0)->name) &&
           strspn(text, allowed) == length;
}

static int read_model(struct sim_csv *csv, struct sim_models *models)
{
    const char *name = csv->fields[0];
    uint64_t memory, speed, price;

    if (!is_name(name)) {
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
        result = read_model(&csv, &models);
    if (!result && !models.count)
        result = sim_csv_refuse(&csv, "there is no model");
    sim_csv_close(&csv);
    if (!result)
        *ret_models = models;
    return result;
}
