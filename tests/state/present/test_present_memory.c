#include "tests/state/present/fake_device.h"

/* How much device memory a program is told of, and why. */

#define MIB ((uint64_t)1 << 20)

TestSuite(present_memory, .fini = built_end, .timeout = 60);

static const struct present_terms portable = {.profile = PRESENT_PORTABLE};

static struct present build(const struct devinfo *a, const struct devinfo *b,
                            struct reasons *ret_reasons)
{
    return build_on(&portable, a, b, ret_reasons);
}

static struct devinfo with_memory(const char *version, uint64_t memory, uint64_t object)
{
    struct devinfo info = plain(version);

    put8(&info, CL_DEVICE_GLOBAL_MEM_SIZE, memory);
    put8(&info, CL_DEVICE_MAX_MEM_ALLOC_SIZE, object);
    put8(&info, CL_DEVICE_IMAGE_MAX_BUFFER_SIZE, 128 * MIB);
    return info;
}

static void expect_memory(const struct devinfo *a, const struct devinfo *b, uint64_t said,
                          uint64_t memory, uint64_t object)
{
    const struct devinfo *both[] = {a, b}, *turned[] = {b, a};
    const struct present_terms terms = {.memory = said};

    for (int turn = 0; turn < 2; turn++) {
        struct present present;

        cr_assert_eq(present_build(turn ? turned : both, 2, &terms, &present), 0);
        cr_expect_eq(number(&present, CL_DEVICE_GLOBAL_MEM_SIZE), memory);
        cr_expect_eq(number(&present, CL_DEVICE_MAX_MEM_ALLOC_SIZE), object);
        cr_expect_eq(number(&present, CL_DEVICE_IMAGE_MAX_BUFFER_SIZE),
                     object < 128 * MIB ? object : 128 * MIB);
        present_finish(&present);
    }
}

Test(present_memory, memory_is_that_of_the_device_with_the_most)
{
    struct devinfo small = with_memory("OpenCL 3.0 a", 1024 * MIB, 1024 * MIB);
    struct devinfo large = with_memory("OpenCL 3.0 b", 8192 * MIB, 2048 * MIB);
    struct devinfo larger = with_memory("OpenCL 3.0 c", 8192 * MIB, 4096 * MIB);
    struct devinfo old = with_memory("OpenCL 1.1 d", 65536 * MIB, 65536 * MIB);
    const struct devinfo *first[] = {&small, &old};
    struct present present;

    expect_memory(&small, &large, 0, 8192 * MIB, 2048 * MIB);
    expect_memory(&large, &larger, 0, 8192 * MIB, 4096 * MIB);
    put8(&large, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 512 * MIB);
    expect_memory(&small, &large, 0, 8192 * MIB, 512 * MIB);
    /* Nothing moves to it. */
    cr_assert_eq(present_build(first, 2, &portable, &present), 0);
    cr_expect_eq(number(&present, CL_DEVICE_GLOBAL_MEM_SIZE), 1024 * MIB);
    present_finish(&present);
}

Test(present_memory, memory_that_is_said_is_told_and_objects_follow)
{
    struct devinfo a = with_memory("OpenCL 3.0 a", 1024 * MIB, 256 * MIB);
    struct devinfo b = with_memory("OpenCL 3.0 b", 2048 * MIB, 512 * MIB);
    struct devinfo old = with_memory("OpenCL 1.2 c", 512 * MIB, 512 * MIB);

    expect_memory(&a, &b, 4096 * MIB, 4096 * MIB, 1024 * MIB);
    expect_memory(&a, &b, 65536 * MIB, 65536 * MIB, 1024 * MIB);
    expect_memory(&a, &b, 1500 * MIB, 1500 * MIB, 512 * MIB);
    expect_memory(&a, &b, 300 * MIB, 300 * MIB, 300 * MIB);
    expect_memory(&a, &b, 5 * MIB, 5 * MIB, 5 * MIB);
    expect_memory(&a, &old, 65536 * MIB, 65536 * MIB, 16384 * MIB);
    expect_memory(&a, &old, 100 * MIB, 100 * MIB, 100 * MIB);
}

Test(present_memory, told_as_an_earlier_version_one_object_has_a_quarter_of_the_memory)
{
    struct devinfo a = with_memory("OpenCL 3.0 a", 16384 * MIB, 1024 * MIB);
    struct devinfo b = with_memory("OpenCL 1.2 b", 512 * MIB, 512 * MIB);

    expect_memory(&a, &b, 0, 4096 * MIB, 1024 * MIB);
    put_text(&b, CL_DEVICE_VERSION, "OpenCL 3.0 b");
    put_required(&b);
    expect_memory(&a, &b, 0, 16384 * MIB, 1024 * MIB);
}

Test(present_memory, memory_has_its_reasons)
{
    struct devinfo a = with_memory("OpenCL 3.0 a", 1024 * MIB, 1024 * MIB);
    struct devinfo b = with_memory("OpenCL 3.0 b", 8192 * MIB, 2048 * MIB);
    const struct devinfo *devices[] = {&a, &b};
    const struct present_terms said = {.memory = 16384 * MIB};
    struct reasons reasons = {0};
    struct present present = build(&a, &b, &reasons);

    const struct reason *reason = reasons_find_answer(&reasons, CL_DEVICE_GLOBAL_MEM_SIZE);
    cr_expect(reason->rule == REASON_MOST_MEMORY && !reason->by[0] && reason->by[1]);
    reason = reasons_find_answer(&reasons, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    cr_expect(reason->rule == REASON_MOST_MEMORY && !reason->by[0] && reason->by[1]);
    reasons_finish(&reasons);

    put8(&b, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 512 * MIB);
    cr_assert_eq(present_explain(devices, 2, &said, &present, &reasons), 0);
    reason = reasons_find_answer(&reasons, CL_DEVICE_GLOBAL_MEM_SIZE);
    cr_expect(reason->rule == REASON_OURS && strstr(reason->because, "--memory"));
    reason = reasons_find_answer(&reasons, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    cr_expect(reason->rule == REASON_AGREES && strstr(reason->because, "OpenCL requires"));
    present_finish(&present);
    reasons_finish(&reasons);
}

Test(present_memory, the_first_devices_memory_is_told_in_the_native_profile)
{
    struct devinfo a = with_memory("OpenCL 3.0 a", 64 * MIB, 16 * MIB);
    struct devinfo b = with_memory("OpenCL 3.0 b", 8192 * MIB, 2048 * MIB);
    const struct devinfo *devices[] = {&a, &b};
    const struct present_terms terms = {.profile = PRESENT_NATIVE, .memory = 512 * MIB};
    struct present present;

    cr_assert_eq(present_build(devices, 2, &terms, &present), 0);
    cr_expect_eq(number(&present, CL_DEVICE_GLOBAL_MEM_SIZE), 64 * MIB);
    cr_expect_eq(number(&present, CL_DEVICE_MAX_MEM_ALLOC_SIZE), 16 * MIB);
    cr_expect_eq(number(&present, CL_DEVICE_IMAGE_MAX_BUFFER_SIZE), 128 * MIB);
    present_finish(&present);
}
