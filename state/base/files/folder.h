#ifndef RESEAT_STATE_BASE_FILES_FOLDER_H
#define RESEAT_STATE_BASE_FILES_FOLDER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "state/base/compiler.h"

/*
 * Folders that no other user can enter, or put another in the place of (L3). Thread-safe.
 */

/** Bytes of a problem: one line that names a folder or a file and what is wrong with it. */
#define FOLDER_PROBLEM_MAX 512
/** Say why @path is refused, "PATH WHY". Returns @error. */
int folder_refuse(char ret_problem[FOLDER_PROBLEM_MAX], int error, const char *path,
                  const char *why);
/** The same for a failed call, "PATH WHAT: ERROR". */
int folder_refuse_error(char ret_problem[FOLDER_PROBLEM_MAX], int error, const char *path,
                        const char *what);

/** True for a folder, not a link to one, that belongs to us and, if @private, only to us. */
bool folder_is_ours(const char *folder, bool private);

/**
 * Check that no other user can change where @folder leads.
 *
 * @folder       Absolute and without links, as realpath() gives it.
 * @ret_problem  Written on failure only.
 * Returns 0, -EPERM, or what lstat() said.
 */
MUST_CHECK int folder_check_above(const char *folder, char ret_problem[FOLDER_PROBLEM_MAX]);

/**
 * The existing folder @wanted, as the processes of @user find it: only @user may have access to it.
 *
 * @ret_folder   Without links: nobody but @user and root can put anything else in its place.
 * @ret_problem  Written on failure only.
 * Returns 0, -EPERM, -ENOENT, or what realpath() said.
 */
MUST_CHECK int folder_of_user(uid_t user, const char *wanted, char ret_folder[PATH_MAX],
                              char ret_problem[FOLDER_PROBLEM_MAX]);

/**
 * The folder @wanted, made with the mode 0700 where it is missing and the one above it is not.
 *
 * @ret_folder   Without links: no other user can put anything else in its place.
 * @ret_problem  Written on failure only.
 * Returns 0, -EPERM (it is not ours alone, or another user could change what is above it),
 * -ENAMETOOLONG, or what mkdir() said.
 */
MUST_CHECK int folder_make_private(const char *wanted, char ret_folder[PATH_MAX],
                                   char ret_problem[FOLDER_PROBLEM_MAX]);

/**
 * Where a user's processes meet: $XDG_RUNTIME_DIR/reseat where no other user can change what is
 * there, else /run/user/UID/reseat where /run/user/UID is ours, else /tmp/reseat-UID. Not created.
 * Returns 0 or -ENAMETOOLONG.
 */
MUST_CHECK int folder_runtime_name(char ret[PATH_MAX]);
/** True where $XDG_RUNTIME_DIR is set and not used; @ret_problem then names it and says why. */
bool folder_runtime_refused(char ret_problem[FOLDER_PROBLEM_MAX]);
/** The same, by folder_make_private(). */
MUST_CHECK int folder_runtime(char ret_folder[PATH_MAX], char ret_problem[FOLDER_PROBLEM_MAX]);

/**
 * The user's folder of one kind: $@variable/reseat where that is absolute, else ~/@beneath/reseat.
 * Not created. Returns 0, -ENOENT (no home is known) or -ENAMETOOLONG.
 */
MUST_CHECK int folder_home(const char *variable, const char *beneath, char ret[PATH_MAX]);

#endif
