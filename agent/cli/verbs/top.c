#include <curses.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <termcap.h>
#include <unistd.h>

#include "agent/cli/client.h"
#include "agent/cli/launch.h"
#include "agent/cli/select.h"
#include "agent/cli/show/pane.h"
#include "agent/cli/show/reports.h"
#include "state/base/clock.h"

/*
 * reseat top: the tables of reseat devices and reseat ps, one above the other. What is done to a
 * program or a device is done by the commands for it, in another process.
 */

/* After this time without an answer it is said that the agent does not answer; lists may take long,
 * a welcome does not. */
#define SILENCE_MS 10000
#define WELCOME_MS 1000
/* A command that only asks is ended after this time. */
#define DRY_RUN_MS 20000
/* A list of devices may be so old: to make one starts every driver. */
#define LIST_AGE_MS 60000
#define ESCAPE      27
#define ESCAPE_MS   50

/** What is done to the selected program or device by a key. */
struct action {
    int key;
    const char *verb;
    const char *ask;   /**< The option of the dry run; NULL: there is none. */
    const char *act;   /**< An option; or NULL. */
    const char *sense; /**< Template of the question, of a map with "what" and "to". */
};

static const struct action actions[] = {
    {'m', MSG_MOVE, "--dry-run", "--detach", "Move {what} to {to}"},
    {'s', MSG_SUSPEND, NULL, "--detach", "Suspend {what}"},
    {'r', MSG_RESUME, NULL, NULL, "Resume {what}"},
    {'d', MSG_DRAIN, "--dry-run", NULL, "Drain {what}"},
    {'d', MSG_DRAIN, NULL, "--off", "Let programs use {what} again"},
};
#define ACTION_UNDRAIN (&actions[4])

static const char help[] = "Tab        between devices and programs\n"
                           "arrows j k PgUp PgDn g G   select a line\n"
                           "m          move the selected program\n"
                           "s  r       suspend it, resume it\n"
                           "d          drain the selected device; if it is drained, stop that\n"
                           "/          show only programs whose name contains a text, or a glob\n"
                           "<  >  R    sort by another column, in the other direction\n"
                           "u          programs below their users\n"
                           "Esc        end what is asked, or the command that is waited for\n"
                           "q          quit\n";

enum top_mode {
    TOP_BROWSE,
    TOP_TYPE_FILTER,
    TOP_TYPE_DEVICE,
    TOP_CONFIRM,
    TOP_HELP,
};

enum { DEVICES, PROGRAMS, PANES };

struct top {
    uint64_t every_ms; /**< The option. */

    struct output output; /**< Its notes are the problem with the agent, if there is one. */
    struct words problem;
    struct client client;
    bool welcomed;
    unsigned awaited; /**< Answers, or the welcome. */
    int64_t asked_ms;

    struct pane panes[PANES];
    unsigned focus;
    enum top_mode mode;
    char typed[PROTOCOL_WORD_MAX], filter[PROTOCOL_WORD_MAX + 2];

    const struct action *action;
    char what[PROTOCOL_WORD_MAX], to[PROTOCOL_WORD_MAX]; /**< Its arguments. */
    char name[PROTOCOL_WORD_MAX];                        /**< Of the program, or the device. */
    char sense[PROTOCOL_TEXT_MAX];                       /**< The action in words. */
    pid_t child;                                         /**< 0: none. */
    int pipe;                                            /**< From it; -1: none. */
    bool asks;                                           /**< It makes no change. */
    int64_t until_ms;
    char said[4096]; /**< The last that it said. */
    size_t said_size;

    int signals, signal; /**< The signal that ends this process. */
    bool quits;
};

/* ---- the agent ---- */

static void top_forget_problem(struct top *top)
{
    top->problem.used = 0;
    top->problem.text[0] = '\0';
}

static void top_lose_agent(struct top *top, int error)
{
    top_forget_problem(top);
    (void)output_fail_agent(&top->output, error, "list devices and programs");
    client_close(&top->client);
    top->awaited = 0;
}

