#include "tests/support/cases.h"

#include "state/memory/memory.h"

/*
 * The table beside a model that keeps every byte by itself: which write it is from in each place,
 * and which places have the last one. Places 0 and 1 are devices that write, 2 a mover's target.
 */

#define BYTES      ((size_t)1000)
#define PLACES_ALL (RESIDENCE_HOST + 1)
#define WRITERS    2
#define TARGET     2

struct model {
    struct memory root;
    struct context context;
    _Atomic uint64_t held[RESIDENCES_MAX];
    struct image_shape shape;
    unsigned seed, serial, first_seed;
    unsigned last[BYTES];            /* the write that the byte is to be from */
    unsigned has[PLACES_ALL][BYTES]; /* the write that it is from */
    uint64_t latest[BYTES];          /* bits of the places that have the last one */
    bool exact;                      /* there was room for every extent so far */
    bool write_tracked;
    uint64_t since;
};

static unsigned pick(struct model *m, unsigned below)
{
    return (unsigned)rand_r(&m->seed) % below;
}

static struct range pick_range(struct model *m)
{
    static const unsigned sizes[] = {1, 16, 100, BYTES};
    bool scattered = m->first_seed % 3 == 0;
    size_t begin = pick(m, BYTES), size = 1 + pick(m, sizes[pick(m, scattered ? 2 : 4)]);
    if (!scattered && pick(m, 20) == 0)
        return replica_whole(&m->root);
    return (struct range){begin, begin + size < BYTES ? begin + size : BYTES};
}

static unsigned count_extents(const struct model *m)
{
    unsigned count = 0;
    for (size_t at = 0; at < BYTES; at = extent_at(&m->root, at).range.end)
        count++;
    return count;
}

/* R1 and R2, and that the bytes that are said to be stale are. */
static void check(struct model *m, unsigned step)
{
    size_t end = 0;
    unsigned count = count_extents(m);
    cr_assert_leq(count, EXTENTS_MAX);
    m->exact = m->exact && count + 8 <= EXTENTS_MAX; /* a step takes a few more for a while */
    for (size_t i = 0; i < BYTES; i++) {
        struct extent extent = extent_at(&m->root, i);
        cr_assert(i >= extent.range.begin && i < extent.range.end);
        cr_assert(i < end || extent.range.begin == end, "step %u: a gap at %zu", step, i);
        end = extent.range.end;
        cr_assert_neq(extent.latest, 0, "step %u: nobody has byte %zu", step, i);
        for (uint8_t residence_index = 0; residence_index < PLACES_ALL; residence_index++)
            if ((extent.latest >> residence_index) & 1)
                cr_assert_eq(m->has[residence_index][i], m->last[i],
                             "step %u: byte %zu of place %u", step, i, residence_index);
        if (m->exact)
            cr_assert_eq(extent.latest, m->latest[i], "step %u: byte %zu: %llx, not %llx", step, i,
                         (unsigned long long)extent.latest, (unsigned long long)m->latest[i]);
    }
    for (uint8_t residence_index = 0; residence_index < PLACES_ALL; residence_index++)
        if (replica_is_latest_whole(&m->root, residence_index))
            cr_assert(replica_is_latest(&m->root, residence_index) &&
                      memcmp(m->has[residence_index], m->last, sizeof(m->last)) == 0);
}

static void model_init(struct model *m, unsigned seed)
{
    memset(m, 0, sizeof(*m));
    m->seed = m->first_seed = seed;
    m->root.size = BYTES;
    m->root.context = &m->context;
    m->root.held = m->held;
    m->context.residences = RESIDENCES_MAX;
    m->exact = true;
    replica_written_whole(&m->root, 0);
    for (size_t i = 0; i < BYTES; i++) {
        m->last[i] = m->has[0][i] = 1;
        m->latest[i] = 1;
    }
    m->serial = 1;
}

static void copy(struct model *m, uint8_t from, uint8_t to, struct range range)
{
    memcpy(m->has[to] + range.begin, m->has[from] + range.begin,
           (range.end - range.begin) * sizeof(unsigned));
}

/* As who brings does, with the gate closed. */
static void refresh(struct model *m, uint8_t to, struct range wanted)
{
    struct range range = extents_part(&m->root, wanted);
    cr_assert(range.begin <= wanted.begin && range.end >= wanted.end);
    uint64_t lacking = extents_lacking(&m->root, to, UINT32_MAX, range), copied = 0;
    for (size_t at = range.begin; at < range.end;) {
        struct extent extent = extent_at(&m->root, at);
        if (!((extent.latest >> to) & 1)) {
            copy(m, (uint8_t)__builtin_ctzll(extent.latest), to, extent.range);
            extents_refreshed(&m->root, to, extent.range, atomic_load(&m->root.version));
            copied += extent.range.end - extent.range.begin;
        }
        at = extent.range.end;
    }
    cr_assert_eq(copied, lacking);
    for (size_t i = range.begin; i < range.end; i++)
        m->latest[i] |= residence_bit(to);
    extents_settle(&m->root);
    cr_assert(extents_latest(&m->root, to, wanted));
}

