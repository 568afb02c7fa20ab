#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "state/recipe/headers.h"
#include "state/recipe/recipe.h"
#include "tests/support/engine_rig.h"
#include "tests/support/folder.h"

/* What a program includes from the disk stays as it was when it was built. */

#define CONFIG "[one] name=one [two] name=two"
#define TAKES  "kernel void k(global int *a) { a[0] = N; a[1] = L; }\n"

static char folder[64]; /* the working folder of every test */

static void enter(void)
{
    folder_make(folder);
    cr_assert_eq(chdir(folder), 0);
}

static int forget(const char *path, const struct stat *stat, int kind, struct FTW *at)
{
    (void)stat, (void)kind, (void)at;
    return remove(path);
}

static void leave(void)
{
    (void)!chdir("/");
    nftw(folder, forget, 8, FTW_DEPTH | FTW_PHYS);
}

TestSuite(headers, .init = enter, .fini = leave, .timeout = 120);

/* Everything in the working folder goes, and so does the process. */
static void lose_the_disk(void)
{
    leave();
    cr_assert_eq(mkdir(folder, 0700), 0);
}

static void file(const char *path, const char *text)
{
    char made[512];
    snprintf(made, sizeof(made), "%s", path);
    for (char *at = made; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        mkdir(made, 0700);
    }
    folder_put(".", path, text);
}

struct fixture {
    struct engine_rig rig;
    struct engine_program base;
    cl_mem buffer;
};

static void open_on(struct fixture *f, const char *config)
{
    engine_rig_open(&f->rig, config);
    engine_program_open(&f->rig, 0, NULL, &f->base);
    f->buffer = engine_buffer(f->base.context, CL_MEM_READ_WRITE, 64 * sizeof(int), NULL);
}

static void close_all(struct fixture *f)
{
    OK(clReleaseMemObject(f->buffer));
    engine_program_close(&f->base);
}

static cl_program source(const struct fixture *f, const char *text)
{
    return MADE(clCreateProgramWithSource, f->base.context, 1, &text, NULL);
}

static cl_program built(const struct fixture *f, const char *text, const char *options)
{
    cl_program program = source(f, text);
    cl_int error = clBuildProgram(program, 0, NULL, options, NULL, NULL);
    cr_assert_eq(error, CL_SUCCESS, "%s with \"%s\": %d", text, options, error);
    return program;
}

/* What the kernel "k" writes, whose first two numbers are a header's. */
static void run(const struct fixture *f, cl_program program, int ret_numbers[64])
{
    const size_t one = 1;
    cl_kernel kernel = engine_kernel(program, "k");
    OK(clSetKernelArg(kernel, 0, sizeof(f->buffer), &f->buffer));
    OK(clEnqueueNDRangeKernel(f->base.queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(f->base.queue, f->buffer, CL_TRUE, 0, 64 * sizeof(int), ret_numbers, 0,
                           NULL, NULL));
    OK(clReleaseKernel(kernel));
}

static int number(const struct fixture *f, cl_program program)
{
    int numbers[64];
    run(f, program, numbers);
    return numbers[0];
}

static unsigned char *binary(cl_program program, size_t *ret_size)
{
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(*ret_size), ret_size, NULL));
    unsigned char *bytes = malloc(*ret_size ? *ret_size : 1);
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(bytes), &bytes, NULL));
    return bytes;
}

