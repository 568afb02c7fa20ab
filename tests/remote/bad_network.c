/**
 * A network to a port of this machine that is late, or cuts connections, until it is ended.
 *
 *   bad_network PORT cut LEAST MOST [SEED]
 *   bad_network PORT delay MICROSECONDS
 *
 * It prints the port that clients connect to. With `cut`, the connection that there is breaks after
 * LEAST to MOST bytes more, one way or the other, and a line says so when there is another.
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

int main(int argc, char **argv)
{
    bool cuts = argc > 4 && strcmp(argv[2], "cut") == 0;
    if (!cuts && (argc != 4 || strcmp(argv[2], "delay") != 0))
        return 2;
    uint64_t number = (uint64_t)atoll(argv[3]), most = cuts ? (uint64_t)atoll(argv[4]) : 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct proxy *proxy = proxy_create((uint16_t)atoi(argv[1]));
    if (!proxy || (cuts && most < number))
        return 1;
    printf("%u\n", proxy_port(proxy));
    fflush(stdout);
    if (cuts)
        cut(proxy, number, most, argc > 5 ? (unsigned)atoi(argv[5]) : 1);
    proxy_set_delay(proxy, number * 1000);
    for (;;)
        pause();
}
