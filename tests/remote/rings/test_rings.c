#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "remote/rings/area.h"
#include "tests/remote/rings/link_rig.h"

#define CAPACITY ((size_t)4096)
#define THREADS  6
#define EACH     20000u

static struct rings_pair pair;

static void two_rings(void)
{
    rings_pair_init(&pair, 2, CAPACITY);
}

static void eight_rings(void)
{
    rings_pair_init(&pair, 8, CAPACITY);
}

static void end(void)
{
    rings_pair_finish(&pair);
}

static int take(uint64_t deadline_ns, size_t *ret_size, uint64_t *ret_number)
{
    return rings_take(pair.reader, pair.buffer, deadline_ns, ret_size, ret_number);
}

/* Take a frame that has to be this one. */
static void takes(uint64_t number, size_t size, uint64_t seed)
{
    uint64_t got_number;
    size_t got_size;
    cr_assert_eq(take(soon(), &got_size, &got_number), 0);
    cr_assert_eq(got_number, number);
    cr_assert_eq(got_size, size);
    cr_assert(frame_is(pair.buffer, size, seed));
}

static void is_empty(void)
{
    uint64_t number;
    size_t size;
    cr_assert_eq(take(clock_now_ns() + 1, &size, &number), -ETIMEDOUT);
}

/* Which rings were written to, in the area that both sides have. */
static uint64_t used_rings(void)
{
    uint64_t used;
    cr_assert_eq(pread(pair.fd, &used, sizeof(used), 128), sizeof(used));
    return used;
}

Test(rings, only_some_shapes_can_be)
{
    const struct rings_shape no[] = {{1, CAPACITY}, {65, CAPACITY}, {8, 2048},
                                     {8, 3 * 4096}, {8, 0},         {8, 32 << 20},
                                     {0, CAPACITY}, {8, SIZE_MAX},  {UINT32_MAX, CAPACITY}};
    struct bell_peer peer = {.socket = OWNED_NONE};
    struct rings_writer *writer = NULL;
    struct rings_reader *reader = NULL;
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
        cr_assert_eq(rings_size(&no[i]), 0);
        cr_assert_eq(rings_writer_create(&no[i], -1, &peer, &writer), -EINVAL);
        cr_assert_eq(rings_reader_create(&no[i], -1, &peer, &reader), -EINVAL);
    }
    const struct rings_shape most = {64, RINGS_CAPACITY_MOST}, least = {2, CAPACITY};
    cr_assert_eq(rings_size(&most), 4096 + 64 * (4096 + RINGS_CAPACITY_MOST));
    cr_assert_eq(rings_size(&least), 4096 + 2 * (4096 + CAPACITY));
    int fd;
    cr_assert_eq(area_create("test", rings_size(&least) + 4096, &fd), 0);
    cr_assert_eq(rings_writer_create(&least, fd, &peer, &writer), -EPROTO);
    cr_assert_eq(rings_reader_create(&least, fd, &peer, &reader), -EPROTO);
    close(fd);
    cr_assert(!writer && !reader);
}

Test(rings, frames_come_as_they_were_posted, .init = two_rings, .fini = end)
{
    const size_t most = rings_frame_most(&pair.shape);
    struct dice dice = {3};
    uint64_t number;
    char none;
    const struct iovec large = {&none, most + 1}, sum[] = {{&none, SIZE_MAX}, {&none, 2}};
    for (uint64_t i = 0; i < 3000; i++) {
        size_t size = i % 2 ? dice_below(&dice, most + 1) : dice_below(&dice, 64);
        cr_assert_eq(post_filled(pair.writer, size, i, &number), 0);
        cr_assert_eq(number, i);
        takes(i, size, i);
    }
    cr_assert_eq(rings_post(pair.writer, &large, 1, soon(), NULL), -EMSGSIZE);
    cr_assert_eq(rings_post(pair.writer, sum, 2, soon(), NULL), -EMSGSIZE);
    is_empty();
    cr_assert_eq(post_filled(pair.writer, 5, 5, &number), 0);
    cr_assert_eq(number, 3000); /* what was refused has none */
}

Test(rings, a_full_ring_is_waited_for_until_the_deadline, .init = two_rings, .fini = end)
{
    char bytes[1000] = {0};
    const struct iovec part = {bytes, sizeof(bytes)};
    uint64_t number = 99;
    unsigned posted = 0;
    int err;
    while ((err = rings_post(pair.writer, &part, 1, clock_now_ns() + NS_PER_MS, &number)) == 0)
        posted++;
    cr_assert_eq(err, -ETIMEDOUT);
    cr_assert_eq(posted, CAPACITY / 1024);
    cr_assert_eq(number, posted - 1); /* untouched by what failed */
    for (unsigned i = 0; i < posted; i++) {
        size_t size;
        cr_assert_eq(take(soon(), &size, &number), 0);
        cr_assert_eq(number, i);
    }
    is_empty();
}