static cl_program loaded(const struct fixture *f, const unsigned char *bytes, size_t size)
{
    cl_int status = 1;
    cl_program program =
        MADE(clCreateProgramWithBinary, f->base.context, 1, &f->rig.device, &size, &bytes, &status);
    OK(status);
    OK(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    return program;
}

Test(headers, each_build_keeps_the_headers_it_had)
{
    static struct fixture f;
    cl_program programs[2];
    open_on(&f, CONFIG);
    for (int i = 0; i < 2; i++) {
        file("inc/n.h", i == 0 ? "#define N 1\n" : "#define N 2\n");
        programs[i] = built(&f, "#include \"n.h\"\n#define L 0\n" TAKES, "-I inc");
    }
    for (int moved = 0; moved < 3; moved++) {
        cr_expect_eq(number(&f, programs[0]), 1, "after %d moves", moved);
        cr_expect_eq(number(&f, programs[1]), 2, "after %d moves", moved);
        engine_rig_moves(&f.rig, moved % 2 ? "one" : "two");
    }
    RELEASE(programs[0], programs[1]);
    close_all(&f);
}

/* Each with what its kernel writes: what a header says, and which of its lines does. */
static const struct {
    const char *what, *text, *options;
    int number, line;
} ways[] = {
    {"-I dir", "#include \"n.h\"\n", "-I inc", 1, 2},
    {"-Idir", "#include <n.h>\n", "-Iinc", 1, 2},
    {"an absolute folder", "#include <n.h>\n", "-I %s/inc", 1, 2},
    {"an absolute name", "#include \"%s/inc/n.h\"\n", "", 1, 2},
    {"the working folder", "#include \"cwd.h\"\n", "", 2, 1},
    {"the first folder that has it", "#include <n.h>\n", "-I other -I inc", 3, 1},
    {"beside the header that includes", "#include \"sub/beside.h\"\n", "-I inc", 4, 1},
    {"above the header that includes", "#include \"sub/above.h\"\n", "-I inc", 1, 2},
    {"a name with dots", "#include \"sub/../n.h\"\n", "-I inc/sub/..", 1, 2},
    {"a macro", "#define H <n.h>\n#include H\n", "-I inc", 1, 2},
    {"a macro of the options", "#include STR(DIR/n.h)\n",
     "-D XSTR(x)=#x -D STR(x)=XSTR(x) -D DIR=%s/inc", 1, 2},
    {"a macro with a value for no file",
     "#if 0\n#define H \"none.h\"\n#else\n#define H \"n.h\"\n#endif\n#include H\n", "-I inc", 1, 2},
    {"a macro with arguments in brackets", "#define F(a, b) b\n#include F((n.h, none.h), <n.h>)\n",
     "-I inc", 1, 2},
    {"a macro of a later text", "#include \"names.h\"\n#include LATER\n", "-I inc", 1, 2},
    {"a question",
     "#if __has_include(\"n.h\") && !__has_include(<none.h>)\n#define N 5\n#endif\n"
     "#define L 0\n",
     "-I inc", 5, 0},
    {"a directive of two lines", "#include \\\n \"n.h\" // so\n#define L2 __LINE__\n", "-I inc", 1,
     2},
    {"words of several lines", "#inc\\\nlude \"n\\\n.h\" // so\n", "-I inc", 1, 2},
    {"a bracket of several lines", "#\\\ninclude\\\n<n.\\\nh\\\n>\n", "-I inc -Werror", 1, 2},
    {"a macro of several lines", "#def\\\nine IN\\\nC(x) <x.h>\n#include I\\\nNC(\\\nn)\n",
     "-I inc", 1, 2},
    {"behind a string of several lines",
     "constant char q[] = \"\\\"\\\n/*\\\\\\\n\";\n#include \"n.h\"\n", "-I inc", 1, 2},
    {"by three signs for one", "?\?=include \"n.h\"\n", "-I inc", 1, 2},
    {"by two signs for one", "%:include \"n.h\"\n", "-I inc", 1, 2},
    {"behind a comment", "/* a\n*/ # /* b */ include /**/ \"n.h\"\n", "-I inc", 1, 2},
    {"once, by two names", "#include \"once.h\"\n#include \"sub/../once.h\"\n", "-I inc", 6, 2},
    {"a link", "#include \"link.h\"\n", "-I inc", 1, 2},
    {"itself", "#include \"self.h\"\n", "-I inc", 7, 4},
    {"behind what looks like a comment in a string",
     "constant char q[] = \"\\\"/*\";\n#include \"n.h\"\n", "-I inc", 1, 2},
    {"what looks like a comment in a name", "#include <sub//..//n.h>\n", "-I inc", 1, 2},
    {"the next of that name", "#include <next.h>\n", "-I inc -I other", 8, 2},
};

static void make_tree(void)
{
    file("inc/n.h", "#define N 1\nenum { L = __LINE__ };\n");
    file("cwd.h", "#define N 2\n#line 1\nenum { L = __LINE__ };\n");
    file("other/n.h", "#define N 3\n#line 1\nenum { L = __LINE__ };\n");
    file("inc/other.h", "#define N 9\nenum { L = 9 };\n");
    file("inc/sub/beside.h", "#include \"four.h\"\n");
    file("inc/sub/four.h", "enum { N = 4, L = __LINE__ };\n");
    file("inc/four.h", "#error the wrong one\n");
    file("inc/sub/above.h", "#include \"../n.h\"\n");
    file("inc/next.h", "#include_next <next.h>\nenum { L = __LINE__ };\n");
    file("other/next.h", "#define N 8\n");
    file("inc/names.h", "#define LATER \"n.h\"\n");
    file("inc/once.h", "#pragma once\nenum { N = 6, L = __LINE__ };\n");
    file("inc/self.h",
         "#ifndef SELF\n#define SELF\n#include \"self.h\"\nenum { N = 7, L = __LINE__ "
         "};\n#endif\n");
    cr_assert_eq(symlink("n.h", "inc/link.h"), 0);
}

Test(headers, what_was_included_outlives_the_disk_however_it_was_named)
{
    static struct fixture f;
    cl_program programs[ARRAY_SIZE(ways)];
    unsigned char *binaries[ARRAY_SIZE(ways)];
    size_t sizes[ARRAY_SIZE(ways)];
    make_tree();
    open_on(&f, CONFIG);
    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        char text[1024], options[512];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(text, sizeof(text), ways[i].text, folder);
        snprintf(options, sizeof(options), ways[i].options, folder);
#pragma GCC diagnostic pop
        strcat(text, TAKES);
        programs[i] = built(&f, text, options);
        binaries[i] = binary(programs[i], &sizes[i]);
    }
    lose_the_disk();
    engine_rig_moves(&f.rig, "two");
    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        int numbers[64];
        run(&f, programs[i], numbers);
        cr_expect_eq(numbers[0], ways[i].number, "%s: %d", ways[i].what, numbers[0]);
        cr_expect_eq(numbers[1], ways[i].line, "%s: line %d", ways[i].what, numbers[1]);
        /* A binary is built in the same way, so that a few do. */
        if (i % 4 == 0) {
            cl_program copy = loaded(&f, binaries[i], sizes[i]);
            cr_expect_eq(number(&f, copy), ways[i].number, "%s, from its binary", ways[i].what);
            OK(clReleaseProgram(copy));
        }
        free(binaries[i]);
        OK(clReleaseProgram(programs[i]));
    }
    close_all(&f);
}

