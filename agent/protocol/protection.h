#ifndef RESEAT_AGENT_PROTOCOL_PROTECTION_H
#define RESEAT_AGENT_PROTOCOL_PROTECTION_H

#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * How a program is protected from the loss of its device, as text in commands, the configuration,
 * variables and frames: "off", "on", a number of seconds between snapshots, or the most memory for
 * the journal ("512MiB"). Pure.
 */

#define PROTECTION_SECONDS_MAX 86400u
/** Bytes of the longest text, with the NUL. */
#define PROTECTION_TEXT_MAX 24

enum protection_word { PROTECTION_UNSAID, PROTECTION_OFF, PROTECTION_ON };

struct protection {
    enum protection_word word;
    uint32_t seconds; /**< Between snapshots; 0: not set. */
    uint64_t bytes;   /**< Of the journal; 0: not set. */
};

/**
 * @ret_reason  On failure the reason, one line.
 * Returns 0 or -EINVAL.
 */
MUST_CHECK int protection_parse(const char *text, struct protection *ret_protection,
                                char *ret_reason, size_t reason_size);
/** The text that protection_parse() reads; "" for PROTECTION_UNSAID. */
void protection_format(const struct protection *protection, char ret_text[PROTECTION_TEXT_MAX]);

#endif
