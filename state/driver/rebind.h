#ifndef RESEAT_STATE_DRIVER_REBIND_H
#define RESEAT_STATE_DRIVER_REBIND_H

#include <stddef.h>

/**
 * Bind a driver's references to OpenCL calls that it exports to itself. The dynamic linker may have
 * bound them to a library loaded before it, such as ours: Oclgrind fills its dispatch table with
 * its exported functions, and calls some of them by name.
 *
 * RTLD_DEEPBIND would do that for every symbol, and breaks drivers in C++ (POCL's LLVM in a program
 * that has std::cout copied into it), sanitisers, and programs with an allocator of their own. Here
 * only references to calls ("cl" and a capital) that the driver defines itself are bound to itself.
 *
 * @handle  From dlopen with RTLD_NOW. Not thread-safe with another thread that calls the driver.
 * Returns how many references were changed.
 */
size_t rebind_own_calls(void *handle);

#endif
