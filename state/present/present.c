#include "state/present/present.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/cleanup.h"
#include "state/opencl/create.h"
#include "state/opencl/info.h"
#include "state/present/proposal.h"

#define PRODUCT     "reseat"
#define VERSION_1_2 CL_MAKE_VERSION(1, 2, 0)
#define VERSION_2   CL_MAKE_VERSION(2, 0, 0)
#define VERSION_3   CL_MAKE_VERSION(3, 0, 0)
/* "No conformance suite passed", in the form of a date that parsers of dates take. */
#define NOT_CONFORMANT "v0000-01-01-00"
#define PLATFORM_ICD   "cl_khr_icd"

/* See present_build: what 2.x requires cannot be carried. */
static cl_version present_carried_version(cl_version version)
{
    if (version >= VERSION_3)
        return VERSION_3;
    return version >= VERSION_2 ? VERSION_1_2 : version;
}

/* Version 3.0 is only presented where every query that it requires has an answer. */
static bool present_answers_everything(const struct devinfo *device)
{
    for (size_t i = 0; i < devinfo_param_count; i++) {
        const struct devinfo_param *param = &devinfo_params[i];

        if (param->since > VERSION_1_2 && param->rule != DEVINFO_OURS &&
            param->rule != DEVINFO_NONE && param->rule != DEVINFO_PINS &&
            !common_answers(device, param))
            return false;
    }
    return true;
}

static cl_version present_device_version(const struct devinfo *device, const char **ret_because)
{
    cl_version own = devinfo_version(device), version = present_carried_version(own);

    *ret_because = NULL;
    if (version < own && own < VERSION_3) {
        *ret_because = "OpenCL 2.x requires what cannot be carried, and is told as 1.2";
    } else if (version >= VERSION_3 && !present_answers_everything(device)) {
        *ret_because = "a query that OpenCL 3.0 requires is not answered, so 1.2 is told";
        version = VERSION_1_2;
    }
    return version;
}

/*
 * OpenCL C is presented as 1.2 at most. A later version would require all of its features
 * (CL_DEVICE_OPENCL_C_VERSION, 4.2), and pipes are never offered.
 */
static void present_proposal_versions(struct proposal *proposal)
{
    const struct common *common = &proposal->common;
    cl_version first = present_device_version(common->devices[0], &(const char *){NULL});
    const char *because = NULL, *least = NULL;
    struct reason *reason;
    bool differ = false;

    proposal->version = first;
    proposal->c_version = VERSION_1_2;
    for (size_t i = 0; i < common->count; i++) {
        cl_version version = present_device_version(common->devices[i], &because);
        cl_version c = devinfo_c_version(common->devices[i]);

        differ = differ || version != first;
        if (i == 0 || version < proposal->version)
            least = because;
        proposal->version = version < proposal->version ? version : proposal->version;
        proposal->c_version = c < proposal->c_version ? c : proposal->c_version;
    }
    if (proposal->c_version > proposal->version)
        proposal->c_version = proposal->version;

    reason = reasons_note_answer(common->reasons, CL_DEVICE_VERSION,
                                 differ ? REASON_LEAST : REASON_EQUAL, least);
    for (size_t i = 0; differ && i < common->count; i++)
        if (present_device_version(common->devices[i], &because) == proposal->version)
            reason_by(reason, i);
}

/* Note each refused extension once, whichever devices have it. */
static int present_note_refused(const struct common *common)
{
    for (size_t i = 0; common->reasons && i < common->count; i++) {
        char CLEANUP(cleanup_free) *words =
            strdup(devinfo_string(common->devices[i], CL_DEVICE_EXTENSIONS));
        const struct devinfo_value *features =
            devinfo_find(common->devices[i], CL_DEVICE_OPENCL_C_FEATURES);
        char *rest = NULL;

        if (!words)
            return -ENOMEM;
        for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
            if (carried_find(word) < 0)
                reasons_note_name(common->reasons, REASON_EXTENSION, word, REASON_NOT_CARRIED,
                                  carried_refusal(word));
        }
        for (size_t j = 0; j < devinfo_list_count(features); j++) {
            const cl_name_version entry = devinfo_list_entry(features, j);

            if (carried_find(entry.name) < 0)
                reasons_note_name(common->reasons, REASON_FEATURE, entry.name, REASON_NOT_CARRIED,
                                  carried_refusal(entry.name));
        }
    }
    return 0;
}

static int present_proposal_names(struct proposal *proposal)
{
    for (size_t i = 0; i < carried_count; i++)
        proposal->names[i] = common_name(&proposal->common, carried_names[i]);
    return present_note_refused(&proposal->common);
}

