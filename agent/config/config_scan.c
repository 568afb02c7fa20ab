#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "agent/config/config_priv.h"

/*
 * The lexical rules of libconfig: strings with backslashes, comments of three kinds, names,
 * numbers. Stricter in one: a string ends on its line, so that a forgotten quote is found where it
 * is missing.
 */

#define DEPTH_MAX    8
#define SETTINGS_MAX 8192 /* libconfig compares each with all before it. */
#define WORD_MAX     64

struct scan {
    const char *at;
    const char *end;
    unsigned line;
    unsigned settings;
    unsigned depth;
    bool wants_value; /* After "=" or ":". */
    struct {
        char bracket;
        unsigned line;
    } open[DEPTH_MAX];
    struct config_error *error;
};

static char config_scan_peek(const struct scan *scan, size_t ahead)
{
    return (size_t)(scan->end - scan->at) > ahead ? scan->at[ahead] : '\0';
}

static int config_scan_check_characters(const char *text, size_t size, struct config_error *error)
{
    unsigned line = 1;

    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)text[i];
        if ((byte < ' ' && !strchr("\t\r\n", byte)) || byte == '\0' || byte == 0x7f) {
            return config_wrong(error, line,
                                "byte 0x%02x is no text; is this a configuration file?", byte);
        }
        line += byte == '\n';
    }
    return 0;
}

static bool config_scan_ends_text(const struct scan *scan)
{
    return config_scan_peek(scan, 0) == '\\' && tolower(config_scan_peek(scan, 1)) == 'x' &&
           config_scan_peek(scan, 2) == '0' && config_scan_peek(scan, 3) == '0';
}

static int config_scan_skip_string(struct scan *scan)
{
    for (scan->at++; config_scan_peek(scan, 0) && config_scan_peek(scan, 0) != '\n'; scan->at++) {
        if (config_scan_peek(scan, 0) == '"') {
            scan->at++;
            return 0;
        }
        if (config_scan_ends_text(scan))
            return config_wrong(scan->error, scan->line, "\"\\x00\" ends the text that it is in");
        scan->at += config_scan_peek(scan, 0) == '\\' &&
                    (config_scan_peek(scan, 1) == '\\' || config_scan_peek(scan, 1) == '"');
    }
    return config_wrong(scan->error, scan->line,
                        "the quote that begins here does not end on its line");
}

static int config_scan_skip_comment(struct scan *scan)
{
    unsigned begin = scan->line;

    for (scan->at += 2; config_scan_peek(scan, 0); scan->at++) {
        if (config_scan_peek(scan, 0) == '*' && config_scan_peek(scan, 1) == '/') {
            scan->at += 2;
            return 0;
        }
        scan->line += config_scan_peek(scan, 0) == '\n';
    }
    return config_wrong(scan->error, begin, "the comment that begins here does not end");
}

static int config_scan_open_bracket(struct scan *scan)
{
    if (scan->depth == DEPTH_MAX) {
        return config_wrong(scan->error, scan->line, "more than %d brackets inside each other",
                            DEPTH_MAX);
    }
    scan->open[scan->depth].bracket = *scan->at++;
    scan->open[scan->depth++].line = scan->line;
    return 0;
}

static int config_scan_close_bracket(struct scan *scan)
{
    static const char pairs[] = "{}()[]";
    char bracket = *scan->at++;

    if (!scan->depth)
        return config_wrong(scan->error, scan->line, "\"%c\" closes nothing", bracket);
    scan->depth--;
    if (strchr(pairs, scan->open[scan->depth].bracket)[1] != bracket) {
        return config_wrong(scan->error, scan->line, "\"%c\" does not close the \"%c\" of line %u",
                            bracket, scan->open[scan->depth].bracket, scan->open[scan->depth].line);
    }
    return 0;
}

/** The digits of a word, in its base, are at most what its type holds. */
static bool config_scan_number_fits(const char *digits, const char *end, unsigned base,
                                    uint64_t max)
{
    uint64_t value = 0;

    for (; digits < end; digits++) {
        int digit = tolower((unsigned char)*digits);
        if (__builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, (uint64_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10),
                                   &value))
            return false;
    }
    return value <= max;
}