Test(headers, a_header_is_called_what_it_was)
{
    static struct fixture f;
    int before[64], after[64];
    file("inc/f.h", "constant char name[] = __FILE__;\n");
    open_on(&f, CONFIG);
    cl_program program = built(&f,
                               "#include \"f.h\"\nkernel void k(global int *a) {"
                               "for (int i = 0; i < 64; i++) a[i] = i < sizeof(name) ?"
                               "name[i] : 0; }",
                               "-I inc");
    run(&f, program, before);
    lose_the_disk();
    engine_rig_moves(&f.rig, "two");
    run(&f, program, after);
    cr_expect_arr_eq(before, after, sizeof(before));
    cr_expect_eq(before[0], 'i');
    OK(clReleaseProgram(program));
    close_all(&f);
}

/* A header program of the call goes before what the disk has by the same name. */
Test(headers, of_a_compilation_are_those_it_was_given_and_those_of_the_disk)
{
    static struct fixture f;
    const char *name = "given.h";
    file("inc/given.h", "#error not this one\n");
    file("inc/deep.h", "#define N 8\n");
    open_on(&f, CONFIG);
    cl_program header = source(&f, "#include \"deep.h\"\n#define L 3\n");
    cl_program part = source(&f, "#include \"given.h\"\n" TAKES);
    OK(clCompileProgram(part, 0, NULL, "-I inc", 1, &header, &name, NULL, NULL));
    cl_program program = MADE(clLinkProgram, f.base.context, 0, NULL, NULL, 1, &part, NULL, NULL);
    RELEASE(header, part);
    cr_expect_eq(number(&f, program), 8);
    lose_the_disk();
    engine_rig_moves(&f.rig, "two");
    cr_expect_eq(number(&f, program), 8);
    OK(clReleaseProgram(program));
    close_all(&f);
}

