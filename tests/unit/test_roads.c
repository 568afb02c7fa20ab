#include <criterion/criterion.h>
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/folder.h"

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
    const char *program;
    const char *arguments[3];
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
    setenv("RESEAT_ICD_VENDORS", "/etc/OpenCL/vendors", 1);
    if (road->preload)
        setenv("LD_PRELOAD", LIBRARY_PATH, 1);
    if (road->icd)
        setenv("OCL_ICD_VENDORS", vendors, 1);
    if (road->layer)
        setenv("OPENCL_LAYERS", LIBRARY_PATH, 1);
    execl(road->program, road->program, road->arguments[0], road->arguments[1], road->arguments[2],
          (char *)NULL);
    _exit(127);
}

static void expect_ours(const struct road *road)
{
    char vendors[64], output[256] = "";
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
    while (used < sizeof(output) - 1 &&
           (got = read(ends[0], output + used, sizeof(output) - 1 - used)) > 0)
        used += (size_t)got;
    close(ends[0]);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d, said %s", status, output);
    cr_expect_str_eq(output, "[reseat] same bytes\n");
}

Test(roads, a_linked_program_is_ours_by_preload)
{
    expect_ours(&(struct road){.preload = true, .program = LINKED_PATH});
}

Test(roads, a_linked_program_is_ours_by_icd)
{
    expect_ours(&(struct road){.icd = true, .program = LINKED_PATH});
}

Test(roads, a_linked_program_is_ours_by_layer)
{
    expect_ours(&(struct road){.layer = true, .program = LINKED_PATH});
}

Test(roads, a_program_that_opens_a_loader_by_name_is_ours)
{
    expect_ours(&(struct road){
        .preload = true, .icd = true, .program = OPENED_PATH, .arguments = {LOADER}});
}

Test(roads, a_program_that_opens_a_loader_by_path_is_ours)
{
    expect_ours(&(struct road){
        .preload = true, .icd = true, .program = OPENED_PATH, .arguments = {loader_path()}});
}

/* The address sanitiser refuses RTLD_DEEPBIND, whoever asks for it. */
#ifndef __SANITIZE_ADDRESS__
Test(roads, a_program_that_binds_deeply_is_ours)
{
    expect_ours(&(struct road){.preload = true,
                               .icd = true,
                               .program = OPENED_PATH,
                               .arguments = {loader_path(), "deep"}});
}
#endif

Test(roads, a_program_that_opens_a_loader_is_ours_by_layer)
{
    expect_ours(&(struct road){.layer = true, .program = OPENED_PATH, .arguments = {LOADER}});
}

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
