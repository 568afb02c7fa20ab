#include "state/driver/device_key.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "state/base/bytes/text.h"

static const char hex_digits[] = "0123456789abcdef";

static char *device_key_put_text(char *at, const char *text)
{
    while (*text)
        *at++ = *text++;
    return at;
}

static char *device_key_put_escaped(char *at, const char *name, const char *text, size_t size)
{
    at = device_key_put_text(at, name);
    for (size_t i = 0; i < size && text[i]; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte <= ' ' || byte >= 0x7f || byte == ';' || byte == '%') {
            *at++ = '%';
            *at++ = hex_digits[byte >> 4];
            *at++ = hex_digits[byte & 15];
        } else {
            *at++ = (char)byte;
        }
    }
    return at;
}

void device_key_format(const struct device_key *key, char *ret_text)
{
    char ordinal[16];
    char *at = ret_text;

    snprintf(ordinal, sizeof(ordinal), "%u", (unsigned)key->ordinal);
    at = device_key_put_escaped(at, "icd=", key->icd, sizeof(key->icd) - 1);
    at = device_key_put_escaped(at, ";platform=", key->platform, sizeof(key->platform) - 1);
    at = device_key_put_escaped(at, ";device=", key->device, sizeof(key->device) - 1);
    at = device_key_put_escaped(at, ";ordinal=", ordinal, sizeof(ordinal));
    at = device_key_put_escaped(at, ";uuid=", key->uuid, sizeof(key->uuid) - 1);
    at = device_key_put_escaped(at, ";pci=", key->pci, sizeof(key->pci) - 1);
    *at = '\0';
}

static int device_key_hex_value(char digit)
{
    const char *found = digit ? strchr(hex_digits, digit) : NULL;

    return found ? (int)(found - hex_digits) : -1;
}

/** Unescape one field, which ends at ';' or NUL, into @ret of @size bytes. */
static bool device_key_take_escaped(const char *text, size_t length, char *ret, size_t size)
{
    size_t used = 0;

    for (size_t i = 0; i < length; i++) {
        char byte = text[i];
        if (byte == '%') {
            int high = i + 2 < length ? device_key_hex_value(text[i + 1]) : -1;
            int low = i + 2 < length ? device_key_hex_value(text[i + 2]) : -1;
            if (high < 0 || low < 0 || (high == 0 && low == 0))
                return false;
            byte = (char)(high << 4 | low);
            i += 2;
        }
        if (used + 1 >= size)
            return false;
        ret[used++] = byte;
    }
    ret[used] = '\0';
    return text_is_safe(ret, used);
}

static bool device_key_take_number(const char *text, size_t length, uint32_t *ret)
{
    uint64_t value = 0;

    if (length == 0 || length > 10)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *ret = (uint32_t)value;
    return value <= UINT32_MAX;
}

int device_key_parse(const char *text, struct device_key *ret_key)
{
    struct device_key key = {0};
    /* Unknown names are ignored. */
    const struct {
        const char *name;
        char *to;
        size_t size;
    } fields[] = {
        {"icd", key.icd, sizeof(key.icd)},
        {"platform", key.platform, sizeof(key.platform)},
        {"device", key.device, sizeof(key.device)},
        {"uuid", key.uuid, sizeof(key.uuid)},
        {"pci", key.pci, sizeof(key.pci)},
    };

    if (strnlen(text, DEVICE_KEY_TEXT_MAX) == DEVICE_KEY_TEXT_MAX)
        return -EINVAL;
    while (*text) {
        size_t length = strcspn(text, ";");
        const char *equals = memchr(text, '=', length);
        if (!equals)
            return -EINVAL;
        size_t name = (size_t)(equals - text);
        const char *value = equals + 1;
        size_t value_length = length - name - 1;
        if (name == 7 && memcmp(text, "ordinal", 7) == 0) {
            if (!device_key_take_number(value, value_length, &key.ordinal))
                return -EINVAL;
        }
        for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
            if (strlen(fields[i].name) == name && memcmp(fields[i].name, text, name) == 0 &&
                !device_key_take_escaped(value, value_length, fields[i].to, fields[i].size))
                return -EINVAL;
        text += length;
        text += *text == ';';
    }
    if (!key.icd[0] || !key.device[0])
        return -EINVAL;
    *ret_key = key;
    return 0;
}
