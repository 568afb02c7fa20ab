#include "agent/daemon/event_log.h"
#include "agent/daemon/messages/messages.h"
#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/verbs.h"
#include "agent/daemon/power/power.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "agent/daemon/agent_messages.h"
#include "agent/protocol/common_messages.h"

void hello_handle(struct peer *peer, struct message *message)
{
    const msgpack_object *map = &message->root;
    struct agent *agent = peer->agent;
    struct frame frame;

    if (field_u64(map, "version", 0) != PROTOCOL_VERSION) {
        peer_error(peer, ERR_PROTOCOL,
                   "the agent speaks version %d of the protocol; restart it with reseat agent stop "
                   "and reseat agent start, or use programs of one release",
                   PROTOCOL_VERSION);
        return;
    }
    frame_init(&frame, MSG_WELCOME);
    frame_u64(&frame, "version", PROTOCOL_VERSION);
    if (field_is(map, "role", "program")) {
        bool first;
        int error = programs_connect(agent, peer, map, &first);
        if (error) {
            frame_finish(&frame);
            peer_close(peer);
            return;
        }
        peer->role = PEER_PROGRAM;
        struct welcome welcome = {.program = peer->program,
                                  .device_count = peer->program->vdev_count};
        power_welcome(agent, peer->program);
        ledger_sync_welcome(agent, peer->program, first, map, &welcome);
        put_welcome(&frame, &welcome);
    } else {
        peer->role = PEER_CLIENT;
    }
    peer_send(peer, &frame);
    if (peer->program) {
        power_connected(agent, peer->program);
        program_tell_warm(agent, peer->program);
        spreading_tell(agent, peer->program);
        drain_notify(agent, peer->program);
    }
}

void wish_handle(struct peer *peer, struct message *message)
{
    struct agent *agent = peer->agent;
    struct program *program = peer->program;
    bool before = program->wish.aware;

    take_wish(&message->root, &program->wish);
    if (before)
        program->managed.wished = ++agent->governor->events;
    else
        drain_notify(agent, program);
    agent->changed = true;
}

void alive_handle(struct peer *peer, struct message *message)
{
    struct frame frame;

    (void)message;
    frame_init(&frame, MSG_ALIVE);
    peer_send(peer, &frame);
}

void programs_handle(struct peer *peer, struct message *message)
{
    struct frame_fields fields;
    struct frame frame;

    if (!frame_fields_take(&message->root, &fields)) {
        peer_error(peer, ERR_USAGE, "the request asks for more than %d fields, or for unnamed ones",
                   FRAME_FIELDS_MAX);
        return;
    }
    programs_sweep(peer->agent);
    frame_init(&frame, MSG_APPS);
    frame_array(&frame, "apps");
    for (const struct program *program = peer->agent->programs; program; program = program->next) {
        if (peer_sees(peer, program->uid)) {
            frame_map(&frame, NULL);
            frame_only(&frame, &fields);
            describe_program(peer->agent, program, &frame);
            frame_end(&frame);
        }
    }
    frame_end(&frame);
    peer_send(peer, &frame);
}

void agent_handle(struct peer *peer, struct message *message)
{
    const struct agent *agent = peer->agent;
    char log[PATH_MAX + 16];
    unsigned count = 0;
    struct frame frame;

    (void)message;
    for (const struct program *program = agent->programs; program; program = program->next)
        count++;
    snprintf(log, sizeof(log), "%s/agent.log", agent->paths.folder);
    frame_init(&frame, MSG_AGENT);
    frame_u64(&frame, "pid", (uint64_t)getpid());
    frame_string(&frame, "release", RESEAT_VERSION);
    frame_string(&frame, "folder", agent->paths.folder);
    frame_string(&frame, "log", agent->paths.shared ? "journalctl -u reseatd" : log);
    frame_u64(&frame, "apps", count);
    frame_string(&frame, "config", agent->config.path);
    frame_string(&frame, "config_problem", agent->config_problem);
    peer_send(peer, &frame);
}

