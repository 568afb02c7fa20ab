#ifndef RESEAT_AGENT_CLI_RECOVER_LOST_H
#define RESEAT_AGENT_CLI_RECOVER_LOST_H

#include "agent/cli/image/images.h"
#include "state/image/image_lease.h"

/* Programs with images in a folder: which of them are lost, by their leases, and their restart. */

/** What is asked of reseat recover. */
struct recover {
    const char *from, *device;
    uint64_t timeout_ms;
    uint32_t lease_ms; /**< With --watch, of this host. */
    bool dry_run, watch;
};

/** What is known of a program. */
enum outcome { UNKNOWN, CANNOT, ENDED, ALIVE, LOST, WAITS, ELSEWHERE, RECOVERED };

/** A program, as its last image describes it. */
struct lost {
    char image[IMAGE_NAME_MAX];
    struct image_summary summary;
    const struct image_lease *by; /**< In the image; NULL: it may be running or not. */
    struct lease_sight seen;      /**< Its lease. */
    struct lease_sight host;      /**< With --watch, the lease of the host that runs it. */
    long priority;                /**< As reseat run has it. */
    enum outcome outcome;
    char reason[PROTOCOL_TEXT_MAX];
    pid_t pid; /**< The restarted process. */

    /* What --watch has printed last. */
    enum outcome told;
    char told_reason[PROTOCOL_TEXT_MAX];
};

/** The programs of a folder. */
struct losses {
    const struct output *output;
    const struct recover *wanted;
    char path[PATH_MAX];
    struct lost *lost;
    size_t count;
    bool unread; /**< Some images could not be read. */
    bool quiet;  /**< Do not say again which. */
    /** Since when this host can read all leases and, with --watch, renew its own in time. Silence
     * before that says nothing: others may have been unable to renew theirs. */
    uint64_t well_ns;
};

/**
 * Find the programs of all images, the most important first. Returns 0, or an exit status after
 * printing the reason; losses_finish() frees what was found.
 */
MUST_CHECK int losses_collect(struct losses *losses, const struct images *images);
void losses_finish(struct losses *losses);

void lost_conclude(struct lost *lost, enum outcome outcome, const char *reason);
/** True if both are of one program. */
bool lost_is_same(const struct lost *one, const struct lost *other);
/** How often the program was taken over since the process that wrote its image had its lease. */
uint64_t lost_takes(const struct lost *lost);
/** True when @sight is silent for 1.25 times its lease, and for @more_ns beyond that. */
bool lost_is_silent(const struct losses *losses, const struct lease_sight *sight, uint64_t more_ns);
/** Look at the program's lease, and conclude what is known by now. */
void lost_look_at(const struct losses *losses, struct lost *lost);
/**
 * Start a LOST program, unless another host takes it first, and wait until it has its progress:
 * then it is RECOVERED, else the reason is there.
 */
void lost_start(const struct losses *losses, struct lost *lost);
/** A program as an object: "program", "image", "host", "outcome", "reason" and "pid". */
json_t *lost_describe(const struct lost *lost);

/**
 * Send heartbeats of this host to a folder of images, and recover programs of hosts whose
 * heartbeats stop, and print what happens. Does not return.
 */
void watch_run(const struct output *output, const struct recover *wanted, const char *folder);

#endif
