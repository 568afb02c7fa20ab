#include "interpose/entry/start.h"
#include "state/base/files/folder.h"
#include "state/library/library.h"
#include "state/program/pace.h"
#include "state/program/program_priv.h"
#include "tests/state/move/test_moves_common.h"
#include "tests/support/folder.h"

/* Programs from the library of device binaries, as a program sees them. */

#undef CONFIG
#define CONFIG "[one] name=one [two] name=two"

static struct engine_rig rig;
static char above[SCRATCH_MAX];
static cl_context context;

static void open_on(const char *config)
{
    char folder[PATH_MAX];
    folder_make(above);
    snprintf(folder, sizeof(folder), "%s/binaries", above);
    setenv(START_ENV_BINARIES, folder, 1);
    unsetenv(START_ENV_LIMIT);
    engine_rig_open(&rig, config);
    context = MADE(clCreateContext, NULL, 1, &rig.device, NULL, NULL);
}

TestSuite(program_library, .timeout = 300);

static cl_program make(const char *text, const char *options)
{
    cl_program program = BUILT(context, text, options);
    return program;
}

static uint64_t calls(const char *device, const char *function)
{
    return emu_shared_calls(rig.emu, device, function);
}

static struct library_list listed(void)
{
    char problem[FOLDER_PROBLEM_MAX];
    struct library_list list;
    cr_assert_eq(library_list(&the_library, true, &list, problem), 0, "%s", problem);
    return list;
}

static size_t entries(void)
{
    struct library_list list = listed();
    size_t count = list.count;
    library_list_finish(&list);
    return count;
}

/* The only entry, to be changed and kept again. */
static struct library_key only_entry(struct library_entry *ret_entry)
{
    struct library_list list = listed();
    struct library_key key;
    cr_assert_eq(list.count, 1);
    cr_assert(library_key_read(list.items[0].name, &key));
    library_list_finish(&list);
    cr_assert_eq(library_find(&the_library, &key, ret_entry), 0);
    return key;
}

/* add(): what it makes of 5 and 37. */
static void check_runs(cl_program program)
{
    cl_uint words[WORDS] = {5}, seven = 37;
    cl_command_queue queue = MADE(clCreateCommandQueue, context, rig.device, 0);
    cl_kernel kernel = engine_kernel(program, "add");
    cl_mem buffer = MADE(clCreateBuffer, context, CL_MEM_COPY_HOST_PTR, SIZE, words);
    ARGS(kernel, buffer, seven);
    launch(queue, kernel, WORDS, 0, NULL);
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, SIZE, words, 0, NULL, NULL));
    cr_assert_eq(words[0], 42);
    cr_assert_eq(words[WORDS - 1], 37);
    RELEASE(kernel, buffer, queue);
}

