#include <string.h>

#include "state/base/memory/pages.h"
#include "state/base/memory/past_caches.h"
#include "state/base/threads/thread.h"
#include "state/transfer/transfer_priv.h"

/* Measures how fast the host's threads copy memory beside a link. */

#define PART        ((size_t)4 << 20) /* that a thread copies at a time */
#define CROWD_MAX   8
#define HANDS       100 /* from one thread to the other */
#define HAND_LO     1e-6
#define HAND_HI     1e-3
#define PIN_SECONDS (35e-3 / (1u << 30)) /* a byte; seen on an H200, and as much to undo */

/* Threads that copy at the same time, each its own part, in rounds that start together. */
struct crowd {
    bool out; /* from chunks, bypassing the caches; else into them, from memory that no cache has */
    pthread_mutex_t lock;
    pthread_cond_t begins;
    unsigned places, count; /* parts taken; threads, once all have started */
    pthread_barrier_t together;
    char *pages, *chunks;
    double rates[PROBE_ROUNDS]; /* bytes a second of all threads together */
};

static void transfer_probe_host_crowd_note(struct crowd *crowd, double *rate, double took)
{
    pthread_mutex_lock(&crowd->lock);
    *rate += PART / probe_clamp(took, 1e-9, 1);
    pthread_mutex_unlock(&crowd->lock);
}

static void *transfer_probe_host_crowd_run(void *data)
{
    struct crowd *crowd = data;
    pthread_mutex_lock(&crowd->lock);
    size_t at = crowd->places++ * PART;
    while (crowd->count == 0)
        pthread_cond_wait(&crowd->begins, &crowd->lock);
    pthread_mutex_unlock(&crowd->lock);
    for (int i = 0; i < PROBE_ROUNDS; i++) {
        char *pages = crowd->pages + at, *chunk = crowd->chunks + at;
        host_flush(pages, PART);
        (void)pthread_barrier_wait(&crowd->together);
        double begin = probe_seconds();
        if (crowd->out)
            copy_past_caches(pages, chunk, PART);
        else
            memcpy(chunk, pages, PART);
        transfer_probe_host_crowd_note(crowd, &crowd->rates[i], probe_seconds() - begin);
    }
    return NULL;
}

/* The bandwidth of one of @count threads, as the cost model uses it. */
static double transfer_probe_host_bandwidth_each(const double *rates, unsigned count)
{
    double best = 0;
    for (int i = 0; i < PROBE_ROUNDS; i++)
        best = rates[i] > best ? rates[i] : best;
    return probe_clamp(best / (1 + (count - 1) * COST_EFFICIENCY), PROBE_BANDWIDTH_LO,
                       PROBE_BANDWIDTH_HI);
}

/* Measure with up to @most threads; returns the bandwidth that the cost model counts for one. */
static double transfer_probe_host_measure_copy(char *pages, char *chunks, bool out, unsigned most)
{
    struct crowd crowd = {.lock = PTHREAD_MUTEX_INITIALIZER,
                          .begins = PTHREAD_COND_INITIALIZER,
                          .out = out,
                          .pages = pages,
                          .chunks = chunks};
    pthread_t others[CROWD_MAX];
    unsigned count = 1;
    while (count < most && thread_start("reseat-crowd", HOST_STACK, transfer_probe_host_crowd_run,
                                        &crowd, &others[count - 1]) == 0)
        count++;
    (void)pthread_barrier_init(&crowd.together, NULL, count);
    pthread_mutex_lock(&crowd.lock);
    crowd.count = count;
    pthread_cond_broadcast(&crowd.begins);
    pthread_mutex_unlock(&crowd.lock);
    (void)transfer_probe_host_crowd_run(&crowd);
    for (unsigned i = 0; i + 1 < count; i++)
        pthread_join(others[i], NULL);
    (void)pthread_barrier_destroy(&crowd.together);
    return transfer_probe_host_bandwidth_each(crowd.rates, count);
}

/* Two threads that wake one another in turn. */
struct hands {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned turn; /* which thread's turn it is: even or odd */
};

static void transfer_probe_host_pass_on(struct hands *hands, unsigned whose)
{
    pthread_mutex_lock(&hands->lock);
    for (unsigned turn = whose; turn < HANDS; turn += 2) {
        while (hands->turn != turn)
            pthread_cond_wait(&hands->changed, &hands->lock);
        hands->turn++;
        pthread_cond_signal(&hands->changed);
    }
    pthread_mutex_unlock(&hands->lock);
}

static void *transfer_probe_host_hands_run(void *data)
{
    transfer_probe_host_pass_on(data, 1);
    return NULL;
}

/* Seconds to wake the other thread; a guess if no thread can be started. */
static double transfer_probe_host_time_hand(void)
{
    struct hands hands = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    pthread_t other;
    if (thread_start("reseat-hand", HOST_STACK, transfer_probe_host_hands_run, &hands, &other) != 0)
        return 20e-6;
    double begin = probe_seconds();
    transfer_probe_host_pass_on(&hands, 0);
    double took = probe_seconds() - begin;
    (void)pthread_join(other, NULL);
    return probe_clamp(took / HANDS, HAND_LO, HAND_HI);
}

bool probe_measure_host(struct host_figures *host)
{
    unsigned cores = host_cores(), crowd = cores < CROWD_MAX ? cores : CROWD_MAX;
    unsigned fresh = cores < PAGES_THREADS ? cores : PAGES_THREADS;
    size_t size = crowd * PART;
    host->copy = host->out = host->fresh = (struct cost_stage){COST_WORK, 5e-6, 5e9};
    host->ring = (struct cost_stage){COST_RING, 100e-6, 1 / (PIN_SECONDS * 2 + 1 / 5e9)};
    host->hand =
        (struct cost_stage){COST_HAND, transfer_probe_host_time_hand(), PROBE_BANDWIDTH_HI};
    char *pages = pages_take(size, PAGES_ANY | PAGES_FRESH);
    char *chunks = host_ring_create(size, 1, NULL);
    bool done = pages && chunks;
    if (done) {
        double begin = probe_seconds();
        pages_populate(pages, size, 1, NULL);
        double each = size / probe_clamp(probe_seconds() - begin, 1e-9, 1);
        host->fresh.bandwidth = probe_clamp(each, PROBE_BANDWIDTH_LO, PROBE_BANDWIDTH_HI);
        host->ring.bandwidth = 1 / (PIN_SECONDS * 2 + 1 / host->fresh.bandwidth / fresh);
        /* A single thread copies into chunks faster than each of many: on an H100's host 8.5 GB/s,
         * and 5.6 beside seven others, so seven threads chosen by the single figure would be too
         * few for the link. Out of chunks, the single figure suffices: with the figure of one of
         * eight, twice as many threads were chosen, which take up to a fifth longer. */
        host->copy.bandwidth = transfer_probe_host_measure_copy(pages, chunks, false, crowd);
        host->out.bandwidth = transfer_probe_host_measure_copy(pages, chunks, true, 1);
    }
    pages_give(chunks, size);
    pages_give(pages, size);
    return done;
}
