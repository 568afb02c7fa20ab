#include "agent/daemon/operations/verbs.h"

#include "agent/daemon/operations/drains.h"

const struct operation_kind operation_kinds[OPERATION_VERBS] = {
    [OPERATION_MOVE] = {MSG_MOVE, asking_cancel, asking_expire, NULL, admit_settle},
    [OPERATION_SUSPEND] = {MSG_SUSPEND, asking_cancel, asking_expire, NULL, admit_settle},
    [OPERATION_RESUME] = {MSG_RESUME, resume_cancel, resume_expire, NULL, admit_settle},
    [OPERATION_PREWARM] = {MSG_PREWARM, asking_cancel, asking_expire, NULL, prewarm_settle},
    [OPERATION_CHECKPOINT] = {MSG_CHECKPOINT, asking_cancel, asking_expire, checkpointing_answered},
    [OPERATION_PROTECT] = {MSG_PROTECT, asking_cancel, asking_expire},
    [OPERATION_TRACE] = {MSG_TRACE, tracing_cancel, tracing_expire},
    [OPERATION_DRAIN] = {MSG_DRAIN, followers_cancel},
    [OPERATION_BALANCE] = {MSG_BALANCE, followers_cancel, .next = rebalance_step},
};