static void CL_CALLBACK ended(cl_program program, void *data)
{
    (void)program;
    cr_assert_eq(write(*(int *)data, "", 1), 1);
}

/* The driver takes its time before it reads what has been kept already. */
Test(headers, what_the_driver_read_is_what_was_kept)
{
    static struct fixture f;
    int ends[2];
    file("inc/n.h", "#define N 1\n");
    open_on(&f, "[one] name=one build_ms=300 [two] name=two");
    cl_program program = source(&f, "#include \"n.h\"\n#define L 0\n" TAKES);
    cr_assert_eq(pipe(ends), 0);
    OK(clBuildProgram(program, 0, NULL, "-I inc", ended, &ends[1]));
    file("inc/n.h", "#define N 2\n");
    struct pollfd end = {.fd = ends[0], .events = POLLIN};
    cr_assert_eq(poll(&end, 1, 60000), 1);
    cr_expect_eq(number(&f, program), 1);
    engine_rig_moves(&f.rig, "two");
    cr_expect_eq(number(&f, program), 1);
    OK(clReleaseProgram(program));
    close_all(&f);
}

Test(headers, builds_that_differ_in_a_header_are_different_programs)
{
    const char *text = "#include \"n.h\"\n";
    struct recipe *base, *recipes[3];
    cr_assert_eq(recipe_source(1, &text, NULL, &base), 0);
    for (int i = 0; i < 3; i++) {
        file("n.h", i < 2 ? "#define N 1\n" : "#define N 2\n");
        cr_assert_eq(recipe_built(base, "", NULL, 0, &recipes[i]), 0);
        cr_assert_eq(recipe_keep_headers(recipes[i]), 0);
    }
    cr_expect(recipe_same(recipes[0], recipes[1]));
    cr_expect(!recipe_same(recipes[0], recipes[2]));
    cr_expect(recipe_headers_hold(recipes[2]));
    cr_expect(!recipe_headers_hold(recipes[0]));
    for (int i = 0; i < 3; i++)
        recipe_unref(recipes[i]);
    recipe_unref(base);
}

static struct recipe *kept(const char *text, const char *options)
{
    struct recipe *base, *recipe;
    cr_assert_eq(recipe_source(1, &text, NULL, &base), 0);
    cr_assert_eq(recipe_built(base, options, NULL, 0, &recipe), 0);
    recipe_unref(base);
    cr_assert_eq(recipe_keep_headers(recipe), 0);
    return recipe;
}

