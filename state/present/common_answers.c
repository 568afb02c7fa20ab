#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/cleanup.h"
#include "state/present/proposal.h"

/* The lowest version of @name in one device's list; 0 where it is not in it. */
static cl_version common_answers_listed_version(const struct devinfo *device, cl_device_info list,
                                                const char *name)
{
    const struct devinfo_value *value = devinfo_find(device, list);
    cl_version least = 0;

    for (size_t i = 0; i < devinfo_list_count(value); i++) {
        cl_name_version entry = devinfo_list_entry(value, i);

        if (strcmp(entry.name, name) == 0 && (!least || entry.version < least))
            least = entry.version;
    }
    return least;
}

cl_version common_name_version(const struct common *common, cl_device_info list, const char *name,
                               bool *ret_in_all)
{
    cl_version least = 0;

    *ret_in_all = true;
    for (size_t i = 0; i < common->count; i++) {
        cl_version version = common_answers_listed_version(common->devices[i], list, name);

        if (version && (!least || version < least))
            least = version;
        *ret_in_all = *ret_in_all && version;
    }
    return least;
}

static bool common_answers_has_name(const struct devinfo *device, const char *name)
{
    return carried_kind(name) == REASON_FEATURE
               ? common_answers_listed_version(device, CL_DEVICE_OPENCL_C_FEATURES, name) != 0
               : devinfo_has_extension(device, name);
}

bool common_name(const struct common *common, const char *name)
{
    struct reason *reason =
        reasons_note_name(common->reasons, carried_kind(name), name, REASON_EQUAL, NULL);
    bool in_all = true;

    for (size_t i = 0; i < common->count; i++) {
        if (common_answers_has_name(common->devices[i], name))
            continue;
        in_all = false;
        reason_by(reason, i);
    }
    if (reason && !in_all)
        reason->rule = REASON_MISSING;
    return in_all;
}

static bool common_answers_is_list(const struct devinfo_param *param)
{
    return param->size == 0 || param->size == sizeof(cl_name_version);
}

bool common_answers(const struct devinfo *device, const struct devinfo_param *param)
{
    const struct devinfo_value *value = devinfo_find(device, param->name);

    if (!value || common_answers_is_list(param))
        return value != NULL;
    return value->size >= param->size &&
           (param->rule != DEVINFO_MIN_EACH || value->size % param->size == 0);
}

static bool common_answers_all_answer(const struct common *common,
                                      const struct devinfo_param *param)
{
    struct reason *reason = NULL;
    bool all = true;

    for (size_t i = 0; i < common->count; i++) {
        if (common_answers(common->devices[i], param))
            continue;
        if (all)
            reason = reasons_note_answer(common->reasons, param->name, REASON_MISSING, NULL);
        all = false;
        reason_by(reason, i);
    }
    return all;
}

static bool common_answers_one_answers(const struct common *common,
                                       const struct devinfo_param *param)
{
    for (size_t i = 0; i < common->count; i++)
        if (common_answers(common->devices[i], param))
            return true;
    return false;
}

