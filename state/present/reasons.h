#ifndef RESEAT_STATE_PRESENT_REASONS_H
#define RESEAT_STATE_PRESENT_REASONS_H

#include "state/driver/devinfo.h"

/*
 * Why a program is told what it is told. Noted by what decides each answer, in the moment that it
 * decides; a program has nobody who asks, and passes NULL for all of it.
 */

enum reason_kind {
    REASON_ANSWER,    /**< Of clGetDeviceInfo, or one that is not given. */
    REASON_EXTENSION, /**< Offered or left out. */
    REASON_FEATURE,   /**< Of OpenCL C 3.0, likewise. */
    REASON_FORMAT,    /**< An image format that is left out of one list. */
    REASON_DEVICE,    /**< A device that did not take part. */
};

enum reason_rule {
    REASON_EQUAL,       /**< Every device says so. */
    REASON_LEAST,       /**< The least of what devices say. */
    REASON_LARGEST,     /**< The largest. */
    REASON_MOST_MEMORY, /**< What the device with the most memory says. */
    REASON_COMMON,      /**< What the answers of all have in common. */
    REASON_FIRST,       /**< What the device says that the program starts on. */
    REASON_OURS,        /**< Of the virtual device itself. */
    REASON_MISSING,     /**< Not offered: some device does not have it. */
    REASON_NOT_CARRIED, /**< Not offered: it cannot be carried from device to device. */
    REASON_AGREES,      /**< Changed, so that it agrees with another answer. */
};

struct reason {
    enum reason_kind kind;
    enum reason_rule rule;
    cl_device_info param;                     /**< REASON_ANSWER. */
    char name[CL_NAME_VERSION_MAX_NAME_SIZE]; /**< REASON_EXTENSION, REASON_FEATURE. */
    cl_mem_flags flags;                       /**< REASON_FORMAT: of the list... */
    cl_mem_object_type type;                  /**< ...its image type... */
    cl_image_format format;                   /**< ...and what is left out. */
    const char *because; /**< More than the rule says; NULL: nothing. Static. */
    bool *by;            /**< Of each device: it is what decided. Owned by the list. */
};

struct reasons {
    size_t device_count;
    size_t count;
    struct reason *items; /**< In the order of the first note of each subject. */
    bool failed;          /**< Out of memory: the list lacks something. */
};

/**
 * Note a reason. One that was noted for the same subject before is replaced, the devices that
 * decided it included.
 *
 * @reasons  NULL: nothing is noted.
 * @what     Copied; its by is ignored.
 * Returns the note, for reason_by, until the next one; or NULL.
 */
struct reason *reasons_note(struct reasons *reasons, const struct reason *what);
/** The same for one answer, extension or feature. */
struct reason *reasons_note_answer(struct reasons *reasons, cl_device_info param,
                                   enum reason_rule rule, const char *because);
struct reason *reasons_note_name(struct reasons *reasons, enum reason_kind kind, const char *name,
                                 enum reason_rule rule, const char *because);
/** Say that this device decided. @reason may be NULL. */
static inline void reason_by(struct reason *reason, size_t device)
{
    if (reason)
        reason->by[device] = true;
}

/** The reason for an answer, or for an extension or feature; NULL: none was noted. Borrowed. */
const struct reason *reasons_find_answer(const struct reasons *reasons, cl_device_info param);
const struct reason *reasons_find_name(const struct reasons *reasons, enum reason_kind kind,
                                       const char *name);

/** Notes were made with @count devices; device i of them is @place[i] (ascending) of all. */
void reasons_spread(struct reasons *reasons, const size_t *place, size_t count);

void reasons_finish(struct reasons *reasons);

#endif
