/*
 * Asks the platform and the device everything, and checks that the answers have their
 * sizes, hold the specification's least values and agree with each other, as a conformance suite
 * does. It prints only its verdict.
 *
 *   deviceinfo [--memory BYTES] [--without WORD,...]
 *
 * --memory is how much device memory there is to be, --without leaves out checks that a driver is
 * known to fail by itself.
 */
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prog.h"

#define V(major, minor) CL_MAKE_VERSION(major, minor, 0)
#define COUNT(list)     (sizeof(list) / sizeof((list)[0]))

static struct prog p;
static cl_version version, c_version, platform_version;
static bool full, images; /* FULL_PROFILE; it has images. */
static char *extensions;
static const char *without;
static int wrong;

static void failed(const char *what, int line)
{
    fprintf(stderr, "%s:%d: %s\n", __FILE__, line, what);
    wrong++;
}

#define CHECK(ok) ((ok) ? (void)0 : failed(#ok, __LINE__))
#define CHECK_NAMED(ok, what, name)                                                                \
    do {                                                                                           \
        char said[128];                                                                            \
        snprintf(said, sizeof(said), "0x%x is not %s", (unsigned)(name), what);                    \
        if (!(ok))                                                                                 \
            failed(said, __LINE__);                                                                \
    } while (0)

/* False when --without has the word. */
static bool wanted(const char *word)
{
    return !prog_listed(without, word);
}

/* ---- numbers ---- */

enum type { BOOL, UINT, ULONG, SIZE };

/* What the device answers, checked to have its type. */
static uint64_t number(cl_device_info name, enum type type)
{
    static const size_t sizes[] = {sizeof(cl_bool), sizeof(cl_uint), sizeof(cl_ulong),
                                   sizeof(size_t)};
    uint64_t value = 0;
    size_t told = 0;
    CHECK_NAMED(clGetDeviceInfo(p.device, name, sizes[type], &value, &told) == CL_SUCCESS &&
                    told == sizes[type],
                "of its type", name);
    CHECK_NAMED(type != BOOL || value == CL_TRUE || value == CL_FALSE, "true or false", name);
    return value;
}
#define NUMBER(name, type) number(CL_DEVICE_##name, type)
#define TRUTH(name)        (NUMBER(name, BOOL) == CL_TRUE)

/* Numbers of the device table (4.2): their types and least values. */
static const struct number {
    cl_device_info name;
    enum type type;
    uint64_t full, embedded; /* The least, in either profile. */
    cl_version since;
    const char *word;      /* Of --without. */
    const char *extension; /* It is not 0 exactly where there is this extension. */
    bool of_images;        /* 0 is enough where there are none. */
} numbers[] = {
    {.name = CL_DEVICE_TYPE, ULONG, 1, 1},
    {.name = CL_DEVICE_VENDOR_ID, UINT},
    {.name = CL_DEVICE_AVAILABLE, BOOL, 1, 1},
    {.name = CL_DEVICE_PREFERRED_INTEROP_USER_SYNC, BOOL},
    {.name = CL_DEVICE_PROFILING_TIMER_RESOLUTION, SIZE, 1, 1, .word = "timer"},
    {.name = CL_DEVICE_REFERENCE_COUNT, UINT, 1, 1, .word = "partitions"},
    {.name = CL_DEVICE_PARTITION_AFFINITY_DOMAIN, ULONG, .word = "partitions"},
    {.name = CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, UINT, 3, 3},
    {.name = CL_DEVICE_MAX_WORK_GROUP_SIZE, SIZE, 1, 1},
    {.name = CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, SIZE, 1, 1, .since = V(3, 0)},
    {.name = CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT, BOOL, .since = V(3, 0)},
    {.name = CL_DEVICE_MAX_COMPUTE_UNITS, UINT, 1, 1},
    {.name = CL_DEVICE_MAX_CLOCK_FREQUENCY, UINT},
    {.name = CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE, ULONG, 65536, 1024},
    {.name = CL_DEVICE_MAX_CONSTANT_ARGS, UINT, 8, 4},
    {.name = CL_DEVICE_MAX_PARAMETER_SIZE, SIZE, 1024, 256},
    {.name = CL_DEVICE_LOCAL_MEM_SIZE, ULONG, 32768, 1024},
    /* In bits, and in bytes, of the largest type: a long16. */
    {.name = CL_DEVICE_MEM_BASE_ADDR_ALIGN, UINT, 1024, 8},
    {.name = CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE, UINT, 128, 1, .word = "min-align"},
    {.name = CL_DEVICE_ERROR_CORRECTION_SUPPORT, BOOL},
    {.name = CL_DEVICE_HOST_UNIFIED_MEMORY, BOOL},
    {.name = CL_DEVICE_ENDIAN_LITTLE, BOOL, 1, 1},
    {.name = CL_DEVICE_PRINTF_BUFFER_SIZE, SIZE, 1048576, 1024, .word = "printf"},
    {.name = CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR, UINT, 1, 1},
    {.name = CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT, UINT, 1, 1},
    {.name = CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT, UINT, 1, 1},
    {.name = CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG, UINT, 1, 1},
    {.name = CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT, UINT, 1, 1},
    {.name = CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE, UINT, .extension = "cl_khr_fp64"},
    {.name = CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF, UINT, .extension = "cl_khr_fp16"},
    {.name = CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR, UINT, 1, 1},
    {.name = CL_DEVICE_NATIVE_VECTOR_WIDTH_SHORT, UINT, 1, 1},
    {.name = CL_DEVICE_NATIVE_VECTOR_WIDTH_INT, UINT, 1, 1},
    {.name = CL_DEVICE_NATIVE_VECTOR_WIDTH_LONG, UINT, 1, 1},
    {.name = CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, UINT, 1, 1},
    {.name = CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE, UINT, .extension = "cl_khr_fp64"},
    {.name = CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF, UINT, .extension = "cl_khr_fp16"},
    {.name = CL_DEVICE_DOUBLE_FP_CONFIG,
     ULONG,
     .word = "double-config",
     .extension = "cl_khr_fp64"},
    {.name = CL_DEVICE_IMAGE2D_MAX_WIDTH, SIZE, 8192, 2048, .of_images = true},
    {.name = CL_DEVICE_IMAGE2D_MAX_HEIGHT, SIZE, 8192, 2048, .of_images = true},
    {.name = CL_DEVICE_IMAGE3D_MAX_WIDTH, SIZE, 2048, 0, .of_images = true},
    {.name = CL_DEVICE_IMAGE3D_MAX_HEIGHT, SIZE, 2048, 0, .of_images = true},
    {.name = CL_DEVICE_IMAGE3D_MAX_DEPTH, SIZE, 2048, 0, .of_images = true},
    {.name = CL_DEVICE_IMAGE_MAX_ARRAY_SIZE, SIZE, 2048, 256, .of_images = true},
    {.name = CL_DEVICE_IMAGE_MAX_BUFFER_SIZE, SIZE, 65536, 2048, .of_images = true},
    {.name = CL_DEVICE_MAX_READ_IMAGE_ARGS, UINT, 128, 8, .of_images = true},
    {.name = CL_DEVICE_MAX_WRITE_IMAGE_ARGS, UINT, 8, 1, .of_images = true},
    {.name = CL_DEVICE_MAX_SAMPLERS, UINT, 16, 8, .of_images = true},
    {.name = CL_DEVICE_PREFERRED_PLATFORM_ATOMIC_ALIGNMENT, UINT, .since = V(3, 0)},
    {.name = CL_DEVICE_PREFERRED_GLOBAL_ATOMIC_ALIGNMENT, UINT, .since = V(3, 0)},
    {.name = CL_DEVICE_PREFERRED_LOCAL_ATOMIC_ALIGNMENT, UINT, .since = V(3, 0)},
};