/* Write the remaining names of that kind, with the lowest version that some device gives, or
 * @fallback. */
static int present_write_versioned(struct proposal *proposal, cl_device_info list,
                                   enum reason_kind kind, cl_version fallback)
{
    cl_name_version entries[CARRIED_MAX] = {0};
    size_t used = 0;

    for (size_t i = 0; i < carried_count; i++) {
        const char *name = carried_names[i];
        bool in_all;

        if (!proposal->names[i] || carried_kind(name) != kind)
            continue;
        cl_version version = common_name_version(&proposal->common, list, name, &in_all);
        entries[used].version = version ? version : fallback;
        snprintf(entries[used++].name, sizeof(entries[0].name), "%s", name);
    }
    return reply_set(&proposal->answers, list, entries, used * sizeof(entries[0]));
}

static int present_write_names(struct proposal *proposal)
{
    char text[CARRIED_MAX * CL_NAME_VERSION_MAX_NAME_SIZE] = "";
    int err;

    for (size_t i = 0; i < carried_count; i++)
        if (proposal->names[i] && carried_kind(carried_names[i]) == REASON_EXTENSION)
            strcat(strcat(text, text[0] ? " " : ""), carried_names[i]);
    err = reply_set_string(&proposal->answers, CL_DEVICE_EXTENSIONS, text);
    if (!err)
        err = present_write_versioned(proposal, CL_DEVICE_EXTENSIONS_WITH_VERSION, REASON_EXTENSION,
                                      CL_MAKE_VERSION(1, 0, 0));
    if (!err)
        err = present_write_versioned(proposal, CL_DEVICE_OPENCL_C_FEATURES, REASON_FEATURE,
                                      VERSION_3);
    return err;
}

/* OpenCL C 2.0 is left out: like OpenCL 2.0, it requires what cannot be carried. */
static int present_write_c_versions(struct proposal *proposal)
{
    const struct devinfo_value *combined =
        devinfo_find(&proposal->answers, CL_DEVICE_OPENCL_C_ALL_VERSIONS);
    size_t count = devinfo_list_count(combined), used = 0;
    cl_name_version CLEANUP(cleanup_free) *entries = calloc(count + 1, sizeof(*entries));

    if (!entries)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        entries[used] = devinfo_list_entry(combined, i);
        if (present_carried_version(entries[used].version) == entries[used].version &&
            entries[used].version <= proposal->version)
            used++;
    }
    return reply_set(&proposal->answers, CL_DEVICE_OPENCL_C_ALL_VERSIONS, entries,
                     used * sizeof(*entries));
}

/* Write CL_DEVICE_IL_VERSION from CL_DEVICE_ILS_WITH_VERSION, which is the finer list. */
static int present_write_ils(struct proposal *proposal)
{
    const struct devinfo_value *ils = devinfo_find(&proposal->answers, CL_DEVICE_ILS_WITH_VERSION);
    char text[1024] = "";
    size_t used = 0;

    if (!ils)
        return 0;
    for (size_t i = 0; i < devinfo_list_count(ils); i++) {
        const cl_name_version entry = devinfo_list_entry(ils, i);
        int length =
            snprintf(text + used, sizeof(text) - used, "%s%s_%u.%u", used ? " " : "", entry.name,
                     CL_VERSION_MAJOR(entry.version), CL_VERSION_MINOR(entry.version));

        if (length < 0 || (size_t)length >= sizeof(text) - used)
            break;
        used += (size_t)length;
    }
    return reply_set_string(&proposal->answers, CL_DEVICE_IL_VERSION, text);
}

static const char *present_kind_name(cl_device_type type)
{
    if (type & CL_DEVICE_TYPE_GPU)
        return "GPU";
    if (type & CL_DEVICE_TYPE_ACCELERATOR)
        return "accelerator";
    return type & CL_DEVICE_TYPE_CPU ? "CPU" : "custom";
}

static const char *present_profile_name(const struct proposal *proposal)
{
    return proposal_is_embedded(proposal) ? "EMBEDDED_PROFILE" : "FULL_PROFILE";
}

