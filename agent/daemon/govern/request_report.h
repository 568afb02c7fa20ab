#ifndef RESEAT_AGENT_DAEMON_GOVERN_REQUEST_REPORT_H
#define RESEAT_AGENT_DAEMON_GOVERN_REQUEST_REPORT_H

#include "agent/daemon/agent.h"

struct request;

/* What clients are told of their moves, suspends and resumes: MSG_REPORT. */

/** "program": which program it is. */
void report_put_program(struct frame *frame, const struct program *program);
/**
 * What the program was not asked for.
 *
 * @from, @to  Devices.
 * @result     RESULT_...
 * @already    It was there.
 */
void report_plain(struct peer *client, const struct program *program, const char *from,
                  const char *to, const char *result, bool already);
/** The same of the devices of @seat, or of all with PROGRAM_ALL_SEATS. */
void report_devices(struct peer *client, const struct program *program, size_t seat,
                    const char *result, bool already);
/** What the program reported of @request. */
void report_forward(struct peer *client, const struct request *request,
                    const msgpack_object *message);

#endif
