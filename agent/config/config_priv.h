#ifndef RESEAT_AGENT_CONFIG_CONFIG_PRIV_H
#define RESEAT_AGENT_CONFIG_CONFIG_PRIV_H

#include "agent/config/config.h"

/*
 * Inside the configuration: config_scan.c looks at the text before libconfig parses it,
 * config_read.c takes what libconfig found, config_fields.c knows what an entry of a device or
 * program may say, config.c puts file, environment and options together, config_print.c writes them
 * out.
 */

/** Words that a person may have meant, and what the file calls them. */
struct config_kind {
    const char *name; /**< As `reseat devices` shows it. */
    enum place_kind kind;
};
#define CONFIG_KINDS 4
extern const struct config_kind config_kinds[CONFIG_KINDS];

/** What entries of all lists begin with, so that one code reads them. */
struct config_entry {
    unsigned given; /**< One bit a field: what the entry says. */
    unsigned line;
    char match[CONFIG_NAME_MAX]; /**< Of the name; "": any. */
};

#define CONFIG_ANY_KIND (-1)
struct config_device_entry {
    struct config_entry entry;
    char model[CONFIG_NAME_MAX]; /**< Of what the driver calls it; "": any. */
    int kind;                    /**< enum place_kind; CONFIG_ANY_KIND. */
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
    CONFIG_KIND,       /**< int, enum place_kind */
    CONFIG_SIZE,       /**< uint64_t, bytes */
    CONFIG_NUMBER,     /**< int32_t, or uint32_t where it is not negative */
    CONFIG_TRUTH,      /**< bool */
    CONFIG_WAYS,       /**< unsigned, enum policy_way */
    CONFIG_PROTECTION, /**< struct protection: a truth, seconds, or a size */
};

struct config_field {
    const char *name;
    enum config_type type;
    size_t offset; /**< In the entry. */
    int64_t min, max;
    const char *help;    /**< One line. */
    const char *initial; /**< In words: what holds where no entry says it. NULL: it selects. */
};

/** "devices", "programs" and "servers". */
struct config_list {
    const char *name;
    const char *help;
    const char *example; /**< Comment lines. */
    const struct config_field *fields;
    unsigned field_count;
    unsigned selectors; /**< The first ones: of these an entry gives one at least. */
    size_t entry_size;
    void (*init)(struct config_entry *entry);
    /** What is wrong with an entry as a whole, in @ret_reason; NULL: nothing can be. */
    bool (*is_wrong)(struct config_entry *entry, char *ret_reason, size_t size);
};
extern const struct config_list config_list_devices, config_list_programs, config_list_servers;

/** @text as a field takes it, "" where it cannot be said. */
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

/** What settings_set() said, without the name that it begins with. */
const char *config_settings_reason(const struct setting *setting, const char *reason);

/** A setting of the policy as the file takes it. */
void config_policy_text(const struct config *config, const struct setting *setting, char *ret_text,
                        size_t size);

/** @text between quotes, as the file takes it. Cut at @size. */
void config_quote(const char *text, char *ret, size_t size);

/** Set @error. Returns -EINVAL. */
int config_wrong(struct config_error *error, unsigned line, const char *format, ...) PRINTF(3, 4);

/**
 * Look at a text for what libconfig would take silently: numbers that it cuts, comments that never
 * end, other files; and for what it can only call a syntax error: quotes and brackets that do not
 * match. Bounds what it will be given.
 *
 * Returns 0, or -EINVAL with @ret_error.
 */
MUST_CHECK int config_scan(const char *text, size_t size, struct config_error *ret_error);

/**
 * Parse @text into @config, whose settings are the defaults. On failure what it holds is still to
 * be given to config_finish().
 *
 * Returns 0, -EINVAL with @ret_error, or -ENOMEM.
 */
MUST_CHECK int config_read_text(const char *text, struct config *config,
                                struct config_error *ret_error);

#endif
