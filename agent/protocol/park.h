#ifndef RESEAT_AGENT_PROTOCOL_PARK_H
#define RESEAT_AGENT_PROTOCOL_PARK_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * The command that writes a process to an image communicates with the process through a box in the
 * memory of the process, whose address the program reports. A descriptor would be dumped with the
 * process, and a file would have to exist on the host where it is restored. Who may dump a process
 * may also write to its memory.
 */

#define PARK_MAGIC UINT64_C(0x6b72617074616573)

enum park_state {
    PARK_NONE,
    PARK_BEGINS, /**< Set by the program: parked, but it may still be connected to its agent. */
    PARK_PARKED, /**< Set by the program: parked, and not connected. */
    PARK_GO,     /**< Set by the command: continue. */
};

struct park_box {
    uint64_t magic;
    _Atomic uint32_t state; /**< enum park_state. */
    _Atomic uint32_t beat;  /**< The command counts; once it stops, the program continues. */
    /* Set by the command before PARK_GO. */
    uint32_t restored; /**< 1: this is a restored process, which no agent knows. */
    char socket[108];  /**< The agent's socket; "": unchanged. */
};

/** After this long without a count, the command has ended. */
#define PARK_SILENCE_MS 10000

#endif
