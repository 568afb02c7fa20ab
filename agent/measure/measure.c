#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/config/paths.h"
#include "state/driver/device_key.h"
#include "state/driver/links.h"
#include "state/driver/served.h"
#include "state/transfer/transfer.h"

/*
 * reseat-measure KEY: measure the host and the link of one device, whose name is in the form of
 * device_key_format(), and store the results where programs look for them (links.h). It is a
 * separate program, so that the caller opens no driver and can kill a measurement that hangs.
 */

static int measure_fail(const char *what, const char *why)
{
    fprintf(stderr, "reseat-measure: %s: %s\n", what, why);
    return 1;
}

static int measure(const struct device_key *key)
{
    struct device *device = NULL;
    struct residence *residence = NULL;
    cl_int driver_error = CL_SUCCESS;
    int error = driver_open_device(key, &device);
    if (error)
        return measure_fail(key->device, "its driver cannot be opened, or shows it no more");
    error = residence_create(NULL, device, &residence, &driver_error);
    if (!error)
        error = transfer_measure(residence);
    if (error == -EIO)
        return measure_fail(key->device, "its driver fails");
    return error ? measure_fail(key->device, strerror(-error)) : 0;
}

int main(int argc, char **argv)
{
    struct device_key key;
    char driver[PATH_MAX];
    if (argc != 2 || device_key_parse(argv[1], &key)) {
        fprintf(stderr, "usage: reseat-measure KEY\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    served_set_library(paths_of(PATHS_REMOTE, driver) ? NULL : driver);
    int error = paths_links(the_links.folder);
    int status = error ? measure_fail("figures cannot be kept", strerror(-error)) : measure(&key);
    /* _exit() skips the exit handlers of drivers, which may hang. */
    _exit(status);
}