/* ---- one order ---- */

struct message {
    uint64_t thread, count, began; /* when its post began, by the clock of all threads */
};
static _Atomic uint64_t ticks, ended[THREADS * EACH];
static atomic_uint threads_begun;
static bool with_sleeps;

static void *posts_messages(void *data)
{
    struct message message = {.thread = (uint64_t)(uintptr_t)data};
    struct dice dice = {message.thread};
    char padding[512] = {0};
    atomic_fetch_add(&threads_begun, 1);
    for (message.count = 0; message.count < EACH; message.count++) {
        uint64_t number;
        message.began = atomic_fetch_add(&ticks, 1);
        const struct iovec parts[] = {{&message, sizeof(message)},
                                      {padding, dice_below(&dice, sizeof(padding))}};
        cr_assert_eq(rings_post(pair.writer, parts, 2, soon(), &number), 0);
        atomic_store(&ended[number], atomic_fetch_add(&ticks, 1));
        if (with_sleeps && dice_below(&dice, 256) == 0)
            clock_sleep(dice_below(&dice, 300000));
    }
    return NULL;
}

/* All that were posted are taken once, each thread's in its order, and a post that had ended
 * before another began is taken before it. */
static void order_is_one(void)
{
    pthread_t threads[THREADS];
    uint64_t counts[THREADS] = {0}, *began = calloc(THREADS * EACH, sizeof(*began)), latest = 0;
    struct dice dice = {77};
    look_late();
    for (uintptr_t i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, posts_messages, (void *)i), 0);
    for (uint64_t i = 0; i < THREADS * EACH; i++) {
        struct message message;
        uint64_t number;
        size_t size;
        cr_assert_eq(take(soon(), &size, &number), 0);
        cr_assert_eq(number, i);
        cr_assert_geq(size, sizeof(message));
        memcpy(&message, pair.buffer, sizeof(message));
        cr_assert_lt(message.thread, THREADS);
        cr_assert_eq(message.count, counts[message.thread]++);
        began[i] = message.began;
        if (with_sleeps && dice_below(&dice, 512) == 0)
            clock_sleep(dice_below(&dice, 300000));
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (uint64_t i = 0; i < THREADS * EACH; i++) {
        latest = began[i] > latest ? began[i] : latest;
        cr_assert_lt(latest, atomic_load(&ended[i]));
    }
    is_empty();
    cr_assert_eq(rings_reader_waits(pair.reader)->overslept, 0);
    free(began);
}

Test(rings, threads_post_in_one_order, .init = eight_rings, .fini = end, .timeout = 200)
{
    order_is_one();
    cr_assert_eq(used_rings() & 1, 0); /* there was one for each */
}

Test(rings, threads_that_sleep_now_and_then_post_in_one_order, .init = eight_rings, .fini = end,
     .timeout = 200)
{
    with_sleeps = true;
    order_is_one();
}

Test(rings, threads_without_a_ring_of_their_own_share_one, .init = two_rings, .fini = end,
     .timeout = 200)
{
    order_is_one();
    cr_assert_eq(used_rings(), 3);
}

static void *fills_the_common_ring(void *data)
{
    (void)data;
    while (post_filled(pair.writer, 1000, 0, NULL) == 0)
        ;
    return NULL;
}

Test(rings, who_waits_for_the_common_ring_gives_up_at_its_deadline, .init = two_rings, .fini = end)
{
    pthread_t threads[2];
    const struct iovec part = {"x", 1};
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, fills_the_common_ring, NULL), 0);
    while (used_rings() != 3)
        clock_sleep(NS_PER_MS);
    const uint64_t deadlines[] = {0, 1, clock_now_ns() + NS_PER_MS, clock_now_ns() + NS_PER_S};
    for (int i = 0; i < 4; i++)
        while (rings_post(pair.writer, &part, 1, deadlines[i], NULL) != -ETIMEDOUT)
            ; /* there is some room yet */
    rings_writer_end(pair.writer);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

static void *posts_one(void *data)
{
    cr_assert_eq(post_filled(pair.writer, 100, (uintptr_t)data, NULL), 0);
    return NULL;
}

