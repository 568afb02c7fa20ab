#include "tests/support/cases.h"
#include <jansson.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/agent/harness.h"
#include "tests/agent/puppet.h"

/* Programs that are off their device for want of room, and how they come back. */

#define SOON 8000

static void begin(void)
{
    puppets_begin("gpu:one,gpu:larger");
    RESEAT("devices");
}

TestSuite(queue, .init = begin, .fini = puppets_finish, .timeout = 120);

static void limit_both(const char *memory)
{
    puppets_limit("gpu0", memory);
    puppets_limit("gpu1", memory);
}

/** @least of it is needed at once. */
static struct puppet *start(const char *name, const char *ways, uint64_t bytes, uint64_t least)
{
    struct puppet_kind kind = {.device = "gpu:one", .ways = ways};
    struct puppet *puppet = puppet_start(name, &kind);

    puppet->vdevs[0].least = least;
    cr_assert(puppet_allocate(puppet, bytes, SOON));
    return puppet;
}

Test(queue, whom_limits_fit_nowhere_comes_back_when_they_end)
{
    struct puppet *a = start("a", NULL, 300 * MIB, 200 * MIB);

    limit_both("100MiB");
    cr_assert(state_comes_to("a", "suspended", SOON));
    cr_assert_eq(ps_says("a", "displaced"), 1);
    struct result *result = PUPPETS_RESEAT("explain", "a");
    cr_assert(strstr(result->out, "200 MiB at once"), "%s", result->out);
    limit_both(NULL);
    cr_assert(state_comes_to("a", "running", SOON));
    cr_assert_geq(a->vdevs[0].granted, 300 * MIB);
    cr_assert_eq(a->resumes, 1);
}

/** It launches what takes @bytes in all, of what it has already. */
static void launch(struct puppet *puppet, uint64_t bytes)
{
    puppet->vdevs[0].least = bytes;
    puppet->launches = true;
    puppet_need(puppet, 0, bytes - puppet->vdevs[0].granted, false);
}

Test(queue, a_programs_own_limit_leaves_it_what_one_launch_needs)
{
    struct puppet *a = start("a", NULL, 300 * MIB, 10 * MIB);
    unsigned answers = a->answers, shrinks;

    puppets_limit("a", "100MiB");
    cr_assert(devices_come_to("gpu0", "granted_bytes", 100 * MIB, SOON));
    launch(a, 250 * MIB);
    cr_assert(puppet_answered(a, answers + 1, SOON));
    cr_assert_str_eq(a->way, WAY_AGAIN, "%s", a->reason);
    cr_assert_eq(a->vdevs[0].granted, 250 * MIB);
    shrinks = a->shrinks;
    puppets_for(300);
    cr_assert_eq(a->vdevs[0].granted, 250 * MIB, "it is asked back for what it needs");
    cr_assert_eq(a->shrinks, shrinks);
    cr_assert_eq(a->suspends, 0);
}

Test(queue, a_limit_below_everything_is_no_error)
{
    struct puppet *a = start("a", NULL, 0, 0);

    puppets_limit("a", "4KiB");
    for (unsigned i = 1; i <= 3; i++) {
        a->vdevs[0].least = 50 * MIB;
        puppet_need(a, 0, 50 * MIB, false);
        cr_assert(puppet_answered(a, i, SOON));
        cr_assert_str_neq(a->way, WAY_REFUSE, "%s", a->reason);
        cr_assert_leq(a->vdevs[0].granted, 50 * MIB);
    }
    cr_assert_eq(a->suspends, 0);
}

Test(queue, it_waits_also_where_the_program_may_not_but_what_no_device_has_is_refused)
{
    limit_both("100MiB");
    struct puppet *a = start("a", "", 50 * MIB, 50 * MIB);
    unsigned answers = a->answers;

    launch(a, 150 * MIB);
    cr_assert(state_comes_to("a", "suspended", SOON));
    cr_assert_eq(a->answers, answers, "%s: %s", a->way, a->reason);
    limit_both(NULL);
    cr_assert(puppet_answered(a, answers + 1, SOON));
    cr_assert_str_eq(a->way, WAY_AGAIN, "%s", a->reason);
    launch(a, 9000 * MIB);
    cr_assert(puppet_answered(a, answers + 2, SOON));
    cr_assert_str_eq(a->way, WAY_REFUSE);
    /* What is new may be refused: it is asked for as it would be of a smaller device. */
    limit_both("200MiB");
    a->launches = false;
    puppet_need(a, 0, 100 * MIB, false);
    cr_assert(puppet_answered(a, answers + 3, SOON));
    cr_assert_str_eq(a->way, WAY_REFUSE);
}

