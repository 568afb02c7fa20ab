#include "tests/interpose/aware/test_aware.h"

#include <sys/wait.h>
#include <unistd.h>

/* The order of callbacks, and what becomes of a move when one of them fails. */

TestSuite(aware, .timeout = 120);

Test(aware, is_asked_before_a_move_and_configured_after_it)
{
    struct aware_program *program = aware_program_open();
    struct move_report report;
    cr_assert_eq(aware_program_move(program, "small", MOVE_ASKED, &report), MOVE_DONE, "%s",
                 report.reason);
    cr_assert_str_eq(aware_program_place(), "small");
    aware_program_expect(program, "checkpoint big>small, clean_up big>small, configure big>small, "
                                  "resume big>small");
    cr_assert_eq(aware_program_move(program, "big", MOVE_ASKED, NULL), MOVE_DONE);
    aware_program_expect(program, "checkpoint small>big, clean_up small>big, configure small>big, "
                                  "resume small>big");
}

Test(aware, is_not_asked_where_it_has_not_what_it_asks_for)
{
    struct aware_program *program = aware_program_open();
    struct reseat_limits least = {.work_group_size = 128};
    struct move_report report;
    cr_assert_eq(reseat_wish(&least, NULL), RESEAT_NO_AGENT);
    cr_assert_eq(aware_program_move(program, "small", MOVE_ASKED, &report), MOVE_REFUSED);
    cr_assert_str_eq(report.reason, "small: the program asks for 128 work-items in a work-group, "
                                    "the device offers 64");
    struct move_request dry = {.target = engine_rig_key(&program->rig, "small"), .dry_run = true};
    move_run(&dry, &report);
    cr_assert_eq(report.result, MOVE_REFUSED);
    least = (struct reseat_limits){.compute_units = 3};
    cr_assert_eq(reseat_wish(&least, NULL), RESEAT_NO_AGENT);
    move_run(&dry, &report);
    cr_assert_eq(report.result, MOVE_REFUSED);
    least.compute_units = 2;
    cr_assert_eq(reseat_wish(&least, NULL), RESEAT_NO_AGENT);
    move_run(&dry, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert_str_eq(aware_program_place(), "big");
    aware_program_expect(program, "");
}

struct failure {
    enum stage stage;
    const char *calls;
};

/* Where it fails, and what is called: what had begun is undone, on the device that it still has. */
static const struct failure failures[] = {
    {CHECKPOINT, "checkpoint big>small, cancel big>big~, resume big>big~"},
    {CLEAN_UP, "checkpoint big>small, clean_up big>small, cancel big>big~, configure big>big~, "
               "resume big>big~"},
    {CONFIGURE, "checkpoint big>small, clean_up big>small, configure big>small, cancel big>big~, "
                "configure big>big~, resume big>big~"},
    {RESUME, "checkpoint big>small, clean_up big>small, configure big>small, resume big>small, "
             "cancel big>big~, configure big>big~, resume big>big~"},
};

Test(aware, stays_where_it_is_when_a_callback_fails)
{
    struct aware_program *program = aware_program_open();
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        struct move_report report;
        char reason[128];
        program->fails[failures[i].stage] = 40 + (int)i;
        cr_assert_eq(aware_program_move(program, "small", MOVE_ASKED, &report), MOVE_ROLLED_BACK,
                     "%s: %s", stage_names[failures[i].stage], move_result_name(report.result));
        bool went = failures[i].stage == CONFIGURE || failures[i].stage == RESUME;
        snprintf(reason, sizeof(reason), "the program's %s callback failed (%d)%s",
                 stage_names[failures[i].stage], 40 + (int)i, went ? "; it is back on big" : "");
        cr_assert_str_eq(report.reason, reason);
        cr_assert_str_eq(aware_program_place(), "big");
        aware_program_expect(program, failures[i].calls);
        cr_assert_eq(aware_group(program), 256);
    }
    /* And it is as good as new. */
    cr_assert_eq(aware_program_move(program, "small", MOVE_ASKED, NULL), MOVE_DONE);
    cr_assert_str_eq(aware_program_place(), "small");
}

static void ends_its_thread(struct aware_program *program, const struct reseat_change *change)
{
    (void)change;
    for (unsigned i = 0; i < STAGES; i++)
        program->acts[i] = NULL;
    pthread_exit(NULL);
}

