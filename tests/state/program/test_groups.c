#include "state/program/group.h"
#include "tests/support/engine_rig.h"

/* The groups of launches without a local size stay within what the program was told (L5). */

#define TOLD      64
#define ITEMS_MAX 8192
/* The second offers sixty-four times what the first does, and takes all of it. */
#define CONFIG                                                                                     \
    "[one] name=one base=1 max_work_group_size=64 [two] name=two base=1 greedy=yes "               \
    "[three] name=three base=1 greedy=yes kernel_work_group_size=*:16"

struct scene {
    struct engine_rig rig;
    struct engine_program program;
    cl_kernel groups;
    cl_mem sizes, sums;
};

/* Each item notes the size of its group and the sum over the group, by way of an array that is as
 * long as the program was told that a group is. */
static const char source[] =
    "uint flat(void) { return (get_local_id(2) * get_local_size(1) + get_local_id(1)) *\n"
    "                         get_local_size(0) + get_local_id(0); }\n"
    "kernel void groups(global uint4 *sizes, global uint *sums) {\n"
    "    local uint a[MOST];\n"
    "    uint n = get_local_size(0) * get_local_size(1) * get_local_size(2), sum = 0;\n"
    "    uint x = get_global_id(0) - get_global_offset(0);\n"
    "    uint y = get_global_id(1) - get_global_offset(1);\n"
    "    uint z = get_global_id(2) - get_global_offset(2);\n"
    "    uint at = (z * get_global_size(1) + y) * get_global_size(0) + x;\n"
    "    if (n <= MOST) a[flat()] = flat() + 1;\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    for (uint i = 0; n <= MOST && i < n; i++) sum += a[i];\n"
    "    sizes[at] = (uint4)(get_local_size(0), get_local_size(1), get_local_size(2), n);\n"
    "    sums[at] = sum;\n"
    "}\n"
    "kernel __attribute__((reqd_work_group_size(8, 2, 1))) void required(global uint *sizes) {\n"
    "    sizes[get_global_id(1) * get_global_size(0) + get_global_id(0)] = get_local_size(0) * 100 "
    "+ get_local_size(1);\n"
    "}\n";

static void open_scene(struct scene *s, const char *config)
{
    char text[sizeof(source) + 64];
    snprintf(text, sizeof(text), "#define MOST %d\n%s", TOLD, source);
    engine_rig_open(&s->rig, config);
    engine_program_open(&s->rig, 0, text, &s->program);
    s->groups = engine_kernel(s->program.program, "groups");
    s->sizes = engine_buffer(s->program.context, 0, ITEMS_MAX * sizeof(cl_uint4), NULL);
    s->sums = engine_buffer(s->program.context, 0, ITEMS_MAX * sizeof(cl_uint), NULL);
    ARGS(s->groups, s->sizes, s->sums);
}

struct launch {
    cl_uint dims;
    size_t global[3], offset[3];
    cl_uint4 best; /* the groups that are chosen within 64, where the driver does not choose */
};

static const struct launch launches[] = {
    {1, {4096, 1, 1}, {0}, {{64, 1, 1, 64}}}, {1, {3072, 1, 1}, {7}, {{64, 1, 1, 64}}},
    {1, {100, 1, 1}, {0}, {{50, 1, 1, 50}}},  {1, {61, 1, 1}, {3}, {{61, 1, 1, 61}}},
    {1, {4099, 1, 1}, {0}, {{1, 1, 1, 1}}},   {2, {32, 48, 1}, {1, 2}, {{32, 2, 1, 64}}},
    {2, {1, 1000, 1}, {0}, {{1, 50, 1, 50}}}, {2, {67, 60, 1}, {5, 0}, {{1, 60, 1, 60}}},
    {3, {8, 6, 5}, {0}, {{8, 6, 1, 48}}},     {3, {3, 5, 7}, {1, 1, 1}, {{3, 5, 1, 15}}},
};

static void check(struct scene *s, const struct launch *launch, size_t most)
{
    static cl_uint4 sizes[ITEMS_MAX];
    static cl_uint sums[ITEMS_MAX];
    size_t items = launch->global[0] * launch->global[1] * launch->global[2];
    OK(clEnqueueReadBuffer(s->program.queue, s->sizes, CL_TRUE, 0, items * sizeof(sizes[0]), sizes,
                           0, NULL, NULL));
    OK(clEnqueueReadBuffer(s->program.queue, s->sums, CL_TRUE, 0, items * sizeof(sums[0]), sums, 0,
                           NULL, NULL));
    for (size_t i = 0; i < items; i++) {
        const cl_uint4 *size = &sizes[i];
        cr_assert_leq(size->s[3], most, "item %zu of %zu is in a group of %u", i, items,
                      size->s[3]);
        for (int d = 0; d < 3; d++)
            cr_assert_eq(launch->global[d] % size->s[d], 0, "%zu is not whole groups of %u",
                         launch->global[d], size->s[d]);
        cr_assert_eq(sums[i], size->s[3] * (size->s[3] + 1) / 2, "item %zu of %zu: %u", i, items,
                     sums[i]);
        if (most == TOLD && items > TOLD)
            cr_assert(memcmp(size, &launch->best, sizeof(*size)) == 0, "%ux%ux%u of %zux%zux%zu",
                      size->s[0], size->s[1], size->s[2], launch->global[0], launch->global[1],
                      launch->global[2]);
    }
}

