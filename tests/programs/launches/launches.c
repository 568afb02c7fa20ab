/**
 * Random launches whose items say what every index function says, compared with what OpenCL C says
 * that they are (3.0, 6.15.1), and how often each item was run.
 *
 *   launches [--rounds N] [--seed N] [--work N] [--without NAME,NAME...]
 *
 * Launches have 1 to 3 dimensions, odd sizes, offsets (far ones too), groups that are given, left
 * to OpenCL, required by the kernel, and smaller at the end; kernels with local memory and
 * barriers, with atomics, and several behind each other on the same memory. --work has each item
 * compute for longer. What a device cannot do is left out by itself; --without names what a driver
 * gets wrong.
 */
#include "launches.h"
#include "prog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RECORD = 37, /* words that an item writes */
    ASKED = 2,   /* the first of those about dimensions, 7 for each of 4 */
    LINEAR = 30, /* the first of those since 2.0 */
    MIXED = 36,
    MOST_ITEMS = 3000,
    MOST_GROUP = 64,
    TOTALS = 8, /* before a count for each group */
    CHAIN = 5,
    SEED_STRIDE = 1000003,
    VERSION_BYTES = 1024,
};

/** What a launch is. Dimensions that it does not have are 1 wide and begin at 0. */
struct space {
    cl_uint dims;
    size_t global[3], local[3], offset[3];
};

struct test {
    struct prog prog;
    struct rng rng;
    cl_program plain, spelled;
    cl_command_queue loose; /* out of order, where there is such */
    bool since2;            /* what 2.0 brought is there */
    bool remainders;        /* groups may be smaller at the end */
    bool beyond;            /* a fourth dimension is asked for */
    bool most;              /* chosen groups are held against the kernel's limit */
    cl_uint work;
    uint64_t sum;
};

static size_t items_of(const struct space *s)
{
    return s->global[0] * s->global[1] * s->global[2];
}

static size_t groups_in(const struct space *s, int d)
{
    return (s->global[d] + s->local[d] - 1) / s->local[d];
}

/** How wide the group is that has the item at @at. */
static size_t width_at(const struct space *s, int d, size_t at)
{
    size_t first = at / s->local[d] * s->local[d], left = s->global[d] - first;

    return left < s->local[d] ? left : s->local[d];
}

static void position(const struct space *s, size_t item, size_t ret_at[3])
{
    ret_at[0] = item % s->global[0];
    ret_at[1] = item / s->global[0] % s->global[1];
    ret_at[2] = item / s->global[0] / s->global[1];
}

static uint64_t mixed(uint64_t a, cl_uint work)
{
    for (cl_uint i = 0; i < work; i++) {
        a = a * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        a ^= a >> 29;
    }
    return a;
}

/** What every record has: how often, of how many dimensions, and what its work came to. */
static void begin_record(const struct test *t, const struct space *s, size_t item, uint64_t *ret)
{
    memset(ret, 0, RECORD * sizeof *ret);
    ret[0] = 1;
    ret[1] = s->dims;
    ret[MIXED] = mixed(item, t->work);
}

static void index_record(const struct test *t, const struct space *s, size_t item, uint64_t *ret)
{
    size_t at[3], width[3];

    begin_record(t, s, item, ret);
    position(s, item, at);
    for (int d = 0; d < (t->beyond ? 4 : 3); d++) {
        bool has = d < 3; /* what is beyond s->dims is in @s as OpenCL says: 1, and 0 */
        uint64_t *r = ret + ASKED + 7 * d;
        if (has)
            width[d] = width_at(s, d, at[d]);
        r[0] = has ? s->global[d] : 1;
        r[1] = has ? s->offset[d] + at[d] : 0;
        r[2] = has ? width[d] : 1;
        r[3] = has ? at[d] % s->local[d] : 0;
        r[4] = has ? groups_in(s, d) : 1;
        r[5] = has ? at[d] / s->local[d] : 0;
        r[6] = has ? s->offset[d] : 0;
    }
    if (t->since2) {
        ret[LINEAR] = item;
        ret[LINEAR + 1] = at[0] % s->local[0] +
                          width[0] * (at[1] % s->local[1] + width[1] * (at[2] % s->local[2]));
        for (int d = 0; d < 3; d++)
            ret[LINEAR + 2 + d] = s->local[d];
        ret[LINEAR + 5] = t->beyond;
    }
}