/* Not every driver takes each of them; what one does take is kept. */
Test(headers, options_are_read_in_every_spelling)
{
    static const char *const options[] = {
        "-I\"a b\"",       "-I \"a b\"",   "\"-Ia b\"",
        "-I a\\ b",        "-I'a b'",      "-isystem 'a b'",
        "-iquote \"a b\"", " -w\t-Ia\\ b", "-I none -I a\\ b -Iinc",
    };
    file("a b/n.h", "#define N 1\n");
    file("inc/n.h", "#define N 2\n");
    for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
        struct recipe *recipe = kept("#include \"n.h\"\n", options[i]);
        cr_expect_not_null(recipe->headers, "%s", options[i]);
        if (recipe->headers)
            cr_expect_str_eq(recipe->headers->list[0].path, "a b/n.h", "%s", options[i]);
        recipe_unref(recipe);
    }
    struct recipe *recipe = kept("\n", "-w -include inc/n.h");
    cr_assert_not_null(recipe->headers);
    cr_expect_str_eq(recipe->headers->list[0].path, "inc/n.h");
    recipe_unref(recipe);
}

/* A pipe would wait for a writer, and take what is another reader's. */
Test(headers, nothing_but_files_is_opened)
{
    cr_assert_eq(mkfifo("n.h", 0600), 0);
    cr_assert_eq(mkdir("d.h", 0700), 0);
    struct recipe *recipe =
        kept("#include \"n.h\"\n#include \"d.h\"\n#include \"/dev/zero\"\n", "");
    cr_expect_null(recipe->headers);
    recipe_unref(recipe);
}

/* A full disk, or a program that may not write: the build fails, and nothing is left. */
Test(headers, a_folder_that_cannot_be_written_is_none)
{
    const struct rlimit none = {3, RLIM_INFINITY}, any = {RLIM_INFINITY, RLIM_INFINITY};
    struct staged staged;
    folder_put(".", "n.h", "#define N 7\n");
    struct recipe *recipe = kept("#include \"n.h\"\n", "");
    cr_assert_not_null(recipe->headers);
    cr_assert_eq(remove("n.h"), 0);
    setenv("XDG_RUNTIME_DIR", folder, 1);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
    cr_assert_eq(headers_stage(recipe, &staged), -EFBIG);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &any), 0);
    cr_expect_eq(rmdir(folder), 0, "nothing is left of it");
    recipe_unref(recipe);
}

Test(headers, more_than_can_be_kept_is_built_from_the_disk)
{
    char text[64];
    file("n.h", "");
    cr_assert_eq(truncate("n.h", (off_t)HEADERS_BYTES_MAX + 1), 0);
    snprintf(text, sizeof(text), "#include \"n.h\"\n");
    struct recipe *recipe = kept(text, "");
    cr_assert_not_null(recipe->headers);
    cr_expect(recipe->headers->partial);
    cr_assert_eq(truncate("n.h", 0), 0);
    cr_expect(recipe_headers_hold(recipe), "the disk is all there is");
    recipe_unref(recipe);
}

/* POCL looks into the working folder before the others, most drivers do not. */
Test(headers, a_name_that_drivers_read_differently_is_left_to_the_driver)
{
    file("inc/n.h", "#define N 1\n");
    file("n.h", "#define N 2\n");
    struct recipe *quoted = kept("#include \"n.h\"\n", "-I inc");
    struct recipe *angled = kept("#include <n.h>\n", "-I inc");
    cr_expect(!quoted->headers->partial);
    cr_expect_str_eq(quoted->headers->list[0].path, "n.h");
    cr_expect(angled->headers->partial);
    recipe_unref(quoted);
    recipe_unref(angled);
}

/* Conditions are not evaluated, and what `##` makes is not read. */
Test(headers, a_name_that_macros_make_several_of_is_left_to_the_driver)
{
    static const char *const texts[] = {
        "#if 0\n#define H \"inc/n.h\"\n#else\n#define H \"n.h\"\n#endif\n#include H\n",
        "#define S(x) #x\n#define H(a, b) S(a##b)\n#include H(n, .h)\n",
    };
    file("inc/n.h", "#define N 1\n");
    file("n.h", "#define N 2\n");
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct recipe *recipe = kept(texts[i], "");
        cr_assert_not_null(recipe->headers, "%s", texts[i]);
        cr_expect(recipe->headers->partial, "%s", texts[i]);
        recipe_unref(recipe);
    }
}

