#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/folder.h"

/* Each road that a program takes to OpenCL leads to us alone, and from us to a driver. */

#define LOADER "libOpenCL.so.1"

/* Where this machine has the loader. */
static const char *loader_path(void)
{
    struct link_map *map;
    void *loader = dlopen(LOADER, RTLD_LAZY);
    cr_assert_not_null(loader);
    cr_assert_eq(dlinfo(loader, RTLD_DI_LINKMAP, &map), 0);
    return map->l_name;
}

struct road {
    bool preload, icd, layer;
    const char *drivers; /* Where reseat finds them; NULL: the system's. */
    const char *program;
    const char *arguments[6];
};

static void vendors_folder(char path[64])
{
    folder_make(path);
    folder_put(path, "reseat.icd", LIBRARY_PATH "\n");
}

/* In the child: the environment that `reseat run` sets for the roads that are asked for. */
static void take_road(const struct road *road, const char *vendors)
{
    folder_clean_environment();
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0", 1);
    setenv("POCL_DEVICES", "basic", 1);
    setenv("RESEAT_ICD_VENDORS", road->drivers ? road->drivers : "/etc/OpenCL/vendors", 1);
    if (road->preload)
        setenv("LD_PRELOAD", LIBRARY_PATH, 1);
    if (road->icd)
        setenv("OCL_ICD_VENDORS", vendors, 1);
    if (road->layer)
        setenv("OPENCL_LAYERS", LIBRARY_PATH, 1);
    char *arguments[8] = {(char *)road->program};
    for (size_t i = 0; i < 6; i++)
        arguments[i + 1] = (char *)road->arguments[i];
    execv(road->program, arguments);
    _exit(127);
}

/* Run it; what it printed. Returns its status. */
static int travel(const struct road *road, char output[256])
{
    char vendors[64];
    int ends[2], status = 0;
    vendors_folder(vendors);
    cr_assert_eq(pipe(ends), 0);
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        take_road(road, vendors);
    }
    close(ends[1]);
    size_t used = 0;
    ssize_t got;
    while (used < 255 && (got = read(ends[0], output + used, 255 - used)) > 0)
        used += (size_t)got;
    output[used] = '\0';
    close(ends[0]);
    cr_assert_eq(waitpid(child, &status, 0), child);
    return status;
}

static void expect_ours(const struct road *road)
{
    char output[256];
    int status = travel(road, output);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d, said %s", status, output);
    cr_expect_str_eq(output, "[reseat] same bytes\n");
}

TestCall(roads, a_linked_program_is_ours_by_preload,
         expect_ours(&(struct road){.preload = true, .program = LINKED_PATH}));
TestCall(roads, a_linked_program_is_ours_by_icd,
         expect_ours(&(struct road){.icd = true, .program = LINKED_PATH}));
TestCall(roads, a_linked_program_is_ours_by_layer,
         expect_ours(&(struct road){.layer = true, .program = LINKED_PATH}));
TestCall(roads, a_program_that_opens_a_loader_by_name_is_ours,
         expect_ours(&(struct road){
             .preload = true, .icd = true, .program = OPENED_PATH, .arguments = {LOADER}}));
TestCall(roads, a_program_that_opens_a_loader_by_path_is_ours,
         expect_ours(&(struct road){
             .preload = true, .icd = true, .program = OPENED_PATH, .arguments = {loader_path()}}));

/* The address sanitiser refuses RTLD_DEEPBIND, whoever asks for it. */
#ifndef __SANITIZE_ADDRESS__
TestCall(roads, a_program_that_binds_deeply_is_ours,
         expect_ours(&(struct road){.preload = true,
                                    .icd = true,
                                    .program = OPENED_PATH,
                                    .arguments = {loader_path(), "deep"}}));
#endif

/*
 * Oclgrind's dispatch table holds its exported functions: ours, were they left as bound. The
 * address sanitiser stops it for how it frees.
 */
#ifndef __SANITIZE_ADDRESS__
Test(roads, a_driver_whose_calls_can_be_taken_over_keeps_them)
{
    char drivers[64];
    folder_make(drivers);
    folder_put(drivers, "oclgrind.icd", "/usr/lib/oclgrind/liboclgrind-rt-icd.so\n");
    expect_ours(
        &(struct road){.preload = true, .icd = true, .drivers = drivers, .program = LINKED_PATH});
}
#endif

TestCall(roads, a_program_that_opens_a_loader_is_ours_by_layer,
         expect_ours(&(struct road){.layer = true, .program = OPENED_PATH, .arguments = {LOADER}}));

