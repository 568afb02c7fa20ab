#ifndef RESEAT_TESTS_REMOTE_CONTAINED_H
#define RESEAT_TESTS_REMOTE_CONTAINED_H

#include <stddef.h>
#include <stdint.h>

/*
 * The system calls that a session's process must not be able to make, with targets that would show
 * it. Whoever makes them (a kernel, or contained_tool.c) has a copy of the memory that they name.
 */

#define CONTAINED_MAX   256
#define CONTAINED_WORDS 7

/** An argument that is a place in that memory. */
#define CONTAINED_AT(place) (INT64_C(1) << 62 | (place))

struct contained {
    struct {
        const char *what;
        long words[CONTAINED_WORDS]; /**< The number, and six arguments. */
    } calls[CONTAINED_MAX];
    unsigned count;
    size_t used;
    char memory[64 << 10];
};

struct contained_targets {
    long server;               /**< A process. */
    const char *revoked, *key; /**< Of the authority. */
    const char *file;          /**< Somebody's in /tmp. */
    const char *shared;        /**< Somebody's in /dev/shm. */
};

/** All that has to be refused. */
void contained_fill(struct contained *contained, const struct contained_targets *targets);
/** One more: a new file. */
void contained_open(struct contained *contained, const char *path);
/** One more: bytes to standard error. */
void contained_write(struct contained *contained, const char *line);

#endif
