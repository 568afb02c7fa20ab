#include "tests/support/cases.h"
#include <time.h>

#include "agent/cli/show/say.h"

/* Templates: which members they show, how, and what they leave out. */

TestSuite(say);

static const char *said(const char *json, const char *template)
{
    static struct words words;
    json_auto_t *object = json_loads(json, 0, NULL);

    cr_assert(object, "%s", json);
    words = (struct words){.used = 0};
    words_say(&words, object, template);
    cr_assert_eq(words.used, strlen(words.text));
    return words.text;
}

Test(say, numbers_are_shown_by_the_end_of_their_names)
{
    cr_expect_str_eq(said("{\"n\": 12}", "{n}"), "12");
    cr_expect_str_eq(said("{\"total_ns\": 12300000}", "in {total_ns}."), "in 12.3 ms.");
    cr_expect_str_eq(said("{\"age_ms\": 4560}", "{age_ms}"), "4.56 s");
    cr_expect_str_eq(said("{\"ns\": 600000000000}", "{ns}"), "10 min");
    cr_expect_str_eq(said("{\"ms\": 18000000}", "{ms}"), "5.0 h");
    cr_expect_str_eq(said("{\"size_bytes\": 4194304}", "{size_bytes}"), "4.0 MiB");
    cr_expect_str_eq(said("{\"cap_mw\": 12500}", "{cap_mw}"), "12.5 W");
    /* The end of a word is not a unit. */
    cr_expect_str_eq(said("{\"items\": 5, \"spans\": 6}", "{items} {spans}"), "5 6");
}

Test(say, a_colon_says_how_a_member_is_shown)
{
    setenv("TZ", "UTC", 1);
    tzset();
    cr_expect_str_eq(said("{\"left\": 1024}", "{left:bytes}"), "1.0 KiB");
    cr_expect_str_eq(said("{\"created_ms\": 86400000}", "{created_ms:date}"), "1970-01-02 00:00");
    cr_expect_str_eq(said("{\"created_ms\": 0}", "<{created_ms:date}>"), "<>");
    cr_expect_str_eq(said("{\"at_ms\": 86400000}", "{at_ms:timestamp}"), "1970-01-02T00:00:00");
    cr_expect_str_eq(said("{\"placed_by_time\": 1196}", "{placed_by_time}"), "1196");
    cr_expect_str_eq(said("{\"in_ns\": 2100000000}", "{in_ns:seconds}"), "3 s");
    cr_expect_str_eq(said("{\"setup_ns\": 2500}", "{setup_ns:us}"), "2.5");
    cr_expect_str_eq(said("{\"to\": \"\"}", "{to:place}"), "host memory");
    cr_expect_str_eq(said("{\"to\": \"gpu0\"}", "{to:place}"), "gpu0");
}

Test(say, lists_programs_and_members_of_members)
{
    const char *app = "{\"app\": {\"name\": \"x\", \"pid\": 12}, \"on\": [\"a\", \"b\"]}";

    cr_expect_str_eq(said(app, "{app}"), "x (pid 12)");
    cr_expect_str_eq(said(app, "{app.pid}"), "12");
    cr_expect_str_eq(said(app, "{on}; {on:list}"), "a, b; a,b");
    cr_expect_str_eq(said(app, "<{app.none}{none.pid}>"), "<>");
}

Test(say, one_or_many)
{
    cr_expect_str_eq(said("{\"n\": 1}", "{n|entry|entries}"), "1 entry");
    cr_expect_str_eq(said("{\"n\": 0}", "{n|entry|entries}"), "0 entries");
    cr_expect_str_eq(said("{\"n\": 2}", "{n|entry|entries}"), "2 entries");
}

Test(say, a_part_without_its_members_is_left_out)
{
    cr_expect_str_eq(said("{\"why\": \"full\"}", "no[: {why}]"), "no: full");
    cr_expect_str_eq(said("{\"why\": \"\"}", "no[: {why}]"), "no");
    cr_expect_str_eq(said("{}", "no[: {why}]!"), "no!");
    cr_expect_str_eq(said("{\"n\": 0}", "[{n} left]"), "");
    cr_expect_str_eq(said("{\"list\": []}", "a[ on {list}]b"), "ab");
    cr_expect_str_eq(said("{\"a\": 1}", "[{a} {b}]"), "");
    /* Each part by itself. */
    cr_expect_str_eq(said("{\"a\": 1}", "[{b}][{a}]"), "1");
}

Test(say, conditions_decide_and_are_not_shown)
{
    const char *on = "{\"on\": true, \"n\": 0}", *off = "{\"on\": false, \"n\": 0}";

    cr_expect_str_eq(said(on, "[{?on}on, {n}][{!on}off]"), "on, 0");
    cr_expect_str_eq(said(off, "[{?on}on, {n}][{!on}off]"), "off");
    cr_expect_str_eq(said(on, "[{?on}{?n}both]"), "");
    cr_expect_str_eq(said(on, "[{?on}{!n}one]"), "one");
}

Test(say, members_are_not_templates_and_are_safe_to_show)
{
    cr_expect_str_eq(said("{\"why\": \"[{n}\"}", "{why}"), "[{n}");
    cr_expect_str_eq(said("{\"why\": \"a\\u001b[2Jb\"}", "{why}"), "a?[2Jb");
}
