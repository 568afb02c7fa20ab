#ifndef RESEAT_SIMULATE_SIM_CSV_H
#define RESEAT_SIMULATE_SIM_CSV_H

#include <stdint.h>
#include <stdio.h>

#include "simulate/sim.h"

/* Reads comma-separated files with a known header, one row per line, without quotes. */

#define SIM_LINE_MAX   4096
#define SIM_FIELDS_MAX 16

struct sim_csv {
    FILE *file;
    const char *path; /**< Borrowed. */
    const char *header;
    unsigned line;
    size_t count; /**< Fields of the header. */
    char text[SIM_LINE_MAX];
    char *fields[SIM_FIELDS_MAX];
    char *error; /**< SIM_ERROR bytes, borrowed: "FILE:LINE: reason" after a failure. */
};

/** Open and compare the header. Returns 0 or -EINVAL; sim_csv_close() follows either way. */
MUST_CHECK int sim_csv_open(struct sim_csv *csv, const char *path, const char *header,
                            char *ret_error);
void sim_csv_close(struct sim_csv *csv);
/** The next row's fields. Returns 1, 0 at the end, or -EINVAL. */
MUST_CHECK int sim_csv_next(struct sim_csv *csv);
/** A whole number of @least to @most. Returns 0 or -EINVAL. */
MUST_CHECK int sim_csv_number(struct sim_csv *csv, size_t field, uint64_t least, uint64_t most,
                              uint64_t *ret_value);
/** A number with up to 3 places, in thousandths. Returns 0 or -EINVAL. */
MUST_CHECK int sim_csv_thousandths(struct sim_csv *csv, size_t field, uint64_t least, uint64_t most,
                                   uint64_t *ret_value);
/** Refuse the line. Returns -EINVAL. */
int sim_csv_refuse(struct sim_csv *csv, const char *format, ...) PRINTF(2, 3);

/**
 * Digits only, with up to @places after a point: the number times 10^@places. False when it is
 * anything else or over @most.
 */
bool sim_parse(const char *text, unsigned places, uint64_t most, uint64_t *ret_value);

#endif
