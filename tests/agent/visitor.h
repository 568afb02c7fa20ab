#ifndef RESEAT_TESTS_AGENT_VISITOR_H
#define RESEAT_TESTS_AGENT_VISITOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/protocol/protocol.h"

/*
 * Other users of the machine, as the kernel sees them: each is a process that has changed its user
 * and connected by itself; what is said on its connection is said by the test.
 */

#define ONE     64001
#define OTHER   64002
#define SOON_MS 5000

#define NEEDS_ROOT()                                                                               \
    if (geteuid() != 0)                                                                            \
    cases_skip("only root can be other users")

struct visitor {
    pid_t pid;
    int fd;
    struct frame_reader reader;
};

/** Start an agent of root's, which anyone may connect to; $RESEAT_SOCKET says where. */
void visitor_start_host_agent(void);

/** A process of that user, connected to the agent of $RESEAT_SOCKET; it has said nothing. */
struct visitor visitor_connect(uid_t uid);
/** Whether those that connect from now on keep this process's supplementary groups. */
void visitor_keeps_groups(bool keeps);
/** Kill it and close its connection, before harness_finish() kills it. */
void visitor_leave(struct visitor *visitor);
/** Send @frame, and finish it. */
void visitor_tell(struct visitor *visitor, struct frame *frame);
/** Its program needs so much memory, all of it at once; @id is of the question. */
void visitor_need(struct visitor *visitor, uint64_t id, uint64_t bytes);
/** The next frame; false when there is none within @ms, or the connection ended. */
bool visitor_hear(struct visitor *visitor, struct message *ret_message, int ms);
/** Send @frame and take what comes next. */
bool visitor_ask(struct visitor *visitor, struct frame *frame, struct message *ret_message);
/** Say hello; true when it is welcome. */
bool visitor_greet(struct visitor *visitor, const char *role, const char *name, const char *id);

/** A command, which is welcome. */
struct visitor visitor_client(uid_t uid);
/** True when @list of the answer to @type has an entry of that name. */
bool visitor_lists(struct visitor *client, const char *type, const char *list, const char *name);
/** What @type about @app is answered with: the code of an error, or "" for none. */
const char *visitor_answer(struct visitor *client, const char *type, const char *key,
                           const char *app, char ret_text[PROTOCOL_TEXT_MAX]);

/** A program that is on gpu0, and says so. */
struct visitor visitor_program(uid_t uid, const char *name);
/** It says that it holds @bytes, whether as much was granted, and whether its device is lost. */
void visitor_say_held(struct visitor *program, uint64_t bytes, bool limited, bool lost);
/** The number of the next request to suspend that it is sent. */
uint64_t visitor_told_request(struct visitor *program);
/** It says what became of that. */
void visitor_report(struct visitor *program, uint64_t request, const char *result);

#endif
