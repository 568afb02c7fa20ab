#include "tests/support/cases.h"
#include <CL/cl.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "messages.h"
#include "remote/wire/stream.h"
#include "state/base/clock.h"
#include "state/base/threads/thread.h"

/* Servers that speak another version: the driver has no platform, at once, and says why. */

#define WAIT_NS (30 * NS_PER_S)

static char folder[] = "/tmp/versions-XXXXXX";
static char address[80], log_path[80];
static int listener = -1;

static void start(void)
{
    char log[128];
    cr_assert(mkdtemp(folder));
    snprintf(address, sizeof(address), "unix:%s/s", folder);
    snprintf(log_path, sizeof(log_path), "%s/log", folder);
    snprintf(log, sizeof(log), "warn:%s", log_path);
    setenv("RESEAT_LOG", log, 1);
    setenv("RESEAT_SERVER", address, 1);
    setenv("OCL_ICD_VENDORS", getenv("TEST_DRIVER"), 1);
    cr_assert_eq(link_unix.listen(address + strlen("unix:"), &listener), 0);
}

static void stop(void)
{
    link_unix.unlisten(address + strlen("unix:"));
    unlink(log_path);
    cr_assert_eq(rmdir(folder), 0);
}

TestSuite(remote_versions, .init = start, .fini = stop, .timeout = 60);

static void answer(struct link *link, unsigned type, const struct pack *pack)
{
    cr_assert_eq(greeting_send(link, type, pack->bytes, pack->used, clock_now_ns() + WAIT_NS), 0);
}

/* Answer one hello. */
static void *serve(void *data)
{
    unsigned char buffer[STREAM_GREETING_MAX];
    struct link *link = NULL;
    struct message message;
    struct pack pack;
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    cr_assert_eq(poll(&ready, 1, 30000), 1);
    cr_assert_eq(link_unix.admit(accept4(listener, NULL, NULL, SOCK_CLOEXEC),
                                 clock_now_ns() + WAIT_NS, &link),
                 0);
    cr_assert_eq(greeting_receive(link, buffer, clock_now_ns() + WAIT_NS, &message), 0);
    cr_assert_eq(message.type, MSG_HELLO);
    pack_init(&pack);
    if (data) {
        pack_refused(&pack, &(struct msg_refused){.reason = data});
        answer(link, MSG_REFUSED, &pack);
    } else {
        pack_welcome(&pack, &(struct msg_welcome){.version = WIRE_VERSION + 1});
        answer(link, MSG_WELCOME, &pack);
    }
    pack_finish(&pack);
    return NULL;
}

static void must_say(const char *text)
{
    char said[1024] = "";
    cl_uint count = 7;
    uint64_t before = clock_now_ns();
    cr_expect_neq(clGetPlatformIDs(0, NULL, &count), CL_SUCCESS);
    cr_expect_lt(clock_now_ns() - before, WAIT_NS);
    int fd = open(log_path, O_RDONLY | O_CLOEXEC);
    cr_assert(fd >= 0 && read(fd, said, sizeof(said) - 1) > 0);
    close(fd);
    cr_expect(strstr(said, text), "%s", said);
}

Test(remote_versions, a_server_that_refuses_ours_is_heard)
{
    cr_assert_eq(thread_start("server", 0, serve,
                              "the server has protocol version 2, the client has 1", NULL),
                 0);
    must_say("the server has protocol version 2, the client has 1");
}

Test(remote_versions, one_that_welcomes_us_in_another_is_not_believed)
{
    cr_assert_eq(thread_start("server", 0, serve, NULL, NULL), 0);
    must_say("speaks version 2 and this driver 1");
}