/* ---- texts and lists ---- */

/* The platform's parameters begin where no device's are. */
static cl_int ask(cl_uint name, size_t size, void *ret, size_t *ret_size)
{
    return name < CL_DEVICE_TYPE ? clGetPlatformInfo(p.platform, name, size, ret, ret_size)
                                 : clGetDeviceInfo(p.device, name, size, ret, ret_size);
}

/* What strings and lists of a round are kept in. */
static struct kept {
    _Alignas(16) char bytes[1 << 18];
    size_t used;
} kept;

/* Zeroed memory until the round ends. */
static void *keep(size_t size)
{
    size_t at = kept.used;
    size = (size + 15) & ~(size_t)15;
    if (size > sizeof(kept.bytes) - at) {
        printf("the answers do not fit\n");
        exit(1);
    }
    kept.used += size;
    return memset(kept.bytes + at, 0, size);
}

/* Of the device, or the platform; kept. */
static char *text_of(cl_uint name)
{
    size_t size = 0;
    CHECK_NAMED(ask(name, 0, NULL, &size) == CL_SUCCESS && size, "a string", name);
    char *text = keep(size + 1);
    CHECK_NAMED(ask(name, size, text, NULL) == CL_SUCCESS, "a string", name);
    CHECK_NAMED(strlen(text) + 1 == size, "a string of its size", name);
    return text;
}

struct versions {
    cl_name_version *items;
    size_t count;
};

/* The same. */
static struct versions versions_of(cl_uint name)
{
    struct versions list = {0};
    size_t size = 0;
    CHECK_NAMED(ask(name, 0, NULL, &size) == CL_SUCCESS && size % sizeof(*list.items) == 0,
                "an array of cl_name_version", name);
    list.count = size / sizeof(*list.items);
    list.items = keep((list.count + 1) * sizeof(*list.items));
    if (size)
        CHECK_NAMED(ask(name, size, list.items, NULL) == CL_SUCCESS, "an array of cl_name_version",
                    name);
    return list;
}

static bool versions_have(const struct versions *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strncmp(list->items[i].name, name, sizeof(list->items[i].name)) == 0)
            return true;
    return false;
}

static bool words_have(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = strstr(words, word); at; at = strstr(at + 1, word))
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    return false;
}

static bool has(const char *extension)
{
    return words_have(extensions, extension);
}

static size_t words_count(const char *words)
{
    size_t count = 0;
    for (const char *at = words; *at; at++)
        count += *at != ' ' && (at == words || at[-1] == ' ');
    return count;
}

