#ifndef RESEAT_AGENT_DAEMON_PROGRAMS_PROGRAM_WISH_H
#define RESEAT_AGENT_DAEMON_PROGRAMS_PROGRAM_WISH_H

#include "agent/daemon/programs/registry.h"

/* Programs that registered with policy/reseat.h: what they ask for, and what they are told. */

/** Read "aware" of a hello or a MSG_WISH; without it the program is not registered. */
void program_take_wish(struct program *program, const msgpack_object *map);
/** "aware" of an open map: an object of what it asks for, or nothing. */
void program_put_wish(const struct program *program, struct frame *frame);

/** False for a device (of the ledger) that has less than a program asked for at least, with the
 *  reason; untouched where it would do, or is not listed. */
bool program_wish_fits(const struct agent *agent, const struct program *program, uint32_t device,
                       char *ret_reason, size_t size);

/** For program_notify(): none of its virtual devices is concerned. */
#define PROGRAM_NO_SEAT (SIZE_MAX - 1)
/**
 * Notify a program (policy/reseat.h), if it registered and is connected.
 *
 * @seat  One of its virtual devices, PROGRAM_ALL_SEATS or APP_NO_SEAT.
 * @what  NOTICE_...; the other values as its notices have them.
 */
void program_notify(const struct program *program, size_t seat, const char *what, uint64_t in_ns,
                    uint64_t value, const char *text);

/** Tell all programs that there is a device, or more of one: @bytes that programs may have there.
 */
void programs_notify_added(const struct agent *agent, uint64_t bytes, const char *text);

#endif
