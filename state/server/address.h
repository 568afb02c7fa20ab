#ifndef RESEAT_STATE_SERVER_ADDRESS_H
#define RESEAT_STATE_SERVER_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * The address of a device server, as users write it. Functions without side effects.
 *
 *   unix:/path            the absolute path of a socket of this machine
 *   tcp:HOST:PORT         HOST is a name, 192.0.2.1, [2001:db8::1] or [fe80::1%eth0]
 *   vsock:CID:PORT        CID is a number, or host, local, any
 *
 * In an address to listen at, port 0 of tcp means any free port, the vsock CID "any" means every
 * CID, and the hosts 0.0.0.0 and [::] mean all addresses of the machine.
 */

enum address_kind { ADDRESS_UNIX, ADDRESS_TCP, ADDRESS_VSOCK };

#define ADDRESS_HOST_MAX   256 /**< Bytes of a host, with the NUL. DNS allows 253. */
#define ADDRESS_TEXT_MAX   300 /**< Bytes of any formatted address, with the NUL. */
#define ADDRESS_REASON_MAX 512 /**< Bytes of the reason for a refusal: one line. */

struct address {
    enum address_kind kind;
    /** For tcp the host, without brackets; names are in lower case. For unix the path. For vsock
     *  "". */
    char host[ADDRESS_HOST_MAX];
    uint32_t cid;
    uint32_t port; /**< For tcp at most 65535. */
};

/**
 * Read an address.
 *
 * @ret_reason  Written on failure only; safe to print.
 * Returns 0 or -EINVAL.
 */
MUST_CHECK int address_parse(const char *text, struct address *ret_address,
                             char ret_reason[ADDRESS_REASON_MAX]);

/** Write an address as address_parse() accepts it. Equal addresses give equal text; two names of
 * one host do not. */
void address_format(const struct address *address, char ret_text[ADDRESS_TEXT_MAX]);

/** Is @host a DNS name in lower case that no resolver reads as a numeric address? */
bool address_is_name(const char *host);

#endif