static int config_scan_check_number(struct scan *scan, const char *word, const char *end)
{
    bool hex = end - word > 2 && word[0] == '0' && (word[1] == 'x' || word[1] == 'X');
    const char *digits = word + (hex ? 2 : 0), *behind = digits;
    int length = end - word > WORD_MAX ? WORD_MAX : (int)(end - word);

    while (behind < end &&
           (hex ? isxdigit((unsigned char)*behind) : isdigit((unsigned char)*behind)))
        behind++;
    bool wide = behind < end && *behind == 'L';
    if (behind < end && !wide) {
        return config_wrong(
            scan->error, scan->line,
            "\"%.*s\" is not a whole number; sizes such as \"512MiB\" are in quotes", length, word);
    }
    if (!config_scan_number_fits(digits, behind, hex ? 16 : 10, wide ? INT64_MAX : INT32_MAX)) {
        return config_wrong(scan->error, scan->line,
                            "%.*s is too large: numbers go up to 2147483647, with an L behind them "
                            "up to 9223372036854775807",
                            length, word);
    }
    return 0;
}

static int config_scan_check_value(struct scan *scan, const char *word, const char *end)
{
    size_t length = (size_t)(end - word);
    const char *behind = end + strspn(end, " \t");

    /* Where it is the next name, it is the value before that is missing. */
    if (*behind == '=' || *behind == ':' || (length == 4 && strncasecmp(word, "true", 4) == 0) ||
        (length == 5 && strncasecmp(word, "false", 5) == 0))
        return 0;
    return config_wrong(scan->error, scan->line,
                        "\"%.*s\" is neither true nor false nor a number; words are in \"quotes\"",
                        length > WORD_MAX ? WORD_MAX : (int)length, word);
}

/** A name or number, with all that looks like part of it. */
static int config_scan_skip_word(struct scan *scan)
{
    const char *word = scan->at;

    while (isalnum((unsigned char)config_scan_peek(scan, 0)) ||
           (config_scan_peek(scan, 0) && strchr("_*.-", config_scan_peek(scan, 0))))
        scan->at++;
    if (isdigit((unsigned char)*word) || *word == '.')
        return config_scan_check_number(scan, word, scan->at);
    return scan->wants_value ? config_scan_check_value(scan, word, scan->at) : 0;
}

static int config_scan_take_sign(struct scan *scan)
{
    char at = config_scan_peek(scan, 0);

    if (at == '@') {
        return config_wrong(scan->error, scan->line,
                            "\"@\" is not allowed: a configuration is one file, without @include");
    }
    if ((unsigned char)at > 0x7f) {
        return config_wrong(
            scan->error, scan->line,
            "a letter or sign that is not ASCII means nothing outside of \"quotes\"");
    }
    if (!strchr("=:,;+-", at)) {
        return config_wrong(scan->error, scan->line,
                            "\"%c\" means nothing here; words and sizes are in \"quotes\"", at);
    }
    if ((at == '=' || at == ':') && ++scan->settings > SETTINGS_MAX)
        return config_wrong(scan->error, scan->line, "more than %d settings", SETTINGS_MAX);
    scan->at++;
    return 0;
}

static int config_scan_take_token(struct scan *scan)
{
    char at = config_scan_peek(scan, 0);
    int error;

    if (at == '"')
        error = config_scan_skip_string(scan);
    else if (isalnum((unsigned char)at) || at == '*' || at == '.')
        error = config_scan_skip_word(scan);
    else if (strchr("{([", at))
        error = config_scan_open_bracket(scan);
    else if (strchr("})]", at))
        error = config_scan_close_bracket(scan);
    else
        error = config_scan_take_sign(scan);
    scan->wants_value = at == '=' || at == ':';
    return error;
}

static int config_scan_step(struct scan *scan)
{
    char at = config_scan_peek(scan, 0);

    if (strchr(" \t\r\n", at)) {
        scan->line += at == '\n';
        scan->at++;
        return 0;
    }
    if (at == '/' && config_scan_peek(scan, 1) == '*')
        return config_scan_skip_comment(scan);
    if (at == '#' || (at == '/' && config_scan_peek(scan, 1) == '/')) {
        scan->at += strcspn(scan->at, "\n");
        return 0;
    }
    return config_scan_take_token(scan);
}

int config_scan(const char *text, size_t size, struct config_error *ret_error)
{
    struct scan scan = {.at = text, .end = text + size, .line = 1, .error = ret_error};
    int error = config_scan_check_characters(text, size, ret_error);

    while (!error && scan.at < scan.end)
        error = config_scan_step(&scan);
    if (!error && scan.depth) {
        error = config_wrong(ret_error, scan.open[scan.depth - 1].line,
                             "the \"%c\" of this line is not closed",
                             scan.open[scan.depth - 1].bracket);
    }
    return error;
}
