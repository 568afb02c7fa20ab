#include <CL/cl_icd.h>
#include <CL/opencl.h>
#include <criterion/criterion.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "messages.h"
#include "remote/link/area.h"
#include "remote/wire/stream_rings.h"
#include "state/base/clock.h"
#include "state/driver/isolated.h"
#include "tests/emu/emu.h"
#include "tests/remote/served.h"

/* Sessions over rings: what clients do there that break the rules, and what is left when either
   side is gone. */

#define SILENCE_NS (20 * NS_PER_S)
#define SIZE       ((size_t)2 << 20)

struct rogue {
    struct served served;
    struct link *link;
    struct rings_areas areas;
    struct stream stream;
};

static void greet(struct rogue *rogue)
{
    unsigned char buffer[STREAM_GREETING_MAX];
    const char *where = NULL;
    struct message message;
    struct msg_welcome welcome;
    struct pack pack;
    uint64_t deadline = clock_now_ns() + SILENCE_NS;
    const struct link_kind *kind = link_kind_of(rogue->served.address, &where);
    cr_assert_eq(kind->connect(where, deadline, &rogue->link), 0);
    cr_assert_eq(rings_areas_make(&rogue->areas), 0);
    pack_init(&pack);
    pack_hello(&pack, &(struct msg_hello){.version = WIRE_VERSION, .features = FEATURE_RINGS});
    cr_assert_eq(greeting_send(rogue->link, MSG_HELLO, pack.bytes, pack.used, deadline), 0);
    pack_finish(&pack);
    cr_assert_eq(greeting_receive(rogue->link, buffer, deadline, &message), 0);
    struct unpack body = {message.body, message.body + message.size, false};
    cr_assert(message.type == MSG_WELCOME && unpack_welcome(&body, &welcome));
    cr_assert_eq(welcome.features, FEATURE_RINGS);
    cr_assert_eq(welcome.session, 0, "what goes over rings does not go on");
}

static void begin(struct rogue *rogue)
{
    const uint64_t device = id_make(ID_DEVICE, 0, 0);
    struct message message;
    served_start(&rogue->served, NULL);
    greet(rogue);
    cr_assert_eq(
        stream_begin_rings(&rogue->stream, rogue->link, &rogue->areas, clock_now_ns() + SILENCE_NS),
        0);
    cr_assert_eq(stream_receive(&rogue->stream, SILENCE_NS, &message), 0);
    cr_assert_eq(message.type, MSG_DEVICES);
    cr_assert_eq(
        post_create_context(&rogue->stream,
                            &(struct msg_create_context){.context = id_make(ID_CONTEXT, 0, 0),
                                                         .devices = &device,
                                                         .devices_count = 1}),
        0);
    cr_assert_eq(post_create_queue(&rogue->stream,
                                   &(struct msg_create_queue){.queue = id_make(ID_QUEUE, 0, 0),
                                                              .context = id_make(ID_CONTEXT, 0, 0),
                                                              .device = device}),
                 0);
    cr_assert_eq(
        post_create_buffer(&rogue->stream,
                           &(struct msg_create_buffer){.memory = id_make(ID_MEMORY, 0, 0),
                                                       .context = id_make(ID_CONTEXT, 0, 0),
                                                       .size = SIZE}),
        0);
}

/* The session ends for that reason, without a crash, and the server goes on. */
static void must_end(struct rogue *rogue, const char *reason)
{
    struct message message;
    int error = 0;
    while (error == 0)
        error = stream_receive(&rogue->stream, SILENCE_NS, &message);
    cr_assert_eq(error, -EPIPE, "it goes on: %d", error);
    stream_finish(&rogue->stream);
    rings_areas_close(&rogue->areas);
    served_stop(&rogue->served);
    cr_assert(served_wrote(&rogue->served, reason));
    cr_assert(!served_wrote(&rogue->served, " crashed: "));
}

