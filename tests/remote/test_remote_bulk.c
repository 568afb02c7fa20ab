#include <CL/opencl.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "remote/rings/area.h"
#include "state/base/clock.h"
#include "tests/remote/seat.h"
#include "tests/support/calls.h"
#include "tests/support/comes.h"

/* Bulk data in shared memory: blocks of areas, and who copies there. */

#define SILENCE_NS (20 * NS_PER_S)

TestSuite(remote_bulk, .timeout = 90);

/* Buffers of the device, once there are as many. */
static void must_have_buffers(int64_t count)
{
    cr_assert(COMES(emu_shared_live(emulated, "emu", EMU_MEM) == count, SILENCE_NS));
}

Test(remote_bulk, a_later_context_has_memory_that_is_registered_with_it)
{
    static char bytes[SEAT_SIZE];
    struct served served;
    cl_device_id device = emulated_device(&served, "own_memory=yes");
    struct seat first = seat_take(device);
    seat_write(first, bytes);
    must_have_buffers(1 + 1); /* Its own, and an area's. */
    struct seat second = seat_take(device);
    seat_write(second, bytes);
    must_have_buffers(2 + 1 + 2); /* Both have the second area. */
    seat_write(first, bytes);
    seat_write(second, bytes);
    must_have_buffers(2 + 1 + 2);
    seat_leave(second);
    must_have_buffers(1 + 2);
    seat_leave(first);
    must_have_buffers(0);
    emulated_stop(&served);
}

Test(remote_bulk, a_map_after_another_needs_no_memory_of_its_own)
{
    struct served served;
    struct seat seat = seat_take(emulated_device(&served, "own_memory=yes"));
    for (int i = 0; i < 50; i++) {
        /* More than half of an area: none has two of them. */
        cl_mem large = MADE(clCreateBuffer, seat.context, 0, 3 * SEAT_SIZE, NULL);
        for (int k = 0; k < 2; k++) {
            char *at = MADE(clEnqueueMapBuffer, seat.queue, large, CL_TRUE,
                            CL_MAP_READ | CL_MAP_WRITE, 0, 3 * SEAT_SIZE, 0, NULL, NULL);
            cr_assert(k == 0 || at[3 * SEAT_SIZE - 1] == (char)i);
            at[3 * SEAT_SIZE - 1] = (char)i;
            OK(clEnqueueUnmapMemObject(seat.queue, large, at, 0, NULL, NULL));
            OK(clFinish(seat.queue));
        }
        OK(clReleaseMemObject(large));
    }
    must_have_buffers(1 + 1);
    seat_leave(seat);
    emulated_stop(&served);
}

