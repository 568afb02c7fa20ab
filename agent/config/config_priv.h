#ifndef RESEAT_AGENT_CONFIG_CONFIG_PRIV_H
#define RESEAT_AGENT_CONFIG_CONFIG_PRIV_H

#include "agent/config/config.h"

/*
 * Internals of the configuration: config_scan.c checks the text before libconfig parses it,
 * config_read.c converts the result of libconfig, config_fields.c has the table of entries' fields,
 * config.c combines the file, the environment and options, config_print.c writes a configuration.
 */

/** Names that a user may write for a kind of device, and the kind's name in the file. */
struct config_kind {
    const char *name; /**< As `reseat devices` shows it. */
    enum place_kind kind;
};
#define CONFIG_KINDS 4
extern const struct config_kind config_kinds[CONFIG_KINDS];

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

enum config_type {
    CONFIG_TEXT,       /**< char[CONFIG_NAME_MAX] */
    CONFIG_KIND,       /**< int with a value of enum place_kind */
    CONFIG_SIZE,       /**< uint64_t, bytes */
    CONFIG_NUMBER,     /**< int32_t, or uint32_t where it is not negative */
    CONFIG_TRUTH,      /**< bool */
    CONFIG_WAYS,       /**< unsigned with bits of enum policy_way */
    CONFIG_PROTECTION, /**< struct protection: a boolean, seconds, or a size */
};

struct config_field {
    const char *name;
    enum config_type type;
    size_t offset; /**< Offset in the entry. */
    int64_t min, max;
    const char *help;    /**< One line. */
    const char *initial; /**< A description of the default. NULL: the field is a selector. */
};

/** One of the lists "devices", "programs" and "servers". */
struct config_list {
    const char *name;
    const char *help;
    const char *example; /**< Lines of a comment. */
    const struct config_field *fields;
    unsigned field_count;
    /** The number of selectors, which come first. An entry sets at least one of them. */
    unsigned selectors;
    size_t entry_size;
    void (*init)(struct config_entry *entry);
    /**
     * Check an entry as a whole, with the fault in @ret_reason; NULL: there is nothing to check.
     */
    bool (*is_wrong)(struct config_entry *entry, char *ret_reason, size_t size);
};
extern const struct config_list config_list_devices, config_list_programs, config_list_servers;

/** A field's value as text for the file; "" where it has no text. */
#define CONFIG_VALUE_MAX (4 * CONFIG_NAME_MAX)
void config_field_text(const struct config_field *field, const struct config_entry *entry,
                       char ret_text[CONFIG_VALUE_MAX]);
static inline void *config_field_at(const struct config_field *field, struct config_entry *entry)
{
    return (char *)entry + field->offset;
}

/** "upgrade, spill" or "none". Returns 0, or -EINVAL with a reason. */
MUST_CHECK int config_ways_parse(const char *text, unsigned *ret_ways, char *ret_reason,
                                 size_t reason_size);

/** The reason that settings_set() gave, without the setting's name at its beginning. */
const char *config_settings_reason(const struct setting *setting, const char *reason);

/** The value of a policy setting as text for the file. */
void config_policy_text(const struct config *config, const struct setting *setting, char *ret_text,
                        size_t size);

/** @text in quotes, escaped for the file. Truncated at @size. */
void config_quote(const char *text, char *ret, size_t size);

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
