#ifndef RESEAT_AGENT_CONFIG_PATHS_H
#define RESEAT_AGENT_CONFIG_PATHS_H

#include <limits.h>
#include <stdio.h>
#include <sys/un.h>

#include "state/base/compiler.h"
#include "state/base/files/folder.h"

/** The paths at which an agent and its clients meet. */
struct paths {
    /** Mode 0700, owned by the user: socket, lock, log, inventory, vendors, apps. */
    char folder[PATH_MAX];
    char socket[sizeof(((struct sockaddr_un *)0)->sun_path)];
    uid_t user;  /**< The user whose agent is meant. */
    bool shared; /**< The agent is one for all users: the host's, or one of root's. */
    char problem[FOLDER_PROBLEM_MAX]; /**< Why the folder cannot be used: one line that names it. */
    /**
     * Why `folder` is not in $XDG_RUNTIME_DIR although that is set; "" where it is, or where
     * $RESEAT_SOCKET sets the path.
     */
    char refused[FOLDER_PROBLEM_MAX];
};

/**
 * Find the runtime folder and the socket: $RESEAT_SOCKET; else, unless that is set and empty, the
 * socket of the host's agent (ACCESS_HOST_SOCKET) where there is one; else $XDG_RUNTIME_DIR/reseat
 * where no other user can change its contents; else /run/user/UID/reseat where the user owns
 * /run/user/UID; else /tmp/reseat-UID. For a $RESEAT_SOCKET that is not called agent.sock, the
 * folder is beside the socket and has the socket's name with ".d" appended. Where the agent is one
 * for all users, a user's folder is the one that is used without $RESEAT_SOCKET.
 *
 * Creates the folder and resolves symbolic links: the returned path contains none, and no other
 * user can replace a part of it.
 *
 * Returns 0, -EPERM (another user owns the folder, or could change a folder above it),
 * -ENAMETOOLONG, or the error of mkdir(). On failure only the problem is set, and no file in the
 * refused folder may be used.
 */
MUST_CHECK int paths_find(struct paths *ret_paths);

/**
 * The paths of the host's agent, for that agent. Creates its folder, which is ACCESS_HOST_SOCKET
 * with ".d" appended, and ACCESS_HOST_FOLDER. Returns as paths_find() does.
 */
MUST_CHECK int paths_host(struct paths *ret_paths);

/**
 * As paths_find(), for root to find the paths of another @user: $RESEAT_SOCKET, else
 * /run/user/UID/reseat, else /tmp/reseat-UID. Creates nothing. -ENOENT: there is none.
 */
MUST_CHECK int paths_find_of(uid_t user, struct paths *ret_paths);

/**
 * The folder with the lists of devices that programs read. For an agent for all users with the
 * socket beside its folder, it is the socket's name with ".lists" appended, and
 * is created: every user may open a file there whose name the agent told (mode 0711). Otherwise it
 * is the runtime folder. Returns 0, -EPERM (another user owns it) or -errno.
 */
MUST_CHECK int paths_lists(const struct paths *paths, char ret[PATH_MAX]);

/** Compose folder/name. Returns 0 or -ENAMETOOLONG. */
MUST_CHECK int paths_join(const char *folder, const char *name, char ret[PATH_MAX]);

/** Create and find the folder for lasting files, $XDG_STATE_HOME/reseat. 0 or -errno. */
MUST_CHECK int paths_state(char ret[PATH_MAX]);

/**
 * The folder with the library of device binaries: $XDG_CACHE_HOME/reseat/binaries, or
 * ~/.cache/reseat/binaries. The folders above it are created. Returns 0 or -errno.
 */
MUST_CHECK int paths_binaries(char ret[PATH_MAX]);
/** The path of this program. Returns 0 or -ENOENT. */
MUST_CHECK int paths_own(char ret[PATH_MAX]);

/** Create a folder and its parents with mode 0700. Returns 0 or -errno. */
MUST_CHECK int paths_make(const char *folder);

/**
 * Find the folder beside @library whose only driver file names @library. Returns 0, -ENOENT (there
 * is none, or its file names another library) or -ENAMETOOLONG.
 */
MUST_CHECK int paths_vendors(const char *library, char ret[PATH_MAX]);

/**
 * The file with measurements of links (links.h): $RESEAT_LINKS, else $XDG_CACHE_HOME/reseat/links,
 * else ~/.cache/reseat/links, whose parent folders are created. Returns 0 or -errno (-EINVAL:
 * $RESEAT_LINKS is not absolute).
 */
MUST_CHECK int paths_links(char ret[PATH_MAX]);

/** The socket for programs whose drivers run in other processes. 0 or -ENAMETOOLONG. */
MUST_CHECK int paths_isolated(const struct paths *paths, char ret[PATH_MAX]);

/** Files that are built and installed together with the running binary. */
enum paths_file {
    PATHS_LIBRARY, /**< libreseat.so */
    PATHS_AGENT,   /**< reseatd */
    PATHS_LISTER,
    PATHS_MEASURE,
    PATHS_REMOTE, /**< libreseat-remote.so, our driver in front of device servers. */
    PATHS_SERVER, /**< reseat-serve */
    PATHS_WATCH,
    PATHS_MDNS,
    PATHS_STREAM, /**< reseat-streamd */
    PATHS_STREAM_WORKER,
    PATHS_KERNELS, /**< The folder of the kernels of streams. */
};
/** Find one of them: where its variable says, else in the first folder that has it. Returns 0 or
 * -ENOENT. */
MUST_CHECK int paths_of(enum paths_file file, char ret[PATH_MAX]);

/** Read a file of at most @limit bytes and append a NUL. Returns 0 or -errno (-EFBIG: larger). */
MUST_CHECK int paths_read(const char *path, size_t limit, char **ret_bytes, size_t *ret_size);

#define LINES_WORDS 3
/**
 * Read a text file of the agent's, of at most 1 MiB: a record a line, blanks between its words; "#"
 * begins a comment.
 *
 * @count  Words of a line, at most LINES_WORDS. The last one may have blanks.
 * @take   Called for each record with at least two words; words that it lacks are NULL. What it
 *         returns, if not 0, ends the reading.
 * Returns 0, what @take returned, or as paths_read() does.
 */
MUST_CHECK int paths_read_lines(const char *path, size_t count,
                                int (*take)(void *data, char *const words[]), void *data);
/** Replace it, or leave it as it was. @print prints the records after @comment. Returns 0 or
 * -errno. */
MUST_CHECK int paths_write_lines(const char *path, const char *comment,
                                 void (*print)(const void *data, FILE *out), const void *data);

#endif
