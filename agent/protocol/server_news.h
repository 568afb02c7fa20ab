#ifndef RESEAT_AGENT_PROTOCOL_SERVER_NEWS_H
#define RESEAT_AGENT_PROTOCOL_SERVER_NEWS_H

#include <stdbool.h>
#include <stdint.h>

/** MSG_SERVER, as a helper tells the agent: how a device server is, or that one is announced. */
struct server_news {
    char address[256]; /**< Of an announced server; "": the news is of the server itself. */
    /**
     * The kind of problem as one word for scripts (doc/remote.md lists them); "" if there is none.
     */
    char code[16];
    char problem[512];      /**< One line, safe to print: the problem and its remedy. */
    bool listed;            /**< The file with its devices is new. */
    uint64_t round_trip_ns; /**< Of one message and its answer; 0: not known. */
    uint64_t read, write;   /**< Bytes a second; 0: not known. */
};

#endif
