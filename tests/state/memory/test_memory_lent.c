#include "state/base/memory/pages.h"
#include "state/memory/memory.h"
#include "state/memory/registered.h"
#include "state/memory/write_tracked.h"
#include "tests/support/engine_rig.h"

/* Host copies in memory that a driver lends, as that of devices in other processes does. Here the
 * test lends it, for the first device. */

#define BYTES PAGES_LEAST /* and so large that writes would be tracked */

static const char config[] =
    "[one] name=one base=1 own_memory=yes [two] name=two base=1 own_memory=yes "
    "[three] name=three base=1 host_unified=yes";

static unsigned lent_count, returned_count;
static bool refuses;

static struct lent_memory *lend(cl_context context, size_t size)
{
    (void)context;
    if (refuses)
        return NULL;
    struct lent_memory *lent = calloc(1, sizeof(*lent));
    cr_assert(lent);
    lent->bytes = aligned_alloc(4096, size);
    cr_assert(lent->bytes);
    memset(lent->bytes, 0x66, size);
    lent_count++;
    return lent;
}

static void take_back(struct lent_memory *lent)
{
    cr_assert_eq(atomic_load(&lent->maps), 0);
    free(lent->bytes);
    free(lent);
    returned_count++;
}

/* It makes transfers through a server of the device. */
static cl_int CL_API_CALL no_between(cl_command_queue source_queue, cl_command_queue target_queue,
                                     cl_mem source, cl_mem target, size_t source_offset,
                                     size_t target_offset, size_t size, cl_uint wait_count,
                                     const cl_event *waits, cl_event *event)
{
    (void)source_queue, (void)target_queue, (void)source, (void)target, (void)source_offset;
    (void)target_offset, (void)size, (void)wait_count, (void)waits, (void)event;
    return CL_INVALID_OPERATION;
}

struct world {
    struct engine_rig rig;
    struct engine_program program;
};

static void world_open(struct world *w)
{
    engine_rig_open(&w->rig, config);
    for (uint32_t i = 0; i < w->rig.device_count; i++) {
        struct device *device = w->rig.devices[i];
        if (strcmp(device->key.device, "one") != 0)
            continue;
        device->between = no_between;
        device->lend = lend;
        device->lent_return = take_back;
    }
    engine_program_open(&w->rig, 0, NULL, &w->program);
}

static char *map(const struct world *w, cl_mem buffer, size_t offset, size_t size)
{
    char *at = MADE(clEnqueueMapBuffer, w->program.queue, buffer, CL_TRUE,
                    CL_MAP_READ | CL_MAP_WRITE, offset, size, 0, NULL, NULL);
    return at;
}

static void unmap(const struct world *w, cl_mem buffer, char *at)
{
    OK(clEnqueueUnmapMemObject(w->program.queue, buffer, at, 0, NULL, NULL));
    OK(clFinish(w->program.queue));
}

static unsigned lent_for(const struct world *w, cl_mem_flags flags, size_t size, size_t mapped)
{
    unsigned before = lent_count, returned = returned_count;
    char *own = flags & CL_MEM_USE_HOST_PTR ? aligned_alloc(4096, size) : NULL;
    cl_mem buffer = engine_buffer(w->program.context, flags, size, own);
    for (int i = 0; i < 3; i++)
        unmap(w, buffer, map(w, buffer, size - mapped, mapped));
    unsigned count = lent_count - before;
    OK(clReleaseMemObject(buffer));
    OK(clFinish(w->program.queue));
    free(own);
    cr_assert_eq(returned_count - returned, count, "it was not returned");
    return count;
}

