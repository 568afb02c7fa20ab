#include "tests/support/cases.h"
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interpose/control/control_priv.h"
#include "state/base/threads/fork.h"
#include "state/recovery/protect.h"

/* What reaches the engine of what the environment and the agent say. */

static unsigned begun, ended;
static struct protect_settings last;
static char residence_index[128];
static int error;

int protect_begin(const struct protect_settings *settings)
{
    begun++;
    last = *settings;
    strcpy(residence_index,
           settings->key_count ? settings->keys[settings->key_count - 1].device : "");
    return error;
}

void protect_end(void)
{
    ended++;
}

static bool is(const char *words)
{
    char text[PROTECTION_TEXT_MAX];
    struct protection protection;

    control_protect_read(&protection);
    protection_format(&protection, text);
    return strcmp(text, words) == 0;
}

static void expect_words(const char *words)
{
    cr_expect(is(words), "%s", words);
}

static int say(const char *words, uint64_t order)
{
    struct protection protection;
    char reason[128];

    cr_assert_eq(protection_parse(words, &protection, reason, sizeof(reason)), 0);
    return control_protect_apply(&protection, order);
}

TestSuite(control_protect, .timeout = 60);

Test(control_protect, the_environment_says_it_first)
{
    struct device_key places[2] = {{.device = "one"}, {.device = "two"}};

    expect_words("");
    control_protect_start(places, 2, "30");
    cr_expect_eq(begun, 1);
    cr_expect_eq(last.interval_ns, 30000000000u);
    cr_expect_eq(last.bytes, 0);
    cr_expect_eq(last.key_count, 2);
    cr_expect_str_eq(residence_index, "two");
    expect_words("30");
    places[1].device[0] = 'x';
    cr_expect_eq(say("64MiB", control_protect_order()), 0);
    cr_expect_eq(last.bytes, 64 << 20);
    cr_expect_eq(last.interval_ns, 0);
    cr_expect_str_eq(residence_index, "two", "they were copied");
    expect_words("64MiB");
}

Test(control_protect, without_a_word_it_is_not_and_with_one_that_is_wrong_it_is)
{
    control_protect_start(NULL, 0, NULL);
    expect_words("off");
    control_protect_start(NULL, 0, "off");
    expect_words("off");
    cr_expect_eq(begun, 0);
    control_protect_start(NULL, 0, "sometimes");
    cr_expect_eq(begun, 1);
    expect_words("on");
    cr_expect(control_protect_is_wanted("sometimes") && control_protect_is_wanted("5"));
    cr_expect(!control_protect_is_wanted(NULL) && !control_protect_is_wanted("") &&
              !control_protect_is_wanted("off"));
}

/* Each is carried out on a thread of its own, whose turn comes when it comes. */
Test(control_protect, of_two_orders_the_later_holds)
{
    uint64_t first = control_protect_order(), second = control_protect_order();

    control_protect_start(NULL, 0, NULL);
    cr_expect_eq(say("off", second), 0);
    cr_expect_eq(ended, 1);
    cr_expect_eq(say("on", first), 0);
    cr_expect_eq(begun, 0);
    expect_words("off");
}

Test(control_protect, what_fails_leaves_it_as_it_was)
{
    control_protect_start(NULL, 0, NULL);
    error = -EAGAIN;
    cr_expect_eq(say("5", control_protect_order()), -EAGAIN);
    expect_words("off");
    control_protect_start(NULL, 0, "5");
    expect_words("off");
}

Test(control_protect, a_child_is_not_until_its_agent_says_so)
{
    cr_assert_eq(fork_watch(), 0);
    control_protect_start(NULL, 0, "5");
    cr_expect_eq(say("6", control_protect_order()), 0);
    pid_t child = fork();
    if (child == 0) {
        bool off = is("off");
        bool told = say("7", control_protect_order()) == 0 && begun == 3;
        _exit(off && told && is("7") ? 0 : 1);
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(status, 0);
    expect_words("6");
}
