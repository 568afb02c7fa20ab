#include <stdlib.h>
#include <string.h>

#include "agent/daemon/metrics/metrics_priv.h"
#include "state/base/clock.h"

const double histogram_bounds[BUCKETS] = {0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30};

/* Count only these words: an answer of a program may be a state, and must add none. */
static const char *const counted_words[] = {
    /* What operations and requests come to. */
    RESULT_DONE, RESULT_ROLLED_BACK, RESULT_REFUSED, RESULT_EXPIRED, RESULT_CANCELED, RESULT_ENDED,
    RESULT_UNKNOWN, RESULT_QUEUED, ERR_DENIED, "set", "off", "drain", "cordoned", "announced",
    /* Of programs and devices. */
    "connected", "disconnected", "unresponsive", "responsive", "fenced", "unfenced", "recovered",
    "lost-device", "lost", "back"};

/** Of the policy: policy_action_name(). Of an operation "resume" is a phase, and none of its ends.
 */
static const char *const counted_actions[] = {"grant",   "move",   "spill",  "wait",
                                              "suspend", "resume", "refuse", "prewarm"};

enum tally_kind tally_kind(const struct tally *tally)
{
    static const char *const kinds[] = {
        [TALLY_POLICY] = "policy", [TALLY_PROGRAM] = "program", [TALLY_DEVICE] = "device"};

    for (unsigned i = TALLY_POLICY; i < ARRAY_SIZE(kinds); i++)
        if (strcmp(tally->what, kinds[i]) == 0)
            return i;
    return TALLY_OPERATION;
}

static void counts_note_event(struct agent *agent, const struct event *event)
{
    struct counts *counts = agent->metrics ? &agent->metrics->counts : NULL;
    bool decides = strcmp(event->what, "policy") == 0;
    const char *const *words = decides ? counted_actions : counted_words;
    size_t count = decides ? ARRAY_SIZE(counted_actions) : ARRAY_SIZE(counted_words);
    const char *state = NULL; /* The constant that equals the event's. */

    for (size_t i = 0; i < count; i++)
        if (strcmp(words[i], event->state) == 0)
            state = words[i];
    if (!counts || !state)
        return;
    for (unsigned i = 0; i < counts->tally_count; i++) {
        struct tally *tally = &counts->tallies[i];
        if (tally->state == state && strcmp(tally->what, event->what) == 0 &&
            strcmp(tally->by, event->by) == 0) {
            tally->count++;
            return;
        }
    }
    if (counts->tally_count < TALLIES_MAX)
        counts->tallies[counts->tally_count++] =
            (struct tally){.what = event->what, .state = state, .by = event->by, .count = 1};
}

static void counts_add(struct histogram *histogram, uint64_t ns)
{
    double seconds = (double)ns / NS_PER_S;
    unsigned at = 0;

    while (at < BUCKETS && seconds > histogram_bounds[at])
        at++;
    histogram->counts[at]++;
    histogram->sum_s += seconds;
}

/** A number that a program reports, and that is at most what can be. */
static uint64_t counts_number(const msgpack_object *report, const char *key, uint64_t most)
{
    uint64_t number = field_u64(report, key, 0);

    return number < most ? number : most;
}

void metrics_note_move(struct agent *agent, const msgpack_object *report)
{
    struct counts *counts = agent->metrics ? &agent->metrics->counts : NULL;
    const uint64_t day_ns = 86400 * NS_PER_S;

    if (!counts || !field_is(report, "result", RESULT_DONE))
        return;
    counts_add(&counts->downtimes, counts_number(report, "downtime_ns", day_ns));
    counts_add(&counts->moves, counts_number(report, "total_ns", day_ns));
    counts->copied_bytes += counts_number(report, "bytes", LEDGER_BYTES_MAX);
}

void metrics_note_wait(struct agent *agent, uint64_t waited_ms)
{
    if (!agent->metrics)
        return;
    agent->metrics->counts.waits++;
    agent->metrics->counts.waited_ms += waited_ms;
}

void metrics_init(struct agent *agent)
{
    agent->metrics = calloc(1, sizeof(*agent->metrics));
    if (!agent->metrics)
        return;
    agent->metrics->counts.began_s = (double)clock_wall_ms() / 1000;
    event_log_observe(agent, counts_note_event);
    agent->metrics->endpoint = endpoint_create(agent);
    if (!agent->metrics->endpoint)
        agent_log("metrics cannot be served: the HTTP library does not start");
    metrics_tick(agent);
}

void metrics_stop(struct agent *agent)
{
    if (agent->metrics && agent->metrics->endpoint)
        endpoint_stop(agent->metrics->endpoint);
}

void metrics_finish(struct agent *agent)
{
    if (agent->metrics)
        free(agent->metrics->endpoint);
    free(agent->metrics);
    agent->metrics = NULL;
}

void metrics_tick(struct agent *agent)
{
    if (agent->metrics && agent->metrics->endpoint && !agent->stopping)
        endpoint_tick(agent->metrics->endpoint);
}