/* It has failed, and the next is called in another thread. */
Test(aware, stays_where_it_is_when_a_callback_ends_its_thread)
{
    struct aware_program *program = aware_program_open();
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        program->acts[failures[i].stage] = ends_its_thread;
        cr_assert_eq(aware_program_move(program, "small", MOVE_ASKED, NULL), MOVE_ROLLED_BACK);
        cr_assert_str_eq(aware_program_place(), "big");
        aware_program_expect(program, failures[i].calls);
    }
    cr_assert_eq(aware_program_move(program, "small", MOVE_ASKED, NULL), MOVE_DONE);
    cr_assert_str_eq(aware_program_place(), "small");
}

Test(aware, stays_where_it_is_when_a_callback_hangs)
{
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        static struct aware_program *program;
        struct move_report report;
        char reason[128];
        enum stage stage = failures[i].stage;
        if (!program) {
            program = aware_program_open_idle();
            program->program.checkpoint_ms = program->program.clean_up_ms =
                program->program.configure_ms = program->program.resume_ms = 250;
            cr_assert_eq(reseat_register(&program->program), RESEAT_OK);
        }
        atomic_store(&program->hangs[stage], true);
        uint64_t begin = engine_rig_now();
        cr_assert_eq(aware_program_move(program, "small", MOVE_ASKED, &report), MOVE_ROLLED_BACK,
                     "%s: %s", stage_names[stage], move_result_name(report.result));
        cr_assert_geq(engine_rig_now() - begin, 250000000u);
        snprintf(reason, sizeof(reason), "the program's %s callback has not returned for ",
                 stage_names[stage]);
        cr_assert_eq(strncmp(report.reason, reason, strlen(reason)), 0, "%s", report.reason);
        cr_assert_str_eq(aware_program_place(), "big");
        /* Meanwhile no other begins. */
        cr_assert_eq(aware_program_move(program, "other", MOVE_ASKED, &report), MOVE_REFUSED);
        cr_assert_eq(strncmp(report.reason, reason, strlen(reason)), 0, "%s", report.reason);
        atomic_store(&program->hangs[stage], false);
        /* One that did not come back from `resume` may have gone on: its checkpoint is old. */
        aware_program_expect(program, stage != RESUME
                                          ? failures[i].calls
                                          : "checkpoint big>small, clean_up big>small, configure "
                                            "big>small, resume big>small, checkpoint small>big^, "
                                            "clean_up small>big^, configure small>big^, resume "
                                            "small>big^");
    }
}

/* What moves it while it resumes finds a program that goes on, which has to be asked again. */
Test(aware, is_asked_again_when_it_is_moved_while_it_resumes)
{
    struct aware_program *program = aware_program_open();
    struct aware_move move;
    atomic_store(&program->hangs[RESUME], true);
    aware_move_begin(program, &move, "small", MOVE_ASKED, 0);
    aware_program_await(program, RESUME, 1);
    cr_assert_eq(aware_program_move(program, "other", MOVE_NEEDED, NULL), MOVE_DONE);
    atomic_store(&program->hangs[RESUME], false);
    cr_assert_eq(aware_move_end(&move), MOVE_DONE, "%s", move.report.reason);
    aware_program_expect(program, "checkpoint big>small, clean_up big>small, configure big>small, "
                                  "resume big>small, checkpoint small>other^, clean_up "
                                  "small>other^, configure small>other^, resume small>other^");
}

/* The same callbacks while the operator changes their mind, or sets a deadline. */
Test(aware, stays_where_it_is_when_the_operator_cancels)
{
    struct aware_program *program = aware_program_open();
    for (size_t i = 0; i < 2; i++) {
        enum stage stage = failures[i].stage;
        struct aware_move move;
        atomic_store(&program->hangs[stage], true);
        unsigned seen = atomic_load(&program->entered[stage]);
        aware_move_begin(program, &move, "small", MOVE_ASKED, 0);
        aware_program_await(program, stage, seen + 1);
        atomic_store(&move.cancel, true);
        cr_assert_eq(aware_move_end(&move), MOVE_CANCELED);
        atomic_store(&program->hangs[stage], false);
        aware_program_expect(program, failures[i].calls);

        atomic_store(&program->hangs[stage], true);
        aware_move_begin(program, &move, "small", MOVE_ASKED, 300);
        cr_assert_eq(aware_move_end(&move), MOVE_EXPIRED);
        cr_assert_not_null(strstr(move.report.reason, stage_names[stage]), "%s",
                           move.report.reason);
        atomic_store(&program->hangs[stage], false);
        aware_program_expect(program, failures[i].calls);
    }
    /* After COMMIT there is no way back: its deadline ends only the wait. */
    struct aware_move move;
    atomic_store(&program->hangs[CONFIGURE], true);
    aware_move_begin(program, &move, "small", MOVE_ASKED, 2000);
    cr_assert_eq(aware_move_end(&move), MOVE_DONE, "%s", move.report.reason);
    atomic_store(&program->hangs[CONFIGURE], false);
    aware_program_expect(program, "checkpoint big>small, clean_up big>small, configure big>small, "
                                  "resume big>small");
}

