#ifndef RESEAT_AGENT_CONFIG_PATHS_H
#define RESEAT_AGENT_CONFIG_PATHS_H

#include <limits.h>
#include <sys/un.h>

#include "state/base/compiler.h"
#include "state/base/files/folder.h"

/** Where an agent and those who look for it meet. */
struct paths {
    char folder[PATH_MAX]; /**< Mode 0700, ours: socket, lock, log, inventory, vendors, apps. */
    char socket[sizeof(((struct sockaddr_un *)0)->sun_path)];
    uid_t user;  /**< Whose agent is meant. */
    bool shared; /**< The socket is one of root's, for all users: the folder has nothing of it. */
    char problem[FOLDER_PROBLEM_MAX]; /**< Of a folder that cannot be used: one line that names it.
                                       */
    char refused[FOLDER_PROBLEM_MAX]; /**< Why `folder` is not in $XDG_RUNTIME_DIR, though that is
                                           set; "" where it is, or $RESEAT_SOCKET says where. */
};

/**
 * Find the runtime folder and the socket: $RESEAT_SOCKET, else $XDG_RUNTIME_DIR/reseat where no
 * other user can change what is there, else /run/user/UID/reseat where /run/user/UID is ours, else
 * /tmp/reseat-UID. A $RESEAT_SOCKET that is not called agent.sock has its folder beside it, called
 * like it with ".d" added; where the socket is root's, a user's folder is as without it.
 *
 * Creates the folder, and follows links: what is returned has none, and no other user can put
 * anything else in its place.
 *
 * Returns 0, -EPERM (it is not ours alone, or another user could change what is above it),
 * -ENAMETOOLONG, or what mkdir() said; then only the problem is set: nothing in a folder that is
 * refused may be used.
 */
MUST_CHECK int paths_find(struct paths *ret_paths);

/**
 * The same of another @user, for root: $RESEAT_SOCKET, else /run/user/UID/reseat, else
 * /tmp/reseat-UID. Creates nothing. -ENOENT: there is none.
 */
MUST_CHECK int paths_find_of(uid_t user, struct paths *ret_paths);

/** @ret: folder/name. Returns 0 or -ENAMETOOLONG. */
MUST_CHECK int paths_join(const char *folder, const char *name, char ret[PATH_MAX]);

/** The folder for what outlives a login ($XDG_STATE_HOME/reseat), created. Returns 0 or -errno. */
MUST_CHECK int paths_state(char ret[PATH_MAX]);

/**
 * The library of device binaries: $XDG_CACHE_HOME/reseat/binaries, or ~/.cache/reseat/binaries;
 * what is above it is created. Returns 0 or -errno.
 */
MUST_CHECK int paths_binaries(char ret[PATH_MAX]);

/** Create a folder and those above it, 0700. Returns 0 or -errno. */
MUST_CHECK int paths_make(const char *folder);

/**
 * Find a file that was installed or built with the running binary: $@variable when set, else the
 * first of the candidates, each relative to the binary's folder, that exists.
 *
 * Returns 0 or -ENOENT.
 */
MUST_CHECK int paths_beside(const char *variable, const char *const *candidates,
                            char ret[PATH_MAX]);

/**
 * The folder beside @library whose only driver file names it, as it is built and installed. Returns
 * 0 or -ENOENT (none, or it names another library).
 */
MUST_CHECK int paths_vendors(const char *library, char ret[PATH_MAX]);

/**
 * Where figures of links are kept (links.h): $RESEAT_LINKS, else $XDG_CACHE_HOME/reseat/links, else
 * ~/.cache/reseat/links, and then what is above it is created. Returns 0 or -errno (-EINVAL: the
 * first is not absolute).
 */
MUST_CHECK int paths_links(char ret[PATH_MAX]);

/** Where the agent listens for who wants drivers opened in another process. 0 or -ENAMETOOLONG. */
MUST_CHECK int paths_isolated(const struct paths *paths, char ret[PATH_MAX]);

/** What was built and is installed with the running binary. */
enum paths_file {
    PATHS_LIBRARY, /**< libreseat.so */
    PATHS_AGENT,   /**< reseatd */
    PATHS_LISTER,
    PATHS_MEASURE,
    PATHS_REMOTE, /**< libreseat-remote.so, our driver in front of device servers. */
    PATHS_SERVER, /**< reseat-serve */
    PATHS_WATCH,
    PATHS_MDNS,
};
/** Where it is, by paths_beside(). Returns 0 or -ENOENT. */
MUST_CHECK int paths_of(enum paths_file file, char ret[PATH_MAX]);

/** Read a file of at most @limit bytes, with a NUL after it. Returns 0 or -errno (-EFBIG). */
MUST_CHECK int paths_read(const char *path, size_t limit, char **ret_bytes, size_t *ret_size);

#endif
