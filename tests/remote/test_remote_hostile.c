#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "state/base/threads/thread.h"
#include "tests/remote/rogue.h"
#include "tests/support/calls.h"
#include "tests/support/comes.h"

/* What a server says that is not so: the program gets errors, and only what it asked for is
   written. Between the driver and a real server stands one that changes what is said. */

/* What is changed of a message to the client, and posted instead: false, it is passed on. */
typedef bool meddler(struct stream *client, const struct message *message);

static struct {
    struct served served;
    char address[96];
    int fd; /* Listens. */
    struct stream client, server;
    meddler *_Atomic meddler;
    atomic_int changed; /* Messages that were. */
} between;

static struct link *greet_server(void)
{
    struct rogue_greeted greeted;
    struct link *link = rogue_connect(&between.served);
    cr_assert_eq(rogue_hello(link, (struct msg_hello){.version = WIRE_VERSION}, &greeted),
                 MSG_WELCOME);
    return link;
}

static struct link *greet_client(void)
{
    unsigned char buffer[STREAM_GREETING_MAX];
    struct message message;
    struct pack pack;
    struct link *link = NULL;
    uint64_t deadline = clock_now_ns() + SILENCE_NS;
    struct pollfd ready = {.fd = between.fd, .events = POLLIN};
    cr_assert_eq(poll(&ready, 1, 20000), 1);
    cr_assert_eq(link_unix.admit(accept4(between.fd, NULL, NULL, SOCK_CLOEXEC), deadline, &link),
                 0);
    cr_assert_eq(greeting_receive(link, buffer, deadline, &message), 0);
    cr_assert_eq(message.type, MSG_HELLO);
    pack_init(&pack);
    pack_welcome(&pack, &(struct msg_welcome){.version = WIRE_VERSION, .now_ns = clock_now_ns()});
    cr_assert_eq(greeting_send(link, MSG_WELCOME, pack.bytes, pack.used, deadline), 0);
    pack_finish(&pack);
    return link;
}

static void *to_server(void *data)
{
    struct message message;
    (void)data;
    while (stream_receive(&between.client, 0, &message) == 0) {
        if (stream_post(&between.server, message.type, message.body, message.size, NULL, 0))
            break;
        stream_flush(&between.server);
    }
    stream_end(&between.server, -EPIPE);
    return NULL;
}

static void *to_client(void *data)
{
    struct message message;
    (void)data;
    cr_assert_eq(stream_init(&between.server, 0), 0);
    cr_assert_eq(stream_init(&between.client, 0), 0);
    cr_assert(stream_attach(&between.client, greet_client(), 0));
    cr_assert(stream_attach(&between.server, greet_server(), 0));
    cr_assert_eq(thread_start("to-server", 0, to_server, NULL, NULL), 0);
    while (stream_receive(&between.server, 0, &message) == 0) {
        meddler *meddle = atomic_load(&between.meddler);
        if (meddle && meddle(&between.client, &message))
            atomic_fetch_add(&between.changed, 1);
        else if (stream_post(&between.client, message.type, message.body, message.size, NULL, 0))
            break;
        stream_flush(&between.client);
    }
    stream_end(&between.client, -EPIPE);
    return NULL;
}

#define GUARD          64
#define SIZE           256
#define ANSWER_LONGEST (256u << 20) /* As remote/driver/session/client.c has it. */

struct program {
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    cl_mem buffer;
};
static struct program program;
static cl_device_id honest; /* Of the other server. */

