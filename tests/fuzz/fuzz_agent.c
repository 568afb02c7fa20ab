#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/daemon/devices/device_list.h"
#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/operation.h"
#include "agent/daemon/peers.h"
#include "agent/daemon/programs/registry.h"
#include "state/driver/device_key.h"
#include "tests/fuzz/agent_world.h"
#include "tests/fuzz/fuzz.h"

/*
 * The agent with its peers: programs and clients that connect, speak, fall silent and die in any
 * order. The input is a list of steps; the sockets and the loop are real, processes, time and the
 * lister are made up (agent_world.c).
 */

#define SLOTS     6
#define STEPS_MAX 200

static struct agent *agent;
static int slots[SLOTS]; /* the other ends; -1: free */
static struct frame_reader heard[SLOTS];

/* ---- what is said ---- */

static const char *const types[] = {
    MSG_HELLO, MSG_STATUS,  MSG_REGISTER, MSG_DEVICES, MSG_APPS,     MSG_AGENT,
    MSG_STOP,  MSG_MOVE,    MSG_RESUME,   MSG_SUSPEND, MSG_PROGRESS, MSG_REPORT,
    "unknown", MSG_CANCEL,  MSG_RELOAD,   MSG_NEED,    MSG_RETURN,   MSG_LIMIT,
    MSG_DRAIN, MSG_BALANCE, MSG_EXPLAIN,  MSG_USE,     MSG_PREWARM,
};
static const char *const words[] = {"",     "program", "client", "a1",   "a2",  "a999999999",
                                    "dev0", "dev1",    "x264",   "Stub", "101", "no such"};

static const char *word(struct input *input)
{
    return words[input_byte(input) % ARRAY_SIZE(words)];
}

static void put_fields(struct frame *frame, struct input *input)
{
    static const char *const strings[] = {"role",   "name",   "id",    "app",
                                          "device", "result", "reason"};
    uint8_t which = input_byte(input);
    for (size_t i = 0; i < ARRAY_SIZE(strings); i++)
        if (which & (1u << i))
            frame_string(frame, strings[i], word(input));
    if (which & 0x80) {
        frame_u64(frame, "version", PROTOCOL_VERSION);
        frame_u64(frame, "request", input_byte(input));
        frame_u64(frame, "timeout_ms", (uint64_t)input_short(input) << (input_byte(input) % 64));
        uint8_t how = input_byte(input);
        frame_bool(frame, "dry_run", how & 1);
        frame_bool(frame, "queue", how & 2);
        frame_bool(frame, "named", input_byte(input) & 1);
    }
}

/* Small, large, or more than anything has. */
static uint64_t amount(struct input *input)
{
    uint8_t bits = input_byte(input);
    return (uint64_t)input_byte(input) << (bits % 64);
}

static void put_vdev(struct frame *frame, struct input *input)
{
    static const char *const amounts[] = {"device_bytes", "granted", "wanted",
                                          "least",        "peak",    "spilled"};
    char key[DEVICE_KEY_TEXT_MAX];
    frame_map(frame, NULL);
    uint8_t flags = input_byte(input);
    frame_bool(frame, "suspended", flags & 1);
    frame_bool(frame, "moving", input_byte(input) & 1);
    world_key(input_byte(input), key);
    frame_string(frame, "device", key);
    for (size_t i = 0; flags & 2 && i < ARRAY_SIZE(amounts); i++)
        frame_u64(frame, amounts[i], amount(input));
    if (flags & 4)
        frame_string(frame, "pinned", "why");
    frame_end(frame);
}

static void put_status(struct frame *frame, struct input *input)
{
    frame_array(frame, "vdevs");
    put_vdev(frame, input);
    for (unsigned i = input_byte(input) % 5; i > 0; i--)
        put_vdev(frame, input);
    frame_end(frame);
}

static void put_memory(struct frame *frame, struct input *input)
{
    uint8_t flags = input_byte(input);
    frame_u64(frame, "id", input_byte(input));
    frame_u64(frame, "vdev", input_byte(input) % 6);
    frame_u64(frame, "bytes", amount(input));
    frame_u64(frame, "least", amount(input));
    frame_u64(frame, "wanted", amount(input));
    frame_bool(frame, "failed", flags & 1);
    frame_bool(frame, "limited", flags & 2);
    frame_bool(frame, "undo", flags & 4);
    frame_u64(frame, "memory_bytes", amount(input));
    frame_string(frame, "what", word(input));
}

static void put_environment(struct frame *frame, struct input *input)
{
    frame_array(frame, "environment");
    for (unsigned i = input_byte(input) % 3; i > 0; i--)
        frame_string(frame, NULL, input_byte(input) & 1 ? "POCL_DEVICES=basic" : "none");
    frame_end(frame);
}

