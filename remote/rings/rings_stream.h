#ifndef RESEAT_REMOTE_RINGS_RINGS_STREAM_H
#define RESEAT_REMOTE_RINGS_RINGS_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "remote/rings/rings.h"
#include "state/base/compiler.h"

/*
 * Rings as a stream of bytes in each direction, whole and in order, for a session that cuts its own
 * frames out of whatever link it has: one thread at most sends, and one receives, at a time. What
 * is sent at once is one frame of the rings where it fits, several where it does not.
 */

struct rings_stream {
    struct rings_writer *writer; /**< Borrowed, as is the reader: they outlive it. */
    struct rings_reader *reader;
    size_t frame_most;
    char *frame;     /**< The last one that was taken; */
    size_t at, left; /**< what of it was not received yet. */
};

/** @shape is that of both. Returns 0 or -ENOMEM. */
MUST_CHECK int rings_stream_init(struct rings_stream *stream, const struct rings_shape *shape,
                                 struct rings_writer *writer, struct rings_reader *reader);
void rings_stream_finish(struct rings_stream *stream);

/** Send all of these parts. Returns 0, or as rings_post(): then some of it may be sent. */
MUST_CHECK int rings_stream_send(struct rings_stream *stream, const struct iovec *parts,
                                 size_t count, uint64_t deadline_ns);
/** Receive some bytes, as soon as there are any, @size (not 0) at most. Returns 0, or as
 * rings_take(). */
MUST_CHECK int rings_stream_receive(struct rings_stream *stream, void *bytes, size_t size,
                                    uint64_t deadline_ns, size_t *ret_received);

#endif
