#ifndef RESEAT_AGENT_CONFIG_CONFIG_H
#define RESEAT_AGENT_CONFIG_CONFIG_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "agent/protocol/protection.h"
#include "policy/decide.h"
#include "policy/settings.h"
#include "state/base/compiler.h"

/*
 * The configuration: one file with comments, which the agent and the command line read
 * (reseat.conf(5)). For a setting of the policy, an option of the command line overrides the
 * environment (RESEAT_MINIMUM_STAY), which overrides the file, which overrides the default.
 *
 * Any number of threads may read a struct config as long as no thread loads or finishes it. The
 * names here do not collide with libconfig's.
 */

#define CONFIG_SYSTEM_PATH "/etc/reseat/reseat.conf"
#define CONFIG_FILE_MAX    (256u << 10) /**< Bytes of a file. */
#define CONFIG_ENTRIES_MAX 1024         /**< Device entries, and program entries, in a file. */
#define CONFIG_NAME_MAX    128          /**< Bytes of a name or pattern, with the NUL. */
#define CONFIG_REASON_MAX  512

/** As a number of bytes: no limit. */
#define CONFIG_UNLIMITED UINT64_MAX

/** The origin of a value; a higher one overrides a lower one. */
enum config_origin { CONFIG_DEFAULT, CONFIG_FILE, CONFIG_ENVIRONMENT, CONFIG_OPTION };

/** The file's settings for a device. */
struct config_device {
    uint64_t memory; /**< Bytes that programs may use; CONFIG_UNLIMITED: all. */
    uint32_t speed;  /**< Relative: 1000 is the speed of the reference device; 0: not set. */
    uint32_t price;  /**< Price of an hour, relative to the same reference device; 0: not set. */
    bool closed;     /**< It accepts no new program. */
    char meter[CONFIG_NAME_MAX]; /**< Of its energy: "file:PATH"; "": not set. */
    uint32_t idle_w, busy_w;     /**< Watts that it draws idle, and at most; 0: not set. */
    unsigned line;               /**< Line in the file; 0: no entry matches. */
};

/** The file's settings for a program. */
struct config_program {
    int32_t priority;   /**< Programs with a higher value go first; the default is 0. */
    bool preemptible;   /**< Programs of the same priority may displace it. */
    uint64_t quota;     /**< The most bytes of device memory that it may have. */
    uint64_t warm;      /**< Bytes of host memory that it keeps ready; CONFIG_UNLIMITED: not set. */
    uint64_t presented; /**< Bytes of device memory that it is shown; 0: not set. */
    unsigned ways;      /**< Bits of enum policy_way. */
    uint32_t cap_w;     /**< The power cap, in watts; 0: none. */
    /** 0: as the policy's setting says; else 1 + its value. */
    uint32_t objective, floats;
    /** Where no entry matches: on or off, as the policy's setting says. */
    struct protection protect;
    /** The only device that it may use, as `reseat move` takes it; "": any. */
    char device[CONFIG_NAME_MAX];
    unsigned line; /**< Line in the file; 0: no entry matches. */
};

/** The file's settings for a user of an agent for several. */
struct config_user {
    bool operates;       /**< An operator: see enum right (agent/daemon/peers.h). */
    uint64_t memory;     /**< The most bytes of device memory of the user's programs. */
    uint64_t programs;   /**< The most programs of the user; CONFIG_UNLIMITED, too. */
    uint64_t all_memory; /**< The same for all users of this entry together. */
    uint64_t all_programs;
    size_t entry; /**< Which one it is, from 1; 0: none matches. */
};

/** The lists of a file, in the order in which it is printed. */
enum config_list_kind {
    CONFIG_DEVICES,
    CONFIG_PROGRAMS,
    CONFIG_SERVERS,
    CONFIG_USERS,
    CONFIG_LISTS
};

/** Filled by config_load(); read it through the functions below. */
struct config {
    char path[PATH_MAX]; /**< The file; "": none. */
    struct policy_settings policy;
    enum config_origin *origins; /**< One for each setting of settings_table. */
    unsigned *lines;             /**< Lines in the file, for the settings that the file contains. */
    struct {
        void *entries; /**< Structs of config_priv.h. */
        size_t count;
    } lists[CONFIG_LISTS];
};

