#include "state/object/usage.h"
#include "state/recipe/container.h"
#include "tests/state/program/pair.h"
#include "tests/support/calls.h"
#include "tests/support/folder.h"
#include "tests/support/repeat.h"

static const struct recipe_constant *const no_constants = NULL;
static const struct program_notify nobody = {NULL, NULL};

TestSuite(program, .fini = pair_finish);

/* What the kernel "k" of @program writes in @residence_index, of which it was made real. */
static int result(struct program *program, struct residence *residence, uint8_t residence_index)
{
    int number = -1;
    cl_kernel kernel = MADE(residence->cl->clCreateKernel, program->real[residence_index], "k");
    pair_run(residence, kernel, &number, 1);
    residence->cl->clReleaseKernel(kernel);
    return number;
}

static void same_on_both(struct pair *pair, struct program *program, int expected)
{
    OK(program_make_real(program, pair->other, OTHER, NULL));
    cr_assert_eq(result(program, pair->context->at[HOME], HOME), expected);
    cr_assert_eq(result(program, pair->other, OTHER), expected);
}

Test(program, a_build_is_followed_with_its_options)
{
    struct pair pair;
    pair_init(&pair);
    struct program *program = pair_source(&pair, "kernel void k(global int *a) { *a = X; }");
    OK(program_build(program, 1, "-DX=77", nobody));
    same_on_both(&pair, program, 77);
}

/* Which compilers pass over where it is the first of all. */
Test(program, text_in_front_fails_no_source_with_a_mark)
{
    struct pair pair;
    pair_init(&pair);
    program_prologue = "#undef reseat_hidden\n#line 1\n";
    struct program *program =
        pair_source(&pair, "\xef\xbb\xbfkernel void k(global int *a) { *a = X; }");
    OK(program_build(program, 1, "-DX=5", nobody));
    same_on_both(&pair, program, 5);
}

Test(program, a_mover_learns_of_a_build_that_came_after_it_prepared)
{
    struct pair pair;
    pair_init(&pair);
    struct program *program = pair_source(&pair, "kernel void k(global int *a) { *a = X; }");
    OK(program_build(program, 1, "-DX=1", nobody));
    OK(program_make_real(program, pair.other, OTHER, NULL));
    cr_assert_eq(program->made[OTHER], program->edition);
    cl_program before = program->real[OTHER];
    OK(program_make_real(program, pair.other, OTHER, NULL));
    cr_assert_eq(program->real[OTHER], before);
    OK(program_build(program, 1, "-DX=2", nobody));
    cr_assert_eq(program->made[HOME], program->edition);
    cr_assert_neq(program->made[OTHER], program->edition);
    same_on_both(&pair, program, 2);
}

/* The program, compiled with a header, and linked with a library. */
static struct program *linked(struct pair *pair)
{
    struct program *header = pair_source(pair, "#define N 5\n");
    struct program *f = pair_source(pair, "#include \"n.h\"\nint f(int x) { return x + N; }");
    struct program *k =
        pair_source(pair, "int f(int); kernel void k(global int *a) { *a = f(2); }");
    struct program *programs[2] = {k}, *library = NULL, *executable = NULL;
    const char *name = "n.h";
    const struct program_list none = {0}, headers = {1, &header, &name};
    OK(program_compile(f, 1, NULL, &headers, nobody));
    OK(program_compile(k, 1, "", &none, nobody));
    const struct program_list of_library = {1, &f, NULL}, both = {2, programs, NULL};
    OK(program_link(pair->context, 1, "-create-library", &of_library, nobody, &library));
    programs[1] = library;
    OK(program_link(pair->context, 1, NULL, &both, nobody, &executable));
    object_release(header);
    object_release(f);
    object_release(k);
    object_release(library);
    return executable;
}

Test(program, what_was_linked_needs_none_of_its_parts_any_more)
{
    struct pair pair;
    pair_init(&pair);
    struct program *program = linked(&pair);
    same_on_both(&pair, program, 7);
}

/* 5.9.3: the library adds the option for itself, of which the program is not to be told. */
Test(program, tells_of_parameters_where_some_of_its_source_was_to)
{
    struct pair pair;
    pair_init(&pair);
    const char *text = "kernel void k(global int *a) { *a = 7; }";
    struct program *silent = pair_source(&pair, text), *told = pair_source(&pair, text), *both;
    struct program *part = pair_source(&pair, "void f(void) {}");
    struct program *parts[2] = {told, part};
    const struct program_list none = {0}, list = {2, parts, NULL};
    OK(program_build(silent, 1, "-DX", nobody));
    cr_assert(!program_tells_parameters(silent));
    cr_assert(!program_tells_parameters(linked(&pair)));
    OK(program_compile(told, 1, "-cl-kernel-arg-info", &none, nobody));
    OK(program_compile(part, 1, NULL, &none, nobody));
    OK(program_link(pair.context, 1, NULL, &list, nobody, &both));
    cr_assert(program_tells_parameters(both));
    OK(program_build(told, 1, "-cl-kernel-arg-info", nobody));
    cr_assert(program_tells_parameters(told));
}

