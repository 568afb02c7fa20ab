#include "tests/support/cases.h"
#include <errno.h>

#include "state/base/option_rows.h"

/* Command lines that are parsed from rows, and what is said of wrong ones. */

TestSuite(option_rows, .timeout = 60);

struct values {
    bool flag;
    const char *text, *word, *several[2];
    size_t count;
    uint32_t number, count_down;
    uint64_t time_ms, size, any_size;
};

static const struct option_row rows[] = {
    {"flag", NULL, .letter = 'f', OPTION_VALUE(struct values, flag)},
    {"text", "NAME", .letter = 't', OPTION_VALUE(struct values, text)},
    {"word", "start|stop", OPTION_VALUE(struct values, word)},
    {"several", "NAME", .kind = OPTION_TEXTS, OPTION_VALUE(struct values, several),
     .count = offsetof(struct values, count)},
    {"number", "N", .kind = OPTION_NUMBER, OPTION_VALUE(struct values, number), .least = 2,
     .most = 10, .initial = 7, .unit = "things"},
    {"count-down", "N", .kind = OPTION_NUMBER, OPTION_VALUE(struct values, count_down), .most = 1},
    {"time", "SECONDS", OPTION_SECONDS(struct values, time_ms, 3, 1, 86400000)},
    {"size", "SIZE", .kind = OPTION_SIZE, OPTION_VALUE(struct values, size), .least = 1},
    {"any-size", "SIZE", .kind = OPTION_SIZE, OPTION_VALUE(struct values, any_size)},
    {NULL},
};

/* Split @line at blanks and read it. */
static int read_line(const char *line, struct values *ret_values, char reason[OPTION_REASON_MAX])
{
    static char copy[512];
    char *words[32] = {"program"}, *rest = copy;
    int count = 1;

    snprintf(copy, sizeof(copy), "%s", line);
    for (char *word; (word = strsep(&rest, " "));)
        if (*word)
            words[count++] = word;
    *ret_values = (struct values){.count = 0};
    return option_rows_read(rows, ret_values, count, words, reason);
}

Test(option_rows, are_stored_by_their_kind)
{
    struct values values;
    char reason[OPTION_REASON_MAX] = "";

    cr_assert_eq(read_line("", &values, reason), 0);
    cr_expect_eq(values.number, 7, "what is not given is the initial value");
    cr_assert_eq(read_line("-f --text=a --text b --word stop --several x --several y --number 10 "
                           "--time 1.5m --size 2KiB --any-size 0 c d",
                           &values, reason),
                 0, "%s", reason);
    cr_expect(values.flag);
    cr_expect_str_eq(values.text, "b");
    cr_expect_str_eq(values.word, "stop");
    cr_expect(values.count == 2 && strcmp(values.several[1], "y") == 0);
    cr_expect_eq(values.number, 10);
    cr_expect_eq(values.time_ms, 90000);
    cr_expect_eq(values.size, 2048);
    cr_expect_eq(values.any_size, 0);
    cr_assert_eq(read_line("-fta", &values, reason), 0);
    cr_expect(values.flag && strcmp(values.text, "a") == 0);
}

Test(option_rows, wrong_ones_are_refused_with_the_reason)
{
    static const struct {
        const char *line, *why;
    } wrong[] = {
        {"--nothing", "option --nothing is unknown"},
        {"--num 3", "option --num is unknown"},
        {"-x", "option -x is unknown"},
        {"--flag=1", "option --flag=1 takes no value"},
        {"--text", "option --text lacks its value"},
        {"--word go", "--word must be start|stop, not \"go\""},
        {"--several a --several b --several c", "--several is given too often"},
        {"--number 1", "--number must be 2 to 10 things, not \"1\""},
        {"--number 11", "--number must be 2 to 10 things, not \"11\""},
        {"--number 3x", "--number must be 2 to 10 things, not \"3x\""},
        {"--number -3", "not \"-3\""},
        {"--number 18446744073709551619", "not \"18446744073709551619\""},
        {"--time 0", "--time must be 0.001 to 86400 seconds, not \"0\""},
        {"--time 2w", "not \"2w\""},
        {"--size 0", "--size must be above 0"},
        {"--size 5", "--size: \"5\" is not a size"},
        {"--any-size 5GB", "is not a size"},
        {"--no\033[31m", "option --no?[31m is unknown"},
        {"--word \033[31m", "not \"?[31m\""},
    };
    struct values values;
    char reason[OPTION_REASON_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        cr_expect_eq(read_line(wrong[i].line, &values, reason), -EINVAL, "%s", wrong[i].line);
        cr_expect(strstr(reason, wrong[i].why), "%s: %s", wrong[i].line, reason);
    }
}

Test(option_rows, may_be_of_two_lists_and_end_at_the_first_word)
{
    static const struct option_row more[] = {{"also", "[FILE]", .letter = 'a'}, {NULL}};
    char *words[] = {"program", "--also", "file", "-f", "run", "--also", NULL};
    struct option_rows parsed = {.rows = rows, .more = more, .leads = true};
    const struct option_row *row;
    char *text;

    cr_assert_eq(option_rows_next(&parsed, 6, words, &row, &text), 1);
    cr_expect_eq(row, &more[0]);
    cr_expect_str_eq(text, "file");
    cr_assert_eq(option_rows_next(&parsed, 6, words, &row, &text), 1);
    cr_expect_eq(row, &rows[0]);
    cr_assert_eq(option_rows_next(&parsed, 6, words, &row, &text), 0);
    cr_expect_str_eq(words[optind], "run");
}
