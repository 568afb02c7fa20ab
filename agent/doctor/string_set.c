#include "agent/doctor/inspection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STRINGS_MAX 65536

void strings_finish(struct strings *strings)
{
    for (size_t i = 0; i < strings->count; i++)
        free(strings->items[i]);
    free(strings->items);
    *strings = (struct strings){0};
}

bool strings_have(const struct strings *strings, const char *text)
{
    for (size_t i = 0; i < strings->count; i++)
        if (strcmp(strings->items[i], text) == 0)
            return true;
    return false;
}

int strings_add(struct strings *strings, const char *text)
{
    if (strings->count >= STRINGS_MAX || strings_have(strings, text))
        return 0;
    char **grown = realloc(strings->items, (strings->count + 1) * sizeof(*grown));
    char *copy = grown ? strdup(text) : NULL;
    if (grown)
        strings->items = grown;
    if (!copy)
        return -ENOMEM;
    grown[strings->count++] = copy;
    return 0;
}
