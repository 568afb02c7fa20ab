#include "remote/server/listener/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Copies are made above the numbers that the child gets, so that dup2() overwrites none before it
 * is used. */
#define ABOVE 16

/* Prefixes of the variables that drivers, compilers and sanitizers read. */
static const char *const drivers_read[] = {"PATH=",
                                           "LANG",
                                           "LC_",
                                           "TZ=",
                                           "LD_LIBRARY_PATH=",
                                           "OCL_",
                                           "OPENCL_",
                                           "POCL_",
                                           "CUDA_",
                                           "NVIDIA",
                                           "__GL_",
                                           "MESA_",
                                           "RUSTICL_",
                                           "LIBGL_",
                                           "GALLIUM",
                                           "LP_",
                                           "CLC_",
                                           "IGC_",
                                           "NEO",
                                           "ZE",
                                           "ONEAPI",
                                           "SYCL",
                                           "INTEL",
                                           "CL_CONFIG_",
                                           "ROCR_",
                                           "HSA_",
                                           "HIP_",
                                           "AMD_",
                                           "GPU_",
                                           "XILINX",
                                           "XCL_",
                                           "AOCL_",
                                           "ALTERA",
                                           "XRT_",
                                           "EMU_",
                                           "ASAN_",
                                           "TSAN_",
                                           "UBSAN_",
                                           "LSAN_",
                                           "TMPDIR=",
                                           "HOME=",

                                           "XDG_CACHE_HOME=",
                                           "RESEAT_RINGS="};

static bool spawn_is_for_drivers(const char *variable)
{
    for (size_t i = 0; i < ARRAY_SIZE(drivers_read); i++)
        if (!strncmp(variable, drivers_read[i], strlen(drivers_read[i])))
            return true;
    return false;
}

/* Of RESEAT_LOG only the level is passed on: a session logs to its standard error, never to a file.
 * Returns an array for free(), whose strings are borrowed. */
static char **spawn_make_environment(bool drivers_alone)
{
    static char log[64];
    size_t count = 0, used = 0;
    const char *level = getenv("RESEAT_LOG");
    while (environ[count])
        count++;
    char **variables = calloc(count + 2, sizeof(*variables));
    if (!variables)
        return NULL;
    for (size_t i = 0; i < count; i++)
        /* The session must not open our own remote driver, which would lead back to this server. */
        if (strncmp(environ[i], "RESEAT_LOG=", strlen("RESEAT_LOG=")) &&
            strncmp(environ[i], "RESEAT_SERVER=", strlen("RESEAT_SERVER=")) &&
            (!drivers_alone || spawn_is_for_drivers(environ[i])))
            variables[used++] = environ[i];
    if (level) {
        snprintf(log, sizeof(log), "RESEAT_LOG=%.*s", (int)strcspn(level, ":"), level);
        variables[used] = log;
    }
    return variables;
}

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

/* Returns the descriptor of a sealed memory file, or -errno. */
static int spawn_write(const struct startup *startup)
{
    int fd = memfd_create("reseat-startup", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (write(fd, startup, sizeof(*startup)) == (ssize_t)sizeof(*startup) &&
        !fcntl(fd, F_ADD_SEALS, SEALS))
        return fd;
    int error = errno ? -errno : -EIO;
    close(fd);
    return error;
}

static int spawn_give(posix_spawn_file_actions_t *actions, int fd, int number, int *ret_copy)
{
    *ret_copy = fcntl(fd, F_DUPFD_CLOEXEC, ABOVE);
    return *ret_copy < 0 ? errno : posix_spawn_file_actions_adddup2(actions, *ret_copy, number);
}

pid_t spawn_session(const struct startup *startup, int connection, int channel, int log,
                    bool drivers_alone, const sigset_t *mask)
{
    char *arguments[] = {"reseat-serve", STARTUP_ARGUMENT, NULL};
    const int numbers[] = {STDERR_FILENO, STARTUP_FD, STARTUP_CONNECTION, STARTUP_CHANNEL};
    int memory = spawn_write(startup), copies[ARRAY_SIZE(numbers)] = {-1, -1, -1, -1};
    const int given[] = {log, memory, connection, channel};
    char **variables = spawn_make_environment(drivers_alone);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    pid_t pid = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, mask);
    int error = memory < 0 ? -memory : variables ? 0 : ENOMEM;
    for (int i = STDIN_FILENO; error == 0 && i <= STDOUT_FILENO; i++)
        error = posix_spawn_file_actions_addopen(&actions, i, "/dev/null", O_RDWR, 0);
    for (size_t i = 0; error == 0 && i < ARRAY_SIZE(given); i++)
        if (given[i] >= 0)
            error = spawn_give(&actions, given[i], numbers[i], &copies[i]);
    if (error == 0)
        error = posix_spawn_file_actions_addclosefrom_np(
            &actions, channel < 0 ? STARTUP_CHANNEL : STARTUP_CHANNEL + 1);
    if (error == 0)
        error = posix_spawn(&pid, "/proc/self/exe", &actions, &attributes, arguments, variables);
    for (size_t i = 0; i < ARRAY_SIZE(copies); i++)
        if (copies[i] >= 0)
            close(copies[i]);
    if (memory >= 0)
        close(memory);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    free(variables);
    return error ? -error : pid;
}
