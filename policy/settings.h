#ifndef RESEAT_POLICY_SETTINGS_H
#define RESEAT_POLICY_SETTINGS_H

#include "policy/decide.h"

/*
 * One table of the names, ranges, defaults and meanings of all fields of struct policy_settings.
 * The configuration file, its manual page, `reseat config print` and the simulator use it. Pure.
 */

enum setting_type {
    SETTING_FLAG,
    SETTING_NUMBER, /**< A plain count, or thousandths. */
    SETTING_SECONDS,
    SETTING_SIZE, /**< Bytes: "512MiB". */
    SETTING_WAYS, /**< A list: "upgrade, spill, wait, suspend". */
};

struct setting {
    const char
        *name; /**< "minimum-stay": in the file, and RESEAT_MINIMUM_STAY in the environment. */
    enum setting_type type;
    const char *help;           /**< One or two sentences, with the unit. */
    uint64_t min, max, initial; /**< Of numbers, flags (0, 1) and seconds. */
    const char *initial_ways;   /**< Default of a SETTING_WAYS. */
    size_t offset, size;        /**< The field in struct policy_settings. */
};

extern const struct setting settings_table[];
extern const size_t settings_count;

void settings_init(struct policy_settings *ret_settings);
/** NULL when there is none of that name. */
const struct setting *settings_find(const char *name);
/**
 * @text  A flag: yes or no (true, on, 1; false, off, 0). Seconds: a whole number, with s, m, h or d
 *        behind it where it is not seconds. A size as size_parse() takes it. Ways: names with
 * commas or spaces between; "none": refuse whatever does not fit. Returns 0, or -EINVAL with one
 * line in @ret_reason that names the value and the range.
 */
int settings_set(struct policy_settings *settings, const struct setting *setting, const char *text,
                 char *ret_reason, size_t reason_size);
/** As settings_set takes it; 64 bytes are enough. */
void settings_text(const struct policy_settings *settings, const struct setting *setting,
                   char *ret_text, size_t size);

/** "upgrade" and so on; the bit of a name or 0. */
const char *policy_way_name(enum policy_way way);
unsigned policy_way_of(const char *name, size_t length);

#endif