static cl_version version_of(const char *text, const char *before)
{
    unsigned major = 0, minor = 0;
    size_t length = strlen(before);
    int used = 0;
    CHECK(strncmp(text, before, length) == 0);
    CHECK(sscanf(text + length, "%u.%u%n", &major, &minor, &used) == 2);
    CHECK(text[length + (size_t)used] == ' ');
    return CL_MAKE_VERSION(major, minor, 0);
}

/* ---- the platform ---- */

/* Two lists that say the same thing. */
static void check_same_names(const char *words, cl_uint name)
{
    struct versions list = versions_of(name);
    CHECK(words_count(words) == list.count);
    for (size_t i = 0; i < list.count; i++) {
        CHECK(memchr(list.items[i].name, '\0', sizeof(list.items[i].name)) != NULL);
        CHECK(words_have(words, list.items[i].name));
        for (size_t j = 0; j < i; j++)
            CHECK(strcmp(list.items[i].name, list.items[j].name) != 0);
    }
}

static void check_platform_timer(void)
{
    cl_ulong resolution = 1, device = 0, host = 0;
    CHECK(clGetPlatformInfo(p.platform, CL_PLATFORM_HOST_TIMER_RESOLUTION, sizeof(resolution),
                            &resolution, NULL) == CL_SUCCESS);
    if (resolution)
        return;
    CHECK(clGetDeviceAndHostTimer(p.device, &device, &host) == CL_INVALID_OPERATION);
    CHECK(clGetHostTimer(p.device, &host) == CL_INVALID_OPERATION);
    if (!wanted("timer-null"))
        return;
    CHECK(clGetDeviceAndHostTimer(p.device, NULL, NULL) == CL_INVALID_OPERATION);
    CHECK(clGetHostTimer(p.device, NULL) == CL_INVALID_OPERATION);
    CHECK(clGetHostTimer(NULL, &host) == CL_INVALID_DEVICE);
}

static void check_platform(void)
{
    char *suffix = text_of(CL_PLATFORM_ICD_SUFFIX_KHR), *own = text_of(CL_PLATFORM_EXTENSIONS);
    cl_uint count = 0;
    CHECK(strcmp(text_of(CL_PLATFORM_PROFILE), "FULL_PROFILE") == 0 || !full);
    CHECK(text_of(CL_PLATFORM_NAME)[0]);
    CHECK(text_of(CL_PLATFORM_VENDOR)[0]);
    CHECK(words_have(own, "cl_khr_icd"));
    CHECK(suffix[0] && strlen(suffix) < 16);
    CHECK(platform_version >= version);
    CHECK(clGetPlatformIDs(0, NULL, &count) == CL_SUCCESS && count >= 1);
    if (platform_version >= V(3, 0)) {
        cl_version told = 0;
        check_same_names(own, CL_PLATFORM_EXTENSIONS_WITH_VERSION);
        CHECK(clGetPlatformInfo(p.platform, CL_PLATFORM_NUMERIC_VERSION, sizeof(told), &told,
                                NULL) == CL_SUCCESS);
        CHECK(CL_VERSION_MAJOR(told) == CL_VERSION_MAJOR(platform_version));
        CHECK(CL_VERSION_MINOR(told) == CL_VERSION_MINOR(platform_version));
    }
    if (platform_version >= V(2, 1))
        check_platform_timer();
}

/* ---- versions in all their forms ---- */

static void check_c_versions(void)
{
    static const cl_version needed[] = {V(3, 0), V(1, 2), V(1, 1), V(1, 0)};
    struct versions all = versions_of(CL_DEVICE_OPENCL_C_ALL_VERSIONS);
    unsigned found = 0;
    bool told = false;
    for (size_t i = 0; i < all.count; i++) {
        CHECK(strcmp(all.items[i].name, "OpenCL C") == 0);
        CHECK(all.items[i].version <= version);
        told = told || all.items[i].version == c_version;
        for (size_t j = 0; j < COUNT(needed); j++)
            found |= (unsigned)(all.items[i].version == needed[j]) << j;
    }
    CHECK(found == (1u << COUNT(needed)) - 1);
    CHECK(told);
    CHECK(c_version >= V(1, 2));
}

/* "SPIR-V_1.2" and {"SPIR-V", 1.2}. */
static void check_ils(void)
{
    char *words = text_of(CL_DEVICE_IL_VERSION), word[128];
    struct versions list = versions_of(CL_DEVICE_ILS_WITH_VERSION);
    cl_uint bogus = 0xdeadbeef;
    cl_int error = CL_SUCCESS;
    CHECK(words_count(words) == list.count);
    for (size_t i = 0; i < list.count; i++) {
        snprintf(word, sizeof(word), "%.64s_%u.%u", list.items[i].name,
                 CL_VERSION_MAJOR(list.items[i].version), CL_VERSION_MINOR(list.items[i].version));
        CHECK(words_have(words, word));
    }
    if (words[0])
        return;
    CHECK(!has("cl_khr_il_program"));
    if (!wanted("il"))
        return;
    CHECK(!clCreateProgramWithIL(p.context, &bogus, sizeof(bogus), &error));
    CHECK(error == CL_INVALID_OPERATION);
}

