#include <string.h>

#include "state/base/pages.h"
#include "state/base/past_caches.h"
#include "state/base/thread.h"
#include "state/transfer/transfer_priv.h"

/* What the host's threads and memory do beside a link. */

#define COPY_SIZE   (16u << 20)
#define HANDS       100 /* from one thread to the other */
#define HAND_LO     1e-6
#define HAND_HI     1e-3
#define PIN_SECONDS (35e-3 / (1u << 30)) /* a byte; seen on an H200, and as much to undo */

/* The best of a few copies; the source is in no cache where @cold, else the target. */
static double time_copy(char *to, const char *from, bool cold)
{
    double best = 1;
    for (int i = 0; i < PROBE_ROUNDS; i++) {
        host_flush(cold ? from : to, COPY_SIZE);
        double begin = probe_seconds();
        if (cold)
            memcpy(to, from, COPY_SIZE);
        else
            copy_past_caches(to, from, COPY_SIZE);
        double took = probe_seconds() - begin;
        best = took < best ? took : best;
    }
    return best;
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

static double bandwidth_of(double took)
{
    return probe_clamp(COPY_SIZE / probe_clamp(took, 1e-9, 1), PROBE_BANDWIDTH_LO,
                       PROBE_BANDWIDTH_HI);
}

bool probe_measure_host(struct host_figures *host)
{
    host->copy = host->out = host->fresh = (struct cost_stage){COST_WORK, 5e-6, 5e9};
    host->ring = (struct cost_stage){COST_RING, 100e-6, 1 / (PIN_SECONDS * 2 + 1 / 5e9)};
    host->hand = (struct cost_stage){COST_HAND, time_hand(), PROBE_BANDWIDTH_HI};
    char *pages = pages_take(COPY_SIZE, PAGES_ANY | PAGES_FRESH);
    char *chunk = host_ring_create(COPY_SIZE, 1, NULL);
    bool done = pages && chunk;
    if (done) {
        double begin = probe_seconds();
        pages_populate(pages, COPY_SIZE, 1, NULL);
        host->fresh.bandwidth = bandwidth_of(probe_seconds() - begin);
        host->copy.bandwidth = bandwidth_of(time_copy(chunk, pages, true));
        host->out.bandwidth = bandwidth_of(time_copy(pages, chunk, false));
        unsigned cores = host_cores() < PAGES_THREADS ? host_cores() : PAGES_THREADS;
        host->ring.bandwidth = 1 / (PIN_SECONDS * 2 + 1 / host->fresh.bandwidth / cores);
    }
    pages_give(chunk, COPY_SIZE);
    pages_give(pages, COPY_SIZE);
    return done;
}
