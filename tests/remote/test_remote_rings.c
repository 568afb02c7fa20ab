#include <CL/cl_icd.h>
#include <CL/opencl.h>
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "remote/rings/area.h"
#include "remote/wire/stream_rings.h"
#include "state/driver/served.h"
#include "tests/remote/rogue.h"
#include "tests/remote/seat.h"
#include "tests/support/calls.h"
#include "tests/support/comes.h"

/* Sessions over rings: what clients do there that break the rules, and what is left when either
   side is gone. */

#define SIZE ((size_t)2 << 20)

struct ringer {
    struct served served;
    struct link *link;
    struct rings_areas areas;
    struct stream stream;
};

static void greet(struct ringer *rogue)
{
    const struct msg_hello hello = {.version = WIRE_VERSION, .features = FEATURE_RINGS};
    struct rogue_greeted greeted;
    rogue->link = rogue_connect(&rogue->served);
    cr_assert_eq(rings_areas_make(&rogue->areas), 0);
    cr_assert_eq(rogue_hello(rogue->link, hello, &greeted), MSG_WELCOME);
    cr_assert_eq(greeted.welcome.features, FEATURE_RINGS);
    cr_assert_eq(greeted.welcome.session, 0, "what goes over rings does not go on");
}

static void begin(struct ringer *rogue)
{
    const uint64_t device = DEVICE;
    struct message message;
    served_start(&rogue->served, NULL);
    greet(rogue);
    cr_assert_eq(
        stream_begin_rings(&rogue->stream, rogue->link, &rogue->areas, clock_now_ns() + SILENCE_NS),
        0);
    cr_assert_eq(stream_receive(&rogue->stream, SILENCE_NS, &message), 0);
    cr_assert_eq(message.type, MSG_DEVICES);
    POST(&rogue->stream, create_context, .context = CONTEXT, .devices = &device,
         .devices_count = 1);
    POST(&rogue->stream, create_queue, .queue = QUEUE, .context = CONTEXT, .device = device);
    POST(&rogue->stream, create_buffer, .memory = BUFFER, .context = CONTEXT, .size = SIZE);
}

/* The session ends for that reason, without a crash, and the server goes on. */
static void must_end(struct ringer *rogue, const char *reason)
{
    struct message message;
    int error = 0;
    while (error == 0)
        error = stream_receive(&rogue->stream, SILENCE_NS, &message);
    cr_assert_eq(error, -EPIPE, "it goes on: %d", error);
    stream_finish(&rogue->stream);
    rings_areas_close(&rogue->areas);
    served_stop(&rogue->served);
    cr_assert(served_writes(&rogue->served, reason));
    cr_assert(!served_wrote(&rogue->served, " crashed: "));
}

/* An area of the rogue's; @number is what the link says, @said what the message does. */
static void offer(struct ringer *rogue, int fd, uint32_t number, uint32_t said, uint64_t size)
{
    struct pack pack;
    pack_init(&pack);
    pack_withdraw(&pack, &(struct msg_withdraw){.area = number});
    cr_assert_eq(rogue->link->ops->send_descriptor(rogue->link, fd), 0);
    cr_assert_eq(
        greeting_send(rogue->link, MSG_OFFER, pack.bytes, pack.used, clock_now_ns() + SILENCE_NS),
        0);
    pack_finish(&pack);
    POST(&rogue->stream, offer, .area = said, .size = size, .call = CALL);
}

static int sealed(void)
{
    int fd = -1;
    cr_assert_eq(area_create("rogue", SIZE, &fd), 0);
    return fd;
}

static void read_into(struct ringer *rogue, uint32_t area, uint64_t place, uint64_t size)
{
    POST(&rogue->stream, read_buffer,
         .command = {.queue = QUEUE,
                     .event = EVENT,
                     .purpose = COMMAND_TELL,
                     .area = area,
                     .place = place},
         .buffer = BUFFER, .size = size);
}

static unsigned next_type(struct ringer *rogue)
{
    struct message message;
    cr_assert_eq(stream_receive(&rogue->stream, SILENCE_NS, &message), 0);
    return message.type;
}

