#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "remote/link/tls.h"
#include "remote/server/listener/serve.h"
#include "remote/server/session/greeting.h"
#include "remote/server/session/pending.h"
#include "remote/server/session/sandbox.h"
#include "remote/server/session/server.h"
#include "remote/wire/stream_rings.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/driver/inventory.h"

#define POOL_MOST ((size_t)64 << 20)
#define POOL_OF   16
/* Added to the kernel's OOM score: as much as half of the host's memory would add. */
#define OOM_ADJUSTED 500

/* NULL: devices are not shared out. */
static const struct devices *session_known(const struct session_limits *limits)
{
    return limits->shares ? &limits->known : NULL;
}

static bool session_is_offered(const struct session_limits *limits, const struct device *device)
{
    /* Such a driver runs commands only while a thread waits for them; here, none does. */
    if (device->quirks & QUIRK_RUNS_IN_CALLER)
        return false;
    for (size_t i = 0; i < limits->device_count; i++)
        if (!strcmp(limits->devices[i], device->key.device))
            return true;
    return limits->device_count == 0;
}

/* Does the listening process know the device? Always true if devices are not shared out. */
static bool session_is_known(const struct server *server, const struct device *device,
                             uint32_t *ret_number)
{
    int number = server->known ? devices_find(server->known, &device->key) : 0;
    if (number < 0 || server->device_count == DEVICES_MAX)
        return false;
    *ret_number = (uint32_t)number;
    return true;
}

/* Tell the listening process that the session offers the device. Returns its memory, for all
 * sessions together. */
static uint64_t session_share_out(const struct server *server, uint32_t number)
{
    if (!server->known)
        return UINT64_MAX;
    channel_tell(server->channel,
                 &(struct channel_message){.kind = CHANNEL_USES, .device = number});
    return server->known->rows[number].memory;
}

static int session_open_devices(struct server *server, const struct session_limits *limits,
                                const struct grant *grant)
{
    size_t count = 0, counts[DEVICE_KINDS] = {0};
    int error = driver_list(&server->devices, &count);
    for (size_t i = 0; error == 0 && i < count; i++) {
        uint32_t *number = &server->numbers[server->device_count];
        char name[GRANT_DEVICE_MAX];
        devices_name_next(server->devices[i], counts, name);
        if (!session_is_offered(limits, server->devices[i]))
            continue;
        if (!session_is_known(server, server->devices[i], number)) {
            log_warn("%s is not offered: it was not there when the server started",
                     server->devices[i]->key.device);
            continue;
        }
        /* Use the listening process's name: drivers skip devices whose nodes cannot be opened,
         * which changes the numbers of those behind. */
        if (!grant_has_device(grant, server->known ? server->known->rows[*number].name : name))
            continue;
        struct entry *entry =
            server_add(server, id_make(ID_DEVICE, 0, (uint32_t)server->device_count));
        if (!entry)
            return -ENOMEM;
        struct device *device = server->devices[i];
        uint64_t memory = session_share_out(server, server->numbers[server->device_count]);
        server->devices[server->device_count++] = device;
        entry->real = device->id;
        entry->cl = device->cl;
        server_cap_memory(server, memory, &device->info);
        int failed = devinfo_query_formats(device->cl, device->platform, device->id, &device->info);
        if (failed)
            log_warn("%s is offered without image formats: %s", device->key.device,
                     strerror(-failed));
    }
    return error;
}

static int session_tell_devices(struct server *server)
{
    struct inventory inventory = {.count = server->device_count};
    char *data = NULL;
    size_t size = 0;
    inventory.entries = calloc(server->device_count + 1, sizeof(*inventory.entries));
    if (!inventory.entries)
        return -ENOMEM;
    for (size_t i = 0; i < server->device_count; i++) {
        inventory.entries[i].key = server->devices[i]->key;
        inventory.entries[i].info = server->devices[i]->info; /* Borrowed. */
    }
    int error = inventory_encode(&inventory, &data, &size);
    if (error == 0)
        error = post_devices(&server->stream,
                             &(struct msg_devices){.inventory = data, .inventory_size = size});
    free(inventory.entries);
    free(data);
    return error;
}

