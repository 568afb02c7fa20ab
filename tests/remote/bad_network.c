/**
 * A network that cuts connections to a port of this machine, now and then, until it is ended.
 *
 *   bad_network PORT LEAST MOST [SEED]
 *
 * It prints the port that clients connect to. Each time, the connection that there is breaks after
 * LEAST to MOST bytes more, one way or the other, and a line says so when there is another.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "state/base/clock.h"
#include "tests/remote/proxy.h"

#define LOOK_NS (5 * NS_PER_MS)

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    unsigned seed = argc > 4 ? (unsigned)atoi(argv[4]) : 1;
    uint64_t least = (uint64_t)atoll(argv[2]), most = (uint64_t)atoll(argv[3]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct proxy *proxy = proxy_create((uint16_t)atoi(argv[1]));
    if (!proxy || most < least)
        return 1;
    printf("%u\n", proxy_port(proxy));
    fflush(stdout);
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
