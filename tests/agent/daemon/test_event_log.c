#include "tests/support/cases.h"
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/daemon/event_log.h"
#include "tests/agent/daemon/own_agent.h"

/* The events that the agent keeps, in memory and in files. */

static struct agent *const agent = &own_agent;
static char folder[PATH_MAX], path[PATH_MAX];

static void begin(void)
{
    own_agent_begin();
    signal(SIGPIPE, SIG_IGN); /* As the agent does. */
    cr_assert_eq(paths_state(folder), 0);
    cr_assert_eq(paths_join(folder, "events", path), 0);
    cr_assert_eq(peers_listen(agent), 0);
    event_log_init(agent, folder);
}

static void finish(void)
{
    event_log_finish(agent);
    own_agent_finish();
}

TestSuite(event_log, .init = begin, .fini = finish, .timeout = 250);

static void add(unsigned number)
{
    char reason[32];

    snprintf(reason, sizeof(reason), "event %u", number);
    event_log_device(agent, "gpu0", "lost", reason);
}

/** A command of a user's is refused. */
static void refuse(uid_t uid, unsigned number)
{
    char reason[32];

    snprintf(reason, sizeof(reason), "event %u", number);
    event_log_add(agent, &(struct event){.what = "drain",
                                         .state = RESULT_REFUSED,
                                         .reason = reason,
                                         .by = "command",
                                         .by_pid = 1,
                                         .by_uid = uid});
}

/** Another agent takes the place of this one. */
static void start_again(void)
{
    event_log_finish(agent);
    event_log_init(agent, folder);
}

static off_t size_of(const char *file)
{
    struct stat stat_;

    return stat(file, &stat_) ? -1 : stat_.st_size;
}

/* ---- a client ---- */

static int connect_client(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct frame frame;

    memcpy(address.sun_path, agent->paths.socket, sizeof(address.sun_path));
    cr_assert_eq(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    frame_init(&frame, MSG_HELLO);
    frame_u64(&frame, "version", PROTOCOL_VERSION);
    frame_string(&frame, "role", "client");
    cr_assert_eq(frame_seal(&frame), 0);
    cr_assert_eq(send(fd, frame.buffer.data, frame.buffer.size, 0), (ssize_t)frame.buffer.size);
    frame_finish(&frame);
    return fd;
}

static void ask(int fd, bool follow)
{
    struct frame frame;

    frame_init(&frame, MSG_EVENTS);
    frame_bool(&frame, "follow", follow);
    cr_assert_eq(frame_seal(&frame), 0);
    cr_assert_eq(send(fd, frame.buffer.data, frame.buffer.size, 0), (ssize_t)frame.buffer.size);
    frame_finish(&frame);
    for (int i = 0; i < 8; i++)
        uv_run(&agent->loop, UV_RUN_NOWAIT);
}

#define EARLY 100

struct heard {
    unsigned count, frames, early; /**< Early ones have numbers up to EARLY. */
    unsigned first, last; /**< The numbers in the texts of the first event and the last one. */
    bool ended;           /**< A frame without "more" came. */
};

static void take(struct heard *heard, const msgpack_object *answer)
{
    const msgpack_object *events;
    size_t count = field_array(answer, "events", &events);

    if (!field_is(answer, "type", MSG_EVENTS))
        return;
    heard->frames++;
    heard->ended = heard->ended || !field_bool(answer, "more", false);
    for (size_t i = 0; i < count; i++) {
        char reason[64];
        unsigned number;
        cr_assert(field_string(&events[i], "reason", reason, sizeof(reason)));
        cr_assert_eq(sscanf(reason, "event %u", &number), 1, "%s", reason);
        heard->first = heard->count ? heard->first : number;
        cr_assert(!heard->count || number > heard->last, "%u comes after %u", number, heard->last);
        heard->last = number;
        heard->count++;
        heard->early += number <= EARLY;
    }
}

/** All that a client is told of the events that there are. */
static struct heard hear(void)
{
    struct heard heard = {0};
    struct frame_reader reader;
    struct message message;
    int fd = connect_client(), got;

    frame_reader_init(&reader);
    ask(fd, false);
    while (!heard.ended) {
        char bytes[65536];
        ssize_t count = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        cr_assert(count > 0 || (count < 0 && errno == EAGAIN));
        cr_assert_eq(frame_reader_feed(&reader, bytes, count > 0 ? (size_t)count : 0), 0);
        while ((got = frame_reader_next(&reader, &message)) == 1) {
            take(&heard, &message.root);
            message_finish(&message);
        }
        cr_assert_eq(got, 0);
        uv_run(&agent->loop, UV_RUN_NOWAIT);
    }
    frame_reader_finish(&reader);
    close(fd);
    uv_run(&agent->loop, UV_RUN_NOWAIT);
    return heard;
}

static void expect_heard(unsigned first, unsigned last)
{
    struct heard heard = hear();

    cr_assert_eq(heard.first, first, "%u, not %u", heard.first, first);
    cr_assert_eq(heard.last, last, "%u, not %u", heard.last, last);
    cr_assert_eq(heard.count, last - first + 1);
}

/* ---- what is kept ---- */

Test(event_log, of_a_million_events_the_last_ones_are_kept_in_bounded_files)
{
    for (unsigned i = 1; i <= 1000000; i++)
        add(i);
    expect_heard(1000000 - EVENTS_MAX + 1, 1000000);
    cr_assert_geq(hear().frames, EVENTS_MAX / 256, "they come in frames that are bounded");
    cr_assert_leq(size_of(path), 1 << 20);
    start_again();
    expect_heard(1000000 - EVENTS_MAX + 1, 1000000);
    add(1000001);
    expect_heard(1000001 - EVENTS_MAX + 1, 1000001);
}

Test(event_log, who_floods_pushes_nobody_elses_events_out)
{
    char older[PATH_MAX];
    unsigned number = 0;

    cr_assert_eq(paths_join(folder, "events.older", older), 0);
    while (number < EARLY / 2)
        add(++number);
    while (number < EARLY)
        refuse(1001, ++number);
    for (unsigned turn = 0; turn < 3; turn++) {
        while (number < (turn + 1) * 50000)
            refuse(1002, ++number);
        struct heard heard = hear();
        cr_assert_eq(heard.early, EARLY, "%u in turn %u", heard.early, turn);
        cr_assert_eq(heard.count, EVENTS_MAX);
        cr_assert_eq(heard.last, number);
        cr_assert_leq(size_of(path), 1 << 20);
        cr_assert_leq(size_of(older), 1 << 20);
        start_again();
    }
    /* Two that flood share what there is. */
    for (unsigned i = 0; i < 50000; i++)
        refuse(1001, ++number);
    struct heard heard = hear();
    cr_assert_eq(heard.early, EARLY / 2, "the agent's own are not theirs");
    cr_assert_eq(heard.count, EVENTS_MAX);
    cr_assert_lt(heard.first, EARLY);
    for (unsigned i = 0; i < 50000; i++)
        refuse(1002, ++number);
    cr_assert_eq(hear().early, EARLY / 2);
}

Test(event_log, a_torn_last_record_is_no_error_and_what_follows_is_kept)
{
    add(1);
    add(2);
    add(3);
    cr_assert_eq(truncate(path, size_of(path) - 3), 0);
    start_again();
    expect_heard(1, 2);
    add(4);
    start_again();
    struct heard heard = hear();
    cr_assert_eq(heard.count, 3);
    cr_assert_eq(heard.last, 4);
}

Test(event_log, what_is_no_record_ends_the_file_and_events_follow_in_its_place)
{
    static const char wrong[][16] = {"\xff\xff\xff\xff nonsense", "\x05\0\0\0none!", "#"};

    for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        add(2 * i + 1);
        FILE *file = fopen(path, "a");
        cr_assert(file);
        cr_assert_eq(fwrite(wrong[i], 9, 1, file), 1);
        cr_assert_eq(fclose(file), 0);
        start_again();
        add(2 * i + 2);
        start_again();
        expect_heard(1, 2 * i + 2);
    }
}

