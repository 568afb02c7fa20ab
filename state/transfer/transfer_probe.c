#include <errno.h>

#include "state/base/log.h"
#include "state/base/memory/pages.h"
#include "state/base/threads/fork.h"
#include "state/driver/links.h"
#include "state/transfer/transfer_priv.h"

#define SMALL     (256u << 10)
#define LARGE     (8u << 20)
#define SETUP_MIN 2e-6

/* Used if measuring fails: a slow PCIe link. */
static const struct link_figures guess = {
    .read = {COST_LINK, 20e-6, 12e9},
    .write = {COST_LINK, 20e-6, 12e9},
    .plain_read = {COST_LINK, 30e-6, 6e9},
    .plain_write = {COST_LINK, 30e-6, 6e9},
};

static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by the lock above, like the link of each device. */
static bool host_known;
static struct host_figures host_figures;

/* What a measurement transfers. A driver that copies reads cached memory twice as fast, but a
 * program's memory is usually not cached; a ring's is, because it was just written. */
struct sample {
    struct residence *residence;
    cl_mem buffer;
    char *memory;
    bool cold; /* in no cache */
};

/* The best of a few blocking transfers, in seconds; below 0 when one fails. */
static double transfer_probe_time_transfer(const struct sample *sample, size_t size, bool read)
{
    struct residence *residence = sample->residence;
    const cl_icd_dispatch *cl = residence->cl;
    double best = -1;
    for (int i = 0; i < PROBE_ROUNDS; i++) {
        if (sample->cold)
            host_flush(sample->memory, size);
        double begin = probe_seconds();
        cl_int error = read ? cl->clEnqueueReadBuffer(residence->io, sample->buffer, CL_FALSE, 0,
                                                      size, sample->memory, 0, NULL, NULL)
                            : cl->clEnqueueWriteBuffer(residence->io, sample->buffer, CL_FALSE, 0,
                                                       size, sample->memory, 0, NULL, NULL);
        if (error == CL_SUCCESS)
            error = residence_await_queue(residence, residence->io);
        double took = probe_seconds() - begin;
        if (error != CL_SUCCESS)
            return -1;
        if (best < 0 || took < best)
            best = took;
    }
    return best;
}

/* Fit a line through the times of two sizes. False when a transfer failed. */
static bool transfer_probe_measure(const struct sample *sample, bool read,
                                   struct cost_stage *ret_stage)
{
    double small = transfer_probe_time_transfer(sample, SMALL, read);
    double large = small < 0 ? -1 : transfer_probe_time_transfer(sample, LARGE, read);
    if (large < 0)
        return false;
    double slope = large > small ? (large - small) / (LARGE - SMALL) : large / LARGE;
    double bandwidth =
        probe_clamp(1 / probe_clamp(slope, 1e-15, 1), PROBE_BANDWIDTH_LO, PROBE_BANDWIDTH_HI);
    double setup = probe_clamp(small - SMALL / bandwidth, SETUP_MIN, 1e-3);
    *ret_stage = (struct cost_stage){COST_LINK, setup, bandwidth};
    return true;
}

static bool transfer_probe_measure_link(struct residence *residence,
                                        struct link_figures *ret_figures)
{
    struct link_figures figures = guess;
    struct pinned pin = {0};
    cl_int error;
    bool done = false;
    char *memory = host_ring_create(LARGE, 1, NULL);
    if (!memory)
        return false;
    cl_mem buffer =
        residence->cl->clCreateBuffer(residence->context, CL_MEM_READ_WRITE, LARGE, NULL, &error);
    if (!buffer)
        goto out;
    struct sample sample = {residence, buffer, memory, .cold = true};
    /* Some devices allocate a buffer's memory when it is first written, so that the first
     * measurement would seem slow: write it once before. */
    done = transfer_probe_time_transfer(&sample, LARGE, false) >= 0 &&
           transfer_probe_measure(&sample, false, &figures.plain_write) &&
           transfer_probe_measure(&sample, true, &figures.plain_read);
    figures.read = figures.plain_read;
    figures.write = figures.plain_write;
    sample.cold = false;
    if (done && residence_has_link(residence) && pinned_create(residence, memory, LARGE, &pin))
        done = transfer_probe_measure(&sample, false, &figures.write) &&
               transfer_probe_measure(&sample, true, &figures.read);
out:
    pinned_destroy(&pin);
    if (buffer) {
        (void)residence_await_queue(residence, residence->io);
        residence->cl->clReleaseMemObject(buffer);
    }
    pages_give(memory, LARGE);
    if (done)
        *ret_figures = figures;
    return done;
}

void transfer_link(struct residence *residence, struct link_figures *ret_figures)
{
    struct link_figures figures;
    pthread_mutex_lock(&known_lock);
    figures = residence->device->link;
    pthread_mutex_unlock(&known_lock);
    *ret_figures = figures;
    if (figures.read.bandwidth > 0)
        return;

    const struct device *device = residence->device;
    *ret_figures = guess;
    if (links_find(&the_links, &device->key, &device->info, &figures, NULL) != 0) {
        if (!transfer_probe_measure_link(residence, &figures)) {
            log_info("the link of %s could not be measured", device->key.device);
            return;
        }
        links_keep(&the_links, &device->key, &device->info, &figures);
    }
    log_debug("%s: reads %.1f GB/s (%.1f plain), writes %.1f GB/s (%.1f plain)", device->key.device,
              figures.read.bandwidth * 1e-9, figures.plain_read.bandwidth * 1e-9,
              figures.write.bandwidth * 1e-9, figures.plain_write.bandwidth * 1e-9);
    *ret_figures = figures;
    pthread_mutex_lock(&known_lock);
    residence->device->link = figures;
    pthread_mutex_unlock(&known_lock);
}

void probe_host(struct host_figures *ret_figures)
{
    pthread_mutex_lock(&known_lock);
    if (!host_known && links_find_host(&the_links, &host_figures, NULL) != 0 &&
        probe_measure_host(&host_figures))
        links_keep_host(&the_links, &host_figures);
    host_known = true;
    *ret_figures = host_figures;
    pthread_mutex_unlock(&known_lock);
}

int transfer_measure(struct residence *residence)
{
    struct device *device = residence->device;
    struct link_figures figures;
    if (!transfer_probe_measure_link(residence, &figures))
        return -EIO;
    pthread_mutex_lock(&known_lock);
    device->link = figures;
    host_known = probe_measure_host(&host_figures);
    struct host_figures host = host_figures;
    bool measured = host_known;
    pthread_mutex_unlock(&known_lock);
    if (!measured)
        return -ENOMEM;
    int error = links_keep_host(&the_links, &host);
    return error ? error : links_keep(&the_links, &device->key, &device->info, &figures);
}

FORK_PART = {.rank = FORK_TABLE, .long_lock = &known_lock};
