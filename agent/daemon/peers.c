#include "agent/daemon/peers.h"
#include "agent/daemon/event_log.h"
#include "agent/daemon/operations/governor.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/base/cleanup.h"
#include "state/base/files/access.h"

#define BACKLOG   128
#define PEERS_MAX 4096
/* Descriptors that are kept for files, helpers, scrapers and connections of root. */
#define DESCRIPTORS_OTHER 256
#define UNSENT_MAX        (16u << 20)
#define SILENT_MS         10000
/* Limits for each user but root and the agent's own: connections, and unhandled bytes. */
#define PEERS_USER_MAX 512
#define BYTES_USER_MAX (64u << 20)
/* Time after which a connection with further requests lets the others have theirs handled. */
#define TURN_NS 250000u
/* Not 0: such a timer, started by its own callback, would be called again at once. */
#define NEXT_TURN_MS 1
/* Bytes that one connection may hold without counting against its user's limit. */
#define BYTES_SMALL (64u << 10)

static void peers_receive(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer);

static void peers_give_buffer(uv_handle_t *handle, size_t wanted, uv_buf_t *ret)
{
    (void)handle;
    (void)wanted;
    ret->base = malloc(65536);
    ret->len = ret->base ? 65536 : 0;
}

static void peers_closed(uv_handle_t *handle)
{
    struct peer *peer = handle->data;

    frame_reader_finish(&peer->reader);
    if (peer->is_pending)
        message_finish(&peer->pending);
    free(peer->groups);
    free(peer);
}

void peer_close(struct peer *peer)
{
    struct agent *agent = peer->agent;

    if (peer->closing)
        return;
    peer->closing = true;
    for (struct peer **at = &agent->peers; *at; at = &(*at)->next) {
        if (*at == peer) {
            *at = peer->next;
            agent->peer_count--;
            break;
        }
    }
    agent->events->peer_closed(peer);
    uv_close((uv_handle_t *)&peer->pipe, peers_closed);
}

/**
 * Mark a peer to which nothing can be sent. The caller may be iterating over peers, programs or
 * requests, and closing the peer would change those lists. So only the stream is shut down here,
 * and the loop closes the peer when it reads the end of the stream.
 */
static void peers_peer_break(struct peer *peer)
{
    uv_os_fd_t fd;

    peer->broken = true;
    if (!uv_fileno((uv_handle_t *)&peer->pipe, &fd))
        shutdown(fd, SHUT_RDWR);
}

bool peer_sees(const struct peer *peer, uid_t owner)
{
    return peer->uid == owner || peer_may(peer, RIGHT_PROGRAMS);
}

static size_t peers_bytes_of(const struct peer *peer)
{
    return peer->reader.used + uv_stream_get_write_queue_size((const uv_stream_t *)&peer->pipe);
}

/** False when the agent holds too many bytes for all connections of @peer's user. */
static bool peers_may_keep(const struct peer *peer)
{
    size_t bytes = 0;

    if (peers_bytes_of(peer) <= BYTES_SMALL || peer_may(peer, RIGHT_AGENT))
        return true;
    for (const struct peer *other = peer->agent->peers; other; other = other->next)
        bytes += other->uid == peer->uid ? peers_bytes_of(other) : 0;
    return bytes <= BYTES_USER_MAX;
}

struct outgoing {
    uv_write_t write;
    msgpack_sbuffer buffer;
};

static void peers_sent(uv_write_t *write, int status)
{
    struct outgoing *outgoing = write->data;
    struct peer *peer = write->handle->data;

    msgpack_sbuffer_destroy(&outgoing->buffer);
    free(outgoing);
    if (status < 0)
        peer_close(peer);
}

