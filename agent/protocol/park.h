#ifndef RESEAT_AGENT_PROTOCOL_PARK_H
#define RESEAT_AGENT_PROTOCOL_PARK_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * How the command that keeps a program's process as an image speaks with it: by memory of the
 * process, at an address that the program told. A descriptor would be one more thing to be kept,
 * and a file one more to be found on another host. Whoever may have a process dumped may write to
 * its memory as well.
 */

#define PARK_MAGIC UINT64_C(0x6b72617074616573)

enum park_state {
    PARK_NONE,
    PARK_BEGINS, /**< The program says: parked, but it may have a connection with its agent. */
    PARK_PARKED, /**< The program says: there is none. */
    PARK_GO,     /**< The command says: go on. */
};

struct park_box {
    uint64_t magic;
    _Atomic uint32_t state; /**< enum park_state. */
    _Atomic uint32_t beat;  /**< The command counts; where it does not, the program goes on. */
    /** The command says, before PARK_GO: */
    uint32_t restored; /**< 1: this is another process, of which no agent knows. */
    char socket[108];  /**< Where its agent is; "": where it was. */
};

/** Nobody counted for so long: nobody is there. */
#define PARK_SILENCE_MS 10000

#endif
