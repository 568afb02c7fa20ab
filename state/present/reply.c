#include "state/present/proposal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Index of the first answer that is not before @name. */
static size_t reply_place(const struct devinfo *info, cl_device_info name)
{
    size_t at = 0;

    while (at < info->value_count && info->values[at].name < name)
        at++;
    return at;
}

int reply_set(struct devinfo *info, cl_device_info name, const void *bytes, size_t size)
{
    size_t at = reply_place(info, name);
    uint8_t *copy = calloc(1, size + 1);

    if (!copy)
        return -ENOMEM;
    if (size)
        memcpy(copy, bytes, size);
    if (at == info->value_count || info->values[at].name != name) {
        struct devinfo_value *grown =
            realloc(info->values, (info->value_count + 1) * sizeof(*grown));

        if (!grown) {
            free(copy);
            return -ENOMEM;
        }
        info->values = grown;
        memmove(grown + at + 1, grown + at, (info->value_count - at) * sizeof(*grown));
        info->value_count++;
        grown[at].bytes = NULL;
    }
    free(info->values[at].bytes);
    info->values[at] = (struct devinfo_value){name, (uint32_t)size, copy};
    return 0;
}

int reply_set_string(struct devinfo *info, cl_device_info name, const char *text)
{
    return reply_set(info, name, text, strlen(text) + 1);
}

int reply_set_scalar(struct devinfo *info, cl_device_info name, uint64_t value, size_t size)
{
    uint32_t four = (uint32_t)value;

    return size == sizeof(four) ? reply_set(info, name, &four, sizeof(four))
                                : reply_set(info, name, &value, sizeof(value));
}

void reply_change(struct devinfo *info, cl_device_info name, uint64_t value)
{
    size_t at = reply_place(info, name);
    struct devinfo_value *found = &info->values[at];
    uint32_t four = (uint32_t)value;

    if (at == info->value_count || found->name != name)
        return;
    if (found->size == sizeof(four))
        memcpy(found->bytes, &four, sizeof(four));
    else if (found->size == sizeof(value))
        memcpy(found->bytes, &value, sizeof(value));
}

void reply_shorten(struct devinfo *info, cl_device_info name, size_t size)
{
    size_t at = reply_place(info, name);

    if (at < info->value_count && info->values[at].name == name && info->values[at].size > size)
        info->values[at].size = (uint32_t)size;
}

void reply_drop(struct devinfo *info, cl_device_info name)
{
    size_t at = reply_place(info, name);

    if (at == info->value_count || info->values[at].name != name)
        return;
    free(info->values[at].bytes);
    info->value_count--;
    memmove(info->values + at, info->values + at + 1,
            (info->value_count - at) * sizeof(*info->values));
}