/* Everything that the info calls say of a program and its kernels, as text. */
static char *told(cl_program program)
{
    static const cl_kernel_arg_info args[] = {
        CL_KERNEL_ARG_ADDRESS_QUALIFIER, CL_KERNEL_ARG_ACCESS_QUALIFIER, CL_KERNEL_ARG_TYPE_NAME,
        CL_KERNEL_ARG_TYPE_QUALIFIER, CL_KERNEL_ARG_NAME};
    static const cl_kernel_work_group_info groups[] = {
        CL_KERNEL_WORK_GROUP_SIZE, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, CL_KERNEL_LOCAL_MEM_SIZE,
        CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, CL_KERNEL_PRIVATE_MEM_SIZE};
    static const cl_program_build_info builds[] = {
        CL_PROGRAM_BUILD_STATUS, CL_PROGRAM_BUILD_OPTIONS, CL_PROGRAM_BUILD_LOG,
        CL_PROGRAM_BINARY_TYPE, CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE};
    char *text = NULL, bytes[4096], *rest = NULL;
    size_t size, text_size, count = 0;
    FILE *out = open_memstream(&text, &text_size);
#define SAY(call)                                                                                  \
    do {                                                                                           \
        memset(bytes, 0, sizeof(bytes));                                                           \
        size = 0;                                                                                  \
        fprintf(out, "%d ", call);                                                                 \
        for (size_t i_ = 0; i_ < size; i_++)                                                       \
            fprintf(out, "%02x", (unsigned char)bytes[i_]);                                        \
        fputc('\n', out);                                                                          \
    } while (0)
    for (size_t i = 0; i < ARRAY_SIZE(builds); i++)
        SAY(clGetProgramBuildInfo(program, rig.device, builds[i], sizeof(bytes), bytes, &size));
    SAY(clGetProgramInfo(program, CL_PROGRAM_SOURCE, sizeof(bytes), bytes, &size));
    OK(clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof(count), &count, NULL));
    fprintf(out, "%zu kernels\n", count);
    SAY(clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, sizeof(bytes), bytes, &size));
    char *names = strdup(bytes);
    for (char *name = strtok_r(names, ";", &rest); name; name = strtok_r(NULL, ";", &rest)) {
        cl_kernel kernel = engine_kernel(program, name);
        cl_uint arg_count;
        OK(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof(arg_count), &arg_count, NULL));
        SAY(clGetKernelInfo(kernel, CL_KERNEL_ATTRIBUTES, sizeof(bytes), bytes, &size));
        for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
            SAY(clGetKernelWorkGroupInfo(kernel, rig.device, groups[i], sizeof(bytes), bytes,
                                         &size));
        for (cl_uint arg = 0; arg <= arg_count; arg++)
            for (size_t i = 0; i < ARRAY_SIZE(args); i++)
                SAY(clGetKernelArgInfo(kernel, arg, args[i], sizeof(bytes), bytes, &size));
        OK(clReleaseKernel(kernel));
    }
#undef SAY
    free(names);
    fclose(out);
    return text;
}

#define ATTRIBUTES                                                                                 \
    SOURCE "kernel __attribute__((reqd_work_group_size(4, 2, 1))) void attributes(\n"              \
           "constant float4 *restrict c, read_only image2d_t i, sampler_t s, local long *l,\n"     \
           "struct pair { int a, b; } p) {}\n"

static void answers_stay(const char *options)
{
    cl_program program = make(ATTRIBUTES, options);
    char *first = told(program);
    OK(clReleaseProgram(program));
    cr_assert_eq(entries(), 1);
    uint64_t built = calls("one", "clCreateProgramWithBinary");
    program = make(ATTRIBUTES, options);
    cr_assert_eq(calls("one", "clCreateProgramWithBinary"), built + 1, "not from the library");
    char *second = told(program);
    cr_expect_str_eq(first, second);
    check_runs(program);
    OK(clReleaseProgram(program));
    free(first);
    free(second);
}

Test(program_library, a_binary_says_and_does_what_the_build_did)
{
    open_on(CONFIG);
    answers_stay("-cl-kernel-arg-info");
}

Test(program_library, a_program_that_asked_for_no_names_is_told_none)
{
    open_on(CONFIG);
    answers_stay("-DX=1");
}

/* What the build printed, and what it counted, which a driver says of its binary otherwise. */
Test(program_library, the_log_and_the_variables_are_the_builds)
{
    struct library_entry entry, changed;
    char log[64];
    size_t globals = 0;
    open_on(CONFIG);
    OK(clReleaseProgram(make(SOURCE, "")));
    struct library_key key = only_entry(&entry);
    changed = entry;
    changed.log = "a warning of then";
    changed.globals = 12;
    cr_assert_eq(library_keep(&the_library, &key, &changed), 0);
    library_entry_finish(&entry);
    cl_program program = make(SOURCE, " ");
    OK(clGetProgramBuildInfo(program, rig.device, CL_PROGRAM_BUILD_LOG, sizeof(log), log, NULL));
    cr_assert_str_eq(log, "a warning of then");
    OK(clGetProgramBuildInfo(program, rig.device, CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE,
                             sizeof(globals), &globals, NULL));
    cr_assert_eq(globals, 12);
    OK(clReleaseProgram(program));
}

