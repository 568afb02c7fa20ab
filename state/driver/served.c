#include "state/driver/served.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "state/base/log.h"

#define LIBRARY "libreseat-remote.so"

static pthread_once_t once = PTHREAD_ONCE_INIT, isolated_once = PTHREAD_ONCE_INIT;
/* Written before the first server, or isolated driver, is opened. */
static char library[PATH_MAX], isolated_library[PATH_MAX], isolated_server[PATH_MAX];

/* Functions of our driver; all of a group exist, or none. */
static served_open_fn open_server;
static served_ended_fn server_ended;
static served_leave_fn server_leave, leave_isolated;
static isolated_open_fn open_isolated;
static isolated_standby_fn standby_isolated;

struct served_function {
    const char *name;
    void **at;
};

/* Load our driver and look up its functions are. NULL, or why it cannot be used. */
static const char *served_load_driver(const char *path, const struct served_function *functions,
                                      size_t count)
{
    void *(CL_API_CALL * address)(const char *) = NULL;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    bool all = true;

    if (!handle)
        return dlerror();
    *(void **)&address = dlsym(handle, "clGetExtensionFunctionAddress");
    for (size_t i = 0; i < count; i++) {
        *functions[i].at = address ? address(functions[i].name) : NULL;
        all = all && *functions[i].at;
    }
    for (size_t i = 0; !all && i < count; i++)
        *functions[i].at = NULL;
    return all ? NULL : "our driver is another release's";
}

bool served_is_address(const char *icd)
{
    static const char *const schemes[] = {"tcp:", "unix:", "vsock:"};

    for (size_t i = 0; i < ARRAY_SIZE(schemes); i++)
        if (!strncmp(icd, schemes[i], strlen(schemes[i])))
            return true;
    return false;
}

void served_set_library(const char *path)
{
    if (path && path[0] == '/' && strlen(path) < sizeof(library))
        strcpy(library, path);
}

/* Find the files of a release beside this library or program. Relative paths are not searched,
 * since they would depend on the working folder. */
static void served_find_beside(void)
{
    Dl_info own;
    const char *slash =
        dladdr((void *)served_find_beside, &own) ? strrchr(own.dli_fname, '/') : NULL;

    if (!slash || own.dli_fname[0] != '/' ||
        snprintf(library, sizeof(library), "%.*s/" LIBRARY, (int)(slash - own.dli_fname),
                 own.dli_fname) >= (int)sizeof(library))
        library[0] = '\0';
}

static void served_load(void)
{
    const struct served_function functions[] = {{SERVED_ENTRY, (void **)&open_server},
                                                {SERVED_ENDED, (void **)&server_ended},
                                                {SERVED_LEAVE, (void **)&server_leave}};

    if (!library[0])
        served_find_beside();
    const char *problem = library[0] ? served_load_driver(library, functions, ARRAY_SIZE(functions))
                                     : "it is not known where the driver is";
    if (problem)
        log_warn("devices of servers cannot be used: %s", problem);
}

int served_open(const char *address, cl_uint room, cl_platform_id *ret_platforms,
                cl_uint *ret_count)
{
    /* A set-uid program does not connect where its caller's environment says. */
    if (getauxval(AT_SECURE))
        return -ENOENT;
    pthread_once(&once, served_load);
    if (!open_server)
        return -ENOENT;
    int error = open_server(address, room, ret_platforms, ret_count);
    return error == -ENOMEM ? error : error ? -ENOENT : 0;
}

int served_leave(void)
{
    int error = leave_isolated ? leave_isolated() : 0;
    return error == 0 && server_leave ? server_leave() : error;
}

bool served_ended(cl_platform_id platform)
{
    return server_ended(platform);
}

void isolated_init(void)
{
    const char *driver = getenv(ISOLATED_ENV_DRIVER), *server = getenv(ISOLATED_ENV_SERVER);

    if (getauxval(AT_SECURE) || !driver || driver[0] != '/' || !server ||
        strlen(driver) >= sizeof(isolated_library) || strlen(server) >= sizeof(isolated_server))
        return;
    strcpy(isolated_library, driver);
    strcpy(isolated_server, server);
}

bool isolated_is_on(void)
{
    return isolated_library[0] != '\0';
}

static void isolated_load(void)
{
    const struct served_function functions[] = {{ISOLATED_ENTRY, (void **)&open_isolated},
                                                {ISOLATED_STANDBY, (void **)&standby_isolated},
                                                {SERVED_LEAVE, (void **)&leave_isolated}};
    const char *problem = served_load_driver(isolated_library, functions, ARRAY_SIZE(functions));

    if (problem)
        log_error("drivers cannot be opened in another process: %s", problem);
}

int isolated_open(const char *icd, cl_uint room, cl_platform_id *ret_platforms, cl_uint *ret_count)
{
    pthread_once(&isolated_once, isolated_load);
    int error = open_isolated ? open_isolated(isolated_server, icd, room, ret_platforms, ret_count)
                              : -ENOSYS;
    if (error)
        log_warn("driver %s not used: %s opens it for nobody (%s)", icd, isolated_server,
                 strerror(-error));
    return error ? -ENOENT : 0;
}

void isolated_standby(cl_platform_id platform, bool wanted)
{
    if (standby_isolated)
        standby_isolated(platform, wanted);
}