Test(rings, a_thread_that_ends_gives_its_ring_to_another, .init = two_rings, .fini = end)
{
    for (uintptr_t i = 0; i < 200; i++) {
        pthread_t thread;
        cr_assert_eq(pthread_create(&thread, NULL, posts_one, (void *)i), 0);
        pthread_join(thread, NULL);
        if (i % 2)
            for (uintptr_t k = i - 1; k <= i; k++)
                takes(k, 100, k);
    }
    cr_assert_eq(used_rings(), 2); /* never the common one */
}

static atomic_bool posted_one, set_is_gone;

static void *outlives_the_set(void *data)
{
    posts_one(data);
    atomic_store(&posted_one, true);
    while (!atomic_load(&set_is_gone))
        clock_sleep(NS_PER_MS);
    return NULL;
}

Test(rings, a_thread_may_end_after_the_set)
{
    struct rings_pair other;
    pthread_t thread;
    two_rings();
    cr_assert_eq(pthread_create(&thread, NULL, outlives_the_set, NULL), 0);
    while (!atomic_load(&posted_one))
        clock_sleep(NS_PER_MS);
    rings_pair_finish(&pair);
    rings_pair_init(&other, 2, CAPACITY); /* maybe where the last one was */
    cr_assert_eq(post_filled(other.writer, 100, 0, NULL), 0);
    atomic_store(&set_is_gone, true);
    pthread_join(thread, NULL);
    cr_assert_eq(post_filled(other.writer, 100, 0, NULL), 0);
    rings_pair_finish(&other);
}

/* ---- threads that end in the middle ---- */

static atomic_int post_error;

static void *posts_until_it_is_cancelled(void *data)
{
    (void)data;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &(int){0});
    int err;
    while ((err = post_filled(pair.writer, 200, 1, NULL)) == 0)
        ;
    atomic_store(&post_error, err);
    return NULL;
}

static void *takes_all(void *data)
{
    uint64_t number, next = 0;
    size_t size;
    int err;
    (void)data;
    while ((err = take(soon(), &size, &number)) == 0) {
        cr_assert_eq(number, next++);
        cr_assert(frame_is(pair.buffer, size, size == 200 ? 1 : 2));
        if (size != 200)
            return NULL;
    }
    cr_assert_eq(err, 0);
    return NULL;
}

Test(rings, a_thread_that_is_cancelled_finishes_its_frame, .init = two_rings, .fini = end,
     .timeout = 200)
{
#ifdef __SANITIZE_THREAD__
    cases_skip("the sanitizer's own locks stay locked");
#endif
    struct dice dice = {8};
    pthread_t reader;
    cr_assert_eq(pthread_create(&reader, NULL, takes_all, NULL), 0);
    for (int i = 0; i < 2000; i++) {
        pthread_t thread;
        cr_assert_eq(pthread_create(&thread, NULL, posts_until_it_is_cancelled, NULL), 0);
        clock_sleep(dice_below(&dice, 60000));
        pthread_cancel(thread);
        pthread_join(thread, NULL);
        cr_assert_eq(atomic_load(&post_error), 0);
    }
    cr_assert_eq(post_filled(pair.writer, 100, 2, NULL), 0);
    pthread_join(reader, NULL);
}

static _Atomic pid_t poster;

static void *posts_on_and_on(void *data)
{
    (void)data;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &(int){0});
    atomic_store(&poster, gettid());
    while (post_filled(pair.writer, 1000, 3, NULL) == 0)
        ;
    return NULL;
}

_Noreturn static void *is_cancelled(void *data)
{
    (void)data;
    for (;;)
        pause();
}

/* What pthread_cancel() does when it has found that the thread allows it, which then does not any
 * more; without the chance. */
static void cancel_late(pid_t thread)
{
    pthread_t other; /* from then on the process has a handler for it */
    cr_assert_eq(pthread_create(&other, NULL, is_cancelled, NULL), 0);
    pthread_cancel(other);
    pthread_join(other, NULL);
    cr_assert_eq(syscall(SYS_tgkill, getpid(), thread, 32), 0);
}

/* The writer of ring 1 waits for room. */
static bool waits_for_room(void)
{
    uint32_t sleeps;
    cr_assert_eq(pread(pair.fd, &sleeps, sizeof(sleeps), 4096 + 4096 + CAPACITY + 256),
                 sizeof(sleeps));
    return sleeps != 0;
}

Test(rings, a_cancel_that_comes_late_comes_after_the_post, .init = two_rings, .fini = end)
{
#ifdef __SANITIZE_THREAD__
    cases_skip("the sanitizer's own locks stay locked");
#endif
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, posts_on_and_on, NULL), 0);
    while (!waits_for_room())
        clock_sleep(NS_PER_MS);
    cancel_late(atomic_load(&poster));
    for (uint64_t i = 0; i < CAPACITY / 1024; i++)
        takes(i, 1000, 3);
    takes(CAPACITY / 1024, 1000, 3); /* the one that it waited with */
    pthread_cancel(thread);
    pthread_join(thread, NULL);
}