static const char *why_whole(cl_program handle)
{
    struct program *program = (struct program *)handle;
    struct kernel_traits traits;
    struct pace *pace = pace_of(program, "add");
    cr_assert_not_null(pace);
    cr_assert_eq(pace_traits(program, pace, &traits), 0);
    return traits.whole;
}

/* The entry, with another reason for the kernel, which no source says. */
static void keep_facts(const struct library_key *key, const struct library_entry *entry,
                       const struct recipe *recipe, bool of_this_version)
{
    struct library_entry changed = *entry;
    struct source_facts *facts = source_facts_unpack(recipe, entry->facts, entry->facts_size);
    cr_assert_not_null(facts);
    for (uint32_t i = 0; i < facts->count; i++)
        facts->traits[i].whole = "the entry says so";
    facts->keeps_variables = true;
    unsigned char *bytes = source_facts_pack(facts, &changed.facts_size);
    cr_assert_not_null(bytes);
    bytes[8] ^= of_this_version ? 0 : 1; /* the code that reads source is named first */
    changed.facts = bytes;
    cr_assert_eq(library_keep(&the_library, key, &changed), 0);
    source_facts_free(facts);
    free(bytes);
}

/* What reading the source said is in the entry, and is not read again; what another version of us
 * read is. */
Test(program_library, what_the_source_says_is_read_once)
{
    struct library_entry entry, renewed;
    open_on(CONFIG);
    cl_program program = make(SOURCE, "");
    cr_assert_null(why_whole(program));
    struct recipe *recipe = recipe_ref(((struct program *)program)->recipe);
    OK(clReleaseProgram(program));
    struct library_key key = only_entry(&entry);
    keep_facts(&key, &entry, recipe, true);
    program = make(SOURCE, "");
    cr_assert_str_eq(why_whole(program), "the entry says so");
    cr_assert_neq(((struct program *)program)->context->pins.count[PIN_VARIABLES], 0);
    OK(clReleaseProgram(program));
    keep_facts(&key, &entry, recipe, false);
    program = make(SOURCE, "");
    cr_assert_null(why_whole(program));
    OK(clReleaseProgram(program));
    only_entry(&renewed);
    cr_assert_eq(renewed.facts_size, entry.facts_size);
    cr_assert_eq(memcmp(renewed.facts, entry.facts, entry.facts_size), 0);
    cr_assert_eq(renewed.binary_size, entry.binary_size);
    library_entry_finish(&renewed);
    library_entry_finish(&entry);
    recipe_unref(recipe);
}

Test(program_library, a_program_that_differs_is_built)
{
    open_on(CONFIG);
    RELEASE(make(SOURCE, ""), make(SOURCE "\n", ""), make(SOURCE, "-DX"));
    cr_assert_eq(entries(), 3);
    cr_assert_eq(calls("one", "clCreateProgramWithBinary"), 0);
}

Test(program_library, headers_are_part_of_what_is_built)
{
    static const char text[] = "#include \"n.h\"\n" SOURCE;
    char options[128];
    open_on(CONFIG);
    snprintf(options, sizeof(options), "-I %s", above);
    folder_put(above, "n.h", "#define N 1\n");
    RELEASE(make(text, options), make(text, options));
    cr_assert_eq(entries(), 1);
    cr_assert_eq(calls("one", "clCreateProgramWithBinary"), 1);
    folder_put(above, "n.h", "#define N 2\n");
    OK(clReleaseProgram(make(text, options)));
    cr_assert_eq(entries(), 2);
    cr_assert_eq(calls("one", "clCreateProgramWithBinary"), 1);
}