static void tell_space(const char *name, const struct space *s)
{
    fprintf(stderr,
            "%s: %u dimensions, global %zu %zu %zu, local %zu %zu %zu, offset %zu %zu %zu\n", name,
            s->dims, s->global[0], s->global[1], s->global[2], s->local[0], s->local[1],
            s->local[2], s->offset[0], s->offset[1], s->offset[2]);
}

static void same_record(const char *name, const struct space *s, size_t item, const uint64_t *got,
                        const uint64_t *want)
{
    for (int i = 0; i < RECORD; i++) {
        if (got[i] == want[i])
            continue;
        tell_space(name, s);
        prog_fail("%s: item %zu, word %d: got %llu, want %llu", name, item, i,
                  (unsigned long long)got[i], (unsigned long long)want[i]);
    }
}

/* ---- spaces ---- */

enum groups { GIVEN, SMALLER_AT_THE_END };

/** A random launch of at most MOST_ITEMS items. */
static struct space random_space(struct test *t, enum groups groups, bool far)
{
    struct space s = {1 + rng_below(&t->rng, 3), {1, 1, 1}, {1, 1, 1}, {0, 0, 0}};
    size_t room = MOST_ITEMS, group_room = MOST_GROUP;
    bool moved = far || rng_below(&t->rng, 3) > 0;

    for (cl_uint d = 0; d < s.dims; d++) {
        /* Later dimensions get what is left, so that any of them may be the wide one. */
        size_t most_local = group_room < 12 ? group_room : 12, most;
        s.local[d] = 1 + rng_below(&t->rng, (uint32_t)most_local);
        most = room / s.local[d];
        most = most > 1 && d + 1 < s.dims && rng_below(&t->rng, 2) ? 1 + most / 16 : most;
        size_t count = 1 + rng_below(&t->rng, (uint32_t)(most ? most : 1));
        s.global[d] = s.local[d] * count;
        if (groups == SMALLER_AT_THE_END && s.local[d] > 1)
            s.global[d] -= rng_below(&t->rng, (uint32_t)s.local[d]);
        room /= s.local[d] * count;
        room = room ? room : 1;
        group_room /= s.local[d];
        group_room = room < group_room ? room : group_room;
        /* Along some dimensions only, more often than not. */
        s.offset[d] = moved && rng_below(&t->rng, 2) ? rng_below(&t->rng, 5000) : 0;
        if (far)
            s.offset[d] += (size_t)rng_below(&t->rng, 1000) << 32;
    }
    return s;
}

/** What place() of the kernels reads. */
static cl_mem space_buffer(const struct test *t, const struct space *s)
{
    uint64_t words[6];

    for (int d = 0; d < 3; d++) {
        words[d] = s->global[d];
        words[3 + d] = s->offset[d];
    }
    return prog_buffer(t->prog.context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof words,
                       words);
}

static cl_mem zeroed(const struct test *t, size_t size)
{
    cl_mem mem = prog_buffer(t->prog.context, CL_MEM_READ_WRITE, size, NULL);
    const cl_uint zero = 0;

    OK(clEnqueueFillBuffer(t->prog.queue, mem, &zero, sizeof zero, 0, size, 0, NULL, NULL));
    return mem;
}

