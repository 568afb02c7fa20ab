#include <errno.h>
#include <stdio.h>

#include "agent/daemon/peers.h"
#include "agent/daemon/power/power.h"

int agent_reload(struct agent *agent, struct config_error *ret_error)
{
    struct config config, before = agent->config;
    int result = config_load_effective(agent->options, agent->option_count, &config, ret_error);

    if (!result) {
        /* What the new file says of devices counts for its cap. */
        agent->config = config;
        if (!power_allows_host(agent, config_policy(&config)->power_cap * 1000, ret_error->reason,
                               sizeof(ret_error->reason))) {
            snprintf(ret_error->file, sizeof(ret_error->file), "%s", config.path);
            ret_error->line = 0;
            agent->config = before;
            config_finish(&config);
            result = -EINVAL;
        }
    }
    if (result) {
        config_error_format(ret_error, agent->config_problem, sizeof(agent->config_problem));
        agent_log("the configuration is refused: %s", agent->config_problem);
        return result;
    }
    config_finish(&before);
    peers_configure(agent);
    agent->config_problem[0] = '\0';
    agent_log("configuration: %s", config.path[0] ? config.path : "no file; the defaults hold");
    return 0;
}

void reload_answer(struct peer *client)
{
    struct agent *agent = client->agent;
    struct config_error error = {0};
    struct frame frame;

    int result = agent_reload(agent, &error);
    frame_init(&frame, MSG_RELOAD);
    frame_bool(&frame, "refused", result != 0);
    frame_string(&frame, "file", result ? error.file : agent->config.path);
    frame_u64(&frame, "line", error.line);
    frame_string(&frame, "reason", error.reason);
    peer_send(client, &frame);
}
