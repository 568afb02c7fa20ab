#include "remote/driver/servers/plug.h"

#include "remote/driver/servers/renew.h"

int plug_open(const char *address, cl_uint room, cl_platform_id *ret_platforms, cl_uint *ret_count)
{
    struct client *client = NULL;
    if (!address || !ret_platforms || room == 0)
        return -EINVAL;
    int error = client_open(address, NULL, &client);
    if (error)
        return error;
    cl_uint count = client->platform_count < room ? client->platform_count : room;
    for (cl_uint i = 0; i < count; i++)
        ret_platforms[i] = (cl_platform_id)&client->platforms[i];
    *ret_count = count;
    return 0;
}

int plug_leave(void)
{
    return clients_leave();
}

bool plug_ended(cl_platform_id platform)
{
    const struct platform *known = platform_get(platform);
    return !known || client_state(known->client) != CL_SUCCESS;
}