Test(roads, all_at_once_are_one)
{
    expect_ours(
        &(struct road){.preload = true, .icd = true, .layer = true, .program = LINKED_PATH});
    expect_ours(&(struct road){.preload = true,
                               .icd = true,
                               .layer = true,
                               .program = OPENED_PATH,
                               .arguments = {loader_path()}});
}

/* ---- what other people's programs bring ---- */

static void copy_file(const char *from, const char *folder, const char *name, mode_t mode,
                      char ret_path[512])
{
    char bytes[65536];
    size_t size;
    snprintf(ret_path, 512, "%s/%s", folder, name);
    FILE *source = fopen(from, "rb"), *copy = fopen(ret_path, "wb");
    cr_assert(source && copy);
    while ((size = fread(bytes, 1, sizeof(bytes), source)) > 0)
        cr_assert_eq(fwrite(bytes, 1, size, copy), size);
    fclose(source);
    cr_assert_eq(fclose(copy), 0);
    cr_assert_eq(chmod(ret_path, mode), 0);
}

/* A program linked with an rpath of $ORIGIN/private, and the loader that it brings there. */
static void bring_loader(char ret_program[512], char ret_loader[512])
{
    char folder[64], private[128];
    folder_make(folder);
    copy_file(PRIVATE_PATH, folder, "program", 0755, ret_program);
    snprintf(private, sizeof(private), "%s/private", folder);
    cr_assert_eq(mkdir(private, 0755), 0);
    copy_file(loader_path(), private, LOADER, 0644, ret_loader);
}

Test(roads, a_program_with_a_loader_of_its_own_is_ours_by_preload)
{
    char program[512], loader[512];
    bring_loader(program, loader);
    expect_ours(&(struct road){.preload = true, .program = program});
}

Test(roads, a_program_with_a_loader_of_its_own_is_ours_by_icd)
{
    char program[512], loader[512];
    bring_loader(program, loader);
    expect_ours(&(struct road){.icd = true, .program = program});
}

Test(roads, a_program_that_opens_a_loader_of_its_own_is_ours)
{
    char program[512], loader[512];
    bring_loader(program, loader);
    expect_ours(&(struct road){
        .preload = true, .icd = true, .program = OPENED_PATH, .arguments = {loader}});
}

Test(roads, a_wrapper_in_shell_passes_every_road_on)
{
    char folder[64], path[128];
    folder_make(folder);
    folder_put(folder, "wrapper", "#!/bin/sh\nexec \"$1\"\n");
    snprintf(path, sizeof(path), "%s/wrapper", folder);
    cr_assert_eq(chmod(path, 0755), 0);
    expect_ours(
        &(struct road){.preload = true, .icd = true, .program = path, .arguments = {LINKED_PATH}});
}

/* The dynamic linker and loaders ignore the variables there: doctor says so, and it is so. */
Test(roads, a_set_uid_program_has_none)
{
    char folder[64], path[512], output[256];
    struct statvfs mounted;
    folder_make(folder);
    if (geteuid() != 0 || statvfs(folder, &mounted) != 0 || mounted.f_flag & ST_NOSUID)
        cases_skip("not root, or no set-user-id programs there");
    cr_assert_eq(chmod(folder, 0755), 0);
    copy_file(LINKED_PATH, folder, "setuid", 0755, path);
    cr_assert_eq(chown(path, 65534, 65534), 0);
    cr_assert_eq(chmod(path, 04755), 0);
    travel(&(struct road){.preload = true, .icd = true, .program = path}, output);
    cr_expect_null(strstr(output, "[reseat]"), "%s", output);
}

/* Interpreters are not built with the sanitiser that the library is. */
#ifndef __SANITIZE_ADDRESS__
TestCall(roads, python_is_ours_by_ctypes,
         expect_ours(&(struct road){.preload = true,
                                    .icd = true,
                                    .program = "/usr/bin/python3",
                                    .arguments = {PYTHON_PATH, "ctypes"}}));
TestCall(roads, python_is_ours_by_pyopencl,
         expect_ours(&(struct road){.preload = true,
                                    .icd = true,
                                    .program = "/usr/bin/python3",
                                    .arguments = {PYTHON_PATH, "pyopencl"}}));

#ifdef JAVA_PATH
TestCall(roads, java_is_ours_by_jni,
         expect_ours(&(struct road){
             .preload = true,
             .icd = true,
             .program = JAVA_PATH,
             .arguments = {"-Xmx64m", "-cp", CLASSES_PATH, "Roads", JNI_PATH}}));
#endif
#endif
