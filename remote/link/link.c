#include "remote/link/link.h"

#include <string.h>

static const struct link_kind *const kinds[] = {&link_unix, &link_tcp, &link_vsock};

const struct link_kind *link_kind_of(const char *address, const char **ret_where)
{
    size_t length = strcspn(address, ":");
    for (size_t i = 0; address[length] == ':' && i < ARRAY_SIZE(kinds); i++)
        if (strlen(kinds[i]->scheme) == length && !memcmp(kinds[i]->scheme, address, length)) {
            *ret_where = address + length + 1;
            return kinds[i];
        }
    return NULL;
}
