#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "agent/config/paths.h"
#include "state/driver/device_key.h"
#include "state/driver/links.h"

/*
 * In place of reseat-measure: keeps figures of the device it is asked for, faster ones for a GPU,
 * or does what FAKE_MEASURE says: "hang" with a child that has its output too, "crash", "fail", or
 * "talk" as drivers do.
 */
int main(int argc, char **argv)
{
    const char *how = getenv("FAKE_MEASURE") ? getenv("FAKE_MEASURE") : "";
    const struct devinfo info = {0};
    struct device_key key;

    if (argc != 2 || device_key_parse(argv[1], &key) || paths_links(the_links.folder))
        return 2;
    if (strcmp(how, "hang") == 0) {
        /* Locked for as long as one of the two lives, which is not for ever. */
        int file = open(getenv("FAKE_MEASURE_LOCK"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        flock(file, LOCK_EX);
        signal(SIGTERM, SIG_IGN);
        (void)!fork();
        alarm(60);
        for (;;)
            pause();
    } else if (strcmp(how, "crash") == 0) {
        raise(SIGSEGV);
    } else if (strcmp(how, "fail") == 0) {
        fprintf(stderr, "fake: it fails\n");
        return 1;
    } else if (strcmp(how, "talk") == 0) {
        puts("a driver's word");
    }
    double fast = key.uuid[0] ? 50e9 : 10e9;
    const struct link_figures figures = {.read = {COST_LINK, 10e-6, fast},
                                         .write = {COST_LINK, 10e-6, fast / 2},
                                         .plain_read = {COST_LINK, 30e-6, fast / 8},
                                         .plain_write = {COST_LINK, 30e-6, fast / 8}};
    const struct host_figures host = {.copy = {COST_WORK, 5e-6, 8e9},
                                      .out = {COST_WORK, 5e-6, 13e9},
                                      .fresh = {COST_WORK, 5e-6, 6e9},
                                      .ring = {COST_RING, 1e-4, 14e9},
                                      .hand = {COST_HAND, 3e-5, 1e12}};
    return links_keep_host(&the_links, &host) || links_keep(&the_links, &key, &info, &figures);
}