/* A command of @residence_index writes @range: what it lacks there is brought, and claimed. */
static void write_range(struct model *m, uint8_t residence_index, struct range range)
{
    if (!extents_latest(&m->root, residence_index, range))
        refresh(m, residence_index, range);
    if (!extents_written_by(&m->root, residence_index, range))
        extents_claim(&m->root, residence_index, range);
    cr_assert(extents_latest(&m->root, residence_index, range) &&
              extents_written_by(&m->root, residence_index, range));
    uint64_t before = atomic_load(&m->root.version);
    extents_written(&m->root, residence_index, range);
    cr_assert_gt(atomic_load(&m->root.version), before);
    m->serial++;
    for (size_t i = range.begin; i < range.end; i++) {
        m->last[i] = m->has[residence_index][i] = m->serial;
        m->latest[i] = residence_bit(residence_index);
    }
}

/* R4: only where others have what it has. */
static void drop(struct model *m, uint8_t residence_index)
{
    for (size_t i = 0; i < BYTES; i++)
        if ((extent_at(&m->root, i).latest & ~residence_bit(residence_index)) == 0)
            return;
    extents_dropped(&m->root, residence_index);
    for (size_t i = 0; i < BYTES; i++)
        m->latest[i] &= ~residence_bit(residence_index);
}

/* A mover copies a part of what it saw, after the program may have written to it. */
static void copy_ahead(struct model *m)
{
    struct range range = pick_range(m);
    uint64_t kept[BYTES];
    if (!m->write_tracked)
        return;
    for (size_t i = 0; i < BYTES; i++)
        kept[i] = extent_at(&m->root, i).version <= m->since ? residence_bit(TARGET) : 0;
    for (size_t at = range.begin; at < range.end;) {
        struct extent extent = extent_at(&m->root, at);
        if (extent.version <= m->since)
            copy(m, (uint8_t)__builtin_ctzll(extent.latest), TARGET, extent.range);
        at = extent.range.end;
    }
    if (pick(m, 2)) /* and meanwhile */
        write_range(m, (uint8_t)pick(m, WRITERS), pick_range(m));
    size_t begin = extent_at(&m->root, range.begin).range.begin;
    for (size_t at = begin; at < range.end;) {
        struct extent extent = extent_at(&m->root, at);
        bool whole = extent.range.begin >= range.begin && extent.range.end <= range.end;
        if (whole)
            extents_refreshed(&m->root, TARGET, extent.range, m->since);
        for (size_t i = extent.range.begin; whole && i < extent.range.end; i++)
            if (extent.version <= m->since)
                m->latest[i] |= kept[i];
        at = extent.range.end;
    }
    extents_settle(&m->root);
}

static void step(struct model *m)
{
    switch (pick(m, 10)) {
    case 0:
        refresh(m, (uint8_t)pick(m, PLACES_ALL), pick_range(m));
        break;
    case 1:
        drop(m, (uint8_t)pick(m, PLACES_ALL));
        break;
    case 2:
        if (m->write_tracked)
            extents_unwatch(&m->root);
        else
            m->since = extents_watch(&m->root);
        m->write_tracked = !m->write_tracked;
        break;
    case 3:
        copy_ahead(m);
        break;
    default:
        write_range(m, (uint8_t)pick(m, WRITERS), pick_range(m));
        break;
    }
}

Test(extents, agree_with_a_model_of_every_byte)
{
    static struct model m;
    unsigned apart = 0, whole = 0, full = 0;
    for (unsigned seed = 0; seed < 60; seed++) {
        model_init(&m, seed);
        for (unsigned i = 0; i < 300; i++) {
            step(&m);
            check(&m, i);
            apart += replica_is_apart(&m.root);
            whole += !replica_is_apart(&m.root);
        }
        full += !m.exact;
        free(m.root.extents);
    }
    cr_assert(apart > 0 && whole > 0 && full > 0, "%u apart, %u whole, %u full", apart, whole,
              full);
}

static const struct range head = {0, 100}, middle = {400, 500}, tail = {900, 1000};

