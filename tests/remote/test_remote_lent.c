#include <CL/opencl.h>
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "state/driver/between.h"
#include "state/driver/served.h"
#include "tests/remote/seat.h"
#include "tests/support/calls.h"

/* Memory that the driver shares with its server and gives to the program: what it lends to the
 * engine, and the memory of its own maps. */

#define SILENCE_NS (20 * NS_PER_S)

TestSuite(remote_lent, .timeout = 90);

static void *find_entry(const char *name)
{
    void *(CL_API_CALL * address)(const char *) = NULL;
    void *driver = dlopen(getenv("TEST_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    cr_assert(driver, "%s", dlerror());
    *(void **)&address = dlsym(driver, "clGetExtensionFunctionAddress");
    return address(name);
}

static struct lent_memory *lend(struct seat seat)
{
    lend_function function;
    *(void **)&function = find_entry(LEND_NAME);
    struct lent_memory *lent = function(seat.context, SEAT_SIZE);
    cr_assert(lent, "the driver lends nothing");
    return lent;
}

static void give_back(struct lent_memory *lent)
{
    lent_return_function function;
    *(void **)&function = find_entry(LENT_RETURN_NAME);
    function(lent);
}

/* What /proc says of the mapping that @bytes are in: "rw-s", and its line. */
static void mapping_of(const char *bytes, char ret_rights[8], char ret_line[512])
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    cr_assert(maps);
    ret_rights[0] = ret_line[0] = '\0';
    while (fgets(line, sizeof(line), maps)) {
        unsigned long begin, end;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &begin, &end, rights) == 3 &&
            begin <= (unsigned long)bytes && (unsigned long)bytes < end) {
            strcpy(ret_rights, rights);
            strcpy(ret_line, line);
        }
    }
    fclose(maps);
}

static bool is_all(const char *bytes, char value)
{
    return bytes[0] == value && memcmp(bytes, bytes + 1, SEAT_SIZE - 1) == 0;
}

/* While this process cannot touch it. */
Test(remote_lent, the_server_alone_transfers_to_and_from_what_is_lent)
{
    struct served served;
    static char got[SEAT_SIZE];
    struct seat seat = seat_take(emulated_device(&served, "own_memory=yes"));
    struct lent_memory *lent = lend(seat);
    memset(lent->bytes, 0x5a, SEAT_SIZE);
    cr_assert_eq(mprotect(lent->bytes, SEAT_SIZE, PROT_NONE), 0);
    seat_write(seat, lent->bytes);
    cr_assert_eq(mprotect(lent->bytes, SEAT_SIZE, PROT_READ | PROT_WRITE), 0);
    memset(lent->bytes, 0, SEAT_SIZE);
    cr_assert_eq(mprotect(lent->bytes, SEAT_SIZE, PROT_NONE), 0);
    OK(clEnqueueReadBuffer(seat.queue, seat.buffer, CL_TRUE, 0, SEAT_SIZE, lent->bytes, 0, NULL,
                           NULL));
    cr_assert_eq(mprotect(lent->bytes, SEAT_SIZE, PROT_READ | PROT_WRITE), 0);
    cr_assert(is_all(lent->bytes, 0x5a));
    OK(clEnqueueReadBuffer(seat.queue, seat.buffer, CL_TRUE, 0, SEAT_SIZE, got, 0, NULL, NULL));
    cr_assert(is_all(got, 0x5a));
    give_back(lent);
    seat_leave(seat);
    emulated_stop(&served);
}

static void await_loss(struct seat seat)
{
    uint64_t until = clock_now_ns() + SILENCE_NS;
    while (clFlush(seat.queue) == CL_SUCCESS && clock_now_ns() < until)
        clock_sleep(NS_PER_MS);
    cr_assert_eq(clFlush(seat.queue), CL_DEVICE_NOT_AVAILABLE);
    clock_sleep(200 * NS_PER_MS); /* What the end of the session does, it does. */
}

/* Shared with nobody: what its devices still write goes nowhere. */
static void must_be_private(char *bytes, char value)
{
    char rights[8], line[512];
    mapping_of(bytes, rights, line);
    cr_assert_str_eq(rights, "rw-p");
    cr_assert(is_all(bytes, value));
    memset(bytes, value + 1, SEAT_SIZE);
    cr_assert(is_all(bytes, (char)(value + 1)));
}

Test(remote_lent, what_is_lent_outlives_the_session_with_its_content)
{
    struct served served;
    struct seat seat = seat_take(seat_device(&served));
    struct lent_memory *lent = lend(seat), *other = lend(seat);
    memset(lent->bytes, 0x31, SEAT_SIZE);
    memset(other->bytes, 0x41, SEAT_SIZE);
    kill(served_session(&served), SIGKILL);
    await_loss(seat);
    must_be_private(lent->bytes, 0x31);
    must_be_private(other->bytes, 0x41);
    give_back(lent);
    cr_assert(is_all(other->bytes, 0x42));
    give_back(other);
    served_stop(&served);
}

