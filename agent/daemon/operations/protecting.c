#include "agent/daemon/operations/verbs.h"
#include "agent/protocol/message.h"

/*
 * Programs that survive the loss of their device. The agent stores the protection that each program
 * is to have, from its command line, an operator or the configuration. It compares this with the
 * protection that the program's status reports, and tells the program again where they differ:
 * after a change of agents, after a fork, and after a message that was lost.
 */

#define PROTECT_MS 600000 /* The longest wait for a first snapshot. */
#define AGAIN_MS   5000

/** @client: waits for the answer; may be NULL. */
static int protecting_ask(struct agent *agent, struct program *program, struct peer *client,
                          uint64_t timeout_ms)
{
    struct operation wish = operation_of(program, REQUEST_PROTECT, PROGRAM_ALL_VDEVS, client);

    wish.asked.timeout_ms = timeout_ms;
    program->protect_ms = uv_now(&agent->loop);
    return operation_begin(agent, &wish, NULL);
}

void protecting_look(struct agent *agent, struct program *program)
{
    const struct protection *as = &program->status.protect.as, *wanted = &program->policy.protect;
    uint64_t told_ms = program->protect_ms;
    bool told = told_ms && uv_now(&agent->loop) - told_ms < AGAIN_MS;
    bool same =
        as->word == wanted->word && as->seconds == wanted->seconds && as->bytes == wanted->bytes;

    /* Without memory, the next look tries again. */
    if (program_acts(program) && !told && as->word != PROTECTION_UNSAID && !same &&
        !operation_sent(agent, program, OPERATION_BIT(REQUEST_PROTECT)))
        (void)protecting_ask(agent, program, NULL, PROTECT_MS);
}

void protecting_handle(struct peer *client, struct message *message)
{
    const msgpack_object *map = &message->root;
    struct agent *agent = client->agent;
    struct protection protection;
    size_t vdev;
    struct program *program = client_program(client, map, &vdev);

    if (!program)
        return;
    if (vdev != PROGRAM_ALL_VDEVS) {
        peer_error(client, ERR_USAGE,
                   "a whole program is protected, not one virtual device; name it as %s",
                   program->id);
        return;
    }
    message_take_protection(map, "protect", &protection);
    if (protection.word == PROTECTION_UNSAID) {
        peer_error(client, ERR_USAGE, "the request does not say how to protect the program");
        return;
    }
    program->policy.protect = protection;
    program->policy.overrides |= OVERRIDE_PROTECT;
    program->stranger = false;
    programs_save(agent, program);
    if (!program->connected)
        report_plain(client, program, "", "", RESULT_DONE, false);
    else if (client_finds_program(client, program))
        (void)!protecting_ask(agent, program, client, field_u64(map, "timeout_ms", 0));
}
