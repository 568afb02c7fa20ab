#ifndef RESEAT_TESTS_AGENT_HARNESS_H
#define RESEAT_TESTS_AGENT_HARNESS_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "agent/protocol/protocol.h"

/* A runtime folder and state of its own for each test, and the binaries under test in it. */

/** What a command printed and how it ended. */
struct result {
    int status; /**< Exit status, or 128 and the signal. */
    char out[262144];
    char err[16384];
};

/** Set up the environment: temporary folders, the fake lister, a library to preload. */
void harness_init(void);
/** Kill what was spawned, stop the agent and remove the folders. */
void harness_finish(void);

/** Paths of what was built, from the environment that meson gives to the test. */
const char *harness_reseat(void);
const char *harness_program(void);
/** The temporary folder. */
const char *harness_folder(void);
/** Something in it; valid for the next three calls. */
const char *harness_path(const char *name);
/** Write a file. */
void harness_write(const char *path, const char *text);
/** Have the agents and commands that start from now on read this configuration. */
void harness_configure(const char *text);

/** Run a command to its end. Arguments end with NULL. */
struct result *harness_run(const char *program, ...) __attribute__((sentinel));
/** `reseat` with these arguments. */
#define RESEAT(...) harness_run(harness_reseat(), __VA_ARGS__, (char *)NULL)
/** @result, which ended with @status. */
struct result *harness_ends(struct result *result, int status);
/** @result, which ended with @status, and printed @text: to stdout if that is 0, else to stderr. */
struct result *harness_says(struct result *result, int status, const char *text);
/** Start one in the background, its output dropped. harness_finish() kills it if it runs still. */
pid_t harness_spawn(const char *program, ...) __attribute__((sentinel));
/** Have harness_finish() kill that child too. */
void harness_owns(pid_t pid);
/** Wait for one from harness_spawn(); as struct result's status. */
int harness_wait(pid_t pid);

/** `reseat run` of our program, as @name; it does as @how (FAKE_MOVE) when it is moved. Fails
 * unless it runs soon. */
pid_t harness_start(const char *name, const char *how);
/** Kill it before the test's end. */
void harness_end(pid_t pid);

/** Release @object at the test's end. */
json_t *harness_kept(json_t *object);
/** @text as JSON, until the test's end: fails unless it is. */
json_t *harness_parse(const char *text);
/** What `reseat @command --json` printed, until the test's end: fails unless it is as every
 * command's is (version, command, status, an error where there is one). */
json_t *harness_json(const struct result *result, const char *command);
/** A text or a number of an object; "(none)" or 0 where it has none of that key. */
const char *harness_text(const json_t *object, const char *key);
json_int_t harness_number(const json_t *object, const char *key);
/** The element of the list @list of @object whose @key is @text; NULL: there is none. */
json_t *harness_find(const json_t *object, const char *list, const char *key, const char *text);
/** The code of the error that @object, of that, has; NULL where it has none. */
const char *harness_error(const json_t *object);

/** Ask `reseat ps --json` until a program of that name is in that state. False after @ms. */
bool harness_state(const char *name, const char *state, unsigned ms);
/** Run `reseat @verb [@option]` until it prints @text. False after @ms. */
bool harness_prints(const char *verb, const char *option, const char *text, unsigned ms);
/** The agent's pid, or 0. */
pid_t harness_agent(void);
/** A connected socket to the agent; nothing said yet. */
int harness_connect(void);
/** Send @frame to who is at the other end of @fd, agent or program, and finish it. False when it is
 * gone. */
bool harness_tell(int fd, struct frame *frame);
/** The next message from there, to be given to message_finish(); false when there is none within
 * @ms, or the connection ended. */
bool harness_hear(int fd, struct frame_reader *reader, struct message *ret_message, unsigned ms);

/** Be that user, in a forked child, which ends with its parent. */
void harness_become(uid_t uid);
/** Pass a descriptor on to another process, and take it there. */
void harness_send_fd(int to, int fd);
int harness_receive_fd(int from);

#endif
