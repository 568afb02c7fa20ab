#ifndef RESEAT_AGENT_DAEMON_GOVERN_GOVERNOR_H
#define RESEAT_AGENT_DAEMON_GOVERN_GOVERNOR_H

#include "agent/daemon/devices/history.h"
#include "agent/daemon/govern/world.h"

/** A program that ended, and what it needed. */
#define ENDED_MAX 32
struct ended {
    char id[32], name[64], device[32];
    uint64_t wanted_peak, held_peak, granted_peak, own, waits, waited_ms;
};

#define GOVERN_MOVES_MAX 1024

struct follower;
struct need;
struct resume;

/** What the agent keeps for the policy beside programs and the ledger. */
struct governor {
    struct resume *resumes;
    struct history *histories; /**< Of the ledger's devices. */
    uint32_t history_count;
    struct need *needs;
    uint64_t events;         /**< Announcements and wishes, to tell which was first. */
    uint64_t await_until_ms; /**< From then on programs of an agent before are not waited for. */
    uint64_t moved_ms[GOVERN_MOVES_MAX]; /**< When a program was last moved by policy. */
    unsigned moved;
    struct world world;
    struct follower *followers;
    struct ended ended[ENDED_MAX];
    unsigned ended_count;
    char state_path[PATH_MAX];
    bool running, automatic;
    uint64_t ticked_ms;
};

#endif