/* vYYYY-MM-DD-XX. */
static void check_conformance(void)
{
    static const char form[] = "v0000-00-00-00";
    char *text = text_of(CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED);
    unsigned month = 0, day = 0;
    CHECK(strlen(text) == strlen(form));
    for (size_t i = 0; form[i] && text[i]; i++)
        CHECK(form[i] == '0' ? text[i] >= '0' && text[i] <= '9' : text[i] == form[i]);
    CHECK(sscanf(text, "v%*4u-%2u-%2u", &month, &day) == 2);
    CHECK(month >= 1 && month <= 12 && day >= 1 && day <= 31);
}

static void check_versions(void)
{
    CHECK(text_of(CL_DEVICE_NAME)[0]);
    CHECK(text_of(CL_DEVICE_VENDOR)[0]);
    CHECK(text_of(CL_DRIVER_VERSION)[0]);
    text_of(CL_DEVICE_BUILT_IN_KERNELS);
    if (version < V(3, 0))
        return;
    check_same_names(extensions, CL_DEVICE_EXTENSIONS_WITH_VERSION);
    CHECK(NUMBER(NUMERIC_VERSION, UINT) >> 12 == version >> 12);
    check_c_versions();
    check_ils();
    check_conformance();
    versions_of(CL_DEVICE_BUILT_IN_KERNELS_WITH_VERSION);
    if (has("cl_khr_extended_versioning"))
        CHECK(NUMBER(OPENCL_C_NUMERIC_VERSION_KHR, UINT) >> 12 == c_version >> 12);
}

/* ---- limits: each with the others ---- */

static void check_work(void)
{
    uint64_t dimensions = NUMBER(MAX_WORK_ITEM_DIMENSIONS, UINT);
    uint64_t most = NUMBER(MAX_WORK_GROUP_SIZE, SIZE), bits = NUMBER(ADDRESS_BITS, UINT);
    size_t sizes[16] = {0}, told = 0;
    CHECK(dimensions <= 16);
    CHECK(clGetDeviceInfo(p.device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof(sizes), sizes, &told) ==
          CL_SUCCESS);
    CHECK(told == dimensions * sizeof(size_t));
    for (size_t i = 0; i < dimensions && i < 16; i++)
        CHECK(sizes[i] >= 1);
    CHECK(sizes[0] <= most);
    CHECK(bits == 32 || bits == 64);
    CHECK(version < V(3, 0) || NUMBER(PREFERRED_WORK_GROUP_SIZE_MULTIPLE, SIZE) <= most);
}

/* @memory: what there is to be; 0: nobody said. */
static void check_memory(uint64_t memory)
{
    uint64_t global = NUMBER(GLOBAL_MEM_SIZE, ULONG), local = NUMBER(LOCAL_MEM_TYPE, UINT);
    uint64_t most = NUMBER(MAX_MEM_ALLOC_SIZE, ULONG), least = global / 4;
    uint64_t floor = full ? 128u << 20 : 1 << 20;
    uint64_t cache = NUMBER(GLOBAL_MEM_CACHE_TYPE, UINT);
    /* 3.0 lowered what earlier versions ask for. */
    if (version >= V(3, 0) && full) {
        floor = 32 << 20;
        least = least < 1 << 30 ? least : 1 << 30;
    }
    CHECK(!memory || global == memory);
    CHECK(most <= global);
    CHECK(most >= (least > floor ? least : floor));
    CHECK(NUMBER(MAX_CONSTANT_BUFFER_SIZE, ULONG) <= most);
    CHECK(local == CL_LOCAL || local == CL_GLOBAL);
    CHECK(cache == CL_NONE || cache == CL_READ_ONLY_CACHE || cache == CL_READ_WRITE_CACHE);
    CHECK((cache == CL_NONE) == (NUMBER(GLOBAL_MEM_CACHE_SIZE, ULONG) == 0));
    CHECK(cache != CL_NONE || NUMBER(GLOBAL_MEM_CACHELINE_SIZE, UINT) == 0);
    CHECK(NUMBER(MEM_BASE_ADDR_ALIGN, UINT) >= 8 * NUMBER(MIN_DATA_TYPE_ALIGN_SIZE, UINT));
}

static void check_floats(void)
{
    const uint64_t least = CL_FP_ROUND_TO_NEAREST | CL_FP_INF_NAN;
    const uint64_t least_double =
        least | CL_FP_FMA | CL_FP_ROUND_TO_ZERO | CL_FP_ROUND_TO_INF | CL_FP_DENORM;
    uint64_t single = NUMBER(SINGLE_FP_CONFIG, ULONG);
    CHECK(full ? (single & least) == least
               : (single & (CL_FP_ROUND_TO_NEAREST | CL_FP_ROUND_TO_ZERO)) != 0);
    if (wanted("double-config")) {
        uint64_t twice = NUMBER(DOUBLE_FP_CONFIG, ULONG);
        CHECK(!twice || (twice & least_double) == least_double);
    }
    if (has("cl_khr_fp16")) {
        uint64_t half = NUMBER(HALF_FP_CONFIG, ULONG);
        CHECK((half & least) == least || half & CL_FP_ROUND_TO_ZERO);
    } else if (wanted("half-config")) {
        CHECK(clGetDeviceInfo(p.device, CL_DEVICE_HALF_FP_CONFIG, 0, NULL, NULL) ==
              CL_INVALID_VALUE);
    }
}