/** The reason why a configuration is refused. */
struct config_error {
    char file[PATH_MAX]; /**< "": the fault is in the environment or in an option. */
    unsigned line;       /**< 0: the fault is not in a line of the file. */
    char reason[CONFIG_REASON_MAX];
};

/** A setting of the policy from a command-line option. Borrowed. */
struct config_option {
    const char *name; /**< "minimum-stay". */
    const char *value;
};

/** The sources of a configuration. Borrowed. */
struct config_source {
    const char *path; /**< NULL: no file. */
    bool environment; /**< The variables RESEAT_<NAME> are read. */
    const struct config_option *options;
    size_t option_count; /**< Of options with the same name the last one applies. */
};

/**
 * Find the configuration file: $RESEAT_CONFIG where it is set and not empty, otherwise the first
 * existing file of $XDG_CONFIG_HOME/reseat/reseat.conf (without XDG_CONFIG_HOME:
 * ~/.config/reseat/reseat.conf) and @system.
 *
 * @ret_path  Set also where no file exists: then to the first path that was tried.
 * Returns 0, -ENOENT (no file exists: the defaults apply) or -ENAMETOOLONG. A file that
 * $RESEAT_CONFIG names is assumed to exist, so that reading it fails if it does not.
 */
MUST_CHECK int config_find(const char *system, char ret_path[PATH_MAX]);

/**
 * Read a configuration. The file must be a regular file of at most CONFIG_FILE_MAX bytes, and must
 * include no other file.
 *
 * @ret_config  Release it with config_finish(); untouched on failure.
 * @ret_error   Written on failure only: the first fault.
 * Blocks on the file. Returns 0, -EINVAL (the configuration has a fault), -ENOMEM, or the error of
 * open() or read().
 */
MUST_CHECK int config_load(const struct config_source *source, struct config *ret_config,
                           struct config_error *ret_error);
/** As config_load(), from the file that config_find() finds, environment and @options. */
MUST_CHECK int config_load_effective(const struct config_option *options, size_t option_count,
                                     struct config *ret_config, struct config_error *ret_error);
/** Free what config_load() allocated. A configuration that is all zero is allowed. */
void config_finish(struct config *config);

/** The name of a setting's environment variable: "RESEAT_MINIMUM_STAY". */
void config_variable(const struct setting *setting, char *ret, size_t size);

/**
 * Write @config as a file that reads back as the same configuration, with comments that explain
 * each setting and name the origin of its value. Returns 0 or -EIO.
 */
MUST_CHECK int config_print(const struct config *config, FILE *to);

/** "FILE:LINE: REASON", without the parts that are not known. */
void config_error_format(const struct config_error *error, char *ret_text, size_t size);

/** Valid as long as @config is. */
const struct policy_settings *config_policy(const struct config *config);

/**
 * The settings for a device, from the first entry whose selectors all match it.
 *
 * @name   As `reseat devices` shows it ("gpu0").
 * @model  The driver's name for it; NULL: not known.
 * @ret    Where no entry matches: no limit, open, the rest not set.
 */
void config_device(const struct config *config, const char *name, enum place_kind kind,
                   const char *model, struct config_device *ret);

/**
 * The settings for a program, from the first entry whose pattern matches its name.
 *
 * @ret  Where no entry matches: priority 0, not preemptible, no quota, all ways, any device.
 */
void config_program(const struct config *config, const char *name, struct config_program *ret);

/**
 * The settings for a user, from the first entry whose selectors all match.
 *
 * @groups  The user's groups, @count of them.
 * @ret     Where no entry matches: no operator, no limits.
 */
void config_user(const struct config *config, uid_t user, const gid_t *groups, size_t count,
                 struct config_user *ret);

/**
 * The name and address of the server @index, which must be below the length of that list. Both are
 * valid as long as @config is.
 */
void config_server(const struct config *config, size_t index, const char **ret_name,
                   const char **ret_address);

/**
 * Find the name that a user probably meant by @name. Pure.
 *
 * @most  The most letters that may be changed, removed or added; SIZE_MAX: any number.
 * Returns the most similar of the @count @names; NULL where none is similar enough.
 */
const char *config_nearest(const char *name, const char *const *names, size_t count, size_t most);

#endif
