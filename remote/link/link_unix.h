#ifndef RESEAT_REMOTE_LINK_LINK_UNIX_H
#define RESEAT_REMOTE_LINK_LINK_UNIX_H

#include "remote/link/link.h"

/**
 * A link over a stream socket of this machine that is connected already.
 *
 * @fd  Is the link's, or closed on failure.
 * Returns 0 or -errno.
 */
MUST_CHECK int link_unix_of(int fd, struct link **ret_link);

#endif
