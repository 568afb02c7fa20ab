#ifndef RESEAT_STREAM_H
#define RESEAT_STREAM_H

/*
 * Streams: records go to a kernel on a device of reseat's, its answers come back, in order, each
 * exactly once. The program needs no OpenCL; `reseat stream serve` runs on the same machine, or on
 * one that has issued a certificate.
 *
 *     struct reseat_stream_constant key = {"key", bytes, 16};
 *     struct reseat_stream_options options = {.size = sizeof(options), .constants = &key, .count =
 * 1}; struct reseat_stream *stream; char reason[RESEAT_STREAM_REASON]; if
 * (reseat_stream_open("aes", &options, &stream, reason))
 *         ...
 *     reseat_stream_write(stream, records, n);         // one thread
 *     reseat_stream_read(stream, answers, most, &n);   // the same, or another one
 *     reseat_stream_close(stream);
 *
 * One thread may send and one may take answers at the same time. All functions return 0 or -errno;
 * reseat_stream_reason() says more. When a stream has failed, all that follows fails in the same
 * way. A service that ends is looked for again for `deadline_ms`, and the records that it
 * did not answer are sent again: nothing is lost or doubled.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RESEAT_STREAM_REASON 1024

struct reseat_stream;

struct reseat_stream_constant {
    const char *name;
    const void *bytes;
    size_t size;
};

/** How to open a stream. Zero it, and set `size` to sizeof(struct reseat_stream_options). */
struct reseat_stream_options {
    uint32_t size;
    uint32_t deadline_ms; /**< To connect, and to connect again; 0: 10000. */
    /** "unix:PATH" or "tcp:HOST:PORT"; NULL: $RESEAT_STREAM, or the user's service. */
    const char *address;
    const char *device; /**< Where to start, as `reseat devices` lists them; NULL: any. */
    /** A kernel of the program's own: the texts of NAME.stream and NAME.cl; NULL: one of the
     *  service's. */
    const char *description, *source;
    const struct reseat_stream_constant *constants;
    size_t count;
    uint32_t
        unshared; /**< 1: send records through the socket, also to a service on this machine. */
    uint32_t reserved;
};

/**
 * Open a stream.
 *
 * @kernel  Its name.
 * @ret_reason  Of RESEAT_STREAM_REASON bytes; written on failure: one line that says what to do.
 * Blocks until the kernel is built. -ENOENT (no such kernel, or no service), -EINVAL (the kernel
 * does not build, or a constant is wrong), -EACCES, -EMFILE, -ETIMEDOUT...
 */
int reseat_stream_open(const char *kernel, const struct reseat_stream_options *options,
                       struct reseat_stream **ret_stream, char *ret_reason);
/** Close it; records that were not answered are dropped. NULL is allowed. */
void reseat_stream_close(struct reseat_stream *stream);

/** Bytes of a record, and of an answer. */
size_t reseat_stream_input(const struct reseat_stream *stream);
size_t reseat_stream_output(const struct reseat_stream *stream);
/** Its name in `reseat ps`, `move`, `suspend`...; another service gives it another one. */
const char *reseat_stream_program(const struct reseat_stream *stream);
/** Records that the service would have packed, and unpacked, at a time; 0: not known. It changes.
 */
size_t reseat_stream_pack_payload(struct reseat_stream *stream);
size_t reseat_stream_unpack_payload(struct reseat_stream *stream);
/** Why the last call failed: one line, until the next one fails. */
const char *reseat_stream_reason(const struct reseat_stream *stream);

/** Send records. Blocks while the rings are full. */
int reseat_stream_write(struct reseat_stream *stream, const void *records, size_t count);
/** Take answers: blocks until there is one, and takes at most @most. 0 answers: all records that
 * were sent are answered, and reseat_stream_finish() was called. */
int reseat_stream_read(struct reseat_stream *stream, void *answers, size_t most, size_t *ret_count);
/** No more records will be sent. */
int reseat_stream_finish(struct reseat_stream *stream);

/*
 * The same without a copy: records are packed in the ring, answers unpacked from it. What was
 * borrowed is given back by the same thread; no other call on that side in between.
 */

/** Borrow room for records: blocks until there is some. @ret_count: at most @most, at least 1. */
int reseat_stream_pack(struct reseat_stream *stream, size_t most, void **ret_records,
                       size_t *ret_count);
/** Send the first @count of them; 0: none. */
int reseat_stream_packed(struct reseat_stream *stream, size_t count);
/** Borrow answers, as reseat_stream_read(). */
int reseat_stream_unpack(struct reseat_stream *stream, size_t most, const void **ret_answers,
                         size_t *ret_count);
/** The first @count of them are taken. */
int reseat_stream_unpacked(struct reseat_stream *stream, size_t count);

#ifdef __cplusplus
}
#endif

#endif