void peer_send(struct peer *peer, struct frame *frame)
{
    struct outgoing *outgoing = NULL;

    if (peer->closing || peer->broken)
        goto out;
    if (frame_seal(frame) || !(outgoing = malloc(sizeof(*outgoing))) ||
        uv_stream_get_write_queue_size((uv_stream_t *)&peer->pipe) > UNSENT_MAX ||
        !peers_may_keep(peer)) {
        agent_log("pid %d: cannot send to it; closing its connection", (int)peer->pid);
        free(outgoing);
        peers_peer_break(peer);
        goto out;
    }
    outgoing->buffer = frame->buffer;
    outgoing->write.data = outgoing;
    msgpack_sbuffer_init(&frame->buffer);
    uv_buf_t bytes = uv_buf_init(outgoing->buffer.data, (unsigned)outgoing->buffer.size);
    if (uv_write(&outgoing->write, (uv_stream_t *)&peer->pipe, &bytes, 1, peers_sent)) {
        msgpack_sbuffer_destroy(&outgoing->buffer);
        free(outgoing);
        peers_peer_break(peer);
    }
out:
    frame_finish(frame);
}

void peer_error(struct peer *peer, const char *code, const char *format, ...)
{
    char text[PROTOCOL_TEXT_MAX];
    struct frame frame;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (peer->request && (strcmp(code, ERR_REFUSED) == 0 || strcmp(code, ERR_DENIED) == 0)) {
        struct event event = event_of(peer, peer->request, code);
        event.owned = true; /* The text may name programs that only this user may see. */
        event.uid = peer->uid;
        event.reason = text;
        event_log_add(peer->agent, &event);
    }
    frame_init(&frame, MSG_ERROR);
    frame_string(&frame, "code", code);
    frame_string(&frame, "message", text);
    peer_send(peer, &frame);
}

static void peers_on_turn(uv_timer_t *timer);

/** Let the other connections go first. Meanwhile nothing is read from @peer, so its sender waits.
 */
static void peers_yield(struct peer *peer)
{
    struct agent *agent = peer->agent;

    peer->yields = true;
    peer->turn = agent->turn;
    uv_read_stop((uv_stream_t *)&peer->pipe);
    if (!uv_is_active((uv_handle_t *)&agent->turns))
        uv_timer_start(&agent->turns, peers_on_turn, NEXT_TURN_MS, 0);
}

/** Handle the frames that have been received, until one of them has to wait. */
static void peers_drain(struct peer *peer)
{
    uint64_t until = uv_hrtime() + TURN_NS;

    while (!peer->closing && !peer->broken && !peer->is_pending) {
        struct message message;
        int got = frame_reader_next(&peer->reader, &message);
        if (got == 0)
            return;
        if (got < 0) {
            agent_log("pid %d: not a frame of ours (%s); closing its connection", (int)peer->pid,
                      strerror(-got));
            peer_error(peer, ERR_PROTOCOL, "not a valid frame: %s", strerror(-got));
            peer_close(peer);
            return;
        }
        peer->agent->events->message(peer, &message);
        message_finish(&message);
        if (!peer->closing && !peer->is_pending && uv_hrtime() >= until) {
            peers_yield(peer);
            return;
        }
    }
}

/** The others had their turn: go on with those that let them. */
static void peers_on_turn(uv_timer_t *timer)
{
    struct agent *agent = timer->data;

    agent->turn++;
    /* Handling a message may close other peers, so the search starts again after each. */
    for (struct peer *peer = agent->peers; peer;) {
        if (!peer->yields || peer->turn == agent->turn) {
            peer = peer->next;
            continue;
        }
        peer->yields = false;
        if (uv_read_start((uv_stream_t *)&peer->pipe, peers_give_buffer, peers_receive))
            peer_close(peer);
        else
            peers_drain(peer);
        peer = agent->peers;
    }
}

void peer_wait_for_devices(struct peer *peer, struct message *message)
{
    peer->pending = *message;
    peer->is_pending = true;
    *message = (struct message){0};
}

