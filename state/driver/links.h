#ifndef RESEAT_STATE_DRIVER_LINKS_H
#define RESEAT_STATE_DRIVER_LINKS_H

#include <limits.h>
#include <stdbool.h>

#include "state/driver/driver.h"

/*
 * What links were measured to do, on disk, so that it is measured once a week and not by each
 * program's first move. One folder of the user's alone (L3), a file for each device and one for the
 * host, named by what they are of: the device, its driver's version, and the machine, as a home is
 * often shared by several. Files are whole or not there (written beside, then renamed); no locks:
 * of two processes that measured the same, the later one's figures stay.
 *
 * Nothing in it is needed: what is missing, damaged, too old or somebody else's is measured again.
 * All functions are thread-safe, block on the disk, and need no gate.
 */

/** Figures are used for so long. */
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

/** Keep what was measured just now, in place of what was. Returns 0, -ENOENT (nothing is kept),
 * -EINVAL (no link does that), or -errno: then it is as before; why is in the log. */
int links_keep(const struct links *links, const struct device_key *key, const struct devinfo *info,
               const struct link_figures *figures);
int links_keep_host(const struct links *links, const struct host_figures *figures);

#endif
