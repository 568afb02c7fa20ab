#ifndef RESEAT_STATE_BASE_BYTES_MSGCHECK_H
#define RESEAT_STATE_BASE_BYTES_MSGCHECK_H

#include <stddef.h>

#include "state/base/compiler.h"

/**
 * Check that @data is exactly one msgpack object, before msgpack-c sees it.
 *
 * msgpack-c allocates the length that an array or map claims. Here no claim may exceed the bytes
 * that follow it, so what it allocates stays in proportion to @size.
 *
 * @max_depth  Arrays and maps inside each other; a scalar alone has depth 0.
 * Pure. Returns 0 or -EPROTO (truncated, too deep, not msgpack, or bytes left over).
 */
MUST_CHECK int msgcheck(const void *data, size_t size, unsigned max_depth);

#endif
