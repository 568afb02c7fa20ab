#ifndef RESEAT_REMOTE_DRIVER_SERVERS_SERVERS_H
#define RESEAT_REMOTE_DRIVER_SERVERS_SERVERS_H

#include "remote/driver/session/session.h"

/** The platforms of the servers that the environment names, after connecting at the first call. */
cl_uint clients_platforms(struct platform ***ret_platforms);

#endif
