#ifndef RESEAT_AGENT_DAEMON_CLIENTS_H
#define RESEAT_AGENT_DAEMON_CLIENTS_H

#include "agent/daemon/peers.h"
#include "agent/daemon/programs/registry.h"

/*
 * Resolves the programs and devices that clients' requests name. A failed look-up sends the client
 * an error, in the same words for every kind of request.
 */

/** Tell @client that the agent has no memory for its request. */
void client_no_memory(struct peer *client);
/** Tell @client (may be NULL) of @program: "program NAME (pid N) " and the rest of the sentence. */
void client_refuse(struct peer *client, const char *code, const struct program *program,
                   const char *format, ...) PRINTF(4, 5);
/**
 * Tell @client why a name in its request was not resolved: -ESRCH (no program), -ENODEV, -ENOTUNIQ,
 * -EBUSY (the device takes no programs), -E2BIG (too many names), or another failure.
 */
void client_unresolved(struct peer *client, int result, const char *why);
/**
 * Find the program that "app" of a request names. NULL: there is none, and the client was told why.
 *
 * @ret_vdev  The virtual device that is named, or PROGRAM_ALL_VDEVS.
 */
struct program *client_program(struct peer *client, const msgpack_object *map, size_t *ret_vdev);
/**
 * As client_program(), for a program that can serve a request now. Otherwise returns NULL, and the
 * client was told why.
 *
 * @lacks  What the program does not have before it uses OpenCL: "nothing to keep".
 */
struct program *client_running_program(struct peer *client, const msgpack_object *map,
                                       const char *lacks, size_t *ret_vdev);
/** True when @program is connected to this agent; or else the client was told. */
bool client_finds_program(struct peer *client, const struct program *program);
/**
 * Find the device that @field of a request names (@field may be NULL), and its index in the ledger.
 * NULL: there is none, and the client was told why.
 */
const struct inventory_entry *client_device(struct peer *client, const msgpack_object *field,
                                            uint32_t *ret_device);
/**
 * What "what" names: a device by its own name, else a program, else a device by a part of its
 * driver's name. False: the client was told why it is nothing.
 *
 * @ret_program  NULL for a device.
 * @ret_device   LEDGER_NONE for a program.
 */
bool client_program_or_device(struct peer *client, const msgpack_object *map,
                              struct program **ret_program, size_t *ret_vdev, uint32_t *ret_device);

/** True when "what" names a device, as client_program_or_device() takes it. Sends nothing. */
bool client_names_device(struct peer *client, const msgpack_object *map);

/**
 * The environment variables in which devices are listed for the client, one a line: its own, or the
 * agent's where the client may not say what the agent's helper loads. The caller frees the text.
 * NULL: no memory.
 */
char *client_environment(const struct peer *client, const msgpack_object *map);
/** Start a listing of the devices. Takes @message, which is handled again afterwards. */
void client_await_devices(struct peer *client, struct message *message, const char *environment);
/** As client_await_devices(), in the message's environment, or report missing memory. */
void client_renew_devices(struct peer *client, struct message *message);
/**
 * Start a listing of the devices, once for each request, where the name in field @key (or one of
 * several names) may belong to a device that is not listed yet.
 *
 * @or_program  The field may name a program as well.
 * Returns true when @message was taken, or the client was told that there is no memory.
 */
bool client_lists_devices(struct peer *client, struct message *message, const char *key,
                          bool or_program);

#endif