/* An area of the rogue's; @number is what the link says, @said what the message does. */
static void offer(struct rogue *rogue, int fd, uint32_t number, uint32_t said, uint64_t size)
{
    struct pack pack;
    pack_init(&pack);
    pack_withdraw(&pack, &(struct msg_withdraw){.area = number});
    cr_assert_eq(rogue->link->ops->send_descriptor(rogue->link, fd), 0);
    cr_assert_eq(
        greeting_send(rogue->link, MSG_OFFER, pack.bytes, pack.used, clock_now_ns() + SILENCE_NS),
        0);
    pack_finish(&pack);
    cr_assert_eq(
        post_offer(&rogue->stream,
                   &(struct msg_offer){.area = said, .size = size, .call = id_make(ID_CALL, 0, 0)}),
        0);
}

static int sealed(void)
{
    int fd = -1;
    cr_assert_eq(area_create("rogue", SIZE, &fd), 0);
    return fd;
}

static void read_into(struct rogue *rogue, uint32_t area, uint64_t place, uint64_t size)
{
    cr_assert_eq(
        post_read_buffer(&rogue->stream,
                         &(struct msg_read_buffer){.command = {.queue = id_make(ID_QUEUE, 0, 0),
                                                               .event = id_make(ID_EVENT, 0, 0),
                                                               .purpose = COMMAND_TELL,
                                                               .area = area,
                                                               .place = place},
                                                   .buffer = id_make(ID_MEMORY, 0, 0),
                                                   .size = size}),
        0);
}

static unsigned next_type(struct rogue *rogue)
{
    struct message message;
    cr_assert_eq(stream_receive(&rogue->stream, SILENCE_NS, &message), 0);
    return message.type;
}

TestSuite(remote_rings, .timeout = 90);

Test(remote_rings, a_block_that_was_offered_is_read_into)
{
    struct rogue rogue;
    char *bytes = NULL;
    int fd = sealed();
    begin(&rogue);
    cr_assert_eq(area_map(fd, SIZE, &bytes), 0);
    memset(bytes, 0x55, SIZE);
    cr_assert_eq(
        post_write_buffer(&rogue.stream,
                          &(struct msg_write_buffer){.command = {.queue = id_make(ID_QUEUE, 0, 0)},
                                                     .buffer = id_make(ID_MEMORY, 0, 0),
                                                     .content = "abcdefgh",
                                                     .content_size = 8}),
        0);
    offer(&rogue, fd, 7, 7, SIZE);
    cr_assert_eq(next_type(&rogue), MSG_REPLY);
    read_into(&rogue, 7, SIZE - 8, 8);
    cr_assert_eq(next_type(&rogue), MSG_DONE);
    cr_assert_eq(memcmp(bytes + SIZE - 8, "abcdefgh", 8), 0);
    cr_assert_eq(bytes[SIZE - 9], 0x55);
    close(fd);
    area_unmap(bytes, SIZE);
    cr_assert_eq(post_withdraw(&rogue.stream, &(struct msg_withdraw){.area = 7}), 0);
    read_into(&rogue, 7, 0, 8);
    must_end(&rogue, "it names bytes that it did not offer");
}

Test(remote_rings, an_area_that_was_not_offered_ends_the_session)
{
    struct rogue rogue;
    begin(&rogue);
    read_into(&rogue, 1, 0, 8);
    must_end(&rogue, "it names bytes that it did not offer");
}

Test(remote_rings, a_block_beyond_its_area_ends_the_session)
{
    struct rogue rogue;
    int fd = sealed();
    begin(&rogue);
    offer(&rogue, fd, 1, 1, SIZE);
    close(fd);
    read_into(&rogue, 1, SIZE - 7, 8);
    must_end(&rogue, "it names bytes that it did not offer");
}

Test(remote_rings, a_block_whose_end_overflows_ends_the_session)
{
    struct rogue rogue;
    int fd = sealed();
    begin(&rogue);
    offer(&rogue, fd, 1, 1, SIZE);
    close(fd);
    read_into(&rogue, 1, UINT64_MAX - 3, 8);
    must_end(&rogue, "it names bytes that it did not offer");
}

