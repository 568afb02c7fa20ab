#ifndef RESEAT_STATE_DRIVER_LINKS_H
#define RESEAT_STATE_DRIVER_LINKS_H

#include <limits.h>
#include <stdbool.h>

#include "state/driver/driver.h"

/*
 * Measured figures of links, on disk, so that they are measured once a week and not at each
 * program's first move. One folder of the user alone (L3), with one file for each device and one
 * for the host, named by the device, its driver's version and the machine, because several machines
 * may share a home. Files are complete or absent (written beside, then renamed); no locks: if two
 * processes measure the same, the later figures stay.
 *
 * Nothing in it is essential: what is missing, damaged, too old or owned by somebody else is
 * measured again. All functions are thread-safe, block on the disk, and need no gate.
 */

/** Figures are used for this time. */
#define LINKS_AGE_S (7u * 24 * 3600)

struct links {
    char folder[PATH_MAX]; /**< Absolute; "": nothing is kept. */
};
/** The process's; set before the first transfer. */
extern struct links the_links;

/**
 * The figures of a device, or of the host.
 *
 * @ret_measured_s  When they were measured, in seconds since 1970; or NULL.
 * Returns 0, -ENOENT (there are none that could be used), or -errno of a folder that cannot be
 * used; outputs are then untouched.
 */
MUST_CHECK int links_find(const struct links *links, const struct device_key *key,
                          const struct devinfo *info, struct link_figures *ret_figures,
                          uint64_t *ret_measured_s);
MUST_CHECK int links_find_host(const struct links *links, struct host_figures *ret_figures,
                               uint64_t *ret_measured_s);

/** Store new figures in place of the old ones. Returns 0, -ENOENT (no folder), -EINVAL (impossible
 * figures), or -errno: then the old ones stay and the log has the reason. */
int links_keep(const struct links *links, const struct device_key *key, const struct devinfo *info,
               const struct link_figures *figures);
int links_keep_host(const struct links *links, const struct host_figures *figures);

#endif
