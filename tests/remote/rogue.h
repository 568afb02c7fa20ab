#ifndef RESEAT_TESTS_REMOTE_ROGUE_H
#define RESEAT_TESTS_REMOTE_ROGUE_H

#include <CL/cl.h>

#include "messages.h"
#include "remote/wire/stream.h"
#include "state/base/clock.h"
#include "tests/remote/served.h"
#include "tests/support/cases.h"

/* A client that says what it likes, for suites of what a server must withstand. */

#define SILENCE_NS (20 * NS_PER_S)

struct rogue {
    struct stream stream;
    bool has_queue;
};

/** What a server answers to a hello. */
struct rogue_greeted {
    struct msg_welcome welcome; /**< Its secret is in buffer. */
    char refusal[256];
    unsigned char buffer[STREAM_GREETING_MAX];
};

/** Post a message with these members on a stream. */
#define POST(stream, type, ...)                                                                    \
    cr_assert_eq(post_##type(stream, &(struct msg_##type){__VA_ARGS__}), 0)

#define DEVICE  id_make(ID_DEVICE, 0, 0)
#define CONTEXT id_make(ID_CONTEXT, 0, 0)
#define QUEUE   id_make(ID_QUEUE, 0, 0)
#define BUFFER  id_make(ID_MEMORY, 0, 0)
#define EVENT   id_make(ID_EVENT, 0, 0)
#define PROGRAM id_make(ID_PROGRAM, 0, 0)
#define KERNEL  id_make(ID_KERNEL, 0, 0)
#define CALL    id_make(ID_CALL, 0, 0)

/** NULL: it was not taken. */
struct link *rogue_dial(const struct served *served);
struct link *rogue_connect(const struct served *served);
void rogue_say(struct link *link, struct msg_hello hello);
/** The type of what answers this hello; 0: nothing did. */
unsigned rogue_hello(struct link *link, struct msg_hello hello, struct rogue_greeted *ret);
/** Begin a stream over @link, which was welcomed, up to the devices. */
void rogue_attach(struct stream *stream, struct link *link);
/** All of that. */
void rogue_begin(struct rogue *rogue, const struct served *served);

/** CONTEXT and QUEUE. */
void rogue_make_queue(struct rogue *rogue);
/** BUFFER, in CONTEXT. */
void rogue_make_buffer(struct rogue *rogue, uint64_t size);
/** PROGRAM, in CONTEXT, and KERNEL, the one called `one`; its first kernel. */
void rogue_make_kernel(struct rogue *rogue, const char *source);

/** The end of a command, which has to be what comes next; its content stays until more comes. */
struct msg_done rogue_done(struct stream *stream);
/** What answers a call, or says that a command ended; its error or status. Nothing else may come
 *  first. */
cl_int rogue_answer(struct rogue *rogue, unsigned type);
/** It still has its device: a marker comes back. */
void rogue_must_work(struct rogue *rogue, uint32_t generation);
/** The server ends its session. */
void rogue_must_end(struct rogue *rogue);

/** Of a .fini: @good, which was there all the time, goes on, and no session crashed. */
void rogue_ends(struct rogue *good, struct served *served);

#endif
