#include "state/program/group.h"

#include "state/base/array.h"
#include "state/program/kernel_priv.h"

static size_t group_get(const _Atomic size_t *limit)
{
    return atomic_load_explicit(limit, memory_order_relaxed);
}

/* Programs launch the same sizes again and again. An answer is kept in one word with its question,
 * until another answer replaces it. */
static _Atomic uint64_t answers[64];

/* The largest divisor of @of up to @most. */
static size_t group_divisor(size_t of, size_t most)
{
    size_t found = size_least(of, most);
    if (found <= 1)
        return 1;
    if (launch_divides(of, found))
        return found;
    _Atomic uint64_t *memo = &answers[(of ^ of >> 6 ^ of >> 12 ^ most) % ARRAY_SIZE(answers)];
    bool fits = of <= UINT32_MAX && most <= UINT16_MAX;
    uint64_t question = (uint64_t)of << 32 | (uint64_t)(most & UINT16_MAX) << 16;
    uint64_t known = fits ? atomic_load_explicit(memo, memory_order_relaxed) : 0;
    if (known != 0 && (known & ~(uint64_t)UINT16_MAX) == question)
        return known & UINT16_MAX;
    while (of % found != 0)
        found--;
    if (fits)
        atomic_store_explicit(memo, question | found, memory_order_relaxed);
    return found;
}

void group_divide(uint32_t dims, const size_t *global, size_t items, const size_t sizes[3],
                  size_t ret_local[3])
{
    for (uint32_t i = 0; i < dims; i++) {
        ret_local[i] = group_divisor(global[i], size_least(items, sizes[i]));
        items /= ret_local[i];
    }
}

static bool group_within(const struct group_limits *limits, const struct group_limits *presented)
{
    return group_get(&limits->items) <= group_get(&presented->items) &&
           group_get(&limits->sizes[0]) <= group_get(&presented->sizes[0]) &&
           group_get(&limits->sizes[1]) <= group_get(&presented->sizes[1]) &&
           group_get(&limits->sizes[2]) <= group_get(&presented->sizes[2]);
}

const size_t *group_choose(struct kernel *kernel, const struct residence *residence,
                           uint8_t residence_index, cl_kernel real,
                           const struct launch_space *space, size_t ret_local[3])
{
    const struct group_limits *presented = space->presented ? space->presented : &residence->groups;
    size_t most = kernel_told_group(kernel), sizes[3];
    bool free = group_within(&residence->groups, presented);
    if (LIKELY(free && group_get(&residence->groups.items) <= most))
        return NULL;
    size_t there = kernel_largest_group(kernel, residence, residence_index, real);
    if ((free && there <= most) || kernel->requires_group)
        return NULL;
    most = size_least(size_least(most, there), size_least(group_get(&presented->items),
                                                          group_get(&residence->groups.items)));
    for (uint32_t i = 0; i < 3; i++)
        sizes[i] =
            size_least(group_get(&presented->sizes[i]), group_get(&residence->groups.sizes[i]));
    group_divide(space->dims, space->global, most, sizes, ret_local);
    return ret_local;
}