/* What was made from a binary is no source: other options need the source again. */
Test(program_library, a_program_from_a_binary_is_built_with_other_options)
{
    static const char text[] = "kernel void add(global uint *words, uint value)\n"
                               "{ words[get_global_id(0)] += value + MORE; }\n";
    open_on(CONFIG);
    OK(clReleaseProgram(make(text, "-DMORE=1")));
    cl_program program = make(text, "-DMORE=1");
    cr_assert_eq(calls("one", "clCreateProgramWithBinary"), 1);
    OK(clBuildProgram(program, 0, NULL, "-DMORE=0", NULL, NULL));
    check_runs(program);
    OK(clReleaseProgram(program));
}

/* A build that fails says so each time. */
Test(program_library, a_failed_build_is_not_kept)
{
    static const char *const text = "kernel void k(global int *a) { a[0] = nothing; }";
    cl_build_status status;
    open_on(CONFIG);
    for (int i = 0; i < 2; i++) {
        cl_program program =
            MADE(clCreateProgramWithSource, context, 1, (const char **)&text, NULL);
        cr_assert_eq(clBuildProgram(program, 0, NULL, "", NULL, NULL), CL_BUILD_PROGRAM_FAILURE);
        OK(clGetProgramBuildInfo(program, rig.device, CL_PROGRAM_BUILD_STATUS, sizeof(status),
                                 &status, NULL));
        cr_assert_eq(status, CL_BUILD_ERROR);
        OK(clReleaseProgram(program));
    }
    cr_assert_eq(entries(), 0);
}

/* Its checksum is right and its bytes are no binary: as of a driver that changed within a version.
 */
Test(program_library, what_the_driver_refuses_is_built_and_replaced)
{
    struct library_entry entry, changed;
    open_on(CONFIG);
    OK(clReleaseProgram(make(SOURCE, "")));
    struct library_key key = only_entry(&entry);
    changed = entry;
    changed.binary = "no binary";
    changed.binary_size = 9;
    cr_assert_eq(library_keep(&the_library, &key, &changed), 0);
    cl_program program = make(SOURCE, "");
    check_runs(program);
    OK(clReleaseProgram(program));
    cr_assert_eq(library_find(&the_library, &key, &changed), 0);
    cr_assert_eq(changed.binary_size, entry.binary_size);
    library_entry_finish(&changed);
    library_entry_finish(&entry);
    uint64_t before = calls("one", "clCreateProgramWithBinary");
    OK(clReleaseProgram(make(SOURCE, "")));
    cr_assert_eq(calls("one", "clCreateProgramWithBinary"), before + 1);
}

/* A driver whose binaries say other things of kernels is asked for its own once, and then built. */
Test(program_library, a_binary_that_says_other_things_is_not_used)
{
    struct library_entry entry, changed;
    open_on(CONFIG);
    OK(clReleaseProgram(make(SOURCE, "")));
    struct library_key key = only_entry(&entry);
    changed = entry;
    changed.answers[5] ^= 1;
    cr_assert_eq(library_keep(&the_library, &key, &changed), 0);
    library_entry_finish(&entry);
    for (int i = 0; i < 3; i++) {
        cl_program program = make(SOURCE, "");
        check_runs(program);
        OK(clReleaseProgram(program));
        cr_assert_eq(calls("one", "clCreateProgramWithBinary"), 1);
    }
    cr_assert_eq(library_find(&the_library, &key, &entry), 0);
    cr_assert_eq(entry.origin, LIBRARY_UNFIT);
    library_entry_finish(&entry);
}

Test(program_library, a_folder_that_cannot_be_used_costs_a_build)
{
    open_on(CONFIG);
    OK(clReleaseProgram(make(SOURCE, "")));
    cr_assert_eq(chmod(the_library.folder, 0755), 0);
    cl_program program = make(SOURCE, "");
    check_runs(program);
    OK(clReleaseProgram(program));
    cr_assert_eq(calls("one", "clCreateProgramWithBinary"), 0);
}