static void start(void)
{
    cl_platform_id platforms[2];
    cl_device_id devices[2];
    char servers[256];
    served_start(&between.served, NULL);
    snprintf(between.address, sizeof(between.address), "unix:%s/p", between.served.folder);
    cr_assert_eq(link_unix.listen(between.address + strlen("unix:"), &between.fd), 0);
    cr_assert_eq(thread_start("to-client", 0, to_client, NULL, NULL), 0);
    setenv("OCL_ICD_VENDORS", getenv("TEST_DRIVER"), 1);
    /* The second session is with a server that can be believed. */
    snprintf(servers, sizeof(servers), "%s %s", between.address, between.served.address);
    setenv("RESEAT_SERVER", servers, 1);
    OK(clGetPlatformIDs(2, platforms, NULL));
    OK(clGetDeviceIDs(platforms[1], CL_DEVICE_TYPE_ALL, 2, devices, NULL));
    /* POCL's `basic` waits for itself where a user event is all that a command waited for. */
    honest = devices[1];
    OK(clGetDeviceIDs(platforms[0], CL_DEVICE_TYPE_ALL, 1, &program.device, NULL));
    program.context = MADE(clCreateContext, NULL, 1, &program.device, NULL, NULL);
    program.queue = MADE(clCreateCommandQueue, program.context, program.device, 0);
    program.buffer = MADE(clCreateBuffer, program.context, 0, SIZE, NULL);
    const cl_uchar bytes[SIZE] = {1, 2, 3};
    OK(clEnqueueWriteBuffer(program.queue, program.buffer, CL_TRUE, 0, SIZE, bytes, 0, NULL, NULL));
}

/* At the end of each test: what a fixture finds counts for nothing. */
static void ends(void)
{
    /* What it posts may be here before it has counted it. */
    cr_assert(COMES(atomic_load(&between.changed) != 0, SILENCE_NS), "nothing was changed");
    link_unix.unlisten(between.address + strlen("unix:"));
    served_stop(&between.served);
    cr_assert(!served_wrote(&between.served, " crashed: "));
}

TestSuite(remote_hostile, .init = start, .fini = ends, .timeout = 90);

/* A queue whose commands have all been told to have ended is finished without one. */
static cl_int round_trip(void)
{
    cl_int error = clEnqueueBarrierWithWaitList(program.queue, 0, NULL, NULL);
    return error ? error : clFinish(program.queue);
}

/* Post @done's message with @size bytes of 0xaa. */
static void post_done_of(struct stream *client, struct msg_done done, size_t size)
{
    unsigned char *bytes = malloc(size + 1);
    cr_assert(bytes);
    memset(bytes, 0xaa, size);
    done.content = bytes;
    done.content_size = size;
    cr_assert_eq(post_done(client, &done), 0);
    free(bytes);
}

static bool is_done(const struct message *message, struct msg_done *ret_done)
{
    struct unpack body = {message->body, message->body + message->size, false};
    return message->type == MSG_DONE && unpack_done(&body, ret_done) && ret_done->content_size;
}

/* A read of half the buffer into the middle of what is looked at; its error. */
static cl_int read_guarded(bool *ret_untouched)
{
    unsigned char bytes[SIZE / 2 + 2 * GUARD];
    memset(bytes, 0x55, sizeof(bytes));
    cl_int error = clEnqueueReadBuffer(program.queue, program.buffer, CL_TRUE, 0, SIZE / 2,
                                       bytes + GUARD, 0, NULL, NULL);
    for (size_t i = 0; i < GUARD; i++)
        cr_assert(bytes[i] == 0x55 && bytes[sizeof(bytes) - 1 - i] == 0x55);
    *ret_untouched = bytes[GUARD] == 0x55;
    return error;
}

static size_t other_size; /* Of the message's content: so much more, modulo 2^64. */

static bool of_another_size(struct stream *client, const struct message *message)
{
    struct msg_done done;
    if (!is_done(message, &done))
        return false;
    post_done_of(client, done, done.content_size + other_size);
    return true;
}

static void expect_untouched(size_t more, cl_int error)
{
    bool untouched;
    other_size = more;
    atomic_store(&between.meddler, of_another_size);
    cr_assert_eq(read_guarded(&untouched), error);
    cr_assert(untouched);
}

