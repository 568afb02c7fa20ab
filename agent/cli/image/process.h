#ifndef RESEAT_AGENT_CLI_IMAGE_PROCESS_H
#define RESEAT_AGENT_CLI_IMAGE_PROCESS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/cli/client.h"
#include "state/base/compiler.h"
#include "state/image/image_write.h"

/* CRIU is a separate program that writes processes to files and restores them. */

/** Bytes of a problem: one line of CRIU's output. */
#define CRIU_PROBLEM_MAX 600

/**
 * Find CRIU.
 *
 * @word  With a slash, its path; else its name in $PATH or root's folders of programs; NULL:
 *        "criu".
 * Returns 0 or -ENOENT.
 */
MUST_CHECK int criu_find(const char *word, char ret_path[PATH_MAX]);

/** True if `criu check` succeeds on this host as this user. Blocks for about a second. */
bool criu_works(const char *path, char ret_problem[CRIU_PROBLEM_MAX]);

/** Find CRIU and check that it works. Returns 0, or an exit status after printing the reason. */
MUST_CHECK int criu_need(const struct output *output, const char *word, char ret_path[PATH_MAX]);

struct criu_call {
    const char *path;
    const char *const *words; /**< Its arguments; NULL ends them. */
    const char *log;          /**< The file to which its output is appended. */
    bool terminal;            /**< It inherits our standard input: the terminal of its process. */
    int open;                 /**< A descriptor that it has open until it ends; 0 or -1: none. */
    void (*tick)(void *data); /**< Called several times a second; may be NULL. */
    void *data;
};
/** Run CRIU to its end. Returns 0, -EIO (it failed) or -errno, both with the problem. */
MUST_CHECK int criu_run(const struct criu_call *call, char ret_problem[CRIU_PROBLEM_MAX]);

/* The command's side of agent/protocol/park.h. */

struct parked {
    pid_t pid;
    uint64_t box; /**< Address of its struct park_box. */
};

/**
 * Wait until the program has closed its connection to its agent. Returns 0, -EPERM (this user may
 * not access the memory of the process), -ETIMEDOUT, -EBADMSG (there is no box), -ECANCELED (the
 * program continued by itself) or -errno.
 */
MUST_CHECK int park_await(const struct parked *parked);
/** Show the parked program @data that this command runs; else it continues by itself. */
void park_beat(void *data);
/**
 * Tell the program to continue.
 *
 * @socket  For a restored process, the socket of its agent; NULL for the process that was parked.
 * Returns 0, -EBADMSG or -errno.
 */
MUST_CHECK int park_go(const struct parked *parked, const char *socket);

/*
 * An image of a process holds CRIU's files, in chunks with digests as all contents of images are.
 * So such an image is listed, verified, shared and removed as any other, and is complete or absent.
 */

/**
 * The temporary folder in which CRIU writes and reads its files. It is in the folder of images, and
 * is removed when the command ends.
 */
struct process_files {
    char path[PATH_MAX];
    char log[PATH_MAX]; /**< CRIU's output: in the folder, but no part of the image. */
    int fd;             /**< The folder, locked while it is in use; -1: there is none. */
};

/** Create the folder, and remove those that killed commands left. Returns 0 or -errno. */
MUST_CHECK int process_files_begin(const struct image_folder *folder,
                                   struct process_files *ret_files);
void process_files_end(struct process_files *files);
/** Move CRIU's output into the folder of images, where it stays. Returns its path. */
const char *process_files_keep_log(const struct image_folder *folder, struct process_files *files);

/**
 * Write an image of the files that CRIU wrote to @files. Returns as image_write() does.
 *
 * @session  As in struct image_process.
 */
MUST_CHECK int process_image_write(struct image_folder *folder, const struct process_files *files,
                                   const struct parked *parked, bool session,
                                   struct image_written *ret_written,
                                   char ret_problem[IMAGE_PROBLEM_MAX]);

/** The record of the image's process; NULL: it is no image of a process. */
const struct image_process *process_image_process(const struct image_manifest *manifest);
/**
 * Write CRIU's files to @files and compare each with its digests. Returns as image_read() does.
 */
MUST_CHECK int process_image_read(const struct image_folder *folder,
                                  const struct image_manifest *manifest,
                                  const struct process_files *files,
                                  char ret_problem[IMAGE_PROBLEM_MAX]);

/* An image of a program's whole process: reseat checkpoint --process. */

struct process_wish {
    const char *app;
    const char *folder; /**< Absolute. */
    const char *criu;   /**< As criu_find() takes it; may be NULL. */
    bool ends;          /**< The program ends when its image is complete. */
    uint64_t timeout_ms;
};

/**
 * Write such an image. On failure the program continues, and the reason is printed.
 *
 * @ret_report  The agent's report, and of the image "image", "image_bytes", "image_written",
 *              "total_ns" and "downtime_ns", for which the program was stopped.
 * Returns 0 or an exit status.
 */
MUST_CHECK int checkpoint_process(const struct output *output, const struct process_wish *wish,
                                  struct client *client, json_t **ret_report);

/**
 * Resume a suspended program, which may not have connected to its agent yet: that is awaited.
 *
 * @device  NULL: the device that it was on.
 * @queue   Leave the time and the device to the policy.
 * Returns 0 and the report, or an exit status after printing the reason.
 */
MUST_CHECK int checkpoint_resume(const struct output *output, struct client *client, pid_t pid,
                                 const char *device, bool queue, json_t **ret_report);

#endif