Test(queue, a_limit_below_what_a_program_needs_at_once_is_refused_with_the_amount)
{
    struct puppet *a = start("a", NULL, 300 * MIB, 200 * MIB);
    harness_says(PUPPETS_RESEAT("limit", "a", "--memory", "199MiB"), 4, "200 MiB at once");
    cr_assert_eq(ps_says("a", "limited"), 0);
    cr_assert_eq(PUPPETS_RESEAT("limit", "a", "--memory", "200MiB")->status, 0);
    cr_assert(devices_come_to("gpu0", "granted_bytes", 200 * MIB, SOON));
    cr_assert_eq(a->vdevs[0].granted, 200 * MIB);
    struct puppet *b = start("b", "", 100 * MIB, 10 * MIB);
    /* One that may not spill needs all that it has. */
    cr_assert_eq(PUPPETS_RESEAT("limit", "b", "--memory", "99MiB")->status, 4);
    cr_assert_eq(b->shrinks, 0);
}

/** Asks the agent without letting any program hear it meanwhile. */
static bool granted_unheard(uint64_t bytes)
{
    char expected[64];

    snprintf(expected, sizeof(expected), "\"granted_bytes\": %llu", (unsigned long long)bytes);
    for (unsigned i = 0; i < 400; i++)
        if (strstr(RESEAT("ps", "--json")->out, expected))
            return true;
    return false;
}

Test(queue, what_is_granted_and_not_heard_of_is_part_of_what_a_call_needs)
{
    limit_both("256MiB");
    struct puppet *a = start("a", "", 100 * MIB, 10 * MIB);

    /* It says that it wants all of it, and is given that without having asked. */
    uint64_t knew = a->vdevs[0].granted;
    a->vdevs[0].wanted = 256 * MIB;
    puppet_say(a);
    cr_assert(granted_unheard(256 * MIB));
    cr_assert_eq(a->vdevs[0].granted, knew);
    a->launches = true;
    puppet_need(a, 0, 256 * MIB - knew, false);
    cr_assert(puppet_answered(a, a->answers + 1, SOON));
    cr_assert_str_eq(a->way, WAY_AGAIN, "%s", a->reason);
    cr_assert_eq(a->suspends, 0, "it seemed to need more than there is");
    cr_assert_eq(a->vdevs[0].granted, 256 * MIB);
}

/** Runs on gpu0, is suspended by an operator, and then gpu0 is full. */
static struct puppet *shut_out(struct puppet **ret_other)
{
    limit_both("256MiB");
    struct puppet *a = start("a", "w", 200 * MIB, 200 * MIB);

    cr_assert_eq(PUPPETS_RESEAT("suspend", "a")->status, 0);
    *ret_other = start("other", "w", 200 * MIB, 200 * MIB);
    cr_assert_str_eq((*ret_other)->vdevs[0].device, "gpu:one");
    return a;
}

/** An operator had it go where it is. */
static bool is_chosen(const char *name)
{
    json_t *object = harness_json(PUPPETS_RESEAT("ps", "--json"), "ps");
    json_t *app = harness_find(object, "apps", "name", name);
    json_t *vdev = json_array_get(json_object_get(app, "vdevs"), 0);

    return json_is_true(json_object_get(vdev, "chosen"));
}

Test(queue, resume_goes_to_any_device_that_fits_when_none_is_named)
{
    struct puppet *other, *a = shut_out(&other);
    json_t *object = harness_json(PUPPETS_RESEAT("resume", "a", "--json"), "resume");

    cr_assert_str_eq(harness_text(object, "result"), "done");
    cr_assert_str_eq(harness_text(object, "to"), "gpu1");
    cr_assert_eq(harness_number(object, "bytes"), PUPPET_COPIED);
    cr_assert_str_eq(a->vdevs[0].device, "gpu:larger");
    cr_assert_geq(a->vdevs[0].granted, 200 * MIB);
    cr_assert_not(is_chosen("a"));
    cr_assert_str_eq(other->vdevs[0].device, "gpu:one");
}