Test(program, a_container_becomes_the_same_program_on_the_other_device)
{
    struct pair pair;
    pair_init(&pair);
    struct program *programs[] = {linked(&pair),
                                  pair_source(&pair, "kernel void k(global int *a) { *a = X; }")};
    OK(program_build(programs[1], 1, "-DX=7", nobody));
    for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
        unsigned char *bytes;
        size_t size;
        struct recipe *recipe;
        struct program *copy;
        cr_assert_eq(program_container(programs[i], 0, &bytes, &size), 0);
        cr_assert_eq(container_read(bytes, size, &recipe), 0);
        OK(program_create(pair.context, 1, recipe, true, &copy));
        recipe_unref(recipe);
        /* Whatever options come with it now. */
        OK(program_build(copy, 1, "-DX=9", nobody));
        same_on_both(&pair, copy, 7);
        free(bytes);
    }
}

Test(program, has_no_container_before_it_is_built_nor_after_a_build_in_vain)
{
    struct pair pair;
    pair_init(&pair);
    struct program *program = pair_source(&pair, "kernel void k(global int *a) { *a = X; }");
    size_t size = 1;
    cr_assert_eq(program_container(program, 0, NULL, &size), 0);
    cr_assert_eq(size, 0);
    OK(program_build(program, 1, "-DX=7", nobody));
    cr_assert_eq(program_container(program, 0, NULL, &size), 0);
    cr_assert_gt(size, 0);
    cr_assert_eq(program_build(program, 1, "-DX=}", nobody), CL_BUILD_PROGRAM_FAILURE);
    cr_assert_eq(program_container(program, 0, NULL, &size), 0);
    cr_assert_eq(size, 0);
}

Test(program, a_failed_build_keeps_its_log_and_does_not_hinder_a_move)
{
    struct pair pair;
    struct program_state state;
    pair_init(&pair);
    struct program *program = pair_source(&pair, "kernel void k(global int *a) { *a = wrong; }");
    cr_assert_eq(program_build(program, 1, "-DY", nobody), CL_BUILD_PROGRAM_FAILURE);
    OK(program_make_real(program, pair.other, OTHER, NULL));
    pair_move(&pair);
    program_vdev_state(program, 0, &state);
    cr_assert_eq(state.status, CL_BUILD_ERROR);
    char *log = program_text(program, 0, PROGRAM_TEXT_LOG);
    char *options = program_text(program, 0, PROGRAM_TEXT_OPTIONS);
    cr_assert(strstr(log, "wrong"));
    cr_assert_str_eq(options, "-DY");
    free(log);
    free(options);
}

/* On the other device it is made from the headers that were kept, where the disk has others. */
Test(program, a_moved_program_is_built_again_with_the_headers_of_now)
{
    char folder[SCRATCH_MAX], options[SCRATCH_MAX + 3];
    struct pair pair;
    pair_init(&pair);
    folder_make(folder);
    snprintf(options, sizeof(options), "-I %s", folder);
    struct program *program =
        pair_source(&pair, "#include \"x.h\"\nkernel void k(global int *a) { *a = X; }");
    folder_put(folder, "x.h", "#define X 1\n");
    OK(program_build(program, 1, options, nobody));
    folder_put(folder, "x.h", "#define X 2\n");
    same_on_both(&pair, program, 1);
    pair_move(&pair);
    OK(program_build(program, 1, options, nobody));
    cr_assert_eq(result(program, pair.other, OTHER), 2);
}

