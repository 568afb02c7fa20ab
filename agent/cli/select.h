#ifndef RESEAT_AGENT_CLI_SELECT_H
#define RESEAT_AGENT_CLI_SELECT_H

#include "agent/cli/verb.h"

/* Selectors: several programs in place of the APP of a verb, or of a list of programs. */

int select_take(struct call *call, const struct option_row *option, const char *text);

/** Rows of a verb whose arguments begin with APP, or that lists programs. */
#define OPTION_SELECTORS(all_text)                                                                 \
    {"all", NULL, all_text, .take = select_take},                                                  \
        {"user", "USER", "Those of this user (a name or a number).", .take = select_take},         \
        {"device", "DEVICE", "Those with a virtual device on it.", .take = select_take},           \
    {                                                                                              \
        "name", "GLOB", "Those with such a name, for example 'render-*'.", .take = select_take     \
    }
/** The text of --all of verbs that do something to programs. */
#define SELECT_EACH                                                                                \
    "In place of APP: every program that you may act on, one after another. With --user, "         \
    "--device and --name those that all of these select. A failure does not keep the others from " \
    "being tried, and is the exit status; with --json there is an object for each program."

/** True if a selector was given. */
bool select_given(const struct output *output);
/** True if all given selectors select the program. @app: as the agent describes it. */
bool select_matches(const struct output *output, const json_t *app);
/** The members that it reads, as those of a column. */
#define SELECT_MEMBERS "{uid}{name}{vdevs.device}{vdevs.suspended}"
/** The programs in an answer to MSG_APPS, the oldest first. Returns a new list. */
json_t *select_apps(const json_t *answer);
/** Run the verb for each selected program, with its id as the first word. Returns an exit status.
 */
int select_run(struct call *call);

#endif
