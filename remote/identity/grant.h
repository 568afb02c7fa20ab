#ifndef RESEAT_REMOTE_IDENTITY_GRANT_H
#define RESEAT_REMOTE_IDENTITY_GRANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * What a client's certificate permits: which devices of a server, how much memory for each session,
 * how many sessions at the same time, and what share of a device's time. Functions without side
 * effects.
 *
 * In the certificate a grant is one line of text, so that `openssl x509 -text` shows it:
 *
 *   reseat-grant-1 devices=gpu0,gpu1 memory=8GiB sessions=4 share=100
 *
 * "*" means all devices, and "-" means no limit. Each grant has exactly one spelling, and all other
 * text is refused. A server therefore refuses a restriction that it does not know instead of
 * ignoring it.
 */

#define GRANT_DEVICES_MAX  16
#define GRANT_DEVICE_MAX   32   /**< Bytes of a device's name, with the NUL. */
#define GRANT_SESSIONS_MAX 4096 /**< Largest limit. */
#define GRANT_SHARE        100  /**< Default share. */
#define GRANT_SHARE_MAX    1000
#define GRANT_TEXT_MAX     640 /**< Bytes of any grant's text, with the NUL. */
#define GRANT_REASON_MAX   256

#define GRANT_UNLIMITED_MEMORY   UINT64_MAX
#define GRANT_UNLIMITED_SESSIONS UINT32_MAX

struct grant {
    char devices[GRANT_DEVICES_MAX][GRANT_DEVICE_MAX];
    size_t device_count; /**< 0: all devices that the server offers. */
    uint64_t memory;     /**< Bytes for each session, more than 0, or GRANT_UNLIMITED_MEMORY. */
    uint32_t sessions;   /**< 1 to GRANT_SESSIONS_MAX, or GRANT_UNLIMITED_SESSIONS. */
    uint32_t share;      /**< Weight among all sessions of a device: 1 to GRANT_SHARE_MAX. */
};

/** All devices without limits, with the default share. */
#define GRANT_ALL                                                                                  \
    ((struct grant){.memory = GRANT_UNLIMITED_MEMORY,                                              \
                    .sessions = GRANT_UNLIMITED_SESSIONS,                                          \
                    .share = GRANT_SHARE})

/**
 * Set the devices from a list such as "gpu0,gpu1". "*" and "" mean all devices.
 *
 * @ret_reason  Written on failure only. Safe to print.
 * Returns 0, or -EINVAL; then @grant is unchanged.
 */
MUST_CHECK int grant_set_devices(struct grant *grant, const char *list,
                                 char ret_reason[GRANT_REASON_MAX]);

/** Does the grant include the device that the server names @device? */
bool grant_has_device(const struct grant *grant, const char *device);

/** Write the text of a valid grant. */
void grant_format(const struct grant *grant, char ret_text[GRANT_TEXT_MAX]);

/** Read a grant from exactly the text that grant_format() writes. @text has no NUL. Returns 0 or
 *  -EINVAL. */
MUST_CHECK int grant_parse(const char *text, size_t length, struct grant *ret_grant);

#endif