TestSuite(remote_rings, .timeout = 90);

Test(remote_rings, a_block_that_was_offered_is_read_into)
{
    struct ringer rogue;
    char *bytes = NULL;
    int fd = sealed();
    begin(&rogue);
    cr_assert_eq(area_map(fd, SIZE, &bytes), 0);
    memset(bytes, 0x55, SIZE);
    POST(&rogue.stream, write_buffer, .command = {.queue = QUEUE}, .buffer = BUFFER,
         .content = "abcdefgh", .content_size = 8);
    offer(&rogue, fd, 7, 7, SIZE);
    cr_assert_eq(next_type(&rogue), MSG_REPLY);
    read_into(&rogue, 7, SIZE - 8, 8);
    cr_assert_eq(next_type(&rogue), MSG_DONE);
    cr_assert_eq(memcmp(bytes + SIZE - 8, "abcdefgh", 8), 0);
    cr_assert_eq(bytes[SIZE - 9], 0x55);
    close(fd);
    area_unmap(bytes, SIZE);
    POST(&rogue.stream, withdraw, .area = 7);
    read_into(&rogue, 7, 0, 8);
    must_end(&rogue, "it used memory that it had not offered");
}

Test(remote_rings, an_area_that_was_not_offered_ends_the_session)
{
    struct ringer rogue;
    begin(&rogue);
    read_into(&rogue, 1, 0, 8);
    must_end(&rogue, "it used memory that it had not offered");
}

Test(remote_rings, a_block_beyond_its_area_ends_the_session)
{
    struct ringer rogue;
    int fd = sealed();
    begin(&rogue);
    offer(&rogue, fd, 1, 1, SIZE);
    close(fd);
    read_into(&rogue, 1, SIZE - 7, 8);
    must_end(&rogue, "it used memory that it had not offered");
}

Test(remote_rings, a_block_whose_end_overflows_ends_the_session)
{
    struct ringer rogue;
    int fd = sealed();
    begin(&rogue);
    offer(&rogue, fd, 1, 1, SIZE);
    close(fd);
    read_into(&rogue, 1, UINT64_MAX - 3, 8);
    must_end(&rogue, "it used memory that it had not offered");
}

Test(remote_rings, an_area_that_can_be_cut_short_is_refused)
{
    struct ringer rogue;
    int fd = memfd_create("rogue", MFD_CLOEXEC);
    cr_assert(fd >= 0 && ftruncate(fd, (off_t)SIZE) == 0);
    begin(&rogue);
    offer(&rogue, fd, 1, 1, SIZE);
    must_end(&rogue, "the memory that it offered is invalid");
    close(fd);
}

Test(remote_rings, an_area_of_another_size_is_refused)
{
    struct ringer rogue;
    int fd = sealed();
    begin(&rogue);
    offer(&rogue, fd, 1, 1, 2 * SIZE);
    must_end(&rogue, "the memory that it offered is invalid");
    close(fd);
}

Test(remote_rings, a_descriptor_of_another_area_ends_the_session)
{
    struct ringer rogue;
    int fd = sealed();
    begin(&rogue);
    offer(&rogue, fd, 1, 2, SIZE);
    must_end(&rogue, "the memory that it offered did not arrive");
    close(fd);
}

Test(remote_rings, more_memory_than_agreed_is_not_taken)
{
    struct ringer rogue;
    struct message message;
    struct msg_reply reply;
    int fd = sealed();
    begin(&rogue);
    for (uint32_t i = 1; i <= WIRE_AREAS_MAX + 1; i++) {
        offer(&rogue, fd, i, i, SIZE);
        cr_assert_eq(stream_receive(&rogue.stream, SILENCE_NS, &message), 0);
        struct unpack body = {message.body, message.body + message.size, false};
        cr_assert(message.type == MSG_REPLY && unpack_reply(&body, &reply));
        cr_assert_eq(reply.error, i <= WIRE_AREAS_MAX ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY);
    }
    close(fd);
    read_into(&rogue, WIRE_AREAS_MAX + 1, 0, 8);
    must_end(&rogue, "it used memory that it had not offered");
}

