#ifndef RESEAT_STATE_PRESENT_REASONS_H
#define RESEAT_STATE_PRESENT_REASONS_H

#include "state/driver/devinfo.h"

/*
 * The reasons for the answers given to a program, noted where each answer is decided. A running
 * program passes NULL, since nobody reads them there.
 */

enum reason_kind {
    REASON_ANSWER,    /**< An answer of clGetDeviceInfo, or one that is not given. */
    REASON_EXTENSION, /**< An extension, offered or left out. */
    REASON_FEATURE,   /**< A feature of OpenCL C 3.0, offered or left out. */
    REASON_FORMAT,    /**< An image format that is left out of one list. */
    REASON_DEVICE,    /**< A device that did not take part. */
};

enum reason_rule {
    REASON_EQUAL,       /**< All devices give this answer. */
    REASON_LEAST,       /**< The lowest of all answers. */
    REASON_LARGEST,     /**< The highest of all answers. */
    REASON_MOST_MEMORY, /**< The answer of the device with the most memory. */
    REASON_COMMON,      /**< What all answers have in common. */
    REASON_FIRST,       /**< The answer of the device that the program starts on. */
    REASON_OURS,        /**< An answer of the virtual device itself. */
    REASON_MISSING,     /**< Not offered: some device does not have it. */
    REASON_NOT_CARRIED, /**< Not offered: it cannot be carried from device to device. */
    REASON_AGREES,      /**< Changed, so that it agrees with another answer. */
};

struct reason {
    enum reason_kind kind;
    enum reason_rule rule;
    cl_device_info param;                     /**< REASON_ANSWER. */
    char name[CL_NAME_VERSION_MAX_NAME_SIZE]; /**< REASON_EXTENSION, REASON_FEATURE. */
    cl_mem_flags flags;                       /**< REASON_FORMAT: the list's access... */
    cl_mem_object_type type;                  /**< ...its image type... */
    cl_image_format format;                   /**< ...and the format that is left out. */
    const char *because; /**< Explanation beyond the rule; NULL: none. Static. */
    bool *by;            /**< For each device: whether it decided. Owned by the list. */
};

struct reasons {
    size_t device_count;
    size_t count;
    struct reason *items; /**< In the order of the first note of each subject. */
    bool failed;          /**< Out of memory: the list lacks something. */
};

/**
 * Note a reason. It replaces an earlier one for the same subject, with its devices.
 *
 * @reasons  NULL: nothing is noted.
 * @what  Copied; its field `by` is ignored.
 * Returns the note, for reason_by, until the next one; or NULL.
 */
struct reason *reasons_note(struct reasons *reasons, const struct reason *what);
/** The same for one answer, extension or feature. */
struct reason *reasons_note_answer(struct reasons *reasons, cl_device_info param,
                                   enum reason_rule rule, const char *because);
struct reason *reasons_note_name(struct reasons *reasons, enum reason_kind kind, const char *name,
                                 enum reason_rule rule, const char *because);
/** Note that this device decided. */
static inline void reason_by(struct reason *reason, size_t device)
{
    if (reason)
        reason->by[device] = true;
}

/** The reason for an answer, or for an extension or feature; NULL: none was noted. Borrowed. */
const struct reason *reasons_find_answer(const struct reasons *reasons, cl_device_info param);
const struct reason *reasons_find_name(const struct reasons *reasons, enum reason_kind kind,
                                       const char *name);

/** Renumber the devices: the notes were made with @count devices; device i of them is @place[i]
 * (ascending) of all. */
void reasons_spread(struct reasons *reasons, const size_t *place, size_t count);

void reasons_finish(struct reasons *reasons);

#endif
