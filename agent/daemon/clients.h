#ifndef RESEAT_AGENT_DAEMON_CLIENTS_H
#define RESEAT_AGENT_DAEMON_CLIENTS_H

#include "agent/daemon/peers.h"
#include "agent/daemon/programs/registry.h"

/*
 * What requests of clients name: programs and devices. Who names none is told so, in the same words
 * whatever is asked.
 */

/** The agent has no memory for what was asked. */
void client_no_memory(struct peer *client);
/**
 * The program that "app" of a request names; NULL: the client was told why there is none.
 *
 * @ret_vdev  Its virtual device, or PROGRAM_ALL_VDEVS.
 */
struct program *client_program(struct peer *client, const msgpack_object *map, size_t *ret_vdev);
/**
 * The same of one that can be asked something now; else the client was told why not.
 *
 * @lacks  What there is not while it has not used OpenCL: "nothing to keep".
 */
struct program *client_running_program(struct peer *client, const msgpack_object *map,
                                       const char *lacks, size_t *ret_vdev);
/** Whether @program has found this agent; else the client was told. */
bool client_finds_program(struct peer *client, const struct program *program);
/** The device that @field (or NULL) of a request names, with its index in the ledger; NULL: the
 *  client was told. */
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

/** The variables that a client sends and may send, one a line. To be freed; NULL: no memory. */
char *client_environment(const struct peer *client, const msgpack_object *map);
/** Have the list of devices made for @message, which is taken and handled again with it. */
void client_await_devices(struct peer *client, struct message *message, const char *environment);
/** The same, as @message says of its environment; or the client is told that there is no memory. */
void client_renew_devices(struct peer *client, struct message *message);
/**
 * What the field @key of a request names, or the names in it, may be a device that nobody has
 * listed yet: the list is made anew once.
 *
 * @or_program  It may name a program as well.
 * True: @message was taken, or the client was told that there is no memory.
 */
bool client_lists_devices(struct peer *client, struct message *message, const char *key,
                          bool or_program);

#endif
