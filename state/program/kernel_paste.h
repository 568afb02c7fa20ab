#ifndef RESEAT_STATE_PROGRAM_KERNEL_PASTE_H
#define RESEAT_STATE_PROGRAM_KERNEL_PASTE_H

#include "state/program/kernel_source.h"

/**
 * The names that "##" makes in the macros of @source, as further definitions of these macros, one a
 * line.
 *
 * @ret_text  The caller's (free()), on failure as well; NULL before.
 * Returns 0, -ENOMEM, or -ENOTSUP where what is pasted is not known.
 */
MUST_CHECK int kernel_paste(const struct kernel_source *source, char **ret_text, size_t *ret_size);

#endif
