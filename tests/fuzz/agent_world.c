#include "tests/fuzz/agent_world.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/config/process.h"
#include "agent/daemon/costs/costs.h"
#include "agent/daemon/devices/device_list.h"
#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/operation.h"
#include "agent/daemon/peers.h"
#include "agent/daemon/programs/registry.h"
#include "state/driver/device_key.h"

#define PROCESSES 5
#define FIRST_PID 101
#define LATER     1000000

static struct {
    bool ended[PROCESSES];
    uint64_t starts[PROCESSES];
    struct ucred next;
    uint64_t now_ms;
    bool stuffed;
    uv_exit_cb lister_ended; /* NULL: none runs */
    const uv_process_t *lister;
} world;

/* ---- in place of the system: see the --wrap options of the harness ---- */

int __wrap_getsockopt(int fd, int level, int name, void *ret_value, socklen_t *ret_size);
int __real_getsockopt(int fd, int level, int name, void *ret_value, socklen_t *ret_size);
uint64_t __wrap_uv_now(const uv_loop_t *loop);
size_t __wrap_uv_stream_get_write_queue_size(const uv_stream_t *stream);
int __wrap_uv_spawn(uv_loop_t *loop, uv_process_t *process, const uv_process_options_t *options);
void __wrap_uv_close(uv_handle_t *handle, uv_close_cb call);
void __real_uv_close(uv_handle_t *handle, uv_close_cb call);

int __wrap_getsockopt(int fd, int level, int name, void *ret_value, socklen_t *ret_size)
{
    if (level != SOL_SOCKET || name != SO_PEERCRED)
        return __real_getsockopt(fd, level, name, ret_value, ret_size);
    memcpy(ret_value, &world.next, sizeof(world.next));
    return 0;
}

uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return world.now_ms;
}

size_t __wrap_uv_stream_get_write_queue_size(const uv_stream_t *stream)
{
    (void)stream;
    return world.stuffed ? SIZE_MAX : 0;
}

int __wrap_uv_spawn(uv_loop_t *loop, uv_process_t *process, const uv_process_options_t *options)
{
    (void)loop;
    for (size_t i = 0; options->env && options->env[i]; i++)
        EXPECT(options->env[i][0]);
    world.lister_ended = options->exit_cb;
    world.lister = process;
    return 0;
}

void __wrap_uv_close(uv_handle_t *handle, uv_close_cb call)
{
    if ((const void *)handle == (const void *)world.lister)
        call(handle);
    else
        __real_uv_close(handle, call);
}

int process_start_time(pid_t pid, uint64_t *ret_ticks)
{
    unsigned which = (unsigned)(pid - FIRST_PID);
    if (which >= PROCESSES || world.ended[which])
        return -ESRCH;
    *ret_ticks = world.starts[which];
    return 0;
}

uint64_t process_age_s(uint64_t start_ticks)
{
    return start_ticks % 1000;
}

bool process_alive(pid_t pid, uint64_t start)
{
    uint64_t now;
    return process_start_time(pid, &now) == 0 && now == start;
}