/* Macros that grow without end, and name themselves, and a file that includes itself by ever longer
 * names. */
Test(headers, reading_them_ends)
{
    char text[4096] = "#define A A A\n#include A\n#define F(x) F(x)F(x)\n#include F(F(1))\n";
    for (int i = 0; i < 40; i++)
        sprintf(text + strlen(text), "#define B%d B%d B%d\n", i, i + 1, i + 1);
    strcat(
        text,
        "#define B40\n#include B0\n#include \"n.h\"\n#include\n#include <\n#include \"\n#define\n"
        "#define ,\n#define G(\n#include G(\n");
    file("n.h", "#include \"sub/../n.h\"\n#include \"n.h\"\n");
    file("sub/x", "");
    struct recipe *recipe = kept(text, "-D -I -include");
    cr_assert_not_null(recipe->headers);
    cr_expect_lt(recipe->headers->count, 4);
    recipe_unref(recipe);
}

/* As generated sources have them: with each compared with each this takes minutes. */
Test(headers, a_text_of_many_definitions_is_read_before_the_test_ends, .timeout = 60)
{
    enum { COUNT = 200000, ROOM = 32 };
    char *text = malloc((size_t)COUNT * ROOM), *end = text;
    file("n.h", "");
    end += sprintf(end, "#define H \"n.h\"\n");
    for (int i = 0; i < COUNT; i++)
        end += sprintf(end, "#define N%d %d\n", i, i);
    sprintf(end, "#include H\n");
    struct recipe *recipe = kept(text, "");
    cr_assert_not_null(recipe->headers);
    cr_expect_str_eq(recipe->headers->list[0].path, "n.h");
    recipe_unref(recipe);
    free(text);
}

static int count_file(const char *path, const struct stat *stat, int kind, struct FTW *at)
{
    (void)stat, (void)kind, (void)at;
    cr_expect_null(strstr(path, "evil"), "%s", path);
    return 0;
}

/* Names in a container come from anywhere. */
Test(headers, no_name_leads_out_of_the_private_folder)
{
    static const char *const names[] = {"../evil.h", "../../../../../../../../tmp/evil.h",
                                        "/tmp/evil.h", "a/../../../evil.h", "./../evil.h"};
    char text[1024] = "";
    struct staged staged;
    struct recipe *base, *recipe;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        sprintf(text + strlen(text), "#include \"%s\"\n", names[i]);
    const char *string = text;
    setenv("XDG_RUNTIME_DIR", folder, 1);
    cr_assert_eq(recipe_source(1, &string, NULL, &base), 0);
    cr_assert_eq(recipe_built(base, "", NULL, 0, &recipe), 0);
    recipe->headers = calloc(1, sizeof(*recipe->headers));
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        cr_assert_eq(headers_add(recipe->headers, names[i], recipe->headers->count, "x", 1), 0);
    cr_assert_eq(headers_add(recipe->headers, "b", recipe->headers->count, "x", 1), 0);
    cr_assert_eq(headers_stage(recipe, &staged), 0);
    cr_assert_gt(staged.count, ARRAY_SIZE(names));
    for (size_t i = 0; i < staged.count; i++) {
        cr_expect_eq(strncmp(staged.paths[i], staged.paths[0], strlen(staged.paths[0])), 0);
        cr_expect_null(strstr(staged.paths[i], ".."), "%s", staged.paths[i]);
    }
    struct stat root;
    cr_assert_eq(stat(staged.paths[0], &root), 0);
    cr_expect_eq(root.st_mode & 0777, 0700);
    cr_expect_eq(strncmp(staged.paths[0], folder, strlen(folder)), 0);
    nftw(folder, count_file, 8, FTW_PHYS);
    headers_unstage(&staged);
    cr_expect_eq(rmdir(folder), 0, "nothing is left of it");
    recipe_unref(recipe);
    recipe_unref(base);
}

