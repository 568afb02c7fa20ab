#ifndef RESEAT_STATE_BASE_BYTES_HEX_H
#define RESEAT_STATE_BASE_BYTES_HEX_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Bytes in file names: two lower-case hexadecimal digits each. */

/** @ret  Room for 2 * @size digits and a NUL. */
static inline void hex_put(char *ret, const unsigned char *bytes, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < size; i++) {
        ret[2 * i] = digits[bytes[i] >> 4];
        ret[2 * i + 1] = digits[bytes[i] & 15];
    }
    ret[2 * size] = '\0';
}

/** False, with @ret untouched: @text is not 2 * @size digits and nothing else. */
static inline bool hex_get(unsigned char *ret, const char *text, size_t size)
{
    if (strlen(text) != 2 * size || strspn(text, "0123456789abcdef") != 2 * size)
        return false;
    for (size_t i = 0; i < 2 * size; i++) {
        unsigned digit = (unsigned)(text[i] <= '9' ? text[i] - '0' : text[i] - 'a' + 10);
        ret[i / 2] = (unsigned char)((i % 2 ? ret[i / 2] : 0u) << 4 | digit);
    }
    return true;
}

#endif
