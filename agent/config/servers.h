#ifndef RESEAT_AGENT_CONFIG_SERVERS_H
#define RESEAT_AGENT_CONFIG_SERVERS_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/config/config.h"
#include "state/base/compiler.h"

/*
 * Device servers by name, and the file that stores the servers which operators added while the
 * agent ran. The names of a server's devices begin with the server's name: NAME/gpu0.
 */

#define SERVER_NAME_MAX    21 /**< Bytes with the NUL: a device's full name has at most 31. */
#define SERVER_ADDRESS_MAX CONFIG_NAME_MAX
#define SERVERS_MAX        64 /**< Servers of one agent; each has a watcher process. */

/** Instead of an address: all servers that are announced in the local network. */
#define SERVER_ANNOUNCED "mdns:"

/** True for lower-case letters, digits, "-" and "."; the first character is neither "-" nor ".". */
bool server_name_is_valid(const char *name);

/**
 * Read a server's address and return its canonical spelling.
 *
 * @ret_address  Untouched on failure. May be @text.
 * @ret_reason   On failure one line, safe to print.
 * Returns false where @text is not an address.
 */
bool server_address_read(const char *text, char ret_address[SERVER_ADDRESS_MAX], char *ret_reason,
                         size_t size);

/**
 * True when the user has credentials named after the server's host. A server that is known only
 * from an announcement is used only in that case.
 *
 * @ret_path  Path of the credentials, whether they exist or not; "" where it cannot be determined.
 */
bool server_has_credentials(const char *address, char ret_path[PATH_MAX]);

/**
 * Derive a server's default name from its address: the first part of the host name, an IPv4
 * address, "vsock-3", or the socket's name. Returns false where no name can be derived: then the
 * operator has to choose one.
 */
bool server_name_from(const char *address, char ret_name[SERVER_NAME_MAX]);

struct server_line {
    char name[SERVER_NAME_MAX];
    char address[SERVER_ADDRESS_MAX];
    bool leaves; /**< It was removed while programs were on its devices. */
};

/**
 * Read the file. Faulty lines are skipped.
 *
 * @ret_lines  SERVERS_MAX elements.
 * Returns the number of servers. Blocks on the file.
 */
size_t servers_read(const char *path, struct server_line *ret_lines);
/** Returns 0 or -errno. Blocks on the file. */
MUST_CHECK int servers_write(const char *path, struct server_line *lines, size_t count);

#endif
