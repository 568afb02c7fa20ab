#ifndef RESEAT_AGENT_DAEMON_METRICS_METRICS_H
#define RESEAT_AGENT_DAEMON_METRICS_METRICS_H

#include "agent/daemon/event_log.h"

/*
 * Metrics for Prometheus and others (doc/metrics.md), as OpenMetrics or the older text format over
 * HTTP. counts.c counts what happens, page.c has the table of metrics and writes them, endpoint.c
 * answers scrapes. All functions run on the agent's thread.
 */

/** Begin to count, and to listen as the configuration says. Never fails: there are no metrics then,
 *  and the agent's log says why. */
void metrics_init(struct agent *agent);
/** Stop listening; before the loop is closed. */
void metrics_stop(struct agent *agent);
void metrics_finish(struct agent *agent);
/** Answer MSG_PAGE. */
void page_handle(struct peer *client, struct message *message);
/** Follow the configuration, and drop scrapers that are slow. Call a few times a second. */
void metrics_tick(struct agent *agent);

/* These do nothing before metrics_init(). */

/** Count what a program reports of a move, suspend or resume that it has done. */
void metrics_note_move(struct agent *agent, const msgpack_object *report);
/** A program's call has waited for memory. */
void metrics_note_wait(struct agent *agent, uint64_t waited_ms);

#endif
