#ifndef RESEAT_AGENT_DAEMON_GOVERN_REQUEST_REPORT_H
#define RESEAT_AGENT_DAEMON_GOVERN_REQUEST_REPORT_H

#include "agent/daemon/agent.h"

struct request;

/* What clients are told of their moves, suspends and resumes: MSG_REPORT. */

/** "app": which program it is. */
void report_put_app(struct frame *frame, const struct app *app);
/**
 * What the program was not asked for.
 *
 * @from, @to  Devices.
 * @result     RESULT_...
 * @already    It was there.
 */
void report_tell(struct peer *client, const struct app *app, const char *from, const char *to,
                 const char *result, bool already);
/** The same of the devices of @seat, or of all with APP_ALL_SEATS. */
void report_of(struct peer *client, const struct app *app, size_t seat, const char *result,
               bool already);
/** What the program reported of @request. */
void report_forward(struct peer *client, const struct request *request,
                    const msgpack_object *message);

#endif
