#ifndef RESEAT_AGENT_REQUESTS_H
#define RESEAT_AGENT_REQUESTS_H

#include "agent/agent.h"

/** A client's move, suspend or resume, forwarded to a program that has not answered yet. */
struct request {
    struct request *next;
    uint64_t id;
    struct peer *client; /**< NULL: gone; the request is canceled, its answer unwanted. */
    struct app *app;
    char verb[16];
    char from[160], to[160]; /**< Device names, one for each seat that it is for; "" for host
                                  memory. */
    uint64_t expires_ms;     /**< uv_now() when to stop waiting; 0: never. */
};

/** MSG_MOVE, MSG_SUSPEND or MSG_RESUME from a client. */
void requests_start(struct peer *client, struct message *message);
/** The client wants its request canceled, or is gone. */
void requests_cancel(struct peer *client, bool gone);
/** The program sent MSG_PROGRESS or MSG_REPORT. */
void requests_progress(struct app *app, const msgpack_object *message);
void requests_report(struct app *app, const msgpack_object *message);
/** The program can answer no more. @what: "ended", "closed its connection to the agent". */
void requests_fail(struct agent *agent, struct app *app, const char *what);
/** Stop waiting for programs whose deadline is well past. */
void requests_sweep(struct agent *agent);
void requests_finish(struct agent *agent);

#endif