/* Strings are our own; in the native profile the first device's, where they are still true. */
static int present_write_strings(struct proposal *proposal, bool native, cl_device_type type)
{
    const struct devinfo *first = proposal->common.devices[0];
    char name[64], version[64], c[64];
    const struct {
        cl_device_info name;
        const char *ours;
        bool own; /* The first device's own value is also true. */
        const char *because;
    } strings[] = {
        {CL_DEVICE_NAME, name, true, NULL},
        {CL_DEVICE_VENDOR, PRODUCT, true, "so that programs take no vendor's path"},
        {CL_DRIVER_VERSION, RESEAT_VERSION, true, NULL},
        {CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED, NOT_CONFORMANT, true, NULL},
        {CL_DEVICE_PROFILE, present_profile_name(proposal), false,
         "full where every device has it"},
        {CL_DEVICE_VERSION, version, devinfo_version(first) == proposal->version, NULL},
        {CL_DEVICE_OPENCL_C_VERSION, c, devinfo_c_version(first) == proposal->c_version,
         "a later one is only told where all of its features are"},
    };

    snprintf(name, sizeof(name), "%s virtual device (%s)", PRODUCT, present_kind_name(type));
    snprintf(version, sizeof(version), "OpenCL %u.%u %s %s", CL_VERSION_MAJOR(proposal->version),
             CL_VERSION_MINOR(proposal->version), PRODUCT, RESEAT_VERSION);
    snprintf(c, sizeof(c), "OpenCL C %u.%u %s", CL_VERSION_MAJOR(proposal->c_version),
             CL_VERSION_MINOR(proposal->c_version), PRODUCT);
    for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
        const char *own = devinfo_string(first, strings[i].name);
        bool keep = native && strings[i].own && own[0];
        int err =
            reply_set_string(&proposal->answers, strings[i].name, keep ? own : strings[i].ours);

        if (strings[i].name != CL_DEVICE_VERSION)
            reasons_note_answer(proposal->common.reasons, strings[i].name,
                                keep ? REASON_FIRST : REASON_OURS, strings[i].because);

        if (err)
            return err;
    }
    return 0;
}

static int present_write_numbers(struct proposal *proposal, bool native, cl_device_type type)
{
    const struct devinfo *first = proposal->common.devices[0];
    struct devinfo *answers = &proposal->answers;
    /* 0 is no vendor's id, so that a program takes no vendor-specific path. */
    uint64_t vendor = native ? devinfo_scalar(first, CL_DEVICE_VENDOR_ID, 0) : 0;
    int err = reply_set_scalar(answers, CL_DEVICE_TYPE, type, sizeof(cl_device_type));

    if (!err)
        err = reply_set_scalar(answers, CL_DEVICE_VENDOR_ID, vendor, sizeof(cl_uint));
    if (!err)
        err = reply_set_scalar(answers, CL_DEVICE_NUMERIC_VERSION, proposal->version,
                               sizeof(cl_version));
    if (!err)
        err = reply_set_scalar(answers, CL_DEVICE_OPENCL_C_NUMERIC_VERSION_KHR, proposal->c_version,
                               sizeof(cl_version_khr));
    return err;
}

/* Called last: drop answers that the presented version and extensions do not have. */
static void present_drop_unoffered(struct proposal *proposal)
{
    for (size_t i = 0; i < devinfo_param_count; i++) {
        const struct devinfo_param *param = &devinfo_params[i];

        if (param->since && param->since <= proposal->version)
            continue;
        if (!param->extension || !proposal_has(proposal, param->extension))
            reply_drop(&proposal->answers, param->name);
    }
}

static int present_write_param(struct proposal *proposal, const struct devinfo_param *param)
{
    const struct devinfo_value *own = devinfo_find(proposal->common.devices[0], param->name);

    if (!proposal->pins || param->rule != DEVINFO_PINS || !own)
        return common_param(&proposal->common, param);
    reason_by(reasons_note_answer(proposal->common.reasons, param->name, REASON_FIRST,
                                  "it pins the program that uses it"),
              0);
    return reply_set(&proposal->answers, param->name, own->bytes, own->size);
}

static int present_proposal_write(struct proposal *proposal, bool native,
                                  cl_device_type forced_type)
{
    cl_device_type type =
        forced_type ? forced_type : devinfo_scalar(proposal->common.devices[0], CL_DEVICE_TYPE, 0);
    int err = 0;

    reason_by(reasons_note_answer(proposal->common.reasons, CL_DEVICE_TYPE,
                                  forced_type ? REASON_OURS : REASON_FIRST,
                                  forced_type ? "as --present says" : NULL),
              0);
    present_proposal_versions(proposal);
    err = present_proposal_names(proposal);
    for (size_t i = 0; !err && i < devinfo_param_count; i++)
        err = present_write_param(proposal, &devinfo_params[i]);
    if (!err)
        err = common_formats(&proposal->common);
    if (!err)
        err = present_write_ils(proposal);
    if (err)
        return err;
    proposal_agree(proposal);
    err = present_write_names(proposal);
    if (!err)
        err = present_write_c_versions(proposal);
    if (!err)
        err = present_write_strings(proposal, native, type);
    if (!err)
        err = present_write_numbers(proposal, native, type);
    if (!err)
        present_drop_unoffered(proposal);
    return err;
}

