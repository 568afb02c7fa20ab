#include <stdarg.h>

#include "agent/daemon/peers.h"
#include "agent/daemon/power/power.h"
#include "tests/agent/config/config_rig.h"
#include "tests/support/leaks.h"

/* The agent's configuration is exchanged, and nothing else of the agent. */

static struct agent *agent;
static char said[PROTOCOL_TEXT_MAX]; /* In the log, last. */
static struct message answer;

static void init(void)
{
    config_rig_init();
    agent = calloc(1, sizeof(*agent));
    cr_assert_not_null(agent);
    agent->peer_count = 3;
    agent->next_program = 4;
    agent->next_operation = 5;
}

static void finish(void)
{
    config_finish(&agent->config);
    free(agent);
    leaks_check();
}

TestSuite(config_reload, .init = init, .fini = finish, .timeout = 100);

/* ---- in place of the rest of the agent ---- */

void agent_log(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(said, sizeof(said), format, arguments);
    va_end(arguments);
}

/* Caps are allowed from 100 W on. */
bool power_allows_host(struct agent *of, uint64_t cap_mw, char *ret_reason, size_t size)
{
    cr_assert_eq(of, agent);
    snprintf(ret_reason, size, "the least that would do is 100.0 W");
    return !cap_mw || cap_mw >= 100000;
}

void peers_configure(struct agent *of)
{
    cr_assert_eq(of, agent);
}

void peer_send(struct peer *peer, struct frame *frame)
{
    cr_assert_eq(peer->agent, agent);
    cr_assert_eq(frame_seal(frame), 0);
    message_finish(&answer);
    cr_assert_eq(
        message_decode((const uint8_t *)frame->buffer.data + 4, frame->buffer.size - 4, &answer),
        0);
    frame_finish(frame);
}

/* ---- */

static void configure(const char *text)
{
    setenv("RESEAT_CONFIG", config_put("reseat.conf", text, strlen(text)), 1);
}

/** All of the agent but its configuration is as @before. */
static void expect_rest(const struct agent *before)
{
    struct agent *now = malloc(sizeof(*now)), *then = malloc(sizeof(*then));

    memcpy(now, agent, sizeof(*now));
    memcpy(then, before, sizeof(*then));
    memset(&now->config, 0, sizeof(now->config));
    memset(&then->config, 0, sizeof(then->config));
    memset(now->config_problem, 0, sizeof(now->config_problem));
    memset(then->config_problem, 0, sizeof(then->config_problem));
    cr_expect_eq(memcmp(now, then, sizeof(*now)), 0);
    free(now);
    free(then);
}

static uint64_t quota(const char *name)
{
    struct config_program program;

    config_program(&agent->config, name, &program);
    return program.quota;
}

Test(config_reload, a_power_cap_that_nothing_fits_under_is_refused)
{
    struct config_error error = {0};

    configure("policy = { power-cap = 100; };");
    cr_assert_eq(agent_reload(agent, &error), 0);
    configure("policy = { power-cap = 99; };");
    cr_assert_neq(agent_reload(agent, &error), 0);
    cr_expect_eq(config_policy(&agent->config)->power_cap, 100);
    cr_expect(strstr(agent->config_problem, "the least that would do is 100.0 W"), "%s",
              agent->config_problem);
}

Test(config_reload, the_new_one_takes_the_place_of_the_old_one)
{
    struct agent *before = malloc(sizeof(*before));
    struct config_error error;

    memcpy(before, agent, sizeof(*before));
    configure("policy = { gain = 20; };\nprograms = ( { match = \"a\"; quota = \"1GiB\"; } );");
    cr_assert_eq(agent_reload(agent, &error), 0);
    cr_expect_eq(config_policy(&agent->config)->gain, 20);
    cr_expect_eq(quota("a"), 1u << 30);
    cr_expect(strstr(said, "reseat.conf"), "%s", said);
    configure("programs = ( { match = \"b\"; quota = \"2MiB\"; } );");
    cr_assert_eq(agent_reload(agent, &error), 0);
    cr_expect_eq(config_policy(&agent->config)->gain, 250);
    cr_expect_eq(quota("a"), CONFIG_UNLIMITED);
    cr_expect_eq(quota("b"), 2u << 20);
    expect_rest(before);
    free(before);
}

Test(config_reload, a_wrong_one_leaves_the_old_one_as_it_is)
{
    static const char *const wrong[] = {
        "policy = { gain = 9; };", "policy = {", "\x01",
        "programs = ( { match = \"a\"; quota = \"9GiB\"; },\n 5 );"};
    struct agent *before = malloc(sizeof(*before));
    struct config_error error;

    configure("policy = { gain = 20; };\nprograms = ( { match = \"a\"; quota = \"1GiB\"; } );");
    cr_assert_eq(agent_reload(agent, &error), 0);
    memcpy(before, agent, sizeof(*before));
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        char expected[PATH_MAX + CONFIG_REASON_MAX];
        configure(wrong[i]);
        cr_expect_eq(agent_reload(agent, &error), -EINVAL);
        config_error_format(&error, expected, sizeof(expected));
        cr_expect_str_eq(agent->config_problem, expected);
        cr_expect(strstr(said, expected), "%s", said);
        cr_expect_eq(memcmp(&agent->config, &before->config, sizeof(agent->config)), 0);
        cr_expect_eq(quota("a"), 1u << 30);
        expect_rest(before);
    }
    setenv("RESEAT_CONFIG", "/nonexistent", 1);
    cr_expect_eq(agent_reload(agent, &error), -ENOENT);
    cr_expect_eq(config_policy(&agent->config)->gain, 20);
    configure("");
    cr_expect_eq(agent_reload(agent, &error), 0);
    cr_expect_str_eq(agent->config_problem, "");
    cr_expect_eq(quota("a"), CONFIG_UNLIMITED);
    free(before);
}

Test(config_reload, the_command_lines_options_stay_before_every_file)
{
    struct config_option option = {"gain", "40"};
    struct config_error error;

    agent->options = &option;
    agent->option_count = 1;
    for (int i = 0; i < 2; i++) {
        configure(i ? "policy = { gain = 30; budget = 3; };" : "policy = { gain = 20; };");
        cr_assert_eq(agent_reload(agent, &error), 0);
        cr_expect_eq(config_policy(&agent->config)->gain, 40);
        cr_expect_eq(config_policy(&agent->config)->budget, i ? 3 : 12);
    }
}

Test(config_reload, a_client_is_told_what_came_of_it)
{
    struct peer peer = {.agent = agent, .uid = geteuid()};
    char text[PATH_MAX];

    configure("policy = { gain = 20; };");
    reload_answer(&peer);
    cr_expect(field_is(&answer.root, "type", MSG_RELOAD));
    cr_expect_not(field_bool(&answer.root, "refused", true));
    cr_expect(field_is(&answer.root, "file", getenv("RESEAT_CONFIG")));
    configure("\n\npolicy = 5;");
    reload_answer(&peer);
    cr_expect(field_bool(&answer.root, "refused", false));
    cr_expect(field_is(&answer.root, "file", getenv("RESEAT_CONFIG")));
    cr_expect_eq(field_u64(&answer.root, "line", 0), 3);
    cr_expect(field_string(&answer.root, "reason", text, sizeof(text)) && strstr(text, "group"));
    cr_expect_eq(config_policy(&agent->config)->gain, 20);
    message_finish(&answer);
}
