#ifndef RESEAT_STATE_PRESENT_REPLY_H
#define RESEAT_STATE_PRESENT_REPLY_H

#include "state/driver/devinfo.h"

/* Builds a struct devinfo of our own, answer by answer; devinfo_find and the other readers read it.
 */

/** Set or replace one answer; @bytes are copied. Returns 0 or -ENOMEM. */
MUST_CHECK int reply_set(struct devinfo *info, cl_device_info name, const void *bytes, size_t size);
/** The same for a string, with its NUL. */
MUST_CHECK int reply_set_string(struct devinfo *info, cl_device_info name, const char *text);
/** The same for an unsigned number of @size bytes, 4 or 8. */
MUST_CHECK int reply_set_scalar(struct devinfo *info, cl_device_info name, uint64_t value,
                                size_t size);

/** Change a scalar answer in place, keeping its size; does nothing where there is none. */
void reply_change(struct devinfo *info, cl_device_info name, uint64_t value);
/** Keep the first @size bytes of an answer that has more. */
void reply_shorten(struct devinfo *info, cl_device_info name, size_t size);
/** Remove one answer. */
void reply_drop(struct devinfo *info, cl_device_info name);

#endif
