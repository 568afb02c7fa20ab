#ifndef RESEAT_STATE_PROGRAM_PROGRAM_CUT_H
#define RESEAT_STATE_PROGRAM_PROGRAM_CUT_H

#include "state/program/program.h"

/*
 * A variant of the program for pieces of kernels that ask where in the launch they are. Our
 * functions stand in front of its source and answer for the whole launch what the driver would
 * answer for the piece. The variant is built in the background when such a kernel first has a
 * launch that may take long; that launch waits for it for a while. Whole launches use the program
 * as it is.
 *
 * Kernels get no further parameters. What the functions need is in the offset of the third
 * dimension (cut_word), and for launches of one dimension also in that of the second: these
 * launches do not use those dimensions. Drivers carry at least 31 bits there.
 */

/** The real program in @residence_index, or NULL. Inside the gate. */
cl_program program_cut_real(const struct program *program, uint8_t residence_index);
/** True when kernel @name of the variant, which is in @residence_index, can run in work-groups of
 * @items: it may need more registers than the program's own. Inside the gate. */
bool program_cut_fits(const struct program *program, const char *name, struct residence *residence,
                      uint8_t residence_index, size_t items);
/** Why it cannot be made: static text; NULL when no reason is known. */
const char *program_cut_refusal(struct program *program);

/** Make it in the residence of the context's virtual device @vdev, unless it is there. Blocks on
 * the compiler; outside the gate. CL_SUCCESS also when the virtual device is suspended. */
cl_int program_cut_make(struct program *program, int vdev);
/** The same in the background, unless it is being made already or did not build before. */
void program_cut_start(struct program *program, int vdev);
/** Expected duration of the build in nanoseconds: that of the program's own build. */
uint64_t program_cut_expected_ns(const struct program *program);
/** Wait until the build in the background has ended, or the deadline has passed. Outside the gate.
 */
void program_cut_await(struct program *program, uint64_t deadline_ns);

/** A launch whose pieces use the variant begins, and ends. @recorded: instead, it is a piece that
 * the journal has, which only a recovery gives. Any thread. */
void program_cut_begin(struct program *program, bool recorded);
void program_cut_end(struct program *program, bool recorded);
/**
 * For movers, in PREPARE: make it in @residence, which is at @residence_index, if another residence
 * has it. If it does not build there, later launches are given whole; so this is an error only
 * while a launch uses it, or when the move @recovers what the journal has. Blocks on the compiler;
 * does nothing with the gate closed.
 */
cl_int program_cut_prepare(struct program *program, struct residence *residence,
                           uint8_t residence_index, bool recovers);
/** Retire the variant in @residence_index with @residence. By a mover. */
void program_cut_vacate(struct program *program, struct residence *residence,
                        uint8_t residence_index);
/** Release the variant everywhere: the program was built again, or ends. Inside the gate, or with
 * it closed. */
void program_cut_drop(struct program *program);
/** Number of real programs of all variants, for residence_reserve. */
size_t program_cut_count(void);

/** Launches with sizes or offsets from here on do not fit into the word. */
#define CUT_SIZE_MAX ((size_t)1 << 28)

/**
 * The offset of the third dimension for pieces of a launch that is cut along @dim (0, or with 2 or
 * 3 dimensions also 1).
 * @value  With one dimension: the launch's offset. Else its size along @dim, where its offset is 0.
 */
static inline size_t cut_word(uint32_t dims, uint32_t dim, size_t value)
{
    return value << 3 | dims << 1 | dim;
}

/** The text in front of a program's source. A build option that defines a word of this text would
 * change its meaning. */
extern const char cut_source[];

#endif
