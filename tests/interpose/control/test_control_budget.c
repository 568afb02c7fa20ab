#include <sys/wait.h>
#include <unistd.h>

#include "tests/interpose/control/control_budget_rig.h"

/*
 * The program's end of the agent's ledger by itself. That a thread still waits is shown by what it
 * is told later: the first answer counts, so that one which was let go too early comes back with
 * another.
 */

#define PATIENCE 3000000000ull
#define TURNS    8 /* Between two looks for what is not used. */
#define THREADS  16
#define CHILD_S  60 /* A child that hangs ends. */

TestSuite(control_budget, .init = budget_rig_begin, .fini = budget_rig_finish, .timeout = 60);

static const struct budget_need some = {
    .vdev = 1, .total = 5 * MIB, .least = 2 * MIB, .wanted = 9 * MIB};

/* ---- needs and answers ---- */

Test(control_budget, without_an_agent_nobody_decides)
{
    cr_assert_eq(budget_policy(&some), BUDGET_FORCE);
    cr_assert_not(control_budget_needs());
    cr_assert_eq(serve(), 0);
}

Test(control_budget, a_need_says_what_the_protocol_says)
{
    static const struct budget_need other = {.vdev = 3,
                                             .total = 1,
                                             .least = 1ull << 40,
                                             .wanted = UINT64_MAX - 1,
                                             .owns = true,
                                             .failed = true};
    struct asker first, second;

    welcome(NULL, 0);
    cr_assert_not(control_budget_needs());
    ask(&first, &some);
    cr_assert(control_budget_needs());
    expect_need(1, &some);
    cr_assert_not(control_budget_needs(), "it was sent");
    cr_assert_eq(serve(), 0, "it was sent");
    ask(&second, &other);
    expect_need(2, &other);
    answer(2, WAY_SPILL);
    answer(1, WAY_AGAIN);
    cr_assert_eq(answer_of(&first), BUDGET_AGAIN);
    cr_assert_eq(answer_of(&second), BUDGET_SPILL);
}

Test(control_budget, each_way_has_its_answer)
{
    static const struct {
        const char *way;
        enum budget_answer answer;
    } ways[] = {{WAY_AGAIN, BUDGET_AGAIN}, {WAY_SPILL, BUDGET_SPILL}, {WAY_REFUSE, BUDGET_REFUSE},
                {"later", BUDGET_REFUSE},  {"", BUDGET_REFUSE},       {NULL, BUDGET_REFUSE}};

    welcome(NULL, 0);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct asker asker;
        answer(asked(&asker, &some), ways[i].way);
        cr_assert_eq(answer_of(&asker), ways[i].answer, "%zu", i);
    }
}

Test(control_budget, the_first_answer_with_its_id_counts)
{
    struct asker asker;
    struct frame frame;

    welcome(NULL, 0);
    uint64_t id = asked(&asker, &some);
    answer(id + 1, WAY_REFUSE);
    answer(id - 1, WAY_REFUSE);
    answer(UINT64_MAX, WAY_REFUSE);
    frame_init(&frame, MSG_ANSWER); /* without any */
    frame_string(&frame, "way", WAY_REFUSE);
    take(&frame);
    frame_init(&frame, MSG_ANSWER);
    frame_string(&frame, "id", "1");
    frame_string(&frame, "way", WAY_REFUSE);
    take(&frame);
    answer(id, WAY_SPILL);
    answer(id, WAY_REFUSE);
    cr_assert_eq(answer_of(&asker), BUDGET_SPILL);
    answer(id, WAY_AGAIN); /* Nobody waits any more. */
    cr_assert_eq(serve(), 0);
}

/* In the thread that asks: it is answered, and has not seen that yet. */
static void answer_and_look(void)
{
    answer(1, WAY_SPILL);
    cr_assert_not(control_budget_needs());
    cr_assert_eq(serve(), 0);
}

Test(control_budget, what_is_answered_is_not_asked)
{
    struct asker asker;

    welcome(NULL, 0);
    budget_on_wake = answer_and_look;
    ask(&asker, &some);
    cr_assert_eq(answer_of(&asker), BUDGET_SPILL);
}

