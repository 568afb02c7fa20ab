#include "tests/support/cases.h"
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/operation.h"
#include "tests/agent/daemon/own_agent.h"

/* What the agent does as time passes, with a clock that the test sets. */

static struct agent *const agent = &own_agent;

TestSuite(time, .init = own_agent_begin, .fini = own_agent_finish, .timeout = 30);

/* ---- who connects and says nothing ---- */

static void say_hello(int fd)
{
    struct frame frame;

    frame_init(&frame, MSG_HELLO);
    frame_u64(&frame, "version", PROTOCOL_VERSION);
    frame_string(&frame, "role", "client");
    cr_assert_eq(frame_seal(&frame), 0);
    cr_assert_eq(send(fd, frame.buffer.data, frame.buffer.size, 0), (ssize_t)frame.buffer.size);
    frame_finish(&frame);
}

/** What has come is handled; all of it, since nothing else is sent. */
static void run(void)
{
    for (int i = 0; i < 8; i++)
        uv_run(&agent->loop, UV_RUN_NOWAIT);
}

static bool is_closed(int fd)
{
    char bytes[4096];
    ssize_t count;

    while ((count = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
    }
    return count == 0;
}

Test(time, who_connects_and_says_nothing_is_closed_and_who_said_hello_is_not)
{
    cr_assert_eq(peers_listen(agent), 0);
    int silent = own_agent_connect(), client = own_agent_connect();
    say_hello(client);
    run();
    cr_assert_eq(agent->peer_count, 2);

    uint64_t connected = agent->loop.time;
    agent->loop.time = connected + 5000;
    peers_sweep(agent);
    run();
    cr_expect(!is_closed(silent), "it was given no time");
    agent->loop.time = connected + 60000;
    peers_sweep(agent);
    run();
    cr_expect(is_closed(silent), "it keeps its place for ever");
    cr_expect(!is_closed(client));
    cr_expect_eq(agent->peer_count, 1);
    close(silent);
    close(client);
}

/* ---- time in which nothing happens ---- */

/** Seconds pass; what is counted is how often the policy looked. @ret_longest: seconds between. */
static uint64_t looks_in(uint64_t seconds, uint64_t *ret_longest)
{
    uint64_t before = agent->governor->passes, longest = 0, last = 0;

    for (uint64_t i = 1; i <= seconds; i++) {
        uint64_t passes = agent->governor->passes;
        agent->loop.time += 1000;
        govern_tick(agent);
        if (agent->governor->passes == passes)
            continue;
        longest = i - last > longest ? i - last : longest;
        last = i;
    }
    *ret_longest = longest;
    return agent->governor->passes - before;
}

/** A command asks something that changes nothing. */
static void say_something(void)
{
    struct message message;
    struct frame frame;

    frame_init(&frame, MSG_ALIVE);
    cr_assert_eq(frame_seal(&frame), 0);
    cr_assert_eq(
        message_decode((const uint8_t *)frame.buffer.data + 4, frame.buffer.size - 4, &message), 0);
    agent->events->message(agent->peers, &message);
    message_finish(&message);
    frame_finish(&frame);
}

Test(time, where_nothing_is_heard_the_policy_looks_ever_less_often)
{
    uint64_t longest;

    cr_assert_eq(peers_listen(agent), 0);
    int client = own_agent_connect();
    say_hello(client);
    run();
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(looks_in(8, &longest), 8, "each second at first");
        uint64_t looks = looks_in(92, &longest);
        cr_expect(looks >= 16 && looks <= 24, "%llu times", (unsigned long long)looks);
        cr_expect(longest <= 100 / 8 + 1, "%llu s between", (unsigned long long)longest);
        looks = looks_in(3600, &longest);
        cr_expect(looks >= 60 && looks <= 80, "%llu times", (unsigned long long)looks);
        cr_expect_eq(longest, 60, "%llu s between", (unsigned long long)longest);
        say_something();
    }
    cr_expect_eq(looks_in(8, &longest), 8);
    agent->changed = true; /* Without a message: a device was listed. */
    uint64_t passes = agent->governor->passes;
    agent->loop.time += 250;
    govern_tick(agent);
    cr_expect_eq(agent->governor->passes, passes + 1, "between two seconds");
    cr_expect_eq(looks_in(8, &longest), 8);
    close(client);
}