/* A client that writes rings as it likes: the server may be anywhere in them. */
static void *map_rings(const struct ringer *rogue)
{
    size_t size = rings_size(&rings_to_server);
    void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, rogue->areas.out, 0);
    cr_assert(bytes != MAP_FAILED);
    return bytes;
}

Test(remote_rings, a_ring_that_skips_ends_the_session)
{
    struct ringer rogue;
    begin(&rogue);
    /* Each ring's page says how far it was written: farther than there can be. */
    char *bytes = map_rings(&rogue);
    for (unsigned i = 0; i < rings_to_server.count; i++) {
        char *at = bytes + area_page() + i * (area_page() + rings_to_server.capacity);
        atomic_fetch_add(&((struct ring_shared *)at)->head, rings_to_server.capacity + 16);
    }
    atomic_store((_Atomic uint64_t *)(bytes + 128), UINT64_MAX); /* All are used. */
    /* It looks for another frame behind one that is good. */
    (void)!post_marker(&rogue.stream, &(struct msg_marker){.command = {.queue = QUEUE}});
    must_end(&rogue, "what it sends are no frames");
}

/* Frames whose beginning is not a message's. */
static void send_frame(const void *frame, size_t size)
{
    struct ringer rogue;
    struct rings_writer *writer = NULL;
    struct bell_peer peer = {.socket = OWNED_NONE};
    struct iovec part = {(void *)frame, size};
    served_start(&rogue.served, NULL);
    greet(&rogue);
    cr_assert_eq(rings_writer_create(&rings_to_server, rogue.areas.out, &peer, &writer), 0);
    cr_assert_eq(rings_post(writer, &part, 1, UINT64_MAX, NULL), 0);
    cr_assert_eq(
        stream_begin_rings(&rogue.stream, rogue.link, &rogue.areas, clock_now_ns() + SILENCE_NS),
        0);
    must_end(&rogue, "what it sends are no frames");
    rings_writer_destroy(writer);
}

TestCall(remote_rings, a_frame_that_is_shorter_than_its_head_ends_the_session,
         send_frame("abc", 3));

Test(remote_rings, a_frame_with_flags_that_are_none_ends_the_session)
{
    const uint16_t frame[4] = {MSG_BYE, 0x8000};
    send_frame(frame, sizeof(frame));
}

Test(remote_rings, a_part_that_says_more_comes_and_is_none_ends_the_session)
{
    const uint16_t frame[4] = {MSG_BYE, 2};
    send_frame(frame, sizeof(frame));
}

Test(remote_rings, a_client_that_is_killed_leaves_no_session)
{
    struct served served;
    served_start(&served, NULL);
    pid_t child = fork();
    if (child == 0) {
        cl_platform_id platform;
        served_use(&served);
        if (clGetPlatformIDs(1, &platform, NULL) == CL_SUCCESS)
            pause();
        _exit(1);
    }
    uint64_t until = clock_now_ns() + SILENCE_NS;
    while (!served_session(&served) && clock_now_ns() < until)
        clock_sleep(NS_PER_MS);
    clock_sleep(NS_PER_S); /* Wherever it is by then. */
    kill(child, SIGKILL);
    cr_assert_eq(waitpid(child, NULL, 0), child);
    until = clock_now_ns() + SILENCE_NS;
    while (served_session(&served) && clock_now_ns() < until)
        clock_sleep(NS_PER_MS);
    cr_assert_eq(served_session(&served), 0, "its session is there still");
    served_stop(&served);
}

/* ---- a driver that is opened for this process ---- */