Test(event_log, a_full_disk_loses_events_of_the_file_alone)
{
    struct rlimit before, full;

    add(1);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    full = before;
    full.rlim_cur = (rlim_t)size_of(path) + 10;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &full), 0);
    add(2);
    expect_heard(1, 2);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    add(3);
    expect_heard(1, 3);
    start_again();
    struct heard heard = hear();
    cr_assert_eq(heard.count, 2);
    cr_assert_eq(heard.last, 3);
}

Test(event_log, without_a_folder_events_are_kept_in_memory)
{
    cr_assert_eq(rmdir(folder), 0);
    add(1);
    add(2);
    expect_heard(1, 2);
    event_log_finish(agent);
    event_log_init(agent, NULL);
    add(3);
    expect_heard(3, 3);
}

Test(event_log, a_link_in_place_of_the_file_is_not_followed)
{
    char other[PATH_MAX];

    cr_assert_eq(paths_join(folder, "other", other), 0);
    cr_assert_eq(symlink(other, path), 0);
    add(1);
    cr_assert_eq(size_of(other), -1, "it was made");
    expect_heard(1, 1);
}

/* ---- who follows ---- */

Test(event_log, a_follower_that_never_reads_is_dropped)
{
    int fd = connect_client();

    ask(fd, true);
    cr_assert_eq(agent->peer_count, 1);
    cr_assert(agent->peers->follows);
    for (unsigned i = 1; i <= 1000000 && !agent->peers->broken; i++)
        add(i);
    cr_assert(agent->peers->broken, "a million events wait for it");
    for (int i = 0; i < 8; i++)
        uv_run(&agent->loop, UV_RUN_NOWAIT);
    cr_assert_eq(agent->peer_count, 0);
    add(1000001);
    cr_assert_eq(hear().last, 1000001);
    close(fd);
}

Test(event_log, control_characters_of_a_reason_are_not_kept)
{
    struct event event = event_of(NULL, "policy", "move");
    struct message message;
    char *bytes, reason[64];
    size_t size;

    event.reason = "a\033[2Jb\nc";
    event_log_add(agent, &event);
    cr_assert_eq(paths_read(path, 4096, &bytes, &size), 0);
    cr_assert_eq(message_decode((const uint8_t *)bytes + 4, size - 4, &message), 0);
    cr_assert(field_string(&message.root, "reason", reason, sizeof(reason)));
    cr_assert_str_eq(reason, "a?[2Jb c");
    message_finish(&message);
    free(bytes);
}