Test(remote_rings, an_area_that_can_be_cut_short_is_refused)
{
    struct rogue rogue;
    int fd = memfd_create("rogue", MFD_CLOEXEC);
    cr_assert(fd >= 0 && ftruncate(fd, (off_t)SIZE) == 0);
    begin(&rogue);
    offer(&rogue, fd, 1, 1, SIZE);
    must_end(&rogue, "it offers memory that is not as it says");
    close(fd);
}

Test(remote_rings, an_area_of_another_size_is_refused)
{
    struct rogue rogue;
    int fd = sealed();
    begin(&rogue);
    offer(&rogue, fd, 1, 1, 2 * SIZE);
    must_end(&rogue, "it offers memory that is not as it says");
    close(fd);
}

Test(remote_rings, a_descriptor_of_another_area_ends_the_session)
{
    struct rogue rogue;
    int fd = sealed();
    begin(&rogue);
    offer(&rogue, fd, 1, 2, SIZE);
    must_end(&rogue, "it offers memory that does not come");
    close(fd);
}

Test(remote_rings, more_memory_than_agreed_is_not_taken)
{
    struct rogue rogue;
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
    must_end(&rogue, "it names bytes that it did not offer");
}

/* A client that writes rings as it likes: the server may be anywhere in them. */
static void *map_rings(const struct rogue *rogue)
{
    size_t size = rings_size(&rings_to_server);
    void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, rogue->areas.out, 0);
    cr_assert(bytes != MAP_FAILED);
    return bytes;
}

Test(remote_rings, a_ring_that_skips_ends_the_session)
{
    struct rogue rogue;
    begin(&rogue);
    /* Each ring's page says how far it was written: farther than there can be. */
    char *bytes = map_rings(&rogue);
    for (unsigned i = 0; i < rings_to_server.count; i++) {
        char *at = bytes + area_page() + i * (area_page() + rings_to_server.capacity);
        atomic_fetch_add(&((struct ring_shared *)at)->head, rings_to_server.capacity + 16);
    }
    atomic_store((_Atomic uint64_t *)(bytes + 128), UINT64_MAX); /* All are used. */
    /* It looks for another frame behind one that is good. */
    (void)!post_marker(&rogue.stream,
                       &(struct msg_marker){.command = {.queue = id_make(ID_QUEUE, 0, 0)}});
    must_end(&rogue, "it sends no frames");
}

/* Frames whose beginning is not a message's. */
static void send_frame(const void *frame, size_t size)
{
    struct rogue rogue;
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
    must_end(&rogue, "it sends no frames");
    rings_writer_destroy(writer);
}

Test(remote_rings, a_frame_that_is_shorter_than_its_head_ends_the_session)
{
    send_frame("abc", 3);
}

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

