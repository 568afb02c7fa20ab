#ifndef RESEAT_STATE_PROGRAM_PROGRAM_LIBRARY_H
#define RESEAT_STATE_PROGRAM_PROGRAM_LIBRARY_H

#include "state/program/program.h"

/**
 * Can all programs in contexts of @vdev be made on @device? False where it has no compiler and the
 * library of binaries lacks one of them. A mover, in PLAN; blocks on the disk.
 *
 * @ret_kernels  The names of that one's kernels, cut where @size is short; only of meaning then.
 */
bool program_library_serves(const struct vdev *vdev, const struct device *device, char *ret_kernels,
                            size_t size);

#endif