/* As for an image of the process: nothing else of the session stays. */
Test(remote_lent, what_is_lent_stays_where_all_sessions_are_left)
{
    struct served served;
    served_leave_fn leave;
    static char bytes[SEAT_SIZE];
    char rights[8], line[512];
    struct seat seat = seat_take(seat_device(&served));
    struct lent_memory *lent = lend(seat), *other = lend(seat);
    seat_write(seat, bytes);
    const char *beyond = lent->bytes < other->bytes ? other->bytes : lent->bytes;
    char *beside = (char *)beyond + SEAT_SIZE;
    mapping_of(beside, rights, line);
    cr_assert_str_eq(rights, "rw-s", "the area is not larger than the loans");
    memset(lent->bytes, 0x31, SEAT_SIZE);
    memset(other->bytes, 0x41, SEAT_SIZE);
    *(void **)&leave = find_entry(SERVED_LEAVE);
    atomic_store(&lent->maps, 1);
    cr_assert_eq(leave(), 0);
    mapping_of(other->bytes, rights, line);
    cr_assert(!strstr(line, "memfd"), "%s", line);
    must_be_private(lent->bytes, 0x31);
    must_be_private(other->bytes, 0x41);
    mapping_of(beside, rights, line);
    cr_assert_str_neq(rights, "rw-s");
    give_back(other);
    must_be_private(lent->bytes, 0x32);
    char *gone = lent->bytes;
    give_back(lent);
    mapping_of(gone, rights, line);
    cr_assert_str_neq(rights, "rw-p", "it is mapped still");
    served_stop(&served);
}

static void await_child(pid_t child)
{
    int status;
    cr_assert(child > 0);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
}

/* A child that looks at memory once its parent has written there, and writes there itself. */
static void fork_over(char *bytes, char parents, char childs)
{
    int go[2];
    char word;
    cr_assert_eq(pipe(go), 0);
    memset(bytes, parents, SEAT_SIZE);
    pid_t child = fork();
    if (child == 0) {
        if (read(go[0], &word, 1) != 1 || !is_all(bytes, childs))
            _exit(1);
        memset(bytes, 0x77, SEAT_SIZE);
        _exit(is_all(bytes, 0x77) ? 0 : 2);
    }
    memset(bytes, 0x11, SEAT_SIZE);
    cr_assert_eq(write(go[1], "", 1), 1);
    await_child(child);
    cr_assert(is_all(bytes, 0x11), "its child wrote there");
    close(go[0]);
    close(go[1]);
}

Test(remote_lent, a_child_has_its_own_copy_of_what_is_lent)
{
    struct served served;
    struct seat seat = seat_take(seat_device(&served));
    struct lent_memory *lent = lend(seat);
    atomic_store(&lent->maps, 1);
    fork_over(lent->bytes, 0x23, 0x23);
    fork_over(lent->bytes, 0x24, 0x24);
    atomic_store(&lent->maps, 0); /* Now the program has no pointer there. */
    fork_over(lent->bytes, 0x25, 0);
    seat_write(seat, lent->bytes);
    pid_t child = fork();
    if (child == 0) {
        give_back(lent); /* With its own object of it. */
        _exit(0);
    }
    await_child(child);
    give_back(lent);
    seat_leave(seat);
    served_stop(&served);
}

/* No handler of ours is called: it has nothing there, rather than its parent's memory. */
Test(remote_lent, a_child_of_a_bare_system_call_does_not_write_to_its_parents)
{
    struct served served;
    int status;
    struct seat seat = seat_take(seat_device(&served));
    struct lent_memory *lent = lend(seat);
    atomic_store(&lent->maps, 1);
    memset(lent->bytes, 0x23, SEAT_SIZE);
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    cr_assert(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        memset(lent->bytes, 0x77, SEAT_SIZE);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(is_all(lent->bytes, 0x23));
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    give_back(lent);
    seat_leave(seat);
    served_stop(&served);
}

Test(remote_lent, a_child_has_its_own_copy_of_what_is_mapped)
{
    struct served served;
    struct seat seat = seat_take(seat_device(&served));
    static char got[SEAT_SIZE];
    cl_int error;
    cl_mem whole = clCreateBuffer(seat.context, CL_MEM_ALLOC_HOST_PTR, SEAT_SIZE, NULL, &error);
    cl_mem buffers[] = {seat.buffer, whole};
    for (int i = 0; i < 2; i++) {
        char *at = MADE(clEnqueueMapBuffer, seat.queue, buffers[i], CL_TRUE,
                        CL_MAP_READ | CL_MAP_WRITE, 0, SEAT_SIZE, 0, NULL, NULL);
        fork_over(at, 0x33, 0x33);
        OK(clEnqueueUnmapMemObject(seat.queue, buffers[i], at, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(seat.queue, buffers[i], CL_TRUE, 0, SEAT_SIZE, got, 0, NULL, NULL));
        cr_assert(is_all(got, 0x11));
    }
    OK(clReleaseMemObject(whole));
    seat_leave(seat);
    served_stop(&served);
}
