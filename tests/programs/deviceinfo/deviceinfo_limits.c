#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deviceinfo.h"

/* Numbers of the device table (4.2): their types, their least values, and each with the others. */

static const char *const required_extensions[] = {
    "cl_khr_global_int32_base_atomics", "cl_khr_global_int32_extended_atomics",
    "cl_khr_local_int32_base_atomics", "cl_khr_local_int32_extended_atomics",
    "cl_khr_byte_addressable_store"};

static void check_work(void)
{
    uint64_t dimensions = number32(CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS);
    size_t sizes[16] = {0}, told = 0;

    CHECK(dimensions >= 3 && dimensions <= 16);
    CHECK(clGetDeviceInfo(facts.device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof(sizes), sizes,
                          &told) == CL_SUCCESS);
    CHECK(told == dimensions * sizeof(size_t));
    for (size_t i = 0; i < dimensions && i < 16; i++)
        CHECK(sizes[i] >= 1);
    CHECK(number_size(CL_DEVICE_MAX_WORK_GROUP_SIZE) >= 1);
    CHECK(sizes[0] <= number_size(CL_DEVICE_MAX_WORK_GROUP_SIZE));
    CHECK(number32(CL_DEVICE_MAX_COMPUTE_UNITS) >= 1);
    number32(CL_DEVICE_MAX_CLOCK_FREQUENCY);
    CHECK(number32(CL_DEVICE_ADDRESS_BITS) == 32 || number32(CL_DEVICE_ADDRESS_BITS) == 64);
    if (facts.version >= V(3, 0)) {
        size_t multiple = number_size(CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE);

        CHECK(multiple >= 1 && multiple <= number_size(CL_DEVICE_MAX_WORK_GROUP_SIZE));
        truth(CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT);
    }
}

static void check_memory(void)
{
    uint64_t global = number64(CL_DEVICE_GLOBAL_MEM_SIZE);
    uint64_t most = number64(CL_DEVICE_MAX_MEM_ALLOC_SIZE), least = global / 4;
    uint64_t floor = facts.full ? 128u << 20 : 1 << 20;
    uint64_t cache = number32(CL_DEVICE_GLOBAL_MEM_CACHE_TYPE);

    /* 3.0 lowered what earlier versions ask for. */
    if (facts.version >= V(3, 0) && facts.full) {
        floor = 32 << 20;
        least = least < 1 << 30 ? least : 1 << 30;
    }
    CHECK(!facts.memory || global == facts.memory);
    CHECK(most <= global);
    CHECK(most >= (least > floor ? least : floor));
    CHECK(number64(CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE) >= (facts.full ? 65536u : 1024u));
    CHECK(number64(CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE) <= most);
    CHECK(number32(CL_DEVICE_MAX_CONSTANT_ARGS) >= (facts.full ? 8u : 4u));
    CHECK(number_size(CL_DEVICE_MAX_PARAMETER_SIZE) >= (facts.full ? 1024u : 256u));
    CHECK(number32(CL_DEVICE_LOCAL_MEM_TYPE) == CL_LOCAL ||
          number32(CL_DEVICE_LOCAL_MEM_TYPE) == CL_GLOBAL);
    CHECK(number64(CL_DEVICE_LOCAL_MEM_SIZE) >= (facts.full ? 32768u : 1024u));
    CHECK(cache == CL_NONE || cache == CL_READ_ONLY_CACHE || cache == CL_READ_WRITE_CACHE);
    CHECK((cache == CL_NONE) == (number64(CL_DEVICE_GLOBAL_MEM_CACHE_SIZE) == 0));
    CHECK(cache != CL_NONE || number32(CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE) == 0);
    /* In bits, and in bytes, of the largest type: a long16. */
    CHECK(number32(CL_DEVICE_MEM_BASE_ADDR_ALIGN) >= (facts.full ? 1024u : 8u));
    if (wanted("min-align"))
        CHECK(number32(CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE) >= (facts.full ? 128u : 1u));
    CHECK(number32(CL_DEVICE_MEM_BASE_ADDR_ALIGN) >=
          8 * number32(CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE));
    truth(CL_DEVICE_ERROR_CORRECTION_SUPPORT);
    truth(CL_DEVICE_HOST_UNIFIED_MEMORY);
    CHECK(truth(CL_DEVICE_ENDIAN_LITTLE));
    if (wanted("printf"))
        CHECK(number_size(CL_DEVICE_PRINTF_BUFFER_SIZE) >= (facts.full ? 1048576u : 1024u));
}

