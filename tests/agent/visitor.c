#include "tests/agent/visitor.h"

#include "tests/support/cases.h"
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "state/driver/device_key.h"
#include "tests/agent/harness.h"

static bool keeps_groups;

void visitor_keeps_groups(bool keeps)
{
    keeps_groups = keeps;
}

struct visitor visitor_connect(uid_t uid)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct visitor visitor = {0};
    int ends[2];

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", getenv("RESEAT_SOCKET"));
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    fflush(NULL);
    visitor.pid = fork();
    if (visitor.pid == 0) {
        if (!keeps_groups)
            harness_become(uid);
        else if (setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
            _exit(126);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(fd, (const struct sockaddr *)&address, sizeof(address)))
            _exit(1);
        harness_send_fd(ends[1], fd);
        pause();
        _exit(0);
    }
    harness_owns(visitor.pid);
    close(ends[1]);
    visitor.fd = harness_receive_fd(ends[0]);
    close(ends[0]);
    frame_reader_init(&visitor.reader);
    return visitor;
}

void visitor_leave(struct visitor *visitor)
{
    kill(visitor->pid, SIGKILL);
    harness_wait(visitor->pid);
    close(visitor->fd);
    frame_reader_finish(&visitor->reader);
}

void visitor_tell(struct visitor *visitor, struct frame *frame)
{
    (void)harness_tell(visitor->fd, frame);
}

void visitor_need(struct visitor *visitor, uint64_t id, uint64_t bytes)
{
    struct frame frame;

    frame_init(&frame, MSG_NEED);
    frame_u64(&frame, "id", id);
    frame_u64(&frame, "vdev", 0);
    frame_u64(&frame, "total", bytes);
    frame_u64(&frame, "least", bytes);
    frame_u64(&frame, "wanted", bytes);
    visitor_tell(visitor, &frame);
}

bool visitor_hear(struct visitor *visitor, struct message *ret_message, int ms)
{
    return harness_hear(visitor->fd, &visitor->reader, ret_message, (unsigned)ms);
}

bool visitor_ask(struct visitor *visitor, struct frame *frame, struct message *ret_message)
{
    visitor_tell(visitor, frame);
    return visitor_hear(visitor, ret_message, SOON_MS);
}

bool visitor_greet(struct visitor *visitor, const char *role, const char *name, const char *id)
{
    struct message message;
    struct frame frame;

    frame_init(&frame, MSG_HELLO);
    frame_u64(&frame, "version", PROTOCOL_VERSION);
    frame_string(&frame, "role", role);
    frame_string(&frame, "name", name);
    frame_string(&frame, "id", id);
    frame_string(&frame, "program", name);
    if (!visitor_ask(visitor, &frame, &message))
        return false;
    bool welcome = field_is(&message.root, "type", MSG_WELCOME);
    message_finish(&message);
    return welcome;
}

struct visitor visitor_client(uid_t uid)
{
    struct visitor visitor = visitor_connect(uid);

    cr_assert(visitor_greet(&visitor, "client", "", ""));
    return visitor;
}

void visitor_say_held(struct visitor *program, uint64_t bytes, bool limited, bool lost)
{
    static const struct device_key key = {
        .icd = "libfake.so", .platform = "Fake \xe2\x84\xa2", .device = "Fake two"};
    char text[DEVICE_KEY_TEXT_MAX];
    struct frame frame;

    device_key_format(&key, text);
    frame_init(&frame, MSG_STATUS);
    frame_array(&frame, "vdevs");
    frame_map(&frame, NULL);
    frame_string(&frame, "device", text);
    frame_u64(&frame, "device_bytes", bytes);
    frame_u64(&frame, "wanted", bytes);
    if (limited) {
        frame_u64(&frame, "granted", bytes);
        frame_u64(&frame, "least", bytes);
    }
    frame_bool(&frame, "lost", lost);
    frame_end(&frame);
    frame_end(&frame);
    visitor_tell(program, &frame);
}

struct visitor visitor_program(uid_t uid, const char *name)
{
    struct visitor visitor = visitor_connect(uid);

    cr_assert(visitor_greet(&visitor, "program", name, ""));
    visitor_say_held(&visitor, 1 << 20, false, false);
    return visitor;
}

void visitor_start_host_agent(void)
{
    setenv("RESEAT_SOCKET", harness_path("host.sock"), 1);
    cr_assert_eq(chmod(harness_folder(), 0711), 0);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
}

bool visitor_lists(struct visitor *client, const char *type, const char *list, const char *name)
{
    const msgpack_object *items;
    struct message message;
    struct frame frame;
    bool found = false;

    frame_init(&frame, type);
    cr_assert(visitor_ask(client, &frame, &message), "no answer to %s", type);
    cr_assert(field_is(&message.root, "type", type));
    size_t count = field_array(&message.root, list, &items);
    for (size_t i = 0; i < count; i++)
        found = found || field_is(&items[i], "name", name);
    message_finish(&message);
    return found;
}

const char *visitor_answer(struct visitor *client, const char *type, const char *key,
                           const char *app, char ret_text[PROTOCOL_TEXT_MAX])
{
    static char code[PROTOCOL_WORD_MAX];
    struct message message;
    struct frame frame;

    frame_init(&frame, type);
    frame_string(&frame, key, app);
    cr_assert(visitor_ask(client, &frame, &message), "no answer to %s", type);
    code[0] = ret_text[0] = '\0';
    if (field_is(&message.root, "type", MSG_ERROR)) {
        cr_assert(field_string(&message.root, "code", code, sizeof(code)));
        cr_assert(field_string(&message.root, "message", ret_text, PROTOCOL_TEXT_MAX));
    }
    message_finish(&message);
    return code;
}

uint64_t visitor_told_request(struct visitor *program)
{
    struct message message;

    while (visitor_hear(program, &message, SOON_MS)) {
        uint64_t id = field_is(&message.root, "type", MSG_SUSPEND)
                          ? field_u64(&message.root, "request", 0)
                          : 0;
        message_finish(&message);
        if (id)
            return id;
    }
    cr_assert(false, "the program is not asked");
    return 0;
}

void visitor_report(struct visitor *program, uint64_t request, const char *result)
{
    struct frame frame;

    frame_init(&frame, MSG_PROGRESS);
    frame_u64(&frame, "request", request);
    frame_string(&frame, "phase", result);
    visitor_tell(program, &frame);
    frame_init(&frame, MSG_REPORT);
    frame_u64(&frame, "request", request);
    frame_string(&frame, "result", result);
    frame_string(&frame, "reached", "plan");
    frame_string(&frame, "reason", "");
    visitor_tell(program, &frame);
}
