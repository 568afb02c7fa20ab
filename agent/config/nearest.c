#include "agent/config/nearest.h"

#include <ctype.h>
#include <string.h>

#define LIKENESS_MAX 64

/** How many letters have to change, come or go to make one word of the other. */
static size_t nearest_distance(const char *a, const char *b)
{
    size_t row[LIKENESS_MAX + 1];
    size_t length = strnlen(b, LIKENESS_MAX);

    for (size_t j = 0; j <= length; j++)
        row[j] = j;
    for (size_t i = 0; i < LIKENESS_MAX && a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < length; j++) {
            size_t changed = diagonal + (tolower((unsigned char)a[i]) != b[j]);
            size_t shorter = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
            diagonal = row[j + 1];
            row[j + 1] = changed < shorter ? changed : shorter;
        }
    }
    return row[length];
}

const char *nearest_name(const char *name, const char *const *names, size_t count, size_t most)
{
    const char *nearest = NULL;
    size_t least = most;

    for (size_t i = 0; i < count; i++) {
        size_t now = nearest_distance(name, names[i]);
        if (now < least || (!nearest && now == least)) {
            nearest = names[i];
            least = now;
        }
    }
    return nearest;
}