Test(control_budget, threads_that_wait_together_each_get_their_answer)
{
    static const char *const ways[] = {WAY_AGAIN, WAY_SPILL, WAY_REFUSE};
    static const enum budget_answer answers[] = {BUDGET_AGAIN, BUDGET_SPILL, BUDGET_REFUSE};
    struct asker askers[THREADS];

    welcome(NULL, 0);
    for (unsigned i = 0; i < THREADS; i++) {
        struct budget_need need = {.vdev = i % 4, .total = i};
        ask(&askers[i], &need);
    }
    cr_assert_eq(serve(), THREADS);
    /* Each is there once, and they are answered in an order that is nobody's. */
    for (unsigned i = 0; i < THREADS; i++) {
        const struct sent *one = &sent[(i * 7 + 3) % THREADS];
        cr_assert_eq(one->vdev, one->total % 4);
        answer(one->id, ways[one->total % 3]);
    }
    for (unsigned i = 0; i < THREADS; i++)
        cr_assert_eq(answer_of(&askers[i]), answers[i % 3], "%u", i);
    cr_assert_not(control_budget_needs());
}

/* ---- agents that go and come ---- */

Test(control_budget, the_next_agent_is_asked_what_the_last_did_not_answer)
{
    struct asker waits, gone;

    welcome(NULL, 0);
    answer(asked(&gone, &some), WAY_REFUSE);
    cr_assert_eq(answer_of(&gone), BUDGET_REFUSE);
    uint64_t id = asked(&waits, &some);
    for (unsigned agent = 0; agent < 3; agent++) {
        control_budget_alone();
        cr_assert_not(control_budget_needs(), "nobody is there to be asked");
        budget_clock_ns += PATIENCE / 2;
        welcome(NULL, 0);
        cr_assert(control_budget_needs());
        expect_need(id, &some);
    }
    answer(id, WAY_SPILL);
    cr_assert_eq(answer_of(&waits), BUDGET_SPILL);
}

Test(control_budget, what_a_breaking_connection_swallowed_is_asked_again)
{
    struct asker first, second;
    static const struct budget_need other = {.total = 3 * MIB};

    welcome(NULL, 0);
    ask(&first, &some);
    ask(&second, &other);
    sent_breaks = true;
    serve();
    sent_breaks = false;
    welcome(NULL, 0);
    cr_assert_eq(serve(), 2);
    cr_assert_eq(sent[0].total + sent[1].total, some.total + other.total);
    answer(sent[0].id, WAY_AGAIN);
    answer(sent[1].id, WAY_AGAIN);
    cr_assert_eq(answer_of(&first), BUDGET_AGAIN);
    cr_assert_eq(answer_of(&second), BUDGET_AGAIN);
}

Test(control_budget, without_an_agent_for_longer_than_its_patience_a_thread_goes_on)
{
    struct asker early, late;

    welcome(NULL, 0);
    asked(&early, &some);
    for (unsigned i = 0; i < 3; i++) {
        control_budget_alone();
        budget_clock_ns += PATIENCE / 3 - 1; /* Looking often does not make it wait for longer. */
    }
    /* One that asks now waits for the same agent. */
    ask(&late, &some);
    control_budget_alone();
    budget_clock_ns += 3;
    control_budget_alone();
    cr_assert_eq(answer_of(&early), BUDGET_FORCE);
    cr_assert_eq(answer_of(&late), BUDGET_FORCE);
    cr_assert_eq(budget_policy(&some), BUDGET_FORCE, "there is nobody to wait for any more");
}

Test(control_budget, a_thread_waits_as_long_as_its_patience)
{
    struct asker early, late;

    welcome(NULL, 0);
    uint64_t first = asked(&early, &some);
    control_budget_alone();
    budget_clock_ns += PATIENCE - 1;
    ask(&late, &some);
    control_budget_alone();
    welcome(NULL, 0);
    cr_assert_eq(serve(), 2);
    answer(first, WAY_SPILL);
    answer(first + 1, WAY_REFUSE);
    cr_assert_eq(answer_of(&early), BUDGET_SPILL);
    cr_assert_eq(answer_of(&late), BUDGET_REFUSE);
    /* And as long for the next one. */
    budget_clock_ns += 10 * PATIENCE;
    uint64_t again = asked(&early, &some);
    control_budget_alone();
    budget_clock_ns += PATIENCE - 1;
    control_budget_alone();
    welcome(NULL, 0);
    expect_need(again, &some);
    answer(again, WAY_AGAIN);
    cr_assert_eq(answer_of(&early), BUDGET_AGAIN);
}

/* ---- what is granted, and given back ---- */

