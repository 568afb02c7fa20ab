#ifndef RESEAT_AGENT_CONFIG_SERVERS_H
#define RESEAT_AGENT_CONFIG_SERVERS_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/config/config.h"
#include "state/base/compiler.h"

/*
 * Device servers by name, and the file in which those are kept that operators added while the agent
 * ran. A name is what the server's devices are called by: NAME/gpu0.
 */

#define SERVER_NAME_MAX    21 /**< Bytes, with the NUL: a device's whole name has 31 at most. */
#define SERVER_ADDRESS_MAX CONFIG_NAME_MAX
#define SERVERS_MAX        64 /**< Of one agent: each has a process that looks after it. */

/** In place of an address: all servers that are announced in the local network. */
#define SERVER_ANNOUNCED "mdns:"

/** Letters in lower case, digits, "-" and ".", the first one no "-" or ".". */
bool server_name_is_valid(const char *name);

/**
 * Is that the address of a server, in the one way to write it?
 *
 * @ret_address  Untouched on failure. May be @text.
 * @ret_reason   On failure one line, safe to print.
 */
bool server_address_read(const char *text, char ret_address[SERVER_ADDRESS_MAX], char *ret_reason,
                         size_t size);

/**
 * True when the user has credentials that are called as the server's host is: the only thing that
 * has one used that was merely announced.
 *
 * @ret_path  Where they are, or would be; "" where that cannot be told.
 */
bool server_has_credentials(const char *address, char ret_path[PATH_MAX]);

/** What a server there is called where nobody says so: the first part of the host's name, an IPv4
 *  address, "vsock-3", or what its socket is called. False: only a person can tell. */
bool server_name_from(const char *address, char ret_name[SERVER_NAME_MAX]);

struct server_line {
    char name[SERVER_NAME_MAX];
    char address[SERVER_ADDRESS_MAX];
    bool leaves; /**< It was removed, and programs were on it. */
};

/**
 * Read the file. What is wrong in it is left out.
 *
 * @ret_lines  SERVERS_MAX. Returns how many there are. Blocks on the file.
 */
size_t servers_read(const char *path, struct server_line *ret_lines);
/** Returns 0 or -errno. Blocks on the file. */
MUST_CHECK int servers_write(const char *path, const struct server_line *lines, size_t count);

#endif
