#ifndef RESEAT_STATE_BASE_LOG_H
#define RESEAT_STATE_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

#include "state/base/compiler.h"

/*
 * One line for each event that an operator may need to know. Silent unless RESEAT_LOG is set:
 * "LEVEL" writes to the stderr with which the program began, "LEVEL:FILE" appends to FILE; LEVEL is
 * error, warn, info or debug. The variable is ignored in set-uid programs.
 */

enum log_level { LOG_LEVEL_OFF, LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/** What is written. Everything passes until the first line has read the environment. */
extern atomic_int log_threshold;

static inline bool log_enabled(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&log_threshold, memory_order_relaxed);
}

/**
 * Write one line; the macros below test the level before the arguments are evaluated.
 *
 * From any thread, outside signal handlers. Keeps errno, so that "%m" can be used. Lines over 1 KiB
 * are cut. Blocks as write(2) does; errors are dropped.
 */
void log_write(enum log_level level, const char *format, ...) PRINTF(2, 3);

#define log_at(level, ...) (log_enabled(level) ? log_write(level, __VA_ARGS__) : (void)0)
#define log_error(...)     log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)      log_at(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)      log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)     log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