static void say_frame(int fd, struct input *input)
{
    struct frame frame;
    const char *type = types[input_byte(input) % ARRAY_SIZE(types)];
    frame_init(&frame, type);
    put_fields(&frame, input);
    if (strcmp(type, MSG_STATUS) == 0)
        put_status(&frame, input);
    if (strcmp(type, MSG_NEED) == 0 || strcmp(type, MSG_RETURN) == 0 ||
        strcmp(type, MSG_LIMIT) == 0 || strcmp(type, MSG_DRAIN) == 0 || strcmp(type, MSG_USE) == 0)
        put_memory(&frame, input);
    if (strcmp(type, MSG_REGISTER) == 0 || strcmp(type, MSG_DEVICES) == 0)
        put_environment(&frame, input);
    EXPECT(frame_seal(&frame) == 0);
    (void)!send(fd, frame.buffer.data, frame.buffer.size, MSG_DONTWAIT | MSG_NOSIGNAL);
    frame_finish(&frame);
}

static void say_bytes(int fd, struct input *input)
{
    size_t size;
    const uint8_t *bytes = input_bytes(input, input_short(input), &size);
    (void)!send(fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* ---- what happens ---- */

static void turn(void)
{
    for (int i = 0; i < 3; i++)
        uv_run(&agent->loop, UV_RUN_NOWAIT);
}

static void hang_up(unsigned slot)
{
    if (slots[slot] < 0)
        return;
    close(slots[slot]);
    slots[slot] = -1;
    frame_reader_finish(&heard[slot]);
}

/* Everything that the agent says is a frame. */
static void listen_to(unsigned slot)
{
    char bytes[65536];
    ssize_t count;
    if (slots[slot] < 0)
        return;
    while ((count = recv(slots[slot], bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
        struct message message;
        int got;
        EXPECT(frame_reader_feed(&heard[slot], bytes, (size_t)count) == 0);
        while ((got = frame_reader_next(&heard[slot], &message)) == 1)
            message_finish(&message);
        EXPECT(got == 0);
    }
    if (count == 0)
        hang_up(slot);
}

static void call_up(unsigned slot, uint8_t who)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    hang_up(slot);
    if (agent->stopping)
        return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT(fd >= 0);
    memcpy(address.sun_path, agent->paths.socket, sizeof(address.sun_path));
    world_next_peer(who);
    EXPECT(connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
    slots[slot] = fd;
    frame_reader_init(&heard[slot]);
    turn();
}

static void step(struct input *input)
{
    uint8_t what = input_byte(input), slot = (uint8_t)(input_byte(input) % SLOTS);
    switch (what % 10) {
    case 0:
        call_up(slot, input_byte(input));
        break;
    case 1:
        hang_up(slot);
        break;
    case 2:
        world_kill(input_byte(input));
        break;
    case 3:
        world_pass(input_short(input));
        programs_sweep(agent);
        operations_expire(agent);
        peers_sweep(agent);
        govern_tick(agent);
        break;
    case 4:
        world_lister_ends(agent, input);
        break;
    case 5:
        world_stuff(input_byte(input) & 1);
        break;
    case 6:
        if (slots[slot] >= 0)
            say_bytes(slots[slot], input);
        break;
    default:
        if (slots[slot] >= 0)
            say_frame(slots[slot], input);
        break;
    }
    turn();
    for (unsigned i = 0; i < SLOTS; i++)
        listen_to(i);
}

static bool program_is_known(const struct program *program)
{
    const struct program *known = agent->programs;
    while (known && known != program)
        known = known->next;
    return known != NULL;
}

static bool peer_is_known(const struct peer *peer)
{
    const struct peer *known = agent->peers;
    while (known && known != peer)
        known = known->next;
    return known != NULL;
}

/* Nothing refers to what is gone. */
static void check(void)
{
    unsigned count = 0;
    for (const struct peer *peer = agent->peers; peer; peer = peer->next) {
        count++;
        EXPECT(!peer->closing);
        EXPECT(!peer->program || peer->program->peer == peer);
        EXPECT((peer->role == PEER_PROGRAM) || !peer->program);
    }
    EXPECT(count == agent->peer_count);
    unsigned waiting = 0;
    for (const struct program *program = agent->programs; program; program = program->next) {
        EXPECT(!program->peer || program->peer->program == program);
        EXPECT(!program->managed.needs || program->peer);
        for (const struct pending *one = program->managed.needs; one; one = one->next)
            waiting += one->program == program;
        for (const struct program *other = program->next; other; other = other->next)
            EXPECT(strcmp(program->id, other->id) != 0);
    }
    EXPECT(ledger_check(&agent->ledger));
    EXPECT(waiting == agent->governor->waiting);
    for (const struct operation *op = agent->operations; op; op = op->next)
        EXPECT((!op->program || program_is_known(op->program)) &&
               (!op->client || peer_is_known(op->client)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    agent = world_begin(input_byte(&input));
    for (unsigned i = 0; i < SLOTS; i++)
        slots[i] = -1;
    for (unsigned i = 0; i < STEPS_MAX && input.left && !agent->stopping; i++) {
        step(&input);
        check();
    }
    for (unsigned i = 0; i < SLOTS; i++)
        hang_up(i);
    world_end(agent);
    return 0;
}
