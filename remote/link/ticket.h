#ifndef RESEAT_REMOTE_LINK_TICKET_H
#define RESEAT_REMOTE_LINK_TICKET_H

#include <stdint.h>

/*
 * What lets one connect to a session of a server for one transfer, once, without a certificate. A
 * client draws it, and gives it to both sessions over its links with them; who does not have it
 * gets past no handshake, on either side. The name goes over the connection, the key does not.
 */

#define TICKET_KEY_SIZE 32

struct ticket_name {
    uint64_t session; /**< Of the server that is connected to. */
    unsigned char bytes[16];
};

struct ticket {
    struct ticket_name name;
    unsigned char key[TICKET_KEY_SIZE];
};
_Static_assert(sizeof(struct ticket) == 56, "as it is sent");

#endif
