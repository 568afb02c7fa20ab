#include "state/base/bytes/size.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_MAX 64

static const struct unit {
    const char *name;
    unsigned shift;
} units[] = {{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}};

/* Read the digits that @text begins with; @ret_end is what follows. False if the number has more
 * than 64 bits. */
static bool size_read_digits(const char *text, uint64_t *ret_number, const char **ret_end)
{
    uint64_t number = 0;
    bool large = false;

    for (; *text >= '0' && *text <= '9'; text++) {
        large = large || __builtin_mul_overflow(number, 10, &number) ||
                __builtin_add_overflow(number, (uint64_t)(*text - '0'), &number);
    }
    *ret_end = text;
    *ret_number = number;
    return !large;
}

bool number_parse(const char *text, uint64_t most, uint64_t *ret_number)
{
    const char *end = text;
    uint64_t number;

    if (!text || !size_read_digits(text, &number, &end) || end == text || *end || number > most)
        return false;
    *ret_number = number;
    return true;
}

static const struct unit *size_find_unit(const char *text)
{
    for (size_t i = 0; i < ARRAY_SIZE(units); i++)
        if (strcmp(units[i].name, text) == 0)
            return &units[i];
    return NULL;
}

/** The beginning of what was given, as part of one line. */
static void size_show(const char *text, char ret[SHOWN_MAX])
{
    size_t i = 0;

    for (; text[i] && i + 1 < SHOWN_MAX; i++)
        ret[i] = iscntrl((unsigned char)text[i]) ? '?' : text[i];
    ret[i] = '\0';
}

int size_parse(const char *text, uint64_t *ret_bytes, char *ret_reason, size_t reason_size)
{
    const struct unit *unit;
    char shown[SHOWN_MAX];
    const char *at;
    uint64_t number;
    bool large = !size_read_digits(text, &number, &at);

    unit = size_find_unit(*at == '\0' && at > text && !large && number == 0 ? "B" : at);
    size_show(text, shown);
    if (at == text || !unit) {
        snprintf(ret_reason, reason_size,
                 "\"%s\" is not a size: a whole number and B, KiB, MiB, GiB or TiB, such as "
                 "\"512MiB\"",
                 shown);
        return -EINVAL;
    }
    if (large || number > (UINT64_MAX - 1) >> unit->shift) {
        snprintf(ret_reason, reason_size, "\"%s\" is too large: sizes have 64 bits", shown);
        return -ERANGE;
    }
    *ret_bytes = number << unit->shift;
    return 0;
}

void size_format(uint64_t bytes, char ret_text[SIZE_TEXT_MAX])
{
    const struct unit *unit = units;

    while (unit->shift && (bytes == 0 || bytes & ((1ull << unit->shift) - 1)))
        unit++;
    snprintf(ret_text, SIZE_TEXT_MAX, "%llu%s", (unsigned long long)(bytes >> unit->shift),
             unit->name);
}

void bytes_text(uint64_t bytes, char *ret, size_t size)
{
    const struct unit *unit = units;

    while (unit->shift && bytes < 1ull << unit->shift)
        unit++;
    double value = (double)bytes / (double)(1ull << unit->shift);
    snprintf(ret, size, "%.*f %s", unit->shift && value < 100 ? 1 : 0, value, unit->name);
}

unsigned time_unit_seconds(const char *unit)
{
    static const struct {
        const char *name;
        unsigned seconds;
    } times[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 60 * 60}, {"d", 24 * 60 * 60}};

    for (size_t i = 0; i < ARRAY_SIZE(times); i++)
        if (strcmp(times[i].name, unit) == 0)
            return times[i].seconds;
    return 0;
}
