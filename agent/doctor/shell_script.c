#include "agent/doctor/inspection.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/base/cleanup.h"

/*
 * Nothing of it is run, so what a variable holds is a guess: a path that begins with one is looked
 * for beside the script, which is where wrappers find their programs.
 */

#define WORDS_MAX    64 /* Of one command. */
#define COMMANDS_MAX 256

/** The end of what "$(", "${" or "`" begins, which may be nested. */
static char *substitution_end(char *at)
{
    char open = at[0] == '`' ? '`' : at[1], close = open == '(' ? ')' : open == '{' ? '}' : '`';
    int depth = 0;

    for (at += open == '`' ? 1 : 2; *at; at++) {
        if (*at == close && depth-- == 0)
            return at + 1;
        depth += *at == open && open != close;
    }
    return at;
}

/** Text of a shell without quotes, comments and continued lines; any substitution becomes "$". */
static void flatten(char *text)
{
    char *to = text, *from = text;
    bool begins = true;

    while (*from) {
        if (*from == '#' && begins) {
            from += strcspn(from, "\n");
        } else if (from[0] == '\\' && from[1] == '\n') {
            from += 2;
            *to++ = ' ';
        } else if (*from == '`' || (from[0] == '$' && (from[1] == '(' || from[1] == '{'))) {
            from = substitution_end(from);
            *to++ = '$';
        } else if (*from == '"' || *from == '\'') {
            from++;
        } else {
            begins = isspace((unsigned char)*from) || *from == ';';
            *to++ = *from++;
            continue;
        }
        begins = false;
    }
    *to = '\0';
}

/** "$/lib/app.jar" beside the script; as it is where that is nothing. */
static char *expand(const char *word, const char *folder)
{
    const char *slash = word[0] == '$' ? strchr(word, '/') : NULL;
    const char *const below[] = {"", "/.."};
    char path[PATH_MAX];

    for (size_t i = 0; slash && i < ARRAY_SIZE(below); i++) {
        int length = snprintf(path, sizeof(path), "%s%s%s", folder, below[i], slash);
        if (length > 0 && length < PATH_MAX && access(path, F_OK) == 0)
            return strdup(path);
    }
    return strdup(word);
}

/** Words that come before a command and are none. */
static bool is_prefix(const char *word)
{
    static const char *const prefixes[] = {"exec",  "env", "command", "nohup", "time",
                                           "nice",  "if",  "then",    "else",  "elif",
                                           "while", "do",  "!",       "setsid"};

    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
        if (strcmp(word, prefixes[i]) == 0)
            return true;
    return word[0] == '-' || strchr(word, '=');
}

static int take_command(char *command, const char *folder, shell_each *each, void *context)
{
    char *words[WORDS_MAX + 1] = {NULL}, *rest = command;
    size_t count = 0;
    int error = 0;

    for (char *word = strtok_r(command, " \t\r", &rest); word && count < WORDS_MAX;
         word = strtok_r(NULL, " \t\r", &rest)) {
        if (!count && is_prefix(word))
            continue;
        words[count] = expand(word, folder);
        if (!words[count++]) {
            error = -ENOMEM;
            break;
        }
    }
    if (!error && count && words[0][0] != '$')
        error = each(context, words);
    for (size_t i = 0; i < count; i++)
        free(words[i]);
    return error;
}

int shell_commands(const char *path, shell_each *each, void *context)
{
    size_t size, count = 0;
    CLEANUP(cleanup_free) char *text = inspection_read(path, &size);
    char folder[PATH_MAX], real[PATH_MAX];
    char *rest = text;
    int error = 0;

    if (!text)
        return 0;
    inspection_folder(realpath(path, real) ? real : path, folder);
    flatten(text);
    for (char *command = strtok_r(text, "\n;|&(){}<>", &rest);
         command && !error && count < COMMANDS_MAX;
         command = strtok_r(NULL, "\n;|&(){}<>", &rest), count++)
        error = take_command(command, folder, each, context);
    return error;
}