Test(control_budget, grants_are_the_vdevs_they_name)
{
    struct frame frame;

    tell(MSG_GRANT, 2, 3 * MIB);
    tell(MSG_GRANT, 2, 4 * MIB);
    tell(MSG_GRANT, PROTOCOL_VDEVS_MAX - 1, 0);
    cr_assert_eq(budget_vdevs[2].granted, 7 * MIB);
    cr_assert(budget_vdevs[PROTOCOL_VDEVS_MAX - 1].limited,
              "granted nothing is limited all the same");
    tell(MSG_GRANT, PROTOCOL_VDEVS_MAX, MIB);
    tell(MSG_GRANT, UINT32_MAX + 3ull, MIB);
    frame_init(&frame, MSG_GRANT);
    frame_u64(&frame, "vdev", 1);
    frame_string(&frame, "bytes", "all");
    take(&frame);
    frame_init(&frame, MSG_GRANT);
    frame_u64(&frame, "bytes", MIB);
    take(&frame);
    cr_assert_eq(budget_grants, 3);
    cr_assert_not(budget_vdevs[0].limited || budget_vdevs[1].limited);
}

Test(control_budget, a_shrink_is_always_answered)
{
    welcome(NULL, 0);
    budget_vdevs[0].granted = 10 * MIB;
    budget_vdevs[2].granted = 7 * MIB;
    shrink(0, 4 * MIB);
    shrink(2, 7 * MIB);
    shrink(3, 0);
    cr_assert_eq(serve(), 3);
    expect_return(0, 0, 6 * MIB);
    expect_return(1, 2, 0);
    expect_return(2, 3, 0);
    cr_assert_eq(serve(), 0, "once");
    budget_no_threads = true;
    shrink(2, 0);
    cr_assert_eq(serve(), 1);
    expect_return(0, 2, 0);
    cr_assert_eq(budget_vdevs[2].granted, 7 * MIB);
}

Test(control_budget, a_shrink_that_says_nothing_takes_nothing)
{
    struct frame frame;

    welcome(NULL, 0);
    budget_vdevs[0].granted = budget_vdevs[1].granted = 10 * MIB;
    frame_init(&frame, MSG_SHRINK);
    frame_u64(&frame, "vdev", 1);
    take(&frame);
    sem_wait(&budget_woken);
    frame_init(&frame, MSG_SHRINK);
    frame_u64(&frame, "bytes", MIB);
    take(&frame);
    tell(MSG_SHRINK, PROTOCOL_VDEVS_MAX, 0);
    tell(MSG_SHRINK, UINT32_MAX + 1ull, 0);
    cr_assert_eq(budget_threads, 1, "of no virtual device");
    cr_assert_eq(serve(), 1);
    expect_return(0, 1, 0);
    cr_assert_eq(budget_vdevs[0].granted + budget_vdevs[1].granted, 20 * MIB);
}

/* It waits for the device, and the control thread has others to serve. */
Test(control_budget, a_shrink_does_not_hold_up_what_else_there_is)
{
    struct asker asker;

    welcome(NULL, 0);
    budget_vdevs[0].granted = 10 * MIB;
    budget_spill_blocks = true;
    tell(MSG_SHRINK, 0, MIB);
    sem_wait(&budget_spilling);
    answer(asked(&asker, &some), WAY_SPILL);
    cr_assert_eq(answer_of(&asker), BUDGET_SPILL);
    cr_assert_eq(serve(), 0, "it has not ended");
    sem_post(&budget_may_spill);
    sem_wait(&budget_woken);
    cr_assert_eq(serve(), 1);
    expect_return(0, 0, 9 * MIB);
}

Test(control_budget, what_the_next_status_says_is_not_returned_as_well)
{
    welcome(NULL, 0);
    budget_vdevs[0].granted = 10 * MIB;
    control_budget_alone();
    shrink(0, 4 * MIB);
    /* The next agent learns from the status that 4 MiB are left. */
    welcome(NULL, 0);
    cr_assert_eq(serve(), 0);
    shrink(0, MIB);
    cr_assert_eq(serve(), 1);
    expect_return(0, 0, 3 * MIB);
}

Test(control_budget, slack_is_given_back_now_and_then)
{
    welcome(NULL, 0);
    budget_vdevs[1].slack = 3 * MIB;
    budget_vdevs[3].slack = 5 * MIB;
    for (unsigned i = 1; i < TURNS; i++)
        cr_assert_eq(serve(), 0);
    cr_assert_eq(budget_slack_looks, 0, "it costs a look at the virtual devices");
    budget_vdevs[3].granted = 2 * MIB;
    shrink(3, 0);
    cr_assert_eq(serve(), 2);
    expect_return(0, 1, 3 * MIB);
    expect_return(1, 3, 7 * MIB);
    budget_vdevs[0].slack = MIB;
    for (unsigned i = 1; i < TURNS; i++)
        cr_assert_eq(serve(), 0);
    cr_assert_eq(serve(), 1);
    expect_return(0, 0, MIB);
}

