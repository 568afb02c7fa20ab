#ifndef RESEAT_TESTS_STATE_IMAGE_SNAPSHOT_PLAY_H
#define RESEAT_TESTS_STATE_IMAGE_SNAPSHOT_PLAY_H

#include "state/image/snapshot.h"
#include "tests/support/engine_rig.h"

/* A program that adds to the words of buffers, and what snapshots of it have. */

#define TWO   "[one] name=one own_memory=yes [two] name=two own_memory=yes"
#define BYTES ((size_t)5 << 20) /* three chunks, of which one is short */
#define WORDS (BYTES / sizeof(cl_uint))
#define SMALL 4096

struct play {
    struct engine_rig rig;
    struct engine_program program;
    cl_kernel add;
};
extern struct play play;

/** On emulated devices or, @config NULL, on POCL's, which work in the host copies themselves. */
void play_open(const char *config);
void play_close(void);
void add(cl_mem buffer, size_t words, cl_uint value);
/** What the words of a buffer begin with. */
cl_uint word_of(size_t i);
cl_mem filled(size_t size);

struct snapshot_report made(void);
/** No snapshot is made: @error; @before is the last one still. */
void fails(const struct snapshot_request *request, int error, const struct snapshot *before);
size_t index_of(const struct snapshot *snapshot, cl_mem buffer);
/** Bytes [@offset, @offset + @size) as @snapshot has them; what was never written is 0xee. */
void read_point(const struct snapshot *snapshot, cl_mem buffer, size_t offset, size_t size,
                void *ret_bytes);
/** Each word is @added more than it began with. */
void has_added(const struct snapshot *snapshot, cl_mem buffer, size_t size, cl_uint added);

#endif
