#include <string.h>

#include "state/base/memory/pages.h"
#include "state/base/memory/past_caches.h"
#include "state/base/threads/thread.h"
#include "state/transfer/transfer_priv.h"

/* What the host's threads and memory do beside a link. */

#define PART        ((size_t)4 << 20) /* that a thread copies at a time */
#define CROWD_MAX   8
#define HANDS       100 /* from one thread to the other */
#define HAND_LO     1e-6
#define HAND_HI     1e-3
#define PIN_SECONDS (35e-3 / (1u << 30)) /* a byte; seen on an H200, and as much to undo */

/*
 * Threads that copy at once, each its own part. One alone copies faster than each of many: on an
 * H100's host 8.5 GB/s, and 5.6 beside seven others, of which seven are too few for the link.
 */
struct crowd {
    pthread_mutex_t lock;
    pthread_cond_t begins;
    unsigned places, count; /* taken; there are, once all have started */
    pthread_barrier_t together;
    char *pages, *chunks;
    double into[PROBE_ROUNDS], out[PROBE_ROUNDS]; /* seconds, of the slowest */
};

static void crowd_note(struct crowd *crowd, double *slowest, double took)
{
    pthread_mutex_lock(&crowd->lock);
    *slowest = took > *slowest ? took : *slowest;
    pthread_mutex_unlock(&crowd->lock);
}

static void *crowd_run(void *data)
{
    struct crowd *crowd = data;
    pthread_mutex_lock(&crowd->lock);
    size_t at = crowd->places++ * PART;
    while (crowd->count == 0)
        pthread_cond_wait(&crowd->begins, &crowd->lock);
    pthread_mutex_unlock(&crowd->lock);
    for (int i = 0; i < 2 * PROBE_ROUNDS; i++) {
        char *pages = crowd->pages + at, *chunk = crowd->chunks + at;
        host_flush(pages, PART);
        (void)pthread_barrier_wait(&crowd->together);
        double begin = probe_seconds();
        if (i % 2 == 0)
            memcpy(chunk, pages, PART);
        else
            copy_past_caches(pages, chunk, PART);
        crowd_note(crowd, (i % 2 == 0 ? crowd->into : crowd->out) + i / 2, probe_seconds() - begin);
    }
    return NULL;
}

/* What the cost model counts of one of @count threads. */
static double bandwidth_each(const double *slowest, unsigned count)
{
    double best = 1;
    for (int i = 0; i < PROBE_ROUNDS; i++)
        best = slowest[i] < best ? slowest[i] : best;
    double all = count * (double)PART / probe_clamp(best, 1e-9, 1);
    return probe_clamp(all / (1 + (count - 1) * COST_EFFICIENCY), PROBE_BANDWIDTH_LO,
                       PROBE_BANDWIDTH_HI);
}

/* Into chunks from memory that is in no cache, and out of them past the caches, by up to @most
 * threads. */
static void measure_copies(char *pages, char *chunks, unsigned most, struct host_figures *host)
{
    struct crowd crowd = {.lock = PTHREAD_MUTEX_INITIALIZER,
                          .begins = PTHREAD_COND_INITIALIZER,
                          .pages = pages,
                          .chunks = chunks};
    pthread_t others[CROWD_MAX];
    unsigned count = 1;
    while (count < most &&
           thread_start("reseat-crowd", HOST_STACK, crowd_run, &crowd, &others[count - 1]) == 0)
        count++;
    (void)pthread_barrier_init(&crowd.together, NULL, count);
    pthread_mutex_lock(&crowd.lock);
    crowd.count = count;
    pthread_cond_broadcast(&crowd.begins);
    pthread_mutex_unlock(&crowd.lock);
    (void)crowd_run(&crowd);
    for (unsigned i = 0; i + 1 < count; i++)
        pthread_join(others[i], NULL);
    (void)pthread_barrier_destroy(&crowd.together);
    host->copy.bandwidth = bandwidth_each(crowd.into, count);
    host->out.bandwidth = bandwidth_each(crowd.out, count);
}

/* Two threads that wake one another in turn. */
struct hands {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned turn; /* whose it is: even or odd */
};

static void pass_on(struct hands *hands, unsigned whose)
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

static void *hands_run(void *data)
{
    pass_on(data, 1);
    return NULL;
}

/* Seconds from one to the other; a guess where there is no thread. */
static double time_hand(void)
{
    struct hands hands = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    pthread_t other;
    if (thread_start("reseat-hand", HOST_STACK, hands_run, &hands, &other) != 0)
        return 20e-6;
    double begin = probe_seconds();
    pass_on(&hands, 0);
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
    host->hand = (struct cost_stage){COST_HAND, time_hand(), PROBE_BANDWIDTH_HI};
    char *pages = pages_take(size, PAGES_ANY | PAGES_FRESH);
    char *chunks = host_ring_create(size, 1, NULL);
    bool done = pages && chunks;
    if (done) {
        double begin = probe_seconds();
        pages_populate(pages, size, 1, NULL);
        double each = size / probe_clamp(probe_seconds() - begin, 1e-9, 1);
        host->fresh.bandwidth = probe_clamp(each, PROBE_BANDWIDTH_LO, PROBE_BANDWIDTH_HI);
        host->ring.bandwidth = 1 / (PIN_SECONDS * 2 + 1 / host->fresh.bandwidth / fresh);
        measure_copies(pages, chunks, crowd, host);
    }
    pages_give(chunks, size);
    pages_give(pages, size);
    return done;
}
