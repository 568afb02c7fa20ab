#include <CL/opencl.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "remote/server/listener/clients.h"
#include "state/base/clock.h"
#include "tests/remote/seat.h"
#include "tests/support/calls.h"
#include "tests/support/comes.h"

/* The processes that a driver starts in a session, as compilers start linkers. */

#define LIMIT_NS (20 * NS_PER_S)

TestSuite(remote_processes, .timeout = 120);

static bool is_of(const char *entry, pid_t group)
{
    char path[64], text[512] = "";
    int of = 0;
    snprintf(path, sizeof(path), "/proc/%.20s/stat", entry);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t got = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    const char *behind = got ? strrchr(text, ')') : NULL;
    return behind && sscanf(behind, ") %*c %*d %d", &of) == 1 && of == group;
}

static unsigned count(pid_t group)
{
    unsigned found = 0;
    DIR *open = opendir("/proc");
    cr_assert(open);
    for (struct dirent *entry; (entry = readdir(open));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            found += is_of(entry->d_name, group);
    closedir(open);
    return found;
}

static void must_become(pid_t group, unsigned want)
{
    cr_assert(COMES(count(group) == want, LIMIT_NS));
}

static cl_int build(struct seat seat, cl_device_id device)
{
    const char *source = "__kernel void k(__global int *a) { a[0] = 1; }";
    cl_int error;
    cl_program program = MADE(clCreateProgramWithSource, seat.context, 1, &source, NULL);
    error = clBuildProgram(program, 1, &device, "", NULL, NULL);
    OK(clReleaseProgram(program));
    return error;
}

/* ---- what a server that is killed leaves ---- */

static struct served served;
static pid_t session;

static void start_two(void)
{
    cl_device_id device = emulated_device(&served, "build_starts=2");
    struct seat seat = seat_take(device);
    OK(build(seat, device));
    session = served_session(&served);
    cr_assert_gt(session, 0);
    cr_assert_eq(count(session), 3);
}

static void kill_server(void)
{
    kill(served.pid, SIGKILL);
    cr_assert_eq(waitpid(served.pid, NULL, 0), served.pid);
    must_become(session, 0);
}

Test(remote_processes, they_end_with_a_server_that_is_killed)
{
    start_two();
    kill_server();
}

Test(remote_processes, they_do_so_where_what_sees_to_it_was_killed_before)
{
    pid_t reaper, next = 0;
    start_two();
    reaper = served_reaper(&served);
    cr_assert_gt(reaper, 0);
    kill(reaper, SIGKILL);
    for (uint64_t until = clock_now_ns() + LIMIT_NS; next == 0 && clock_now_ns() < until;) {
        pid_t now = served_reaper(&served);
        next = now == reaper ? 0 : now;
        clock_sleep(NS_PER_MS);
    }
    cr_assert_gt(next, 0);
    cr_assert_eq(count(session), 3, "they have ended with it");
    kill_server();
}

Test(remote_processes, none_is_left_to_it_once_its_session_has_ended)
{
    start_two();
    kill(session, SIGKILL);
    must_become(session, 0);
    pid_t reaper = served_reaper(&served);
    served_stop(&served);
    cr_assert_eq(kill(reaper, 0), -1);
    cr_assert_eq(errno, ESRCH);
}

/* ---- how many there may be ---- */

Test(remote_processes, a_session_has_so_many_and_no_more)
{
    const char *word = "words";
    char got[8] = "";
    cl_device_id device = emulated_device(&served, "build_starts=40");
    struct seat seat = seat_take(device), other = seat_take(device);
    cr_assert_eq(build(seat, device), CL_SUCCESS, "forty are not many");
    session = served_session(&served);
    cr_assert_eq(count(session), 41);
    cr_assert_eq(build(other, device), CL_OUT_OF_HOST_MEMORY);
    cr_assert_eq(count(session), PROCESSES_MAX);
    cr_assert_neq(build(seat, device), CL_SUCCESS);
    cr_assert_eq(count(session), PROCESSES_MAX);
    cr_assert(served_writes(&served, "has reached the limit of 64 processes"));
    /* It goes on. */
    OK(clEnqueueWriteBuffer(seat.queue, seat.buffer, CL_TRUE, 0, 6, word, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(seat.queue, seat.buffer, CL_TRUE, 0, 6, got, 0, NULL, NULL));
    cr_assert_str_eq(got, word);
    seat_leave(other);
    seat_leave(seat);
    emulated_stop(&served);
    must_become(session, 0);
}

struct building {
    pthread_t thread;
    struct seat seat;
    cl_device_id device;
};

static void *build_one(void *data)
{
    const struct building *building = data;
    (void)build(building->seat, building->device);
    return NULL;
}

/* Some are let begin that are not there yet when the next one asks. */
Test(remote_processes, it_has_no_more_where_many_begin_at_once)
{
    struct building all[8];
    cl_device_id device = emulated_device(&served, "build_starts=20");
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        all[i] = (struct building){.seat = seat_take(device), .device = device};
        cr_assert_eq(pthread_create(&all[i].thread, NULL, build_one, &all[i]), 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        cr_assert_eq(pthread_join(all[i].thread, NULL), 0);
    session = served_session(&served);
    cr_assert_eq(count(session), PROCESSES_MAX);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        seat_leave(all[i].seat);
    emulated_stop(&served);
}
