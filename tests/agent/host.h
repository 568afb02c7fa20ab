#ifndef RESEAT_TESTS_AGENT_HOST_H
#define RESEAT_TESTS_AGENT_HOST_H

#include <sys/types.h>

/*
 * A host of its own for a test: /run, /var/lib and /var/cache are empty, in a mount namespace, and
 * systemd is played by the test.
 */

/** The user of the host's agent. */
#define SERVICE 64010

/** The limit of /run and of /var/lib. */
#define HOST_BYTES (8u << 20)

/** harness_init(), and the empty folders, with those of the agent's that systemd makes. */
void host_begin(void);
/** Stop the agent, and harness_finish(). */
void host_finish(void);

/** Make the socket of the host's agent, as reseatd.socket says, and keep it. */
void host_listen(void);
/** Start an agent with the socket, and wait until it says that it is ready. */
pid_t host_start(void);
/** Wait for what the agent tells systemd: true where that is @state. False after @ms. */
int host_hears(const char *state, int ms);
/** Kill the agent. */
void host_kill(pid_t agent);

/** Run `reseat` with up to three words as @uid, with a home of its own. Returns its status. */
int host_as(uid_t uid, const char *first, const char *second, const char *third);
/** The same of a shell's command; $R is `reseat`. */
int host_shell(uid_t uid, const char *command);

#endif
