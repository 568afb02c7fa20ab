#ifndef RESEAT_STATE_DRIVER_DEVICE_KEY_H
#define RESEAT_STATE_DRIVER_DEVICE_KEY_H

#include "state/driver/driver.h"

/** Enough for any key, escaped. */
#define DEVICE_KEY_TEXT_MAX 2048

/**
 * Write @key as one line of printable ASCII without spaces ("icd=...;platform=...;device=...;
 * ordinal=0;uuid=...;pci=..."), for the environment, the names file and the wire.
 *
 * @ret_text  At least DEVICE_KEY_TEXT_MAX bytes.
 */
void device_key_format(const struct device_key *key, char *ret_text);

/**
 * Read what device_key_format() wrote. Unknown fields are ignored; each field must fit, and icd
 * and device must be there.
 *
 * Returns 0 or -EINVAL.
 */
MUST_CHECK int device_key_parse(const char *text, struct device_key *ret_key);

#endif
