#ifndef RESEAT_STATE_SERVER_EXPOSITION_H
#define RESEAT_STATE_SERVER_EXPOSITION_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "state/base/compiler.h"

/*
 * What the agent and device servers need to give their metrics: the texts (OpenMetrics, or the
 * older text format of Prometheus), and the port where they are asked for. Not thread-safe.
 */

enum metric_type { METRIC_GAUGE, METRIC_COUNTER, METRIC_HISTOGRAM };

/** The values of all of its labels are words of tables, devices or users: there are never many. */
struct metric {
    const char *name; /**< Of a counter without "_total". */
    const char *unit; /**< The end of the name; or "". */
    const char *help;
    enum metric_type type;
};

struct label {
    const char *name, *value;
};

/** One text, as it is written. */
struct exposition {
    FILE *to;
    bool open; /**< As OpenMetrics. */
    const struct metric *metric;
    char *text;
    size_t size;
};

/** The format that a scraper which sends the header Accept wants: true for OpenMetrics. NULL: it
 * sends none. */
bool exposition_is_open(const char *accept);
/** Is the header Host a name of this machine for itself? Not where a page of another site has a
 * name for its address (DNS rebinding). NULL: there is none, which is fine. */
bool exposition_host_is_local(const char *host);
/** The value of Content-Type. */
const char *exposition_type(bool open);

/** Listen at @port of the loopback address, which every user of the machine can connect to. @ret_fd
 * is the caller's; it does not block. 0 or -errno. */
MUST_CHECK int exposition_listen(uint16_t port, int *ret_fd);

/** Begin a text; @ret must stay where it is. 0 or -ENOMEM. */
MUST_CHECK int exposition_init(struct exposition *ret, bool open);
/** Returns the allocated text, whose length is then in `size`; or NULL: no memory. */
char *exposition_finish(struct exposition *exposition);

/** Write the lines before the samples of a metric. */
void exposition_begin(struct exposition *exposition, const struct metric *metric);
/**
 * Write a sample of the metric that was begun. Labels' values are made safe, as parts of them are
 * what drivers say; a label without a name is left out, and so is a sample of NAN.
 *
 * @suffix  What follows the name of a histogram. @labels may be NULL.
 */
void exposition_put(const struct exposition *exposition, const char *suffix,
                    const struct label labels[3], double value);
/** Of a gauge or counter, without a label, and with one. */
void exposition_put_one(const struct exposition *exposition, double value);
void exposition_put_labelled(const struct exposition *exposition, const char *label,
                             const char *value, double number);
/** The suffix of a gauge's or counter's samples. */
const char *exposition_suffix(const struct metric *metric);

#endif
