#ifndef RESEAT_AGENT_CLI_CMD_H
#define RESEAT_AGENT_CLI_CMD_H

#include "agent/cli/client.h"
#include "agent/cli/output.h"

/* The commands of `reseat`. Each takes its own arguments, its name first; returns an exit status.
 */
int cmd_run(int argc, char **argv);
int cmd_devices(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_move(int argc, char **argv);
int cmd_suspend(int argc, char **argv);
int cmd_resume(int argc, char **argv);
int cmd_notify(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_agent(int argc, char **argv);
int cmd_config(int argc, char **argv);
int cmd_limit(int argc, char **argv);
int cmd_drain(int argc, char **argv);
int cmd_rebalance(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_simulate(int argc, char **argv);
int cmd_version(int argc, char **argv);

/** What programs are told of their device, of the inventory that the agent keeps. */
int presented_print(const struct output *output, const char *inventory);

/** How long an agent that carries out something long may say nothing; it may be listing devices. */
#define CMD_PATIENCE_MS 60000

/** Help of a command, as its --help prints it. */
const char *cmd_help(const char *name);

/**
 * Connect to the agent for a command; @launch starts one where none runs. Returns 0, or an exit
 * status after having said why.
 */
MUST_CHECK int cmd_connect(const struct output *output, bool launch, const char *what,
                           struct client *ret_client);
/** Send @frame and wait for its answer of @type; else as cmd_connect(). */
MUST_CHECK int cmd_ask(const struct output *output, struct client *client, struct frame *frame,
                       const char *type, int timeout_ms, const char *what,
                       struct message *ret_message);

/** What this process, and a program that it becomes, may have of addresses in bytes; 0: any. */
uint64_t cmd_address_limit(void);

/** A number of seconds, 0 to 10 million, in nanoseconds. False: @text is none. */
bool cmd_seconds(const char *text, uint64_t *ret_ns);

/** Set the environment of drivers in a request. */
void cmd_put_environment(struct frame *frame);

/** A received value as JSON. NULL without memory. */
json_t *cmd_json(const msgpack_object *value);

#endif
