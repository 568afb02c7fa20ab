#include "tests/agent/daemon/own_agent.h"

#include "tests/support/cases.h"
#include <sys/socket.h>
#include <sys/un.h>

#include "agent/daemon/costs/costs.h"
#include "agent/daemon/operations/governor.h"
#include "agent/daemon/peers.h"

static char folder[64];
struct agent own_agent;

void agent_log(const char *format, ...)
{
    (void)format;
}

void agent_stop(struct agent *stopped)
{
    stopped->stopping = true;
}

void own_agent_begin(void)
{
    const struct config_source nothing = {.path = NULL};
    struct agent *agent = &own_agent;
    struct config_error wrong;

    strcpy(folder, "/tmp/reseat-agent-XXXXXX");
    cr_assert(mkdtemp(folder));
    setenv("XDG_STATE_HOME", folder, 1);
    snprintf(agent->paths.socket, sizeof(agent->paths.socket), "%s/agent.sock", folder);
    snprintf(agent->programs_folder, sizeof(agent->programs_folder), "%s", folder);
    agent->events = &agent_events;
    cr_assert_eq(uv_loop_init(&agent->loop), 0);
    cr_assert_eq(config_load(&nothing, &agent->config, &wrong), 0);
    cr_assert_eq(govern_init(agent), 0);
    cr_assert_eq(costs_init(agent, NULL), 0);
}

void own_agent_finish(void)
{
    struct agent *agent = &own_agent;
    char command[128];

    while (agent->peers)
        peer_close(agent->peers);
    costs_stop(agent);
    if (agent->listener.data)
        uv_close((uv_handle_t *)&agent->listener, NULL);
    if (agent->turns.data)
        uv_close((uv_handle_t *)&agent->turns, NULL);
    uv_run(&agent->loop, UV_RUN_DEFAULT);
    cr_expect_eq(uv_loop_close(&agent->loop), 0);
    programs_finish(agent);
    govern_finish(agent);
    costs_finish(agent);
    config_finish(&agent->config);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    cr_expect_eq(system(command), 0);
}

int own_agent_connect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(address.sun_path, own_agent.paths.socket, sizeof(address.sun_path));
    cr_assert_eq(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}
