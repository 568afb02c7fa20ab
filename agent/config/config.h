#ifndef RESEAT_AGENT_CONFIG_CONFIG_H
#define RESEAT_AGENT_CONFIG_CONFIG_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "agent/protocol/protection.h"
#include "policy/decide.h"
#include "policy/place.h"
#include "policy/settings.h"
#include "state/base/compiler.h"

/*
 * The configuration: one file with comments that the agent and the command line read
 * (reseat.conf(5)). Where several say a value of the policy, an option of the command line goes
 * before the environment (RESEAT_MINIMUM_STAY), that before the file, that before the default.
 *
 * A struct config is read by any number of threads as long as none loads or finishes it. The names
 * here keep clear of libconfig's.
 */

#define CONFIG_SYSTEM_PATH "/etc/reseat/reseat.conf"
#define CONFIG_FILE_MAX    (256u << 10) /**< Bytes of a file. */
#define CONFIG_ENTRIES_MAX 1024         /**< Devices, and programs, in a file. */
#define CONFIG_NAME_MAX    128          /**< Bytes of a name or pattern, with the NUL. */
#define CONFIG_REASON_MAX  512

/** No limit, as a number of bytes. */
#define CONFIG_UNLIMITED UINT64_MAX

/** Where a value comes from; a higher one overrides. */
enum config_origin { CONFIG_DEFAULT, CONFIG_FILE, CONFIG_ENVIRONMENT, CONFIG_OPTION };

/** What the file says of a device. */
struct config_device {
    uint64_t memory; /**< Bytes that programs may have there; CONFIG_UNLIMITED: all of it. */
    uint32_t speed;  /**< Relative: 1000 is the reference device's; 0: not said. */
    uint32_t price;  /**< Of an hour, relative in the same way; 0: not said. */
    bool closed;     /**< Takes no new program. */
    unsigned line;   /**< In the file; 0: nothing is said of it. */
};

/** What the file says of a program. */
struct config_program {
    int32_t priority; /**< Higher goes first; 0 is usual. */
    bool preemptible; /**< May be displaced by others of its priority. */
    uint64_t quota;   /**< Bytes of device memory that it may have, at most. */
    uint64_t warm;    /**< Bytes of host memory that it keeps ready; CONFIG_UNLIMITED: not said. */
    uint64_t presented;           /**< Bytes of device memory that it is told of; 0: not said. */
    unsigned ways;                /**< enum policy_way. */
    struct protection protect;    /**< Without an entry: on or off, as the policy's setting. */
    char device[CONFIG_NAME_MAX]; /**< Where it has to be, as `reseat move` takes it; "": anywhere.
                                   */
    unsigned line;                /**< In the file; 0: nothing is said of it. */
};

struct config_device_entry;
struct config_program_entry;
struct config_server_entry;

/** Filled by config_load(); to be read through the functions below. */
struct config {
    char path[PATH_MAX]; /**< The file; "": none. */
    struct policy_settings policy;
    enum config_origin *origins; /**< Of each of settings_table. */
    unsigned *lines;             /**< In the file, of those that it says. */
    struct config_device_entry *devices;
    size_t device_count;
    struct config_program_entry *programs;
    size_t program_count;
    struct config_server_entry *servers;
    size_t server_count;
};

/** Why a configuration is refused. */
struct config_error {
    char file[PATH_MAX]; /**< "": it is the environment or an option. */
    unsigned line;       /**< 0: it is no line of the file. */
    char reason[CONFIG_REASON_MAX];
};

/** A value of the policy that an option gives. Borrowed. */
struct config_option {
    const char *name; /**< "minimum-stay". */
    const char *value;
};

/** What a configuration is made of. Borrowed. */
struct config_source {
    const char *path; /**< NULL: no file. */
    bool environment; /**< RESEAT_<NAME> count. */
    const struct config_option *options;
    size_t option_count; /**< Of equal names the last counts. */
};

/**
 * The file that is read: $RESEAT_CONFIG where that is set and not empty, else the first that there
 * is of $XDG_CONFIG_HOME/reseat/reseat.conf (without XDG_CONFIG_HOME: ~/.config/reseat/reseat.conf)
 * and @system.
 *
 * @ret_path  Also where there is none: then the first place that was looked at.
 * Returns 0, -ENOENT (there is none: the defaults hold) or -ENAMETOOLONG. A file that
 * $RESEAT_CONFIG names counts as there, so that to read it fails where it is not.
 */
MUST_CHECK int config_find(const char *system, char ret_path[PATH_MAX]);

/**
 * Read a configuration. Files are regular, of CONFIG_FILE_MAX at most, and include no others.
 *
 * @ret_config  To be given to config_finish(); untouched on failure.
 * @ret_error   Written on failure only: the first thing that is wrong.
 * Blocks on the file. Returns 0, -EINVAL (something in it is wrong), -ENOMEM, or what open() or
 * read() said.
 */
MUST_CHECK int config_load(const struct config_source *source, struct config *ret_config,
                           struct config_error *ret_error);
/**
 * The same of what is in effect where this runs: the file that config_find() finds, the
 * environment, and @options.
 */
MUST_CHECK int config_load_effective(const struct config_option *options, size_t option_count,
                                     struct config *ret_config, struct config_error *ret_error);
/** Frees what config_load() made; also of one that is all zero. */
void config_finish(struct config *config);

/** The variable of the environment that says a setting: "RESEAT_MINIMUM_STAY". */
void config_variable(const struct setting *setting, char *ret, size_t size);

/**
 * Write @config as a file that gives the same when it is read, with comments that say what each
 * setting means and where its value comes from. Returns 0 or -EIO.
 */
MUST_CHECK int config_print(const struct config *config, FILE *to);

/** "FILE:LINE: REASON" as far as these are known. */
void config_error_format(const struct config_error *error, char *ret_text, size_t size);

/** Valid as long as @config is. */
const struct policy_settings *config_policy(const struct config *config);

/**
 * What is said of a device: the first entry counts of which everything that it asks for fits.
 *
 * @name   As `reseat devices` shows it ("gpu0").
 * @model  What its driver calls it; NULL: not known.
 * @ret    Without an entry: no limit, open, the rest not said.
 */
void config_device(const struct config *config, const char *name, enum place_kind kind,
                   const char *model, struct config_device *ret);

/**
 * What is said of a program: the first entry counts whose pattern fits its name.
 *
 * @ret  Without an entry: priority 0, not preemptible, no quota, all ways, anywhere.
 */
void config_program(const struct config *config, const char *name, struct config_program *ret);

/** The name and address of the server @index, below config->server_count. Valid as long as @config
 *  is. */
void config_server(const struct config *config, size_t index, const char **ret_name,
                   const char **ret_address);

/**
 * The name that somebody who wrote @name may have meant. Pure.
 *
 * @most  How many letters may have to change, come or go; SIZE_MAX: any number.
 * Returns the one of @count @names that is most like it; NULL where none is so near.
 */
const char *config_nearest(const char *name, const char *const *names, size_t count, size_t most);

#endif
