#include "agent/cli/show/reports.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/config/servers.h"
#include "state/base/clock.h"
#include "state/server/news.h"

#define LOOK_NS (10 * NS_PER_S)

struct looked {
    struct server_line server;
    pid_t pid;
    int fd; /* -1 after its end of file. */
    struct server_news_reader reader;
    bool told;
    bool other_version; /**< What reseat-watch tells is of another version. */
};

static size_t server_looks_find_servers(struct server_line *ret_lines)
{
    struct server_line added[SERVERS_MAX] = {{.name = ""}};
    char folder[PATH_MAX], path[PATH_MAX];
    struct config_error ignored; /* config validate reports the error. */
    struct config config = {.path = ""};
    size_t count = 0, more = 0;

    if (config_load_effective(NULL, 0, &config, &ignored))
        config = (struct config){.path = ""};
    for (size_t i = 0; i < config.lists[CONFIG_SERVERS].count && count < SERVERS_MAX; i++) {
        const char *name, *address;
        config_server(&config, i, &name, &address);
        struct server_line *line = &ret_lines[count++];
        *line = (struct server_line){.leaves = false};
        snprintf(line->name, sizeof(line->name), "%s", name);
        snprintf(line->address, sizeof(line->address), "%s", address);
    }
    config_finish(&config);
    if (!paths_state(folder) && !paths_join(folder, "servers", path))
        more = servers_read(path, added);
    for (size_t i = 0; i < more && count < SERVERS_MAX; i++)
        ret_lines[count++] = added[i];
    return count;
}

static void server_looks_begin(struct looked *look, const char *program)
{
    int ends[2];

    look->fd = -1;
    if (pipe2(ends, O_CLOEXEC))
        return;
    look->pid = fork();
    if (look->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[1], STDOUT_FILENO);
        execl(program, program, "--look", look->server.address, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    if (look->pid > 0)
        look->fd = ends[0];
    else
        close(ends[0]);
}

static void server_looks_take(struct looked *look)
{
    size_t size;
    char *room = server_news_room(&look->reader, &size);
    ssize_t got = read(look->fd, room, size);

    if (got < 0 && errno == EINTR)
        return;
    int result = got > 0 ? server_news_came(&look->reader, (size_t)got) : -EPIPE;
    look->told = result > 0;
    look->other_version = result == -EPROTO;
    if (result == 0)
        return;
    close(look->fd);
    look->fd = -1;
}

static void server_looks_take_all(struct looked *looks, size_t count, uint64_t deadline_ns)
{
    struct pollfd polls[SERVERS_MAX];

    for (;;) {
        uint64_t now = clock_now_ns();
        size_t open = 0;
        for (size_t i = 0; i < count; i++) {
            polls[i] = (struct pollfd){.fd = looks[i].fd, .events = POLLIN};
            open += looks[i].fd >= 0;
        }
        if (!open || now >= deadline_ns)
            return;
        if (poll(polls, count, (int)((deadline_ns - now) / NS_PER_MS) + 1) < 0 && errno != EINTR)
            return;
        for (size_t i = 0; i < count; i++)
            if (looks[i].fd >= 0 && polls[i].revents)
                server_looks_take(&looks[i]);
    }
}

static bool server_looks_say(struct looked *look, FILE *to)
{
    const char *code = look->told            ? look->reader.news.code
                       : look->other_version ? "version"
                                             : "silent";
    const char *problem = look->told            ? look->reader.news.problem
                          : look->other_version ? "reseat-watch beside this binary is of another "
                                                  "version; reinstall reseat"
                                                : "it does not answer";
    /* Others may go away without anybody's action. */
    bool stops = code[0] && strcmp(code, "unreachable") != 0 && strcmp(code, "silent") != 0 &&
                 strcmp(code, "busy") != 0;
    fprintf(to, "%-5s server %s (%s): %s%s\n",
            !code[0] ? "ok"
            : stops  ? "stop"
                     : "note",
            look->server.name, look->server.address, code[0] ? problem : "it admits us",
            look->server.leaves ? "; it leaves" : "");
    return !stops;
}

bool server_looks(FILE *to)
{
    static struct looked looks[SERVERS_MAX];
    struct server_line lines[SERVERS_MAX];
    size_t count = server_looks_find_servers(lines);
    char program[PATH_MAX];
    bool good = true;

    if (!count)
        return true;
    if (paths_of(PATHS_WATCH, program)) {
        fprintf(to, "stop  reseat-watch: it is not beside this binary, so that no server is used; "
                    "reinstall reseat\n");
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        looks[i].server = lines[i];
        looks[i].fd = -1;
        if (strcmp(lines[i].address, SERVER_ANNOUNCED) != 0)
            server_looks_begin(&looks[i], program);
    }
    server_looks_take_all(looks, count, clock_now_ns() + LOOK_NS);
    for (size_t i = 0; i < count; i++) {
        if (looks[i].fd >= 0)
            close(looks[i].fd);
        if (looks[i].pid > 0) {
            kill(looks[i].pid, SIGKILL);
            waitpid(looks[i].pid, NULL, 0);
        }
        if (strcmp(lines[i].address, SERVER_ANNOUNCED) != 0)
            good &= server_looks_say(&looks[i], to);
        else
            fprintf(to,
                    "%-5s server %s: stands for those that are announced; reseat server list "
                    "shows them\n",
                    paths_of(PATHS_MDNS, program) ? "note" : "ok", lines[i].name);
    }
    return good;
}
