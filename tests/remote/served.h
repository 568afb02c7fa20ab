#ifndef RESEAT_TESTS_REMOTE_SERVED_H
#define RESEAT_TESTS_REMOTE_SERVED_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

/** A device server of POCL's devices, in a folder of its own. TEST_VENDORS, if set, names
 * other drivers' folder. */
struct served {
    pid_t pid;
    int log; /**< What it and its sessions write to standard error, also once it has ended. */
    char folder[64], address[80];
    char runtime[80]; /**< Its user's runtime folder, and this process's. */
    char ca[80];      /**< "": it has none. */
};

/** Start one and wait until it is ready; more options end with NULL. */
void served_start(struct served *served, const char *const *options);
/** The same on a TCP port of this machine, with an authority of its own. */
void served_start_tcp(struct served *served, const char *const *options);
/** Another one, of the authority of @first. */
void served_join_tcp(struct served *served, const struct served *first);
/** Start it at the same place once more; it was killed. */
void served_again(struct served *served);
/** Run what the server's program does for its authority; options end with NULL. */
void served_authority(const struct served *served, const char *const *options);
/** Issue credentials, which @ret_path, of PATH_MAX, is the file of. */
void served_issue(const struct served *served, const char *name, const char *option,
                  const char *value, char *ret_path);
void served_stop(struct served *served);
/** Has it, or a session, written that? */
bool served_wrote(const struct served *served, const char *text);
/** The same of a session's line, which comes by way of the listening process: wait a while. */
bool served_writes(const struct served *served, const char *text);
/** How many lines they wrote. */
unsigned served_lines(const struct served *served);
/** The only client's process, or one of them. 0: there is none. */
pid_t served_session(const struct served *served);
/** The process that ends what sessions started, should it be killed. 0: there is none. */
pid_t served_reaper(const struct served *served);
/** All its processes that are not its own, nor a helper of its, @max at most. */
unsigned served_children(const struct served *served, pid_t *ret_pids, unsigned max);
/** Have the loader of this process find the driver, and it the server. */
void served_use(const struct served *served);

#endif
