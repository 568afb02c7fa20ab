#include "state/object/residence.h"
#include "state/program/program_priv.h"
#include "tests/support/calls.h"
#include "tests/support/folder.h"

/* Each driver of the machine: what it builds, what it makes of its own binary, and whether the
 * library tells the difference. */

static const char source[] =
    "struct pair { int a; float b; };\n"
    "kernel void first(global int *restrict out, const int n, local float *scratch,\n"
    "                  constant float4 *c, struct pair p)\n"
    "{ scratch[0] = c[0].x; out[get_global_id(0)] = n * 3 + p.a; }\n"
    "kernel void second(global uint *out) { out[get_global_id(0)] = get_local_id(0); }\n"
    "kernel void third(read_only image2d_t in, write_only image2d_t to, sampler_t s)\n"
    "{ write_imagef(to, (int2)(0, 0), read_imagef(in, s, (int2)(0, 0))); }\n"
    "kernel void fourth(global int *out) { out[0] = 44; }\n";

static struct device **devices;
static size_t device_count;
static char above[SCRATCH_MAX];

static void setup(void)
{
    cr_assert_eq(driver_list(&devices, &device_count), 0);
    folder_make(above);
    snprintf(the_library.folder, sizeof(the_library.folder), "%s/binaries", above);
    the_library.limit = 1 << 30;
}
TestSuite(library_drivers, .init = setup, .timeout = 300);

static struct recipe *recipe_of(const char *text)
{
    struct recipe *base, *built;
    cr_assert_eq(recipe_source(1, &text, NULL, &base), 0);
    cr_assert_eq(recipe_built(base, "-cl-kernel-arg-info", NULL, 0, &built), 0);
    recipe_unref(base);
    return built;
}