TestCall(remote_hostile, more_bytes_than_were_asked_for_are_an_error,
         expect_untouched(GUARD, CL_OUT_OF_RESOURCES));
TestCall(remote_hostile, fewer_bytes_than_were_asked_for_are_an_error,
         expect_untouched((size_t)-1, CL_OUT_OF_RESOURCES));
/* As long as an answer can be, and what was asked for, and one more. */
TestCall(remote_hostile, a_message_longer_than_anything_asked_for_ends_the_session,
         expect_untouched(ANSWER_LONGEST, CL_DEVICE_NOT_AVAILABLE));

static bool again(struct stream *client, const struct message *message)
{
    static struct msg_done first;
    struct msg_done done;
    struct unpack body = {message->body, message->body + message->size, false};
    if (is_done(message, &done)) {
        first = done;
        return false;
    }
    if (message->type != MSG_DONE || !unpack_done(&body, &done) || !first.event)
        return false;
    /* Once more, before the end of what the program waits for. */
    post_done_of(client, first, SIZE);
    cr_assert_eq(post_done(client, &done), 0);
    return true;
}

Test(remote_hostile, what_was_read_is_not_written_again)
{
    unsigned char bytes[SIZE];
    cl_event read;
    atomic_store(&between.meddler, again);
    OK(clEnqueueReadBuffer(program.queue, program.buffer, CL_TRUE, 0, SIZE, bytes, 0, NULL, &read));
    memset(bytes, 0x55, sizeof(bytes)); /* They are the program's again. */
    OK(round_trip());
    for (size_t i = 0; i < SIZE; i++)
        cr_assert_eq(bytes[i], 0x55);
    OK(clReleaseEvent(read));
}

static bool of_nothing(struct stream *client, const struct message *message)
{
    static const struct {
        enum id_type type;
        uint32_t generation, place;
    } ids[] = {{ID_EVENT, 77, 0}, {ID_EVENT, 0, WIRE_OBJECTS_MAX - 1}};
    struct msg_done done;
    if (!is_done(message, &done))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        struct msg_done other = done;
        other.event = id_make(ids[i].type, ids[i].generation, ids[i].place);
        post_done_of(client, other, SIZE);
        POST(client, reply, .call = id_make(ID_CALL, 9, 5));
        POST(client, failed, .queue = id_make(ID_QUEUE, 9, 5));
    }
    cr_assert_eq(post_done(client, &done), 0);
    return true;
}

Test(remote_hostile, news_of_what_does_not_exist_is_ignored)
{
    bool untouched;
    atomic_store(&between.meddler, of_nothing);
    OK(read_guarded(&untouched));
    cr_assert(!untouched);
}

/* Ends of all events that there can be, which it cannot know. */
static bool of_all(struct stream *client, const struct message *message)
{
    struct msg_done done;
    struct unpack body = {message->body, message->body + message->size, false};
    if (message->type != MSG_DONE || !unpack_done(&body, &done))
        return false;
    for (uint32_t i = 0; i < 16 * 16; i++)
        post_done_of(client, (struct msg_done){.event = id_make(ID_EVENT, i / 16, i % 16)}, SIZE);
    cr_assert_eq(post_done(client, &done), 0);
    return true;
}

Test(remote_hostile, objects_of_another_server_are_not_its)
{
    unsigned char bytes[SIZE];
    cl_int status = CL_COMPLETE;
    cl_event read;
    memset(bytes, 0x55, sizeof(bytes));
    cl_context context = MADE(clCreateContext, NULL, 1, &honest, NULL, NULL);
    cl_command_queue queue = MADE(clCreateCommandQueue, context, honest, 0);
    cl_mem buffer = MADE(clCreateBuffer, context, 0, SIZE, NULL);
    cl_event gate = MADE(clCreateUserEvent, context);
    OK(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, SIZE, bytes, 1, &gate, &read));
    atomic_store(&between.meddler, of_all);
    OK(round_trip());
    OK(clGetEventInfo(read, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    cr_assert(status > CL_COMPLETE);
    for (size_t i = 0; i < SIZE; i++)
        cr_assert_eq(bytes[i], 0x55);
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clFinish(queue));
}