/* Over rings if both sides have agreed on them. */
static int session_open_stream(struct server *server, const struct guest *guest)
{
    if (guest->features & FEATURE_RINGS) {
        int error = stream_accept_rings(&server->stream, guest->link, clock_now_ns() + GREETING_NS);
        return error ? error : server_share_memory(server);
    }
    int error = stream_init(&server->stream, 0);
    return error == 0 && !stream_attach(&server->stream, guest->link, 0) ? -EPROTO : error;
}

/* Execute messages until the client ends the session, breaks the protocol, or does not come back.
 */
static void session_serve(struct server *server)
{
    struct message message;
    while (!server->wrong) {
        int error = stream_receive(&server->stream, 0, &message);
        if (error == -EPROTO || error == -ENOMEM)
            server_wrong(server,
                         error == -EPROTO ? "what it sends are no frames" : "out of memory");
        else if (error && (server->stream.rings || news_resume(server)))
            return;
        if (error)
            continue;
        struct unpack body = {message.body, message.body + message.size, false};
        if (message.type == MSG_BYE)
            return;
        if (!server_dispatch(server, message.type, &body))
            server_wrong(server, "it sent a malformed message");
        if (stream_kept(&server->stream) > 2 * server->staged_max)
            server_wrong(server, "it does not read its answers");
        if (!stream_has_more(&server->stream))
            server_flush(server);
        pending_attend(server);
    }
}

void server_hello(struct server *server, const struct msg_hello *message)
{
    (void)message;
    server_wrong(server, "it sent a second greeting");
}

void server_rings(struct server *server, const struct msg_rings *message)
{
    (void)message;
    server_wrong(server, "it sent a second greeting");
}

void server_bye(struct server *server, const struct msg_bye *message)
{
    (void)server, (void)message;
}

/* How many bytes may wait for a slow client or for devices: half of the memory. */
static uint64_t session_staged_max(const struct session_limits *limits)
{
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (limits->memory && limits->memory < memory)
        memory = limits->memory;
    return memory / 2;
}

/* How much free memory the stream keeps for messages: enough for the parts of a transfer. */
static size_t session_pool_most(const struct session_limits *limits)
{
    return limits->memory && limits->memory / POOL_OF < POOL_MOST ? limits->memory / POOL_OF
                                                                  : POOL_MOST;
}

/* Set limits that are never lifted. */
static int session_give_up_rights(const struct session_limits *limits)
{
    struct rlimit none = {0, 0}, memory = {limits->memory, limits->memory};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || setrlimit(RLIMIT_CORE, &none))
        return -errno;
    if (limits->memory && setrlimit(RLIMIT_AS, &memory))
        return -errno;
    return 0;
}

/* If the host runs out of memory, the kernel should end a session rather than the listening process
 * or another program. */
static void session_give_way(void)
{
    int before = OOM_ADJUSTED;
    FILE *file = fopen("/proc/self/oom_score_adj", "r+e");
    if (file && fscanf(file, "%d", &before) == 1 && before < OOM_ADJUSTED) {
        rewind(file);
        fprintf(file, "%d", OOM_ADJUSTED);
    }
    if (file)
        fclose(file);
}

/* A session without the limit is served all the same. */
static void session_bound_processes(int channel, const char *peer)
{
    int notices = -1, error = sandbox_processes(&notices);
    if (error) {
        log_warn("the session of %s has no limit of processes: %s", peer, strerror(-error));
        return;
    }
    channel_tell_with(channel, &(struct channel_message){.kind = CHANNEL_PROCESSES}, notices);
    close(notices);
}

static int session_start(struct server *server, const struct guest *guest, int channel,
                         const struct session_limits *limits)
{
    server->memory = guest->grant.memory;
    server->staged_max = session_staged_max(limits);
    server->known = session_known(limits);
    server->channel = channel;
    server->keeps = guest->features & FEATURE_BINARIES;
    int error = session_open_stream(server, guest);
    server->stream.pool.most = session_pool_most(limits);
    if (error == 0 && (guest->features & FEATURE_ENVIRONMENT))
        error = server_take_environment(server);
    if (error == 0)
        error = news_hear(server, guest);
    if (error == 0)
        error = server_catch_output(server);
    if (error == 0)
        error = session_open_devices(server, limits, &guest->grant);
    if (error == 0)
        error = server_watch_commands(server);
    if (error == 0 && !limits->open)
        error = sandbox_calls(server);
    if (error == 0)
        error = session_tell_devices(server);
    atomic_store(&server->told, error == 0);
    return error;
}

