#include "agent/daemon/operations/verbs.h"

#include "agent/daemon/operations/drains.h"

const struct operation_kind operation_kinds[REQUEST_VERBS] = {
    [REQUEST_MOVE] = {asking_cancel, asking_expire, NULL, admit_settle},
    [REQUEST_SUSPEND] = {asking_cancel, asking_expire, NULL, admit_settle},
    [REQUEST_RESUME] = {resume_cancel, resume_expire, NULL, admit_settle},
    [REQUEST_PREWARM] = {asking_cancel, asking_expire, NULL, prewarm_settle},
    [REQUEST_CHECKPOINT] = {asking_cancel, asking_expire, checkpointing_answered},
    [REQUEST_PROTECT] = {asking_cancel, asking_expire},
    [REQUEST_TRACE] = {tracing_cancel, tracing_expire},
    [REQUEST_DRAIN] = {followers_cancel, followers_expire},
    [REQUEST_BALANCE] = {followers_cancel, .next = rebalance_step},
    [REQUEST_WAIT] = {waiting_cancel, waiting_expire},
};
