#include "agent/protocol/protection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "state/base/bytes/size.h"

/* A whole number of seconds, or with a unit of time. UINT64_MAX: it is none, or larger than any
 * that counts. */
static uint64_t protection_number_of(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    uint64_t number = 0;

    if (digits == 0 || digits > 9)
        return UINT64_MAX;
    for (size_t i = 0; i < digits; i++)
        number = number * 10 + (uint64_t)(text[i] - '0');
    return number * time_unit_seconds(text + digits);
}

int protection_parse(const char *text, struct protection *ret_protection, char *ret_reason,
                     size_t reason_size)
{
    struct protection protection = {.word = PROTECTION_ON};
    size_t digits = strspn(text, "0123456789");
    bool plain = digits && time_unit_seconds(text + digits);
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
