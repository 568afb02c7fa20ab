#ifndef RESEAT_AGENT_PROTOCOL_PROTECTION_H
#define RESEAT_AGENT_PROTOCOL_PROTECTION_H

#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * How a program is protected from the loss of its device, as people, the configuration, variables
 * and frames say it: "off", "on", a number of seconds between points, or a size that the journal
 * may have ("512MiB"). Pure.
 */

#define PROTECTION_SECONDS_MAX 86400u
/** Bytes of the longest text, with the NUL. */
#define PROTECTION_TEXT_MAX 24

enum protection_word { PROTECTION_UNSAID, PROTECTION_OFF, PROTECTION_ON };

struct protection {
    enum protection_word word;
    uint32_t seconds; /**< Between points; 0: not said. */
    uint64_t bytes;   /**< Of the journal; 0: not said. */
};

/**
 * @ret_reason  On failure one line that says what is wrong.
 * Returns 0 or -EINVAL.
 */
MUST_CHECK int protection_parse(const char *text, struct protection *ret_protection,
                                char *ret_reason, size_t reason_size);
/** As protection_parse() takes it; "" where nothing is said. */
void protection_format(const struct protection *protection, char ret_text[PROTECTION_TEXT_MAX]);

#endif
