#include "remote/identity/grant.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/bytes/size.h"
#include "state/base/bytes/text.h"

#define MAGIC     "reseat-grant-1"
#define ALL       "*"
#define UNLIMITED "-"

static bool grant_is_device(const char *name, size_t length)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-";

    return length > 0 && length < GRANT_DEVICE_MAX && name[0] != '-' &&
           strspn(name, allowed) >= length;
}

bool grant_has_device(const struct grant *grant, const char *device)
{
    for (size_t i = 0; i < grant->device_count; i++)
        if (strcmp(grant->devices[i], device) == 0)
            return true;
    return grant->device_count == 0;
}

static int grant_refuse(const char *name, size_t length, const char *why, char *ret_reason)
{
    char shown[64];

    text_make_safe(shown, sizeof(shown), name, length);
    snprintf(ret_reason, GRANT_REASON_MAX, "\"%s\" %s", shown, why);
    return -EINVAL;
}

int grant_set_devices(struct grant *grant, const char *list, char ret_reason[GRANT_REASON_MAX])
{
    struct grant set = {.device_count = 0};

    if (!*list || strcmp(list, ALL) == 0) {
        grant->device_count = 0;
        return 0;
    }
    for (const char *name = list;; name++) {
        size_t length = strcspn(name, ",");
        if (!grant_is_device(name, length))
            return grant_refuse(name, length, "is not the name of a device, such as gpu0",
                                ret_reason);
        if (set.device_count == GRANT_DEVICES_MAX)
            return grant_refuse(name, length, "is one device too many; use * for all", ret_reason);
        char *device = set.devices[set.device_count];
        memcpy(device, name, length);
        if (set.device_count && grant_has_device(&set, device))
            return grant_refuse(name, length, "is in the list twice", ret_reason);
        set.device_count++;
        name += length;
        if (!*name)
            break;
    }
    memcpy(grant->devices, set.devices, sizeof(set.devices));
    grant->device_count = set.device_count;
    return 0;
}

void grant_format(const struct grant *grant, char ret_text[GRANT_TEXT_MAX])
{
    char memory[SIZE_TEXT_MAX] = UNLIMITED, sessions[16] = UNLIMITED;
    char devices[GRANT_DEVICES_MAX * GRANT_DEVICE_MAX + 1] = "," ALL;
    size_t used = 0;

    for (size_t i = 0; i < grant->device_count; i++)
        used += (size_t)snprintf(devices + used, sizeof(devices) - used, ",%s", grant->devices[i]);
    if (grant->memory != GRANT_UNLIMITED_MEMORY)
        size_format(grant->memory, memory);
    if (grant->sessions != GRANT_UNLIMITED_SESSIONS)
        snprintf(sessions, sizeof(sessions), "%" PRIu32, grant->sessions);
    snprintf(ret_text, GRANT_TEXT_MAX, MAGIC " devices=%s memory=%s sessions=%s share=%" PRIu32,
             devices + 1, memory, sessions, grant->share);
}

/** Return the value of the field @name (" NAME=") at *@rest, and advance *@rest to the next field.
 *  NULL if another field is there. */
static char *grant_take(char **rest, const char *name)
{
    size_t length = strlen(name);
    char *value = *rest + length;

    if (strncmp(*rest, name, length) != 0)
        return NULL;
    *rest = value + strcspn(value, " ");
    return value;
}

static bool grant_read_memory(const char *text, uint64_t *ret_memory)
{
    char ignored[128];

    if (strcmp(text, UNLIMITED) != 0)
        return size_parse(text, ret_memory, ignored, sizeof(ignored)) == 0 && *ret_memory;
    *ret_memory = GRANT_UNLIMITED_MEMORY;
    return true;
}

static bool grant_read_sessions(const char *text, uint32_t *ret_sessions)
{
    if (strcmp(text, UNLIMITED) != 0) {
        unsigned long sessions = strtoul(text, NULL, 10);
        *ret_sessions = (uint32_t)sessions;
        return sessions > 0 && sessions <= GRANT_SESSIONS_MAX;
    }
    *ret_sessions = GRANT_UNLIMITED_SESSIONS;
    return true;
}

static bool grant_read_share(const char *text, uint32_t *ret_share)
{
    unsigned long share = strtoul(text, NULL, 10);
    *ret_share = (uint32_t)share;
    return share > 0 && share <= GRANT_SHARE_MAX;
}

int grant_parse(const char *text, size_t length, struct grant *ret_grant)
{
    char copy[GRANT_TEXT_MAX], again[GRANT_TEXT_MAX], ignored[GRANT_REASON_MAX];
    char *rest = copy, *devices, *memory, *sessions, *share;
    struct grant grant = {.device_count = 0};

    if (length >= sizeof(copy) || memchr(text, '\0', length))
        return -EINVAL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    if (!grant_take(&rest, MAGIC) || !(devices = grant_take(&rest, " devices=")) ||
        !(memory = grant_take(&rest, " memory=")) ||
        !(sessions = grant_take(&rest, " sessions=")) || !(share = grant_take(&rest, " share=")) ||
        *rest)
        return -EINVAL;
    /* Terminate the values only now: grant_take() finds the end of each by the blank after it. */
    memory[-(ptrdiff_t)strlen(" memory=")] = '\0';
    sessions[-(ptrdiff_t)strlen(" sessions=")] = '\0';
    share[-(ptrdiff_t)strlen(" share=")] = '\0';
    if (grant_set_devices(&grant, devices, ignored) || !grant_read_memory(memory, &grant.memory) ||
        !grant_read_sessions(sessions, &grant.sessions) || !grant_read_share(share, &grant.share))
        return -EINVAL;
    grant_format(&grant, again);
    if (strlen(again) != length || memcmp(again, text, length) != 0)
        return -EINVAL;
    *ret_grant = grant;
    return 0;
}