Test(memory_lent, a_large_object_of_which_much_is_mapped_has_its_host_copy_lent, .timeout = 60)
{
    struct world w;
    world_open(&w);
    cr_assert_eq(lent_for(&w, 0, BYTES, BYTES), 1);
    cr_assert_eq(lent_for(&w, 0, BYTES, BYTES / 2), 1);
    cr_assert_eq(lent_for(&w, CL_MEM_ALLOC_HOST_PTR, BYTES, BYTES), 1);
    cr_assert_eq(lent_for(&w, 0, BYTES, BYTES / 2 - 1), 0);
    cr_assert_eq(lent_for(&w, 0, LENT_LEAST - 1, LENT_LEAST - 1), 0);
    cr_assert_eq(lent_for(&w, CL_MEM_USE_HOST_PTR, BYTES, BYTES), 0);
    refuses = true;
    cr_assert_eq(lent_for(&w, 0, BYTES, BYTES), 0);
    engine_program_close(&w.program);
}

Test(memory_lent, what_nobody_wrote_is_zero_there, .timeout = 60)
{
    struct world w;
    world_open(&w);
    cl_mem buffer = engine_buffer(w.program.context, 0, BYTES, NULL);
    char *at = map(&w, buffer, 0, BYTES);
    cr_assert_eq(lent_count, 1);
    cr_assert(at[0] == 0 && memcmp(at, at + 1, BYTES - 1) == 0);
    unmap(&w, buffer, at);
    OK(clReleaseMemObject(buffer));
    engine_program_close(&w.program);
}

static void must_have(const struct world *w, cl_mem buffer, const char *at, char value)
{
    const struct memory *root = memory_get(buffer);
    cr_assert_eq(root->host_copy->bytes, at);
    cr_assert_eq(atomic_load(&root->host_copy->lent->maps), 1);
    for (size_t i = 0; i < BYTES; i++)
        cr_assert_eq(at[i], (char)(value + i % 7), "%d at %zu", at[i], i);
    (void)w;
}

/* Where the driver of another device would register it, or its writes would be tracked. */
static void must_not_be_given(const struct memory *root)
{
    for (uint8_t i = 0; i < root->context->residences; i++)
        cr_assert(!memory_is_backed(root, i) || root->context->at[i]->in_place);
    cr_assert(!registered_is(root->host_copy));
    cr_assert(!write_tracked_may(root));
}

Test(memory_lent, it_stays_where_its_object_moves_while_it_is_mapped, .timeout = 120)
{
    static const char *const route[] = {"two", "three", NULL, "three", "one", NULL, "two"};
    static char got[BYTES];
    struct world w;
    world_open(&w);
    for (int flags = 0; flags < 2; flags++) {
        cl_mem buffer =
            engine_buffer(w.program.context, flags ? CL_MEM_ALLOC_HOST_PTR : 0, BYTES, NULL);
        char *at = map(&w, buffer, 0, BYTES);
        cr_assert_eq(lent_count, 1u + (unsigned)flags);
        for (size_t i = 0; i < BYTES; i++)
            at[i] = (char)(1 + i % 7);
        for (size_t k = 0; k < sizeof(route) / sizeof(route[0]); k++) {
            engine_rig_moves(&w.rig, route[k]);
            must_have(&w, buffer, at, (char)(1 + k));
            if (route[k])
                for (int i = 0; i < 4; i++) /* Would be often enough to register it. */
                    unmap(&w, buffer, map(&w, buffer, 1, BYTES - 1));
            must_not_be_given(memory_get(buffer));
            for (size_t i = 0; i < BYTES; i++)
                at[i]++;
        }
        unmap(&w, buffer, at);
        OK(clEnqueueReadBuffer(w.program.queue, buffer, CL_TRUE, 0, BYTES, got, 0, NULL, NULL));
        for (size_t i = 0; i < BYTES; i++)
            cr_assert_eq(got[i], (char)(8 + i % 7));
        engine_rig_moves(&w.rig, "one");
        cr_assert_eq(returned_count, 1u + (unsigned)flags, "kept where nothing is mapped");
        OK(clReleaseMemObject(buffer));
    }
    engine_program_close(&w.program);
}
