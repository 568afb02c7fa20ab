#include "remote/watch/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/driver/inventory.h"

/* Sizes of the transfers measured: they grow until one takes ENOUGH_NS or has MOST_BYTES. */
#define FIRST_BYTES ((size_t)64 << 10)
#define MOST_BYTES  ((size_t)16 << 20)
#define ENOUGH_NS   (100 * NS_PER_MS)
#define ROUND_TRIPS 32

struct bench {
    const cl_icd_dispatch *cl;
    cl_command_queue queue;
    cl_mem memory;
    char *bytes;
};

static uint64_t listing_rate_of(const struct bench *bench, bool read, size_t size,
                                uint64_t *ret_took)
{
    uint64_t begun = clock_now_ns();
    cl_int error = read ? bench->cl->clEnqueueReadBuffer(bench->queue, bench->memory, CL_TRUE, 0,
                                                         size, bench->bytes, 0, NULL, NULL)
                        : bench->cl->clEnqueueWriteBuffer(bench->queue, bench->memory, CL_TRUE, 0,
                                                          size, bench->bytes, 0, NULL, NULL);

    /*
     * A blocking write may return before the data has arrived at the server; clFinish waits for it.
     */
    if (!error && !read)
        error = bench->cl->clFinish(bench->queue);
    *ret_took = clock_now_ns() - begun;
    return error ? 0 : (uint64_t)((double)size * 1e9 / (double)(*ret_took + 1));
}

static uint64_t listing_measure_way(const struct bench *bench, bool read)
{
    uint64_t rate = 0, took = 0;

    for (size_t size = FIRST_BYTES; size <= MOST_BYTES && took < ENOUGH_NS; size *= 4) {
        uint64_t now = listing_rate_of(bench, read, size, &took);
        if (!now)
            break; /* The device has too little memory for this size. */
        rate = now > rate ? now : rate;
    }
    return rate;
}

static uint64_t listing_measure_round_trip(const struct bench *bench)
{
    uint64_t least = UINT64_MAX, took = 0, all = 0;

    for (unsigned i = 0; i < ROUND_TRIPS && all < ENOUGH_NS; i++, all += took)
        if (listing_rate_of(bench, true, 4, &took) && took < least)
            least = took;
    return least == UINT64_MAX ? 0 : least;
}

static void listing_measure(const struct device *device, struct server_news *news)
{
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                                (cl_context_properties)device->platform, 0};
    struct bench bench = {.cl = device->cl, .bytes = calloc(1, MOST_BYTES)};
    cl_int error = CL_SUCCESS;
    cl_context context =
        bench.bytes ? bench.cl->clCreateContext(properties, 1, &device->id, NULL, NULL, &error)
                    : NULL;

    if (context)
        bench.queue = bench.cl->clCreateCommandQueue(context, device->id, 0, &error);
    if (context && bench.queue)
        bench.memory =
            bench.cl->clCreateBuffer(context, CL_MEM_READ_WRITE, MOST_BYTES, NULL, &error);
    if (bench.memory) {
        news->write = listing_measure_way(&bench, false);
        news->read = listing_measure_way(&bench, true);
        news->round_trip_ns = listing_measure_round_trip(&bench);
        bench.cl->clReleaseMemObject(bench.memory);
    } else {
        log_info("the link to %s is not measured (%d)", device->key.device, error);
    }
    if (context && bench.queue)
        bench.cl->clReleaseCommandQueue(bench.queue);
    if (context)
        bench.cl->clReleaseContext(context);
    free(bench.bytes);
}

int listing_write(const char *address, const char *path, struct server_news *ret_news)
{
    struct inventory inventory = {0};
    struct server_news news = {.code = ""};
    CLEANUP(cleanup_free) struct device **devices = NULL;
    /* The session ends with this process: the server need not keep it for a reconnect. */
    if (setenv("RESEAT_PATIENCE", "0", 1))
        return -errno;
    int error = driver_list_library(address, &devices, &inventory.count);

    if (error)
        return error;
    inventory.entries = calloc(inventory.count, sizeof(*inventory.entries));
    if (!inventory.entries)
        return -ENOMEM;
    for (size_t i = 0; i < inventory.count; i++) {
        struct device *device = devices[i];
        int failed = devinfo_query_formats(device->cl, device->platform, device->id, &device->info);
        if (failed)
            log_warn("image formats of %s left out: %s", device->key.device, strerror(-failed));
        inventory.entries[i].key = device->key;
        inventory.entries[i].info = device->info; /* Borrowed: devices are never freed. */
    }
    listing_measure(devices[0], &news);
    error = inventory_write(path, &inventory);
    if (!error)
        *ret_news = news;
    free(inventory.entries);
    return error;
}
