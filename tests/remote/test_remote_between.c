#include <limits.h>
#include <signal.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "state/driver/between.h"
#include "tests/remote/proxy.h"
#include "tests/remote/served.h"
#include "tests/support/calls.h"

/* Copies from a device to one of another context, or another server: the program's process carries
   none of the bytes. */

#define SERVERS  2
#define LIMIT_NS (60 * NS_PER_S)

/* A context of its own on one device, with a buffer. */
struct place {
    cl_context context;
    cl_device_id device;
    cl_command_queue queue;
    cl_mem buffer;
    size_t size;
    unsigned char *bytes; /* What must be there. */
};

static struct served served[SERVERS];
static cl_platform_id platforms[SERVERS];
static between_function between;

static void read_place(const struct place *place, unsigned char *ret_bytes)
{
    OK(clEnqueueReadBuffer(place->queue, place->buffer, CL_TRUE, 0, place->size, ret_bytes, 0, NULL,
                           NULL));
}

static void check(const struct place *place)
{
    unsigned char *got = malloc(place->size);
    cr_assert(got);
    read_place(place, got);
    for (size_t i = 0; i < place->size; i++)
        cr_assert_eq(got[i], place->bytes[i], "byte %zu is %u and not %u", i, got[i],
                     place->bytes[i]);
    free(got);
}

static void place_make(struct place *place, int server, unsigned device, size_t size, unsigned seed)
{
    cl_device_id devices[2];
    OK(clGetDeviceIDs(platforms[server], CL_DEVICE_TYPE_ALL, 2, devices, NULL));
    place->device = devices[device];
    place->context = MADE(clCreateContext, NULL, 1, &place->device, NULL, NULL);
    place->queue = MADE(clCreateCommandQueue, place->context, place->device, 0);
    place->size = size;
    place->bytes = malloc(size);
    cr_assert(place->bytes);
    for (size_t i = 0; i < size; i++)
        place->bytes[i] = (unsigned char)(rand_r(&seed) >> 5);
    place->buffer = MADE(clCreateBuffer, place->context, CL_MEM_COPY_HOST_PTR, size, place->bytes);
}

static void place_free(struct place *place)
{
    RELEASE(place->buffer, place->queue, place->context);
    free(place->bytes);
}

struct range {
    size_t from, to, size;
};

static cl_int copy(const struct place *from, const struct place *to, struct range range,
                   cl_uint count, const cl_event *waits, cl_event *event)
{
    return between(from->queue, to->queue, from->buffer, to->buffer, range.from, range.to,
                   range.size, count, waits, event);
}

static void must_copy(struct place *from, struct place *to, struct range range)
{
    cl_event event;
    OK(copy(from, to, range, 0, NULL, &event));
    OK(clWaitForEvents(1, &event));
    OK(clReleaseEvent(event));
    memcpy(to->bytes + range.to, from->bytes + range.from, range.size);
    check(to);
}

/* Until the server has found out that its device can have part in that. */
static void await_trial(int server)
{
    struct place a, b;
    cl_event event;
    cl_int status = CL_QUEUED;
    place_make(&a, server, 1, 1, 20);
    place_make(&b, server, 1, 1, 21);
    for (uint64_t until = clock_now_ns() + LIMIT_NS; status != CL_COMPLETE;) {
        cr_assert(clock_now_ns() < until, "the device is tried for ever");
        OK(copy(&a, &b, (struct range){0, 0, 1}, 0, NULL, &event));
        (void)clWaitForEvents(1, &event);
        OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
        OK(clReleaseEvent(event));
    }
    place_free(&a);
    place_free(&b);
}

static void connect_all(void)
{
    char addresses[2 * sizeof(served[0].address)];
    cl_uint count = 0;
    served_use(&served[0]);
    snprintf(addresses, sizeof(addresses), "%s %s", served[0].address, served[1].address);
    setenv("RESEAT_SERVER", addresses, 1);
    OK(clGetPlatformIDs(SERVERS, platforms, &count));
    cr_assert_eq(count, SERVERS);
    between =
        (between_function)clGetExtensionFunctionAddressForPlatform(platforms[0], BETWEEN_NAME);
    cr_assert(between);
    for (int i = 0; i < SERVERS; i++)
        await_trial(i);
}

