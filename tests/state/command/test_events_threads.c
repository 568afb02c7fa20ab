#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#include "tests/state/command/test_events.h"
#include "tests/support/comes.h"

/* Threads of the program that it cancels while they wait, and callbacks that end theirs. */

/* Its own stack for signals does not survive threads that are unwound. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "use_sigaltstack=0";
}

enum { CALLBACKS = 100 };

TestSuite(events_threads, .timeout = 120);

struct waits {
    struct events_scene *scene;
    cl_event user;
    sem_t begins;
};

static void *waits_for_an_event(void *data)
{
    struct waits *waits = data;
    sem_post(&waits->begins);
    (void)clWaitForEvents(1, &waits->user);
    return NULL;
}

static void *waits_for_a_queue(void *data)
{
    struct waits *waits = data;
    sem_post(&waits->begins);
    (void)clFinish(waits->scene->program.queue);
    return NULL;
}

static void *waits_for_a_read(void *data)
{
    static cl_uint words[EVENTS_WORDS];
    struct waits *waits = data;
    sem_post(&waits->begins);
    (void)clEnqueueReadBuffer(waits->scene->program.queue, waits->scene->buffer, CL_TRUE, 0,
                              sizeof(words), words, 1, &waits->user, NULL);
    return NULL;
}

static void *waits_for_a_map(void *data)
{
    struct waits *waits = data;
    cl_int error;
    sem_post(&waits->begins);
    (void)clEnqueueMapBuffer(waits->scene->program.queue, waits->scene->buffer, CL_TRUE,
                             CL_MAP_READ, 0, sizeof(cl_uint), 1, &waits->user, NULL, &error);
    return NULL;
}

/* What waits is canceled; then what it waited for goes on, and all else does. */
static void is_canceled(void *(*wait)(void *))
{
    struct events_scene s;
    struct waits waits = {.scene = &s};
    pthread_t thread;
    void *result;
    events_open(&s, EVENTS_CONFIG, 0);
    events_check_words(&s, s.program.queue, 0);
    waits.user = events_user(&s);
    cl_event held = events_add(&s, s.program.queue, 1, &waits.user);
    sem_init(&waits.begins, 0, 0);
    cr_assert_eq(pthread_create(&thread, NULL, wait, &waits), 0);
    sem_wait(&waits.begins);
    engine_rig_sleep(20); /* now it waits, or does soon: either is to be survived */
    cr_assert_eq(pthread_cancel(thread), 0);
    cr_assert_eq(pthread_join(thread, &result), 0);
    cr_assert_eq(result, PTHREAD_CANCELED);
    cr_assert_eq(events_status(held), CL_QUEUED);
    engine_rig_moves(&s.rig, "two");
    OK(clSetUserEventStatus(waits.user, CL_COMPLETE));
    OK(clWaitForEvents(1, &held));
    events_check_words(&s, s.program.queue, 1);
    RELEASE(held, waits.user);
    engine_rig_moves(&s.rig, "one");
    events_check_words(&s, s.program.queue, 1);
    /* Nobody keeps what the other device had. */
    cr_assert(engine_rig_empties(&s.rig, "two"), "%s", engine_rig_alive(&s.rig, "two"));
    cr_assert_eq(object_count(OBJECT_EVENT), 0);
}

TestCall(events_threads, a_thread_that_waits_for_an_event_is_canceled,
         is_canceled(waits_for_an_event));
TestCall(events_threads, a_thread_that_finishes_a_queue_is_canceled,
         is_canceled(waits_for_a_queue));
TestCall(events_threads, a_thread_in_a_blocking_read_is_canceled, is_canceled(waits_for_a_read));
TestCall(events_threads, a_thread_in_a_blocking_map_is_canceled, is_canceled(waits_for_a_map));

static void *works_on(void *data)
{
    struct waits *waits = data;
    cl_kernel kernel = engine_kernel(waits->scene->program.program, "add");
    const cl_uint none = 0;
    const size_t items = EVENTS_WORDS;
    OK(clSetKernelArg(kernel, 0, sizeof(cl_mem), &waits->scene->buffer));
    OK(clSetKernelArg(kernel, 1, sizeof(none), &none));
    sem_post(&waits->begins);
    for (;;) {
        cl_event event;
        OK(clEnqueueNDRangeKernel(waits->scene->program.queue, kernel, 1, NULL, &items, NULL, 0,
                                  NULL, &event));
        OK(clWaitForEvents(1, &event));
        OK(clReleaseEvent(event));
        pthread_testcancel();
    }
    return NULL;
}

