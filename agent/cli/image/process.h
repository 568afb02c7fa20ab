#ifndef RESEAT_AGENT_CLI_IMAGE_PROCESS_H
#define RESEAT_AGENT_CLI_IMAGE_PROCESS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/cli/client.h"
#include "state/base/compiler.h"
#include "state/image/image_write.h"

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
    int open;                 /**< A descriptor that it has open until it ends; 0 or -1: none. */
    void (*tick)(void *data); /**< Called several times a second; or NULL. */
    void *data;
};
/** Run it, to its end. 0, -EIO (it failed, and said why), or -errno; with the problem. */
MUST_CHECK int criu_run(const struct criu_call *call, char ret_problem[CRIU_PROBLEM_MAX]);

/* The command's side of agent/protocol/park.h. */

struct parked {
    pid_t pid;
    uint64_t box; /**< Where it is in the process. */
};

/**
 * Wait until it has no connection with its agent. 0, -EPERM (we may not look into the process),
 * -ETIMEDOUT, -EBADMSG (there is no box), -ECANCELED (it goes on by itself) or -errno.
 */
MUST_CHECK int park_await(const struct parked *parked);
/** Somebody is there. Where it cannot be said, the program soon goes on by itself. */
void park_beat(void *data);
/**
 * It is to go on.
 *
 * @socket  Of a process that was restored: its agent's. NULL: of the one that was parked.
 * Returns 0, -EBADMSG or -errno.
 */
MUST_CHECK int park_go(const struct parked *parked, const char *socket);

/*
 * A whole process in an image: CRIU's files, in chunks with digests like any bytes of an image, so
 * that an image of a process is listed, verified, shared and removed like any other, and is there
 * whole or not at all.
 */

/** Where CRIU writes and reads its files: a folder of its own within that of the images, which goes
 *  with us. */
struct process_files {
    char path[PATH_MAX];
    char log[PATH_MAX]; /**< In it, and no part of the image. */
    int fd;             /**< Its lock; -1: there is none. */
};

/** 0 or -errno. Sweeps what who died left. */
MUST_CHECK int process_files_begin(const struct image_folder *folder,
                                   struct process_files *ret_files);
void process_files_end(struct process_files *files);
/** What CRIU said stays, in the folder of images: its path. */
const char *process_files_keep_log(const struct image_folder *folder, struct process_files *files);

/**
 * Write an image of what CRIU left in @files. As image_write().
 *
 * @session  Of struct image_process.
 */
MUST_CHECK int process_image_write(struct image_folder *folder, const struct process_files *files,
                                   const struct parked *parked, bool session,
                                   struct image_written *ret_written,
                                   char ret_problem[IMAGE_PROBLEM_MAX]);

/** What an image says of its process; NULL: it is of none. */
const struct image_process *process_image_process(const struct image_manifest *manifest);
/** Make CRIU's files again, each compared with its digests. As image_read(). */
MUST_CHECK int process_image_read(const struct image_folder *folder,
                                  const struct image_manifest *manifest,
                                  const struct process_files *files,
                                  char ret_problem[IMAGE_PROBLEM_MAX]);

/* An image of a program's whole process: reseat checkpoint --process. */

struct process_wish {
    const char *app;
    const char *folder; /**< Absolute. */
    const char *criu;   /**< Or NULL: as criu_find(). */
    bool ends;          /**< The program ends once the image is there. */
    uint64_t timeout_ms;
};

/**
 * Make one, and have the program go on, whatever becomes of it. What is wrong is said.
 *
 * @ret_report  What the agent said of it, and of the image "image", "image_bytes", "image_written"
 *              and "total_ns", with "downtime_ns" during which the program stood still.
 * Returns 0, or an exit status.
 */
MUST_CHECK int checkpoint_process(const struct output *output, const struct process_wish *wish,
                                  struct client *client, json_t **ret_report);

/**
 * Have a suspended program resumed, by an agent that it may not have found yet.
 *
 * @device  NULL: where it was.
 * @queue   Wherever the policy finds room, when it does.
 * Returns 0 and the report, or an exit status, which was said.
 */
MUST_CHECK int checkpoint_resume(const struct output *output, struct client *client, pid_t pid,
                                 const char *device, bool queue, json_t **ret_report);

#endif