Test(time, messages_without_end_leave_the_agent_time_for_others)
{
    enum { FLOOD = 1 << 20 };
    uint64_t longest, passes;

    cr_assert_eq(peers_listen(agent), 0);
    int client = own_agent_connect();
    say_hello(client);
    run();
    looks_in(8, &longest);
    for (int i = 0; i < 2; i++) {
        unsigned said = 0;
        do {
            passes = agent->governor->passes;
            agent->changed = true; /* As if the message had changed something. */
            say_something();
        } while (++said < FLOOD && agent->governor->passes != passes);
        cr_expect_gt(said, 100, "the policy is late for the first ones");
        cr_expect_lt(said, FLOOD, "the agent does nothing else");
        agent->loop.time += 250;
        govern_tick(agent);
        cr_expect_eq(agent->governor->passes, passes + 1, "the last ones are forgotten");
    }
    close(client);
}

/* ---- steps that fail ---- */

static struct program *known_program(void)
{
    static struct program program;

    memset(&program, 0, sizeof(program));
    strcpy(program.id, "a1");
    cr_assert(program_open(agent, &program));
    return &program;
}

static const uint64_t rests[] = {1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000};

Test(time, one_whose_step_failed_is_left_alone_twice_as_long_each_time)
{
    struct program *program = known_program();

    for (size_t i = 0; i < ARRAY_SIZE(rests); i++) {
        agent->loop.time += 100000;
        exclusions_rest(agent, program);
        cr_expect_eq(program->managed.rest_until_ms - agent->loop.time, rests[i], "failure %zu", i);
    }
    program_close(agent, program);
}

Test(time, a_device_where_it_failed_is_left_out_twice_as_long_each_time)
{
    struct program *program = known_program();

    for (size_t i = 0; i < ARRAY_SIZE(rests); i++) {
        agent->loop.time += 100000;
        exclusions_add(agent, program, 3, EXCLUSION_FAILED, "it failed");
        cr_expect_eq(program->managed.exclusion_count, 1);
        cr_expect_eq(program->managed.exclusions[0].until_ms - agent->loop.time, rests[i],
                     "failure %zu", i);
    }
    exclusions_add(agent, program, 4, EXCLUSION_REFUSED, "it refused");
    cr_expect_eq(program->managed.exclusion_count, 2);
    agent->loop.time += 1000000;
    cr_expect_not(exclusions_hold(agent, program, &program->managed.exclusions[0]));
    cr_expect(exclusions_hold(agent, program, &program->managed.exclusions[1]),
              "what refused it does so until it changes");
    program_close(agent, program);
}

Test(time, after_a_step_that_was_done_it_begins_anew)
{
    struct program *program = known_program();
    struct operation op = {.program = program,
                           .vdevs = 1,
                           .target = LEDGER_NONE,
                           .ours = true,
                           .verb = REQUEST_SUSPEND};

    exclusions_rest(agent, program);
    exclusions_rest(agent, program);
    operation_release(agent, &op,
                      &(struct operation_end){.result = RESULT_ROLLED_BACK, .reason = "it failed"});
    cr_expect_eq(program->managed.rest_until_ms - agent->loop.time, 4000);
    operation_release(agent, &op,
                      &(struct operation_end){.moved = 1, .result = RESULT_DONE, .reason = ""});
    exclusions_rest(agent, program);
    cr_expect_eq(program->managed.rest_until_ms - agent->loop.time, 1000);
    program_close(agent, program);
}

/* ---- the states of an operation ---- */

Test(time, an_operation_enters_only_the_states_that_may_follow)
{
    static const bool may[][3] = {
        [OPERATION_WAITING] = {false, true, true},
        [OPERATION_SENT] = {true, false, true},
        [OPERATION_SETTLED] = {false, false, false},
    };

    for (unsigned from = 0; from < 3; from++) {
        for (unsigned to = 0; to < 3; to++) {
            struct operation op = {.verb = REQUEST_MOVE, .state = from};
            cr_expect_eq(operation_enter(agent, &op, to), may[from][to], "%u to %u", from, to);
            cr_expect_eq(op.state, may[from][to] ? to : from, "%u to %u", from, to);
        }
    }
}
