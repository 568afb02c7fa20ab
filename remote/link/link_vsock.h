#ifndef RESEAT_REMOTE_LINK_LINK_VSOCK_H
#define RESEAT_REMOTE_LINK_LINK_VSOCK_H

#include "remote/link/link.h"

/*
 * TLS 1.3 (tls.h) between a virtual machine and its host, "vsock:CID:PORT". The hypervisor vouches
 * for which machine is at the other end, but not for which of its users: any of them may connect,
 * and listen on any port. So both sides show certificates here as well, and a guest's says what it
 * may use; nothing is hidden from the host by that, which can read its guests' memory.
 *
 * The kernel tells of the other machine's end; of one that stands still only deadlines do.
 */
extern const struct link_kind link_vsock;

#endif
