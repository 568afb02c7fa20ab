#include "remote/rings/rings_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Parts of one frame; more are rare, and go into the next one. */
#define PARTS_MOST 16u

int rings_stream_init(struct rings_stream *stream, const struct rings_shape *shape,
                      struct rings_writer *writer, struct rings_reader *reader)
{
    *stream = (struct rings_stream){
        .writer = writer, .reader = reader, .frame_most = rings_frame_most(shape)};
    stream->frame = malloc(stream->frame_most);
    return stream->frame ? 0 : -ENOMEM;
}

void rings_stream_finish(struct rings_stream *stream)
{
    free(stream->frame);
}

/* As much as one frame takes, from byte @offset of the first part. What of them is left begins at
 * the part and offset that are returned. */
static unsigned cut(const struct rings_stream *stream, const struct iovec **parts, size_t *count,
                    size_t *offset, struct iovec *ret_frame)
{
    size_t room = stream->frame_most;
    unsigned used = 0;
    while (*count > 0 && room > 0 && used < PARTS_MOST) {
        size_t size = (*parts)->iov_len - *offset;
        size_t taken = size < room ? size : room;
        if (taken > 0)
            ret_frame[used++] = (struct iovec){(char *)(*parts)->iov_base + *offset, taken};
        room -= taken;
        *offset += taken;
        if (taken < size)
            break;
        *offset = 0;
        ++*parts;
        --*count;
    }
    return used;
}

int rings_stream_send(struct rings_stream *stream, const struct iovec *parts, size_t count,
                      uint64_t deadline_ns)
{
    struct iovec frame[PARTS_MOST];
    size_t offset = 0;
    int err = 0;
    while (err == 0 && count > 0) {
        unsigned used = cut(stream, &parts, &count, &offset, frame);
        if (used > 0)
            err = rings_post(stream->writer, frame, used, deadline_ns, NULL);
    }
    return err;
}

int rings_stream_receive(struct rings_stream *stream, void *bytes, size_t size,
                         uint64_t deadline_ns, size_t *ret_received)
{
    while (stream->left == 0) {
        int err = rings_take(stream->reader, stream->frame, deadline_ns, &stream->left, NULL);
        if (err != 0)
            return err;
        stream->at = 0;
    }
    size_t taken = size < stream->left ? size : stream->left;
    memcpy(bytes, stream->frame + stream->at, taken);
    stream->at += taken;
    stream->left -= taken;
    *ret_received = taken;
    return 0;
}
