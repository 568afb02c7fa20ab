#ifndef RESEAT_AGENT_WATCH_CONTACT_H
#define RESEAT_AGENT_WATCH_CONTACT_H

#include <stdint.h>

/*
 * Check whether a device server can be reached and would accept us, without starting a session or a
 * driver.
 */

#define CONTACT_CODE_MAX    16
#define CONTACT_PROBLEM_MAX 512

struct contact {
    /**
     * The kind of problem as one word for scripts (doc/remote.md lists them); "" if there is none.
     */
    char code[CONTACT_CODE_MAX];
    char problem[CONTACT_PROBLEM_MAX]; /**< One line, safe to print: the problem and its remedy. */
    uint64_t round_trip_ns;            /**< Of one message and its answer, once connected. */
};

/**
 * Check a server. Blocks until @deadline_ns (of clock_now_ns()), or longer where the name resolver
 * does not return. A caller that cannot wait runs this in a child process; that also keeps the TLS
 * errors of different servers apart.
 */
void contact_look(const char *address, uint64_t deadline_ns, struct contact *ret_contact);

#endif
