#ifndef RESEAT_INTERPOSE_CONTROL_CONTROL_PROTECT_H
#define RESEAT_INTERPOSE_CONTROL_CONTROL_PROTECT_H

#include "agent/protocol/protection.h"
#include "state/driver/driver.h"

/* Whether the program is protected (state/recovery/protect.h): as it was started, then as the agent
 * says. */

/** True when @text, a value of the environment or NULL, asks for protection. */
bool control_protect_is_wanted(const char *text);
/**
 * At the start, before an agent is heard.
 *
 * @places  Where it may go when its device is lost and no agent says where; copied.
 * @text    Of the environment, or NULL: not protected.
 */
void control_protect_start(const struct device_key *places, size_t count, const char *text);

/** A number for the agent's next order. Of two orders the later one is in effect, whichever of
 * their threads runs last. Called by the control thread. */
uint64_t control_protect_order(void);
/**
 * Protect it like that from now on, unless a later order was carried out already.
 *
 * Blocks on a snapshot or a move that is under way. 0, -ENOMEM or -EAGAIN (no thread).
 */
MUST_CHECK int control_protect_apply(const struct protection *protection, uint64_t order);
/** How the program is protected; PROTECTION_UNSAID before the start. Any thread. */
void control_protect_read(struct protection *ret_protection);

#endif