static uint64_t common_answers_combine(enum devinfo_rule rule, uint64_t a, uint64_t b)
{
    switch (rule) {
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

static enum reason_rule common_answers_rule_of(enum devinfo_rule rule)
{
    switch (rule) {
    case DEVINFO_MAX_ALL:
    case DEVINFO_MAX:
        return REASON_LARGEST;
    case DEVINFO_AND:
        return REASON_COMMON;
    default:
        return REASON_LEAST;
    }
}

/* 0 from a device that does not answer. */
static uint64_t common_answers_number_of(const struct devinfo *device,
                                         const struct devinfo_param *param, size_t at)
{
    const struct devinfo_value *value = devinfo_find(device, param->name);
    uint64_t number = 0;

    if (value && value->size >= at + param->size)
        memcpy(&number, value->bytes + at, param->size);
    return number;
}

/* Combine one element of all devices' answers, and note the devices that limit it. */
static uint64_t common_answers_combine_number(const struct common *common,
                                              const struct devinfo_param *param, size_t at,
                                              struct reason *reason)
{
    uint64_t result = common_answers_number_of(common->devices[0], param, at), all = result;
    bool differ = false;

    for (size_t i = 1; i < common->count; i++) {
        uint64_t number = common_answers_number_of(common->devices[i], param, at);

        differ = differ || number != common_answers_number_of(common->devices[0], param, at);
        result = common_answers_combine(param->rule, result, number);
        all |= number;
    }
    for (size_t i = 0; differ && i < common->count; i++) {
        uint64_t number = common_answers_number_of(common->devices[i], param, at);

        if (param->rule == DEVINFO_AND ? (all & ~number) != 0 : number == result)
            reason_by(reason, i);
    }
    if (reason && differ)
        reason->rule = common_answers_rule_of(param->rule);
    return result;
}

/* Combine arrays of numbers element by element, up to the shortest. A scalar is an array of one. */
static int common_answers_combine_numbers(const struct common *common,
                                          const struct devinfo_param *param)
{
    uint8_t CLEANUP(cleanup_free) *combined = NULL;
    struct reason *reason = reasons_note_answer(common->reasons, param->name, REASON_EQUAL, NULL);
    size_t size = param->size;

    if (param->rule == DEVINFO_MIN_EACH) {
        size = devinfo_find(common->devices[0], param->name)->size;
        for (size_t i = 1; i < common->count; i++) {
            size_t other = devinfo_find(common->devices[i], param->name)->size;

            size = other < size ? other : size;
        }
    }
    combined = calloc(1, size);
    if (!combined)
        return -ENOMEM;
    for (size_t at = 0; at < size; at += param->size) {
        uint64_t result = common_answers_combine_number(common, param, at, reason);

        memcpy(combined + at, &result, param->size);
    }
    return reply_set(common->answers, param->name, combined, size);
}

/* The device with the most memory; of several, the one that has the largest objects. */
static size_t common_answers_roomiest(const struct common *common)
{
    const struct devinfo *const *devices = common->devices;
    size_t best = 0;

    for (size_t i = 1; i < common->count; i++) {
        uint64_t most = devinfo_scalar(devices[best], CL_DEVICE_GLOBAL_MEM_SIZE, 0);
        uint64_t memory = devinfo_scalar(devices[i], CL_DEVICE_GLOBAL_MEM_SIZE, 0);

        if (memory > most ||
            (memory == most && devinfo_scalar(devices[i], CL_DEVICE_MAX_MEM_ALLOC_SIZE, 0) >
                                   devinfo_scalar(devices[best], CL_DEVICE_MAX_MEM_ALLOC_SIZE, 0)))
            best = i;
    }
    return best;
}

static int common_answers_combine_memory(const struct common *common,
                                         const struct devinfo_param *param)
{
    size_t best = common_answers_roomiest(common);
    struct reason *reason = reasons_note_answer(common->reasons, param->name, REASON_EQUAL, NULL);
    uint64_t result = common_answers_number_of(common->devices[best], param, 0);

    for (size_t i = 0; reason && i < common->count; i++)
        if (common_answers_number_of(common->devices[i], param, 0) != result)
            reason->rule = REASON_MOST_MEMORY;
    if (reason && reason->rule == REASON_MOST_MEMORY)
        reason_by(reason, best);
    return reply_set_scalar(common->answers, param->name, result, param->size);
}

static int common_answers_combine_names(const struct common *common,
                                        const struct devinfo_param *param)
{
    char CLEANUP(cleanup_free) *words = strdup(devinfo_string(common->devices[0], param->name));
    char CLEANUP(cleanup_free) *combined = words ? calloc(1, strlen(words) + 2) : NULL;
    char *rest = NULL;

    if (!combined)
        return -ENOMEM;
    reasons_note_answer(common->reasons, param->name, REASON_COMMON, NULL);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        size_t have = 1;

        while (have < common->count &&
               devinfo_names_have(devinfo_string(common->devices[have], param->name), word))
            have++;
        if (have < common->count || devinfo_names_have(combined, word))
            continue;
        if (combined[0])
            strcat(combined, " ");
        strcat(combined, word);
    }
    return reply_set_string(common->answers, param->name, combined);
}

static bool common_answers_has_pair(const struct devinfo *device, cl_device_info list,
                                    const cl_name_version *pair)
{
    const struct devinfo_value *value = devinfo_find(device, list);

    for (size_t i = 0; i < devinfo_list_count(value); i++) {
        cl_name_version entry = devinfo_list_entry(value, i);

        if (entry.version == pair->version && !strcmp(entry.name, pair->name))
            return true;
    }
    return false;
}

/* Keep the first device's entries that all devices have: the name in any version, or the exact
 * pair. */
static int common_answers_combine_lists(const struct common *common,
                                        const struct devinfo_param *param)
{
    const struct devinfo_value *first = devinfo_find(common->devices[0], param->name);
    cl_name_version CLEANUP(cleanup_free) *combined =
        calloc(devinfo_list_count(first) + 1, sizeof(*combined));
    size_t used = 0;

    if (!combined)
        return -ENOMEM;
    reasons_note_answer(common->reasons, param->name, REASON_COMMON, NULL);
    for (size_t i = 0; i < devinfo_list_count(first); i++) {
        cl_name_version entry = devinfo_list_entry(first, i);
        bool in_all = true;

        if (param->rule == DEVINFO_VERSIONS)
            entry.version = common_name_version(common, param->name, entry.name, &in_all);
        for (size_t j = 1; param->rule == DEVINFO_PAIRS && j < common->count; j++)
            in_all = in_all && common_answers_has_pair(common->devices[j], param->name, &entry);
        if (in_all)
            combined[used++] = entry;
    }
    return reply_set(common->answers, param->name, combined, used * sizeof(*combined));
}

static int common_answers_combine_first(const struct common *common,
                                        const struct devinfo_param *param)
{
    const struct devinfo_value *first = devinfo_find(common->devices[0], param->name);

    reason_by(reasons_note_answer(common->reasons, param->name, REASON_FIRST, NULL), 0);
    return reply_set(common->answers, param->name, first->bytes,
                     common_answers_is_list(param) ? first->size : param->size);
}

static int common_answers_combine_none(const struct common *common,
                                       const struct devinfo_param *param)
{
    static const uint8_t zero[sizeof(cl_name_version)];

    reasons_note_answer(common->reasons, param->name, REASON_NOT_CARRIED, NULL);
    if (!param->size)
        return reply_set_string(common->answers, param->name, "");
    return reply_set(common->answers, param->name, zero,
                     param->size == sizeof(cl_name_version) ? 0 : param->size);
}

int common_param(const struct common *common, const struct devinfo_param *param)
{
    if (param->rule == DEVINFO_NONE || param->rule == DEVINFO_PINS)
        return common_answers_combine_none(common, param);
    if (param->rule == DEVINFO_OURS)
        return 0;
    if (param->rule == DEVINFO_AND ? !common_answers_one_answers(common, param)
                                   : !common_answers_all_answer(common, param))
        return 0;
    switch (param->rule) {
    case DEVINFO_NAMES:
        return common_answers_combine_names(common, param);
    case DEVINFO_VERSIONS:
    case DEVINFO_PAIRS:
        return common_answers_combine_lists(common, param);
    case DEVINFO_FIRST:
        return common_answers_combine_first(common, param);
    case DEVINFO_MEMORY:
        return common->least_memory ? common_answers_combine_numbers(common, param)
                                    : common_answers_combine_memory(common, param);
    default:
        return common_answers_combine_numbers(common, param);
    }
}

/* True when every device has the format; notes the devices without it if some device has it. */
static bool common_answers_format_in_all(const struct common *common,
                                         const struct devinfo_formats *list,
                                         const cl_image_format *format)
{
    struct reason *reason = NULL;
    bool in_all = true;

    for (size_t i = 0; i < common->count; i++) {
        if (devinfo_formats_have(devinfo_formats_of(common->devices[i], list->flags, list->type),
                                 format))
            continue;
        if (in_all)
            reason = reasons_note(common->reasons, &(struct reason){.kind = REASON_FORMAT,
                                                                    .rule = REASON_MISSING,
                                                                    .flags = list->flags,
                                                                    .type = list->type,
                                                                    .format = *format});
        in_all = false;
        reason_by(reason, i);
    }
    return in_all;
}

/* Formats that the first device lacks are only noted, for callers that ask for reasons. */
static void common_answers_note_others_formats(const struct common *common)
{
    for (size_t i = 1; common->reasons && i < common->count; i++) {
        for (size_t j = 0; j < common->devices[i]->format_count; j++) {
            const struct devinfo_formats *list = &common->devices[i]->formats[j];

            for (uint32_t k = 0; k < list->count; k++)
                common_answers_format_in_all(common, list, &list->formats[k]);
        }
    }
}

int common_formats(const struct common *common)
{
    const struct devinfo *first = common->devices[0];
    struct devinfo *answers = common->answers;

    common_answers_note_others_formats(common);
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
        for (uint32_t j = 0; j < from->count; j++)
            if (common_answers_format_in_all(common, from, &from->formats[j]))
                to->formats[to->count++] = from->formats[j];
    }
    return 0;
}
