#ifndef RESEAT_AGENT_CLI_IMAGE_CRIU_H
#define RESEAT_AGENT_CLI_IMAGE_CRIU_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "state/base/compiler.h"

/* CRIU, which keeps processes as files and restores them, as a program of its own. */

/** One line of what it says is wrong. */
#define CRIU_PROBLEM_MAX 600

/**
 * Find the program: @word with a slash is its path; NULL: "criu" in $PATH, and where root has its
 * programs. Returns 0 or -ENOENT.
 */
MUST_CHECK int criu_find(const char *word, char ret_path[PATH_MAX]);

/** True when it says that it can do its work here, as this user. Blocks, for a second or so. */
bool criu_works(const char *path, char ret_problem[CRIU_PROBLEM_MAX]);

struct criu_call {
    const char *path;
    const char *const *words; /**< Behind its name; NULL at the end. */
    const char *log;          /**< What it says goes there; a new file. */
    bool terminal;            /**< It has our standard input, for a process that is to have it. */
    void (*begun)(void *data, pid_t criu); /**< Called once it runs; or NULL. */
    void (*tick)(void *data);              /**< Called several times a second; or NULL. */
    void *data;
};
/** Run it, to its end. 0, -EIO (it failed, and said why), or -errno; with the problem. */
MUST_CHECK int criu_run(const struct criu_call *call, char ret_problem[CRIU_PROBLEM_MAX]);

#endif