Test(remote_bulk, a_long_write_that_nobody_waits_for_may_have_a_short_rest)
{
    static char bytes[3 * SEAT_SIZE + 77], got[sizeof(bytes)];
    struct served served;
    struct seat seat = seat_take(emulated_device(&served, ""));
    cl_mem large = MADE(clCreateBuffer, seat.context, 0, sizeof(bytes), NULL);
    memset(bytes, 0x37, sizeof(bytes));
    OK(clEnqueueWriteBuffer(seat.queue, large, CL_FALSE, 0, sizeof(bytes), bytes, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(seat.queue, large, CL_TRUE, 0, sizeof(bytes), got, 0, NULL, NULL));
    cr_assert_eq(memcmp(got, bytes, sizeof(bytes)), 0);
    OK(clReleaseMemObject(large));
    seat_leave(seat);
    emulated_stop(&served);
}

/* ---- copies by several threads ---- */

#define LARGE (((size_t)24 << 20) + 12345)
/* Shorter by so much it ends with a part of several pieces, which the other is too short for. */
#define SHORTER ((size_t)700 << 10)

static cl_device_id pocl_device(struct served *served, const char *threads)
{
    setenv("RESEAT_COPY_THREADS", threads, 1);
    return seat_device(served);
}

static unsigned threads_of_name(const char *name)
{
    char path[64], text[32];
    unsigned count = 0;
    DIR *tasks = opendir("/proc/self/task");
    cr_assert(tasks);
    for (const struct dirent *task; (task = readdir(tasks));) {
        snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", task->d_name);
        FILE *file = task->d_name[0] == '.' ? NULL : fopen(path, "re");
        if (!file)
            continue;
        if (fgets(text, sizeof(text), file) && strncmp(text, name, strlen(name)) == 0)
            count++;
        fclose(file);
    }
    closedir(tasks);
    return count;
}

static void copy_through(struct seat seat, cl_mem large, unsigned seed)
{
    unsigned char *bytes = malloc(LARGE), *got = calloc(1, LARGE);
    cl_event read;
    cr_assert(bytes && got);
    for (int round = 0; round < 3; round++) {
        const size_t size = round == 2 ? LARGE - SHORTER : LARGE, half = size / 2 + 1;
        for (size_t i = 0; i < LARGE; i++)
            bytes[i] = (unsigned char)(rand_r(&seed) >> 5);
        OK(clEnqueueWriteBuffer(seat.queue, large, round == 1, 0, size, bytes, 0, NULL, NULL));
        OK(clEnqueueBarrierWithWaitList(seat.queue, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(seat.queue, large, CL_FALSE, half, size - half, got + half, 0, NULL,
                               &read));
        OK(clEnqueueReadBuffer(seat.queue, large, CL_TRUE, 0, half, got, 0, NULL, NULL));
        OK(clWaitForEvents(1, &read));
        OK(clReleaseEvent(read));
        cr_assert(memcmp(got, bytes, size) == 0);
    }
    free(bytes);
    free(got);
}

static struct seat shared_seat;

static void *copy_beside(void *data)
{
    struct seat seat = shared_seat;
    seat.queue = MADE(clCreateCommandQueue, seat.context, *(cl_device_id *)data, 0);
    cl_mem large = MADE(clCreateBuffer, seat.context, 0, LARGE, NULL);
    copy_through(seat, large, 2);
    RELEASE(large, seat.queue);
    return NULL;
}

Test(remote_bulk, several_threads_copy_what_is_large)
{
    struct served served;
    pthread_t beside;
    cl_device_id device = pocl_device(&served, "3");
    shared_seat = seat_take(device);
    cl_mem large = MADE(clCreateBuffer, shared_seat.context, 0, LARGE, NULL);
    copy_through(shared_seat, large, 1);
    unsigned threads = threads_of_name("reseat-copy");
    cr_assert(threads > 0 && threads <= 3, "%u threads copy", threads);
    cr_assert_eq(pthread_create(&beside, NULL, copy_beside, &device), 0);
    copy_through(shared_seat, large, 3);
    cr_assert_eq(pthread_join(beside, NULL), 0);
    cr_assert_leq(threads_of_name("reseat-copy"), 3);
    OK(clReleaseMemObject(large));
    seat_leave(shared_seat);
    served_stop(&served);
}

/* What is not given in parts: where a queue has no order, and maps of the program's memory. */
Test(remote_bulk, several_threads_copy_what_is_one_command)
{
    struct served served;
    cl_int error;
    cl_device_id device = pocl_device(&served, "3");
    struct seat seat = seat_take(device);
    unsigned char *bytes = malloc(LARGE), *lent = calloc(1, LARGE), *got = malloc(LARGE);
    cr_assert(bytes && lent && got);
    for (size_t i = 0; i < LARGE; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    struct seat other = seat;
    other.queue =
        MADE(clCreateCommandQueue, seat.context, device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    cl_mem large = MADE(clCreateBuffer, seat.context, CL_MEM_USE_HOST_PTR, LARGE, lent);
    copy_through(other, large, 4);
    OK(clEnqueueWriteBuffer(seat.queue, large, CL_TRUE, 0, LARGE, bytes, 0, NULL, NULL));
    unsigned char *at = clEnqueueMapBuffer(seat.queue, large, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE,
                                           0, LARGE, 0, NULL, NULL, &error);
    cr_assert(error == CL_SUCCESS && at == lent);
    cr_assert_eq(memcmp(at, bytes, LARGE), 0);
    memset(at + LARGE / 3, 0x11, LARGE / 3);
    memset(bytes + LARGE / 3, 0x11, LARGE / 3);
    OK(clEnqueueUnmapMemObject(seat.queue, large, at, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(seat.queue, large, CL_TRUE, 0, LARGE, got, 0, NULL, NULL));
    cr_assert_eq(memcmp(got, bytes, LARGE), 0);
    RELEASE(large, other.queue);
    seat_leave(seat);
    served_stop(&served);
    free(bytes);
    free(lent);
    free(got);
}

/* A page that cannot be written until the test says so. */
static char *target;
static atomic_bool stuck, go;

static void on_fault(int number, siginfo_t *info, void *context)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    (void)number, (void)context;
    if ((char *)info->si_addr < target || (char *)info->si_addr >= target + SEAT_SIZE)
        _exit(3);
    atomic_store(&stuck, true);
    while (!atomic_load(&go))
        nanosleep(&moment, NULL);
    mprotect(target, SEAT_SIZE, PROT_READ | PROT_WRITE);
}

/* Read to it, and wait until that is in the handler. */
static struct seat read_to_page(struct served *served, const char *threads, cl_event *ret_read)
{
    const struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    static char bytes[SEAT_SIZE];
    cl_device_id device = pocl_device(served, threads);
    struct seat seat = seat_take(device);
    memset(bytes, 0x29, SEAT_SIZE);
    seat_write(seat, bytes);
    target = mmap(NULL, SEAT_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(target, MAP_FAILED);
    cr_assert_eq(mprotect(target + area_page(), area_page(), PROT_NONE), 0);
    cr_assert_eq(sigaction(SIGSEGV, &action, NULL), 0);
    OK(clEnqueueReadBuffer(seat.queue, seat.buffer, CL_FALSE, 0, SEAT_SIZE, target, 0, NULL,
                           ret_read));
    cr_assert(COMES(atomic_load(&stuck), SILENCE_NS), "nobody wrote there");
    return seat;
}

Test(remote_bulk, a_fault_of_who_receives_is_for_the_programs_handler)
{
    struct served served;
    cl_event read;
    struct seat seat = read_to_page(&served, "0", &read);
    atomic_store(&go, true);
    OK(clWaitForEvents(1, &read));
    for (size_t i = 0; i < SEAT_SIZE; i++)
        cr_assert_eq(target[i], 0x29);
    OK(clReleaseEvent(read));
    seat_leave(seat);
    served_stop(&served);
}

Test(remote_bulk, a_read_ends_when_nobody_writes_its_memory_any_more)
{
    struct served served;
    cl_event read;
    cl_int status = CL_COMPLETE;
    struct seat seat = read_to_page(&served, "1", &read);
    uint64_t until = clock_now_ns() + SILENCE_NS;
    kill(served_session(&served), SIGKILL);
    while (clFlush(seat.queue) == CL_SUCCESS && clock_now_ns() < until)
        clock_sleep(NS_PER_MS);
    cr_assert_eq(clFlush(seat.queue), CL_DEVICE_NOT_AVAILABLE);
    clock_sleep(100 * NS_PER_MS);
    OK(clGetEventInfo(read, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    cr_assert_gt(status, CL_COMPLETE, "it has ended, and its memory is written");
    atomic_store(&go, true);
    (void)clWaitForEvents(1, &read);
    OK(clGetEventInfo(read, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    cr_assert_leq(status, CL_COMPLETE);
    memset(target, 0x55, SEAT_SIZE);
    clock_sleep(50 * NS_PER_MS);
    for (size_t i = 0; i < SEAT_SIZE; i++)
        cr_assert_eq(target[i], 0x55);
    served_stop(&served);
}