Test(extents, what_is_written_makes_nothing_else_stale)
{
    static struct model m;
    model_init(&m, 1);
    refresh(&m, RESIDENCE_HOST, replica_whole(&m.root));
    write_range(&m, 0, middle);
    cr_assert(extents_latest(&m.root, RESIDENCE_HOST, head));
    cr_assert(extents_latest(&m.root, RESIDENCE_HOST, tail));
    cr_assert_not(extents_latest(&m.root, RESIDENCE_HOST, middle));
    cr_assert_eq(extents_lacking(&m.root, RESIDENCE_HOST, 1, replica_whole(&m.root)), 100);
    cr_assert_eq(extents_lacking(&m.root, RESIDENCE_HOST, 2, replica_whole(&m.root)), 0);
    check(&m, 0);
    /* And once it is all the device's again there is nothing to tell apart. */
    write_range(&m, 0, replica_whole(&m.root));
    cr_assert_not(replica_is_apart(&m.root));
    cr_assert(replica_is_latest_whole(&m.root, 0));
    cr_assert_not(replica_is_latest(&m.root, RESIDENCE_HOST));
}

/* What was written by one stays its to write while another one takes a part. */
Test(extents, two_places_write_parts_of_their_own)
{
    static struct model m;
    model_init(&m, 1);
    write_range(&m, 1, tail);
    for (unsigned i = 0; i < 3; i++) {
        cr_assert(extents_written_by(&m.root, 0, head) && extents_latest(&m.root, 0, head));
        cr_assert(extents_written_by(&m.root, 1, tail) && extents_latest(&m.root, 1, tail));
        cr_assert_not(extents_written_by(&m.root, 1, head));
        cr_assert_not(extents_latest(&m.root, 0, tail));
        write_range(&m, 0, head);
        write_range(&m, 1, tail);
    }
    check(&m, 0);
}

/* Every second byte is another device's: there is no room to keep them apart. */
Test(extents, are_bounded_in_number)
{
    static struct model m;
    model_init(&m, 1);
    for (size_t i = 0; i < BYTES; i += 2)
        write_range(&m, 1, (struct range){i, i + 1});
    check(&m, 0);
    cr_assert_geq(count_extents(&m), EXTENTS_MAX / 2);
    for (size_t i = 0; i < BYTES; i++)
        write_range(&m, i % 2, (struct range){i, i + 1});
    check(&m, 1);
}

/* Those of one device that scatters its writes are joined where the least is lost by it. */
Test(extents, what_is_joined_loses_little)
{
    static struct model m;
    model_init(&m, 1);
    refresh(&m, RESIDENCE_HOST, replica_whole(&m.root));
    for (size_t i = 0; i < 500; i += 5)
        write_range(&m, 0, (struct range){i, i + 1});
    check(&m, 0);
    cr_assert_leq(extents_lacking(&m.root, RESIDENCE_HOST, 1, replica_whole(&m.root)), 500);
    cr_assert(extents_latest(&m.root, RESIDENCE_HOST, (struct range){500, 1000}));
}

/* What a mover sees is what was written since it looked. */
Test(extents, a_mover_sees_what_was_written_since)
{
    static struct model m;
    model_init(&m, 1);
    m.since = extents_watch(&m.root);
    write_range(&m, 0, middle);
    copy(&m, 0, TARGET, replica_whole(&m.root));
    extents_refreshed(&m.root, TARGET, (struct range){0, 400}, m.since);
    extents_refreshed(&m.root, TARGET, middle, m.since);
    extents_refreshed(&m.root, TARGET, (struct range){500, 1000}, m.since);
    extents_unwatch(&m.root);
    cr_assert_eq(extents_lacking(&m.root, TARGET, 1, replica_whole(&m.root)), 100);
    cr_assert_not(extents_latest(&m.root, TARGET, middle));
}

/* One command copies rows, or slices where there are several. */
Test(extents, of_an_image_are_whole_rows_or_slices)
{
    static struct model m;
    const size_t pitch[2] = {50, 250};
    for (unsigned i = 0; i < 2; i++) {
        model_init(&m, 1);
        m.shape = (struct image_shape){
            .dims = {40, i ? 5 : 20, i ? 4 : 1}, .row_pitch = 50, .slice_pitch = i ? 250 : 1000};
        m.root.image = &m.shape;
        struct range range = extents_part(&m.root, (struct range){260, 290});
        cr_assert_eq(range.begin, 250);
        cr_assert_eq(range.end, 250 + pitch[i]);
        extents_refreshed(&m.root, RESIDENCE_HOST, replica_whole(&m.root),
                          atomic_load(&m.root.version));
        extents_written(&m.root, 0, (struct range){740, 760});
        cr_assert_eq(extents_lacking(&m.root, RESIDENCE_HOST, 1, replica_whole(&m.root)),
                     i ? 500 : 100);
        free(m.root.extents);
    }
}
