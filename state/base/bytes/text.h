#ifndef RESEAT_STATE_BASE_BYTES_TEXT_H
#define RESEAT_STATE_BASE_BYTES_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Text that somebody else wrote and that may reach a terminal or a log. It is safe when it is UTF-8
 * without control characters (C0, C1, DEL): then it cannot do more than be read. In any locale.
 */

bool text_is_safe(const char *text, size_t length);

/**
 * A safe copy: a blank for each tab and line break, a "?" for every other control character and for
 * each byte that is no UTF-8, cut at a whole character where it is longer than @size allows.
 *
 * @ret  At least one byte; with a NUL. May be @text, where @size is over @length.
 */
void text_make_safe(char *ret, size_t size, const char *text, size_t length);

#endif
