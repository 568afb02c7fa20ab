#ifndef RESEAT_REMOTE_WIRE_STREAM_RINGS_H
#define RESEAT_REMOTE_WIRE_STREAM_RINGS_H

#include "remote/rings/rings.h"
#include "remote/wire/stream.h"

/*
 * A stream over rings, between a program and a server of the same machine. Each thread posts to a
 * ring of its own, without a lock. The link is only used for the greetings and for descriptors, and
 * to notice that the other side has ended. Then the session has ended, too: rings cannot continue
 * over another link.
 *
 * A post blocks while its ring is full. So the receiving thread never posts, and never holds a lock
 * that a posting thread takes. The server sends a heartbeat each second, as over a link.
 */

/** Sizes of the rings; the same on both sides. */
extern const struct rings_shape rings_to_server, rings_to_client;

/** The client's shared memory, one area for each direction, made before its greeting. */
struct rings_areas {
    int out, in; /**< Owned. */
};
/** Returns 0, or -errno: then the session uses the link. */
MUST_CHECK int rings_areas_make(struct rings_areas *ret_areas);
void rings_areas_close(struct rings_areas *areas);

/** Called by the client after the greetings: send the areas to the server, and begin. Takes the
 * link on success. 0 or -errno. */
MUST_CHECK int stream_begin_rings(struct stream *stream, struct link *link,
                                  const struct rings_areas *areas, uint64_t deadline_ns);
/** The server's side of stream_begin_rings(). -EPROTO: what came was not such an area. */
MUST_CHECK int stream_accept_rings(struct stream *stream, struct link *link, uint64_t deadline_ns);

/**
 * For a thread that waits for something and can receive meanwhile: spin until @over returns true,
 * or spinning does not pay any more, and give each message to @take. The caller must hold no lock
 * that the receiving thread takes.
 */
void stream_rings_attend(struct stream_rings *rings, bool (*over)(void *data),
                         void (*take)(void *data, const struct message *message), void *data);
/** For the receiving thread, in whose place others may receive by stream_rings_attend(): wait for
 * the next message, and lead until stream_rings_leave() says that it was consumed. Returns as
 * stream_receive() does. */
MUST_CHECK int stream_rings_lead(struct stream_rings *rings, uint64_t silence_ns,
                                 struct message *ret_message);
void stream_rings_leave(struct stream_rings *rings);

/** In stream.c, for streams over rings as well: add a part of a message of several frames, and drop
 * that message if the caller has it. 0, -EPROTO (too long) or -ENOMEM. By the receiving thread. */
MUST_CHECK int stream_add_part(struct stream *stream, const unsigned char *body, size_t size);
void stream_drop_whole(struct stream *stream);

/** What the functions of stream.h do for a stream over rings. */
int stream_rings_post(struct stream_rings *rings, unsigned type, const void *body, size_t size,
                      const void *tail, size_t tail_size);
int stream_rings_receive(struct stream_rings *rings, uint64_t silence_ns,
                         struct message *ret_message);
bool stream_rings_has_more(const struct stream_rings *rings);
void stream_rings_end(struct stream_rings *rings, int error);
bool stream_rings_have_ended(const struct stream_rings *rings);
void stream_rings_destroy(struct stream_rings *rings);

#endif