static void start(void)
{
    for (int i = 0; i < SERVERS; i++)
        served_start(&served[i], NULL);
    connect_all();
}

static char credentials[PATH_MAX];

static void issue(void)
{
    served_issue(&served[0], "laptop", NULL, NULL, credentials);
    setenv("RESEAT_CREDENTIALS", credentials, 1);
}

static void start_tcp(void)
{
    served_start_tcp(&served[0], NULL);
    served_join_tcp(&served[1], &served[0]);
    issue();
    connect_all();
}

/* One of them on this machine alone. */
static void start_mixed(void)
{
    served_start_tcp(&served[0], NULL);
    served_start(&served[1], NULL);
    issue();
    connect_all();
}

/* As each test's last step: what a fixture finds counts for nothing. */
static void stop(void)
{
    for (int i = SERVERS - 1; i >= 0; i--) { /* The first one has the authority. */
        cr_assert(!served_wrote(&served[i], "was ended") && !served_wrote(&served[i], "crashed"));
        served_stop(&served[i]);
    }
}

TestSuite(between, .init = start, .timeout = 180);
TestSuite(between_tcp, .init = start_tcp, .timeout = 180);
TestSuite(between_mixed, .init = start_mixed, .timeout = 180);

#define SIZE ((5u << 20) + 4099)

static void copy_ranges(struct place *from, struct place *to)
{
    static const struct range ranges[] = {
        {0, 0, SIZE},
        {0, 0, 1},
        {SIZE - 1, 0, 1},
        {17, 4099, 1u << 20},
        {3, SIZE - 70000, 70000},
        {(1u << 20) - 5, 1, (3u << 20) + 11},
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        must_copy(from, to, ranges[i]);
        must_copy(to, from, (struct range){ranges[i].to, ranges[i].from, ranges[i].size});
    }
}

static void copy_from_server_to_server(void)
{
    struct place a, b;
    place_make(&a, 0, 1, SIZE, 1);
    place_make(&b, 1, 1, SIZE, 2);
    copy_ranges(&a, &b);
    place_free(&a);
    place_free(&b);
    stop();
}

TestCall(between, every_byte_goes_from_server_to_server, copy_from_server_to_server());
TestCall(between_tcp, every_byte_goes_from_server_to_server, copy_from_server_to_server());

/* The one that has an address is connected to, whichever way the bytes go. */
TestCall(between_mixed, every_byte_goes_from_server_to_server, copy_from_server_to_server());

Test(between, every_byte_goes_between_contexts_of_one_session)
{
    struct place a, b;
    place_make(&a, 0, 1, SIZE, 3);
    place_make(&b, 0, 1, SIZE, 4);
    copy_ranges(&a, &b);
    place_free(&a);
    place_free(&b);
    stop();
}

Test(between, in_one_context_it_is_an_ordinary_copy)
{
    struct place a, b;
    place_make(&a, 0, 1, SIZE, 5);
    b = a;
    b.bytes = calloc(1, SIZE);
    b.buffer = MADE(clCreateBuffer, a.context, CL_MEM_COPY_HOST_PTR, SIZE, b.bytes);
    must_copy(&a, &b, (struct range){9, 5, SIZE - 9});
    cr_assert_eq(copy(&a, &a, (struct range){0, 1, 2}, 0, NULL, NULL), CL_MEM_COPY_OVERLAP);
    OK(clReleaseMemObject(b.buffer));
    free(b.bytes);
    place_free(&a);
    stop();
}