/* @least: what every 3.0 device has. */
static void check_atomics(cl_device_info name, uint64_t least)
{
    uint64_t told = number(name, ULONG);
    CHECK_NAMED((told & least) == least, "what every 3.0 device has", name);
    CHECK(!(told & CL_DEVICE_ATOMIC_SCOPE_ALL_DEVICES) || told & CL_DEVICE_ATOMIC_SCOPE_DEVICE);
    CHECK(!(told & CL_DEVICE_ATOMIC_SCOPE_DEVICE) || told & CL_DEVICE_ATOMIC_SCOPE_WORK_GROUP);
    CHECK(!(told & CL_DEVICE_ATOMIC_ORDER_SEQ_CST) || told & CL_DEVICE_ATOMIC_ORDER_ACQ_REL);
    CHECK(!(told & CL_DEVICE_ATOMIC_ORDER_ACQ_REL) || told & CL_DEVICE_ATOMIC_ORDER_RELAXED);
}

static void check_limits(uint64_t memory)
{
    static const char *const required[] = {
        "cl_khr_global_int32_base_atomics", "cl_khr_global_int32_extended_atomics",
        "cl_khr_local_int32_base_atomics", "cl_khr_local_int32_extended_atomics",
        "cl_khr_byte_addressable_store"};
    const uint64_t relaxed = CL_DEVICE_ATOMIC_ORDER_RELAXED | CL_DEVICE_ATOMIC_SCOPE_WORK_GROUP;
    for (size_t i = 0; i < COUNT(numbers); i++) {
        const struct number *row = &numbers[i];
        if (version < row->since || (row->word && !wanted(row->word)))
            continue;
        uint64_t told = number(row->name, row->type), least = full ? row->full : row->embedded;
        CHECK_NAMED(told >= (row->of_images && !images ? 0 : least), "large enough", row->name);
        CHECK_NAMED(!row->extension || (told != 0) == has(row->extension), "there as its type",
                    row->name);
    }
    check_work();
    check_memory(memory);
    check_floats();
    CHECK(NUMBER(QUEUE_ON_HOST_PROPERTIES, ULONG) & CL_QUEUE_PROFILING_ENABLE);
    CHECK(NUMBER(EXECUTION_CAPABILITIES, ULONG) & CL_EXEC_KERNEL);
    CHECK(!TRUTH(COMPILER_AVAILABLE) || TRUTH(LINKER_AVAILABLE));
    for (size_t i = 0; i < COUNT(required); i++)
        CHECK(has(required[i]));
    if (version >= V(3, 0)) {
        check_atomics(CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES, relaxed);
        check_atomics(CL_DEVICE_ATOMIC_FENCE_CAPABILITIES,
                      relaxed | CL_DEVICE_ATOMIC_ORDER_ACQ_REL);
    }
}

/* ---- what 3.0 makes optional: each ability, its numbers, its feature and its calls, all or none
 */

static void check_features(void)
{
    struct versions features = versions_of(CL_DEVICE_OPENCL_C_FEATURES);
    uint64_t atomics = NUMBER(ATOMIC_MEMORY_CAPABILITIES, ULONG);
    const struct {
        const char *feature;
        bool there;
    } abilities[] = {
        {"__opencl_c_images", images},
        {"__opencl_c_read_write_images", NUMBER(MAX_READ_WRITE_IMAGE_ARGS, UINT) != 0},
        {"__opencl_c_3d_image_writes", has("cl_khr_3d_image_writes")},
        {"__opencl_c_fp64", has("cl_khr_fp64")},
        {"__opencl_c_subgroups", NUMBER(MAX_NUM_SUB_GROUPS, UINT) != 0},
        {"__opencl_c_generic_address_space", TRUTH(GENERIC_ADDRESS_SPACE_SUPPORT)},
        {"__opencl_c_work_group_collective_functions",
         TRUTH(WORK_GROUP_COLLECTIVE_FUNCTIONS_SUPPORT)},
        {"__opencl_c_pipes", TRUTH(PIPE_SUPPORT)},
        {"__opencl_c_device_enqueue", NUMBER(MAX_ON_DEVICE_QUEUES, UINT) != 0},
        {"__opencl_c_program_scope_global_variables", NUMBER(MAX_GLOBAL_VARIABLE_SIZE, SIZE) != 0},
        {"__opencl_c_atomic_order_acq_rel", (atomics & CL_DEVICE_ATOMIC_ORDER_ACQ_REL) != 0},
        {"__opencl_c_atomic_order_seq_cst", (atomics & CL_DEVICE_ATOMIC_ORDER_SEQ_CST) != 0},
        {"__opencl_c_atomic_scope_device", (atomics & CL_DEVICE_ATOMIC_SCOPE_DEVICE) != 0},
        {"__opencl_c_atomic_scope_all_devices",
         (atomics & CL_DEVICE_ATOMIC_SCOPE_ALL_DEVICES) != 0},
    };
    for (size_t i = 0; i < COUNT(abilities); i++)
        if (wanted(abilities[i].feature) &&
            versions_have(&features, abilities[i].feature) != abilities[i].there)
            failed(abilities[i].feature, __LINE__);
    CHECK(!full || versions_have(&features, "__opencl_c_int64"));
}