static void top_connect(struct top *top)
{
    struct client client;

    top_forget_problem(top);
    if (ask_begin(&top->output, "list devices and programs", &client))
        return;
    top->client = client;
    top->welcomed = false;
    top->awaited = 1;
}

static void top_ask_lists(struct top *top)
{
    struct frame frame;

    frame_init(&frame, MSG_DEVICES);
    frame_u64(&frame, "age_ms", LIST_AGE_MS);
    ask_put_environment(&frame);
    int error = client_send(&top->client, &frame);
    frame_init(&frame, MSG_APPS);
    if (error)
        frame_finish(&frame);
    else
        error = client_send(&top->client, &frame);
    if (error)
        top_lose_agent(top, error);
    else
        top->awaited = 2;
}

/** Ask, or say that the last question was not answered. */
static void top_ask(struct top *top)
{
    if (top->awaited) {
        top_forget_problem(top);
        (void)output_fail_agent(&top->output, -ETIMEDOUT, "list devices and programs");
        return;
    }
    top->asked_ms = clock_now_ms();
    if (top->client.fd < 0)
        top_connect(top);
    else
        top_ask_lists(top);
}

static void top_take(struct top *top, const struct message *message)
{
    bool devices = field_is(&message->root, "type", MSG_DEVICES);
    struct pane *pane = &top->panes[devices ? DEVICES : PROGRAMS];

    if (!top->welcomed) {
        top_forget_problem(top);
        top->awaited = 0;
        top->welcomed = field_is(&message->root, "type", MSG_WELCOME);
        if (top->welcomed) {
            top_ask_lists(top);
        } else {
            (void)output_fail_message(&top->output, message);
            client_close(&top->client);
        }
        return;
    }
    top->awaited -= top->awaited > 0;
    if (!devices && !field_is(&message->root, "type", MSG_APPS)) {
        (void)output_fail_message(&top->output, message);
        return;
    }
    json_auto_t *answer = json_message(message);
    json_decref(pane->list);
    if (devices) {
        top_forget_problem(top);
        if (member_text(answer, "problem")[0])
            output_note(&top->output, "the list may be old: %s", member_text(answer, "problem"));
        pane->list = json_incref(json_object_get(answer, "devices"));
    } else {
        pane->list = select_apps(answer);
    }
    pane->stale = true;
}

static void top_receive(struct top *top)
{
    struct message message;
    int result;

    do {
        result = client_receive(&top->client, 1, -1, &message);
        if (result != 1)
            break;
        top_take(top, &message);
        message_finish(&message);
    } while (top->awaited);
    if (top->client.fd >= 0 && result != 1 && result != -ETIMEDOUT)
        top_lose_agent(top, result);
}

/* ---- what is done by another process ---- */

static void top_say(struct top *top, const char *text)
{
    top->said_size = (size_t)snprintf(top->said, sizeof(top->said), "%s", text);
}

/** Start a command about what is selected. */
static void top_start(struct top *top, const char *option, bool asks)
{
    /* This version, also where another was installed meanwhile. */
    const char *words[10] = {"/proc/self/exe"};
    char user_text[16];
    size_t count = 1;
    int ends[2];
    uid_t user;

    if (ask_is_for_user(&user)) {
        snprintf(user_text, sizeof(user_text), "%u", (unsigned)user);
        words[count++] = "--user";
        words[count++] = user_text;
    }
    words[count++] = top->action->verb;
    if (option)
        words[count++] = option;
    words[count++] = "--";
    words[count++] = top->what;
    if (top->to[0])
        words[count++] = top->to;
    if (pipe2(ends, O_CLOEXEC)) {
        top_say(top, "the command cannot be started");
        return;
    }
    int error = launch(words, ends[1], ends[1], POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP,
                       &top->child);
    close(ends[1]);
    top_say(top, error ? "the command cannot be started" : "");
    if (error) {
        top->child = 0;
        close(ends[0]);
        return;
    }
    top->pipe = ends[0];
    top->asks = asks;
    top->until_ms = clock_now_ms() + DRY_RUN_MS;
}

