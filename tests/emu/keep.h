#ifndef RESEAT_TESTS_EMU_KEEP_H
#define RESEAT_TESTS_EMU_KEEP_H

#include "tests/emu/object.h"

/*
 * What the driver built once in this process it need not compile again: tests of moves build the
 * same few programs thousands of times, and a program of POCL's binary takes it a twentieth of the
 * time.
 */

/** The text that the program was made of, "" if of none; to be freed. NULL: no memory. */
char *emu_keep_source(const struct emu_program *program);

/** clBuildProgram() of the driver's program, or another in its place that is built the same. */
cl_int emu_keep_build(struct emu_program *program, cl_uint count, const cl_device_id *devices,
                      const char *options);

/** Before it is built in another way: it is of its source again. */
cl_int emu_keep_undo(struct emu_program *program);

#endif