void peers_devices_ready(struct agent *agent)
{
    /* Handling one message may close other peers, so the search starts again after each. */
    for (struct peer *peer = agent->peers; peer;) {
        if (!peer->is_pending || peer->closing || agent->devices.listing) {
            peer = peer->next;
            continue;
        }
        struct message message = peer->pending;
        peer->is_pending = false;
        peer->pending = (struct message){0};
        agent->events->message(peer, &message);
        message_finish(&message);
        peers_drain(peer);
        if (peer->closing || !peer->is_pending)
            peer = agent->peers;
        else
            peer = peer->next;
    }
}

static void peers_receive(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct peer *peer = stream->data;

    if (count < 0 || (count > 0 && frame_reader_feed(&peer->reader, buffer->base, (size_t)count)))
        peer_close(peer);
    else if (peer->is_pending && peer->reader.used - peer->reader.start > PROTOCOL_FRAME_MAX)
        peer_close(peer);
    else if (count > 0)
        peers_drain(peer);
    if (!peer->closing && !peers_may_keep(peer))
        peer_close(peer);
    free(buffer->base);
}

static void peers_set_rights(struct peer *peer)
{
    struct config_user said;

    config_user(&peer->agent->config, peer->uid, peer->groups, peer->group_count, &said);
    peer->rights = access_may_manage(geteuid(), peer->uid) ? RIGHTS_ALL
                   : said.operates                         ? RIGHTS_OPERATOR
                                                           : 0;
}

void peers_configure(struct agent *agent)
{
    for (struct peer *peer = agent->peers; peer; peer = peer->next)
        peers_set_rights(peer);
}

/** Read the groups of @peer: @first, and the others that the kernel has of it. */
static bool peers_read_groups(struct peer *peer, int fd, gid_t first)
{
    socklen_t size = 0;

    /* Fails with ERANGE and the size, unless there are none. */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &size) && errno != ERANGE)
        return false;
    peer->groups = malloc(size + sizeof(first));
    if (!peer->groups || (size && getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, peer->groups, &size)))
        return false;
    peer->group_count = size / sizeof(first);
    peer->groups[peer->group_count++] = first;
    return true;
}

bool peer_identify(struct peer *peer, int fd)
{
    struct ucred credentials;
    socklen_t size = sizeof(credentials);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size))
        return false;
    peer->pid = credentials.pid;
    peer->uid = credentials.uid;
    if (!peers_read_groups(peer, fd, credentials.gid))
        return false;
    peers_set_rights(peer);
    return agent_is_shared(peer->agent) || peer_may(peer, RIGHT_AGENT);
}

/** Add a peer without a connection, which peer_close() ends. Returns NULL without memory. */
static struct peer *peers_add(struct agent *agent)
{
    struct peer *peer = calloc(1, sizeof(*peer));

    if (!peer)
        return NULL;
    peer->agent = agent;
    peer->since_ms = uv_now(&agent->loop);
    frame_reader_init(&peer->reader);
    if (uv_pipe_init(&agent->loop, &peer->pipe, 0)) {
        free(peer);
        return NULL;
    }
    peer->pipe.data = peer;
    peer->next = agent->peers;
    agent->peers = peer;
    agent->peer_count++;
    peer->number = ++agent->connected;
    return peer;
}

/** Root is always accepted. On an agent for all users, no other user may take all connections. */
static bool peers_begin(struct peer *peer)
{
    const struct agent *agent = peer->agent;
    unsigned own = 0;

    for (const struct peer *other = agent->peers; other; other = other->next)
        own += other->uid == peer->uid;
    if (peer->uid != 0 && (agent->peer_count > agent->peers_max ||
                           (!peer_may(peer, RIGHT_AGENT) && own > PEERS_USER_MAX)))
        return false;
    return !uv_read_start((uv_stream_t *)&peer->pipe, peers_give_buffer, peers_receive);
}