/* Its compilations are done again, its link is not. */
Test(program_library, a_link_comes_from_the_library)
{
    static const char *const texts[] = {"int more(int a) { return a + 37; }",
                                        "int more(int a);\nkernel void add(global int *words, "
                                        "uint value) { words[get_global_id(0)] = "
                                        "more(words[get_global_id(0)]) + (int)value - 37; }"};
    open_on(CONFIG);
    for (unsigned round = 0; round < 2; round++) {
        cl_program parts[2];
        for (int i = 0; i < 2; i++) {
            parts[i] = MADE(clCreateProgramWithSource, context, 1, (const char **)&texts[i], NULL);
            OK(clCompileProgram(parts[i], 0, NULL, "", 0, NULL, NULL, NULL, NULL));
        }
        cl_program program = MADE(clLinkProgram, context, 0, NULL, "", 2, parts, NULL, NULL);
        check_runs(program);
        for (int i = 0; i < 2; i++)
            OK(clReleaseProgram(parts[i]));
        OK(clReleaseProgram(program));
        cr_assert_eq(calls("one", "clLinkProgram"), 1);
        cr_assert_eq(calls("one", "clCreateProgramWithBinary"), round);
    }
    cr_assert_eq(entries(), 1);
}

/* A mover makes the program from the library as well, and keeps what it had to build. */
/* As a program does that caches binaries: compiled and linked, or from the cache. */
static cl_program compile_and_link(void)
{
    static const char *const text = SOURCE;
    cl_program part = MADE(clCreateProgramWithSource, context, 1, (const char **)&text, NULL);
    OK(clCompileProgram(part, 0, NULL, "-DX=1", 0, NULL, NULL, NULL, NULL));
    cl_program program = MADE(clLinkProgram, context, 0, NULL, "", 1, &part, NULL, NULL);
    OK(clReleaseProgram(part));
    return program;
}

static unsigned char *cached(cl_program program, size_t *ret_size)
{
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(*ret_size), ret_size, NULL));
    unsigned char *bytes = malloc(*ret_size);
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(bytes), &bytes, NULL));
    return bytes;
}