Test(between, what_is_wrong_is_said_at_the_call)
{
    struct place a, b, c;
    cl_event foreign;
    place_make(&a, 0, 1, 4096, 6);
    place_make(&b, 1, 1, 4096, 7);
    place_make(&c, 0, 0, 4096, 8);
    foreign = MADE(clCreateUserEvent, c.context);
    cr_assert_eq(copy(&a, &b, (struct range){1, 0, 4096}, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_assert_eq(copy(&a, &b, (struct range){0, 4096, 1}, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_assert_eq(copy(&a, &b, (struct range){0, 0, 0}, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_assert_eq(copy(&a, &b, (struct range){0, 2, SIZE_MAX}, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_assert_eq(copy(&a, &b, (struct range){0, 0, 8}, 1, &foreign, NULL), CL_INVALID_CONTEXT);
    cr_assert_eq(copy(&a, &b, (struct range){0, 0, 8}, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST);
    cr_assert_eq(between(b.queue, a.queue, a.buffer, b.buffer, 0, 0, 8, 0, NULL, NULL),
                 CL_INVALID_CONTEXT);
    cr_assert_eq(between(a.queue, b.queue, NULL, b.buffer, 0, 0, 8, 0, NULL, NULL),
                 CL_INVALID_MEM_OBJECT);
    cr_assert_eq(between(NULL, b.queue, a.buffer, b.buffer, 0, 0, 8, 0, NULL, NULL),
                 CL_INVALID_COMMAND_QUEUE);
    OK(clReleaseEvent(foreign));
    check(&b);
    place_free(&a);
    place_free(&b);
    place_free(&c);
    stop();
}

/* What is before it on either queue is seen, and what is behind it sees it, however long it waits.
 */
static void keep_order(int server)
{
    struct place a, b;
    cl_event gates[2], event;
    cl_int status;
    unsigned char *got = malloc(SIZE);
    place_make(&a, 0, 1, SIZE, 9);
    place_make(&b, server, 1, SIZE, 10);
    cr_assert(got);
    for (int i = 0; i < 2; i++)
        gates[i] = MADE(clCreateUserEvent, i ? b.context : a.context);
    const unsigned char one = 1, two = 2, three = 3;
    /* Before: a becomes ones, late. */
    OK(clEnqueueFillBuffer(a.queue, a.buffer, &one, 1, 0, SIZE, 1, &gates[0], NULL));
    OK(copy(&a, &b, (struct range){0, 0, SIZE}, 2, gates, &event));
    /* Behind: a becomes twos, and half of b threes. */
    OK(clEnqueueFillBuffer(a.queue, a.buffer, &two, 1, 0, SIZE, 0, NULL, NULL));
    OK(clEnqueueFillBuffer(b.queue, b.buffer, &three, 1, 0, SIZE / 2, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(b.queue, b.buffer, CL_FALSE, 0, SIZE, got, 0, NULL, NULL));
    clock_sleep(50 * NS_PER_MS);
    for (int i = 0; i < 2; i++) {
        OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
        cr_assert_gt(status, CL_COMPLETE, "it did not wait for all");
        OK(clSetUserEventStatus(gates[i], CL_COMPLETE));
        clock_sleep(50 * NS_PER_MS);
    }
    OK(clFinish(b.queue));
    for (size_t i = 0; i < SIZE; i++)
        cr_assert_eq(got[i], i < SIZE / 2 ? three : one, "byte %zu is %u", i, got[i]);
    memset(a.bytes, two, SIZE);
    check(&a);
    for (int i = 0; i < 2; i++)
        OK(clReleaseEvent(gates[i]));
    OK(clReleaseEvent(event));
    free(got);
    place_free(&a);
    place_free(&b);
    stop();
}

TestCall(between, it_is_a_command_of_both_queues, keep_order(1));
TestCall(between_tcp, it_is_a_command_of_both_queues, keep_order(1));
TestCall(between, it_is_a_command_of_both_queues_of_one_session, keep_order(0));

/* Each block goes its own way at once, and back. */
Test(between, many_go_at_once_in_all_directions)
{
    enum { PLACES = 4, BLOCKS = 8, BLOCK = 150001 };
    struct place places[PLACES];
    cl_event events[PLACES * PLACES * BLOCKS];
    size_t count = 0;
    for (unsigned i = 0; i < PLACES; i++)
        place_make(&places[i], (int)(i % 2), 1, (size_t)2 * PLACES * BLOCKS * BLOCK, i);
    for (unsigned block = 0; block < BLOCKS; block++)
        for (unsigned i = 0; i < PLACES; i++)
            for (unsigned j = 0; j < PLACES; j++) {
                if (i == j)
                    continue;
                struct range range = {(j * BLOCKS + block) * (size_t)BLOCK,
                                      ((PLACES + i) * BLOCKS + block) * (size_t)BLOCK, BLOCK};
                OK(copy(&places[i], &places[j], range, 0, NULL, &events[count++]));
                memcpy(places[j].bytes + range.to, places[i].bytes + range.from, BLOCK);
            }
    for (size_t i = 0; i < count; i++) {
        OK(clWaitForEvents(1, &events[i]));
        OK(clReleaseEvent(events[i]));
    }
    for (unsigned i = 0; i < PLACES; i++) {
        check(&places[i]);
        place_free(&places[i]);
    }
    stop();
}

/* The event's status, which comes. */
static cl_int ended(cl_event event)
{
    cl_int status = CL_QUEUED;
    for (uint64_t until = clock_now_ns() + LIMIT_NS; status > CL_COMPLETE;) {
        cr_assert(clock_now_ns() < until, "it has not ended");
        OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
        clock_sleep(NS_PER_MS);
    }
    return status;
}

/* POCL's basic device cannot have what waits for the program. Whoever asked copies another way. */
static void refuse(int which, int target)
{
    struct place a, b;
    cl_event event;
    place_make(&a, 0, which != 0, 4096, 14);
    place_make(&b, target, which != 1, 4096, 15);
    OK(copy(&a, &b, (struct range){0, 0, 4096}, 0, NULL, &event));
    cr_assert_lt(ended(event), 0);
    OK(clReleaseEvent(event));
    /* Callbacks are told after waits. */
    cl_int error = CL_SUCCESS;
    for (uint64_t until = clock_now_ns() + LIMIT_NS; error == CL_SUCCESS;) {
        cr_assert(clock_now_ns() < until, "it is tried again and again");
        error = copy(&a, &b, (struct range){0, 0, 4096}, 0, NULL, NULL);
    }
    cr_assert_eq(error, CL_INVALID_OPERATION);
    check(&b);
    place_free(&a);
    place_free(&b);
    stop();
}

TestCall(between, a_source_that_cannot_says_so, refuse(0, 1));
TestCall(between, a_target_that_cannot_says_so, refuse(1, 1));
TestCall(between, a_source_of_the_same_session_that_cannot_says_so, refuse(0, 0));
TestCall(between, a_target_of_the_same_session_that_cannot_says_so, refuse(1, 0));

/* Whether a device can be waited for is found out beside what its session does: so the copy that is
   tried meanwhile fails at once, and what else the session is given goes on. */
static void try_beside(int which)
{
    struct place a, b;
    cl_event event;
    place_make(&a, 0, which != 0, 4096, 16);
    place_make(&b, 0, which != 1, 4096, 17);
    uint64_t began = clock_now_ns();
    OK(copy(&a, &b, (struct range){0, 0, 4096}, 0, NULL, &event));
    check(&a);
    cr_assert_lt(ended(event), 0);
    cr_assert_lt(clock_now_ns() - began, NS_PER_S, "it waited for a device that hangs");
    OK(clReleaseEvent(event));
    check(&b);
    place_free(&a);
    place_free(&b);
    stop();
}

TestCall(between, nobody_waits_for_a_source_that_is_tried, try_beside(0));
TestCall(between, nobody_waits_for_a_target_that_is_tried, try_beside(1));

/* What one end waits for fails: the copy does, and the queues go on. */
static void fail_wait(int which)
{
    struct place a, b;
    cl_event gate, event;
    place_make(&a, 0, 1, SIZE, 11);
    place_make(&b, 1, 1, SIZE, 12);
    gate = MADE(clCreateUserEvent, which ? b.context : a.context);
    OK(copy(&a, &b, (struct range){0, 0, SIZE}, 1, &gate, &event));
    OK(clSetUserEventStatus(gate, -7));
    cr_assert_lt(ended(event), 0);
    RELEASE(event, gate);
    check(&b);
    place_free(&a);
    place_free(&b);
    stop();
}

TestCall(between, a_wait_that_fails_at_the_source_fails_the_copy, fail_wait(0));
TestCall(between, a_wait_that_fails_at_the_target_fails_the_copy, fail_wait(1));

static struct proxy *proxy;

/* What the client reaches by a way that the other server has not. */
static void start_behind_proxy(void)
{
    char address[sizeof(served[1].address)];
    served_start_tcp(&served[0], NULL);
    served_join_tcp(&served[1], &served[0]);
    issue();
    proxy = proxy_create((uint16_t)strtoul(strrchr(served[1].address, ':') + 1, NULL, 10));
    cr_assert(proxy);
    memcpy(address, served[1].address, sizeof(address));
    snprintf(served[1].address, sizeof(served[1].address), "tcp:127.0.0.1:%u", proxy_port(proxy));
    connect_all();
    memcpy(served[1].address, address, sizeof(address));
    proxy_set_refusing(proxy, true);
}

TestSuite(between_apart, .init = start_behind_proxy, .timeout = 180);

Test(between_apart, a_server_that_is_not_reached_is_not_tried_again_at_once)
{
    struct place a, b;
    cl_event event;
    cl_int error = CL_SUCCESS;
    place_make(&a, 0, 1, SIZE, 16);
    place_make(&b, 1, 1, SIZE, 17);
    OK(copy(&a, &b, (struct range){0, 0, SIZE}, 0, NULL, &event));
    cr_assert_lt(ended(event), 0);
    OK(clReleaseEvent(event));
    for (uint64_t until = clock_now_ns() + LIMIT_NS; error == CL_SUCCESS;) {
        cr_assert(clock_now_ns() < until, "it is tried again and again");
        error = copy(&a, &b, (struct range){0, 0, SIZE}, 0, NULL, NULL);
    }
    cr_assert_eq(error, CL_INVALID_OPERATION);
    check(&b);
    /* What both sessions say to their client goes on. */
    const unsigned char five = 5;
    OK(clEnqueueFillBuffer(b.queue, b.buffer, &five, 1, 0, SIZE, 0, NULL, NULL));
    memset(b.bytes, five, SIZE);
    check(&b);
    check(&a);
    place_free(&a);
    place_free(&b);
    stop();
    proxy_destroy(proxy);
}

/* A server dies in the middle: the copy fails, and the other one goes on. */
static void kill_one(int victim)
{
    struct place places[2];
    cl_event gate, event;
    for (int i = 0; i < 2; i++)
        place_make(&places[i], i, 1, (size_t)64 << 20, 13);
    /* The other end is not ready before that. */
    gate = MADE(clCreateUserEvent, places[!victim].context);
    OK(copy(&places[0], &places[1], (struct range){0, 0, places[0].size}, 1, &gate, &event));
    pid_t session = served_session(&served[victim]);
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    kill(session, SIGKILL);
    cl_int status = ended(event);
    /* All may have arrived before the signal did. */
    cr_assert(status < 0 || victim == 0, "it ended well: %d", status);
    OK(clReleaseEvent(event));
    struct place *left = &places[!victim];
    const unsigned char four = 4;
    OK(clEnqueueFillBuffer(left->queue, left->buffer, &four, 1, 0, left->size, 0, NULL, NULL));
    memset(left->bytes, four, left->size);
    check(left);
    for (int i = SERVERS - 1; i >= 0; i--)
        served_stop(&served[i]);
}

TestCall(between_tcp, the_source_is_killed, kill_one(0));
TestCall(between_tcp, the_target_is_killed, kill_one(1));
TestCall(between, the_source_is_killed, kill_one(0));
TestCall(between, the_target_is_killed, kill_one(1));