static sigjmp_buf out;
static bool ends_thread;

static void leaves(int signal)
{
    (void)signal;
    if (ends_thread)
        pthread_exit(NULL);
    siglongjmp(out, 1);
}

/* A frame's part that cannot be read: the handler takes the thread out of the post. */
static void *is_taken_out_of_a_post(void *data)
{
    void *nothing = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const struct iovec part = {nothing, 100};
    const struct sigaction action = {.sa_handler = leaves};
    (void)data;
    sigaction(SIGSEGV, &action, NULL);
    if (sigsetjmp(out, 1) == 0) {
        atomic_store(&post_error, rings_post(pair.writer, &part, 1, soon(), NULL));
        cr_assert(false, "it came back");
    }
    return NULL;
}

Test(rings, a_thread_that_jumps_out_of_a_post_ends_the_session, .init = eight_rings, .fini = end)
{
    size_t size;
    cr_assert_eq(post_filled(pair.writer, 100, 0, NULL), 0);
    is_taken_out_of_a_post(NULL);
    cr_assert_eq(post_filled(pair.writer, 100, 1, NULL), -EPROTO);
    cr_assert_eq(post_filled(pair.writer, 100, 1, NULL), -EPROTO);
    takes(0, 100, 0);
    cr_assert_eq(take(clock_now_ns() + 1, &size, NULL), -ETIMEDOUT);
}

Test(rings, a_thread_that_ends_in_a_post_ends_the_session, .init = eight_rings, .fini = end)
{
#ifdef __SANITIZE_THREAD__
    cases_skip("it allocates in the handler");
#endif
    pthread_t thread;
    ends_thread = true;
    cr_assert_eq(pthread_create(&thread, NULL, is_taken_out_of_a_post, NULL), 0);
    pthread_join(thread, NULL);
    cr_assert_eq(post_filled(pair.writer, 100, 1, NULL), -EPROTO);
}

/* ---- ends ---- */

static void *reads_until_the_end(void *data)
{
    size_t size;
    (void)data;
    return (void *)(intptr_t)take(soon(), &size, NULL);
}

Test(rings, a_reader_that_sleeps_is_ended, .init = two_rings, .fini = end)
{
    pthread_t thread;
    void *result;
    cr_assert_eq(pthread_create(&thread, NULL, reads_until_the_end, NULL), 0);
    clock_sleep(20 * NS_PER_MS);
    rings_reader_end(pair.reader);
    pthread_join(thread, &result);
    cr_assert_eq((intptr_t)result, -ECANCELED);
}

static void *posts_until_the_end(void *data)
{
    int err;
    (void)data;
    while ((err = post_filled(pair.writer, 1000, 0, NULL)) == 0)
        ;
    return (void *)(intptr_t)err;
}

Test(rings, writers_that_wait_are_ended, .init = two_rings, .fini = end)
{
    pthread_t threads[3]; /* one with a ring, two for the common one */
    for (int i = 0; i < 3; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, posts_until_the_end, NULL), 0);
    clock_sleep(20 * NS_PER_MS);
    rings_writer_end(pair.writer);
    for (int i = 0; i < 3; i++) {
        void *result;
        pthread_join(threads[i], &result);
        cr_assert_eq((intptr_t)result, -ECANCELED);
    }
}

static bool awaits(void)
{
    int err = rings_await(pair.reader, clock_now_ns() + 20 * NS_PER_MS);
    cr_assert(err == 0 || err == -ETIMEDOUT);
    return err == 0;
}

/* Who spins for a message has it: the thread that sleeps is not woken for it, nor in its way. */
Test(rings, who_attends_is_alone_with_what_comes, .init = two_rings, .fini = end)
{
    struct iovec part = {(char[]){"frame"}, 5};
    cr_assert(rings_attend(pair.reader));
    cr_assert_not(rings_attend(pair.reader), "two lead");
    cr_assert_eq(rings_post(pair.writer, &part, 1, soon(), NULL), 0);
    cr_assert_not(awaits());
    cr_assert(rings_has_next(pair.reader));
    rings_leave(pair.reader);
    cr_assert_not(awaits(), "it is looked for in place of who attends still");
    cr_assert(rings_attend_no_more(pair.reader, false));
    cr_assert_not(awaits(), "one of two attends still");
    cr_assert(rings_attend_no_more(pair.reader, false), "what came last is nobody's");
    cr_assert(awaits());
}
