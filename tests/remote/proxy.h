#ifndef RESEAT_TESTS_REMOTE_PROXY_H
#define RESEAT_TESTS_REMOTE_PROXY_H

#include <stdbool.h>
#include <stdint.h>

/*
 * A bad network between a client and a server on this machine: takes connections on a port of
 * 127.0.0.1 and passes them on to another, late, slowly, partly, or not at all. A thread of its own
 * does it. What is set counts from then on, for connections that there are as well.
 */
struct proxy;

enum proxy_way { PROXY_UP, PROXY_DOWN, PROXY_WAYS }; /* to the server, to the client */

/** NULL where it cannot be. */
struct proxy *proxy_create(uint16_t server_port);
/** Ends its connections. */
void proxy_destroy(struct proxy *proxy);

/** Where clients connect. */
uint16_t proxy_port(const struct proxy *proxy);
/** New connections go there: a server that was started again, or another. */
void proxy_set_server(struct proxy *proxy, uint16_t server_port);

/** Every byte is so late. */
void proxy_set_delay(struct proxy *proxy, uint64_t ns);
/** At most so many bytes a second each way; 0: all that come. */
void proxy_set_rate(struct proxy *proxy, uint64_t bytes);
/** Every connection is cut, both ways, when so many of its bytes went that way; UINT64_MAX: none.
 */
void proxy_cut_after(struct proxy *proxy, enum proxy_way way, uint64_t bytes);
/** The connection is cut, both ways, when so many bytes more went that way; none after it. */
void proxy_cut_in(struct proxy *proxy, enum proxy_way way, uint64_t bytes);
/** The connection is cut, both ways, when so many records of TLS more went that way, and before
 *  anything of the next does; none after it. UINT64_MAX: none, if it was not yet. */
void proxy_cut_in_records(struct proxy *proxy, enum proxy_way way, uint64_t records);
/** Cut all connections now. New ones are taken. */
void proxy_cut(struct proxy *proxy);
/** A network that lost somebody: nothing goes on, and nobody is told. */
void proxy_set_stalled(struct proxy *proxy, bool stalled);
/** Turn new connections away at once; or not any more. */
void proxy_set_refusing(struct proxy *proxy, bool refusing);

/** Connections that were passed on to a server so far, and bytes of all of them. */
unsigned proxy_connections(const struct proxy *proxy);
uint64_t proxy_bytes(const struct proxy *proxy, enum proxy_way way);
/** Whole records of TLS, likewise. */
uint64_t proxy_records(const struct proxy *proxy, enum proxy_way way);

#endif