struct leaving {
    struct puppet *puppet;
    pid_t pid;
    bool gone;
    int status;
};

/** Once @puppet queues another ends, and so does the command. */
static bool resumed(void *data)
{
    struct leaving *leaving = data;
    int status;

    if (!leaving->gone && strstr(RESEAT("ps", "--json")->out, "\"displaced\": true")) {
        puppet_kill(leaving->puppet);
        leaving->gone = true;
    }
    if (waitpid(leaving->pid, &status, WNOHANG) != leaving->pid)
        return false;
    leaving->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
}

Test(queue, resume_waits_for_the_device_that_it_names)
{
    struct puppet *other, *a = shut_out(&other);
    struct leaving leaving = {other, 0, false, -1};

    /* gpu1 has room for it all the time. */
    leaving.pid = harness_spawn(harness_reseat(), "resume", "a", "gpu0", NULL);
    cr_assert(puppets_run(resumed, &leaving, SOON));
    cr_assert(leaving.gone);
    cr_assert_eq(leaving.status, 0);
    cr_assert_str_eq(a->vdevs[0].device, "gpu:one");
    cr_assert(!a->vdevs[0].suspended);
    cr_assert_eq(a->resumes, 1);
    cr_assert(is_chosen("a"));
}

Test(queue, resume_that_is_given_up_leaves_it_suspended)
{
    struct puppet *other, *a = shut_out(&other);
    harness_says(PUPPETS_RESEAT("resume", "a", "gpu0", "--timeout", "0.1"), 5, "stays suspended");
    cr_assert_eq(ps_says("a", "displaced"), 0);
    pid_t pid = harness_spawn(harness_reseat(), "resume", "a", "gpu0", NULL);
    while (ps_says("a", "displaced") != 1)
        puppets_for(5);
    kill(pid, SIGINT);
    cr_assert_eq(harness_wait(pid), 1);
    while (ps_says("a", "displaced") != 0)
        puppets_for(5);
    puppet_kill(other);
    cr_assert(state_comes_to("a", "suspended", SOON));
    cr_assert_eq(a->resumes, 0);
}

Test(queue, resume_that_may_wait_as_long_as_a_number_can_say_does_not_end_at_once)
{
    struct puppet *other;
    struct frame frame;
    int fd = harness_connect();
    shut_out(&other);

    frame_init(&frame, MSG_HELLO);
    frame_u64(&frame, "version", PROTOCOL_VERSION);
    frame_string(&frame, "role", "client");
    cr_assert(harness_tell(fd, &frame));
    frame_init(&frame, MSG_RESUME);
    frame_string(&frame, "app", "a");
    frame_string(&frame, "device", "gpu0");
    frame_u64(&frame, "timeout_ms", UINT64_MAX);
    cr_assert(harness_tell(fd, &frame));
    while (ps_says("a", "displaced") != 1)
        puppets_for(5);
    puppets_for(1000); /* The agent looks four times a second. */
    cr_expect_eq(ps_says("a", "displaced"), 1, "its time was over at once");
    close(fd);
    while (ps_says("a", "displaced") != 0)
        puppets_for(5);
}

Test(queue, resume_hands_a_program_back_to_the_policy)
{
    struct puppet *other, *a = shut_out(&other);

    puppets_limit("gpu1", "100MiB");
    json_t *object = harness_json(PUPPETS_RESEAT("resume", "a", "--queue", "--json"), "resume");
    cr_assert_str_eq(harness_text(object, "result"), "queued");
    cr_assert_eq(ps_says("a", "displaced"), 1);
    cr_assert_eq(a->resumes, 0);
    puppet_kill(other);
    cr_assert(state_comes_to("a", "running", SOON));
    cr_assert_str_eq(a->vdevs[0].device, "gpu:one");
    cr_assert_eq(PUPPETS_RESEAT("suspend", "a", "--queue")->status, 2);
}

Test(queue, who_waits_for_the_resume_of_one_that_does_not_answer_is_told)
{
    struct puppet *other, *a = shut_out(&other);

    /* It goes through the queue to gpu1, which is free. */
    a->stopped = true;
    harness_says(PUPPETS_RESEAT("resume", "a"), 5, "does not answer");
    cr_assert_eq(ps_says("a", "displaced"), 0);
    cr_assert_eq(a->resumes, 0);
}