/* What the driver gives the engine by that name. */
static void *find_entry(const char *name)
{
    void *(CL_API_CALL * address)(const char *) = NULL;
    void *driver = dlopen(getenv("TEST_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    cr_assert(driver, "%s", dlerror());
    *(void **)&address = dlsym(driver, "clGetExtensionFunctionAddress");
    return address(name);
}

static cl_device_id open_isolated(const struct served *served, const cl_icd_dispatch **ret_cl)
{
    cl_platform_id platforms[4];
    cl_device_id device;
    cl_uint count = 0;
    isolated_open_fn open;
    *(void **)&open = find_entry(ISOLATED_ENTRY);
    cr_assert_eq(open(served->address, "libpocl.so.2", 4, platforms, &count), 0);
    cr_assert_eq(count, 1);
    *ret_cl = *(const cl_icd_dispatch **)platforms[0];
    OK((*ret_cl)->clGetDeviceIDs(platforms[0], CL_DEVICE_TYPE_ALL, 1, &device, &count));
    cr_assert_eq(count, 3, "not as this process would have opened it");
    return device;
}

static cl_int use(const cl_icd_dispatch *cl, cl_context context, cl_device_id device)
{
    cl_int error;
    cl_command_queue queue = cl->clCreateCommandQueue(context, device, 0, &error);
    if (error)
        return error;
    char got[8] = "", want[8] = "reseat!";
    cl_mem buffer = cl->clCreateBuffer(context, 0, sizeof(want), NULL, &error);
    if (error == CL_SUCCESS)
        error =
            cl->clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, sizeof(want), want, 0, NULL, NULL);
    if (error == CL_SUCCESS)
        error = cl->clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof(got), got, 0, NULL, NULL);
    return error == CL_SUCCESS && memcmp(got, want, sizeof(got)) ? CL_INVALID_VALUE : error;
}

Test(remote_rings, another_session_follows_one_whose_server_was_killed)
{
    struct served served;
    const cl_icd_dispatch *cl = NULL;
    char own[16];
    snprintf(own, sizeof(own), "%d", getpid());
    setenv("POCL_DEVICES", "basic basic pthread", 1); /* The server's own are two. */
    served_start(&served, (const char *const[]){"--while", own, NULL});
    cl_device_id device = open_isolated(&served, &cl);
    cl_context context = MADE(cl->clCreateContext, NULL, 1, &device, NULL, NULL);
    OK(use(cl, context, device));
    kill(served_session(&served), SIGKILL);
    uint64_t until = clock_now_ns() + SILENCE_NS;
    while (use(cl, context, device) == CL_SUCCESS && clock_now_ns() < until)
        clock_sleep(NS_PER_MS);
    cr_assert_eq(use(cl, context, device), CL_DEVICE_NOT_AVAILABLE);
    cl_context other = MADE(cl->clCreateContext, NULL, 1, &device, NULL, NULL);
    OK(use(cl, other, device));
    cr_assert_eq(use(cl, context, device), CL_DEVICE_NOT_AVAILABLE);
    OK(cl->clReleaseContext(context));
    OK(use(cl, other, device));
    served_stop(&served);
}

/* What is posted fails before the thread that receives has found out, and that is soon enough. */
Test(remote_rings, another_session_follows_as_soon_as_one_is_seen_to_have_ended)
{
    struct served served;
    const cl_icd_dispatch *cl = NULL;
    cl_int error;
    char own[16];
    snprintf(own, sizeof(own), "%d", getpid());
    setenv("POCL_DEVICES", "basic basic pthread", 1);
    served_start(&served, (const char *const[]){"--while", own, NULL});
    cl_device_id device = open_isolated(&served, &cl);
    for (unsigned round = 0; round < 20; round++) {
        cl_context context = MADE(cl->clCreateContext, NULL, 1, &device, NULL, NULL);
        OK(use(cl, context, device));
        uint64_t until = clock_now_ns() + SILENCE_NS;
        kill(served_session(&served), SIGKILL);
        do {
            cl_mem buffer = cl->clCreateBuffer(context, 0, 64, NULL, &error);
            if (buffer)
                (void)cl->clReleaseMemObject(buffer);
        } while (error == CL_SUCCESS && clock_now_ns() < until);
        cr_assert_eq(error, CL_DEVICE_NOT_AVAILABLE);
    }
    served_stop(&served);
}

/* Sessions of the server, once they are @wanted. */
static unsigned await_sessions(const struct served *served, unsigned wanted, pid_t ret_pids[4])
{
    uint64_t until = clock_now_ns() + SILENCE_NS;
    unsigned count;
    while ((count = served_children(served, ret_pids, 4)) != wanted && clock_now_ns() < until)
        clock_sleep(NS_PER_MS);
    return count;
}

