#include <signal.h>
#include <unistd.h>

#include "agent/daemon/costs/costs.h"
#include "agent/daemon/metrics/metrics.h"
#include "agent/daemon/peers.h"
#include "agent/daemon/servers/servers.h"

static void agent_stop_close_if_open(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void agent_stop_drop_peers(uv_timer_t *timer)
{
    struct agent *agent = timer->data;

    while (agent->peers)
        peer_close(agent->peers);
    costs_stop(agent);
    agent_stop_close_if_open((uv_handle_t *)&agent->sweep);
}

void agent_stop(struct agent *agent)
{
    if (agent->stopping)
        return;
    agent->stopping = true;
    if (agent->devices.listing)
        uv_process_kill(&agent->devices.lister, SIGKILL);
    servers_stop(agent);
    agent_stop_close_if_open((uv_handle_t *)&agent->listener);
    agent_stop_close_if_open((uv_handle_t *)&agent->turns);
    agent_stop_close_if_open((uv_handle_t *)&agent->terminate[0]);
    agent_stop_close_if_open((uv_handle_t *)&agent->terminate[1]);
    agent_stop_close_if_open((uv_handle_t *)&agent->hangup);
    agent_stop_close_if_open((uv_handle_t *)&agent->devices.timeout);
    isolation_stop(agent);
    metrics_stop(agent);
    if (!agent->passed && peers_can_connect(agent))
        unlink(agent->paths.socket);
    /* Send queued frames first, among them the answer to the stop request. */
    uv_timer_start(&agent->sweep, agent_stop_drop_peers, 50, 0);
}
