#ifndef RESEAT_REMOTE_LINK_LINK_TCP_H
#define RESEAT_REMOTE_LINK_LINK_TCP_H

#include "remote/link/link.h"

/*
 * TLS 1.3 over TCP (tls.h), "tcp:HOST:PORT"; TCP alone is not offered. A client's credentials are
 * those of credentials_find(); a server is opened with tls_server_open() before it listens.
 *
 * A host that vanished is noticed by the kernel within half a minute, whether somebody waits for
 * its bytes or has some for it; then the link fails with -EPIPE. A host that is there and says
 * nothing is what deadlines are for.
 */
extern const struct link_kind link_tcp;

#endif