/** Launch @kernel over @s, its first three arguments set; the records, which the caller frees. */
static uint64_t *records(struct test *t, cl_kernel kernel, const struct space *s,
                         const size_t *local)
{
    size_t size = items_of(s) * RECORD * sizeof(uint64_t);
    cl_mem out = zeroed(t, size), at = space_buffer(t, s);
    uint64_t *got = prog_alloc(size);
    bool begins_at_0 = !s->offset[0] && !s->offset[1] && !s->offset[2];

    prog_arg(kernel, 0, sizeof out, &out);
    prog_arg(kernel, 1, sizeof at, &at);
    prog_arg(kernel, 2, sizeof t->work, &t->work);
    OK(clEnqueueNDRangeKernel(t->prog.queue, kernel, s->dims, begins_at_0 ? NULL : s->offset,
                              s->global, local, 0, NULL, NULL));
    prog_read(t->prog.queue, out, 0, size, got);
    RELEASE(out, at);
    return got;
}

static void check_indices(const char *name, const struct test *t, const struct space *s,
                          const uint64_t *got)
{
    for (size_t i = 0; i < items_of(s); i++) {
        uint64_t want[RECORD];
        index_record(t, s, i, want);
        same_record(name, s, i, got + i * RECORD, want);
    }
}

/* ---- parts ---- */

static void indices(struct test *t, cl_program program, const char *name, enum groups groups,
                    bool far)
{
    cl_kernel kernel = prog_kernel(program, name);
    struct space s = random_space(t, groups, far);
    uint64_t *got = records(t, kernel, &s, s.local);

    check_indices(name, t, &s, got);
    OK(clReleaseKernel(kernel));
    free(got);
}

static void play_loops(struct test *t)
{
    indices(t, t->plain, "loops", GIVEN, false);
}

static void play_constants(struct test *t)
{
    indices(t, t->plain, "constants", GIVEN, false);
}

static void play_branches(struct test *t)
{
    indices(t, t->plain, "branches", GIVEN, false);
}

static void play_spelled(struct test *t)
{
    indices(t, t->spelled, "spelled", GIVEN, false);
}

static void play_pasted(struct test *t)
{
    indices(t, t->spelled, "pasted", GIVEN, false);
}

static void play_nested(struct test *t)
{
    indices(t, t->spelled, "nested", GIVEN, false);
}

static void play_far(struct test *t)
{
    indices(t, t->plain, rng_below(&t->rng, 2) ? "loops" : "constants", GIVEN, true);
}

/** Kernels that do not ask for their launch's size, groups and offset. */
static void play_positions(struct test *t)
{
    cl_kernel kernel = prog_kernel(t->plain, "positions");
    struct space s = random_space(t, GIVEN, rng_below(&t->rng, 2));
    uint64_t *got = records(t, kernel, &s, s.local);

    for (size_t i = 0; i < items_of(&s); i++) {
        uint64_t all[RECORD], want[RECORD];
        index_record(t, &s, i, all);
        begin_record(t, &s, i, want);
        for (int d = 0; d < 3; d++)
            memcpy(want + ASKED + 7 * d + 1, all + ASKED + 7 * d + 1, 3 * sizeof *want);
        same_record("positions", &s, i, got + i * RECORD, want);
    }
    OK(clReleaseKernel(kernel));
    free(got);
}

static void play_remainders(struct test *t)
{
    if (t->remainders)
        indices(t, t->plain, rng_below(&t->rng, 2) ? "loops" : "branches", SMALLER_AT_THE_END,
                false);
}

/** OpenCL chooses the group: whichever it is, it is the same for all, and divides what there is. */
static void play_unsized(struct test *t)
{
    cl_kernel kernel = prog_kernel(t->plain, "constants");
    struct space s = random_space(t, SMALLER_AT_THE_END, false);
    uint64_t *got = records(t, kernel, &s, NULL);
    size_t most = 0, group = 1;

    OK(clGetKernelWorkGroupInfo(kernel, t->prog.device, CL_KERNEL_WORK_GROUP_SIZE, sizeof most,
                                &most, NULL));
    for (cl_uint d = 0; d < s.dims; d++) {
        /* The first item's group begins at 0, and is as wide as any. */
        s.local[d] = got[ASKED + 7 * d + 2];
        if (s.local[d] < 1 || s.local[d] > s.global[d])
            prog_fail("unsized: a group of %zu of %zu items", s.local[d], s.global[d]);
        if (!t->remainders && s.global[d] % s.local[d])
            prog_fail("unsized: groups of %zu of %zu items", s.local[d], s.global[d]);
        group *= s.local[d];
    }
    if (group > most && t->most) {
        tell_space("unsized", &s);
        prog_fail("unsized: a group of %zu, of at most %zu", group, most);
    }
    check_indices("unsized", t, &s, got);
    OK(clReleaseKernel(kernel));
    free(got);
}

