#include "tests/support/cases.h"
#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "tests/agent/harness.h"

/* Bad input on the agent's socket. */

TestSuite(badinput, .init = harness_init, .fini = harness_finish, .timeout = 120);

static void send_bytes(int fd, const void *bytes, size_t size)
{
    const char *at = bytes;

    while (size) {
        ssize_t count = send(fd, at, size, MSG_NOSIGNAL);
        if (count <= 0)
            return;
        at += count;
        size -= (size_t)count;
    }
}

static bool closed_by_peer(int fd)
{
    struct timeval limit = {.tv_sec = 5};
    char bytes[4096];
    ssize_t count;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    while ((count = recv(fd, bytes, sizeof(bytes), 0)) > 0) {
    }
    return count == 0 || errno == ECONNRESET;
}

Test(badinput, bad_frames_cost_only_the_connection_that_sent_them)
{
    harness_start("bystander", "done");
    const uint8_t oversized[] = {0xff, 0xff, 0xff, 0xff, 1, 2, 3};
    const uint8_t truncated[] = {0x10, 0, 0, 0, 0x81, 0xa4};
    const uint8_t nonsense[] = {4, 0, 0, 0, 0xdf, 0xff, 0xff, 0xff};
    struct frame frame;

    int fd = harness_connect();
    send_bytes(fd, oversized, sizeof(oversized));
    cr_assert(closed_by_peer(fd));
    close(fd);
    fd = harness_connect();
    send_bytes(fd, nonsense, sizeof(nonsense));
    cr_assert(closed_by_peer(fd));
    close(fd);
    fd = harness_connect();
    send_bytes(fd, truncated, sizeof(truncated));
    close(fd);
    fd = harness_connect();
    frame_init(&frame, MSG_MOVE);
    cr_assert_eq(frame_seal(&frame), 0);
    send_bytes(fd, frame.buffer.data, frame.buffer.size);
    frame_finish(&frame);
    cr_assert(closed_by_peer(fd));
    close(fd);
    srandom(7);
    for (int i = 0; i < 300; i++) {
        uint8_t bytes[256];
        size_t size = (size_t)random() % sizeof(bytes) + 4;
        fd = harness_connect();
        cr_assert_geq(fd, 0);
        for (size_t j = 0; j < size && j < sizeof(bytes); j++)
            bytes[j] = (uint8_t)random();
        bytes[2] = bytes[3] = 0;
        size = size > sizeof(bytes) ? sizeof(bytes) : size;
        send_bytes(fd, bytes, size);
        close(fd);
    }
    cr_assert_eq(RESEAT("move", "bystander", "cpu0")->status, 0);
    cr_assert(harness_state("bystander", "running", 1000));
}

static unsigned listings(void)
{
    FILE *file = fopen(harness_path("listed"), "r");
    unsigned count = 0;

    while (file && getc(file) != EOF)
        count++;
    if (file)
        fclose(file);
    return count;
}

/* A list that is asked for as fresh as can be is a second old at most, as for everybody. */
Test(badinput, nobody_has_the_drivers_started_again_and_again)
{
    enum { ASKED = 20 };
    struct frame_reader reader;
    struct message message;
    struct frame frame;
    char script[512];

    snprintf(script, sizeof(script), "#!/bin/sh\nprintf . >>%s\nexec %s \"$@\"\n",
             harness_path("listed"), getenv("TEST_LISTER"));
    harness_write(harness_path("lister"), script);
    cr_assert_eq(chmod(harness_path("lister"), 0700), 0);
    setenv("RESEAT_LISTER", harness_path("lister"), 1);
    cr_assert_eq(RESEAT("devices")->status, 0);
    int fd = harness_connect();
    frame_reader_init(&reader);
    frame_init(&frame, MSG_HELLO);
    frame_u64(&frame, "version", PROTOCOL_VERSION);
    frame_string(&frame, "role", "client");
    cr_assert(harness_tell(fd, &frame));
    cr_assert(harness_hear(fd, &reader, &message, 5000));
    message_finish(&message);
    unsigned before = listings();
    uint64_t begun = clock_now_ms();
    for (unsigned i = 0; i < ASKED; i++) {
        frame_init(&frame, MSG_DEVICES);
        frame_u64(&frame, "age_ms", 0);
        cr_assert(harness_tell(fd, &frame));
        cr_assert(harness_hear(fd, &reader, &message, 60000));
        cr_assert(field_is(&message.root, "type", MSG_DEVICES));
        message_finish(&message);
    }
    cr_assert_gt(before, 0);
    cr_assert_leq(listings() - before, 1 + (clock_now_ms() - begun) / 1000);
    frame_reader_finish(&reader);
    close(fd);
}

Test(badinput, requests_of_random_fields_are_answered_or_refused)
{
    static const char *const types[] = {
        MSG_MOVE,  MSG_SUSPEND, MSG_RESUME, MSG_REGISTER, MSG_DEVICES,  MSG_APPS,  MSG_CANCEL,
        MSG_AGENT, "unknown",   MSG_REPORT, MSG_STATUS,   MSG_PROGRESS, MSG_HELLO, MSG_PREWARM};
    static const char *const keys[] = {"app",     "device", "timeout_ms", "environment",
                                       "request", "vdevs",  "name",       "drop"};
    harness_start("bystander", "refuse");

    srandom(11);
    for (int i = 0; i < 300; i++) {
        struct frame frame;
        int fd = harness_connect();
        frame_init(&frame, MSG_HELLO);
        frame_u64(&frame, "version", PROTOCOL_VERSION);
        frame_string(&frame, "role", i % 3 ? "client" : "program");
        cr_assert_eq(frame_seal(&frame), 0);
        send_bytes(fd, frame.buffer.data, frame.buffer.size);
        frame_finish(&frame);
        frame_init(&frame, types[random() % (long)(sizeof(types) / sizeof(*types))]);
        for (size_t j = 0; j < sizeof(keys) / sizeof(*keys); j++) {
            switch (random() % 5) {
            case 0:
                frame_u64(&frame, keys[j], (uint64_t)random() << 33);
                break;
            case 1:
                frame_string(&frame, keys[j], "bystander");
                break;
            case 2:
                frame_string(&frame, keys[j], "\x01\xff");
                break;
            case 3:
                frame_array(&frame, keys[j]);
                frame_bool(&frame, NULL, true);
                frame_end(&frame);
                break;
            default:
                break;
            }
        }
        cr_assert_eq(frame_seal(&frame), 0);
        send_bytes(fd, frame.buffer.data, frame.buffer.size);
        frame_finish(&frame);
        if (i % 2)
            usleep(1000);
        close(fd);
    }
    cr_assert_eq(RESEAT("move", "bystander", "cpu0")->status, 4);
}
