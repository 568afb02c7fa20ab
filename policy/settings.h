#ifndef RESEAT_POLICY_SETTINGS_H
#define RESEAT_POLICY_SETTINGS_H

#include "policy/decide.h"

/*
 * Settings: a row each has the name, type, range, default and meaning of a field of some struct.
 * The fields of struct policy_settings have a table here; agent/config has those of devices,
 * programs and servers. The configuration file, its manual page, `reseat config print` and the
 * simulator use the rows. Pure.
 */

enum setting_type {
    SETTING_FLAG,
    SETTING_NUMBER, /**< A plain count, or thousandths; int32_t where it may be negative. */
    SETTING_SECONDS,
    SETTING_SIZE, /**< Bytes: "512MiB". */
    SETTING_WAYS, /**< A list: "upgrade, spill, wait, suspend". */
    SETTING_WORD, /**< One of `words`; the field is its index, plus `min`: below that it is unset.
                   */
    SETTING_TEXT, /**< An array of characters. */
    SETTING_KIND, /**< Of a device, by `read` and `text`. */
    SETTING_PROTECTION, /**< How a program is protected, by `read` and `text`. */
};

struct setting {
    const char
        *name; /**< "minimum-stay": in the file, and RESEAT_MINIMUM_STAY in the environment. */
    enum setting_type type;
    const char *help;          /**< One or two sentences, with the unit. */
    int64_t min, max, initial; /**< Of numbers, flags (0, 1) and seconds; `max` 0: no maximum. */
    /**
     * The default of a SETTING_WAYS. In agent/config a description of the default; NULL: the
     * setting selects what the others are for.
     */
    const char *initial_text;
    /** Of a SETTING_WORD; ended by NULL. The first is the default, where it cannot be unset. */
    const char *const *words;
    size_t offset, size; /**< The field in its struct. */
    /** Of types that are not known here: as setting_read() and setting_text(). */
    int (*read)(const char *text, void *ret_value, char *ret_reason, size_t reason_size);
    void (*text)(const void *value, char *ret_text, size_t size);
};

/** The field of @setting in the struct @of. */
static inline void *setting_field(const struct setting *setting, void *of)
{
    return (char *)of + setting->offset;
}
/** The value of a flag, number, size or ways. */
int64_t setting_value(const struct setting *setting, const void *of);
/**
 * Set the field of @setting in the struct @of.
 *
 * @text  A flag: yes or no (true, on, 1; false, off, 0). Seconds: a whole number, with s, m, h or d
 *        behind it where it is not seconds. A size as size_parse() takes it. Ways: names with
 *        commas or spaces between; "none": refuse whatever does not fit. A word as it is.
 * Returns 0, or -EINVAL with one line in @ret_reason that says what the value should be.
 */
int setting_read(const struct setting *setting, const char *text, void *of, char *ret_reason,
                 size_t reason_size);
/** As setting_read() takes it. */
void setting_text(const struct setting *setting, const void *of, char *ret_text, size_t size);

/** What `float` may be: results of each kind of device, in the order of the words. */
extern const char *const settings_float_words[];

extern const struct setting settings_table[];
extern const size_t settings_count;

void settings_init(struct policy_settings *ret_settings);
/** NULL when there is none of that name. */
const struct setting *settings_find(const char *name);
/** As setting_read(); the reason begins with the setting's name. */
int settings_set(struct policy_settings *settings, const struct setting *setting, const char *text,
                 char *ret_reason, size_t reason_size);

/** "upgrade" and so on; the bit of a name or 0. */
const char *policy_way_name(enum policy_way way);
unsigned policy_way_of(const char *name, size_t length);

#endif