/* Its sessions, once there is a spare one, or for too long none. */
static unsigned await_standby(const struct served *served, isolated_standby_fn standby,
                              cl_platform_id platform, pid_t ret_pids[4])
{
    uint64_t until = clock_now_ns() + SILENCE_NS;
    unsigned count;
    do {
        standby(platform, true);
        clock_sleep(NS_PER_MS);
        count = served_children(served, ret_pids, 4);
    } while (count != 2 && clock_now_ns() < until);
    return count;
}

/* Nobody listens when it is needed. */
Test(remote_rings, a_standby_session_takes_the_place_of_one_whose_process_was_killed)
{
    struct served served;
    const cl_icd_dispatch *cl = NULL;
    cl_platform_id platform;
    isolated_standby_fn standby;
    served_leave_fn leave;
    pid_t first, pids[4];
    char own[16];
    snprintf(own, sizeof(own), "%d", getpid());
    setenv("POCL_DEVICES", "basic basic pthread", 1);
    served_start(&served, (const char *const[]){"--while", own, NULL});
    cl_device_id device = open_isolated(&served, &cl);
    *(void **)&standby = find_entry(ISOLATED_STANDBY);
    *(void **)&leave = find_entry(SERVED_LEAVE);
    cl->clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof(platform), &platform, NULL);
    first = served_session(&served);

    for (int round = 0; round < 3; round++) {
        cl_context context = MADE(cl->clCreateContext, NULL, 1, &device, NULL, NULL);
        cr_assert_eq(await_standby(&served, standby, platform, pids), 2, "round %d", round);
        pid_t ready = pids[pids[0] == first];
        clock_sleep(300 * NS_PER_MS); /* It tells its devices. */
        OK(use(cl, context, device));
        kill(served.pid, SIGSTOP);
        kill(first, SIGKILL);
        uint64_t until = clock_now_ns() + SILENCE_NS;
        while (use(cl, context, device) == CL_SUCCESS && clock_now_ns() < until)
            clock_sleep(NS_PER_MS);
        context = MADE(cl->clCreateContext, NULL, 1, &device, NULL, NULL);
        cr_assert_eq(use(cl, context, device), CL_SUCCESS, "another session was begun");
        kill(served.pid, SIGCONT);
        cr_assert_eq(await_sessions(&served, 1, pids), 1, "there are more than one spare");
        cr_assert_eq(pids[0], ready);
        first = ready;
    }
    cr_assert_eq(await_standby(&served, standby, platform, pids), 2);
    standby(platform, false);
    cr_assert_eq(await_sessions(&served, 1, pids), 1);
    cr_assert_eq(pids[0], first, "that was not the spare one");
    cr_assert_eq(await_standby(&served, standby, platform, pids), 2);
    cr_assert_eq(leave(), 0);
    cr_assert_eq(await_sessions(&served, 0, pids), 0, "the spare one is there still");
    for (int i = 0; i < 250; i++) { /* Nothing is begun for who has left. */
        standby(platform, true);
        clock_sleep(10 * NS_PER_MS);
    }
    cr_assert_eq(served_children(&served, pids, 4), 0);
    served_stop(&served);
}

/* ---- an emulated device ---- */

/* How often a device was asked to call somebody back. */
static uint64_t asked(void)
{
    return emu_shared_calls(emulated, "emu", "clSetEventCallback");
}

Test(remote_rings, an_end_is_seen_before_its_driver_could_call_back)
{
    struct served served;
    cpu_set_t processors;
    uint64_t finished = 0, until = clock_now_ns() + 3 * SILENCE_NS;
    cr_assert_eq(sched_getaffinity(0, sizeof(processors), &processors), 0);
    if (CPU_COUNT(&processors) < 2)
        cases_skip("nobody spins on one processor");
    struct seat seat = seat_take(emulated_device(&served, "callbacks=never"));
    /* With others beside it on the machine not each is seen. */
    do
        OK(clFinish(seat.queue));
    while (asked() >= ++finished && clock_now_ns() < until);
    cr_assert_lt(asked(), finished);
    seat_leave(seat);
    emulated_stop(&served);
}

