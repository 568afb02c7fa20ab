#include "remote/server/session/staging.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* What small reads are read into, of a driver that counts what it has. */

TestSuite(staging, .timeout = 60);

#define SLOTS 64

static int a_context, b_context, a_device, a_queue, a_buffer;
static int live_queues, live_buffers, maps, asked;
static cl_int refuses_map, refuses_queue;
static char *host;
static size_t host_size;

static cl_command_queue CL_API_CALL create_queue(cl_context context, cl_device_id device,
                                                 cl_command_queue_properties properties,
                                                 cl_int *ret_error)
{
    cr_assert(context == (cl_context)&a_context || context == (cl_context)&b_context);
    cr_assert(device == (cl_device_id)&a_device && properties == 0);
    asked++;
    *ret_error = refuses_queue;
    live_queues += !refuses_queue;
    return refuses_queue ? NULL : (cl_command_queue)&a_queue;
}

static cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t size,
                                        void *bytes, cl_int *ret_error)
{
    (void)context;
    cr_assert_eq(flags, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR);
    host = bytes;
    host_size = size;
    live_buffers++;
    *ret_error = CL_SUCCESS;
    return (cl_mem)&a_buffer;
}

static void *CL_API_CALL map_buffer(cl_command_queue queue, cl_mem buffer, cl_bool blocks,
                                    cl_map_flags flags, size_t offset, size_t size, cl_uint count,
                                    const cl_event *waits, cl_event *event, cl_int *ret_error)
{
    (void)queue, (void)buffer, (void)flags, (void)waits;
    cr_assert(blocks && offset == 0 && size == host_size && count == 0 && !event);
    *ret_error = refuses_map;
    maps += !refuses_map;
    return refuses_map ? NULL : host;
}

static cl_int CL_API_CALL unmap(cl_command_queue queue, cl_mem buffer, void *at, cl_uint count,
                                const cl_event *waits, cl_event *event)
{
    (void)queue, (void)buffer, (void)count, (void)waits, (void)event;
    cr_assert_eq(at, host);
    maps--;
    return CL_SUCCESS;
}

/* As a driver that writes back what was mapped. */
static cl_int CL_API_CALL finish(cl_command_queue queue)
{
    (void)queue;
    if (live_buffers)
        memset(host, 0, host_size);
    return CL_SUCCESS;
}

static cl_int CL_API_CALL release_queue(cl_command_queue queue)
{
    (void)queue;
    live_queues--;
    return CL_SUCCESS;
}

static cl_int CL_API_CALL release_buffer(cl_mem buffer)
{
    (void)buffer;
    cr_assert_lt(maps, live_buffers, "it is mapped");
    live_buffers--;
    return CL_SUCCESS;
}

static const cl_icd_dispatch calls = {
    .clCreateCommandQueue = create_queue,
    .clCreateBuffer = create_buffer,
    .clEnqueueMapBuffer = map_buffer,
    .clEnqueueUnmapMemObject = unmap,
    .clFinish = finish,
    .clReleaseCommandQueue = release_queue,
    .clReleaseMemObject = release_buffer,
};
static struct device device = {.id = (cl_device_id)&a_device};
static struct device *devices[] = {&device};
static const struct server server = {.devices = devices, .device_count = 1};
static struct entry on_a = {.cl = &calls, .context = (cl_context)&a_context, .own_memory = true};
static struct entry on_b = {.cl = &calls, .context = (cl_context)&b_context, .own_memory = true};

static char *take(const struct entry *queue, uint64_t size, struct staging **ret_staging)
{
    return staging_take(&server, queue, size, ret_staging);
}

static void must_have_nothing(void)
{
    cr_assert(live_queues == 0 && live_buffers == 0 && maps == 0);
    cr_assert(!host || (msync(host, host_size, MS_ASYNC) != 0 && errno == ENOMEM),
              "its memory is there");
}

Test(staging, reads_have_memory_of_their_own_as_long_as_there_is_some)
{
    struct staging *stagings[SLOTS], *none = NULL;
    char *slots[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
        slots[i] = take(&on_a, STAGING_MOST, &stagings[i]);
        cr_assert(slots[i] >= host && slots[i] + STAGING_MOST <= host + host_size);
        for (int k = 0; k < i; k++)
            cr_assert_geq(labs(slots[i] - slots[k]), (long)STAGING_MOST, "two have the same");
    }
    cr_assert(!take(&on_a, 1, &none) && !none, "there is more than there is");
    staging_give(stagings[7], slots[7]);
    cr_assert_eq(take(&on_a, 1, &none), slots[7]);
    cr_assert_eq(none, stagings[7]);
    cr_assert_eq(live_buffers, 1);
}

Test(staging, each_context_has_its_own)
{
    struct staging *a = NULL, *b = NULL;
    char *of_a = take(&on_a, 4, &a), *host_of_a = host;
    cr_assert(of_a && take(&on_b, 4, &b) && a != b);
    cr_assert_eq(live_buffers, 2);
    staging_give(a, of_a);
    staging_forget((cl_context)&a_context);
    host = host_of_a;
    staging_tidy();
    cr_assert_eq(live_buffers, 1);
}

Test(staging, large_reads_and_devices_without_memory_have_none)
{
    struct staging *none = NULL;
    struct entry unified = on_a;
    unified.own_memory = false;
    cr_assert(!take(&on_a, STAGING_MOST + 1, &none) && !take(&unified, 4, &none) && !none);
    cr_assert_eq(asked, 0);
}

Test(staging, what_a_released_context_has_goes_when_its_last_read_has_ended)
{
    struct staging *staging = NULL, *other = NULL;
    char *first = take(&on_a, 4, &staging), *second = take(&on_a, 4, &staging);
    staging_tidy();
    staging_give(staging, first);
    cr_assert_eq(live_buffers, 1, "it is needed again");
    staging_forget((cl_context)&a_context);
    staging_tidy();
    cr_assert_eq(live_buffers, 1, "it is read into");
    memset(second, 1, STAGING_MOST);
    staging_give(staging, second);
    staging_tidy();
    must_have_nothing();
    /* One that comes to the same address is another one. */
    cr_assert(take(&on_a, 4, &other));
    cr_assert_eq(asked, 2);
}

Test(staging, a_context_that_is_released_before_it_was_read_from_is_none_of_its)
{
    staging_forget((cl_context)&a_context);
    staging_tidy();
    must_have_nothing();
}

static void must_be_refused(void)
{
    struct staging *none = NULL;
    for (int i = 0; i < 3; i++)
        cr_assert(!take(&on_a, 4, &none) && !none);
    cr_assert_eq(asked, 1, "it is asked again");
    must_have_nothing();
    staging_forget((cl_context)&a_context);
    staging_tidy();
    must_have_nothing();
    refuses_map = refuses_queue = CL_SUCCESS;
    cr_assert(take(&on_a, 4, &none));
}

Test(staging, a_driver_that_does_not_map_is_asked_once)
{
    refuses_map = CL_MAP_FAILURE;
    must_be_refused();
}

Test(staging, a_driver_that_makes_no_queue_is_asked_once)
{
    refuses_queue = CL_OUT_OF_RESOURCES;
    must_be_refused();
}
