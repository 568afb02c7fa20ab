#ifndef RESEAT_STATE_SERVER_NEWS_H
#define RESEAT_STATE_SERVER_NEWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

#define SERVER_NEWS_VERSION 1

/**
 * How a device server is, or that one is announced: reseat-watch and reseat-mdns write these to
 * their standard output, one after the other, for the agent or the command that started them.
 */
struct server_news {
    uint32_t version; /**< Set by server_news_write(). */
    bool listed;      /**< The file with the server's devices is new. */
    char code[16];    /**< The kind of problem as one word for scripts (doc/remote.md); "": none. */
    char address[256];      /**< Of an announced server; "": the news is of the server itself. */
    char problem[512];      /**< One line, safe to print: the problem and its remedy. */
    uint64_t round_trip_ns; /**< Of one message and its answer; 0: not known. */
    uint64_t read, write;   /**< Bytes a second; 0: not known. */
};

/** Returns 0 or -errno. Blocks while the pipe @fd is full. */
MUST_CHECK int server_news_write(struct server_news *news, int fd);

/** News of which a part may have come. */
struct server_news_reader {
    struct server_news news;
    size_t got; /**< Bytes of them. */
};
/** Where the next bytes belong, and how many more there are. */
char *server_news_room(struct server_news_reader *reader, size_t *ret_size);
/**
 * @count more bytes have come there; nothing in them is trusted.
 *
 * Returns 1 (reader->news are whole; the next bytes begin others), 0, or -EPROTO (they are not of
 * this version).
 */
MUST_CHECK int server_news_came(struct server_news_reader *reader, size_t count);

#endif