static void check_no_svm(cl_kernel kernel)
{
    void *bogus = &bogus;
    cl_uint pattern = 7;
    CHECK(!clSVMAlloc(p.context, CL_MEM_READ_WRITE, 64, 0));
    const cl_int errors[] = {
        clEnqueueSVMMemFill(p.queue, bogus, &pattern, sizeof(pattern), 16, 0, NULL, NULL),
        clEnqueueSVMMemcpy(p.queue, CL_TRUE, bogus, bogus, 16, 0, NULL, NULL),
        clEnqueueSVMMap(p.queue, CL_TRUE, CL_MAP_READ, bogus, 16, 0, NULL, NULL),
        clEnqueueSVMUnmap(p.queue, bogus, 0, NULL, NULL),
        clEnqueueSVMMigrateMem(p.queue, 1, (const void **)&bogus, NULL, 0, 0, NULL, NULL),
        clEnqueueSVMFree(p.queue, 1, &bogus, NULL, NULL, 0, NULL, NULL),
        clSetKernelArgSVMPointer(kernel, 0, NULL),
        clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_PTRS, 0, NULL),
    };
    for (unsigned i = 0; i < COUNT(errors); i++)
        CHECK_NAMED(errors[i] == CL_INVALID_OPERATION, "the number of a refused call", i);
}

static void check_device_queues(void)
{
    uint64_t queues = wanted("enqueue-size") ? NUMBER(DEVICE_ENQUEUE_CAPABILITIES, ULONG) : 0;
    cl_command_queue queue = p.queue;
    cl_uint size = 0;
    if (queues) {
        CHECK(queues & CL_DEVICE_QUEUE_SUPPORTED);
        CHECK(TRUTH(GENERIC_ADDRESS_SPACE_SUPPORT));
        return;
    }
    CHECK(NUMBER(QUEUE_ON_DEVICE_PROPERTIES, ULONG) == 0);
    CHECK(NUMBER(QUEUE_ON_DEVICE_PREFERRED_SIZE, UINT) == 0);
    CHECK(NUMBER(QUEUE_ON_DEVICE_MAX_SIZE, UINT) == 0);
    CHECK(NUMBER(MAX_ON_DEVICE_QUEUES, UINT) == 0);
    CHECK(NUMBER(MAX_ON_DEVICE_EVENTS, UINT) == 0);
    if (!wanted("queue-size"))
        return;
    CHECK(clGetCommandQueueInfo(p.queue, CL_QUEUE_SIZE, sizeof(size), &size, NULL) ==
          CL_INVALID_COMMAND_QUEUE);
    CHECK(clGetCommandQueueInfo(p.queue, CL_QUEUE_DEVICE_DEFAULT, sizeof(queue), &queue, NULL) ==
              CL_SUCCESS &&
          !queue);
    CHECK(clSetDefaultDeviceCommandQueue(p.context, p.device, NULL) == CL_INVALID_OPERATION);
}

static void check_pipes(void)
{
    cl_int error = CL_SUCCESS;
    if (TRUTH(PIPE_SUPPORT))
        return;
    CHECK(NUMBER(MAX_PIPE_ARGS, UINT) == 0);
    CHECK(NUMBER(PIPE_MAX_ACTIVE_RESERVATIONS, UINT) == 0);
    CHECK(NUMBER(PIPE_MAX_PACKET_SIZE, UINT) == 0);
    CHECK(!clCreatePipe(p.context, CL_MEM_HOST_NO_ACCESS, 4, 4, NULL, &error));
    CHECK(error == CL_INVALID_OPERATION);
}

static void check_subgroups(cl_kernel kernel)
{
    size_t size = 0;
    bool there = NUMBER(MAX_NUM_SUB_GROUPS, UINT) != 0;
    CHECK(!has("cl_khr_subgroups") || there);
    if (there)
        return;
    CHECK(!TRUTH(SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS));
    if (wanted("sub-group-info"))
        CHECK(clGetKernelSubGroupInfo(kernel, p.device, CL_KERNEL_MAX_NUM_SUB_GROUPS, 0, NULL,
                                      sizeof(size), &size, NULL) == CL_INVALID_OPERATION);
}

static void check_global_variables(cl_program program)
{
    size_t size = 1;
    if (NUMBER(MAX_GLOBAL_VARIABLE_SIZE, SIZE))
        return;
    CHECK(NUMBER(GLOBAL_VARIABLE_PREFERRED_TOTAL_SIZE, SIZE) == 0);
    CHECK(clGetProgramBuildInfo(program, p.device, CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE,
                                sizeof(size), &size, NULL) == CL_SUCCESS);
    CHECK(size == 0);
}