/* What it had not cleaned up it does where it is by then. */
static const char *const taken_calls[] = {
    "checkpoint big>small!, checkpoint big>small^, clean_up big>small^, configure big>small^, "
    "resume big>small^",
    "checkpoint big>small!, clean_up big>small!, configure big>small!, resume big>small!",
};

static void taken(bool hangs, enum stage stage)
{
    struct aware_program *program = aware_program_open_idle();
    struct move_report report;
    program->program.checkpoint_ms = program->program.clean_up_ms = hangs ? 200 : 10000;
    cr_assert_eq(reseat_register(&program->program), RESEAT_OK);
    program->fails[stage] = hangs ? 0 : 3;
    atomic_store(&program->hangs[stage], hangs);
    cr_assert_eq(aware_program_move(program, "small", MOVE_TAKEN, &report), MOVE_DONE, "%s",
                 report.reason);
    cr_assert_str_eq(aware_program_place(), "small");
    atomic_store(&program->hangs[stage], false);
    aware_program_expect(program, taken_calls[stage]);
    cr_assert_eq(aware_group(program), 64);
    cr_assert_eq(aware_program_move(program, "big", MOVE_TAKEN, &report), MOVE_DONE);
    aware_program_expect(program, "checkpoint small>big!, clean_up small>big!, configure "
                                  "small>big!, resume small>big!");
}

TestCall(aware, is_moved_without_its_help_when_its_device_is_taken_and_checkpoint_fails,
         taken(false, CHECKPOINT));
TestCall(aware, is_moved_without_its_help_when_its_device_is_taken_and_clean_up_fails,
         taken(false, CLEAN_UP));
TestCall(aware, is_moved_without_its_help_when_its_device_is_taken_and_checkpoint_hangs,
         taken(true, CHECKPOINT));
TestCall(aware, is_moved_without_its_help_when_its_device_is_taken_and_clean_up_hangs,
         taken(true, CLEAN_UP));

Test(aware, is_taken_from_one_device_after_another_while_it_hangs)
{
    struct aware_program *program = aware_program_open_idle();
    program->program.checkpoint_ms = 200;
    cr_assert_eq(reseat_register(&program->program), RESEAT_OK);
    atomic_store(&program->hangs[CHECKPOINT], true);
    cr_assert_eq(aware_program_move(program, "small", MOVE_TAKEN, NULL), MOVE_DONE);
    cr_assert_eq(aware_program_move(program, "other", MOVE_TAKEN, NULL), MOVE_DONE);
    cr_assert_str_eq(aware_program_place(), "other");
    atomic_store(&program->hangs[CHECKPOINT], false);
    aware_program_expect(program, "checkpoint big>small!, checkpoint big>other^, clean_up "
                                  "big>other^, configure big>other^, resume big>other^");
}

Test(aware, is_told_of_a_move_that_it_was_not_asked_about)
{
    struct aware_program *program = aware_program_open();
    struct move_report report;
    cr_assert_eq(aware_program_move(program, "small", MOVE_NEEDED, &report), MOVE_DONE);
    aware_program_expect(program, "checkpoint big>small^, clean_up big>small^, configure "
                                  "big>small^, resume big>small^");
    cr_assert_eq(aware_group(program), 64);
    /* What fails then is undone, and it stays: there is no reconfiguration to cancel. */
    program->fails[CHECKPOINT] = 1;
    cr_assert_eq(aware_program_move(program, "other", MOVE_NEEDED, &report), MOVE_DONE);
    aware_program_expect(program,
                         "checkpoint small>other^, cancel small>other~, resume small>other~");
    cr_assert_str_eq(aware_program_place(), "other");
    cr_assert_eq(aware_group(program), 64);
    program->fails[CLEAN_UP] = 1;
    cr_assert_eq(aware_program_move(program, "big", MOVE_NEEDED, &report), MOVE_DONE);
    aware_program_expect(program, "checkpoint small>big^, clean_up small>big^, cancel small>big~, "
                                  "configure small>big~, resume small>big~");
    cr_assert_eq(aware_group(program), 256);
}