static void run(struct scene *s, const struct launch *launch, cl_uint waits, const cl_event *list)
{
    OK(clEnqueueNDRangeKernel(s->program.queue, s->groups, launch->dims, launch->offset,
                              launch->global, NULL, waits, list, NULL));
}

static void run_all(struct scene *s, size_t most)
{
    for (int twice = 0; twice < 2; twice++) /* also as it was remembered */
        for (size_t i = 0; i < ARRAY_SIZE(launches); i++) {
            run(s, &launches[i], 0, NULL);
            check(s, &launches[i], most);
        }
}

Test(groups, stay_within_what_was_told_on_larger_devices, .timeout = 120)
{
    struct scene s;
    open_scene(&s, CONFIG);
    engine_rig_moves(&s.rig, "two");
    run_all(&s, TOLD);
    engine_rig_moves(&s.rig, NULL);
    engine_rig_moves(&s.rig, "two");
    run_all(&s, TOLD);
    engine_rig_moves(&s.rig, "three");
    run_all(&s, 16);
    engine_rig_moves(&s.rig, "one");
    run_all(&s, TOLD + 1);
}

Test(groups, of_held_launches_fit_where_they_run, .timeout = 60)
{
    struct scene s;
    open_scene(&s, CONFIG);
    static const char *const places[] = {"two", "three", "one"};
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        cl_event user = MADE(clCreateUserEvent, s.program.context);
        run(&s, &launches[1], 1, &user);
        engine_rig_moves(&s.rig, places[i]);
        OK(clSetUserEventStatus(user, CL_COMPLETE));
        check(&s, &launches[1], i == 1 ? 16 : TOLD);
        OK(clReleaseEvent(user));
    }
}

/* The program may make local memory as large as the kernel's group is said to be. */
Test(groups, stay_within_what_was_told_of_the_kernel, .timeout = 60)
{
    struct scene s;
    size_t told = 0;
    open_scene(&s, "[one] name=one base=1 max_work_group_size=64 kernel_work_group_size=groups:24 "
                   "[two] name=two base=1 greedy=yes");
    OK(clGetKernelWorkGroupInfo(s.groups, s.rig.device, CL_KERNEL_WORK_GROUP_SIZE, sizeof(told),
                                &told, NULL));
    cr_assert_eq(told, 24);
    engine_rig_moves(&s.rig, "two");
    run_all(&s, 24);
    OK(clGetKernelWorkGroupInfo(s.groups, s.rig.device, CL_KERNEL_WORK_GROUP_SIZE, sizeof(told),
                                &told, NULL));
    cr_assert_eq(told, 24);
    engine_rig_moves(&s.rig, "one");
    run_all(&s, 24);
}

/* Whatever it chooses is right there: it knows its device best. */
Test(groups, are_the_drivers_choice_where_that_stays_within, .timeout = 60)
{
    struct scene s;
    cl_uint4 size;
    const struct launch launch = {2, {8, 8, 1}, {0}, {{0}}};
    open_scene(&s, "[one] name=one base=1 greedy=yes max_work_group_size=64 "
                   "[two] name=two base=1 greedy=yes max_work_group_size=32");
    for (int i = 0; i < 2; i++) {
        run(&s, &launch, 0, NULL);
        OK(clEnqueueReadBuffer(s.program.queue, s.sizes, CL_TRUE, 0, sizeof(size), &size, 0, NULL,
                               NULL));
        cr_expect(size.s[0] == 8 && size.s[1] == 1, "%ux%u", size.s[0], size.s[1]);
        if (i == 0)
            engine_rig_moves(&s.rig, "two");
    }
}

Test(groups, that_the_source_requires_are_those, .timeout = 60)
{
    struct scene s;
    const size_t items[2] = {16, 4};
    cl_uint sizes[64];
    open_scene(&s, CONFIG);
    cl_kernel required = engine_kernel(s.program.program, "required");
    OK(clSetKernelArg(required, 0, sizeof(cl_mem), &s.sums));
    for (int i = 0; i < 2; i++) {
        OK(clEnqueueNDRangeKernel(s.program.queue, required, 2, NULL, items, NULL, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(s.program.queue, s.sums, CL_TRUE, 0, sizeof(sizes), sizes, 0, NULL,
                               NULL));
        for (size_t at = 0; at < ARRAY_SIZE(sizes); at++)
            cr_assert_eq(sizes[at], 802);
        if (i == 0)
            engine_rig_moves(&s.rig, "two");
    }
}

/* Against counting. */
Test(groups, are_the_largest_that_divide)
{
    static const size_t limits[][3] = {{64, 64, 64}, {1, 7, 1}, {1024, 1024, 64}};
    for (size_t l = 0; l < ARRAY_SIZE(limits); l++)
        for (size_t items = 1; items <= 1024; items += 31)
            for (size_t of = 1; of < 3000; of += 7) {
                size_t local[3], best = 0, most = items < limits[l][0] ? items : limits[l][0];
                group_divide(1, &of, items, limits[l], local);
                for (size_t d = 1; d <= most; d++)
                    if (of % d == 0)
                        best = d;
                cr_assert_eq(local[0], best, "%zu of %zu within %zu", local[0], of, most);
            }
    const size_t huge = (size_t)1 << 40 | 6, sizes[3] = {4096, 4096, 4096};
    size_t local[3];
    group_divide(1, &huge, 4096, sizes, local);
    cr_assert_eq(huge % local[0], 0);
    cr_assert_geq(local[0], 2);
}
