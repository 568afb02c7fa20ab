#ifndef RESEAT_STATE_PROGRAM_PROGRAM_CUT_H
#define RESEAT_STATE_PROGRAM_PROGRAM_CUT_H

#include "state/program/program.h"

/*
 * The program once more, for pieces of its kernels that ask where in the launch they are: with
 * functions of ours in front of its source, which say of the whole launch what the driver says of a
 * piece. It is made in the background once such a kernel has a launch that may take long, which
 * waits for it for a while; whole launches stay with the program as it is.
 *
 * Nothing is added to a kernel's parameters: what the functions have to know is in the third
 * dimension's offset (cut_word), and, of launches of one dimension, in the second's, which such
 * launches do not have or do not use. Drivers carry 31 bits there, at least.
 */

/** The real program in @residence_index, or NULL. Inside the gate. */
cl_program program_cut_real(const struct program *program, uint8_t residence_index);
/** Can its kernel @name run in work-groups of @items in @residence_index, where it is? It may take
 * more than the program's own does. Inside the gate. */
bool program_cut_fits(const struct program *program, const char *name, struct residence *residence,
                      uint8_t residence_index, size_t items);
/** Why it cannot be made, in words; static. NULL: nothing is known to stand against it. */
const char *program_cut_refusal(struct program *program);

/** Make it where virtual device @vdev of the context is, if it is not there. Blocks on the
 * compiler; outside the gate. CL_SUCCESS also where the virtual device is suspended. */
cl_int program_cut_make(struct program *program, int vdev);
/** The same in the background; once, and never again after it was found not to build. */
void program_cut_start(struct program *program, int vdev);
/** How long the compiler is expected to take for it: as long as for the program's own build. */
uint64_t program_cut_expected_ns(const struct program *program);
/** Wait until it is not being made in the background any more, or for the deadline. Outside the
 *  gate. */
void program_cut_await(struct program *program, uint64_t deadline_ns);

/** A launch whose pieces are made from it is under way, from begin until end. Any thread. */
void program_cut_begin(struct program *program);
void program_cut_end(struct program *program);
/**
 * For movers, in PREPARE: made in @residence, which is at @residence_index, where it is made
 * already somewhere else. Where it does not build there kernels go whole, so that it is an error
 * only while a launch is under way. Blocks on the compiler; nothing is done with the gate closed.
 */
cl_int program_cut_prepare(struct program *program, struct residence *residence,
                           uint8_t residence_index);
/** Retire with @residence what is in @residence_index. By a mover. */
void program_cut_vacate(struct program *program, struct residence *residence,
                        uint8_t residence_index);
/** Let go of all: it was built anew, or ends. Inside the gate, or with it closed. */
void program_cut_drop(struct program *program);
/** How many real programs there are; for residence_reserve. */
size_t program_cut_count(void);

/** Launches with sizes or offsets from here on do not fit into the word. */
#define CUT_SIZE_MAX ((size_t)1 << 28)

/**
 * The offset of the third dimension, of a launch that is cut along @dim (0, or 1 of 2 or 3).
 * @value  Of one dimension: its offset. Else its size along @dim, where the offset is 0.
 */
static inline size_t cut_word(uint32_t dims, uint32_t dim, size_t value)
{
    return value << 3 | dims << 1 | dim;
}

/** The text in front of a program's source. An option that defines a word of it changes what it
 * says.
 */
extern const char cut_source[];

#endif
