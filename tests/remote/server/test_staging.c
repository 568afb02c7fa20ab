#include "remote/server/session/pending.h"

#include "tests/support/cases.h"
#include <errno.h>
#include <sys/mman.h>

/* What small reads are read into, of a driver that counts what it has. */

TestSuite(staging, .timeout = 60);

#define SLOTS 64

static int a_context, b_context, a_buffer;
static int live_buffers, asked;
static cl_int refuses;
static char *host;
static size_t host_size;

static cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t size,
                                        void *bytes, cl_int *ret_error)
{
    cr_assert(context == (cl_context)&a_context || context == (cl_context)&b_context);
    cr_assert_eq(flags, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR | CL_MEM_HOST_NO_ACCESS);
    host = bytes;
    host_size = size;
    asked++;
    live_buffers += !refuses;
    *ret_error = refuses;
    return refuses ? NULL : (cl_mem)&a_buffer;
}

static cl_int CL_API_CALL release_buffer(cl_mem buffer)
{
    (void)buffer;
    live_buffers--;
    return CL_SUCCESS;
}

static const cl_icd_dispatch calls = {
    .clCreateBuffer = create_buffer,
    .clReleaseMemObject = release_buffer,
};
static struct entry on_a = {.cl = &calls, .context = (cl_context)&a_context, .own_memory = true};
static struct entry on_b = {.cl = &calls, .context = (cl_context)&b_context, .own_memory = true};

static char *take(const struct entry *queue, uint64_t size, struct staging **ret_staging)
{
    return staging_take(queue, size, ret_staging);
}

static void must_have_nothing(void)
{
    cr_assert_eq(live_buffers, 0);
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

Test(staging, a_driver_that_refuses_is_asked_once)
{
    struct staging *none = NULL;
    refuses = CL_OUT_OF_RESOURCES;
    for (int i = 0; i < 3; i++)
        cr_assert(!take(&on_a, 4, &none) && !none);
    cr_assert_eq(asked, 1, "it is asked again");
    must_have_nothing();
    staging_forget((cl_context)&a_context);
    staging_tidy();
    must_have_nothing();
    refuses = CL_SUCCESS;
    cr_assert(take(&on_a, 4, &none));
}
