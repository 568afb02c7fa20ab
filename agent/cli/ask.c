#include "agent/cli/client.h"

#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "agent/cli/launch.h"
#include "agent/config/environment.h"
#include "agent/protocol/common_messages.h"
#include "state/base/cleanup.h"
#include "state/base/clock.h"

#define LAUNCHES        50
#define LAUNCH_PAUSE_NS 20000000
/* How long an agent with a long request may stay silent; it may be busy listing devices. */
#define PATIENCE_MS 60000
/* How long an answer to any other request may take; the first listing starts every driver. */
#define ANSWER_MS 10000
#define LIST_MS   60000

/* The user whose agent is asked; set by --user. */
static struct {
    bool named;
    uid_t user;
} whose;

int ask_user_id(const struct output *output, const char *user, uint64_t *ret_id)
{
    const struct passwd *entry = getpwnam(user);
    uint64_t number = 0;

    if (!entry && !number_parse(user, UINT32_MAX - 1, &number))
        return output_fail(output, ERR_USAGE, "there is no user %s", user);
    *ret_id = entry ? entry->pw_uid : number;
    return 0;
}

int ask_for_user(const struct output *output, const char *user)
{
    uint64_t id = 0;
    int status = ask_user_id(output, user, &id);

    if (status)
        return status;
    whose.named = true;
    whose.user = (uid_t)id;
    if (geteuid() != 0 && geteuid() != whose.user)
        return output_fail(output, ERR_DENIED, "only root may act on another user's programs");
    return 0;
}

static bool ask_nobody_there(int error)
{
    return error == -ENOENT || error == -ECONNREFUSED || error == -EPIPE;
}

bool ask_is_for_user(uid_t *ret_user)
{
    bool other = whose.named && whose.user != geteuid();

    if (other)
        *ret_user = whose.user;
    return other;
}

/** Where the agent is. Returns 0, or an exit status after printing the reason. */
static int ask_find(const struct output *output, struct paths *ret_paths)
{
    uid_t user;
    bool other = ask_is_for_user(&user);
    int error = other ? paths_find_of(user, ret_paths) : paths_find(ret_paths);

    if (other && ask_nobody_there(error))
        return output_fail(output, ERR_NO_AGENT, "no agent of user %u runs", (unsigned)user);
    if (error) {
        return output_fail(output, ERR_FAILED, "the runtime folder cannot be used: %s",
                           ret_paths->problem);
    }
    output_note_paths(output, ret_paths);
    return 0;
}

/** Print why the agent cannot be reached. Returns an exit status. */
static int ask_fail(const struct output *output, int error, const char *what)
{
    uid_t user;

    if (ask_is_for_user(&user) && ask_nobody_there(error))
        return output_fail(output, ERR_NO_AGENT, "no agent of user %u runs", (unsigned)user);
    return output_fail_agent(output, error, what);
}

int ask_begin(const struct output *output, const char *what, struct client *ret_client)
{
    struct paths paths;
    int status = ask_find(output, &paths);

    *ret_client = (struct client){.fd = -1};
    if (status)
        return status;
    int error = client_say_hello(&paths, ret_client);
    return error ? ask_fail(output, error == -EAGAIN ? -ETIMEDOUT : error, what) : 0;
}

int ask_connect(const struct output *output, bool launch, const char *what,
                struct client *ret_client)
{
    struct paths paths;
    char why[PROTOCOL_TEXT_MAX / 2];
    uid_t user;
    int error = ask_find(output, &paths);

    *ret_client = (struct client){.fd = -1};
    if (error)
        return error;
    error = client_connect(&paths, ret_client);
    launch = launch && !ask_is_for_user(&user);
    /* An agent that was killed a moment ago may still be listening, or hold its lock: try again. */
    for (int tried = 0; launch && ask_nobody_there(error) && tried < LAUNCHES; tried++) {
        clock_sleep(tried ? LAUNCH_PAUSE_NS : 0);
        error = launch_agent(why, sizeof(why));
        if (error) {
            return output_fail(output, ERR_NO_AGENT,
                               "the agent cannot be started (%s); see %s/agent.log", why,
                               paths.folder);
        }
        error = client_connect(&paths, ret_client);
    }
    if (error == -EPROTO && ret_client->problem[0])
        return output_fail(output, ERR_PROTOCOL, "%s", ret_client->problem);
    return error ? ask_fail(output, error, what) : 0;
}

int ask_on(const struct output *output, struct client *client, const struct question *question,
           struct frame *frame, json_t **ret_answer)
{
    struct message message;
    int result = 0, status = 0;

