#include "agent/protocol/protection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "state/base/bytes/size.h"

/* Digits only. UINT64_MAX: it is no number, or a larger one than any that counts. */
static uint64_t protection_number_of(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    uint64_t number = 0;

    if (digits == 0 || digits > 9 || text[digits])
        return UINT64_MAX;
    for (; *text; text++)
        number = number * 10 + (uint64_t)(*text - '0');
    return number;
}

int protection_parse(const char *text, struct protection *ret_protection, char *ret_reason,
                     size_t reason_size)
{
    struct protection protection = {.word = PROTECTION_ON};
    bool plain = text[0] && text[strspn(text, "0123456789")] == '\0';
    uint64_t seconds = protection_number_of(text);

    if (strcmp(text, "off") == 0) {
        protection.word = PROTECTION_OFF;
    } else if (plain) {
        if (seconds < 1 || seconds > PROTECTION_SECONDS_MAX) {
            snprintf(ret_reason, reason_size, "\"%.32s\" is not 1 to %u seconds", text,
                     PROTECTION_SECONDS_MAX);
            return -EINVAL;
        }
        protection.seconds = (uint32_t)seconds;
    } else if (strcmp(text, "on") != 0) {
        if (size_parse(text, &protection.bytes, ret_reason, reason_size))
            return -EINVAL;
        if (!protection.bytes) {
            snprintf(ret_reason, reason_size, "a journal of no bytes keeps nothing");
            return -EINVAL;
        }
    }
    *ret_protection = protection;
    return 0;
}

void protection_format(const struct protection *protection, char ret_text[PROTECTION_TEXT_MAX])
{
    if (protection->word != PROTECTION_ON)
        snprintf(ret_text, PROTECTION_TEXT_MAX, "%s",
                 protection->word == PROTECTION_OFF ? "off" : "");
    else if (protection->seconds)
        snprintf(ret_text, PROTECTION_TEXT_MAX, "%" PRIu32, protection->seconds);
    else if (protection->bytes)
        size_format(protection->bytes, ret_text);
    else
        snprintf(ret_text, PROTECTION_TEXT_MAX, "on");
}
