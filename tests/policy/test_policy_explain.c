#include "tests/policy/policy_world.h"
#include "tests/support/leaks.h"

/* Why a program is where it is, and what would change that. */
TestSuite(policy_explain, .fini = leaks_check, .timeout = 60);

static void expect_text(struct world *w, const struct policy_program *p, const char *expected)
{
    char text[2048];

    policy_explain(&w->world, &w->settings, world_id(w, p), text, sizeof(text));
    cr_expect_str_eq(text, expected);
}

/* gpu0 of 8 MiB with p0 (4), gpu1 of 6 MiB, and three that it cannot use. */
static struct policy_program *one(struct world *w)
{
    world_init(w, 1);
    world_add_device(w, 8);
    world_add_device(w, 6)->speed = 1500;
    world_add_device(w, 3);
    world_add_device(w, 8)->drains = true;
    world_add_device(w, 8);
    world_add_device(w, 8)->gone = true; /* Nothing is said of it. */
    struct policy_program *p = world_add_program(w, 0, 4);
    w->barred[0] = 1 << 4;
    return p;
}

#define OTHERS                                                                                     \
    "gpu2: too small, it has 3 MiB and p0 needs 4 MiB.\n"                                          \
    "gpu3: is drained.\n"                                                                          \
    "gpu4: p0 would not run there.\n"
#define FITS "gpu1: fits, 6 MiB free of 6 MiB, busy 0%, speed 1.500, price 1.00.\n"

Test(policy_explain, one_that_runs)
{
    struct world w;

    struct policy_program *p = one(&w);
    expect_text(&w, p,
                "p0 has run on gpu0 for 100 s; it has 4 MiB and may have 4 MiB there.\n"
                "It moves up when gpu0 is busy more than 85% of the time (now 50%), down when it "
                "uses less than 15% (now 50%).\n" FITS OTHERS);
    p->stayed_s = 12;
    expect_text(&w, p,
                "p0 has run on gpu0 for 12 s; it has 4 MiB and may have 4 MiB there.\n"
                "The policy may move it in 18 s: the minimum stay is 30 s.\n" FITS OTHERS);
    p->stayed_s = 100;
    w.world.recent_moves = 12;
    expect_text(
        &w, p,
        "p0 has run on gpu0 for 100 s; it has 4 MiB and may have 4 MiB there.\n"
        "It may move later: 0 moves of it and 12 of all in 60 s are used up.\n" FITS OTHERS);
    w.world.recent_moves = 0;
    p->pinned = true;
    expect_text(&w, p,
                "p0 has run on gpu0 for 100 s; it has 4 MiB and may have 4 MiB there.\n"
                "It is pinned: nothing moves it.\n" FITS OTHERS);
}

Test(policy_explain, one_that_is_held_up_or_spills_or_idles)
{
    struct world w;

    struct policy_program *p = one(&w);
    p->busy = 1000;
    world_refresh(&w);
    expect_text(&w, p,
                "p0 has run on gpu0 for 100 s; it has 4 MiB and may have 4 MiB there.\n"
                "gpu0 is busy 100% of the time: a device that is 25% faster as loaded, with 4 MiB "
                "free, takes it up.\n" FITS OTHERS);
    p->busy = 0;
    world_refresh(&w);
    expect_text(
        &w, p,
        "p0 has run on gpu0 for 100 s; it has 4 MiB and may have 4 MiB there.\n"
        "It keeps gpu0 busy 0% of the time: a device 20% cheaper with 4 MiB free, or one in "
        "use while it is alone here, takes it.\n" FITS OTHERS);
    p->granted = MIB;
    p->quota = 3 * MIB;
    world_refresh(&w);
    expect_text(&w, p,
                "p0 has run on gpu0 for 100 s, with 1 MiB of 4 MiB on the device and the rest in "
                "host memory.\n"
                "With 2 MiB more free on gpu0 it takes back what it spilled.\n"
                "Its quota of 3 MiB keeps it from having all there.\n" FITS OTHERS);
}

Test(policy_explain, those_that_wait)
{
    struct policy_program *first, *second;
    struct world w;

    world_init(&w, 1);
    world_add_device(&w, 8);
    world_add_device(&w, 8);
    world_add_program(&w, 1, 8);
    first = world_add_program(&w, 0, 4);
    second = world_add_program(&w, POLICY_NONE, 6);
    world_add_program(&w, 0, 4);
    first->ways = second->ways = POLICY_WAIT;
    world_ask(&w, first, 2);
    first->priority = 1;
    first->waited_s = 7;
    w.settings.wait_deadline_s = 60;
    world_refresh(&w);
    w.programs[0].ways = w.programs[3].ways = 0;
    expect_text(&w, first,
                "p1 waits on gpu0 for 2 MiB more, number 1 in the queue for 7 s.\n"
                "Next: wait (gpu0 has 0 bytes free of 8 MiB, p1 needs 2 MiB more; it waits for "
                "2 MiB more on gpu0).\n"
                "Waiting is expected to take 100000.0 s.\n"
                "It goes on when 2 MiB more are free on gpu0.\n"
                "It is refused when it has waited 60 s.\n"
                "gpu1: 0 bytes free of 8 MiB, p1 needs 6 MiB.\n");
    expect_text(&w, second,
                "p2 is on no device and needs 6 MiB, number 2 in the queue for 0 s.\n"
                "Next: wait (p2 needs 6 MiB; it waits behind p1).\n"
                "Waiting is expected to take 100000.5 s.\n"
                "It goes on when 6 MiB more are free on gpu1.\n"
                "A priority above 1 puts it in front.\n"
                "gpu0: 0 bytes free of 8 MiB, p2 needs 6 MiB.\n"
                "gpu1: 0 bytes free of 8 MiB, p2 needs 6 MiB.\n");
    /* One that could be displaced. */
    w.programs[0].ways = POLICY_SUSPEND;
    w.programs[0].priority = 3;
    expect_text(&w, second,
                "p2 is on no device and needs 6 MiB, number 2 in the queue for 0 s.\n"
                "Next: wait (p2 needs 6 MiB; it waits behind p1).\n"
                "Waiting is expected to take 100000.5 s.\n"
                "It goes on when 6 MiB more are free on gpu1.\n"
                "A priority above 3 displaces p0 there.\n"
                "A priority above 1 puts it in front.\n"
                "gpu0: 0 bytes free of 8 MiB, p2 needs 6 MiB.\n"
                "gpu1: 0 bytes free of 8 MiB, p2 needs 6 MiB.\n");
}

