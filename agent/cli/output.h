#ifndef RESEAT_AGENT_CLI_OUTPUT_H
#define RESEAT_AGENT_CLI_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/wire/protocol.h"
#include "state/base/compiler.h"

/* What the command line prints: one line for a person, or one JSON object for a program. */

#define OUTPUT_SCHEMA 1

/** Exit statuses; reseat(1) documents them. */
enum status {
    STATUS_DONE = 0,
    STATUS_ROLLED_BACK = 1, /**< And other failures. */
    STATUS_USAGE = 2,
    STATUS_NONE = 3, /**< No such program, device or agent. */
    STATUS_REFUSED = 4,
    STATUS_EXPIRED = 5,
};

struct output {
    const char *command;
    bool json;
};

/** @argv decides on JSON before it is parsed, so that a usage error is JSON too. */
void output_init(struct output *output, const char *command, int argc, char **argv);

/** {"schema": 1, "command": ..., "status": ...}. NULL without memory. */
json_t *output_object(const struct output *output, int status);
/** A JSON string of a text that somebody else wrote, made safe. NULL without memory. */
json_t *output_text(const char *value);
json_t *output_text_of(const char *bytes, size_t size);
/** Print a JSON object on stdout and drop it. Returns @status, or 1 when it cannot be written. */
int output_print(json_t *object, int status);

/** One line on stderr that changes nothing. What others wrote in it is made safe. */
void output_note(const struct output *output, const char *format, ...) PRINTF(2, 3);
/** Report a failure. @code is one of ERR_*, which decides the status that is returned. */
int output_fail(const struct output *output, const char *code, const char *format, ...)
    PRINTF(3, 4);
/** What MSG_ERROR says. */
int output_fail_message(const struct output *output, const struct message *message);
/** Something went wrong in talking to the agent (-errno). @what it was to do. */
int output_fail_agent(const struct output *output, int error, const char *what);
/** A usage error; names the command's help. */
int output_usage(const struct output *output, const char *format, ...) PRINTF(2, 3);

int output_status_of(const char *code);

/** "1.5 GiB". "12.3 ms". */
void output_bytes(uint64_t bytes, char *ret, size_t size);
void output_seconds(uint64_t nanoseconds, char *ret, size_t size);

#endif