Test(aware, is_configured_when_it_has_a_device_again)
{
    struct aware_program *program = aware_program_open();
    cr_assert_eq(aware_program_move(program, NULL, MOVE_ASKED, NULL), MOVE_DONE);
    aware_program_expect(program, "checkpoint big>none, clean_up big>none");
    struct reseat_device device = {.size = sizeof(device)};
    cr_assert_eq(reseat_current(NULL, &device), RESEAT_OK);
    cr_assert_eq(device.kind, 0);
    cr_assert_eq(aware_program_move(program, "small", MOVE_ASKED, NULL), MOVE_DONE);
    aware_program_expect(program, "configure none>small, resume none>small");
    /* One that does not come off is canceled. */
    program->fails[CLEAN_UP] = 1;
    cr_assert_eq(aware_program_move(program, NULL, MOVE_ASKED, NULL), MOVE_ROLLED_BACK);
    aware_program_expect(program, "checkpoint small>none, clean_up small>none, cancel "
                                  "small>small~, configure small>small~, resume small>small~");
}

static void unregister(struct aware_program *program, const struct reseat_change *change)
{
    (void)program;
    (void)change;
    cr_assert_eq(reseat_unregister(), RESEAT_OK);
    cr_assert_eq(reseat_unregister(), RESEAT_UNREGISTERED);
}

Test(aware, may_unregister_in_any_callback)
{
    struct aware_program *program = aware_program_open_idle();
    static const char *const calls[] = {
        "checkpoint big>small",
        "checkpoint big>small, clean_up big>small",
        "checkpoint big>small, clean_up big>small, configure big>small",
        "checkpoint big>small, clean_up big>small, configure big>small, resume big>small",
    };
    for (int stage = CHECKPOINT; stage <= RESUME; stage++) {
        struct move_report report;
        cr_assert_eq(reseat_register(&program->program), RESEAT_OK);
        cr_assert_eq(reseat_register(&program->program), RESEAT_ALREADY);
        program->acts[stage] = unregister;
        cr_assert_eq(aware_program_move(program, "small", MOVE_ASKED, &report), MOVE_DONE, "%s",
                     report.reason);
        aware_program_expect(program, calls[stage]);
        program->acts[stage] = NULL;
        cr_assert_eq(aware_program_move(program, "big", MOVE_ASKED, &report), MOVE_DONE);
        aware_program_expect(program, "");
    }
}

Test(aware, unregisters_while_a_callback_runs)
{
    struct aware_program *program = aware_program_open_idle();
    struct aware_move move;
    program->program.checkpoint_ms = 1000;
    cr_assert_eq(reseat_register(&program->program), RESEAT_OK);
    atomic_store(&program->hangs[CHECKPOINT], true);
    aware_move_begin(program, &move, "small", MOVE_ASKED, 0);
    aware_program_await(program, CHECKPOINT, 1);
    uint64_t begin = engine_rig_now();
    cr_assert_eq(reseat_unregister(), RESEAT_BUSY);
    cr_assert_lt(engine_rig_now() - begin, 10000000000u);
    cr_assert_eq(aware_move_end(&move), MOVE_DONE, "%s", move.report.reason);
    atomic_store(&program->hangs[CHECKPOINT], false);
    aware_program_expect(program, "checkpoint big>small");
    /* The thread is free again for whoever registers next. */
    cr_assert_eq(reseat_register(&program->program), RESEAT_OK);
    cr_assert_eq(aware_program_move(program, "big", MOVE_ASKED, NULL), MOVE_DONE);
    aware_program_expect(program, "checkpoint small>big, clean_up small>big, configure small>big, "
                                  "resume small>big");
}

static void fork_in_callback(struct aware_program *program, const struct reseat_change *change)
{
    (void)change;
    pid_t child = fork();
    int status = -1;
    if (child == 0) {
        bool good = reseat_unregister() == RESEAT_UNREGISTERED &&
                    reseat_register(&program->program) == RESEAT_OK &&
                    reseat_unregister() == RESEAT_OK;
        _exit(good ? 21 : 22);
    }
    cr_assert(child > 0 && waitpid(child, &status, 0) == child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 21, "%x", status);
}

Test(aware, does_not_pass_its_registration_to_children)
{
    struct aware_program *program = aware_program_open();
    fork_in_callback(program, NULL);
    for (int stage = CHECKPOINT; stage <= RESUME; stage++)
        program->acts[stage] = fork_in_callback;
    cr_assert_eq(aware_program_move(program, "small", MOVE_ASKED, NULL), MOVE_DONE);
    aware_program_expect(program, "checkpoint big>small, clean_up big>small, configure big>small, "
                                  "resume big>small");
}

/* A callback that never returns does not keep the process. */
Test(aware, ends_while_a_callback_hangs, .exit_code = 7)
{
    struct aware_program *program = aware_program_open();
    struct aware_move move;
    atomic_store(&program->hangs[CLEAN_UP], true);
    aware_move_begin(program, &move, "small", MOVE_ASKED, 0);
    aware_program_await(program, CLEAN_UP, 1);
    exit(7);
}