static void peers_connected(uv_stream_t *listener, int status)
{
    struct peer *peer = status ? NULL : peers_add(listener->data);
    uv_os_fd_t fd;

    if (!peer)
        return;
    if (uv_accept(listener, (uv_stream_t *)&peer->pipe)) {
        peer_close(peer);
    } else if (uv_fileno((uv_handle_t *)&peer->pipe, &fd) || !peer_identify(peer, fd)) {
        agent_log("pid %d of user %u refused: not a user of this agent", (int)peer->pid,
                  (unsigned)peer->uid);
        peer_close(peer);
    } else if (!peers_begin(peer)) {
        peer_close(peer);
    }
}

int peers_connect(struct agent *agent, uid_t uid, const gid_t *groups, size_t count, int *ret_fd)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends))
        return -errno;
    struct peer *peer = peers_add(agent);
    if (!peer || uv_pipe_open(&peer->pipe, ends[0]))
        close(ends[0]);
    else if ((peer->groups = malloc((count + 1) * sizeof(*groups)))) {
        memcpy(peer->groups, groups, count * sizeof(*groups));
        peer->group_count = count;
        peer->uid = uid;
        peer->pid = getpid();
        peers_set_rights(peer);
        if (peers_begin(peer)) {
            *ret_fd = ends[1];
            return 0;
        }
    }
    if (peer)
        peer_close(peer);
    close(ends[1]);
    return -EAGAIN;
}

/** Allow as many connections as there are descriptors for, after more were asked for: without any
 * left, no command would reach the agent, and it could start no helper. */
static unsigned peers_allow_descriptors(void)
{
    const rlim_t needed = PEERS_MAX + DESCRIPTORS_OTHER;
    struct rlimit limit, wish;

    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= needed)
        return PEERS_MAX;
    wish = limit;
    wish.rlim_cur = needed < limit.rlim_max ? needed : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &wish) == 0)
        limit = wish;
    if (limit.rlim_cur >= needed)
        return PEERS_MAX;
    rlim_t others = limit.rlim_cur / 2 < DESCRIPTORS_OTHER ? limit.rlim_cur / 2 : DESCRIPTORS_OTHER;
    agent_log("the limit of open files (ulimit -n) is %llu: there is room for %llu connections",
              (unsigned long long)limit.rlim_cur, (unsigned long long)(limit.rlim_cur - others));
    return (unsigned)(limit.rlim_cur - others);
}

/** Not uv_pipe_bind(): when such a pipe is closed, libuv removes the file of that name, even if it
 * is another agent's by then. */
static int peers_bind(struct agent *agent, int *ret_fd)
{
    const char *path = agent->paths.socket;
    CLEANUP(cleanup_close) int fd = -1;

    unlink(path);
    int error = access_listen(path, SOCK_STREAM, BACKLOG, &fd);
    if (error)
        return error;
    if (lstat(path, &agent->bound) || chmod(path, agent_is_shared(agent) ? 0666 : 0600))
        return -errno;
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int peers_listen(struct agent *agent)
{
    int fd = agent->passed, error = uv_pipe_init(&agent->loop, &agent->listener, 0);

    if (error)
        return error;
    agent->listener.data = agent;
    agent->peers_max = peers_allow_descriptors();
    uv_timer_init(&agent->loop, &agent->turns);
    agent->turns.data = agent;
    error = agent->passed ? 0 : peers_bind(agent, &fd);
    error = error ? error : uv_pipe_open(&agent->listener, fd);
    return error ? error : uv_listen((uv_stream_t *)&agent->listener, BACKLOG, peers_connected);
}

bool peers_can_connect(const struct agent *agent)
{
    struct stat now;

    if (agent->passed)
        return true;
    if (lstat(agent->paths.socket, &now))
        return errno != ENOENT && errno != ENOTDIR;
    return now.st_dev == agent->bound.st_dev && now.st_ino == agent->bound.st_ino;
}

void peers_sweep(struct agent *agent)
{
    for (struct peer *peer = agent->peers, *next; peer; peer = next) {
        next = peer->next;
        if (peer->role == PEER_UNKNOWN && uv_now(&agent->loop) - peer->since_ms > SILENT_MS)
            peer_close(peer);
    }
}
