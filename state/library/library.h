#ifndef RESEAT_STATE_LIBRARY_LIBRARY_H
#define RESEAT_STATE_LIBRARY_LIBRARY_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/bytes/content_hash.h"
#include "state/base/compiler.h"
#include "state/driver/driver.h"
#include "state/recipe/recipe.h"

/*
 * The library of device binaries: what drivers made of recipes, on disk, so that a build on a kind
 * of device is done once. One folder of the user's alone, one file an entry, named by what it was
 * made from and for. Files are whole or not there (written beside, then renamed); no locks: two
 * processes that keep the same entry write the same, and one that is removed is built again.
 *
 * Nothing in it is needed: whatever goes wrong, a program goes on with its source. All functions
 * are thread-safe, block on the disk, and need no gate.
 */

/** Largest file of an entry, written or read. */
#define LIBRARY_ENTRY_MAX ((size_t)256 << 20)

struct library {
    char folder[PATH_MAX]; /**< Absolute; "": there is no library. */
    uint64_t limit;        /**< Bytes of all entries together, at most. */
};
/** The process's; set before the first program is made. */
extern struct library the_library;

static inline bool library_is_on(const struct library *library)
{
    return library->folder[0] && library->limit > 0;
}

struct library_key {
    unsigned char bytes[CONTENT_HASH_SIZE];
};
/** In hexadecimal, with the NUL; the name of the entry's file. */
#define LIBRARY_NAME_MAX (2 * CONTENT_HASH_SIZE + 1)
void library_name(const struct library_key *key, char ret[LIBRARY_NAME_MAX]);
/** False: @name is none. */
bool library_key_read(const char *name, struct library_key *ret_key);

/**
 * The key of the entry for @recipe on a device. Devices that their driver describes alike share the
 * entry.
 *
 * @prologue  What drivers get before each source. Not NULL.
 * Returns 0, -ENOMEM, or -ENOTSUP (recipe_hash()).
 */
MUST_CHECK int library_key(const struct recipe *recipe, const char *prologue,
                           const struct device_key *device, const struct devinfo *info,
                           struct library_key *ret_key);

enum library_origin {
    LIBRARY_BUILT = 1, /**< By the driver, from the recipe. */
    LIBRARY_ADDED,     /**< By an operator. */
    LIBRARY_UNFIT,     /**< No binary: the driver's own answers queries differently from a build
                            of the recipe. Kept so that this is not tried again. */
};

struct library_entry {
    enum library_origin origin;
    uint64_t created_ms;                    /**< Since 1970. */
    const char *device, *platform, *driver; /**< What they call themselves; driver: its version. */
    const char *kernels; /**< Names with ";" between, in the driver's order; "" where not known. */
    uint32_t kernel_count;
    uint32_t type;    /**< cl_program_binary_type. */
    uint64_t globals; /**< CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE of the build. */
    const char *log;  /**< Of the build; "" where there is none. */
    unsigned char answers[CONTENT_HASH_SIZE]; /**< Hash of the kernels' answers to queries. */
    const void *facts; /**< Facts about the source (source_facts.h), as stored. */
    size_t facts_size; /**< 0: nothing. */
    const void *binary;
    size_t binary_size;
    void *bytes; /**< Where the pointers lead to, owned; NULL: they are borrowed. */
};
void library_entry_finish(struct library_entry *entry);

/**
 * Read an entry. One that is damaged is removed, and a line says so.
 *
 * @ret_entry  Owned by the caller (library_entry_finish).
 * Returns 0, -ENOENT (also of one that was damaged, or that another user wrote), -ENOMEM, or
 * -errno of a folder that cannot be used, which is logged once.
 */
MUST_CHECK int library_find(const struct library *library, const struct library_key *key,
                            struct library_entry *ret_entry);

/**
 * Write an entry, in place of one of that name, and remove those that were not used for the longest
 * while all are more than the limit. The bytes are left to the kernel to write: one that a crash
 * cuts short is damaged, which shows when it is read.
 *
 * Returns 0, -E2BIG (more than the limit, or than an entry may be), -ENOMEM, or -errno (no room, a
 * folder that cannot be used), which is logged once.
 */
MUST_CHECK int library_keep(const struct library *library, const struct library_key *key,
                            const struct library_entry *entry);

/** Remove an entry; that there is none is right. */
void library_drop(const struct library *library, const struct library_key *key);

/*
 * For operators.
 */

struct library_item {
    char name[LIBRARY_NAME_MAX];
    uint64_t size;    /**< Bytes of the file. */
    uint64_t used_ms; /**< Since 1970: when it was last read or written. */
    bool damaged;     /**< Then the rest is empty. */
    struct library_entry
        entry; /**< Without answers, log, facts and binary; its strings are owned. */
};
struct library_list {
    struct library_item *items; /**< The last used first. */
    size_t count;
    uint64_t size; /**< Bytes of all. */
};
/**
 * What there is.
 *
 * @whole  Read every entry to its end, and compare checksums: else damage shows only at the front.
 * Returns 0, -ENOMEM, or -errno with one line in @ret_problem (FOLDER_PROBLEM_MAX bytes).
 */
MUST_CHECK int library_list(const struct library *library, bool whole,
                            struct library_list *ret_list, char *ret_problem);
void library_list_finish(struct library_list *list);
/** Remove the file of that name. Returns 0 or -errno. */
MUST_CHECK int library_remove(const struct library *library, const char *name);

#endif
