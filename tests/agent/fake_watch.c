#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/server/news.h"
#include "tests/agent/fake_devices.h"

/*
 * In place of reseat-watch: fake_watch unix:PATH FILE DRIVER. How the server is, is what the file
 * PATH says, and each change is told:
 *
 *   up KIND:NAME,...    there, with these devices (fake_devices.h)
 *   rate BYTES KIND:NAME,...  the same, and writes are measured so: bytes a second; 0: not yet
 *   lie KIND:NAME,...   the same, but the devices say that they are another server's
 *   down CODE WORDS     as doc/remote.md has it
 *   hang                nothing is told any more
 *   rubbish             bytes that are no news
 *   end                 this ends
 */

static uint64_t write_rate = 1000000000;

static void tell(const char *code, const char *problem, bool listed)
{
    struct server_news news = {
        .listed = listed, .round_trip_ns = 250000, .read = 2000000000, .write = write_rate};

    snprintf(news.code, sizeof(news.code), "%s", code);
    snprintf(news.problem, sizeof(news.problem), "%s", problem);
    if (server_news_write(&news, STDOUT_FILENO))
        _exit(1);
}

static void show(char *devices, const char *icd, const char *file)
{
    struct inventory_entry entries[FAKE_DEVICES_MAX] = {0};
    struct inventory inventory = {.entries = entries};

    inventory.count = fake_devices(devices, icd, entries);
    if (inventory_write(file, &inventory))
        _exit(1);
    tell("", "", true);
}

static void rubbish(void)
{
    char bytes[4096];

    memset(bytes, 0xff, sizeof(bytes));
    (void)!write(STDOUT_FILENO, bytes, sizeof(bytes));
}

static void act(char *line, const char *address, const char *file)
{
    char *what = strsep(&line, " ");

    if (strcmp(what, "up") == 0 && line)
        show(line, address, file);
    else if (strcmp(what, "rate") == 0 && line) {
        write_rate = strtoull(strsep(&line, " "), NULL, 10);
        show(line, address, file);
    } else if (strcmp(what, "lie") == 0 && line)
        show(line, "unix:/another/server", file);
    else if (strcmp(what, "rubbish") == 0)
        rubbish();
    else if (strcmp(what, "end") == 0)
        _exit(1);
    else if (strcmp(what, "down") == 0 && line) {
        const char *code = strsep(&line, " ");
        tell(code, line ? line : "", false);
    }
}

/** In place of reseat-mdns browse: the addresses in the file FAKE_ANNOUNCED are announced. */
static void announce(char *lines)
{
    for (char *line = strsep(&lines, "\n"); line; line = strsep(&lines, "\n")) {
        struct server_news news = {.code = ""};
        snprintf(news.address, sizeof(news.address), "%s", line);
        if (line[0] && server_news_write(&news, STDOUT_FILENO))
            _exit(1);
    }
}

int main(int argc, char **argv)
{
    static char before[4096], now[4096];
    bool browses = argc == 2 && strcmp(argv[1], "browse") == 0;
    const char *path = browses     ? getenv("FAKE_ANNOUNCED")
                       : argc == 4 ? argv[1] + strlen("unix:")
                                   : NULL;

    while (path) {
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        char word[8];
        FILE *file = fopen(path, "re");
        size_t size = file ? fread(now, 1, sizeof(now) - 1, file) : 0;
        now[size] = '\0';
        if (file)
            fclose(file);
        if (!size && !browses)
            strcpy(now, "down unreachable nobody can be reached there");
        if (strcmp(now, before) != 0) {
            strcpy(before, now);
            if (browses)
                announce(now);
            else
                act(now, argv[1], argv[2]);
        }
        /* Its end is the agent's. */
        if (poll(&input, 1, 20) > 0 && read(STDIN_FILENO, word, sizeof(word)) <= 0)
            return 0;
    }
    return 2;
}