/* ---- what is granted at first ---- */

static const uint64_t three[] = {MIB, 2 * MIB, 3 * MIB};

Test(control_budget, first_grants_wait_for_the_vdevs)
{
    static const uint64_t two[] = {5 * MIB, 6 * MIB};

    welcome(three, 3);
    welcome(two, 2); /* Another agent, before anything began: it alone counts. */
    cr_assert_eq(budget_grants, 0);
    tell(MSG_GRANT, 0, 7 * MIB);
    control_budget_begin();
    cr_assert_eq(budget_vdevs[0].granted, 7 * MIB, "that it was granted something was said");
    cr_assert_eq(budget_vdevs[1].granted, 6 * MIB);
    cr_assert_not(budget_vdevs[2].limited);
    control_budget_begin();
    cr_assert_eq(budget_grants, 2);
}

Test(control_budget, first_grants_after_the_beginning_are_for_who_has_none)
{
    control_budget_begin();
    cr_assert_eq(budget_grants, 0);
    budget_vdevs[1].limited = true; /* by an agent before */
    budget_vdevs[1].granted = 9 * MIB;
    welcome(three, 3);
    cr_assert_eq(budget_vdevs[0].granted, MIB);
    cr_assert_eq(budget_vdevs[1].granted, 9 * MIB);
    cr_assert_eq(budget_vdevs[2].granted, 3 * MIB);
    cr_assert_not(budget_vdevs[3].limited);
    budget_vdevs[0].limited = budget_vdevs[2].limited = false; /* Nobody answered for long. */
    budget_vdevs[0].granted = budget_vdevs[2].granted = 0;
    control_budget_begin();
    cr_assert_eq(budget_grants, 2, "they were used up");
    welcome(three, 1);
    cr_assert_eq(budget_vdevs[0].granted, MIB);
    cr_assert_eq(budget_vdevs[2].granted, 0);
}

Test(control_budget, first_grants_that_are_none_end_the_list)
{
    uint64_t many[PROTOCOL_VDEVS_MAX + 3];
    struct frame frame;

    for (size_t i = 0; i < ARRAY_SIZE(many); i++)
        many[i] = i + 1;
    frame_init(&frame, MSG_WELCOME);
    frame_array(&frame, "grants");
    frame_u64(&frame, NULL, MIB);
    frame_string(&frame, NULL, "lots");
    frame_u64(&frame, NULL, MIB);
    frame_end(&frame);
    rig_welcome(&frame);
    control_budget_begin();
    cr_assert_eq(budget_grants, 1);
    cr_assert_eq(budget_vdevs[0].granted, MIB);
    welcome(many, PROTOCOL_VDEVS_MAX + 3);
    cr_assert_eq(budget_grants, PROTOCOL_VDEVS_MAX);
    cr_assert_eq(budget_vdevs[PROTOCOL_VDEVS_MAX - 1].granted, PROTOCOL_VDEVS_MAX);
}

/* ---- agents that are there and say nothing ---- */

/* Turns of the control thread for so many seconds; how often the agent is asked whether it is
 * there. */
static unsigned asked_for(unsigned seconds)
{
    unsigned count = 0;
    for (unsigned i = 0; i < seconds * 4; i++) {
        budget_clock_ns += 250000000;
        unsigned frames = serve();
        cr_assert(budget_served, "given up after %u of %u quarters", i, seconds * 4);
        for (unsigned j = 0; j < frames; j++)
            count += strcmp(sent[j].type, MSG_ALIVE) == 0;
    }
    return count;
}

Test(control_budget, an_agent_that_says_nothing_is_given_up_within_seconds)
{
    struct asker asker;

    welcome_of_one_that_answers();
    asked(&asker, &some);
    cr_assert_eq(asked_for(5), 5);
    budget_clock_ns += 1000000000;
    serve();
    cr_assert_not(budget_served);
    cr_assert_eq(answer_of(&asker), BUDGET_FORCE);
    /* Nor is it waited for again, until one is there. */
    cr_assert_eq(budget_policy(&some), BUDGET_FORCE);
    control_budget_alone();
    cr_assert_eq(budget_policy(&some), BUDGET_FORCE);
    while (sem_trywait(&budget_woken) == 0) {
    }
    welcome_of_one_that_answers();
    answer(asked(&asker, &some), WAY_SPILL);
    cr_assert_eq(answer_of(&asker), BUDGET_SPILL);
}