static uint64_t waits_s(const char *name)
{
    struct result *result = PUPPETS_RESEAT("explain", name);
    const char *at = strstr(result->out, "in the queue for ");

    cr_assert(at, "%s", result->out);
    return strtoull(at + strlen("in the queue for "), NULL, 10);
}

Test(queue, an_agent_that_is_killed_takes_no_place_and_no_time_from_who_queues)
{
    struct puppet *other, *a = shut_out(&other);

    puppets_limit("gpu1", "100MiB");
    struct puppet *b = start("b", NULL, 50 * MIB, 50 * MIB);
    cr_assert_eq(PUPPETS_RESEAT("suspend", "b")->status, 0);
    cr_assert_eq(PUPPETS_RESEAT("resume", "a", "gpu0", "--queue")->status, 0);
    struct result *result = PUPPETS_RESEAT("explain", "a");
    cr_assert(strstr(result->out, "queues for gpu0 alone"), "%s", result->out);
    uint64_t ticket = ps_says("a", "ticket");
    kill(harness_agent(), SIGKILL);
    for (unsigned i = 0; RESEAT("agent", "start")->status; i++)
        cr_assert_lt(i, 100);
    puppet_connect(a);
    puppet_connect(b);
    puppet_connect(other);
    cr_assert_eq(ps_says("a", "ticket"), ticket);
    cr_assert_lt(waits_s("a"), 60);
    result = PUPPETS_RESEAT("explain", "a");
    cr_assert(strstr(result->out, "queues for gpu0 alone"), "%s", result->out);
    puppets_limit("gpu0", "210MiB");
    puppets_limit("gpu1", "1MiB");
    cr_assert_eq(PUPPETS_RESEAT("resume", "b", "--queue")->status, 0);
    cr_assert_gt(ps_says("b", "ticket"), ticket);
}

Test(queue, virtual_devices_go_back_to_several_devices_only_where_each_has_room)
{
    struct puppet_kind kind = {.device = "gpu:one", .second = "gpu:larger"};
    struct puppet *a = puppet_start("a", &kind);

    a->vdevs[0].wanted = a->vdevs[0].held = a->vdevs[0].least = 100 * MIB;
    a->vdevs[1].wanted = a->vdevs[1].held = a->vdevs[1].least = 100 * MIB;
    puppet_say(a);
    cr_assert_eq(PUPPETS_RESEAT("suspend", "a")->status, 0);
    puppets_limit("gpu1", "50MiB");
    harness_ends(PUPPETS_RESEAT("resume", "a", "--json"), 0);
    cr_assert_str_eq(a->vdevs[0].device, "gpu:one");
    cr_assert_str_eq(a->vdevs[1].device, "gpu:one");
    cr_assert_eq(PUPPETS_RESEAT("suspend", "a")->status, 0);
    puppets_limit("gpu1", NULL);
    cr_assert_eq(PUPPETS_RESEAT("resume", "a:0", "gpu0")->status, 0);
    cr_assert_eq(PUPPETS_RESEAT("resume", "a:1", "gpu1")->status, 0);
    cr_assert_eq(PUPPETS_RESEAT("suspend", "a")->status, 0);
    cr_assert_eq(PUPPETS_RESEAT("resume", "a")->status, 0);
    cr_assert_str_eq(a->vdevs[0].device, "gpu:one");
    cr_assert_str_eq(a->vdevs[1].device, "gpu:larger");
}

Test(queue, what_is_already_there_is_done)
{
    struct puppet *a = start("a", NULL, 100 * MIB, 10 * MIB);
    static const char *const commands[][3] = {
        {"move", "gpu0", "gpu0"}, {"resume", NULL, "gpu0"}, {"suspend", NULL, ""}};

    for (unsigned i = 0; i < 3; i++) {
        if (i == 2)
            cr_assert_eq(PUPPETS_RESEAT("suspend", "a")->status, 0);
        harness_says(PUPPETS_RESEAT(commands[i][0], "a", commands[i][1]), 0,
                     i == 2 ? "is already suspended\n" : "is already on gpu0\n");
        json_t *object = harness_json(PUPPETS_RESEAT(commands[i][0], "--json", "a", commands[i][1]),
                                      commands[i][0]);
        cr_assert_str_eq(harness_text(object, "result"), "done");
        cr_assert(json_is_true(json_object_get(object, "already")));
        cr_assert_str_eq(harness_text(object, "from"), commands[i][2]);
        cr_assert_str_eq(harness_text(object, "to"), commands[i][2]);
    }
    cr_assert_eq(a->moves + a->resumes, 0);
    cr_assert_eq(a->suspends, 1);
    cr_assert_eq(PUPPETS_RESEAT("move", "a", "gpu0")->status, 0);
    cr_assert_eq(a->moves, 1);
}