static bool of_another_type(struct stream *client, const struct message *message)
{
    struct msg_done done;
    if (!is_done(message, &done))
        return false;
    done.event = id_make(ID_QUEUE, 0, 0);
    post_done_of(client, done, SIZE);
    return true;
}

Test(remote_hostile, the_end_of_what_is_no_event_ends_the_session)
{
    bool untouched;
    atomic_store(&between.meddler, of_another_type);
    cr_assert_eq(read_guarded(&untouched), CL_DEVICE_NOT_AVAILABLE);
    cr_assert(untouched);
}

static cl_program build(const char *source)
{
    cl_program built = MADE(clCreateProgramWithSource, program.context, 1, &source, NULL);
    (void)clBuildProgram(built, 1, &program.device, "", NULL, NULL);
    return built;
}

/* Names of more kernels than it says that there are. */
static bool with_more_kernels(struct stream *client, const struct message *message)
{
    struct msg_reply reply;
    struct msg_built built;
    struct pack pack;
    struct unpack body = {message->body, message->body + message->size, false};
    if (message->type != MSG_REPLY || !unpack_reply(&body, &reply))
        return false;
    struct unpack content = {reply.content,
                             (const unsigned char *)reply.content + reply.content_size, false};
    if (!unpack_built(&content, &built) || strcmp(built.names, "one") != 0)
        return false;
    built.names = "one;one;one;one";
    pack_init(&pack);
    pack_built(&pack, &built);
    pack_bytes(&pack, content.at, (size_t)(content.end - content.at));
    reply.content = pack.bytes;
    reply.content_size = pack.used;
    cr_assert_eq(post_reply(client, &reply), 0);
    pack_finish(&pack);
    return true;
}

Test(remote_hostile, not_more_kernels_are_made_than_there_is_room_for)
{
    cl_kernel kernels[4] = {0};
    cl_uint count = 0;
    atomic_store(&between.meddler, with_more_kernels);
    cl_program built = build("kernel void one(global int *a) { a[0] = 1; }");
    cl_int error = clCreateKernelsInProgram(built, 1, kernels, &count);
    cr_assert(!kernels[1] && !kernels[2] && !kernels[3]);
    cr_assert_eq(error, CL_INVALID_VALUE);
}

/* Anything at all as the answer to every call. */
static bool with_noise(struct stream *client, const struct message *message)
{
    static unsigned seed = 1;
    unsigned char noise[200];
    struct msg_reply reply;
    struct unpack body = {message->body, message->body + message->size, false};
    if (message->type != MSG_REPLY || !unpack_reply(&body, &reply))
        return false;
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (unsigned char)(rand_r(&seed) % 4 ? 0xff : rand_r(&seed));
    reply.error = CL_SUCCESS;
    reply.content = noise;
    reply.content_size = (size_t)rand_r(&seed) % sizeof(noise);
    cr_assert_eq(post_reply(client, &reply), 0);
    return true;
}

Test(remote_hostile, noise_as_answers_is_an_error)
{
    static const char source[] = "kernel void one(global int *a) { a[0] = 1; }";
    cl_program whole = build(source);
    atomic_store(&between.meddler, with_noise);
    for (int round = 0; round < 16; round++) {
        cl_int error;
        size_t size = 0;
        cl_kernel kernel = clCreateKernel(whole, "one", &error);
        cr_assert(!kernel && error != CL_SUCCESS);
        cl_program built = build(source);
        kernel = clCreateKernel(built, "one", &error);
        cr_assert(!kernel && error != CL_SUCCESS);
        (void)clGetProgramInfo(whole, CL_PROGRAM_BINARY_SIZES, sizeof(size), &size, NULL);
        OK(clReleaseProgram(built));
    }
}
