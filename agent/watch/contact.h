#ifndef RESEAT_AGENT_WATCH_CONTACT_H
#define RESEAT_AGENT_WATCH_CONTACT_H

#include <stdint.h>

/*
 * Is a device server there, and would it have us? Nothing is begun there: no session, no driver.
 */

#define CONTACT_CODE_MAX    16
#define CONTACT_PROBLEM_MAX 512

struct contact {
    /** What kind of problem it is, in a word for scripts (doc/remote.md has them all); "": none. */
    char code[CONTACT_CODE_MAX];
    char problem[CONTACT_PROBLEM_MAX]; /**< One line, safe to print: what it is and what helps. */
    uint64_t round_trip_ns;            /**< Of one message and its answer, once connected. */
};

/**
 * Look. Blocks until @deadline_ns (of clock_now_ns()) or a little longer, where the resolver of
 * names does not return: whoever cannot wait has it done in a process of its own, which also keeps
 * what is said of one server apart from the next.
 */
void contact_look(const char *address, uint64_t deadline_ns, struct contact *ret_contact);

#endif