/* A vector width of every type, 0 exactly where the type is not there. */
static void check_widths(void)
{
    static const struct {
        cl_device_info preferred, native;
        const char *extension;
    } types[] = {
        {CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR, CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR, NULL},
        {CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT, CL_DEVICE_NATIVE_VECTOR_WIDTH_SHORT, NULL},
        {CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT, CL_DEVICE_NATIVE_VECTOR_WIDTH_INT, NULL},
        {CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG, CL_DEVICE_NATIVE_VECTOR_WIDTH_LONG, NULL},
        {CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, NULL},
        {CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE, CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE,
         "cl_khr_fp64"},
        {CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF, CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF, "cl_khr_fp16"},
    };

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        bool there = !types[i].extension || words_have(facts.extensions, types[i].extension);

        CHECK_NAMED((number32(types[i].preferred) != 0) == there, "there as its type",
                    types[i].preferred);
        CHECK_NAMED((number32(types[i].native) != 0) == there, "there as its type",
                    types[i].native);
    }
}

static void check_floats(void)
{
    const uint64_t least = CL_FP_ROUND_TO_NEAREST | CL_FP_INF_NAN;
    const uint64_t least_double =
        least | CL_FP_FMA | CL_FP_ROUND_TO_ZERO | CL_FP_ROUND_TO_INF | CL_FP_DENORM;
    uint64_t single = number64(CL_DEVICE_SINGLE_FP_CONFIG);

    if (facts.full)
        CHECK((single & least) == least);
    else
        CHECK(single & (CL_FP_ROUND_TO_NEAREST | CL_FP_ROUND_TO_ZERO));
    if (wanted("double-config")) {
        uint64_t twice = number64(CL_DEVICE_DOUBLE_FP_CONFIG);

        CHECK((twice != 0) == words_have(facts.extensions, "cl_khr_fp64"));
        CHECK(!twice || (twice & least_double) == least_double);
    }
    if (words_have(facts.extensions, "cl_khr_fp16")) {
        uint64_t half = number64(CL_DEVICE_HALF_FP_CONFIG);

        CHECK((half & least) == least || half & CL_FP_ROUND_TO_ZERO);
    } else if (wanted("half-config")) {
        CHECK(refused(CL_DEVICE_HALF_FP_CONFIG));
    }
}

static void check_atomics(cl_device_info name, uint64_t least)
{
    uint64_t has = number64(name);

    CHECK_NAMED((has & least) == least, "what every 3.0 device has", name);
    CHECK(!(has & CL_DEVICE_ATOMIC_SCOPE_ALL_DEVICES) || has & CL_DEVICE_ATOMIC_SCOPE_DEVICE);
    CHECK(!(has & CL_DEVICE_ATOMIC_SCOPE_DEVICE) || has & CL_DEVICE_ATOMIC_SCOPE_WORK_GROUP);
    CHECK(!(has & CL_DEVICE_ATOMIC_ORDER_SEQ_CST) || has & CL_DEVICE_ATOMIC_ORDER_ACQ_REL);
    CHECK(!(has & CL_DEVICE_ATOMIC_ORDER_ACQ_REL) || has & CL_DEVICE_ATOMIC_ORDER_RELAXED);
}

void check_limits(void)
{
    check_work();
    check_memory();
    check_widths();
    check_floats();
    CHECK(number64(CL_DEVICE_TYPE) != 0);
    number32(CL_DEVICE_VENDOR_ID);
    CHECK(number64(CL_DEVICE_QUEUE_ON_HOST_PROPERTIES) & CL_QUEUE_PROFILING_ENABLE);
    CHECK(number64(CL_DEVICE_EXECUTION_CAPABILITIES) & CL_EXEC_KERNEL);
    CHECK(truth(CL_DEVICE_AVAILABLE));
    CHECK(!truth(CL_DEVICE_COMPILER_AVAILABLE) || truth(CL_DEVICE_LINKER_AVAILABLE));
    truth(CL_DEVICE_PREFERRED_INTEROP_USER_SYNC);
    if (wanted("timer"))
        CHECK(number_size(CL_DEVICE_PROFILING_TIMER_RESOLUTION) >= 1);
    for (size_t i = 0; i < sizeof(required_extensions) / sizeof(required_extensions[0]); i++)
        CHECK(words_have(facts.extensions, required_extensions[i]));
    if (facts.version >= V(3, 0)) {
        check_atomics(CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES,
                      CL_DEVICE_ATOMIC_ORDER_RELAXED | CL_DEVICE_ATOMIC_SCOPE_WORK_GROUP);
        check_atomics(CL_DEVICE_ATOMIC_FENCE_CAPABILITIES, CL_DEVICE_ATOMIC_ORDER_RELAXED |
                                                               CL_DEVICE_ATOMIC_ORDER_ACQ_REL |
                                                               CL_DEVICE_ATOMIC_SCOPE_WORK_GROUP);
    }
}