/* 4.1: the extensions that every device of the platform has, and the platform's own. */
static int present_platform_extensions(const struct proposal *proposal, struct devinfo *platform)
{
    const char *names = devinfo_string(&proposal->answers, CL_DEVICE_EXTENSIONS);
    const struct devinfo_value *versions =
        devinfo_find(&proposal->answers, CL_DEVICE_EXTENSIONS_WITH_VERSION);
    cl_name_version list[CARRIED_MAX + 1] = {{CL_MAKE_VERSION(1, 0, 0), PLATFORM_ICD}};
    char CLEANUP(cleanup_free) *text = malloc(sizeof(PLATFORM_ICD) + strlen(names) + 2);
    int err;

    if (!text)
        return -ENOMEM;
    sprintf(text, "%s%s%s", PLATFORM_ICD, names[0] ? " " : "", names);
    err = reply_set_string(platform, CL_PLATFORM_EXTENSIONS, text);
    if (err || !versions)
        return err;
    memcpy(list + 1, versions->bytes, versions->size);
    return reply_set(platform, CL_PLATFORM_EXTENSIONS_WITH_VERSION, list,
                     sizeof(list[0]) + versions->size);
}

static int present_platform_write(const struct proposal *proposal, struct devinfo *platform)
{
    char version[64];
    const struct {
        cl_platform_info name;
        const char *text;
    } strings[] = {
        {CL_PLATFORM_PROFILE, present_profile_name(proposal)},
        {CL_PLATFORM_VERSION, version},
        {CL_PLATFORM_NAME, PRODUCT},
        {CL_PLATFORM_VENDOR, PRODUCT},
        {CL_PLATFORM_ICD_SUFFIX_KHR, "RESEAT"},
    };
    int err;

    snprintf(version, sizeof(version), "OpenCL %u.%u %s %s", CL_VERSION_MAJOR(proposal->version),
             CL_VERSION_MINOR(proposal->version), PRODUCT, RESEAT_VERSION);
    for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
        err = reply_set_string(platform, strings[i].name, strings[i].text);
        if (err)
            return err;
    }
    err = present_platform_extensions(proposal, platform);
    /* As for the device: present by version, or by cl_khr_extended_versioning. */
    if (!err && devinfo_find(&proposal->answers, CL_DEVICE_NUMERIC_VERSION))
        err = reply_set_scalar(platform, CL_PLATFORM_NUMERIC_VERSION, proposal->version,
                               sizeof(cl_version));
    /* 0: device and host timers are not synchronised (they would not stay so across a move). */
    if (!err && proposal->version >= VERSION_3)
        err = reply_set_scalar(platform, CL_PLATFORM_HOST_TIMER_RESOLUTION, 0, sizeof(cl_ulong));
    return err;
}

/*
 * Choose the devices that a program can be on: the one it starts on, and in the portable profile
 * the possible targets of a move, which need 1.2. @ret_place: index in @devices of each.
 */
static size_t present_choose(const struct devinfo *const *devices, size_t count,
                             enum present_profile profile, const struct devinfo **ret_chosen,
                             size_t *ret_place)
{
    size_t used = 0;

    for (size_t i = 0; i < count && (i == 0 || profile != PRESENT_NATIVE); i++) {
        if (i != 0 && devinfo_version(devices[i]) < VERSION_1_2)
            continue;
        ret_place[used] = i;
        ret_chosen[used++] = devices[i];
    }
    return used;
}

/* Convert device numbers in the reasons from the chosen devices to all devices. */
static void present_name_all_devices(struct reasons *reasons, const size_t *place, size_t used,
                                     enum present_profile profile)
{
    size_t next = 0;

    if (!reasons)
        return;
    reasons_spread(reasons, place, used);
    for (size_t i = 0; i < reasons->device_count; i++) {
        char name[32];

        if (next < used && place[next] == i) {
            next++;
            continue;
        }
        snprintf(name, sizeof(name), "%zu", i);
        reason_by(reasons_note_name(reasons, REASON_DEVICE, name, REASON_NOT_CARRIED,
                                    profile == PRESENT_NATIVE
                                        ? "only the first device counts in the native profile"
                                        : "it has no OpenCL 1.2, which moving there takes"),
                  i);
    }
}

