#ifndef RESEAT_STREAM_FRAME_H
#define RESEAT_STREAM_FRAME_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "remote/link/link.h"
#include "state/base/compiler.h"

/*
 * The frames of a stream's socket. Little-endian: u32 size of the body, u16 type, u16 zero, the
 * body. A string is a u32 length and its bytes.
 */

#define STREAM_VERSION       1
#define STREAM_FRAME_HEADER  8
#define STREAM_FRAME_MAX     (1u << 20) /**< Most bytes of a body. */
#define STREAM_CONSTANTS_MAX 8

enum stream_frame {
    STREAM_OPEN = 1,
    STREAM_OPENED,
    STREAM_REFUSED,
    STREAM_RECORDS,
    STREAM_ANSWERS,
    STREAM_FINISHED,
    STREAM_LIST,   /**< From local clients, in place of OPEN; empty. */
    STREAM_LISTED, /**< A JSON text; the connection ends. */
};

/** Bytes of somebody else's, with a NUL behind those that are text. */
struct stream_text {
    const char *bytes;
    uint32_t size;
};

struct stream_constant {
    struct stream_text name, value;
};

#define STREAM_OPEN_SHARED 1u

/** The body of OPEN. */
struct stream_open {
    uint32_t version, flags;
    struct stream_text kernel, description, source, device;
    uint32_t count;
    struct stream_constant constants[STREAM_CONSTANTS_MAX];
};

/** The body of OPENED. */
struct stream_opened {
    uint32_t version, input, output;
    uint64_t capacity, area;
    struct stream_text path, program;
};

/** A body that is written or read. Zero at first. */
struct stream_body {
    char *bytes; /**< free() it. */
    size_t size, at;
    int error; /**< -ENOMEM, or -EPROTO: what was read does not fit. */
};

void stream_body_finish(struct stream_body *body);

/** Write the body of OPEN or OPENED; body->error says whether there was memory. */
void stream_open_put(struct stream_body *body, const struct stream_open *open);
/** Change a written body of OPEN: no area is wanted. */
void stream_open_unshare(struct stream_body *body);
void stream_opened_put(struct stream_body *body, const struct stream_opened *opened);
/**
 * Read a body, whose texts are borrowed from it. Texts have no NUL within and are followed by one.
 * Returns 0 or -EPROTO.
 */
MUST_CHECK int stream_open_get(struct stream_body *body, struct stream_open *ret_open);
MUST_CHECK int stream_opened_get(struct stream_body *body, struct stream_opened *ret_opened);

/** Send a frame. Returns as `send` of link.h. */
MUST_CHECK int stream_frame_send(struct link *link, enum stream_frame type, const void *body,
                                 size_t size, uint64_t deadline_ns);
/** Send REFUSED: a failure to do so is ignored. */
void stream_frame_refuse(struct link *link, int error, const char *reason);

/**
 * Receive a frame. No byte behind it is received.
 *
 * @ret_body  The caller's.
 * Returns 0, -EMSGSIZE (longer than STREAM_FRAME_MAX), -EPROTO, -ENOMEM, or as `receive` of link.h.
 */
MUST_CHECK int stream_frame_receive(struct link *link, uint64_t deadline_ns,
                                    enum stream_frame *ret_type, struct stream_body *ret_body);
/** Receive exactly so many bytes. */
MUST_CHECK int stream_frame_receive_all(struct link *link, void *bytes, size_t size,
                                        uint64_t deadline_ns);
/** The header of a frame: 0, -EMSGSIZE or -EPROTO. */
MUST_CHECK int stream_frame_header(const unsigned char header[STREAM_FRAME_HEADER],
                                   enum stream_frame *ret_type, size_t *ret_size);

/** Where the service is: $RESEAT_STREAM, else unix:stream.sock in the user's runtime folder. 0 or
 * -ENAMETOOLONG. */
MUST_CHECK int stream_address_find(char ret_address[PATH_MAX]);

/** The reason in the body of REFUSED, made safe to print. Returns its error. */
MUST_CHECK int stream_refused_get(struct stream_body *body, char *ret_reason, size_t size);

#endif
