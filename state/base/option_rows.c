#include "state/base/option_rows.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/bytes/size.h"
#include "state/base/bytes/text.h"

#define FOUND 256 /* getopt_long()'s result for a row; not a character. */

bool option_is_choice(const char *argument)
{
    return !argument[strcspn(argument, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")];
}

bool option_is_one_of(const char *choice, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = choice; *at; at += strcspn(at, "|"), at += *at == '|')
        if (strcspn(at, "|") == length && strncmp(at, word, length) == 0)
            return true;
    return false;
}

/* ---- values ---- */

/** Format a number: 1500 with 3 places is "1.5". */
static const char *option_rows_amount(uint64_t value, unsigned places, char ret[32])
{
    double unit = 1;

    for (unsigned i = 0; i < places; i++)
        unit *= 10;
    if (places)
        snprintf(ret, 32, "%.15g", (double)value / unit);
    else
        snprintf(ret, 32, "%llu", (unsigned long long)value);
    return ret;
}

/** What a number with this unit after it is multiplied by, to be in the row's own; 0: none of its.
 */
static double option_rows_unit(const struct option_row *row, const char *unit)
{
    if (row->kind != OPTION_TIME || !*unit)
        return !*unit;
    double seconds = strcmp(unit, "ms") == 0 ? 0.001 : time_unit_seconds(unit);
    return row->own_seconds ? seconds / row->own_seconds : seconds;
}

static bool option_rows_parse_number(const char *text, const struct option_row *row,
                                     uint64_t *ret_value)
{
    char digits[64];
    size_t length = strspn(text, "0123456789.");
    double unit = option_rows_unit(row, text + length);
    uint64_t value;
    char *end;

    if (!isdigit((unsigned char)*text) || !unit || length >= sizeof(digits))
        return false;
    snprintf(digits, sizeof(digits), "%.*s", (int)length, text);
    errno = 0;
    if (row->places || row->kind == OPTION_TIME) {
        double number = strtod(digits, &end) * unit;
        for (unsigned i = 0; i < row->places; i++)
            number *= 10;
        value = number < 1.8e19 ? (uint64_t)(number + 0.5) : UINT64_MAX;
        if (!row->places && fabs((double)value - number) > 1e-6)
            return false;
    } else {
        value = strtoull(digits, &end, 10);
    }
    *ret_value = value;
    return !*end && !errno && value >= row->least && value <= row->most;
}

static int option_rows_take_number(const struct option_row *row, const char *text,
                                   uint64_t *ret_value, char ret_reason[OPTION_REASON_MAX])
{
    bool off = strstr(row->argument, "|off");
    char least[32], most[32];

    if (off && strcmp(text, "off") == 0) {
        *ret_value = OPTION_OFF;
        return 0;
    }
    if (option_rows_parse_number(text, row, ret_value))
        return 0;
    snprintf(ret_reason, OPTION_REASON_MAX, "--%s must be %s to %s%s%s%s, not \"%s\"", row->name,
             option_rows_amount(row->least, row->places, least),
             option_rows_amount(row->most, row->places, most), row->unit ? " " : "",
             row->unit ? row->unit : "", off ? " or off" : "", text);
    return -EINVAL;
}

static int option_rows_take_size(const struct option_row *row, const char *text,
                                 uint64_t *ret_bytes, char ret_reason[OPTION_REASON_MAX])
{
    char reason[OPTION_REASON_MAX - 64];

    if (size_parse(text, ret_bytes, reason, sizeof(reason)))
        snprintf(ret_reason, OPTION_REASON_MAX, "--%s: %s", row->name, reason);
    else if (*ret_bytes < row->least)
        snprintf(ret_reason, OPTION_REASON_MAX, "--%s must be above 0", row->name);
    else
        return 0;
    return -EINVAL;
}

static int option_rows_take_text(const struct option_row *row, void *options, const char *text,
                                 char ret_reason[OPTION_REASON_MAX])
{
    void *value = (char *)options + row->offset;

    if (!row->argument) {
        *(bool *)value = true;
    } else if (option_is_choice(row->argument) && !option_is_one_of(row->argument, text)) {
        snprintf(ret_reason, OPTION_REASON_MAX, "--%s must be %s, not \"%s\"", row->name,
                 row->argument, text);
        return -EINVAL;
    } else if (row->kind == OPTION_TEXT) {
        *(const char **)value = text;
    } else {
        size_t *count = (size_t *)((char *)options + row->count);
        if (*count == row->size / sizeof(text)) {
            snprintf(ret_reason, OPTION_REASON_MAX, "--%s is given too often", row->name);
            return -EINVAL;
        }
        ((const char **)value)[(*count)++] = text;
    }
    return 0;
}

static void option_rows_put_number(const struct option_row *row, void *options, uint64_t number)
{
    uint32_t narrow = (uint32_t)number;
    bool small = row->size == sizeof(narrow);

    memcpy((char *)options + row->offset, small ? (void *)&narrow : &number, row->size);
}

void option_rows_init(const struct option_row *rows, void *options)
{
    for (const struct option_row *row = rows; row->name; row++)
        if (row->initial)
            option_rows_put_number(row, options, row->initial);
}

int option_row_take(const struct option_row *row, void *options, const char *text,
                    char ret_reason[OPTION_REASON_MAX])
{
    bool is_text = row->kind == OPTION_TEXT || row->kind == OPTION_TEXTS;
    uint64_t number = 0;
    int error = is_text ? option_rows_take_text(row, options, text, ret_reason)
                : row->kind == OPTION_SIZE
                    ? option_rows_take_size(row, text, &number, ret_reason)
                    : option_rows_take_number(row, text, &number, ret_reason);

    if (error) /* it has what the user typed */
        text_make_safe(ret_reason, OPTION_REASON_MAX, ret_reason, strlen(ret_reason));
    else if (!is_text)
        option_rows_put_number(row, options, number);
    return error;
}

/* ---- options ---- */

static void option_rows_begin(struct option_rows *parsed)
{
    const struct option_row *const lists[] = {parsed->rows, parsed->more};
    size_t used = (size_t)sprintf(parsed->letters, parsed->leads ? "+:" : ":"), count = 0;

    for (size_t l = 0; l < ARRAY_SIZE(lists); l++) {
        for (const struct option_row *row = lists[l]; row && row->name && count < OPTION_ROWS_MAX;
             row++) {
            int has = !row->argument          ? no_argument
                      : *row->argument == '[' ? optional_argument
                                              : required_argument;
            parsed->known[count] = row;
            parsed->getopt[count++] = (struct option){row->name, has, NULL, FOUND};
            if (row->letter)
                used += (size_t)sprintf(parsed->letters + used, has ? "%c:" : "%c", row->letter);
        }
    }
    opterr = 0;
    optind = 0;
}

/** Say why getopt_long() rejected an option: @result is ':' or '?', @number its optopt. */
static int option_rows_refuse(struct option_rows *parsed, int result, int number)
{
    const char *word = parsed->word;
    bool with_value = strchr(word, '=');

    parsed->unknown = result != ':' && !number && strncmp(word, "--", 2) == 0;
    if (result != ':' && number && !with_value)
        snprintf(parsed->reason, sizeof(parsed->reason), "option -%c is unknown", number);
    else
        snprintf(parsed->reason, sizeof(parsed->reason), "option %s %s", word,
                 result == ':' ? "lacks its value"
                 : number      ? "takes no value"
                               : "is unknown");
    text_make_safe(parsed->reason, sizeof(parsed->reason), parsed->reason, strlen(parsed->reason));
    return -EINVAL;
}

/**
 * The value of an optional argument such as `--models FILE`. getopt_long() only accepts it after
 * '='; here the next word is taken too, unless it is an option.
 */
static char *option_rows_optional_value(int argc, char **argv)
{
    return optarg || optind == argc || argv[optind][0] == '-' ? optarg : argv[optind++];
}

int option_rows_next(struct option_rows *parsed, int argc, char **argv,
                     const struct option_row **ret_row, char **ret_text)
{
    int index = -1;

    if (!parsed->letters[0])
        option_rows_begin(parsed);
    int result = getopt_long(argc, argv, parsed->letters, parsed->getopt, &index);
    if (result < 0)
        return 0;
    parsed->word = argv[optind - 1 - (optarg && optarg == argv[optind - 1])];
    bool whole = index < 0 || strlen(parsed->getopt[index].name) == strcspn(parsed->word + 2, "=");
    if (result == ':' || result == '?' || !whole)
        return option_rows_refuse(parsed, result, result == '?' ? optopt : 0);
    if (index < 0)
        for (index = 0; parsed->known[index]->letter != result; index++)
            ;
    if (parsed->getopt[index].has_arg == optional_argument)
        optarg = option_rows_optional_value(argc, argv);
    *ret_row = parsed->known[index];
    *ret_text = optarg;
    return 1;
}

int option_rows_read(const struct option_row *rows, void *options, int argc, char **argv,
                     char ret_reason[OPTION_REASON_MAX])
{
    struct option_rows parsed = {.rows = rows};
    const struct option_row *row;
    char *text;
    int found;

    option_rows_init(rows, options);
    while ((found = option_rows_next(&parsed, argc, argv, &row, &text)) > 0)
        if (option_row_take(row, options, text, ret_reason))
            return -EINVAL;
    if (found)
        memcpy(ret_reason, parsed.reason, sizeof(parsed.reason));
    return found;
}