/* The process of a client that needs a certificate gets a user of its own if the server is root,
 * and else namespaces of its own if the kernel allows it. */
static int session_leave_user(const struct session_limits *limits, const struct grant *grant)
{
    if (sandbox_has_memory()) /* session_begin() has made namespaces, so the server is root. */
        return sandbox_become(session_known(limits), grant);
    int error = sandbox_space();
    if (error)
        log_info("sessions cannot have their own namespaces here: %s", strerror(-error));
    return 0;
}

/* After the client was admitted, and before any of its messages is executed. */
static int session_enter_sandbox(const struct session_limits *limits, const struct guest *guest,
                                 bool stranger, int channel)
{
    /* Compilers search the working directory, and fail if they may not read it. */
    int error = chdir("/") ? -errno : 0;
    if (error == 0 && stranger)
        error = session_leave_user(limits, &guest->grant);
    if (error == 0 && stranger)
        error = sandbox_own_caches(guest->peer);
    if (error == 0)
        error = sandbox_files(session_known(limits), &guest->grant,
                              limits->authority[0] ? limits->authority : NULL, stranger);
    if (error == 0 && stranger)
        error = sandbox_bounds();
    if (error == 0)
        error = sandbox_admitted();
    if (error == 0)
        session_bound_processes(channel, guest->peer);
    return error;
}

/* Drop all rights that the greeting does not need. */
static int session_begin(const struct link_kind *kind, const struct session_limits *limits)
{
    char problem[FOLDER_PROBLEM_MAX] = "";
    int error = session_give_up_rights(limits);
    if (!limits->isolates)
        session_give_way();
    if (error == 0 && kind->anyone)
        error = limits->authority[0] ? tls_server_open(limits->authority, problem) : -ENOENT;
    if (problem[0])
        log_warn("%s", problem);
    if (error || limits->open)
        return error;
    if (limits->shows_denied)
        error = sandbox_show_denied();
    if (error == 0 && kind->anyone && geteuid() == 0)
        error = sandbox_space();
    return error ? error : sandbox_begin();
}

/* The main function of the process of a connection. */
static _Noreturn void session_run(const struct link_kind *kind, int fd, int channel,
                                  const struct session_limits *limits)
{
    static struct server server;
    static struct guest guest;
    int error = session_begin(kind, limits);
    if (error == 0)
        error = greeting_receive_guest(kind, fd, channel, limits, &guest);
    if (error == 0 && !limits->open)
        error = session_enter_sandbox(limits, &guest, kind->anyone, channel);
    if (error) {
        log_warn("a client was not admitted: %s", strerror(-error));
        _exit(1);
    }
    error = session_start(&server, &guest, channel, limits);
    if (error) {
        log_warn("the session of %s could not start: %s", guest.peer, strerror(-error));
        _exit(1);
    }
    log_info("%s has a session with %zu devices", guest.peer, server.device_count);
    session_serve(&server);
    if (server.wrong)
        log_warn("the session of %s was ended: %s", guest.peer, server.wrong);
    else
        log_info("the session of %s ended", guest.peer);
    /* Not exit(): handlers of drivers may hang. The kernel frees everything. */
    _exit(server.wrong ? 3 : 0);
}

void session_main(void)
{
    static struct startup startup;
    const char *where = NULL;
    if (pread(STARTUP_FD, &startup, sizeof(startup), 0) != (ssize_t)sizeof(startup))
        _exit(1);
    close(STARTUP_FD);
    /* Without the listening process, the session must not use devices. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != startup.parent)
        _exit(1);
    prctl(PR_SET_NAME, "reseat-session");
    (void)setrlimit(RLIMIT_NOFILE, &startup.descriptors);
    if (!startup.logs)
        atomic_store(&log_threshold, LOG_LEVEL_OFF);
    /* Programs that drivers execute must not inherit these. */
    (void)fcntl(STARTUP_CONNECTION, F_SETFD, FD_CLOEXEC);
    (void)fcntl(STARTUP_CHANNEL, F_SETFD, FD_CLOEXEC);
    if (!startup.scheme[0])
        connector_run(STARTUP_CONNECTION);
    const struct link_kind *kind = link_kind_of(startup.scheme, &where);
    if (!kind)
        _exit(1);
    session_run(kind, STARTUP_CONNECTION, STARTUP_CHANNEL, &startup.limits);
}
