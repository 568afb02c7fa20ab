#include "tests/remote/served.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPTIONS_MAX 8

static void become(const struct served *served, const char *const *options, int output)
{
    const char *words[OPTIONS_MAX + 4] = {"reseat-serve", "--listen", served->address};
    for (size_t i = 0; options && options[i] && i < OPTIONS_MAX; i++)
        words[3 + i] = options[i];
    dup2(output, STDOUT_FILENO);
    setenv("OCL_ICD_VENDORS", "/etc/OpenCL/vendors/pocl.icd", 1);
    setenv("POCL_DEVICES", "basic pthread", 1);
    execv(getenv("TEST_SERVE"), (char *const *)words);
    _exit(127);
}

void served_start(struct served *served, const char *const *options)
{
    int ends[2];
    char line[64] = "";
    snprintf(served->folder, sizeof(served->folder), "/tmp/served-XXXXXX");
    cr_assert(mkdtemp(served->folder));
    snprintf(served->address, sizeof(served->address), "unix:%s/s", served->folder);
    cr_assert_eq(pipe(ends), 0);
    served->pid = fork();
    cr_assert(served->pid >= 0);
    if (served->pid == 0)
        become(served, options, ends[1]);
    close(ends[1]);
    cr_assert(read(ends[0], line, sizeof(line) - 1) > 0, "the server did not start");
    close(ends[0]);
}

void served_stop(struct served *served)
{
    kill(served->pid, SIGTERM);
    cr_assert_eq(waitpid(served->pid, NULL, 0), served->pid);
    cr_assert_eq(rmdir(served->folder), 0, "the server left something");
}

pid_t served_session(const struct served *served)
{
    char path[64];
    int pid = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", served->pid, served->pid);
    FILE *file = fopen(path, "re");
    cr_assert(file);
    if (fscanf(file, "%d", &pid) != 1)
        pid = 0;
    fclose(file);
    return pid;
}

void served_use(const struct served *served)
{
    setenv("OCL_ICD_VENDORS", getenv("TEST_DRIVER"), 1);
    setenv("RESEAT_SERVER", served->address, 1);
}