static void check_partitions(void)
{
    cl_device_partition_property properties[16] = {1};
    const cl_device_partition_property equally[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    size_t size = 0;
    cl_device_id part = NULL;
    CHECK(clGetDeviceInfo(p.device, CL_DEVICE_PARTITION_PROPERTIES, sizeof(properties), properties,
                          &size) == CL_SUCCESS);
    CHECK(size >= sizeof(properties[0]) && size % sizeof(properties[0]) == 0);
    CHECK(clGetDeviceInfo(p.device, CL_DEVICE_PARENT_DEVICE, sizeof(part), &part, &size) ==
              CL_SUCCESS &&
          size == sizeof(part) && !part);
    CHECK(NUMBER(REFERENCE_COUNT, UINT) == 1);
    if (properties[0])
        return;
    CHECK(NUMBER(PARTITION_MAX_SUB_DEVICES, UINT) <= 1);
    CHECK(clCreateSubDevices(p.device, equally, 0, NULL, NULL) == CL_INVALID_VALUE);
}

static void check_abilities(void)
{
    cl_program program = prog_build(&p, "kernel void set(global int *to) { to[0] = 1; }", "");
    cl_kernel kernel = prog_kernel(program, "set");
    check_features();
    if (NUMBER(SVM_CAPABILITIES, ULONG) == 0)
        check_no_svm(kernel);
    check_device_queues();
    check_pipes();
    check_subgroups(kernel);
    check_global_variables(program);
    RELEASE(kernel, program);
}

/* ---- image limits, the formats that images may have, and what both say of each other ---- */

#define WRITTEN 3 /* Of accesses: those for which kernels write. */
static const cl_mem_flags accesses[] = {CL_MEM_WRITE_ONLY, CL_MEM_READ_WRITE,
                                        CL_MEM_KERNEL_READ_AND_WRITE, CL_MEM_READ_ONLY};

static cl_int formats_of(cl_context context, cl_mem_object_type type, cl_uint most,
                         cl_image_format *formats, cl_uint *ret_count)
{
    return clGetSupportedImageFormats(context, CL_MEM_READ_WRITE, type, most, formats, ret_count);
}

/* How many formats there are; @ret_depth counts those of depth. */
static cl_uint count_formats(cl_mem_flags access, cl_mem_object_type type, cl_uint *ret_depth)
{
    cl_uint count = 0, again = 0;
    CHECK(clGetSupportedImageFormats(p.context, access, type, 0, NULL, &count) == CL_SUCCESS);
    cl_image_format *formats = calloc(count + 1, sizeof(*formats));
    CHECK(!count || (clGetSupportedImageFormats(p.context, access, type, count, formats, &again) ==
                         CL_SUCCESS &&
                     again == count));
    for (cl_uint i = 0; i < count; i++) {
        *ret_depth += formats[i].image_channel_order == CL_DEPTH;
        for (cl_uint j = 0; j < i; j++)
            CHECK(memcmp(&formats[i], &formats[j], sizeof(formats[i])) != 0);
    }
    free(formats);
    return count;
}

static void check_formats(void)
{
    static const cl_mem_object_type types[] = {
        CL_MEM_OBJECT_IMAGE2D,       CL_MEM_OBJECT_IMAGE3D, CL_MEM_OBJECT_IMAGE2D_ARRAY,
        CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_MEM_OBJECT_IMAGE1D, CL_MEM_OBJECT_IMAGE1D_BUFFER};
    cl_uint all = 0, written_3d = 0, both = 0, depth = 0, count = 0, ignored = 0;
    cl_image_format format;
    for (size_t i = 0; i < COUNT(accesses); i++) {
        if (accesses[i] == CL_MEM_KERNEL_READ_AND_WRITE && version < V(2, 0))
            continue;
        for (size_t j = 0; j < COUNT(types); j++) {
            bool plain = types[j] == CL_MEM_OBJECT_IMAGE2D && i < WRITTEN;
            cl_uint here = count_formats(accesses[i], types[j], plain ? &depth : &ignored);
            all += here;
            written_3d += types[j] == CL_MEM_OBJECT_IMAGE3D && i < WRITTEN ? here : 0;
            both += accesses[i] == CL_MEM_KERNEL_READ_AND_WRITE ? here : 0;
        }
    }
    CHECK((all != 0) == images);
    if (version >= V(3, 0)) {
        CHECK((both != 0) == (NUMBER(MAX_READ_WRITE_IMAGE_ARGS, UINT) != 0));
        CHECK((depth != 0) == has("cl_khr_depth_images"));
        CHECK((written_3d != 0) == has("cl_khr_3d_image_writes"));
    }
    CHECK(formats_of(NULL, types[0], 0, NULL, &count) == CL_INVALID_CONTEXT);
    CHECK(formats_of(p.context, CL_MEM_OBJECT_BUFFER, 0, NULL, &count) == CL_INVALID_VALUE);
    CHECK(formats_of(p.context, types[0], 0, &format, &count) == CL_INVALID_VALUE);
}

/* A 2D image from a buffer: two alignments and an extension, or an error of its own. */
static void check_from_buffer(void)
{
    const cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 2, .image_height = 2};
    bool there = has("cl_khr_image2d_from_buffer");
    cl_int error = CL_SUCCESS;
    if (version < V(3, 0) && !there)
        return;
    CHECK((NUMBER(IMAGE_PITCH_ALIGNMENT, UINT) != 0) == there);
    CHECK((NUMBER(IMAGE_BASE_ADDRESS_ALIGNMENT, UINT) != 0) == there);
    if (there || !wanted("from-buffer"))
        return;
    desc.mem_object = prog_buffer(p.context, CL_MEM_READ_ONLY, 64, NULL);
    CHECK(!clCreateImage(p.context, CL_MEM_READ_ONLY, &format, &desc, NULL, &error));
    CHECK(error == CL_INVALID_OPERATION);
    RELEASE(desc.mem_object);
}