Test(control_budget, a_call_waits_for_as_long_as_the_agent_is_there)
{
    struct asker asker;

    welcome_of_one_that_answers();
    uint64_t id = asked(&asker, &some);
    for (unsigned i = 0; i < 100; i++) {
        asked_for(4);
        control_budget_heard();
    }
    answer(id, WAY_SPILL);
    cr_assert_eq(answer_of(&asker), BUDGET_SPILL);
}

/* It, or its machine, slept: the agent had no time to answer either. */
Test(control_budget, a_program_that_was_stopped_asks_again_before_it_gives_up)
{
    struct asker asker;

    welcome_of_one_that_answers();
    uint64_t id = asked(&asker, &some);
    asked_for(2);
    budget_clock_ns += 3600 * 1000000000ull;
    asked_for(2);
    answer(id, WAY_SPILL);
    cr_assert_eq(answer_of(&asker), BUDGET_SPILL);
}

Test(control_budget, nobody_is_asked_without_need_or_who_would_not_answer)
{
    struct asker asker;

    welcome_of_one_that_answers();
    cr_assert_eq(asked_for(20), 0);
    control_budget_alone();
    welcome(NULL, 0);
    uint64_t id = asked(&asker, &some);
    cr_assert_eq(asked_for(20), 0);
    answer(id, WAY_SPILL);
    cr_assert_eq(answer_of(&asker), BUDGET_SPILL);
}

/* Its device is lost, and the agent is to find it another one: no call of it need wait. */
Test(control_budget, an_agent_is_given_up_too_while_the_program_waits_as_a_whole)
{
    budget_waits = true;
    welcome(NULL, 0);
    cr_assert_eq(asked_for(20), 0, "one that would not answer");
    control_budget_alone();
    welcome_of_one_that_answers();
    for (unsigned i = 0; i < 10; i++) {
        asked_for(4);
        control_budget_heard();
    }
    cr_assert_eq(asked_for(5), 5);
    budget_clock_ns += 1000000000;
    serve();
    cr_assert_not(budget_served);
}

/* ---- fork ---- */

static void expect_child(pid_t child)
{
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status), "signal %d", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    cr_assert_eq(WEXITSTATUS(status), 0, "step %d", WEXITSTATUS(status));
}

/* The child is another program: it has nothing to say of what its parent was in the middle of. */
static int child_of_fork(void)
{
    struct asker asker;

    alarm(CHILD_S);
    if (budget_policy(&some) != BUDGET_FORCE)
        return 1;
    sem_trywait(&budget_woken);
    if (control_budget_needs() || serve() != 0)
        return 2;
    control_budget_begin();
    if (budget_grants != 0)
        return 3;
    welcome(NULL, 0);
    if (serve() != 0)
        return 4;
    /* What waits in the parent is not waited for. */
    for (int i = 5; i < 9; i++) {
        answer(asked(&asker, &some), WAY_SPILL);
        if (answer_of(&asker) != BUDGET_SPILL)
            return i;
    }
    return 0;
}

Test(control_budget, a_fork_leaves_waiting_to_the_parent)
{
    struct asker asker, unheard;

    welcome(three, 3);
    control_budget_alone(); /* The parent would wait for an agent that it lost just now. */
    welcome(three, 3);
    uint64_t id = asked(&asker, &some);
    budget_vdevs[0].granted = 10 * MIB;
    shrink(0, MIB);
    ask(&unheard, &some);
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0)
        _exit(child_of_fork());
    expect_child(child);
    cr_assert_eq(serve(), 2);
    cr_assert_str_eq(sent[0].type, MSG_NEED);
    expect_return(1, 0, 9 * MIB);
    answer(sent[0].id, WAY_AGAIN);
    answer(id, WAY_REFUSE);
    cr_assert_eq(answer_of(&unheard), BUDGET_AGAIN);
    cr_assert_eq(answer_of(&asker), BUDGET_REFUSE);
}

static void *begin_main(void *data)
{
    (void)data;
    control_budget_begin();
    return NULL;
}

/* A thread that the child does not have holds the lock. */
Test(control_budget, a_fork_in_the_middle_leaves_nothing_locked)
{
    pthread_t thread;

    welcome(three, 3);
    budget_read_blocks = true;
    cr_assert_eq(pthread_create(&thread, NULL, begin_main, NULL), 0);
    sem_wait(&budget_reading);
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        budget_read_blocks = false;
        _exit(child_of_fork());
    }
    expect_child(child);
}