/* As above, and in vain: what is left of the build before is not the program's any more. */
Test(program, a_moved_program_whose_headers_broke_has_failed_to_build)
{
    char folder[SCRATCH_MAX], options[SCRATCH_MAX + 3];
    struct pair pair;
    struct kernel *kernel;
    struct program_state state;
    pair_init(&pair);
    folder_make(folder);
    snprintf(options, sizeof(options), "-I %s", folder);
    struct program *program =
        pair_source(&pair, "#include \"x.h\"\nkernel void k(global int *a) { *a = X; }");
    folder_put(folder, "x.h", "#define X 1\n");
    OK(program_build(program, 1, options, nobody));
    folder_put(folder, "x.h", "#error broken\n");
    OK(program_make_real(program, pair.other, OTHER, NULL));
    pair_move(&pair);
    cr_assert_eq(program_build(program, 1, options, nobody), CL_BUILD_PROGRAM_FAILURE);
    program_vdev_state(program, 0, &state);
    cr_expect_eq(state.status, CL_BUILD_ERROR);
    char *log = program_text(program, 0, PROGRAM_TEXT_LOG);
    cr_expect(strstr(log, "broken"), "%s", log);
    free(log);
    cr_expect_eq(kernel_create(program, "k", &kernel), CL_INVALID_PROGRAM_EXECUTABLE);
    folder_put(folder, "x.h", "#define X 3\n");
    OK(program_build(program, 1, options, nobody));
    cr_assert_eq(result(program, pair.other, OTHER), 3);
}

Test(program, kernels_forbid_a_rebuild_until_they_are_released)
{
    struct pair pair;
    struct kernel *kernel;
    pair_init(&pair);
    struct program *program = pair_source(&pair, "kernel void k(global int *a) { *a = 1; }");
    cr_assert_eq(kernel_create(program, "k", &kernel), CL_INVALID_PROGRAM_EXECUTABLE);
    OK(program_build(program, 1, NULL, nobody));
    cr_assert_eq(kernel_create(program, "none", &kernel), CL_INVALID_KERNEL_NAME);
    OK(kernel_create(program, "k", &kernel));
    cr_assert_eq(program_build(program, 1, NULL, nobody), CL_INVALID_OPERATION);
    object_release(kernel);
    OK(program_build(program, 1, NULL, nobody));
}

static void build(void *program, unsigned round)
{
    char options[32];
    snprintf(options, sizeof(options), "-DX=%u", round);
    OK(program_build(program, 1, options, nobody));
}

/* A mover follows the recipe elsewhere, again and again, while the program builds; in the end the
 * move comes in the middle of a build. */
Test(program, builds_and_a_mover_do_not_disturb_each_other)
{
    struct pair pair;
    struct repeat builds;
    pair_init(&pair);
    struct program *program = pair_source(&pair, "kernel void k(global int *a) { *a = X; }");
    build(program, 0);
    repeat_begin(&builds, build, program);
    for (int i = 0; i < 10; i++)
        OK(program_make_real(program, pair.other, OTHER, NULL));
    cr_assert_eq(gate_close(0), 0);
    OK(program_make_real(program, pair.other, OTHER, NULL));
    cr_assert_eq(program->made[OTHER], program->edition);
    gate_open();
    pair_move(&pair);
    struct timespec pause = {0, 300000000};
    nanosleep(&pause, NULL);
    repeat_end(&builds);
    /* pair_move let the gate open in between: what was prepared may be a build behind. */
    OK(program_make_real(program, pair.other, OTHER, NULL));
    cr_assert_eq(result(program, pair.other, OTHER), (int)atomic_load(&builds.rounds));
}

Test(program, claims_only_what_its_source_says_for_certain)
{
    static const char text[] = "// #pragma OPENCL EXTENSION cl_in_comment : enable\n"
                               "/* \n#pragma OPENCL EXTENSION cl_in_block : enable\n*/\n"
                               "#ifdef cl_khr_maybe\n"
                               "#pragma OPENCL EXTENSION cl_khr_maybe : enable\n"
                               "#endif\n"
                               "#pragma OPENCL EXTENSION cl_off : disable\n"
                               "#pragma OPENCL EXTENSION all : enable\n"
                               "  #  pragma OPENCL EXTENSION cl_khr_sure:enable // so\n"
                               "#pragma OPENCL EXTENSION cl_khr_sure : enable\n";
    const char *strings = text;
    struct recipe *source, *recipe;
    struct plan_use use;
    cr_assert_eq(recipe_source(1, &strings, NULL, &source), 0);
    cr_assert_eq(recipe_built(source, "-cl-std=CL1.2 -w", no_constants, 0, &recipe), 0);
    usage_note_recipe(recipe);
    usage_read(&use);
    cr_assert_eq(use.extension_count, 1);
    cr_assert_str_eq(use.extensions[0], "cl_khr_sure");
    cr_assert_eq(use.c_version, CL_MAKE_VERSION(1, 2, 0));
    cr_assert(!use.il && !use.fp64);
    recipe_unref(source);
    recipe_unref(recipe);
}