Test(remote_rings, a_driver_that_calls_nobody_back_is_found_out)
{
    struct served served;
    unsigned want = 7, got = 0;
    setenv("RESEAT_RINGS", "no", 1); /* Where nobody else looks. */
    struct seat seat = seat_take(emulated_device(&served, "callbacks=never"));
    OK(clEnqueueWriteBuffer(seat.queue, seat.buffer, CL_TRUE, 0, sizeof(want), &want, 0, NULL,
                            NULL));
    OK(clEnqueueReadBuffer(seat.queue, seat.buffer, CL_TRUE, 0, sizeof(got), &got, 0, NULL, NULL));
    cr_assert_eq(got, want);
    cr_assert_gt(asked(), 0);
    seat_leave(seat);
    emulated_stop(&served);
}

/* Four markers; their ends may be told in any order. */
static void mark(struct ringer *rogue, uint32_t first)
{
    unsigned seen = 0;
    for (uint32_t i = 0; i < 4; i++)
        POST(&rogue->stream, marker,
             .command = {.queue = QUEUE,
                         .event = id_make(ID_EVENT, 0, first + i),
                         .purpose = COMMAND_TELL});
    for (int i = 0; i < 4; i++) {
        struct msg_done done = rogue_done(&rogue->stream);
        cr_assert_eq(done.status, CL_COMPLETE);
        cr_assert_geq(id_place(done.event), first, "it was told before");
        seen |= 1u << (id_place(done.event) - first);
    }
    cr_assert_eq(seen, 15);
}

Test(remote_rings, an_end_that_was_seen_and_is_called_back_is_told_once)
{
    struct ringer rogue;
    emulate("callbacks=late");
    begin(&rogue);
    for (uint32_t i = 0; i < 40; i++)
        mark(&rogue, 4 * i);
    clock_sleep(200 * NS_PER_MS); /* What is late comes, and would be the next to be read. */
    mark(&rogue, 160);
    cr_assert(COMES(emu_shared_live(emulated, "emu", EMU_EVENT) == 0, SILENCE_NS),
              "what has ended is kept");
    stream_leave(&rogue.stream, MSG_BYE, clock_now_ns() + SILENCE_NS);
    stream_finish(&rogue.stream);
    rings_areas_close(&rogue.areas);
    emulated_stop(&rogue.served);
}

/* ---- a program without descriptors ---- */

/* All that are connected to the server. */
static unsigned close_sockets(const struct served *served)
{
    unsigned closed = 0;
    for (int fd = 3; fd < 1024; fd++) {
        struct sockaddr_un peer = {0};
        socklen_t size = sizeof(peer);
        if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0 && peer.sun_family == AF_UNIX &&
            strcmp(peer.sun_path, served->address + strlen("unix:")) == 0)
            closed += close(fd) == 0;
    }
    return closed;
}

/* As daemons do. However long nothing is said then. */
Test(remote_rings, a_program_that_closes_the_socket_goes_on)
{
    struct served served;
    setenv("RESEAT_COPY_THREADS", "0", 1);
    struct seat seat = seat_take(seat_device(&served));
    static char bytes[SEAT_SIZE], back[SEAT_SIZE];
    memset(bytes, 0x37, SEAT_SIZE);
    cr_assert_eq(close_sockets(&served), 1);
    for (unsigned n = 0; n < 2; n++) {
        clock_sleep(3 * NS_PER_S / 2);
        seat_write(seat, bytes);
        OK(clEnqueueReadBuffer(seat.queue, seat.buffer, CL_TRUE, 0, SEAT_SIZE, back, 0, NULL,
                               NULL));
        cr_assert_eq(memcmp(bytes, back, SEAT_SIZE), 0);
    }
    /* And hears the server end. */
    kill(served_session(&served), SIGKILL);
    uint64_t until = clock_now_ns() + SILENCE_NS;
    while (clFlush(seat.queue) == CL_SUCCESS && clock_now_ns() < until)
        clock_sleep(NS_PER_MS);
    cr_assert_eq(clFlush(seat.queue), CL_DEVICE_NOT_AVAILABLE);
    served_stop(&served);
}