void agent_log(const char *format, ...)
{
    char text[PROTOCOL_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
}

void agent_stop(struct agent *agent)
{
    agent->stopping = true;
}

/* ---- what happens ---- */

void world_next_peer(uint8_t who)
{
    world.next.pid = FIRST_PID + who % PROCESSES;
    world.next.uid = geteuid() + (who & 0x40 ? 1 : 0);
}

void world_kill(uint8_t who)
{
    bool *ended = &world.ended[who % PROCESSES];
    *ended = !*ended;
    world.starts[who % PROCESSES]++;
}

void world_pass(uint64_t milliseconds)
{
    world.now_ms += milliseconds;
}

void world_stuff(bool stuffed)
{
    world.stuffed = stuffed;
}

static struct device_key key_of(uint8_t which)
{
    struct device_key key = {.icd = "libstub.so", .platform = "Platform", .device = "Stub"};
    key.ordinal = which % 4;
    return key;
}

void world_key(uint8_t which, char *ret_text)
{
    struct device_key key = key_of(which);
    device_key_format(&key, ret_text);
}

/* Some of four devices, as the bits of @which say. */
static void write_list(const char *path, uint8_t which)
{
    struct inventory_entry entries[4] = {0};
    struct inventory inv = {entries, 0};
    for (uint8_t i = 0; i < 4; i++)
        if (which & (1u << i))
            entries[inv.count++].key = key_of(i);
    char *data;
    size_t size;
    EXPECT(inventory_encode(&inv, &data, &size) == 0);
    if (which & 0x10)
        size /= 2;
    FILE *file = fopen(path, "we");
    EXPECT(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
    free(data);
}

void world_lister_ends(struct agent *agent, struct input *input)
{
    uv_exit_cb ended = world.lister_ended;
    uint8_t how = input_byte(input), which = input_byte(input);
    if (!ended || agent->stopping)
        return;
    if (how % 4 != 1)
        write_list(agent->devices.fresh_path, which);
    world.lister_ended = NULL;
    ended(&agent->devices.lister, how % 4 == 2, how % 4 == 3 ? 9 : 0);
}

static void empty(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    while (folder && (entry = readdir(folder)))
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
}

/* A program that an earlier agent knew. */
static void write_program(const struct agent *agent, uint8_t kind)
{
    char path[PATH_MAX + 8], key[DEVICE_KEY_TEXT_MAX];
    struct frame frame;
    world_key(kind, key);
    frame_init(&frame, "app");
    frame_string(&frame, "id", kind & 2 ? "a7" : "a1");
    frame_string(&frame, "name", "x264");
    frame_u64(&frame, "pid", FIRST_PID + kind % PROCESSES);
    frame_u64(&frame, "start", world.starts[kind % PROCESSES]);
    frame_u64(&frame, "uid", geteuid());
    frame_bool(&frame, "connected", kind & 4);
    frame_string(&frame, "device", key);
    EXPECT(frame_seal(&frame) == 0);
    snprintf(path, sizeof(path), "%s/%s", agent->programs_folder, kind & 2 ? "a7" : "a1");
    FILE *file = fopen(path, "we");
    EXPECT(file);
    EXPECT(fwrite(frame.buffer.data, 1, frame.buffer.size, file) == frame.buffer.size);
    EXPECT(fclose(file) == 0);
    frame_finish(&frame);
}

/* One that is right, one that is wrong, or none. */
static void write_config(uint8_t kind)
{
    const char *text = kind & 8 ? "policy = { gain = 20; };\n" : "policy = {\n";
    char path[PATH_MAX];
    if (kind & 16)
        fuzz_file("reseat.conf", text, strlen(text), path);
    else
        snprintf(path, sizeof(path), "%s/reseat.conf", fuzz_folder());
    setenv("RESEAT_CONFIG", path, 1);
}

struct agent *world_begin(uint8_t kind)
{
    struct agent *agent = calloc(1, sizeof(*agent));
    const struct config_source nothing = {.path = NULL};
    struct config_error wrong;
    char names[PATH_MAX + 16];
    EXPECT(agent);
    memset(&world, 0, sizeof(world));
    signal(SIGPIPE, SIG_IGN); /* as the agent does */
    for (unsigned i = 0; i < PROCESSES; i++)
        world.starts[i] = i + 1;
    world.now_ms = LATER;
    world_next_peer(0);
    setenv("XDG_STATE_HOME", fuzz_folder(), 1);
    setenv("RESEAT_LISTER", "/proc/self/exe", 1);
    snprintf(agent->paths.folder, sizeof(agent->paths.folder), "%s", fuzz_folder());
    snprintf(agent->paths.socket, sizeof(agent->paths.socket), "%s/agent.sock", fuzz_folder());
    snprintf(agent->programs_folder, sizeof(agent->programs_folder), "%s/apps", fuzz_folder());
    snprintf(names, sizeof(names), "%s/reseat", fuzz_folder());
    agent->events = &agent_events;
    mkdir(agent->programs_folder, 0700);
    empty(agent->programs_folder);
    empty(names);
    empty(fuzz_folder());
    write_config(kind);
    if (kind & 1)
        write_program(agent, kind);
    EXPECT(uv_loop_init(&agent->loop) == 0);
    EXPECT(config_load(&nothing, &agent->config, &wrong) == 0);
    EXPECT(devices_init(agent, 1000) == 0);
    EXPECT(govern_init(agent) == 0);
    EXPECT(costs_init(agent, NULL) == 0);
    programs_load(agent);
    EXPECT(peers_listen(agent) == 0);
    return agent;
}

void world_end(struct agent *agent)
{
    while (agent->peers)
        peer_close(agent->peers);
    costs_stop(agent);
    __real_uv_close((uv_handle_t *)&agent->listener, NULL);
    __real_uv_close((uv_handle_t *)&agent->turns, NULL);
    __real_uv_close((uv_handle_t *)&agent->devices.timeout, NULL);
    uv_run(&agent->loop, UV_RUN_DEFAULT);
    EXPECT(uv_loop_close(&agent->loop) == 0);
    operations_finish(agent);
    programs_finish(agent);
    govern_finish(agent);
    costs_finish(agent);
    config_finish(&agent->config);
    devices_finish(agent);
    config_finish(&agent->config);
    free(agent);
}
