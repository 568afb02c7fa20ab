#include "state/base/clock.h"
#include "state/budget/budget.h"
#include "state/image/snapshot.h"
#include "state/move/move_priv.h"
#include "state/object/lost.h"
#include "state/recovery/protect.h"
#include "tests/state/recovery/recover_play.h"

/* What a protected program released is kept for the journal, until somebody waits for its end or
 * needs its room. */

static void CL_CALLBACK note_end(cl_mem memory, void *told)
{
    (void)memory;
    atomic_store((atomic_bool *)told, true);
}

/* A buffer that a command wrote, whose end is told. */
static cl_mem written_buffer(struct play *play, atomic_bool *told)
{
    const cl_uint n = 7;
    cl_mem buffer = engine_buffer(play->program.context, CL_MEM_READ_WRITE, BYTES, NULL);
    OK(clSetMemObjectDestructorCallback(buffer, note_end, told));
    OK(clEnqueueFillBuffer(play->program.queue, buffer, &n, sizeof(n), 0, BYTES, 0, NULL, NULL));
    OK(clFinish(play->program.queue));
    return buffer;
}

/* It comes until then. */
static bool is_told(atomic_bool *told, uint64_t until)
{
    while (!atomic_load(told) && clock_now_ns() < until)
        clock_sleep(NS_PER_MS);
    return atomic_load(told);
}

/* What a program lets go of is kept until the next snapshot, of which it knows nothing: that is not
 * put off then. */
Test(recover, who_waits_for_an_end_is_seen, .timeout = 60)
{
    static struct play play;
    static atomic_bool told;
    open_rig("");
    open_play(&play, 0);
    cl_mem gone = written_buffer(&play, &told);
    cr_assert(!protect_is_waited_for());
    move_lock(); /* no snapshot is made meanwhile */
    OK(clReleaseMemObject(gone));
    cr_assert(protect_is_waited_for());
    cr_assert(!atomic_load(&told));
    move_unlock();
    cr_assert_eq(protect_now(), 0);
    cr_assert(is_told(&told, UINT64_MAX));
    cr_assert(!protect_is_waited_for());
    close_play(&play);
}

/* Until the interval has passed, an hour here, a program that waits for each end would stand still,
 * although a snapshot costs next to nothing. */
Test(recover, who_waits_for_an_end_does_not_wait_for_the_interval, .timeout = 60)
{
    static struct play play;
    static atomic_bool told[3];
    open_rig("");
    open_play(&play, 0);
    for (unsigned i = 0; i < 3; i++) {
        OK(clReleaseMemObject(written_buffer(&play, &told[i])));
        cr_assert(is_told(&told[i], clock_now_ns() + 15 * NS_PER_S));
    }
    close_play(&play);
}

/* So that it stops the program for long: what is mapped is copied while it stands. */
static void snapshot_that_cost_much(struct play *play)
{
    enum { MUCH = 4 << 20 };
    const struct protect_settings often = {.interval_ns = NS_PER_MS * 100};
    const cl_uint n = 7;
    cl_mem much = engine_buffer(play->program.context, CL_MEM_READ_WRITE, MUCH, NULL);
    OK(clEnqueueFillBuffer(play->program.queue, much, &n, sizeof(n), 0, MUCH, 0, NULL, NULL));
    void *map = MADE(clEnqueueMapBuffer, play->program.queue, much, CL_TRUE, CL_MAP_WRITE, 0, MUCH,
                     0, NULL, NULL);
    cr_assert_eq(protect_now(), 0);
    OK(clEnqueueUnmapMemObject(play->program.queue, much, map, 0, NULL, NULL));
    OK(clReleaseMemObject(much));
    OK(clFinish(play->program.queue));
    cr_assert_eq(protect_begin(&often), 0);
}

/* Until snapshots have cost no more than their budget it would wait for as long as that lasts. */
Test(recover, who_waits_for_an_end_does_not_wait_for_the_budget, .timeout = 120)
{
    static struct play play;
    static atomic_bool told;
    struct protect_status status;
    open_rig("link_mb_s=40");
    open_play(&play, 0);
    snapshot_that_cost_much(&play);
    OK(clReleaseMemObject(written_buffer(&play, &told)));
    protect_read(&status);
    cr_assert_geq(status.downtime_ns, 50 * NS_PER_MS);
    /* Half of what the budget asks for. */
    cr_assert(is_told(&told, status.at_ns + status.downtime_ns * 50));
    close_play(&play);
}

/* Make, write and release so many buffers. */
static void release_many(struct play *play, unsigned count, size_t size)
{
    const cl_uint word = 7;
    for (unsigned i = 0; i < count; i++) {
        cl_mem buffer = engine_buffer(play->program.context, CL_MEM_READ_WRITE, size, NULL);
        OK(clEnqueueFillBuffer(play->program.queue, buffer, &word, sizeof(word), 0, 4096, 0, NULL,
                               NULL));
        OK(clReleaseMemObject(buffer));
    }
}

static atomic_uint asked;

static enum budget_answer refuse(const struct budget_need *need)
{
    (void)need;
    atomic_fetch_add(&asked, 1);
    return BUDGET_REFUSE;
}

/* What the program released is kept for the journal: not where the device needs the room. */
Test(recover, what_was_released_makes_room, .timeout = 60)
{
    struct play play;
    open_rig("memory=1MiB");
    open_play(&play, 0);
    budget_set_policy(refuse);
    release_many(&play, 20, 600u << 10);
    cr_assert(is_on("a"));
    cr_assert_eq(asked, 0);
    budget_set_policy(NULL);
    close_play(&play);
}

static enum budget_answer grant(const struct budget_need *need)
{
    budget_grant(need->vdev, 64u << 20);
    return BUDGET_AGAIN;
}

/* Where there is more to be had, the program is not stopped again and again to let go of it. */
Test(recover, what_was_released_is_let_go_seldom_where_there_is_room, .timeout = 60)
{
    struct play play;
    struct protect_status before, after;
    open_rig("");
    open_play(&play, 0);
    budget_set_policy(grant);
    budget_grant(0, 40u << 10);
    protect_read(&before);
    release_many(&play, 200, 10u << 10);
    protect_read(&after);
    cr_assert_leq(after.snapshots - before.snapshots, 10);
    budget_set_policy(NULL);
    close_play(&play);
}

/* Where there is not, it is. */
Test(recover, what_was_released_is_let_go_before_room_is_refused, .timeout = 60)
{
    struct play play;
    open_rig("");
    open_play(&play, 0);
    budget_set_policy(refuse);
    budget_grant(0, 40u << 10);
    release_many(&play, 60, 10u << 10);
    budget_set_policy(NULL);
    close_play(&play);
}
