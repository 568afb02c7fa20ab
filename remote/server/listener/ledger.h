#ifndef RESEAT_REMOTE_SERVER_LISTENER_LEDGER_H
#define RESEAT_REMOTE_SERVER_LISTENER_LEDGER_H

#include <stdint.h>

#include "state/base/compiler.h"

/*
 * What memory of one device its sessions were promised: together never more than there is. Pure.
 */

struct ledger {
    uint64_t total; /**< What may be promised. */
    uint64_t given; /**< What is. */
};

/**
 * Ask for @wish bytes, or at the least for @least of them; more than that is promised only while
 * there is plenty.
 *
 * @held  What the session has; becomes more by what is returned.
 * Returns what was promised, 0 or from @least to @wish.
 */
MUST_CHECK uint64_t ledger_ask(struct ledger *ledger, uint64_t *held, uint64_t least,
                               uint64_t wish);
/** Give @bytes of what it has back; no more than that counts. */
void ledger_return(struct ledger *ledger, uint64_t *held, uint64_t bytes);

#endif
