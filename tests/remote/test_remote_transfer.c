#include <errno.h>

#include "state/driver/served.h"
#include "state/object/residence.h"
#include "state/transfer/transfer.h"
#include "tests/remote/served.h"
#include "tests/support/calls.h"

/* The library's transfers between devices of two servers: past the host where there is a way. */

#define SIZE ((20u << 20) + 12345)

static struct served served[2];
static struct residence *ends[2];
static cl_mem buffers[2];
static unsigned char *bytes, *got;

/* Both servers' devices, two of each; the caller's (free()). */
static struct device **list(bool added)
{
    char addresses[2 * sizeof(served[0].address)];
    struct device **devices = NULL, **more = NULL;
    size_t count = 0, more_count = 0;
    if (added) {
        served_set_library(getenv("TEST_DRIVER_LIBRARY"));
        cr_assert_eq(driver_list_library(served[0].address, &devices, &count), 0);
        cr_assert_eq(driver_list_library(served[1].address, &more, &more_count), 0);
        devices = reallocarray(devices, count + more_count, sizeof(*devices));
        memcpy(devices + count, more, more_count * sizeof(*devices));
        free(more);
    } else {
        served_use(&served[0]);
        snprintf(addresses, sizeof(addresses), "%s %s", served[0].address, served[1].address);
        setenv("RESEAT_SERVER", addresses, 1);
        cr_assert_eq(driver_list(&devices, &count), 0);
    }
    cr_assert_eq(count + more_count, 4);
    return devices;
}

/* On each server's device of POCL's with that index. */
static void start(unsigned from, unsigned to, bool added)
{
    unsigned seed = 1;
    cl_int error = CL_SUCCESS;
    for (int i = 0; i < 2; i++)
        served_start(&served[i], NULL);
    struct device **devices = list(added);
    bytes = malloc(SIZE);
    got = calloc(1, SIZE);
    cr_assert(bytes && got);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (unsigned char)(rand_r(&seed) >> 5);
    for (unsigned i = 0; i < 2; i++) {
        cr_assert_eq(residence_create(NULL, devices[2 * i + (i ? to : from)], &ends[i], &error), 0);
        buffers[i] = MADE(ends[i]->cl->clCreateBuffer, ends[i]->context,
                          i ? 0 : CL_MEM_COPY_HOST_PTR, SIZE, i ? NULL : bytes);
    }
    free(devices);
}

static void stop(void)
{
    for (int i = 0; i < 2; i++) {
        ends[i]->cl->clReleaseMemObject(buffers[i]);
        residence_unref(ends[i]);
        cr_assert(!served_wrote(&served[i], "was ended") && !served_wrote(&served[i], "crashed"));
        served_stop(&served[i]);
    }
    free(bytes);
    free(got);
}

static int transfer(const struct transfer_limits *limits, struct transfer_shape *ret_shape)
{
    const struct transfer_item item = {.from = buffers[0], .to = buffers[1], .size = SIZE};
    struct transfer *transfer;
    cr_assert_eq(transfer_create(ends[0], ends[1], SIZE, limits, &transfer), 0);
    transfer_describe(transfer, ret_shape);
    int error = transfer_add(transfer, &item);
    int flushed = transfer_flush(transfer);
    transfer_destroy(transfer);
    return error ? error : flushed;
}

static void must_have_arrived(void)
{
    OK(ends[1]->cl->clEnqueueReadBuffer(ends[1]->io, buffers[1], CL_TRUE, 0, SIZE, got, 0, NULL,
                                        NULL));
    cr_assert(memcmp(got, bytes, SIZE) == 0);
}

Test(remote_transfer, bytes_go_past_the_host, .timeout = 120)
{
    struct transfer_shape shape;
    _Atomic uint64_t done = 0;
    const struct transfer_limits limits = {.done = &done};
    start(1, 1, false);
    cr_assert_eq(transfer(&limits, &shape), 0);
    cr_assert(shape.passes && shape.chunk == 0);
    cr_assert_eq(done, SIZE);
    must_have_arrived();
    stop();
}

Test(remote_transfer, so_they_do_between_servers_that_were_added, .timeout = 120)
{
    struct transfer_shape shape;
    _Atomic uint64_t done = 0;
    const struct transfer_limits limits = {.done = &done};
    start(1, 1, true);
    cr_assert_eq(transfer(&limits, &shape), 0);
    cr_assert(shape.passes && shape.chunk == 0);
    cr_assert_eq(done, SIZE);
    must_have_arrived();
    stop();
}

Test(remote_transfer, the_host_is_the_way_for_whom_asks, .timeout = 120)
{
    struct transfer_shape shape;
    const struct transfer_limits limits = {.through_host = true};
    start(1, 1, false);
    cr_assert_eq(transfer(&limits, &shape), 0);
    cr_assert(!shape.passes);
    must_have_arrived();
    stop();
}

/* One that cannot have it otherwise fails whole, and the host is the way. */
Test(remote_transfer, a_device_that_cannot_fails_the_transfer_and_no_queue, .timeout = 120)
{
    struct transfer_shape shape;
    const struct transfer_limits limits = {.through_host = true};
    start(0, 1, false);
    cr_assert_eq(transfer(NULL, &shape), -EIO);
    cr_assert(shape.passes);
    cr_assert_eq(transfer(&limits, &shape), 0);
    must_have_arrived();
    stop();
}
