#include "state/driver/served.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

#include "state/base/log.h"

#define LIBRARY "libreseat-remote.so"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char library[PATH_MAX]; /* Written before the first server is opened. */
static served_open_fn open_server;
static served_ended_fn server_ended;
static served_leave_fn server_leave;

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

/* Where this library, or program, is: all of a release lies together. One that was named by a path
 * from some folder is not looked for from another one. */
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
    void *(CL_API_CALL * address)(const char *) = NULL;

    if (!library[0])
        served_find_beside();
    if (!library[0]) {
        log_warn("devices of servers cannot be used: it is not known where the driver is");
        return;
    }
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle)
        *(void **)&address = dlsym(handle, "clGetExtensionFunctionAddress");
    if (address) {
        *(void **)&open_server = address(SERVED_ENTRY);
        *(void **)&server_ended = address(SERVED_ENDED);
        *(void **)&server_leave = address(SERVED_LEAVE);
    }
    if (!open_server || !server_ended || !server_leave)
        log_warn("devices of servers cannot be used: %s",
                 handle ? "the driver is another release's" : dlerror());
}

int served_open(const char *address, cl_uint room, cl_platform_id *ret_platforms,
                cl_uint *ret_count)
{
    /* Whoever runs a program with the rights of another user says nothing of where it connects. */
    if (getauxval(AT_SECURE))
        return -ENOENT;
    pthread_once(&once, served_load);
    if (!open_server || !server_ended || !server_leave)
        return -ENOENT;
    int error = open_server(address, room, ret_platforms, ret_count);
    return error == -ENOMEM ? error : error ? -ENOENT : 0;
}

int served_leave(void)
{
    return server_leave ? server_leave() : 0;
}

bool served_ended(cl_platform_id platform)
{
    return server_ended(platform);
}