/* The builds that the driver knows from now on. */
static unsigned cached;

static int count_build(const char *path, const struct stat *stat, int kind, struct FTW *at)
{
    (void)stat;
    cached += kind == FTW_F && strcmp(path + at->base, "program.bc") == 0;
    return 0;
}

static unsigned builds_cached(void)
{
    cached = 0;
    cr_assert_not_null(getenv("POCL_CACHE_DIR"));
    nftw(getenv("POCL_CACHE_DIR"), count_build, 8, FTW_PHYS);
    return cached;
}

static const char *const builders[] = {"clCreateProgramWithSource", "clBuildProgram",
                                       "clCompileProgram", "clLinkProgram"};

static void count_calls(const struct fixture *f, uint64_t ret_calls[ARRAY_SIZE(builders)])
{
    for (size_t i = 0; i < ARRAY_SIZE(builders); i++)
        ret_calls[i] = emu_shared_calls(f->rig.emu, "one", builders[i]);
}

/* Of text, of text with a header of the disk, and of two parts that are linked. */
static cl_program built_by(const struct fixture *f, int way, const char *options)
{
    if (way < 2)
        return built(f,
                     way == 0 ? "#define N 4\n#define L 4\n" TAKES
                              : "#include \"n.h\"\n#define L 5\n" TAKES,
                     options);
    cl_program parts[] = {source(f, "#include \"n.h\"\nint four(void) { return N; }"),
                          source(f, "int four(void); kernel void k(global int *a)"
                                    "{ a[0] = four(); }")};
    for (int i = 0; i < 2; i++)
        OK(clCompileProgram(parts[i], 0, NULL, options, 0, NULL, NULL, NULL, NULL));
    cl_program program = MADE(clLinkProgram, f->base.context, 0, NULL, NULL, 2, parts, NULL, NULL);
    RELEASE(parts[0], parts[1]);
    return program;
}

/* Programs keep their binaries to start faster: the driver's own cache has to know what they are
 * built from, in this process and the next. */
Test(headers, a_binary_is_built_as_what_it_was_made_from)
{
    static struct fixture f;
    open_on(&f, CONFIG);
    for (int way = 0; way < 3; way++) {
        uint64_t before[4], source_calls[4], binary_calls[4];
        char options[128];
        /* Nothing of an earlier run is in the cache. */
        snprintf(options, sizeof(options), "-I inc -DRUN=%s", strrchr(folder, '-') + 1);
        file("inc/n.h", "#define N 4\n");
        count_calls(&f, before);
        unsigned known = builds_cached();
        cl_program program = built_by(&f, way, options);
        count_calls(&f, source_calls);
        cr_expect_eq(number(&f, program), 4);
        size_t size;
        unsigned char *bytes = binary(program, &size);
        cr_expect_gt(builds_cached(), known, "%d: %u", way, known);
        known = builds_cached();
        cl_program copy = loaded(&f, bytes, size);
        count_calls(&f, binary_calls);
        cr_expect_eq(number(&f, copy), 4);
        cr_expect_eq(builds_cached(), known, "%d: the driver built it again", way);
        for (size_t i = 0; i < ARRAY_SIZE(builders); i++)
            cr_expect_eq(binary_calls[i] - source_calls[i], source_calls[i] - before[i], "%d: %s",
                         way, builders[i]);
        OK(clReleaseProgram(copy));
        /* From the headers that were kept it is another build, but the same one each time. */
        file("inc/n.h", "#define N 5\n");
        for (int again = 0; again < 2; again++) {
            copy = loaded(&f, bytes, size);
            cr_expect_eq(number(&f, copy), 4);
            cr_expect(!again || builds_cached() == known, "%d: built again", way);
            known = builds_cached();
            OK(clReleaseProgram(copy));
        }
        OK(clReleaseProgram(program));
        free(bytes);
    }
    close_all(&f);
}