int present_explain(const struct devinfo *const *devices, size_t count,
                    const struct present_terms *terms, struct present *ret,
                    struct reasons *ret_reasons)
{
    const struct devinfo **chosen = calloc(count + 1, sizeof(struct devinfo *));
    size_t *place = calloc(count + 1, sizeof(*place));
    struct reasons reasons = {.device_count = count};
    struct devinfo platform = {0};
    char *prologue = NULL;
    struct proposal proposal = {.native = terms->profile == PRESENT_NATIVE,
                                .pins = terms->profile == PRESENT_NATIVE && !terms->isolated,
                                .memory = terms->profile == PRESENT_PORTABLE ? terms->memory : 0,
                                .common = {.devices = chosen,
                                           .least_memory = terms->profile == PRESENT_COMMON,
                                           .answers = &proposal.answers,
                                           .reasons = ret_reasons ? &reasons : NULL}};
    int err = chosen && place ? 0 : -ENOMEM;

    if (!err && !count)
        err = -EINVAL;
    if (!err) {
        proposal.common.count = present_choose(devices, count, terms->profile, chosen, place);
        err = present_proposal_write(&proposal, terms->profile == PRESENT_NATIVE, terms->type);
    }
    if (!err)
        err = present_platform_write(&proposal, &platform);
    if (!err)
        err = proposal_prologue(&proposal, &prologue);
    if (!err)
        present_name_all_devices(proposal.common.reasons, place, proposal.common.count,
                                 terms->profile);
    if (!err && reasons.failed)
        err = -ENOMEM;
    free(chosen);
    free(place);
    if (err) {
        devinfo_finish(&proposal.answers);
        devinfo_finish(&platform);
        reasons_finish(&reasons);
        free(prologue);
        return err;
    }
    *ret = (struct present){proposal.answers, platform, proposal.version, prologue};
    if (ret_reasons)
        *ret_reasons = reasons;
    return 0;
}

int present_build(const struct devinfo *const *devices, size_t count,
                  const struct present_terms *terms, struct present *ret)
{
    return present_explain(devices, count, terms, ret, NULL);
}

void present_finish(struct present *present)
{
    devinfo_finish(&present->device);
    devinfo_finish(&present->platform);
    free(present->prologue);
    present->prologue = NULL;
}

static cl_int present_answer(const struct devinfo *answers, cl_uint name, size_t param_value_size,
                             void *param_value, size_t *ret_size)
{
    const struct devinfo_value *value = devinfo_find(answers, name);

    if (!value)
        return CL_INVALID_VALUE;
    return info_answer(value->bytes, value->size, param_value_size, param_value, ret_size);
}

cl_int present_device_info(const struct present *present, cl_device_info name,
                           size_t param_value_size, void *param_value, size_t *ret_size)
{
    return present_answer(&present->device, name, param_value_size, param_value, ret_size);
}

cl_int present_platform_info(const struct present *present, cl_platform_info name,
                             size_t param_value_size, void *param_value, size_t *ret_size)
{
    return present_answer(&present->platform, name, param_value_size, param_value, ret_size);
}

static cl_int present_find_formats(const struct present *present, cl_mem_flags flags,
                                   cl_mem_object_type type, cl_uint entries,
                                   const cl_image_format *formats,
                                   const struct devinfo_formats **ret_list)
{
    cl_mem_flags access;
    cl_int error = image_formats_check(flags, type, entries, formats, &access);
    if (error == CL_SUCCESS && access & CL_MEM_KERNEL_READ_AND_WRITE &&
        present->version < VERSION_2)
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS)
        *ret_list = devinfo_formats_of(&present->device, access, type);
    return error;
}

cl_int present_image_formats(const struct present *present, cl_mem_flags flags,
                             cl_mem_object_type type, cl_uint num_entries,
                             cl_image_format *image_formats, cl_uint *ret_count)
{
    const struct devinfo_formats *list;
    cl_int error = present_find_formats(present, flags, type, num_entries, image_formats, &list);
    return error ? error
                 : image_formats_answer(list ? list->formats : NULL, list ? list->count : 0,
                                        num_entries, image_formats, ret_count);
}

cl_int present_check_format(const struct present *present, cl_mem_flags flags,
                            cl_mem_object_type type, const cl_image_format *format)
{
    const struct devinfo_formats *list;
    if (!devinfo_scalar(&present->device, CL_DEVICE_IMAGE_SUPPORT, CL_FALSE))
        return CL_INVALID_OPERATION;
    if (!format)
        return CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
    cl_int error = present_find_formats(present, flags, type, 0, NULL, &list);
    if (error || devinfo_formats_have(list, format))
        return error;
    return image_element_size(format) ? CL_IMAGE_FORMAT_NOT_SUPPORTED
                                      : CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
}
