#ifndef RESEAT_STATE_MEMORY_DIGEST_PRIV_H
#define RESEAT_STATE_MEMORY_DIGEST_PRIV_H

#include "state/memory/digest.h"

/** 0, -ETIMEDOUT or -ECANCELED. */
int digest_check(const struct transfer_limits *limits);

#endif