/* fourth(): 44. */
static void check_runs(struct residence *residence, cl_program real)
{
    const cl_icd_dispatch *cl = residence->cl;
    const size_t one = 1;
    cl_int number = 0;
    cl_kernel kernel = MADE(cl->clCreateKernel, real, "fourth");
    cl_mem buffer = MADE(cl->clCreateBuffer, residence->context, 0, sizeof(number), NULL);
    OK(cl->clSetKernelArg(kernel, 0, sizeof(buffer), &buffer));
    OK(cl->clEnqueueNDRangeKernel(residence->io, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
    OK(cl->clEnqueueReadBuffer(residence->io, buffer, CL_TRUE, 0, sizeof(number), &number, 0, NULL,
                               NULL));
    cr_assert_eq(number, 44);
    cl->clReleaseMemObject(buffer);
    cl->clReleaseKernel(kernel);
}

static struct residence *reside(struct device *device)
{
    struct context *context;
    struct residence *residence;
    cl_int error;
    static bool begun;
    if (!begun)
        cr_assert_eq(vdevs_init(&device, 1), 0);
    begun = true;
    OK(context_create(NULL, 1, the_vdevs, NULL, NULL, &context));
    cr_assert_eq(residence_create(context, device, &residence, &error), 0);
    return residence;
}

static size_t words_in(const char *names)
{
    size_t count = names[0] != '\0';
    for (; *names; names++)
        count += *names == ';';
    return count;
}

static void round_trip(struct device *device)
{
    struct recipe *recipe = recipe_of(source);
    struct residence *residence = reside(device);
    struct program_outcome built = {0}, loaded = {0};
    struct program_lookup lookup;
    unsigned char before[CONTENT_HASH_SIZE], after[CONTENT_HASH_SIZE];
    cl_program real = NULL, again = NULL;
    /* Also of those whose binaries are not worth it, so that the comparison is tried on them. */
    unsigned quirks = device->quirks;
    device->quirks &= ~(unsigned)(QUIRK_BINARY_COMPILES | QUIRK_BINARY_IS_IL);
    cr_assert_not(program_library_load(recipe, residence, &again, &loaded, &lookup));
    cr_assert(lookup.keep);
    OK(recipe_follow(recipe, residence, &real, &built));
    cr_assert(built.known);
    cr_assert_eq(built.kernel_count, 4);
    cr_assert_eq(words_in(built.kernel_names), 4);
    cr_assert(program_library_load(recipe, residence, &again, &loaded, &lookup), "%s: no binary",
              device->key.device);
    cr_assert_eq(loaded.status, CL_BUILD_SUCCESS);
    cr_assert_eq(loaded.type, CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
    cr_assert_eq(loaded.globals, built.globals);
    cr_assert_eq(loaded.kernel_count, built.kernel_count);
    cr_assert_str_eq(loaded.kernel_names, built.kernel_names);
    cr_assert_str_eq(loaded.log, built.log ? built.log : "");
    cr_assert(program_answers_hash(residence, real, built.kernel_names, before));
    cr_assert(program_answers_hash(residence, again, loaded.kernel_names, after));
    cr_assert_eq(memcmp(before, after, sizeof(before)), 0);
    check_runs(residence, real);
    check_runs(residence, again);
    program_outcome_finish(&built);
    program_outcome_finish(&loaded);
    residence->cl->clReleaseProgram(real);
    residence->cl->clReleaseProgram(again);
    recipe_unref(recipe);
    device->quirks = quirks;
}

Test(library_drivers, what_a_binary_says_is_what_its_build_said)
{
    size_t tried = 0;
    for (size_t i = 0; i < device_count; i++) {
        round_trip(devices[i]);
        tried++;
    }
    cr_assert_gt(tried, 0);
}

static void attributes_of(const struct residence *residence, cl_program real, char ret[256])
{
    cl_kernel kernel = MADE(residence->cl->clCreateKernel, real, "fourth");
    memset(ret, 0, 256);
    OK(residence->cl->clGetKernelInfo(kernel, CL_KERNEL_ATTRIBUTES, 255, ret, NULL));
    residence->cl->clReleaseKernel(kernel);
}

/* POCL's binaries have no attributes, and Oclgrind reads them from memory that it let go of: then
 * the program is built from source. */
Test(library_drivers, a_binary_without_attributes_is_not_used)
{
    struct recipe *recipe =
        recipe_of("kernel __attribute__((reqd_work_group_size(1, 1, 1))) void fourth(\n"
                  "    global int *out) { out[0] = 44; }\n");
    struct residence *residence = reside(devices[0]);
    struct program_outcome outcome = {0};
    struct program_lookup lookup;
    struct library_entry entry;
    char before[256], after[256];
    cl_program real = NULL, again = NULL;
    devices[0]->quirks &= ~(unsigned)(QUIRK_BINARY_COMPILES | QUIRK_BINARY_IS_IL);
    OK(recipe_follow(recipe, residence, &real, NULL));
    attributes_of(residence, real, before);
    if (program_library_load(recipe, residence, &again, &outcome, &lookup)) {
        attributes_of(residence, again, after);
        cr_assert_str_eq(before, after);
        cr_assert_str_eq(devices[0]->key.platform, "rusticl");
    } else {
        cr_assert_eq(library_find(&the_library, &lookup.key, &entry), 0);
        cr_assert_eq(entry.origin, LIBRARY_UNFIT);
        cr_assert_not(lookup.keep);
        library_entry_finish(&entry);
        OK(recipe_follow(recipe, residence, &again, NULL));
    }
    check_runs(residence, again);
}

/* What is not worth it is not kept. */
Test(library_drivers, drivers_whose_binaries_cost_more_are_left_alone)
{
    struct recipe *recipe = recipe_of(source);
    for (size_t i = 0; i < device_count; i++) {
        struct program_outcome outcome = {0};
        struct program_lookup lookup;
        cl_program real = NULL;
        bool worth = !(devices[i]->quirks & (QUIRK_BINARY_COMPILES | QUIRK_BINARY_IS_IL));
        cr_assert_not(program_library_load(recipe, reside(devices[i]), &real, &outcome, &lookup));
        cr_expect_eq(lookup.keep, worth, "%s", devices[i]->key.device);
    }
    recipe_unref(recipe);
}

/* A hash that does not see a difference would pass every binary. */
Test(library_drivers, kernels_that_differ_have_other_answers)
{
    static const char *const texts[] = {
        "kernel void k(global int *a, int b) { a[0] = b; }",
        "kernel void k(global int *a, uint b) { a[0] = b; }",
        "kernel void k(global int *a, int c) { a[0] = c; }",
        "kernel void k(constant int *a, int b) { }",
        "kernel void k(global int *a, int b, local int *c) { a[0] = b; }",
        "kernel void k(global const int *a, int b) { }",
        ("kernel __attribute__((reqd_work_group_size(2, 1, 1))) void k(global int *a, int b)\n"
         "{ a[0] = b; }"),
        "kernel void m(global int *a, int b) { a[0] = b; }",
    };
    unsigned char hashes[ARRAY_SIZE(texts)][CONTENT_HASH_SIZE];
    struct residence *residence = reside(devices[0]);
    the_library.folder[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct recipe *recipe = recipe_of(texts[i]);
        struct program_outcome outcome = {0};
        cl_program real = NULL;
        OK(recipe_follow(recipe, residence, &real, NULL));
        program_outcome_query(residence, real, &outcome);
        cr_assert(program_answers_hash(residence, real, outcome.kernel_names, hashes[i]));
        for (size_t j = 0; j < i; j++)
            cr_expect_neq(memcmp(hashes[i], hashes[j], CONTENT_HASH_SIZE), 0, "%zu and %zu", i, j);
        program_outcome_finish(&outcome);
        residence->cl->clReleaseProgram(real);
        recipe_unref(recipe);
    }
}

static const struct program_notify nobody = {NULL, NULL};

static void expect_names(struct program *program, const char *wanted)
{
    char *names = program_text(program, 0, PROGRAM_TEXT_KERNELS);
    cr_assert_not_null(names);
    cr_expect_str_eq(names, wanted);
    cr_expect_eq(program_kernel_count(program), words_in(wanted));
    free(names);
}

/* What drivers say in their own ways when a program is built again, or cannot be. */
Test(library_drivers, a_program_is_told_the_same_by_each)
{
    static const char text[] =
        "#ifdef MORE\nkernel void more(global int *a) { a[0] = 2; }\n#endif\n"
        "#ifdef WRONG\n#error wrong\n#endif\n"
        "kernel void k(global int *a) { a[0] = 1; }\n";
    const char *source_text = text;
    const struct program_list none = {0};
    struct context *context;
    struct recipe *recipe;
    struct program *program;
    cr_assert_eq(vdevs_init(devices, 1), 0);
    OK(context_create(NULL, 1, the_vdevs, NULL, NULL, &context));
    cr_assert_eq(recipe_source(1, &source_text, NULL, &recipe), 0);
    OK(program_create(context, 1, recipe, false, &program));
    recipe_unref(recipe);
    cr_expect_eq(program_build(program, 1, "-no-such-option", nobody), CL_INVALID_BUILD_OPTIONS);
    cr_expect_eq(program_build(program, 1, "-DMORE", nobody), CL_SUCCESS);
    cr_expect_eq(program_kernel_count(program), 2);
    cr_expect_eq(program_build(program, 1, "", nobody), CL_SUCCESS);
    expect_names(program, "k");
    cr_expect_eq(program_build(program, 1, "-no-such-option", nobody), CL_INVALID_BUILD_OPTIONS);
    cr_expect_not(program_is_executable(program, ~0u));
    cr_expect_eq(program_build(program, 1, "-DWRONG", nobody), CL_BUILD_PROGRAM_FAILURE);
    cr_expect_not(program_is_executable(program, ~0u));
    cr_expect_eq(program_build(program, 1, "-DX", nobody), CL_SUCCESS);
    expect_names(program, "k");
    cr_expect_eq(program_compile(program, 1, "-no-such-option", &none, nobody),
                 CL_INVALID_COMPILER_OPTIONS);
    cr_expect_eq(program_compile(program, 1, "-DWRONG", &none, nobody), CL_COMPILE_PROGRAM_FAILURE);
    cr_expect_eq(program_compile(program, 1, "", &none, nobody), CL_SUCCESS);
    object_release(program);
}
