#ifndef RESEAT_STATE_BASE_BYTES_SIZE_H
#define RESEAT_STATE_BASE_BYTES_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/* Numbers and sizes of memory as people write them: "12", "1GiB", "512MiB". Pure. */

/** Read a whole number up to @most, of digits alone. False for any other text, or NULL; then
 * @ret_number is unchanged. */
bool number_parse(const char *text, uint64_t most, uint64_t *ret_number);

/** Bytes of the longest text of a size, with the NUL. */
#define SIZE_TEXT_MAX 24

/**
 * Read a size: a whole number and its unit (B, KiB, MiB, GiB, TiB), without anything before,
 * between or behind. A number without a unit is refused, but for 0: whoever leaves it out rarely
 * means bytes.
 *
 * @ret_bytes   UINT64_MAX never: that is left for "no limit".
 * @ret_reason  On failure one line that says what is wrong with it.
 * Returns 0, -EINVAL (not a size) or -ERANGE (too large for 64 bits).
 */
MUST_CHECK int size_parse(const char *text, uint64_t *ret_bytes, char *ret_reason,
                          size_t reason_size);

/** As size_parse() takes it, exactly: in the largest unit of which it is a whole number. */
void size_format(uint64_t bytes, char ret_text[SIZE_TEXT_MAX]);

/** The seconds of a unit of time: "s" or "", "m", "h" or "d"; 0 where it is no unit. */
unsigned time_unit_seconds(const char *unit);

/** For people: "1.5 GiB". */
void bytes_text(uint64_t bytes, char *ret, size_t size);

#endif
