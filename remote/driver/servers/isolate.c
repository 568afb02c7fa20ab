#include "remote/driver/servers/isolate.h"

#include "remote/driver/servers/renew.h"

int isolate_open(const char *server, const char *icd, cl_uint room, cl_platform_id *ret_platforms,
                 cl_uint *ret_count)
{
    struct client *client = NULL;
    int error = client_open(server, icd, &client);
    if (error)
        return error;
    cl_uint count = client->platform_count < room ? client->platform_count : room;
    for (cl_uint i = 0; i < count; i++)
        ret_platforms[i] = (cl_platform_id)&client->platforms[i];
    *ret_count = count;
    return count ? 0 : -ENODEV;
}

void isolate_standby(cl_platform_id platform, bool wanted)
{
    const struct platform *known = platform_get(platform);
    if (known)
        client_keep_standby(known->client, wanted);
}