static void load_cached(const unsigned char *bytes, size_t size)
{
    cl_int status;
    cl_program program =
        MADE(clCreateProgramWithBinary, context, 1, &rig.device, &size, &bytes, &status);
    OK(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    check_runs(program);
    OK(clReleaseProgram(program));
}

/* A driver that compiles when it is asked for a binary is asked where it would be natively, and
 * what a program has cached is not compiled again. */
Test(program_library, what_a_program_cached_is_not_compiled_again)
{
    size_t size;
    open_on(CONFIG);
    ((struct vdev *)rig.device)->device->quirks |= QUIRK_BINARY_COMPILES;
    cl_program program = compile_and_link();
    cr_assert_eq(entries(), 0);
    unsigned char *bytes = cached(program, &size);
    cr_assert_eq(entries(), 1);
    OK(clReleaseProgram(program));
    for (unsigned n = 1; n <= 3; n++) {
        uint64_t compiled = calls("one", "clCompileProgram");
        if (n == 2) { /* as by the library's limit: compiled once more, and kept */
            struct library_list list = listed();
            cr_assert_eq(library_remove(&the_library, list.items[0].name), 0);
            library_list_finish(&list);
        }
        load_cached(bytes, size);
        cr_assert_eq(calls("one", "clCompileProgram"), compiled + (n == 2));
        cr_assert_eq(entries(), 1);
    }
    free(bytes);
}

Test(program_library, a_move_makes_the_program_from_the_library)
{
    open_on(CONFIG);
    cl_program program = make(SOURCE, "");
    engine_rig_moves(&rig, "two");
    check_runs(program);
    cr_assert_eq(entries(), 2);
    engine_rig_moves(&rig, "one");
    check_runs(program);
    engine_rig_moves(&rig, "two");
    check_runs(program);
    cr_assert_eq(calls("one", "clCreateProgramWithBinary"), 1);
    cr_assert_eq(calls("two", "clCreateProgramWithBinary"), 1);
    OK(clReleaseProgram(program));
}

/* Any call of the driver that fails while a program is made from its binary: the program runs. */
Test(program_library, a_driver_that_fails_at_any_call_costs_a_build)
{
    bool ended = false;
    open_on(CONFIG);
    OK(clReleaseProgram(make(SOURCE, "")));
    struct library_entry entry;
    struct library_key key = only_entry(&entry);
    for (unsigned n = 1; !ended; n++) {
        const char *const text = SOURCE;
        cr_assert_lt(n, 200);
        cr_assert_eq(library_keep(&the_library, &key, &entry), 0);
        cl_program program =
            MADE(clCreateProgramWithSource, context, 1, (const char **)&text, NULL);
        uint64_t before = calls("one", NULL);
        cr_assert_eq(emu_shared_arm(rig.emu, "one", n, NULL, CL_OUT_OF_HOST_MEMORY), 0);
        cl_int built = clBuildProgram(program, 0, NULL, "", NULL, NULL);
        ended = calls("one", NULL) - before < n;
        cr_assert_eq(emu_shared_disarm(rig.emu, "one"), 0);
        if (built == CL_SUCCESS)
            check_runs(program);
        OK(clReleaseProgram(program));
    }
    library_entry_finish(&entry);
}

#define NO_COMPILER "[one] name=one [two] name=two no_compiler=yes"

/* What an operator adds: the binary that device two's driver makes of the same source. */
static void add_for_two(const char *text)
{
    const struct device *two = NULL;
    struct library_list list = listed();
    struct library_entry entry;
    struct library_key key;
    struct recipe *base, *built;
    cr_assert_gt(list.count, 0);
    cr_assert(library_key_read(list.items[0].name, &key));
    library_list_finish(&list);
    cr_assert_eq(library_find(&the_library, &key, &entry), 0);
    for (uint32_t i = 0; i < rig.device_count; i++)
        if (strcmp(rig.devices[i]->key.device, "two") == 0)
            two = rig.devices[i];
    cr_assert_not_null(two);
    cr_assert_eq(recipe_source(1, &text, NULL, &base), 0);
    cr_assert_eq(recipe_built(base, "", NULL, 0, &built), 0);
    cr_assert_eq(library_key(built, "", &two->key, &two->info, &key), 0);
    entry.origin = LIBRARY_ADDED;
    entry.kernels = entry.log = "";
    memset(entry.answers, 0, sizeof(entry.answers));
    cr_assert_eq(library_keep(&the_library, &key, &entry), 0);
    library_entry_finish(&entry);
    recipe_unref(base);
    recipe_unref(built);
}

Test(program_library, a_device_without_a_compiler_takes_what_was_added)
{
    struct move_report report;
    open_on(NO_COMPILER);
    cl_program program = make(SOURCE, "");
    cr_assert_eq(engine_rig_move(&rig, "two", &report), MOVE_REFUSED);
    cr_assert_not_null(strstr(report.reason, "no compiler"), "%s", report.reason);
    cr_assert_not_null(strstr(report.reason, "add"), "%s", report.reason);
    check_runs(program);
    add_for_two(SOURCE);
    engine_rig_moves(&rig, "two");
    check_runs(program);
    cr_assert_eq(calls("two", "clCreateProgramWithBinary"), 1);
    /* And what is built while it is there. */
    cl_program again = make(SOURCE, "");
    check_runs(again);
    const char *const other = SOURCE "\n";
    cl_program lacks = MADE(clCreateProgramWithSource, context, 1, (const char **)&other, NULL);
    cr_assert_eq(clBuildProgram(lacks, 0, NULL, "", NULL, NULL), CL_COMPILER_NOT_AVAILABLE);
    RELEASE(lacks, again, program);
}
