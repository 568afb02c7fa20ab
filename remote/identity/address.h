#ifndef RESEAT_REMOTE_IDENTITY_ADDRESS_H
#define RESEAT_REMOTE_IDENTITY_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Where a device server is, as people write it. Pure.
 *
 *   unix:/path            a socket of this machine; absolute
 *   tcp:HOST:PORT         a name, 192.0.2.1, or [2001:db8::1] and [fe80::1%eth0] in brackets
 *   vsock:CID:PORT        a number, or host, local, any
 *
 * Who listens may write port 0 of tcp for one that is free, and any of vsock for every CID; the
 * addresses 0.0.0.0 and [::] are every one of the machine's.
 */

enum address_kind { ADDRESS_UNIX, ADDRESS_TCP, ADDRESS_VSOCK };

#define ADDRESS_HOST_MAX   256 /**< Bytes of a host, with the NUL; DNS allows 253. */
#define ADDRESS_TEXT_MAX   300 /**< Of any address, printed, with the NUL. */
#define ADDRESS_REASON_MAX 512 /**< Of what is wrong with one: one line. */

struct address {
    enum address_kind kind;
    /** Without brackets, in lower case where it is a name; the path of unix; "" of vsock. */
    char host[ADDRESS_HOST_MAX];
    uint32_t cid;
    uint32_t port; /**< 16 bits of tcp. */
};

/**
 * Read an address.
 *
 * @ret_reason  Written on failure only; safe to print.
 * Returns 0 or -EINVAL.
 */
MUST_CHECK int address_parse(const char *text, struct address *ret_address,
                             char ret_reason[ADDRESS_REASON_MAX]);

/** As address_parse() takes it; what is the same address reads the same, but for names. */
void address_format(const struct address *address, char ret_text[ADDRESS_TEXT_MAX]);

/** Is @host a DNS name in lower case, which no resolver takes for a number? */
bool address_is_name(const char *host);

#endif