/** With the group that the kernel demands, which has to be given. */
static void play_required(struct test *t)
{
    cl_kernel kernel = prog_kernel(t->plain, "required");
    struct space s = {3, {1, 1, 1}, {4, 3, 2}, {0, 0, 0}};

    for (int d = 0; d < 3; d++) {
        s.global[d] = s.local[d] * (1 + rng_below(&t->rng, 5));
        s.offset[d] = rng_below(&t->rng, 100);
    }
    uint64_t *got = records(t, kernel, &s, s.local);
    check_indices("required", t, &s, got);
    OK(clReleaseKernel(kernel));
    free(got);
}

/** The items of the group of the item at @at, in the order of their local ids; how many. */
static size_t group_items(const struct space *s, const size_t at[3], size_t ret_items[MOST_GROUP])
{
    size_t first[3], width[3], n = 0;

    for (int d = 0; d < 3; d++) {
        first[d] = at[d] / s->local[d] * s->local[d];
        width[d] = width_at(s, d, at[d]);
    }
    for (size_t z = first[2]; z < first[2] + width[2]; z++)
        for (size_t y = first[1]; y < first[1] + width[1]; y++)
            for (size_t x = first[0]; x < first[0] + width[0]; x++)
                ret_items[n++] = x + s->global[0] * (y + s->global[1] * z);
    return n;
}

/** What an item of "shared" puts into given[n - 1 - l] at the end. */
static uint64_t shared_value(const size_t *items, size_t n, size_t l, uint64_t *ret_total)
{
    uint64_t total = 0;
    uint32_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        total = total * 3 + items[i];
        sum += (uint32_t)items[(l + i) % n] * 7 * (uint32_t)(i + 1);
    }
    *ret_total = total;
    return total + sum;
}

static void play_shared(struct test *t)
{
    cl_kernel kernel = prog_kernel(t->plain, "shared");
    bool smaller = t->remainders && rng_below(&t->rng, 2);
    struct space s = random_space(t, smaller ? SMALLER_AT_THE_END : GIVEN, false);

    prog_arg(kernel, 3, s.local[0] * s.local[1] * s.local[2] * sizeof(uint64_t), NULL);
    uint64_t *got = records(t, kernel, &s, s.local);
    for (size_t i = 0; i < items_of(&s); i++) {
        size_t at[3], items[MOST_GROUP], l = 0;
        uint64_t want[RECORD], total;
        position(&s, i, at);
        size_t n = group_items(&s, at, items);
        while (items[l] != i)
            l++;
        begin_record(t, &s, i, want);
        want[3] = shared_value(items, n, n - 1 - l, &total);
        want[2] = total;
        same_record("shared", &s, i, got + i * RECORD, want);
    }
    OK(clReleaseKernel(kernel));
    free(got);
}

/** What the words that all items write to come to, and how many items each group has. */
static void host_totals(const struct space *s, uint32_t *ret)
{
    for (size_t i = 0; i < items_of(s); i++) {
        uint32_t n = (uint32_t)i;
        size_t at[3];
        position(s, i, at);
        ret[0]++;
        ret[1] += n * 3 + 1;
        ret[2] ^= n * 2654435761u;
        ret[3] = ret[3] > (n ^ 85) ? ret[3] : n ^ 85;
        ret[4] = ret[4] < (n ^ 85) ? ret[4] : n ^ 85;
        ret[5] |= UINT32_C(1) << (n & 31);
        ret[6] &= ~(UINT32_C(1) << (n & 7));
        ret[7] -= n + 5;
        ret[TOTALS + at[0] / s->local[0] +
            groups_in(s, 0) * (at[1] / s->local[1] + groups_in(s, 1) * (at[2] / s->local[2]))]++;
    }
}