static isolated_open_fn find_isolated(void)
{
    void *(CL_API_CALL * address)(const char *) = NULL;
    isolated_open_fn open = NULL;
    void *driver = dlopen(getenv("TEST_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    cr_assert(driver, "%s", dlerror());
    *(void **)&address = dlsym(driver, "clGetExtensionFunctionAddress");
    *(void **)&open = address(ISOLATED_ENTRY);
    return open;
}

static cl_device_id open_isolated(const struct served *served, const cl_icd_dispatch **ret_cl)
{
    cl_platform_id platforms[4];
    cl_device_id device;
    cl_uint count = 0;
    cr_assert_eq(find_isolated()(served->address, "libpocl.so.2", 4, platforms, &count), 0);
    cr_assert_eq(count, 1);
    *ret_cl = *(const cl_icd_dispatch **)platforms[0];
    cr_assert_eq((*ret_cl)->clGetDeviceIDs(platforms[0], CL_DEVICE_TYPE_ALL, 1, &device, &count),
                 CL_SUCCESS);
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
    cl_int error;
    char own[16];
    snprintf(own, sizeof(own), "%d", getpid());
    setenv("POCL_DEVICES", "basic basic pthread", 1); /* The server's own are two. */
    served_start(&served, (const char *const[]){"--while", own, NULL});
    cl_device_id device = open_isolated(&served, &cl);
    cl_context context = cl->clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    cr_assert_eq(error, CL_SUCCESS);
    cr_assert_eq(use(cl, context, device), CL_SUCCESS);
    kill(served_session(&served), SIGKILL);
    uint64_t until = clock_now_ns() + SILENCE_NS;
    while (use(cl, context, device) == CL_SUCCESS && clock_now_ns() < until)
        clock_sleep(NS_PER_MS);
    cr_assert_eq(use(cl, context, device), CL_DEVICE_NOT_AVAILABLE);
    cl_context other = cl->clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    cr_assert_eq(error, CL_SUCCESS);
    cr_assert_eq(use(cl, other, device), CL_SUCCESS);
    cr_assert_eq(use(cl, context, device), CL_DEVICE_NOT_AVAILABLE);
    cr_assert_eq(cl->clReleaseContext(context), CL_SUCCESS);
    cr_assert_eq(use(cl, other, device), CL_SUCCESS);
    served_stop(&served);
}

/* ---- an emulated device ---- */

static struct emu_shared *control;

/* Have the servers that are started from now on offer this device alone. */
static void emulate(const char *keys)
{
    static char config[] = "/tmp/rings-emu-XXXXXX", shared[] = "/tmp/rings-control-XXXXXX";
    int file = mkstemp(config);
    cr_assert(file >= 0 && dprintf(file, "[emu]\nbase=1 %s\n", keys) > 0);
    close(file);
    file = mkstemp(shared);
    cr_assert(file >= 0);
    close(file);
    unlink(shared);
    cr_assert_eq(emu_shared_open(shared, &control), 0);
    setenv("EMU_CONFIG", config, 1);
    setenv("EMU_CONTROL", shared, 1);
    setenv("TEST_VENDORS", getenv("TEST_EMU"), 1);
}

static void stop_emulated(struct served *served)
{
    served_stop(served);
    cr_assert(!served_wrote(served, " crashed: ") && !served_wrote(served, "was ended"));
    unlink(getenv("EMU_CONFIG"));
    unlink(getenv("EMU_CONTROL"));
}

static cl_device_id emulated_device(struct served *served, const char *keys)
{
    cl_platform_id platform;
    cl_device_id device;
    emulate(keys);
    served_start(served, NULL);
    served_use(served);
    cr_assert_eq(clGetPlatformIDs(1, &platform, NULL), CL_SUCCESS);
    cr_assert_eq(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), CL_SUCCESS);
    return device;
}

struct seat {
    cl_context context;
    cl_command_queue queue;
    cl_mem buffer;
};

static struct seat sit(cl_device_id device)
{
    cl_int errors[3];
    struct seat seat;
    seat.context = clCreateContext(NULL, 1, &device, NULL, NULL, &errors[0]);
    seat.queue = clCreateCommandQueue(seat.context, device, 0, &errors[1]);
    seat.buffer = clCreateBuffer(seat.context, CL_MEM_READ_WRITE, SIZE, NULL, &errors[2]);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(errors[i], CL_SUCCESS);
    return seat;
}

static void leave(struct seat seat)
{
    cr_assert_eq(clReleaseMemObject(seat.buffer), CL_SUCCESS);
    cr_assert_eq(clReleaseCommandQueue(seat.queue), CL_SUCCESS);
    cr_assert_eq(clReleaseContext(seat.context), CL_SUCCESS);
}

/* How often a device was asked to call somebody back. */
static uint64_t asked(void)
{
    return emu_shared_calls(control, "emu", "clSetEventCallback");
}

Test(remote_rings, an_end_is_seen_before_its_driver_could_call_back)
{
    struct served served;
    cpu_set_t processors;
    uint64_t finished = 0, until = clock_now_ns() + 3 * SILENCE_NS;
    cr_assert_eq(sched_getaffinity(0, sizeof(processors), &processors), 0);
    if (CPU_COUNT(&processors) < 2)
        cr_skip_test("nobody spins on one processor");
    struct seat seat = sit(emulated_device(&served, "callbacks=never"));
    /* With others beside it on the machine not each is seen. */
    do
        cr_assert_eq(clFinish(seat.queue), CL_SUCCESS);
    while (asked() >= ++finished && clock_now_ns() < until);
    cr_assert_lt(asked(), finished);
    leave(seat);
    stop_emulated(&served);
}

Test(remote_rings, a_driver_that_calls_nobody_back_is_found_out)
{
    struct served served;
    unsigned want = 7, got = 0;
    setenv("RESEAT_RINGS", "no", 1); /* Where nobody else looks. */
    struct seat seat = sit(emulated_device(&served, "callbacks=never"));
    cr_assert_eq(clEnqueueWriteBuffer(seat.queue, seat.buffer, CL_TRUE, 0, sizeof(want), &want, 0,
                                      NULL, NULL),
                 CL_SUCCESS);
    cr_assert_eq(
        clEnqueueReadBuffer(seat.queue, seat.buffer, CL_TRUE, 0, sizeof(got), &got, 0, NULL, NULL),
        CL_SUCCESS);
    cr_assert_eq(got, want);
    cr_assert_gt(asked(), 0);
    leave(seat);
    stop_emulated(&served);
}

/* Four markers; their ends may be told in any order. */
static void mark(struct rogue *rogue, uint32_t first)
{
    struct message message;
    struct msg_done done;
    unsigned seen = 0;
    for (uint32_t i = 0; i < 4; i++)
        cr_assert_eq(
            post_marker(&rogue->stream,
                        &(struct msg_marker){.command = {.queue = id_make(ID_QUEUE, 0, 0),
                                                         .event = id_make(ID_EVENT, 0, first + i),
                                                         .purpose = COMMAND_TELL}}),
            0);
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(stream_receive(&rogue->stream, SILENCE_NS, &message), 0);
        struct unpack body = {message.body, message.body + message.size, false};
        cr_assert(message.type == MSG_DONE && unpack_done(&body, &done));
        cr_assert_eq(done.status, CL_COMPLETE);
        cr_assert_geq(id_place(done.event), first, "it was told before");
        seen |= 1u << (id_place(done.event) - first);
    }
    cr_assert_eq(seen, 15);
}

