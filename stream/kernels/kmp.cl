/*
 * Finds a pattern in text (Knuth, Morris and Pratt).
 *
 * Record: 1024 bytes of text. Answer: how often the pattern is in it, and where it begins first, or
 * 0xffffffff; 32 bits each. Constant pattern: 64 bytes, with zeros after its end; one that begins with
 * zero is found nowhere.
 */

#define TEXT 1024
#define LONGEST 64

__kernel void kmp(__global const uchar *text, __global uint2 *out, __constant uchar *pattern)
{
    size_t slot = get_global_id(0);
    /* Of the pattern's first i bytes: the longest end that is shorter than they are and a beginning of it. */
    uchar border[LONGEST + 1];
    int length = 0, matched = 0;
    while (length < LONGEST && pattern[length])
        length++;
    border[0] = border[1] = 0;
    for (int i = 1; i < length; i++) {
        while (matched && pattern[matched] != pattern[i])
            matched = border[matched];
        matched += pattern[matched] == pattern[i];
        border[i + 1] = matched;
    }
    uint count = 0, first = 0xffffffff;
    text += slot * TEXT;
    matched = 0;
    for (int i = 0; length && i < TEXT; i++) {
        uchar next = text[i];
        while (matched && pattern[matched] != next)
            matched = border[matched];
        matched += pattern[matched] == next;
        if (matched == length) {
            if (count++ == 0)
                first = i + 1 - length;
            matched = border[matched];
        }
    }
    out[slot] = (uint2)(count, first);
}
