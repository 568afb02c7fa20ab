#ifndef RESEAT_STATE_BASE_FILES_OWN_FILE_H
#define RESEAT_STATE_BASE_FILES_OWN_FILE_H

#include "state/base/compiler.h"

/**
 * Open a file that the user named, to write to it. In a folder of everybody's (/tmp) another user
 * may have put a link, a pipe or a file of theirs in its place: so no link is followed but those of
 * /dev and /proc (/dev/stderr), and what is opened is the user's or root's, and has no second name.
 *
 * @flags  Of open(2), with O_WRONLY; what is made has the mode 0600. O_TRUNC happens once all this
 *         is known. O_NONBLOCK: what is written to a pipe is lost where it is full.
 *
 * Never blocks. Returns a descriptor, -ELOOP (a link), -EPERM (another user's, or it has a second
 * name), -ENXIO (a pipe that nobody reads), or -errno. Thread-safe.
 */
MUST_CHECK int own_file_open(const char *path, int flags);

#endif
