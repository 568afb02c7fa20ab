#ifndef RESEAT_STREAM_DESCRIPTION_H
#define RESEAT_STREAM_DESCRIPTION_H

#include <stdint.h>

#include "state/base/compiler.h"
#include "stream/frame.h"

/*
 * The description of a kernel, NAME.stream, a text of libconfig:
 *
 *     kernel = "aes";  input = 16;  output = 16;      # bytes of a record, and of its answer
 *     items = 1;  local = 0;                          # work-items a record; of a work-group
 *     constants = ( { name = "key"; bytes = 16; } );  # arguments from the third on; 0: any size
 *     options = "";                                   # of the compiler
 */

#define STREAM_NAME_MAX    64 /**< Bytes of a kernel's or constant's name, with the NUL. */
#define STREAM_OPTIONS_MAX 512
#define STREAM_PROBLEM_MAX 512
#define STREAM_ITEMS_MAX   (1u << 16)

struct stream_description {
    char kernel[STREAM_NAME_MAX];
    uint32_t input, output, items;
    uint32_t local; /**< 0: as the driver chooses; else a divisor of `items`. */
    char options[STREAM_OPTIONS_MAX];
    uint32_t count;
    struct {
        char name[STREAM_NAME_MAX];
        uint32_t bytes; /**< 0: any. */
    } constants[STREAM_CONSTANTS_MAX];
};

/** Is it a name for a kernel: letters, digits, "_" and "-"? */
bool stream_name_is_valid(const char *name);

/**
 * Read a description.
 *
 * @ret_problem  On failure: one sentence that says what to change.
 * Returns 0 or -EINVAL.
 */
MUST_CHECK int stream_description_parse(const char *text,
                                        struct stream_description *ret_description,
                                        char ret_problem[STREAM_PROBLEM_MAX]);

/**
 * Compare the constants of OPEN with those of the description: each of these once, of the size that
 * it says. Constants with the name "" are those that no other one names, in the description's
 * order.
 *
 * @ret_order  For each constant of the description, its index in @open.
 * Returns 0 or -EINVAL, with the problem.
 */
MUST_CHECK int stream_description_match(const struct stream_description *description,
                                        const struct stream_open *open,
                                        uint32_t ret_order[STREAM_CONSTANTS_MAX],
                                        char ret_problem[STREAM_PROBLEM_MAX]);

#endif