Test(remote_rings, an_end_that_was_seen_and_is_called_back_is_told_once)
{
    struct rogue rogue;
    emulate("callbacks=late");
    begin(&rogue);
    for (uint32_t i = 0; i < 40; i++)
        mark(&rogue, 4 * i);
    clock_sleep(200 * NS_PER_MS); /* What is late comes, and would be the next to be read. */
    mark(&rogue, 160);
    uint64_t until = clock_now_ns() + SILENCE_NS;
    while (emu_shared_live(control, "emu", EMU_EVENT) != 0 && clock_now_ns() < until)
        clock_sleep(NS_PER_MS);
    cr_assert_eq(emu_shared_live(control, "emu", EMU_EVENT), 0, "what has ended is kept");
    stream_leave(&rogue.stream, MSG_BYE, clock_now_ns() + SILENCE_NS);
    stream_finish(&rogue.stream);
    rings_areas_close(&rogue.areas);
    stop_emulated(&rogue.served);
}

static void write_all(struct seat seat, const char *bytes)
{
    cr_assert_eq(
        clEnqueueWriteBuffer(seat.queue, seat.buffer, CL_TRUE, 0, SIZE, bytes, 0, NULL, NULL),
        CL_SUCCESS);
}

/* Buffers of the device, once there are as many. */
static void must_have_buffers(int64_t count)
{
    uint64_t until = clock_now_ns() + SILENCE_NS;
    while (emu_shared_live(control, "emu", EMU_MEM) != count && clock_now_ns() < until)
        clock_sleep(NS_PER_MS);
    cr_assert_eq(emu_shared_live(control, "emu", EMU_MEM), count);
}

