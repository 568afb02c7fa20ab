#include <errno.h>

#include "agent/protocol/protection.h"
#include "tests/support/leaks.h"

TestSuite(protection, .fini = leaks_check, .timeout = 60);

Test(protection, what_is_said_is_said_again)
{
    static const struct {
        const char *text;
        struct protection means;
    } all[] = {
        {"off", {PROTECTION_OFF, 0, 0}},
        {"on", {PROTECTION_ON, 0, 0}},
        {"1", {PROTECTION_ON, 1, 0}},
        {"86400", {PROTECTION_ON, 86400, 0}},
        {"1B", {PROTECTION_ON, 0, 1}},
        {"512MiB", {PROTECTION_ON, 0, 536870912}},
        {"18446744073709551614B", {PROTECTION_ON, 0, 18446744073709551614u}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        struct protection got = {PROTECTION_UNSAID, 9, 9};
        char reason[128] = "untouched", text[PROTECTION_TEXT_MAX];
        cr_expect_eq(protection_parse(all[i].text, &got, reason, sizeof(reason)), 0, "%s", reason);
        cr_expect_eq(got.word, all[i].means.word, "%s", all[i].text);
        cr_expect_eq(got.seconds, all[i].means.seconds, "%s", all[i].text);
        cr_expect_eq(got.bytes, all[i].means.bytes, "%s", all[i].text);
        cr_expect_str_eq(reason, "untouched");
        protection_format(&got, text);
        cr_expect_str_eq(text, all[i].text);
    }
}

Test(protection, a_time_may_have_its_unit)
{
    struct protection got;
    char reason[128];

    cr_expect_eq(protection_parse("5s", &got, reason, sizeof(reason)), 0);
    cr_expect_eq(got.seconds, 5);
    cr_expect_eq(protection_parse("2h", &got, reason, sizeof(reason)), 0);
    cr_expect_eq(got.seconds, 7200);
    cr_expect_eq(protection_parse("2d", &got, reason, sizeof(reason)), -EINVAL);
    cr_expect_eq(got.seconds, 7200);
}

Test(protection, what_is_nothing_of_that_is_refused_with_a_reason)
{
    static const char *const wrong[] = {
        "",   "0",     "86401",  "99999999999999999999999",
        "-1", "1.5",   " 1",     "1 ",
        "ON", "yes",   "0B",     "0MiB",
        "5x", "512MB", "on off", "18446744073709551615B",
    };

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct protection got = {PROTECTION_UNSAID, 9, 9};
        char reason[128] = "";
        cr_expect_eq(protection_parse(wrong[i], &got, reason, sizeof(reason)), -EINVAL, "\"%s\"",
                     wrong[i]);
        cr_expect_eq(got.seconds, 9, "\"%s\"", wrong[i]);
        cr_expect_neq(reason[0], '\0', "\"%s\"", wrong[i]);
        cr_expect_null(strchr(reason, '\n'));
    }
}

Test(protection, nothing_said_is_no_text)
{
    const struct protection unsaid = {.word = PROTECTION_UNSAID};
    char text[PROTECTION_TEXT_MAX] = "x";

    protection_format(&unsaid, text);
    cr_expect_str_eq(text, "");
}
