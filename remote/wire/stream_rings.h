#ifndef RESEAT_REMOTE_WIRE_STREAM_RINGS_H
#define RESEAT_REMOTE_WIRE_STREAM_RINGS_H

#include "remote/rings/rings.h"
#include "remote/wire/stream.h"

/*
 * A stream over rings, between a program and a server of the same machine. Whoever posts writes
 * into a ring of its thread, without a lock; the link, whose greetings were said, is for
 * descriptors, and hangs up when either side ends: then the session has ended, as rings cannot go
 * on over another link.
 *
 * A post waits while its ring is full. So nobody who receives ever posts, nor keeps a lock that
 * somebody who posts has. The server gives a sign of life each second, as over a link.
 */

/** What both sides know of the rings. */
extern const struct rings_shape rings_to_server, rings_to_client;

/** The client's areas, one in each direction: what it offers before its greeting. */
struct rings_areas {
    int out, in; /**< Owned. */
};
/** Returns 0, or -errno: the session is one over a link. */
MUST_CHECK int rings_areas_make(struct rings_areas *ret_areas);
void rings_areas_close(struct rings_areas *areas);

/** After the greetings: give the server the areas, and begin. The link is the stream's then. 0 or
 *  -errno. */
MUST_CHECK int stream_begin_rings(struct stream *stream, struct link *link,
                                  const struct rings_areas *areas, uint64_t deadline_ns);
/** The server's side of it. -EPROTO: that was no such area. */
MUST_CHECK int stream_accept_rings(struct stream *stream, struct link *link, uint64_t deadline_ns);

/**
 * Where a thread waits that may as well receive: until @over, but no longer than it pays to spin;
 * each message that comes is given to @take. It keeps no lock that whoever receives takes.
 */
void stream_rings_attend(struct stream_rings *rings, bool (*over)(void *data),
                         void (*take)(void *data, const struct message *message), void *data);
/** By a thread that others may attend in place of: the next message, after which it leads; it says
 *  when it has used it. Returns as stream_receive(). */
MUST_CHECK int stream_rings_lead(struct stream_rings *rings, uint64_t silence_ns,
                                 struct message *ret_message);
void stream_rings_leave(struct stream_rings *rings);

/** Of stream.c: what it does there. */
int stream_rings_post(struct stream_rings *rings, unsigned type, const void *body, size_t size,
                      const void *tail, size_t tail_size);
int stream_rings_receive(struct stream_rings *rings, uint64_t silence_ns,
                         struct message *ret_message);
bool stream_rings_has_more(const struct stream_rings *rings);
void stream_rings_end(struct stream_rings *rings, int error);
bool stream_rings_have_ended(const struct stream_rings *rings);
void stream_rings_destroy(struct stream_rings *rings);

#endif
