#include "agent/daemon/govern/govern.h"

/*
 * A program answers a query at once, however long a request takes it: one of its threads does
 * nothing else. In sweeps (250 ms), so that a stop of the agent itself counts for nothing.
 */
#define ASK_SWEEPS     4
#define UNANSWERED_MAX 20

static bool is_awaited(const struct agent *agent, const struct program *program)
{
    for (const struct request *request = agent->requests; request; request = request->next)
        if (request->program == program)
            return true;
    return program->governed.shrinks;
}

/** Who waits for it is told, and others are asked in its place. */
static void begin(struct agent *agent, struct program *program)
{
    program->unanswered = 0;
    program->unresponsive = true;
    agent_log("%s: %s (pid %d) does not answer; nothing is asked of it until it does", program->id,
              program->name, (int)program->pid);
    requests_give_up(agent, program);
    program->governed.shrinks = false;
    agent->changed = true;
}

void liveness_heard(struct agent *agent, struct program *program)
{
    program->unanswered = 0;
    if (program->unresponsive) {
        program->unresponsive = false;
        agent_log("%s: %s (pid %d) answers again", program->id, program->name, (int)program->pid);
        agent->changed = true;
    }
}

void liveness_sweep(struct agent *agent)
{
    for (struct program *program = agent->programs; program; program = program->next) {
        struct frame frame;
        if (!program->peer || !is_awaited(agent, program)) {
            program->unanswered = 0;
        } else if (++program->unanswered == UNANSWERED_MAX) {
            begin(agent, program);
        } else if (program->unanswered % ASK_SWEEPS == 0) {
            frame_init(&frame, MSG_QUERY);
            peer_send(program->peer, &frame);
        }
    }
}
