#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config/config_priv.h"

/*
 * Finds faults that libconfig accepts silently (numbers that it truncates, comments that never end,
 * included files) and faults whose line it cannot tell (quotes and brackets that do not match). A
 * string must end on its line, so that a missing quote is reported on that line.
 */

#define DEPTH_MAX    8
#define SETTINGS_MAX 8192 /* libconfig compares each setting with all earlier ones. */
#define WORD_MAX     64

struct scan {
    const char *at;
    unsigned line, settings, depth;
    struct {
        char bracket;
        unsigned line;
    } open[DEPTH_MAX];
    struct config_error *error;
};

static int config_scan_check_characters(const char *text, size_t size, struct config_error *error)
{
    unsigned line = 1;

    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (iscntrl(byte) && (!byte || !strchr("\t\r\n", byte))) {
            return config_wrong(error, line,
                                "byte 0x%02x is no text; is this a configuration file?", byte);
        }
        line += byte == '\n';
    }
    return 0;
}

static int config_scan_skip_string(struct scan *scan)
{
    for (scan->at++; *scan->at && *scan->at != '\n' && *scan->at != '"'; scan->at++) {
        if (strncasecmp(scan->at, "\\x00", 4) == 0)
            return config_wrong(scan->error, scan->line, "\"\\x00\" ends the text that it is in");
        scan->at += scan->at[0] == '\\' && (scan->at[1] == '\\' || scan->at[1] == '"');
    }
    if (*scan->at++ == '"')
        return 0;
    return config_wrong(scan->error, scan->line,
                        "the quote that begins here does not end on its line");
}

static int config_scan_skip_comment(struct scan *scan)
{
    const char *end = strstr(scan->at + 2, "*/");

    if (!end)
        return config_wrong(scan->error, scan->line, "the comment that begins here does not end");
    for (; scan->at < end + 2; scan->at++)
        scan->line += *scan->at == '\n';
    return 0;
}

static int config_scan_take_bracket(struct scan *scan)
{
    static const char pairs[] = "{}()[]";
    char bracket = *scan->at++;
    bool opens = (strchr(pairs, bracket) - pairs) % 2 == 0;

    if (opens && scan->depth == DEPTH_MAX) {
        return config_wrong(scan->error, scan->line, "more than %d brackets inside each other",
                            DEPTH_MAX);
    }
    if (opens) {
        scan->open[scan->depth].bracket = bracket;
        scan->open[scan->depth++].line = scan->line;
        return 0;
    }
    if (!scan->depth)
        return config_wrong(scan->error, scan->line, "\"%c\" closes nothing", bracket);
    scan->depth--;
    if (strchr(pairs, scan->open[scan->depth].bracket)[1] == bracket)
        return 0;
    return config_wrong(scan->error, scan->line, "\"%c\" does not close the \"%c\" of line %u",
                        bracket, scan->open[scan->depth].bracket, scan->open[scan->depth].line);
}

/** Scan a name, a number or another word, up to the first character that cannot belong to it. */
static int config_scan_take_word(struct scan *scan)
{
    const char *word = scan->at;
    size_t length =
        strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_*.-");
    int shown = length > WORD_MAX ? WORD_MAX : (int)length;
    bool hex = strncasecmp(word, "0x", 2) == 0;
    char *end;

    scan->at += length;
    if (!isdigit((unsigned char)*word) && *word != '.')
        return 0;
    errno = 0;
    unsigned long long value = strtoull(word, &end, hex ? 16 : 10);
    size_t wide = strspn(end, "L");
    if (end == word || end + wide != scan->at) {
        return config_wrong(
            scan->error, scan->line,
            "\"%.*s\" is not a whole number; sizes such as \"512MiB\" are in quotes", shown, word);
    }
    if (errno || value > (wide ? (unsigned long long)INT64_MAX : INT32_MAX)) {
        return config_wrong(scan->error, scan->line,
                            "%.*s is too large: numbers go up to 2147483647, with an L behind them "
                            "up to 9223372036854775807",
                            shown, word);
    }
    return 0;
}

static int config_scan_step(struct scan *scan)
{
    char at = *scan->at;

    if (at == '#' || strncmp(scan->at, "//", 2) == 0) {
        scan->at += strcspn(scan->at, "\n");
        return 0;
    }
    if (strncmp(scan->at, "/*", 2) == 0)
        return config_scan_skip_comment(scan);
    if (at == '"')
        return config_scan_skip_string(scan);
    if (strchr("{}()[]", at))
        return config_scan_take_bracket(scan);
    if (isalnum((unsigned char)at) || at == '*' || at == '.')
        return config_scan_take_word(scan);
    if (at == '@') {
        return config_wrong(scan->error, scan->line,
                            "\"@\" is not allowed: a configuration is one file, without @include");
    }
    if ((at == '=' || at == ':') && ++scan->settings > SETTINGS_MAX)
        return config_wrong(scan->error, scan->line, "more than %d settings", SETTINGS_MAX);
    scan->line += at == '\n';
    scan->at++;
    return 0;
}

int config_scan(const char *text, size_t size, struct config_error *ret_error)
{
    struct scan scan = {.at = text, .line = 1, .error = ret_error};
    int error = config_scan_check_characters(text, size, ret_error);

    while (!error && *scan.at)
        error = config_scan_step(&scan);
    if (!error && scan.depth) {
        error = config_wrong(ret_error, scan.open[scan.depth - 1].line,
                             "the \"%c\" of this line is not closed",
                             scan.open[scan.depth - 1].bracket);
    }
    return error;
}
