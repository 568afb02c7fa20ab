#ifndef RESEAT_REMOTE_IDENTITY_GRANT_H
#define RESEAT_REMOTE_IDENTITY_GRANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * What a client's certificate allows it: which devices of a server, how much memory of each
 * session, how many sessions at once, and what share of a device's time. Pure.
 *
 * In the certificate it is one line of text, so that `openssl x509 -text` shows it:
 *
 *   reseat-grant-1 devices=gpu0,gpu1 memory=8GiB sessions=4 share=100
 *
 * with * for all devices and - where there is no limit. There is one way to write a grant, and no
 * other is taken; so what a server of another version does not know is refused, not left out.
 */

#define GRANT_DEVICES_MAX  16
#define GRANT_DEVICE_MAX   32   /**< Bytes of a device's name, with the NUL. */
#define GRANT_SESSIONS_MAX 4096 /**< A limit of more is none. */
#define GRANT_SHARE        100  /**< Where nothing else is said. */
#define GRANT_SHARE_MAX    1000
#define GRANT_TEXT_MAX     640 /**< Bytes of any grant's text, with the NUL. */
#define GRANT_REASON_MAX   256

#define GRANT_UNLIMITED_MEMORY   UINT64_MAX
#define GRANT_UNLIMITED_SESSIONS UINT32_MAX

struct grant {
    char devices[GRANT_DEVICES_MAX][GRANT_DEVICE_MAX];
    size_t device_count; /**< 0: all that the server offers. */
    uint64_t memory;     /**< Bytes, more than 0. */
    uint32_t sessions;   /**< 1 to GRANT_SESSIONS_MAX, or GRANT_UNLIMITED_SESSIONS. */
    uint32_t share;      /**< Of a device's time, beside that of others: 1 to GRANT_SHARE_MAX. */
};

/** Everything that the server offers. */
#define GRANT_ALL                                                                                  \
    ((struct grant){.memory = GRANT_UNLIMITED_MEMORY,                                              \
                    .sessions = GRANT_UNLIMITED_SESSIONS,                                          \
                    .share = GRANT_SHARE})

/**
 * Set the devices from a list as people write it, "gpu0,gpu1"; "*" or "": all.
 *
 * @ret_reason  Written on failure only; safe to print.
 * Returns 0 or -EINVAL; then @grant is as it was.
 */
MUST_CHECK int grant_set_devices(struct grant *grant, const char *list,
                                 char ret_reason[GRANT_REASON_MAX]);

/** May its holder use the device that the server calls so? */
bool grant_has_device(const struct grant *grant, const char *device);

/** The text of a grant that is valid. */
void grant_format(const struct grant *grant, char ret_text[GRANT_TEXT_MAX]);

/** What grant_format() wrote, and nothing else; without a NUL. 0 or -EINVAL. */
MUST_CHECK int grant_parse(const char *text, size_t length, struct grant *ret_grant);

#endif
