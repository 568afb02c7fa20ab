#include "interpose/meet.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/reply.h"

static void free_pointer(void *pointer)
{
    free(*(void **)pointer);
}

static size_t list_count(const struct devinfo_value *list)
{
    return list ? list->size / sizeof(cl_name_version) : 0;
}

/* A copy, since answers are not aligned; its name always ends. */
static cl_name_version list_entry(const struct devinfo_value *list, size_t at)
{
    cl_name_version entry;

    memcpy(&entry, list->bytes + at * sizeof(entry), sizeof(entry));
    entry.name[sizeof(entry.name) - 1] = '\0';
    return entry;
}

cl_version meet_name_version(const struct devinfo *const *devices, size_t count,
                             cl_device_info list, const char *name, bool *ret_in_all)
{
    cl_version least = 0;

    *ret_in_all = true;
    for (size_t i = 0; i < count; i++) {
        const struct devinfo_value *value = devinfo_find(devices[i], list);
        bool found = false;

        for (size_t j = 0; j < list_count(value); j++) {
            cl_name_version entry = list_entry(value, j);

            if (strcmp(entry.name, name) != 0)
                continue;
            if (!least || entry.version < least)
                least = entry.version;
            found = true;
        }
        *ret_in_all = *ret_in_all && found;
    }
    return least;
}

static bool all_answer(const struct devinfo *const *devices, size_t count,
                       const struct devinfo_param *param)
{
    for (size_t i = 0; i < count; i++) {
        if (!devinfo_find(devices[i], param->name))
            return false;
    }
    return true;
}

static uint64_t combine(enum devinfo_meet meet, uint64_t a, uint64_t b)
{
    switch (meet) {
    case DEVINFO_MAX_ALL:
        return !a || !b ? 0 : a > b ? a : b;
    case DEVINFO_MAX:
        return a > b ? a : b;
    case DEVINFO_AND:
        return a & b;
    default:
        return a < b ? a : b;
    }
}

/* Numbers one by one, over the elements that all have. A scalar is an array of one. */
static int meet_numbers(const struct devinfo *const *devices, size_t count,
                        const struct devinfo_param *param, struct devinfo *answers)
{
    uint8_t CLEANUP(free_pointer) *met = NULL;
    size_t size = devinfo_find(devices[0], param->name)->size;

    for (size_t i = 1; i < count; i++) {
        size_t other = devinfo_find(devices[i], param->name)->size;

        size = other < size ? other : size;
    }
    if (size < param->size || size % param->size)
        return 0;
    met = calloc(1, size);
    if (!met)
        return -ENOMEM;
    for (size_t at = 0; at < size; at += param->size) {
        uint64_t result = 0;

        for (size_t i = 0; i < count; i++) {
            const struct devinfo_value *value = devinfo_find(devices[i], param->name);
            uint64_t number = 0;

            memcpy(&number, value->bytes + at, param->size);
            result = i ? combine(param->meet, result, number) : number;
        }
        memcpy(met + at, &result, param->size);
    }
    return reply_set(answers, param->name, met, size);
}

static int meet_names(const struct devinfo *const *devices, size_t count,
                      const struct devinfo_param *param, struct devinfo *answers)
{
    char CLEANUP(free_pointer) *words = strdup(devinfo_string(devices[0], param->name));
    char CLEANUP(free_pointer) *met = words ? calloc(1, strlen(words) + 2) : NULL;
    char *rest = NULL;

    if (!met)
        return -ENOMEM;
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        size_t have = 1;

        while (have < count && devinfo_names_have(devinfo_string(devices[have], param->name), word))
            have++;
        if (have < count || devinfo_names_have(met, word))
            continue;
        if (met[0])
            strcat(met, " ");
        strcat(met, word);
    }
    return reply_set_string(answers, param->name, met);
}

static bool has_pair(const struct devinfo *device, cl_device_info list, const cl_name_version *pair)
{
    const struct devinfo_value *value = devinfo_find(device, list);

    for (size_t i = 0; i < list_count(value); i++) {
        cl_name_version entry = list_entry(value, i);

        if (entry.version == pair->version && !strcmp(entry.name, pair->name))
            return true;
    }
    return false;
}

