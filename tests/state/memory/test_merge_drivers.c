#include "tests/support/cases.h"

#include "state/memory/digest.h"
#include "tests/state/memory/merge_rig.h"

/* Merges between devices of each kind, and of different drivers. */

static const size_t sizes[] = {13, 64 << 10, (64 << 10) + 15, 200 << 10};

static struct device *open_one(const char *library, size_t number)
{
    struct device **devices;
    size_t count;
    cr_assert_eq(driver_list_library(library, &devices, &count), 0, "%s", library);
    cr_assert_gt(count, number, "%s has %zu", library, count);
    struct device *device = devices[number];
    free(devices);
    return device;
}

static void between(struct device *one, struct device *two, size_t largest, unsigned plays)
{
    static struct merge_rig rig;
    unsigned applied = 0;
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
        for (unsigned way = 0; way < 2 && sizes[i] <= largest; way++) {
            merge_rig_open(&rig, way ? one : two, way ? two : one, sizes[i],
                           i % 2 ? CL_MEM_WRITE_ONLY : CL_MEM_READ_WRITE, (unsigned)i + 1);
            applied += merge_rig_plays(&rig, plays);
            merge_rig_close(&rig);
        }
    cr_assert_gt(applied, 0);
}

Test(merge_drivers, pocl, .timeout = 120)
{
    setenv("POCL_DEVICES", "basic pthread", 1);
    between(open_one(POCL, 0), open_one(POCL, 1), SIZE_MAX, 12);
}

Test(merge_drivers, pocl_and_rusticl, .timeout = 120)
{
    setenv("POCL_DEVICES", "basic pthread", 1);
    setenv("RUSTICL_ENABLE", "llvmpipe", 1);
    between(open_one(POCL, 1), open_one(RUSTICL, 0), SIZE_MAX, 6);
}

#ifdef OCLGRIND
Test(merge_drivers, pocl_and_oclgrind, .timeout = 120)
{
    setenv("POCL_DEVICES", "basic pthread", 1);
    between(open_one(POCL, 1), open_one(OCLGRIND, 0), 64 << 10, 3);
}
#endif
