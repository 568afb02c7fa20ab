#include "state/base/bytes/text.h"

#include <stdint.h>

/* Line separators, and characters that change the direction of the text around them. */
static bool text_is_disguise(uint32_t value)
{
    return value == 0x61c || value == 0x200e || value == 0x200f ||
           (value >= 0x2028 && value <= 0x202e) || (value >= 0x2066 && value <= 0x2069);
}

/** Bytes of the character that @text begins with; 0 when it is none that may be shown. */
static size_t text_character(const unsigned char *text, size_t length)
{
    static const uint32_t least[] = {0, 0xa0, 0x800, 0x10000};
    unsigned char lead = text[0];
    size_t more = lead < 0x80   ? 0
                  : lead < 0xc0 ? 4
                  : lead < 0xe0 ? 1
                  : lead < 0xf0 ? 2
                  : lead < 0xf8 ? 3
                                : 4;
    uint32_t value = lead;

    if (more == 0)
        return lead >= 0x20 && lead != 0x7f;
    if (more >= length || more == 4)
        return 0;
    value &= 0x3fu >> more;
    for (size_t i = 1; i <= more; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (text[i] & 0x3fu);
    }
    /* Overlong forms, C1, surrogates, and what is beyond Unicode. */
    return value < least[more] || (value >= 0xd800 && value < 0xe000) || value > 0x10ffff ||
                   text_is_disguise(value)
               ? 0
               : more + 1;
}

static bool text_is_plain(char character)
{
    return character >= 0x20 && character < 0x7f;
}

bool text_is_safe(const char *text, size_t length)
{
    for (size_t i = 0, size; i < length; i += size) {
        size = text_is_plain(text[i]) ? 1
                                      : text_character((const unsigned char *)text + i, length - i);
        if (size == 0)
            return false;
    }
    return true;
}

void text_make_safe(char *ret, size_t size, const char *text, size_t length)
{
    size_t used = 0;

    for (size_t i = 0; i < length;) {
        if (text_is_plain(text[i]) && used + 1 < size) {
            ret[used++] = text[i++];
            continue;
        }
        size_t whole = text_character((const unsigned char *)text + i, length - i);
        size_t bytes = whole ? whole : 1;
        if (used + bytes >= size)
            break;
        for (size_t j = 0; j < bytes; j++)
            ret[used + j] = text[i + j];
        if (!whole)
            ret[used] = text[i] >= '\t' && text[i] <= '\r' ? ' ' : '?';
        used += bytes;
        i += bytes;
    }
    ret[used] = '\0';
}
