#ifndef RESEAT_REMOTE_SERVER_GREETING_H
#define RESEAT_REMOTE_SERVER_GREETING_H

#include "messages.h"

/** A client that connects has so long for its handshake, and as long to say what it wants. */
#define GREETING_NS (10 * NS_PER_S)

/**
 * Hear who comes, whether both speak the same, and answer.
 *
 * @refusal  Why it is refused; NULL: it is welcome.
 * Returns 0, or -errno: it has no session, and was told why where it could be.
 */
MUST_CHECK int greeting_take(struct link *link, const char *refusal, struct msg_hello *ret_hello);

#endif