void stop_handle(struct peer *peer, struct message *message)
{
    struct frame frame;

    (void)message;
    frame_init(&frame, MSG_STOP);
    frame_u64(&frame, "pid", (uint64_t)getpid());
    peer_send(peer, &frame);
    agent_stop(peer->agent);
}

void reload_handle(struct peer *peer, struct message *message)
{
    (void)message;
    reload_answer(peer);
    govern_reloaded(peer->agent);
}

void cancel_handle(struct peer *peer, struct message *message)
{
    struct frame frame;
    struct program *program;
    size_t vdev;

    if (field_get(&message->root, "app")) {
        program = client_program(peer, &message->root, &vdev);
        if (!program)
            return;
        bool moved = asking_cancel_program(peer->agent, program);
        if (!moved && !resume_cancel_program(peer->agent, program)) {
            peer_error(peer, ERR_REFUSED, "%s (pid %d) is not being moved: nothing to cancel",
                       program->name, (int)program->pid);
            return;
        }
        frame_init(&frame, MSG_CANCEL);
        report_put_program(&frame, program);
        peer_send(peer, &frame);
        return;
    }
    operations_cancel(peer, OPERATIONS_ALL, false);
}

void adjust_handle(struct peer *peer, struct message *message)
{
    struct request asked;
    struct frame frame;
    size_t vdev;
    struct program *program = client_program(peer, &message->root, &vdev);

    if (!program)
        return;
    take_request(&message->root, &asked);
    if (!asked.bandwidth && !asked.max_downtime_ms) {
        peer_error(peer, ERR_USAGE, "the request changes neither the bandwidth nor the downtime");
        return;
    }
    int error = asking_adjust(peer->agent, program, &asked);
    if (error) {
        client_refuse(peer, ERR_REFUSED, program,
                      error == -ENOENT ? "is not being moved: nothing to adjust"
                                       : "has been copied already: it is too late to adjust its "
                                         "move");
        return;
    }
    struct event event = event_of(peer, MSG_ADJUST, "set");
    event.program = program;
    event_log_add(peer->agent, &event);
    frame_init(&frame, MSG_ADJUST);
    report_put_program(&frame, program);
    peer_send(peer, &frame);
}

void notice_handle(struct peer *client, struct message *message)
{
    const msgpack_object *map = &message->root;
    struct program_notice notice;
    size_t vdev;
    struct program *program = client_program(client, map, &vdev);
    struct frame frame;

    if (!program)
        return;
    if (!program->peer || !program->wish.aware) {
        client_refuse(client, ERR_REFUSED, program,
                      "%s, so it takes no notice; reseat ps --json shows those "
                      "that do as \"aware\"",
                      program->peer ? "has not registered with reseat.h" : "does not answer");
        return;
    }
    take_notice(map, &notice);
    if (!notice.text[0] && field_get(map, "text") && !field_is(map, "text", "")) {
        peer_error(client, ERR_USAGE, "the text of a notice is one line");
        return;
    }
    bool valued = strcmp(notice.what, NOTICE_POWER) == 0 || strcmp(notice.what, NOTICE_QUOTA) == 0;
    if (valued && !notice.valued) {
        peer_error(client, ERR_USAGE, "a notice of %s has a value", notice.what);
        return;
    }
    if (!valued && strcmp(notice.what, NOTICE_ADDED) && strcmp(notice.what, NOTICE_TAKEN)) {
        peer_error(client, ERR_USAGE, "there is no notice \"%s\"; there are %s, %s, %s and %s",
                   notice.what, NOTICE_ADDED, NOTICE_TAKEN, NOTICE_POWER, NOTICE_QUOTA);
        return;
    }
    program_notify(program, vdev, notice.what, notice.in_ns, notice.value, notice.text);
    frame_init(&frame, MSG_NOTICE);
    report_put_program(&frame, program);
    frame_string(&frame, "what", notice.what);
    peer_send(client, &frame);
}
