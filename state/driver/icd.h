#ifndef RESEAT_STATE_DRIVER_ICD_H
#define RESEAT_STATE_DRIVER_ICD_H

#include <stdbool.h>
#include <stddef.h>

#include "state/base/compiler.h"

/* Finds the driver libraries that an OpenCL loader would open, except ourselves. Opens none of
 * them. */

/** Longest name of a library, with its NUL; longer ones are skipped and logged. */
#define ICD_NAME_SIZE 256

struct icd_list {
    char **libraries; /**< For dlopen, as the .icd file or the variable names them; each once. */
    size_t count;
};

/**
 * Read the places that a loader would: the vendors' folder (or one .icd file, or one library), then
 * the colon-separated OCL_ICD_FILENAMES. See DRIVER_ENV_VENDORS in state/driver/driver.h for
 * precedence; in a set-uid program the environment is ignored. Files in a folder are read in the
 * order of their names, so that the result is stable.
 *
 * @ret_list  Owned by the caller (icd_list_finish). Empty when there is no driver.
 * Returns 0 or -ENOMEM; files that cannot be read are skipped and logged.
 */
MUST_CHECK int icd_list_read(struct icd_list *ret_list);
void icd_list_finish(struct icd_list *list);

/** True when @library is ours by its file name. */
bool icd_is_ours(const char *library);

#endif
