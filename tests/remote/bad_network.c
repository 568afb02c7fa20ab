/**
 * A network to a port of this machine that is late, or cuts connections, until it is ended.
 *
 *   bad_network PORT cut LEAST MOST [SEED]
 *   bad_network PORT delay MICROSECONDS
 *   bad_network PORT records
 *
 * It prints the port that clients connect to. With `cut`, the connection that there is breaks after
 * LEAST to MOST bytes more, one way or the other, and a line says so when there is another. With
 * `records` it is told on its input, a line each, and answers each with a line: so many records of
 * TLS that went up and down, and connections that there were.
 *
 *   up N | down N   the connection breaks when N more of them went that way
 *   -               it does not, if it has not
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "tests/remote/proxy.h"

#define LOOK_NS (5 * NS_PER_MS)

static void cut(struct proxy *proxy, uint64_t least, uint64_t most, unsigned seed)
{
    for (;;) {
        unsigned connections = proxy_connections(proxy);
        uint64_t bytes = least + (uint64_t)rand_r(&seed) % (most - least + 1);
        proxy_cut_in(proxy, rand_r(&seed) % 2 ? PROXY_UP : PROXY_DOWN, bytes);
        while (proxy_connections(proxy) == connections)
            clock_sleep(LOOK_NS);
        puts("another connection");
        fflush(stdout);
    }
}

static void cut_as_told(struct proxy *proxy)
{
    char line[64], way[8];
    unsigned long long records;

    while (fgets(line, sizeof(line), stdin)) {
        proxy_cut_in_records(proxy, PROXY_UP, UINT64_MAX);
        proxy_cut_in_records(proxy, PROXY_DOWN, UINT64_MAX);
        if (sscanf(line, "%7s %llu", way, &records) == 2)
            proxy_cut_in_records(proxy, way[0] == 'u' ? PROXY_UP : PROXY_DOWN, records);
        printf("%llu %llu %u\n", (unsigned long long)proxy_records(proxy, PROXY_UP),
               (unsigned long long)proxy_records(proxy, PROXY_DOWN), proxy_connections(proxy));
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    bool cuts = argc > 4 && strcmp(argv[2], "cut") == 0;
    bool told = argc == 3 && strcmp(argv[2], "records") == 0;
    if (!cuts && !told && (argc != 4 || strcmp(argv[2], "delay") != 0))
        return 2;
    uint64_t number = told ? 0 : (uint64_t)atoll(argv[3]),
             most = cuts ? (uint64_t)atoll(argv[4]) : 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct proxy *proxy = proxy_create((uint16_t)atoi(argv[1]));
    if (!proxy || (cuts && most < number))
        return 1;
    printf("%u\n", proxy_port(proxy));
    fflush(stdout);
    if (cuts)
        cut(proxy, number, most, argc > 5 ? (unsigned)atoi(argv[5]) : 1);
    if (told) {
        cut_as_told(proxy);
        return 0;
    }
    proxy_set_delay(proxy, number * 1000);
    for (;;)
        pause();
}