Test(policy_explain, what_does_not_fit_is_cut_at_a_whole_line)
{
    char whole[2048], text[2048];
    struct world w;

    struct policy_program *p = one(&w);
    policy_explain(&w.world, &w.settings, 0, whole, sizeof(whole));
    for (size_t size = 0; size < sizeof(text); size++) {
        size_t length;

        memset(text, 'x', sizeof(text));
        policy_explain(&w.world, &w.settings, world_id(&w, p), text, size);
        cr_assert_eq(text[size], 'x');
        if (!size)
            continue;
        length = strlen(text);
        cr_assert_lt(length, size);
        cr_assert_eq(strncmp(text, whole, length), 0);
        cr_assert(!length || text[length - 1] == '\n');
        cr_assert(length + strcspn(whole + length, "\n") + 1 >= size || !whole[length]);
    }
}

/* Of others' programs a user learns that they are in the way, and how important they are. */
Test(policy_explain, programs_of_other_users_have_no_names)
{
    struct policy_program *first, *second;
    struct world w;

    world_init(&w, 1);
    world_add_device(&w, 8);
    world_add_program(&w, 0, 8);
    first = world_add_program(&w, POLICY_NONE, 6);
    second = world_add_program(&w, POLICY_NONE, 6);
    first->ways = second->ways = POLICY_WAIT;
    world_refresh(&w);
    first->owner = w.programs[0].owner = 64001;
    second->owner = 64002;
    w.programs[0].priority = 3;
    const char others[] = "p2 is on no device and needs 6 MiB, number 2 in the queue for 0 s.\n"
                          "Next: wait (p2 needs 6 MiB; it waits behind another user's program).\n"
                          "Waiting is expected to take 100000.5 s.\n"
                          "It goes on when 6 MiB more are free on gpu0.\n"
                          "A priority above 3 displaces another user's program there.\n"
                          "A priority above 0 puts it in front.\n"
                          "gpu0: 0 bytes free of 8 MiB, p2 needs 6 MiB.\n";
    expect_text(&w, second, others);
    w.world.for_all = true;
    expect_text(&w, second,
                "p2 is on no device and needs 6 MiB, number 2 in the queue for 0 s.\n"
                "Next: wait (p2 needs 6 MiB; it waits behind p1).\n"
                "Waiting is expected to take 100000.5 s.\n"
                "It goes on when 6 MiB more are free on gpu0.\n"
                "A priority above 3 displaces p0 there.\n"
                "A priority above 0 puts it in front.\n"
                "gpu0: 0 bytes free of 8 MiB, p2 needs 6 MiB.\n");
    w.world.for_all = false;
    expect_text(&w, first,
                "p1 is on no device and needs 6 MiB, number 1 in the queue for 0 s.\n"
                "Next: wait (p1 needs 6 MiB; it waits for 6 MiB more on gpu0).\n"
                "Waiting is expected to take 100000.5 s.\n"
                "It goes on when 6 MiB more are free on gpu0.\n"
                "A priority above 3 displaces p0 there.\n"
                "gpu0: 0 bytes free of 8 MiB, p1 needs 6 MiB.\n");
}

/* Whoever is displaced is told of whom is displaced, and who reads of it of that one's own. */
Test(policy_explain, who_is_displaced_for_whom_is_said_to_neither)
{
    struct policy_step step;
    struct world w;
    char text[2048];

    world_init(&w, 1);
    world_add_device(&w, 8);
    world_add_program(&w, 0, 8)->owner = 64001;
    struct policy_program *p = world_add_program(&w, POLICY_NONE, 6);
    p->owner = 64002;
    p->priority = 1;
    world_refresh(&w);
    policy_answer(&w.world, &w.settings, 1, &step);
    cr_expect_eq(step.program, 0);
    cr_expect(strstr(step.reason, "another user's program needs 6 MiB on gpu0"), "%s", step.reason);
    cr_expect(strstr(step.reason, ": p0 "), "%s", step.reason);
    policy_explain(&w.world, &w.settings, 1, text, sizeof(text));
    cr_expect(strstr(text, "(p1 needs 6 MiB on gpu0"), "%s", text);
    cr_expect(!strstr(text, "p0"), "%s", text);
}
