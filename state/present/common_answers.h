#ifndef RESEAT_STATE_PRESENT_COMMON_ANSWERS_H
#define RESEAT_STATE_PRESENT_COMMON_ANSWERS_H

#include "state/driver/devinfo.h"
#include "state/present/reasons.h"

/* Combines the answers of several devices into what all of them offer. Pure. */

/** The devices, and the results. All borrowed. */
struct common {
    const struct devinfo *const *devices;
    size_t count;
    bool least_memory; /**< DEVINFO_MEMORY parameters are the least of all. */
    struct devinfo *answers;
    struct reasons *reasons; /**< Or NULL. */
};

/** True when the device gives this parameter an answer that its row in the table allows. */
bool common_answers(const struct devinfo *device, const struct devinfo_param *param);

/**
 * Combine the answers to one parameter, as its row in the table says.
 *
 * An ability that some device does not mention counts as missing. Any other parameter that some
 * device does not answer, or answers in another size, is left out, and so are those of kind
 * DEVINFO_OURS. DEVINFO_NONE and DEVINFO_PINS give zero, "" or an empty list. Returns 0 or -ENOMEM.
 */
MUST_CHECK int common_param(const struct common *common, const struct devinfo_param *param);

/** Combine image formats: for each access and type, the first device's formats that all devices
 * have. */
MUST_CHECK int common_formats(const struct common *common);

/** True when all devices name this extension; notes which do not. */
bool common_extension(const struct common *common, const char *name);

/**
 * The least version of @name in the cl_name_version lists that have it.
 *
 * @ret_in_all  False when some list lacks it or is absent.
 * Returns 0 when no list has it.
 */
cl_version common_name_version(const struct common *common, cl_device_info list, const char *name,
                               bool *ret_in_all);

/** True when all devices list this feature of OpenCL C; notes which do not. */
bool common_feature(const struct common *common, const char *name);

#endif