/** The command ended; what was the answer of a dry run is followed by a question. */
static void top_end_child(struct top *top)
{
    bool asked = top->asks;
    int status = 0;

    close(top->pipe);
    top->pipe = -1;
    while (waitpid(top->child, &status, 0) < 0 && errno == EINTR) {
    }
    top->child = 0;
    top->asks = false;
    status = WIFEXITED(status) ? WEXITSTATUS(status) : STATUS_ROLLED_BACK;
    if (asked && (status == STATUS_DONE || status == STATUS_REFUSED))
        top->mode = TOP_CONFIRM;
    else if (!top->said_size)
        top_say(top, status ? "the command was ended" : "done");
}

static void top_hear_child(struct top *top)
{
    size_t room = sizeof(top->said) - 1 - top->said_size, half = sizeof(top->said) / 2;

    if (!room) { /* Keep the end. */
        memmove(top->said, top->said + half, top->said_size -= half);
        room = half - 1;
    }
    ssize_t count = read(top->pipe, top->said + top->said_size, room);
    if (count > 0)
        top->said[top->said_size += (size_t)count] = '\0';
    else if (count == 0 || errno != EINTR)
        top_end_child(top);
}

/** Ask what would be done, or whether it shall be done. */
static void top_begin(struct top *top)
{
    json_auto_t *words = json_pack("{s:s, s:s}", "what", top->name, "to", top->to);
    struct words sense = {.used = 0};

    words_say(&sense, words, top->action->sense);
    snprintf(top->sense, sizeof(top->sense), "%.200s", sense.text);
    top->mode = TOP_BROWSE;
    top_say(top, "");
    if (top->action->ask)
        top_start(top, top->action->ask, true);
    else
        top->mode = TOP_CONFIRM;
}

static void top_choose(struct top *top, int key)
{
    const json_t *app = pane_selected(&top->panes[PROGRAMS]);
    const json_t *device = pane_selected(&top->panes[DEVICES]);
    const struct action *action = actions;

    while (action->key != key)
        if (++action == actions + ARRAY_SIZE(actions))
            return;
    bool drains = strcmp(action->verb, MSG_DRAIN) == 0;
    if (drains && (member_bool(device, "drained") || member_bool(device, "draining") ||
                   member_bool(device, "cordoned")))
        action = ACTION_UNDRAIN;
    top->action = action;
    top->to[0] = '\0';
    snprintf(top->what, sizeof(top->what), "%s",
             drains ? member_text(device, "name") : member_text(app, "id"));
    snprintf(top->name, sizeof(top->name), "%s", member_text(drains ? device : app, "name"));
    if (!top->what[0]) {
        top_say(top, drains ? "no device is selected" : "no program is selected");
    } else if (strcmp(action->verb, MSG_MOVE) == 0) {
        snprintf(top->typed, sizeof(top->typed), "%s", member_text(device, "name"));
        top->mode = TOP_TYPE_DEVICE;
    } else {
        top_begin(top);
    }
}

/* ---- keys ---- */

static void top_type(struct top *top, int key)
{
    size_t length = strlen(top->typed);

    if (key == ESCAPE) {
        top->mode = TOP_BROWSE;
    } else if (key == '\n' || key == '\r' || key == KEY_ENTER) {
        bool filters = top->mode == TOP_TYPE_FILTER;
        top->mode = TOP_BROWSE;
        if (filters) {
            bool glob = strpbrk(top->typed, "*?[");
            struct pane *programs = &top->panes[PROGRAMS];
            snprintf(top->filter, sizeof(top->filter), glob ? "%s" : "*%s*", top->typed);
            programs->output.view.name = top->typed[0] ? top->filter : NULL;
            programs->stale = true;
        } else if (length) {
            snprintf(top->to, sizeof(top->to), "%s", top->typed);
            top_begin(top);
        }
    } else if ((key == KEY_BACKSPACE || key == '\b' || key == 127) && length) {
        top->typed[length - 1] = '\0';
    } else if (key >= ' ' && key < 256 && key != 127 && length + 1 < sizeof(top->typed)) {
        top->typed[length] = (char)key;
        top->typed[length + 1] = '\0';
    }
}