Test(remote_rings, a_later_context_has_memory_that_is_registered_with_it)
{
    static char bytes[SIZE];
    struct served served;
    cl_device_id device = emulated_device(&served, "own_memory=yes");
    struct seat first = sit(device);
    write_all(first, bytes);
    must_have_buffers(1 + 1); /* Its own, and an area's. */
    struct seat second = sit(device);
    write_all(second, bytes);
    must_have_buffers(2 + 1 + 2); /* Both have the second area. */
    write_all(first, bytes);
    write_all(second, bytes);
    must_have_buffers(2 + 1 + 2);
    leave(second);
    must_have_buffers(1 + 2);
    leave(first);
    must_have_buffers(0);
    stop_emulated(&served);
}

Test(remote_rings, a_map_after_another_needs_no_memory_of_its_own)
{
    struct served served;
    struct seat seat = sit(emulated_device(&served, "own_memory=yes"));
    for (int i = 0; i < 50; i++) {
        cl_int error;
        /* More than half of an area: none has two of them. */
        cl_mem large = clCreateBuffer(seat.context, 0, 3 * SIZE, NULL, &error);
        cr_assert_eq(error, CL_SUCCESS);
        for (int k = 0; k < 2; k++) {
            char *at = clEnqueueMapBuffer(seat.queue, large, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                          3 * SIZE, 0, NULL, NULL, &error);
            cr_assert_eq(error, CL_SUCCESS);
            cr_assert(k == 0 || at[3 * SIZE - 1] == (char)i);
            at[3 * SIZE - 1] = (char)i;
            cr_assert_eq(clEnqueueUnmapMemObject(seat.queue, large, at, 0, NULL, NULL), CL_SUCCESS);
            cr_assert_eq(clFinish(seat.queue), CL_SUCCESS);
        }
        cr_assert_eq(clReleaseMemObject(large), CL_SUCCESS);
    }
    must_have_buffers(1 + 1);
    leave(seat);
    stop_emulated(&served);
}

Test(remote_rings, a_long_write_that_nobody_waits_for_may_have_a_short_rest)
{
    static char bytes[3 * SIZE + 77], got[sizeof(bytes)];
    struct served served;
    cl_int error;
    struct seat seat = sit(emulated_device(&served, ""));
    cl_mem large = clCreateBuffer(seat.context, 0, sizeof(bytes), NULL, &error);
    cr_assert_eq(error, CL_SUCCESS);
    memset(bytes, 0x37, sizeof(bytes));
    cr_assert_eq(
        clEnqueueWriteBuffer(seat.queue, large, CL_FALSE, 0, sizeof(bytes), bytes, 0, NULL, NULL),
        CL_SUCCESS);
    cr_assert_eq(
        clEnqueueReadBuffer(seat.queue, large, CL_TRUE, 0, sizeof(bytes), got, 0, NULL, NULL),
        CL_SUCCESS);
    cr_assert_eq(memcmp(got, bytes, sizeof(bytes)), 0);
    cr_assert_eq(clReleaseMemObject(large), CL_SUCCESS);
    leave(seat);
    stop_emulated(&served);
}

/* ---- copies by several threads ---- */

#define LARGE (((size_t)24 << 20) + 12345)

static cl_device_id pocl_device(struct served *served, const char *threads)
{
    cl_platform_id platform;
    cl_device_id device;
    setenv("RESEAT_COPY_THREADS", threads, 1);
    served_start(served, NULL);
    served_use(served);
    cr_assert_eq(clGetPlatformIDs(1, &platform, NULL), CL_SUCCESS);
    cr_assert_eq(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), CL_SUCCESS);
    return device;
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
    const size_t half = LARGE / 2 + 1;
    cl_event read;
    cr_assert(bytes && got);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < LARGE; i++)
            bytes[i] = (unsigned char)(rand_r(&seed) >> 5);
        cr_assert_eq(
            clEnqueueWriteBuffer(seat.queue, large, round == 1, 0, LARGE, bytes, 0, NULL, NULL),
            CL_SUCCESS);
        cr_assert_eq(clEnqueueBarrierWithWaitList(seat.queue, 0, NULL, NULL), CL_SUCCESS);
        cr_assert_eq(clEnqueueReadBuffer(seat.queue, large, CL_FALSE, half, LARGE - half,
                                         got + half, 0, NULL, &read),
                     CL_SUCCESS);
        cr_assert_eq(clEnqueueReadBuffer(seat.queue, large, CL_TRUE, 0, half, got, 0, NULL, NULL),
                     CL_SUCCESS);
        cr_assert_eq(clWaitForEvents(1, &read), CL_SUCCESS);
        cr_assert_eq(clReleaseEvent(read), CL_SUCCESS);
        cr_assert(memcmp(got, bytes, LARGE) == 0);
    }
    free(bytes);
    free(got);
}

