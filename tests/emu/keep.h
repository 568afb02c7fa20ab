#ifndef RESEAT_TESTS_EMU_KEEP_H
#define RESEAT_TESTS_EMU_KEEP_H

#include "tests/emu/object.h"

/*
 * What the driver compiled once in this process it need not compile again: tests of moves build the
 * same few programs thousands of times, and it takes POCL a twentieth of the time to take its own
 * binary.
 */

/** clBuildProgram() or clCompileProgram() with the driver's objects. */
struct emu_keep_call {
    bool compiles;
    cl_uint count;
    const cl_device_id *devices;
    const char *options; /**< The program's. */
    const char *maker;   /**< Section of the device whose code it is to be. */
    cl_uint header_count;
    const cl_program *headers;
    const char **names;
};

/** The text that the program was made of, "" if of none; to be freed. NULL: no memory. */
char *emu_keep_source(const struct emu_program *program);

/** What the driver says; after success the program may have another of the driver's in its place,
 * which is the same. */
cl_int emu_keep_build(struct emu_program *program, const struct emu_keep_call *call);

#endif