static void top_confirm(struct top *top, int key)
{
    if (key == 'y') {
        top->mode = TOP_BROWSE;
        top_start(top, top->action->act, false);
    } else if (key == 'n' || key == ESCAPE || key == 'q') {
        top->mode = TOP_BROWSE;
        top_say(top, "nothing was done");
    }
}

static void top_browse(struct top *top, int key)
{
    struct pane *pane = &top->panes[top->focus], *programs = &top->panes[PROGRAMS];

    if (pane_scroll(pane, key))
        return;
    if (key == 'q') {
        top->quits = true;
    } else if (key == '?') {
        top->mode = TOP_HELP;
    } else if (key == '\t') {
        top->focus = top->focus == DEVICES ? PROGRAMS : DEVICES;
    } else if (key == '<' || key == '>') {
        pane_sort(pane, key == '<' ? -1 : 1);
    } else if (key == 'R') {
        pane_reverse(pane);
    } else if (key == 'u') {
        programs->output.view.tree = !programs->output.view.tree;
        programs->stale = true;
    } else if (top->child) {
        /* One command at a time: its answer must not be taken for another one's. */
        if (key == ESCAPE)
            kill(top->child, SIGTERM);
    } else if (key == ESCAPE) {
        top_say(top, "");
    } else if (key == '/') {
        top->typed[0] = '\0';
        top->mode = TOP_TYPE_FILTER;
    } else {
        top_choose(top, key);
    }
}

static void top_take_key(struct top *top, int key)
{
    if (key == KEY_RESIZE)
        top->panes[DEVICES].stale = top->panes[PROGRAMS].stale = true;
    else if (top->mode == TOP_HELP)
        top->mode = TOP_BROWSE;
    else if (top->mode == TOP_CONFIRM)
        top_confirm(top, key);
    else if (top->mode == TOP_BROWSE)
        top_browse(top, key);
    else
        top_type(top, key);
}

/* ---- the screen ---- */

static void top_draw_title(const struct top *top)
{
    const struct view *view = &top->panes[PROGRAMS].output.view;
    const struct pane *pane = &top->panes[top->focus];
    struct words words = {.used = 0};

    if (top->problem.used) {
        words_add(&words, "reseat top: %s", top->problem.text);
    } else {
        size_t devices = json_array_size(top->panes[DEVICES].list);
        size_t programs = json_array_size(top->panes[PROGRAMS].list);
        words_add(&words, "reseat top: %zu device%s, %zu program%s", devices,
                  devices == 1 ? "" : "s", programs, programs == 1 ? "" : "s");
        if (view->name)
            words_add(&words, ", only %s", view->name);
        if (pane->output.view.sort)
            words_add(&words, ", by %s", pane->output.view.sort);
        words_add(&words, "; ? for help");
    }
    (void)pane_draw_line(0, 0, words.text);
}

/** What is at the bottom: the end of what a command said, and a question. */
static void top_make_bottom(const struct top *top, struct words *said, struct words *last)
{
    const json_t *entry = pane_selected(&top->panes[PROGRAMS]);

    memcpy(said->text, top->said, top->said_size + 1);
    if (top->mode == TOP_CONFIRM)
        words_add(last, "y/n: %s?", top->sense);
    else if (top->mode == TOP_TYPE_FILTER)
        words_add(last, "Show programs with: %s_", top->typed);
    else if (top->mode == TOP_TYPE_DEVICE)
        words_add(last, "Move to device: %s_", top->typed);
    else if (top->child)
        words_add(last, "%s: %s (Esc: end it)", top->sense, top->asks ? "asking" : "under way");
    else if (!top->said_size && json_object_get(entry, "move")) {
        words_say(last, entry, "{name}: ");
        say_moving(entry, last);
    }
}