static struct seat shared_seat;

static void *copy_beside(void *data)
{
    cl_int error;
    struct seat seat = shared_seat;
    seat.queue = clCreateCommandQueue(seat.context, *(cl_device_id *)data, 0, &error);
    cr_assert_eq(error, CL_SUCCESS);
    cl_mem large = clCreateBuffer(seat.context, 0, LARGE, NULL, &error);
    cr_assert_eq(error, CL_SUCCESS);
    copy_through(seat, large, 2);
    cr_assert_eq(clReleaseMemObject(large), CL_SUCCESS);
    cr_assert_eq(clReleaseCommandQueue(seat.queue), CL_SUCCESS);
    return NULL;
}

Test(remote_rings, several_threads_copy_what_is_large)
{
    struct served served;
    pthread_t beside;
    cl_int error;
    cl_device_id device = pocl_device(&served, "3");
    shared_seat = sit(device);
    cl_mem large = clCreateBuffer(shared_seat.context, 0, LARGE, NULL, &error);
    cr_assert_eq(error, CL_SUCCESS);
    copy_through(shared_seat, large, 1);
    unsigned threads = threads_of_name("reseat-copy");
    cr_assert(threads > 0 && threads <= 3, "%u threads copy", threads);
    cr_assert_eq(pthread_create(&beside, NULL, copy_beside, &device), 0);
    copy_through(shared_seat, large, 3);
    cr_assert_eq(pthread_join(beside, NULL), 0);
    cr_assert_leq(threads_of_name("reseat-copy"), 3);
    cr_assert_eq(clReleaseMemObject(large), CL_SUCCESS);
    leave(shared_seat);
    served_stop(&served);
}