static void play_atomics(struct test *t)
{
    static const uint32_t first[TOTALS] = {0, 0, 0, 0, UINT32_MAX, 0, UINT32_MAX, 0};
    cl_kernel kernel = prog_kernel(t->plain, "atomics");
    struct space s = random_space(t, GIVEN, false);
    size_t n = items_of(&s), groups = groups_in(&s, 0) * groups_in(&s, 1) * groups_in(&s, 2);
    size_t size = (TOTALS + groups) * sizeof(uint32_t);
    uint32_t *want = calloc(TOTALS + groups, sizeof *want), *words = prog_alloc(size);
    bool *taken = calloc(n, sizeof *taken);

    REQUIRE(want && taken);
    memcpy(want, first, sizeof first);
    cl_mem totals =
        prog_buffer(t->prog.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, size, want);
    prog_arg(kernel, 3, sizeof totals, &totals);
    uint64_t *got = records(t, kernel, &s, s.local);
    prog_read(t->prog.queue, totals, 0, size, words);
    host_totals(&s, want);
    prog_same("totals", words, want, size);
    for (size_t i = 0; i < n; i++) {
        uint64_t record[RECORD], ticket = got[i * RECORD + 2];
        /* Which ticket an item draws is open; no two draw the same. */
        if (ticket >= n || taken[ticket])
            prog_fail("atomics: ticket %llu of %zu a second time", (unsigned long long)ticket, n);
        taken[ticket] = true;
        begin_record(t, &s, i, record);
        record[2] = ticket;
        same_record("atomics", &s, i, got + i * RECORD, record);
    }
    RELEASE(totals, kernel);
    free(want);
    free(words);
    free(taken);
    free(got);
}

static void chain_on_host(const struct test *t, const struct space *s, bool ordered,
                          uint64_t *cells)
{
    for (size_t i = 0; i < items_of(s); i++) {
        uint64_t a = cells[i] * 31 + s->dims;
        size_t at[3];
        position(s, i, at);
        for (int d = 0; d < 3; d++) {
            if (ordered) {
                a = a * 31 + s->offset[d] + at[d];
                a = a * 31 + at[d] % s->local[d];
                continue;
            }
            a = a * 31 + at[d] / s->local[d];
            a = a * 31 + groups_in(s, d);
            a = a * 31 + s->offset[d];
            a = a * 31 + s->global[d];
        }
        cells[i] = mixed(a, t->work);
    }
}

/**
 * Launches of different shapes over the same cells, given one after the other: in order by the
 * queue, or by events. With @gate, none can run before all are given, and what they were given
 * with is there no more.
 */
static void chain(struct test *t, cl_event gate)
{
    cl_kernel kernels[] = {prog_kernel(t->plain, "chained"), prog_kernel(t->plain, "ordered")};
    bool by_events = rng_below(&t->rng, 2);
    cl_command_queue queue = by_events ? t->loose : t->prog.queue;
    uint64_t want[MOST_ITEMS] = {0}, got[MOST_ITEMS];
    cl_event last = gate;

    cl_mem cells =
        prog_buffer(t->prog.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof want, want);
    for (int i = 0; i < CHAIN; i++) {
        struct space s = random_space(t, GIVEN, false);
        cl_mem at = space_buffer(t, &s);
        cl_event event;
        bool ordered = rng_below(&t->rng, 2);
        cl_kernel kernel = kernels[ordered];
        bool waits = last && (by_events || last == gate);
        prog_arg(kernel, 0, sizeof cells, &cells);
        prog_arg(kernel, 1, sizeof at, &at);
        prog_arg(kernel, 2, sizeof t->work, &t->work);
        OK(clEnqueueNDRangeKernel(queue, kernel, s.dims, s.offset, s.global, s.local, waits,
                                  waits ? &last : NULL, &event));
        OK(clReleaseMemObject(at));
        if (last && last != gate)
            OK(clReleaseEvent(last));
        last = event;
        chain_on_host(t, &s, ordered, want);
        memset(&s, 0, sizeof s);
    }
    if (gate)
        OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clEnqueueReadBuffer(queue, cells, CL_TRUE, 0, sizeof got, got, 1, &last, NULL));
    prog_same("chained", got, want, sizeof want);
    sum_bytes(&t->sum, got, sizeof got);
    RELEASE(last, cells, kernels[0], kernels[1]);
}

