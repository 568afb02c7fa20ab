#ifndef RESEAT_TESTS_REMOTE_SERVED_H
#define RESEAT_TESTS_REMOTE_SERVED_H

#include <limits.h>
#include <sys/types.h>

/** A device server of POCL's devices, in a folder of its own. */
struct served {
    pid_t pid;
    char folder[64], address[80];
};

/** Start one and wait until it is ready; more options end with NULL. */
void served_start(struct served *served, const char *const *options);
void served_stop(struct served *served);
/** The only client's process, or one of them. 0: there is none. */
pid_t served_session(const struct served *served);
/** Have the loader of this process find the driver, and it the server. */
void served_use(const struct served *served);

#endif