    if (question->news) {
        result = ask_follow(client, frame, question->news, &message);
    } else {
        result = client_send(client, frame);
        int timeout_ms = question->lists ? LIST_MS : ANSWER_MS;
        result = result ? result : client_receive(client, timeout_ms, -1, &message);
    }
    if (result != 1)
        return output_fail_agent(output, result ? result : -EPROTO, question->what);
    if (field_is(&message.root, "type", question->type))
        *ret_answer = json_message(&message);
    else
        status = output_fail_message(output, &message);
    message_finish(&message);
    return status;
}

int ask(const struct output *output, const struct question *question, struct frame *frame,
        json_t **ret_answer)
{
    CLEANUP(client_close) struct client client;
    int status = ask_connect(output, question->launch, question->what, &client);

    if (!status)
        return ask_on(output, &client, question, frame, ret_answer);
    frame_finish(frame);
    return status;
}

int ask_print(const struct output *output, const struct question *question, struct frame *frame)
{
    json_auto_t *answer = NULL;
    int status = ask(output, question, frame, &answer);

    if (status)
        return status;
    return question->print && !output->json ? question->print(output, answer)
                                            : output_say(output, answer, question->say);
}

void ask_block_signals(sigset_t *ret_blocked)
{
    sigemptyset(ret_blocked);
    sigaddset(ret_blocked, SIGINT);
    sigaddset(ret_blocked, SIGTERM);
    sigaddset(ret_blocked, SIGHUP);
    sigprocmask(SIG_BLOCK, ret_blocked, NULL);
}

static int ask_open_signals(sigset_t *ret_blocked)
{
    ask_block_signals(ret_blocked);
    return signalfd(-1, ret_blocked, SFD_CLOEXEC | SFD_NONBLOCK);
}

/** Ask the agent to cancel. Unblocks the signals, so that a second one ends this process. */
static int ask_cancel(struct client *client, int signals, const sigset_t *caught,
                      const struct news *news)
{
    struct signalfd_siginfo info;
    struct frame frame;

    if (read(signals, &info, sizeof(info)) != sizeof(info))
        return 0;
    client->canceled = true;
    sigprocmask(SIG_UNBLOCK, caught, NULL);
    if (news->canceling)
        news->canceling(news->context);
    frame_init(&frame, MSG_CANCEL);
    return client_send(client, &frame);
}

static bool ask_take_news(const struct news *news, const struct message *message)
{
    const struct news_row *row = news->rows;

    if (!row)
        return field_is(&message->root, "type", MSG_PROGRESS) ||
               field_is(&message->root, "type", MSG_NOTICE);
    while (row->type && !field_is(&message->root, "type", row->type))
        row++;
    if (!row->type)
        return false;
    json_auto_t *shown = json_message(message);
    return row->show(news->context, shown);
}

int ask_follow(struct client *client, struct frame *frame, const struct news *news,
               struct message *ret_message)
{
    bool cancels = news->cancels && !client->canceled;
    sigset_t caught;
    CLEANUP(cleanup_close) int signals = cancels ? ask_open_signals(&caught) : -1;
    int result = frame ? client_send(client, frame) : 0;

    while (!result) {
        result = client_follow(client, PATIENCE_MS, signals, ret_message);
        if (result == 0) {
            result = ask_cancel(client, signals, &caught, news);
        } else if (result == 1 && ask_take_news(news, ret_message)) {
            message_finish(ret_message);
            result = 0;
        }
    }
    return result;
}

void ask_request(struct frame *ret_frame, const char *type, const char *app, struct request *asked)
{
    snprintf(asked->app, sizeof(asked->app), "%s", app);
    asked->vdev = REQUEST_ALL_VDEVS;
    frame_init(ret_frame, type);
    put_request(ret_frame, asked);
}

void ask_put_texts(struct frame *frame, const char *key, const char *const *texts, size_t count)
{
    frame_array(frame, key);
    for (size_t i = 0; i < count; i++)
        frame_string(frame, NULL, texts[i]);
    frame_end(frame);
}

void ask_put_fields(struct frame *frame, json_t *members)
{
    const char *name;
    json_t *value;

    frame_array(frame, "fields");
    json_object_foreach(members, name, value)
    {
        frame_string(frame, NULL, name);
    }
    frame_end(frame);
}

void ask_put_environment(struct frame *frame)
{
    const char **variables;
    size_t count;

    /* This process's environment does not show what another user's programs see. */
    if ((whose.named && whose.user != geteuid()) || environment_of_drivers(&variables, &count))
        return;
    ask_put_texts(frame, "environment", variables, count);
    free(variables);
}