static void play_chained(struct test *t)
{
    chain(t, NULL);
}

static void play_gated(struct test *t)
{
    cl_event gate = MADE(clCreateUserEvent, t->prog.context);
    chain(t, gate);
    OK(clReleaseEvent(gate));
}

static const struct part {
    const char *name;
    void (*play)(struct test *t);
} parts[] = {
    {"loops", play_loops},       {"constants", play_constants},   {"branches", play_branches},
    {"spelled", play_spelled},   {"pasted", play_pasted},         {"nested", play_nested},
    {"far", play_far},           {"remainders", play_remainders}, {"unsized", play_unsized},
    {"required", play_required}, {"shared", play_shared},         {"atomics", play_atomics},
    {"chained", play_chained},   {"gated", play_gated},           {"positions", play_positions},
};

static void open_test(struct test *t)
{
    char text[VERSION_BYTES] = "", options[64];
    unsigned major = 1, minor = 0;
    cl_bool remainders = CL_FALSE;

    prog_open(&t->prog);
    t->loose = prog_queue_out_of_order(&t->prog);
    OK(clGetDeviceInfo(t->prog.device, CL_DEVICE_VERSION, sizeof text, text, NULL));
    REQUIRE(sscanf(text, "OpenCL %u.%u", &major, &minor) == 2);
    t->since2 = major >= 2;
    if (major >= 3)
        OK(clGetDeviceInfo(t->prog.device, CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT,
                           sizeof remainders, &remainders, NULL));
    t->remainders = major == 2 || remainders;
    snprintf(options, sizeof options, "-DDIMENSIONS=%d%s", t->beyond ? 4 : 3,
             major >= 3   ? " -cl-std=CL3.0"
             : major == 2 ? " -cl-std=CL2.0"
                          : "");
    t->plain = prog_build(&t->prog, launches_source, options);
    t->spelled = prog_build(&t->prog, launches_spelled, options);
}

static uint64_t pass(struct test *t, long rounds, uint64_t seed, const char *without)
{
    t->sum = 0;
    for (long round = 0; round < rounds; round++) {
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            if (prog_listed(without, parts[i].name))
                continue;
            if (getenv("TEST_TRACE"))
                fprintf(stderr, "round %ld %s\n", round, parts[i].name);
            t->rng = rng_seed(seed + (uint64_t)round * SEED_STRIDE + i);
            parts[i].play(t);
        }
    }
    return t->sum;
}

int main(int argc, char **argv)
{
    struct test t = {.work = (cl_uint)prog_option(argc, argv, "--work", 1)};
    long rounds = prog_option(argc, argv, "--rounds", 4);
    uint64_t seed = (uint64_t)prog_option(argc, argv, "--seed", 1);
    const char *without = prog_option_text(argc, argv, "--without", "");

    t.beyond = !prog_listed(without, "beyond");
    t.most = !prog_listed(without, "most");
    open_test(&t);
    uint64_t sum = pass(&t, rounds, seed, without);
    while (prog_again())
        REQUIRE(pass(&t, rounds, seed, without) == sum);
    RELEASE(t.plain, t.spelled, t.loose);
    prog_close(&t.prog);
    printf("launches checksum %016llx\n", (unsigned long long)sum);
    return 0;
}