static void top_draw(struct top *top)
{
    struct words said = {.used = 0}, last = {.used = 0};
    int bottom = 0, most = LINES / 3 > 1 ? LINES / 3 : 1;

    for (size_t i = 0; i < PANES; i++)
        pane_lay_out(&top->panes[i]);
    top_make_bottom(top, &said, &last);
    const char *at = said.text;
    for (const char *line = at; *line; line += strcspn(line, "\n"), line += *line == '\n')
        bottom++;
    int over = bottom + (last.used > 0) - most;
    for (; over > 0 && *at; over--, bottom--)
        at += strcspn(at, "\n") + (at[strcspn(at, "\n")] == '\n');
    int end = LINES - bottom - (last.used > 0 || !bottom);
    int room = end - 3, third = room / 3 > 1 ? room / 3 : 1;
    int count = (int)json_array_size(top->panes[DEVICES].shown.entries);
    int devices = count < third ? count : third;

    erase();
    top_draw_title(top);
    if (top->mode == TOP_HELP) {
        const char *text = help;
        for (int row = 2; *text; row++)
            text = pane_draw_line(row, 2, text);
    } else {
        pane_draw(&top->panes[DEVICES], 1, (size_t)devices, top->focus == DEVICES);
        pane_draw(&top->panes[PROGRAMS], devices + 2, room > devices ? (size_t)(room - devices) : 0,
                  top->focus == PROGRAMS);
        for (int row = end; *at; row++)
            at = pane_draw_line(row, 0, at);
        attron(A_BOLD);
        (void)pane_draw_line(LINES - 1, 0, last.used ? last.text : "");
        attroff(A_BOLD);
    }
    refresh();
}

/* ---- the whole ---- */

/** curses leaves SIGTSTP alone where it has a handler; its own loses one that comes while it draws.
 */
static void top_catch_stop(int signal_number)
{
    (void)signal_number;
}

/** Stop with the terminal as it was, and draw everything again when the shell lets this go on. */
static void top_stop(void)
{
    sigset_t stop;

    endwin();
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    signal(SIGTSTP, SIG_DFL);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL); /* Here it stops. */
    sigprocmask(SIG_BLOCK, &stop, NULL);
    signal(SIGTSTP, top_catch_stop);
}

static int64_t top_next_ms(const struct top *top)
{
    return top->asked_ms + (int64_t)(!top->awaited   ? top->every_ms
                                     : top->welcomed ? SILENCE_MS
                                                     : WELCOME_MS);
}

static int top_wait_ms(const struct top *top)
{
    int64_t now = clock_now_ms();
    int64_t next = top_next_ms(top);

    if (top->awaited && next < now) /* It was said already. */
        next = now + SILENCE_MS;
    if (top->asks && top->until_ms < next)
        next = top->until_ms;
    return next > now ? (int)(next - now) : 0;
}

static void top_take_time(struct top *top)
{
    int64_t now = clock_now_ms();

    if (now >= top_next_ms(top))
        top_ask(top);
    if (top->child && top->asks && now >= top->until_ms) {
        top->asks = false;
        kill(top->child, SIGKILL);
        top_say(top, "no answer in time; nothing was done");
    }
}

static void top_loop(struct top *top)
{
    top->asked_ms = -(int64_t)top->every_ms;
    while (!top->quits && !top->signal) {
        struct signalfd_siginfo info;
        top_take_time(top);
        top_draw(top);
        struct pollfd polled[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                  {.fd = top->signals, .events = POLLIN},
                                  {.fd = top->client.fd, .events = POLLIN},
                                  {.fd = top->pipe, .events = POLLIN}};
        (void)!poll(polled, ARRAY_SIZE(polled), top_wait_ms(top));
        for (int key = getch(); key != ERR && !top->quits; key = getch())
            top_take_key(top, key);
        if (polled[0].revents & (POLLHUP | POLLERR | POLLNVAL))
            top->signal = SIGHUP;
        if (polled[1].revents && read(top->signals, &info, sizeof(info)) == sizeof(info)) {
            if (info.ssi_signo == SIGTSTP)
                top_stop();
            else
                top->signal = (int)info.ssi_signo;
        }
        if (polled[2].revents && top->client.fd >= 0)
            top_receive(top);
        if (polled[3].revents && top->child)
            top_hear_child(top);
    }
}

