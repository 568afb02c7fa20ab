#include "agent/daemon/govern/liveness.h"

#include "agent/daemon/govern/govern.h"
#include "agent/daemon/govern/requests.h"
#include "agent/daemon/peers.h"
#include "agent/daemon/programs/registry.h"

/*
 * A program answers a query at once, however long a request takes it: one of its threads does
 * nothing else. In sweeps (250 ms), so that a stop of the agent itself counts for nothing.
 */
#define ASK_SWEEPS 4
#define QUIET_MAX  20

static bool is_awaited(const struct agent *agent, const struct app *app)
{
    for (const struct request *request = agent->requests; request; request = request->next) {
        if (request->app == app) {
            return true;
        }
    }
    return app->fate.shrinks;
}

/** Who waits for it is told, and others are asked in its place. */
static void begin(struct agent *agent, struct app *app)
{
    app->quiet = 0;
    app->silent = true;
    agent_log("%s: %s (pid %d) does not answer; nothing is asked of it until it does", app->id,
              app->name, (int)app->pid);
    requests_give_up(agent, app);
    govern_silent(agent, app);
}

void silence_ends(struct agent *agent, struct app *app)
{
    app->quiet = 0;
    if (app->silent) {
        app->silent = false;
        agent_log("%s: %s (pid %d) answers again", app->id, app->name, (int)app->pid);
        govern_silent(agent, app);
    }
}

void silence_sweep(struct agent *agent)
{
    for (struct app *app = agent->apps; app; app = app->next) {
        struct frame frame;
        if (!app->peer || !is_awaited(agent, app)) {
            app->quiet = 0;
        } else if (++app->quiet == QUIET_MAX) {
            begin(agent, app);
        } else if (app->quiet % ASK_SWEEPS == 0) {
            frame_init(&frame, MSG_QUERY);
            peer_send(app->peer, &frame);
        }
    }
}