/* The first device's entries that all have: the name in any version, or this very pair. */
static int meet_lists(const struct devinfo *const *devices, size_t count,
                      const struct devinfo_param *param, struct devinfo *answers)
{
    const struct devinfo_value *first = devinfo_find(devices[0], param->name);
    cl_name_version CLEANUP(free_pointer) *met = calloc(list_count(first) + 1, sizeof(*met));
    size_t used = 0;

    if (!met)
        return -ENOMEM;
    for (size_t i = 0; i < list_count(first); i++) {
        cl_name_version entry = list_entry(first, i);
        bool in_all = true;

        if (param->meet == DEVINFO_VERSIONS)
            entry.version = meet_name_version(devices, count, param->name, entry.name, &in_all);
        for (size_t j = 1; param->meet == DEVINFO_PAIRS && j < count; j++)
            in_all = in_all && has_pair(devices[j], param->name, &entry);
        if (in_all)
            met[used++] = entry;
    }
    return reply_set(answers, param->name, met, used * sizeof(*met));
}

static int meet_none(const struct devinfo_param *param, struct devinfo *answers)
{
    static const uint8_t zero[sizeof(cl_name_version)];

    if (!param->size)
        return reply_set_string(answers, param->name, "");
    return reply_set(answers, param->name, zero,
                     param->size == sizeof(cl_name_version) ? 0 : param->size);
}

int meet_param(const struct devinfo *const *devices, size_t count,
               const struct devinfo_param *param, struct devinfo *answers)
{
    const struct devinfo_value *first = devinfo_find(devices[0], param->name);

    if (param->meet == DEVINFO_NONE || param->meet == DEVINFO_PINS)
        return meet_none(param, answers);
    if (param->meet == DEVINFO_OURS || !all_answer(devices, count, param))
        return 0;
    switch (param->meet) {
    case DEVINFO_NAMES:
        return meet_names(devices, count, param, answers);
    case DEVINFO_VERSIONS:
    case DEVINFO_PAIRS:
        return meet_lists(devices, count, param, answers);
    case DEVINFO_FIRST:
        return reply_set(answers, param->name, first->bytes, first->size);
    default:
        return meet_numbers(devices, count, param, answers);
    }
}

static const struct devinfo_formats *find_formats(const struct devinfo *info, cl_mem_flags flags,
                                                  cl_mem_object_type type)
{
    for (size_t i = 0; i < info->format_count; i++) {
        if (info->formats[i].flags == flags && info->formats[i].type == type)
            return &info->formats[i];
    }
    return NULL;
}

static bool has_format(const struct devinfo_formats *list, const cl_image_format *format)
{
    for (uint32_t i = 0; list && i < list->count; i++) {
        if (list->formats[i].image_channel_order == format->image_channel_order &&
            list->formats[i].image_channel_data_type == format->image_channel_data_type)
            return true;
    }
    return false;
}

int meet_formats(const struct devinfo *const *devices, size_t count, struct devinfo *answers)
{
    const struct devinfo *first = devices[0];

    if (!first->format_count)
        return 0;
    answers->formats = calloc(first->format_count, sizeof(*answers->formats));
    if (!answers->formats)
        return -ENOMEM;
    for (size_t i = 0; i < first->format_count; i++) {
        const struct devinfo_formats *from = &first->formats[i];
        struct devinfo_formats *to = &answers->formats[i];

        *to = (struct devinfo_formats){.flags = from->flags, .type = from->type};
        to->formats = calloc((size_t)from->count + 1, sizeof(*to->formats));
        if (!to->formats)
            return -ENOMEM;
        answers->format_count++;
        for (uint32_t j = 0; j < from->count; j++) {
            size_t have = 1;

            while (have < count && has_format(find_formats(devices[have], from->flags, from->type),
                                              &from->formats[j]))
                have++;
            if (have == count)
                to->formats[to->count++] = from->formats[j];
        }
    }
    return 0;
}
