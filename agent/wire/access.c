#include "agent/wire/access.h"

bool access_may_connect(uid_t agent, uid_t peer)
{
    return peer == agent || peer == 0 || agent == 0;
}

bool access_may_act(uid_t peer, uid_t owner)
{
    return peer == owner || peer == 0;
}

bool access_may_believe(uid_t user, uid_t agent)
{
    return agent == user || agent == 0;
}

bool access_may_manage(uid_t agent, uid_t peer)
{
    return peer == agent || peer == 0;
}
