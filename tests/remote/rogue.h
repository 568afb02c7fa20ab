#ifndef RESEAT_TESTS_REMOTE_ROGUE_H
#define RESEAT_TESTS_REMOTE_ROGUE_H

#include <CL/cl.h>

#include "messages.h"
#include "state/base/clock.h"
#include "tests/remote/served.h"

/* A client that says what it likes, for suites of what a server must withstand. */

#define SILENCE_NS (20 * NS_PER_S)

struct rogue {
    struct stream stream;
    char refusal[256];
    bool has_queue;
};

#define DEVICE  id_make(ID_DEVICE, 0, 0)
#define CONTEXT id_make(ID_CONTEXT, 0, 0)
#define QUEUE   id_make(ID_QUEUE, 0, 0)
#define BUFFER  id_make(ID_MEMORY, 0, 0)
#define EVENT   id_make(ID_EVENT, 0, 0)
#define PROGRAM id_make(ID_PROGRAM, 0, 0)
#define KERNEL  id_make(ID_KERNEL, 0, 0)
#define CALL    id_make(ID_CALL, 0, 0)

struct link *rogue_connect(const struct served *served);
/** The type of what answers a hello of @version. */
unsigned rogue_greet(struct link *link, uint32_t version, char *ret_refusal);
/** The same, with features; those that the server has too are in *ret_features. */
unsigned rogue_greet_with(struct link *link, uint32_t version, uint64_t features,
                          uint64_t *ret_features, char *ret_refusal);
/** Up to the devices. */
void rogue_begin(struct rogue *rogue, const struct served *served);

/** CONTEXT and QUEUE. */
void rogue_make_queue(struct rogue *rogue);
/** BUFFER, in CONTEXT. */
void rogue_make_buffer(struct rogue *rogue, uint64_t size);
/** PROGRAM, in CONTEXT, and KERNEL, the one called `one`; its first kernel. */
void rogue_make_kernel(struct rogue *rogue, const char *source);

/** What answers a call, or says that a command ended; its error or status. Nothing else may come
 *  first. */
cl_int rogue_answer(struct rogue *rogue, unsigned type);
/** It still has its device: a marker comes back. */
void rogue_must_work(struct rogue *rogue, uint32_t generation);
/** The server ends its session. */
void rogue_must_end(struct rogue *rogue);

/** At the end of each test, since what a fixture finds counts for nothing: @good, which was there
 *  all the time, goes on, and no session crashed. */
void rogue_ends(struct rogue *good, struct served *served);

#endif
