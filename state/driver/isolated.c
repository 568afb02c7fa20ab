#include "state/driver/isolated.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "state/base/log.h"
#include "state/driver/served.h"

static char driver[PATH_MAX], server[PATH_MAX]; /* Written once, before the first is opened. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static isolated_open_fn open_isolated;
static isolated_standby_fn standby_isolated;
static served_leave_fn leave_isolated;

void isolated_init(void)
{
    const char *of_driver = getenv(ISOLATED_ENV_DRIVER), *of_server = getenv(ISOLATED_ENV_SERVER);
    if (getauxval(AT_SECURE) || !of_driver || of_driver[0] != '/' || !of_server ||
        strlen(of_driver) >= sizeof(driver) || strlen(of_server) >= sizeof(server))
        return;
    strcpy(driver, of_driver);
    strcpy(server, of_server);
}

bool isolated_is_on(void)
{
    return driver[0] != '\0';
}

static void isolated_load(void)
{
    void *(CL_API_CALL * address)(const char *) = NULL;
    void *handle = dlopen(driver, RTLD_NOW | RTLD_LOCAL);
    if (handle)
        *(void **)&address = dlsym(handle, "clGetExtensionFunctionAddress");
    if (address) {
        *(void **)&open_isolated = address(ISOLATED_ENTRY);
        *(void **)&standby_isolated = address(ISOLATED_STANDBY);
        *(void **)&leave_isolated = address(SERVED_LEAVE);
    }
    if (!open_isolated || !standby_isolated || !leave_isolated)
        log_error("drivers cannot be opened in another process: %s",
                  handle ? "our own is another release's" : dlerror());
}

int isolated_open(const char *icd, cl_uint room, cl_platform_id *ret_platforms, cl_uint *ret_count)
{
    pthread_once(&once, isolated_load);
    int error = open_isolated && standby_isolated && leave_isolated
                    ? open_isolated(server, icd, room, ret_platforms, ret_count)
                    : -ENOSYS;
    if (error)
        log_warn("driver %s not used: %s opens it for nobody (%s)", icd, server, strerror(-error));
    return error ? -ENOENT : 0;
}

void isolated_standby(cl_platform_id platform, bool wanted)
{
    if (standby_isolated)
        standby_isolated(platform, wanted);
}

int isolated_leave(void)
{
    return leave_isolated ? leave_isolated() : 0;
}