/* Wherever they are: in the engine, or in the driver. */
Test(events_threads, threads_that_work_are_canceled)
{
    struct events_scene s;
    struct waits waits = {.scene = &s};
    events_open(&s, EVENTS_CONFIG, 0);
    sem_init(&waits.begins, 0, 0);
    for (unsigned i = 0; i < 20; i++) {
        pthread_t thread;
        cr_assert_eq(pthread_create(&thread, NULL, works_on, &waits), 0);
        sem_wait(&waits.begins);
        engine_rig_sleep(i % 5);
        cr_assert_eq(pthread_cancel(thread), 0);
        cr_assert_eq(pthread_join(thread, NULL), 0);
        if (i % 4 == 3)
            engine_rig_moves(&s.rig, i % 8 == 3 ? "two" : "one");
    }
    OK(clFinish(s.program.queue));
    events_check_words(&s, s.program.queue, 0);
}

static _Atomic unsigned calls;

static void CL_CALLBACK ends_its_thread(cl_event event, cl_int status, void *data)
{
    (void)event, (void)status, (void)data;
    atomic_fetch_add(&calls, 1);
    pthread_exit(NULL);
}

static void CL_CALLBACK returns(cl_event event, cl_int status, void *data)
{
    (void)event, (void)status, (void)data;
    atomic_fetch_add(&calls, 1);
}

Test(events_threads, callbacks_that_end_their_threads_are_all_called)
{
    struct events_scene s;
    events_open(&s, EVENTS_CONFIG, 0);
    for (unsigned i = 0; i < CALLBACKS / 4; i++) {
        cl_event event = events_add(&s, s.program.queue, 0, NULL);
        for (unsigned j = 0; j < 4; j++)
            OK(clSetEventCallback(event, CL_COMPLETE, j == 2 ? returns : ends_its_thread, NULL));
        OK(clWaitForEvents(1, &event));
        OK(clReleaseEvent(event));
    }
    cr_assert(events_wait(&calls, CALLBACKS), "%u called", calls);
    /* Each event, which its callbacks kept, is gone. */
    cr_assert(COMES(object_count(OBJECT_EVENT) == 0, 10 * NS_PER_S));
    events_check_words(&s, s.program.queue, CALLBACKS / 4);
}

static void CL_CALLBACK built(cl_program program, void *data)
{
    (void)program, (void)data;
    atomic_fetch_add(&calls, 1);
    pthread_exit(NULL);
}

Test(events_threads, a_build_whose_callback_ends_its_thread_has_ended)
{
    struct events_scene s;
    events_open(&s, EVENTS_CONFIG, 0);
    static const char *const source = "__kernel void k(__global uint *w) { w[0] = 1; }";
    for (unsigned i = 1; i <= 3; i++) {
        cl_program program =
            MADE(clCreateProgramWithSource, s.program.context, 1, (const char **)&source, NULL);
        OK(clBuildProgram(program, 0, NULL, "", built, NULL));
        cr_assert(events_wait(&calls, i), "%u called", calls);
        OK(clReleaseProgram(program));
    }
    cr_assert(COMES(object_count(OBJECT_PROGRAM) == 1, 10 * NS_PER_S));
}

struct mask {
    sigset_t set;
    sem_t called;
};

static void CL_CALLBACK look_at_the_mask(cl_event event, cl_int status, void *data)
{
    struct mask *mask = data;
    (void)event, (void)status;
    pthread_sigmask(SIG_SETMASK, NULL, &mask->set);
    sem_post(&mask->called);
}

/* What it forks there gets the mask, and nobody could end it. */
Test(events_threads, a_callback_has_the_signals_of_the_program)
{
    struct events_scene s;
    struct mask mask;
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    events_open(&s, EVENTS_CONFIG, 0);
    sem_init(&mask.called, 0, 0);
    cl_event event = events_add(&s, s.program.queue, 0, NULL);
    OK(clSetEventCallback(event, CL_COMPLETE, look_at_the_mask, &mask));
    OK(clFinish(s.program.queue));
    sem_wait(&mask.called);
    cr_assert(sigismember(&mask.set, SIGUSR1));
    cr_assert_not(sigismember(&mask.set, SIGTERM));
    OK(clReleaseEvent(event));
}

static void *waits_again_and_again(void *data)
{
    cl_event *event = data;
    for (;;)
        (void)clWaitForEvents(1, event);
    return NULL;
}

Test(events_threads, a_thread_that_waits_for_what_has_ended_is_canceled)
{
    struct events_scene s;
    pthread_t thread;
    void *result;
    events_open(&s, EVENTS_CONFIG, 0);
    cl_event event = events_add(&s, s.program.queue, 0, NULL);
    cr_assert_eq(pthread_create(&thread, NULL, waits_again_and_again, &event), 0);
    cr_assert_eq(pthread_cancel(thread), 0);
    cr_assert_eq(pthread_join(thread, &result), 0);
    cr_assert_eq(result, PTHREAD_CANCELED);
    engine_rig_moves(&s.rig, "two");
    OK(clWaitForEvents(1, &event));
    OK(clReleaseEvent(event));
}
