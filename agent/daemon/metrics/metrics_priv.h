#ifndef RESEAT_AGENT_DAEMON_METRICS_METRICS_PRIV_H
#define RESEAT_AGENT_DAEMON_METRICS_METRICS_PRIV_H

#include "agent/daemon/metrics/metrics.h"

/* What the files of this folder share. */

/** Events of a kind that are counted together: two words and who asked. */
struct tally {
    const char *what, *state, *by; /**< Constants. */
    uint64_t count;
};
/** More than there are combinations; the words are those of tables. */
#define TALLIES_MAX 512

#define BUCKETS 9
/** Durations in seconds. */
struct histogram {
    uint64_t counts[BUCKETS + 1]; /**< Not cumulative; the last has all longer ones. */
    double sum_s;
};
extern const double histogram_bounds[BUCKETS];

struct counts {
    double began_s; /**< CLOCK_REALTIME. */
    struct tally tallies[TALLIES_MAX];
    unsigned tally_count;
    struct histogram downtimes, moves;
    uint64_t copied_bytes, waits, waited_ms;
};

struct endpoint;

struct metrics {
    struct counts counts;
    struct endpoint *endpoint; /**< NULL: it cannot listen at all. */
    uint64_t dropped;          /**< Scrapers that were refused, or were too slow. */
};

/** What an event's "what" means for metrics. */
enum tally_kind { TALLY_OPERATION, TALLY_POLICY, TALLY_PROGRAM, TALLY_DEVICE };
enum tally_kind tally_kind(const struct tally *tally);

/**
 * Write all metrics, with figures of single users for those that @viewer may see.
 *
 * @open  As OpenMetrics; else in the text format of Prometheus.
 * Returns an allocated text of @ret_size bytes, or NULL.
 */
char *metrics_page(struct agent *agent, const struct peer *viewer, bool open, size_t *ret_size);

/** Listen. Returns NULL without memory, or where the HTTP library fails. */
struct endpoint *endpoint_create(struct agent *agent);
/** Close everything; the loop has to run before the endpoint is freed. */
void endpoint_stop(struct endpoint *endpoint);
void endpoint_tick(struct endpoint *endpoint);

#endif