/* What is not given in parts: where a queue has no order, and maps of the program's memory. */
Test(remote_rings, several_threads_copy_what_is_one_command)
{
    struct served served;
    cl_int error;
    cl_device_id device = pocl_device(&served, "3");
    struct seat seat = sit(device);
    unsigned char *bytes = malloc(LARGE), *lent = calloc(1, LARGE), *got = malloc(LARGE);
    cr_assert(bytes && lent && got);
    for (size_t i = 0; i < LARGE; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    struct seat other = seat;
    other.queue =
        clCreateCommandQueue(seat.context, device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &error);
    cr_assert_eq(error, CL_SUCCESS);
    cl_mem large = clCreateBuffer(seat.context, CL_MEM_USE_HOST_PTR, LARGE, lent, &error);
    cr_assert_eq(error, CL_SUCCESS);
    copy_through(other, large, 4);
    cr_assert_eq(clEnqueueWriteBuffer(seat.queue, large, CL_TRUE, 0, LARGE, bytes, 0, NULL, NULL),
                 CL_SUCCESS);
    unsigned char *at = clEnqueueMapBuffer(seat.queue, large, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE,
                                           0, LARGE, 0, NULL, NULL, &error);
    cr_assert(error == CL_SUCCESS && at == lent);
    cr_assert_eq(memcmp(at, bytes, LARGE), 0);
    memset(at + LARGE / 3, 0x11, LARGE / 3);
    memset(bytes + LARGE / 3, 0x11, LARGE / 3);
    cr_assert_eq(clEnqueueUnmapMemObject(seat.queue, large, at, 0, NULL, NULL), CL_SUCCESS);
    cr_assert_eq(clEnqueueReadBuffer(seat.queue, large, CL_TRUE, 0, LARGE, got, 0, NULL, NULL),
                 CL_SUCCESS);
    cr_assert_eq(memcmp(got, bytes, LARGE), 0);
    cr_assert_eq(clReleaseMemObject(large), CL_SUCCESS);
    cr_assert_eq(clReleaseCommandQueue(other.queue), CL_SUCCESS);
    leave(seat);
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
    if ((char *)info->si_addr < target || (char *)info->si_addr >= target + SIZE)
        _exit(3);
    atomic_store(&stuck, true);
    while (!atomic_load(&go))
        nanosleep(&moment, NULL);
    mprotect(target, SIZE, PROT_READ | PROT_WRITE);
}

/* Read to it, and wait until that is in the handler. */
static struct seat read_to_page(struct served *served, const char *threads, cl_event *ret_read)
{
    const struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    static char bytes[SIZE];
    cl_device_id device = pocl_device(served, threads);
    struct seat seat = sit(device);
    memset(bytes, 0x29, SIZE);
    write_all(seat, bytes);
    target = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(target, MAP_FAILED);
    cr_assert_eq(mprotect(target + area_page(), area_page(), PROT_NONE), 0);
    cr_assert_eq(sigaction(SIGSEGV, &action, NULL), 0);
    cr_assert_eq(
        clEnqueueReadBuffer(seat.queue, seat.buffer, CL_FALSE, 0, SIZE, target, 0, NULL, ret_read),
        CL_SUCCESS);
    uint64_t until = clock_now_ns() + SILENCE_NS;
    while (!atomic_load(&stuck) && clock_now_ns() < until)
        clock_sleep(NS_PER_MS);
    cr_assert(atomic_load(&stuck), "nobody wrote there");
    return seat;
}

Test(remote_rings, a_fault_of_who_receives_is_for_the_programs_handler)
{
    struct served served;
    cl_event read;
    struct seat seat = read_to_page(&served, "0", &read);
    atomic_store(&go, true);
    cr_assert_eq(clWaitForEvents(1, &read), CL_SUCCESS);
    for (size_t i = 0; i < SIZE; i++)
        cr_assert_eq(target[i], 0x29);
    cr_assert_eq(clReleaseEvent(read), CL_SUCCESS);
    leave(seat);
    served_stop(&served);
}

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
    struct seat seat = sit(pocl_device(&served, "0"));
    static char bytes[SIZE], back[SIZE];
    memset(bytes, 0x37, SIZE);
    cr_assert_eq(close_sockets(&served), 1);
    for (unsigned n = 0; n < 2; n++) {
        clock_sleep(3 * NS_PER_S / 2);
        write_all(seat, bytes);
        cr_assert_eq(
            clEnqueueReadBuffer(seat.queue, seat.buffer, CL_TRUE, 0, SIZE, back, 0, NULL, NULL),
            CL_SUCCESS);
        cr_assert_eq(memcmp(bytes, back, SIZE), 0);
    }
    /* And hears the server end. */
    kill(served_session(&served), SIGKILL);
    uint64_t until = clock_now_ns() + SILENCE_NS;
    while (clFlush(seat.queue) == CL_SUCCESS && clock_now_ns() < until)
        clock_sleep(NS_PER_MS);
    cr_assert_eq(clFlush(seat.queue), CL_DEVICE_NOT_AVAILABLE);
    served_stop(&served);
}

Test(remote_rings, a_read_ends_when_nobody_writes_its_memory_any_more)
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
    cr_assert_eq(
        clGetEventInfo(read, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL),
        CL_SUCCESS);
    cr_assert_gt(status, CL_COMPLETE, "it has ended, and its memory is written");
    atomic_store(&go, true);
    (void)clWaitForEvents(1, &read);
    cr_assert_eq(
        clGetEventInfo(read, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL),
        CL_SUCCESS);
    cr_assert_leq(status, CL_COMPLETE);
    memset(target, 0x55, SIZE);
    clock_sleep(50 * NS_PER_MS);
    for (size_t i = 0; i < SIZE; i++)
        cr_assert_eq(target[i], 0x55);
    served_stop(&served);
}