Test(queue, who_grows_in_small_pieces_displaces_in_large_ones)
{
    puppets_limit("gpu1", "1MiB");
    puppets_limit("gpu0", "384MiB");
    struct puppet *low = start("low", "pw", 300 * MIB, 10 * MIB);
    struct puppet_kind kind = {.device = "gpu:one", .priority = "1", .ways = "w"};
    struct puppet *high = puppet_start("high", &kind);

    while (low->shrinks == 0)
        cr_assert(puppet_allocate(high, MIB, SOON));
    uint64_t held = high->vdevs[0].held;
    for (unsigned i = 0; i < 96; i++) {
        cr_assert(puppet_allocate(high, MIB, SOON));
        cr_assert_str_eq(high->way, WAY_AGAIN);
    }
    /* In steps of 64 MiB. */
    cr_assert_eq(high->vdevs[0].held, held + 96 * MIB);
    cr_assert_leq(low->shrinks, 3, "%u times", low->shrinks);
    cr_assert_geq(low->vdevs[0].granted, 10 * MIB);
}

static bool is_ready(void *data)
{
    return ((const struct puppet *)data)->ready[0] != '\0';
}

static bool runs_again(void *data)
{
    return ((const struct puppet *)data)->resumes > 0;
}

/** An agent that makes programs ready, with room on gpu0 for one of two. Returns the second. */
static struct puppet *start_prewarming(struct puppet **ret_low)
{
    struct puppet_kind kind = {.device = "gpu:one", .priority = "5", .ways = "w"};

    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    setenv("RESEAT_PREWARM", "yes", 1);
    cr_assert_eq(RESEAT("devices")->status, 0);
    puppets_limit("gpu1", "1MiB");
    puppets_limit("gpu0", "320MiB");
    *ret_low = start("low", "ws", 200 * MIB, 200 * MIB);
    return puppet_start("high", &kind);
}

Test(queue, the_first_in_the_queue_is_made_ready_for_its_device)
{
    struct puppet *low, *high = start_prewarming(&low);

    cr_assert(puppet_allocate(high, 200 * MIB, 20000));
    cr_assert_eq(low->suspends, 1);
    cr_assert(puppets_run(is_ready, low, SOON), "it is not made ready");
    cr_expect(strstr(low->ready, "one"), "%s", low->ready);
    puppets_for(2500);
    cr_expect_eq(low->prewarms, 1, "once is enough");
    cr_expect_eq(low->resumes, 0);
    cr_expect_eq(high->prewarms, 0);
    puppet_kill(high);
    cr_assert(puppets_run(runs_again, low, SOON));
    cr_expect_str_eq(low->vdevs[0].device, "gpu:one");
}

/** It fails at whatever it is asked while it is suspended. */
static bool has_failed(void *data)
{
    struct puppet *puppet = data;

    puppet->move = puppet->suspends ? RESULT_ROLLED_BACK : RESULT_DONE;
    return puppet->refusals > 0;
}

Test(queue, who_cannot_be_made_ready_is_resumed_there_nevertheless)
{
    struct puppet *low, *high = start_prewarming(&low);

    puppet_need(high, 0, 200 * MIB, false);
    cr_assert(puppets_run(has_failed, low, 20000));
    struct result *explained = PUPPETS_RESEAT("explain", "low");
    cr_expect_null(strstr(explained->out, "would not run there"), "%s", explained->out);
    low->move = RESULT_DONE;
    puppet_kill(high);
    cr_assert(puppets_run(runs_again, low, SOON));
    cr_expect_str_eq(low->vdevs[0].device, "gpu:one");
}
