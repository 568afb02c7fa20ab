#ifndef RESEAT_AGENT_CONFIG_CONFIG_PRIV_H
#define RESEAT_AGENT_CONFIG_CONFIG_PRIV_H

#include "agent/config/config.h"

/*
 * Internals of the configuration: config_scan.c checks the text before libconfig parses it,
 * config_read.c converts the result of libconfig, config_fields.c has the settings of entries,
 * config.c combines the file, the environment and options, config_print.c writes a configuration.
 */

/** The first member of the entries of all lists, so that the same code reads all of them. */
struct config_entry {
    unsigned given; /**< One bit for each field: the entry sets it. */
    unsigned line;
    char match[CONFIG_NAME_MAX]; /**< Pattern for the name; "": any. */
};

#define CONFIG_ANY_KIND (-1)
struct config_device_entry {
    struct config_entry entry;
    char model[CONFIG_NAME_MAX]; /**< Pattern for the driver's name of the device; "": any. */
    int kind;                    /**< enum place_kind, or CONFIG_ANY_KIND. */
    struct config_device says;
};

struct config_program_entry {
    struct config_entry entry;
    struct config_program says;
};

struct config_server_entry {
    struct config_entry entry; /**< Its name is `match`. */
    char address[CONFIG_NAME_MAX];
};

struct config_user_entry {
    struct config_entry entry; /**< `match` is the user's name or number, or "*". */
    char group[CONFIG_NAME_MAX];
    int64_t uid, gid; /**< What these names stand for; -1: any. */
    struct config_user says;
};

/** One of the lists "devices", "programs", "servers" and "users". */
struct config_list {
    const char *name;
    const char *help;
    const char *example; /**< Lines of a comment. */
    const struct setting *fields;
    unsigned field_count;
    /** The number of selectors, which come first. An entry sets at least one of them. */
    unsigned selectors;
    size_t entry_size;
    void (*init)(struct config_entry *entry);
    /** Check a whole entry, with the fault in @ret_reason; NULL: nothing to check. */
    bool (*is_wrong)(struct config_entry *entry, char *ret_reason, size_t size);
};
extern const struct config_list config_lists[CONFIG_LISTS];

/** The value of a setting, of the struct @of, as text for the file. */
#define CONFIG_VALUE_MAX (4 * CONFIG_NAME_MAX)
void config_value_text(const struct setting *setting, const void *of,
                       char ret_text[CONFIG_VALUE_MAX]);

/** Set @error. Returns -EINVAL. */
int config_wrong(struct config_error *error, unsigned line, const char *format, ...) PRINTF(3, 4);

/**
 * Check a text for faults that libconfig accepts silently (numbers that it truncates, comments that
 * never end, included files) and for faults that it reports only as a syntax error (quotes and
 * brackets that do not match). Also limits the size of what libconfig parses.
 *
 * Returns 0, or -EINVAL with @ret_error.
 */
MUST_CHECK int config_scan(const char *text, size_t size, struct config_error *ret_error);

/**
 * Parse @text into @config, whose settings are the defaults. On failure, too, the caller must
 * release @config with config_finish().
 *
 * Returns 0, -EINVAL with @ret_error, or -ENOMEM.
 */
MUST_CHECK int config_read_text(const char *text, struct config *config,
                                struct config_error *ret_error);

#endif