/** A terminal on which any place can be written to. Returns 0 or an exit status. */
static int top_open_terminal(const struct output *output, SCREEN **ret_screen)
{
    const char *name = getenv("TERM");

    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return output_fail(output, ERR_USAGE, "this is not a terminal; see reseat ps --watch");
    *ret_screen = NULL;
    if (name && tgetent(NULL, name) == 1 && tgetstr("cm", NULL))
        *ret_screen = newterm(NULL, stdout, stdin);
    if (!*ret_screen) {
        return output_fail(output, ERR_USAGE,
                           "the terminal \"%s\" (TERM) cannot be drawn on; see reseat ps --watch",
                           name ? name : "");
    }
    cbreak();
    noecho();
    nodelay(stdscr, TRUE);
    keypad(stdscr, TRUE);
    leaveok(stdscr, TRUE);
    set_escdelay(ESCAPE_MS);
    curs_set(0);
    return 0;
}

static int top_run(struct call *call)
{
    struct top *top = call->options;
    struct pane *devices = &top->panes[DEVICES], *programs = &top->panes[PROGRAMS];
    struct table_lines lines;
    SCREEN *screen;
    sigset_t caught;

    *devices = (struct pane){.key = "name", .columns = devices_columns, .output = call->output};
    *programs = (struct pane){
        .key = "id", .columns = ps_columns, .matches = select_matches, .output = call->output};
    devices->output.view = (struct view){.all = true};
    int status = output_lines(&programs->output, NULL, ps_columns, NULL, 1, &lines);
    if (status)
        return status;
    table_lines_finish(&lines);
    signal(SIGTSTP, top_catch_stop);
    status = top_open_terminal(&call->output, &screen);
    if (status)
        return status;
    top->client.fd = top->pipe = -1;
    top->focus = PROGRAMS;
    top->output = call->output;
    top->output.notes = &top->problem;
    devices->output.notes = programs->output.notes = &top->problem;
    ask_block_signals(&caught);
    sigaddset(&caught, SIGQUIT);
    sigaddset(&caught, SIGTSTP);
    sigprocmask(SIG_BLOCK, &caught, NULL);
    top->signals = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
    top_loop(top);
    endwin();
    delscreen(screen);
    if (top->child)
        kill(top->child, SIGTERM);
    client_close(&top->client);
    for (size_t i = 0; i < PANES; i++)
        pane_finish(&top->panes[i]);
    close(top->signals);
    if (top->signal) {                /* End as it would have ended this process. */
        signal(top->signal, SIG_DFL); /* The library set its own for some. */
        kill(getpid(), top->signal);
        sigprocmask(SIG_UNBLOCK, &caught, NULL);
    }
    return STATUS_DONE;
}

static const struct option_row top_options[] = {
    {"watch", "TIME", "Ask the agent again after this time. Default: 1s.",
     OPTION_SECONDS(struct top, every_ms, 3, 100, 86400000), .initial = 1000},
    OPTION_SELECTORS("Every program that you may see, which is the default."),
    OPTION_COLUMNS,
    {NULL}};

const struct verb verb_top = {
    .name = "top",
    .summary = "Show devices and programs on the terminal, and act on them.",
    .text = "The tables are those of reseat devices and reseat ps. The keys are m (move), s "
            "(suspend), r (resume) and d (drain, or stop that) for what is selected, / (only some "
            "names), < and > (sort by another column), R (in the other direction), u (below "
            "users), Tab (the other table), ? (all keys) and q. Before a move or a drain it is "
            "said what would happen, and each is done only after y. An agent that ends is looked "
            "for again.",
    .plain = true,
    .options = top_options,
    .size = sizeof(struct top),
    .users = true,
    .run = top_run,
};
