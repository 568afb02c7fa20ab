#include <errno.h>
#include <signal.h>
#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"
#include "agent/config/process.h"
#include "state/base/clock.h"

#define ANSWER_MS 5000
#define STOP_MS   5000
#define TERM_MS   2000

static int agent_show(const struct output *output, bool launch)
{
    const struct question question = {
        .type = MSG_AGENT, .what = "tell about itself", .launch = launch};
    struct frame frame;
    json_auto_t *about = NULL, *answer = NULL;

    frame_init(&frame, MSG_AGENT);
    int status = ask(output, &question, &frame, &about);
    if (status)
        return status;
    answer = json_pack("{s:b, s:O}", "running", 1, "agent", about);
    status = output_say(output, answer,
                        "the agent runs: pid {agent.pid}, release {agent.release}, "
                        "{agent.apps|program|programs}, log {agent.log}");
    if (!output->json && member_text(about, "config_problem")[0])
        output_note(output, "it uses its previous configuration; the new one was refused: %s",
                    member_text(about, "config_problem"));
    return status;
}

static int agent_say_ended(const struct output *output, const char *what)
{
    json_auto_t *answer = json_pack("{s:b}", "running", 0);

    return output_say(output, answer, what);
}

/** Wait until the process has ended: until then it holds the lock that a new agent needs. */
static bool agent_gone(pid_t pid, uint64_t start, int timeout_ms)
{
    for (int waited = 0; waited < timeout_ms; waited += 10) {
        if (!process_alive(pid, start))
            return true;
        clock_sleep(10 * NS_PER_MS);
    }
    return false;
}

/** End a silent agent. No program depends on it; a later agent recovers its state. */
static int agent_end(const struct output *output, pid_t pid, uint64_t start)
{
    kill(pid, SIGTERM);
    kill(pid, SIGCONT);
    if (!agent_gone(pid, start, TERM_MS))
        kill(pid, SIGKILL);
    if (!agent_gone(pid, start, STOP_MS))
        return output_fail(output, ERR_FAILED, "the agent (pid %d) does not end", (int)pid);
    return agent_say_ended(output,
                           "the agent did not answer and was ended; programs run on without it");
}

static int agent_stop_run(const struct output *output)
{
    struct client client;
    CLEANUP(message_finish) struct message message = {.zone = NULL};
    struct paths paths;
    struct frame frame;
    uint64_t start = 0;
    pid_t pid = 0;

    if (paths_find(&paths)) {
        return output_fail(output, ERR_FAILED, "the runtime folder cannot be used: %s",
                           paths.problem);
    }
    frame_init(&frame, MSG_STOP);
    int result = client_ask(&paths, &frame, ANSWER_MS, &client, &message);
    client_close(&client);
    /* Kill an agent that hangs or has an incompatible protocol. */
    if ((result == -ETIMEDOUT || result == -EPROTO) && !paths.shared &&
        !lock_holder(paths.folder, &pid, &start))
        return agent_end(output, pid, start);
    if (result == -EPROTO && client.problem[0])
        return output_fail(output, ERR_PROTOCOL, "%s", client.problem);
    if (result != 1)
        return output_fail_agent(output, result, "stop");
    if (!field_is(&message.root, "type", MSG_STOP))
        return output_fail_message(output, &message);
    pid = (pid_t)field_u64(&message.root, "pid", 0);
    if (!process_start_time(pid, &start) && !agent_gone(pid, start, STOP_MS))
        return agent_end(output, pid, start);
    return agent_say_ended(output, "the agent has ended; programs run on without it");
}

static int agent_run(struct call *call)
{
    const char *what = call->count ? call->words[0] : "status";

    return strcmp(what, "stop") == 0 ? agent_stop_run(&call->output)
                                     : agent_show(&call->output, strcmp(what, "start") == 0);
}

const struct verb verb_agent = {
    .name = "agent",
    .arguments = "[start|stop|status]",
    .summary = "Start or stop your agent, or say whether one runs (the default).",
    .members = "running agent",
    .run = agent_run,
};