static void check_images(void)
{
    uint64_t width = NUMBER(IMAGE2D_MAX_WIDTH, SIZE), height = NUMBER(IMAGE2D_MAX_HEIGHT, SIZE);
    check_formats();
    if (images)
        check_from_buffer();
    if (images && version >= V(2, 0) && full && wanted("image2d"))
        CHECK(width >= 16384 && height >= 16384);
    CHECK(images || (width == 0 && NUMBER(MAX_SAMPLERS, UINT) == 0));
}

/* ---- what the compiler says by macros of what is there, against the device (6.2.1, 6.10) ---- */

static const char *const told_extensions[] = {"cl_khr_fp64",
                                              "cl_khr_fp16",
                                              "cl_khr_int64_base_atomics",
                                              "cl_khr_int64_extended_atomics",
                                              "cl_khr_3d_image_writes",
                                              "cl_khr_subgroups",
                                              "cl_khr_depth_images",
                                              "cl_khr_byte_addressable_store"};
static const char *const told_features[] = {"__opencl_c_fp64",
                                            "__opencl_c_pipes",
                                            "__opencl_c_device_enqueue",
                                            "__opencl_c_program_scope_global_variables",
                                            "__opencl_c_generic_address_space",
                                            "__opencl_c_read_write_images",
                                            "__opencl_c_3d_image_writes",
                                            "__opencl_c_subgroups",
                                            "__opencl_c_work_group_collective_functions",
                                            "__opencl_c_atomic_order_acq_rel",
                                            "__opencl_c_atomic_order_seq_cst",
                                            "__opencl_c_atomic_scope_device",
                                            "__opencl_c_atomic_scope_all_devices"};
#define NAMES_MAX 16

/* One number for each name, 1 where it is defined; then the version, and the line of the end. */
static void compile_names(const char *const *names, size_t count, const char *options,
                          cl_int ret_answers[NAMES_MAX + 2])
{
    char source[8192] = "kernel void ask(global int *to) {\n";
    size_t used = strlen(source), size = (NAMES_MAX + 2) * sizeof(cl_int);
    cl_mem answers = prog_buffer(p.context, CL_MEM_WRITE_ONLY, size, NULL);
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(source + used, sizeof(source) - used,
                                 "to[%zu] = 0;\n#ifdef %s\nto[%zu] = 1;\n#endif\n", i, names[i], i);
    snprintf(source + used, sizeof(source) - used,
             "to[%d] = __OPENCL_VERSION__; to[%d] = __LINE__; }\n", NAMES_MAX, NAMES_MAX + 1);
    cl_program program = prog_build(&p, source, options);
    cl_kernel kernel = prog_kernel(program, "ask");
    prog_arg(kernel, 0, sizeof(answers), &answers);
    prog_run(p.queue, kernel, 1);
    prog_read(p.queue, answers, 0, size, ret_answers);
    CHECK(ret_answers[NAMES_MAX + 1] == (cl_int)(2 + 4 * count));
    RELEASE(kernel, program, answers);
}

static void check_macros(void)
{
    cl_int answers[NAMES_MAX + 2];
    compile_names(told_extensions, COUNT(told_extensions), "", answers);
    for (size_t i = 0; i < COUNT(told_extensions); i++)
        if ((answers[i] != 0) != has(told_extensions[i]) && wanted(told_extensions[i]))
            failed(told_extensions[i], __LINE__);
    if (wanted("macro-version"))
        CHECK(answers[NAMES_MAX] ==
              (cl_int)(CL_VERSION_MAJOR(version) * 100 + CL_VERSION_MINOR(version) * 10));
    if (version < V(3, 0))
        return;
    struct versions told = versions_of(CL_DEVICE_OPENCL_C_FEATURES);
    compile_names(told_features, COUNT(told_features), "-cl-std=CL3.0", answers);
    for (size_t i = 0; i < COUNT(told_features); i++)
        if ((answers[i] != 0) != versions_have(&told, told_features[i]) && wanted(told_features[i]))
            failed(told_features[i], __LINE__);
}

int main(int argc, char **argv)
{
    uint64_t memory = (uint64_t)prog_option(argc, argv, "--memory", 0);
    without = prog_option_text(argc, argv, "--without", "");
    prog_open(&p);
    extensions = text_of(CL_DEVICE_EXTENSIONS);
    version = version_of(text_of(CL_DEVICE_VERSION), "OpenCL ");
    c_version = version_of(text_of(CL_DEVICE_OPENCL_C_VERSION), "OpenCL C ");
    platform_version = version_of(text_of(CL_PLATFORM_VERSION), "OpenCL ");
    char *profile = text_of(CL_DEVICE_PROFILE);
    full = strcmp(profile, "FULL_PROFILE") == 0;
    images = TRUTH(IMAGE_SUPPORT);
    CHECK(full || strcmp(profile, "EMBEDDED_PROFILE") == 0);
    const size_t before = kept.used;
    do {
        kept.used = before;
        check_platform();
        check_versions();
        check_limits(memory);
        if (wanted("partitions"))
            check_partitions();
        if (version >= V(3, 0))
            check_abilities();
        check_images();
        if (wanted("macros"))
            check_macros();
    } while (prog_again());
    if (wrong) {
        printf("%d answers are wrong\n", wrong);
        return 1;
    }
    printf("every answer agrees\n");
    return 0;
}
