#ifndef RESEAT_AGENT_DAEMON_BROWSER_BROWSER_H
#define RESEAT_AGENT_DAEMON_BROWSER_BROWSER_H

#include "agent/daemon/peers.h"

/*
 * The page for browsers, which the endpoint of metrics serves on its port (doc/metrics.md).
 *
 * The page itself is the same for all and has no data. What it shows it asks for in JSON, and each
 * request becomes a connection to this agent with the rights of the user who signed it
 * (peers_connect()): there is no second way to ask anything. A request is signed, and the secret
 * itself is never sent, because another user may listen at the port while no agent does. Signed are
 * the challenge, which is new whenever the agent begins to listen, the host and port that the
 * browser asks, and the body: so a request that such a user is sent is refused by every agent.
 */

struct MHD_Connection;
struct MHD_Response;

#define PAGE_USERS_MAX  64
#define PAGE_GROUPS_MAX 64
/** With the NUL. */
#define PAGE_TOKEN_SIZE  33
#define PAGE_SIGNED_SIZE 65

/** A user who has asked for the page. */
struct page_user {
    uint64_t uid;
    uint64_t groups[PAGE_GROUPS_MAX]; /**< When they asked: others count for nothing. */
    size_t group_count;
    char token[PAGE_TOKEN_SIZE]; /**< Their secret. */
    uint64_t ends_ms;            /**< By uv_now(), which goes on from one agent to the next. */
};
struct page_users {
    struct page_user users[PAGE_USERS_MAX];
    size_t count;
};

struct browser_request;

struct browser {
    struct agent *agent;
    /** The HTTP library has something to do: let it, when this loop comes to it. */
    void (*wake)(struct browser *browser);
    char challenge[PAGE_TOKEN_SIZE]; /**< "": it listens nowhere. */
    uint16_t port;
    struct page_users users;
    struct browser_request *requests; /**< Those that are answered. */
};

/** Read the secrets that an earlier agent gave, or begin with none. */
void browser_init(struct browser *browser, struct agent *agent,
                  void (*wake)(struct browser *browser));
/** The agent has begun to listen at @port of 127.0.0.1. */
void browser_listens(struct browser *browser, uint16_t port);
/** End all answers: no connection of the HTTP library may be suspended when that is stopped. */
void browser_stop(struct browser *browser);
/** End answers that have taken long, or that their browsers do not read. */
void browser_tick(struct browser *browser);

/**
 * The secret of @peer's user, which is valid for a day from now on. Returns NULL when it cannot be
 * written to the file from which a later agent reads it; the log says why.
 */
const char *browser_token(struct browser *browser, const struct peer *peer);
/**
 * Find the user who signed a request to @host with this @body: @authorization is "Reseat
 * UID:SIGNATURE". Returns NULL where there is none. How long that takes tells nothing of the right
 * signature.
 */
const struct page_user *browser_signed_by(const struct browser *browser, const char *authorization,
                                          const char *host, const char *body, size_t size);

/** The page. The caller destroys it. NULL: no memory. */
struct MHD_Response *browser_page(void);
/** An answer in JSON, @body, which is a constant or copied. */
struct MHD_Response *browser_json(const char *body);

/**
 * Check the headers of a POST and begin to take its body. Returns 0 and the request, or the status
 * of HTTP with which it is refused.
 */
unsigned browser_begin(struct browser *browser, struct MHD_Connection *connection,
                       struct browser_request **ret_request);
/** Take a part of the body. False: it is longer than it may be. */
bool browser_take(struct browser_request *request, const char *bytes, size_t size);
/** The body is complete: who signed it. NULL: nobody. */
const struct page_user *browser_user(const struct browser_request *request);
/**
 * Answer a request that @user signed; NULL: with the challenge.
 *
 * Returns the status of HTTP, and the answer, which the caller destroys, or NULL without memory.
 */
unsigned browser_answer(struct browser_request *request, const struct page_user *user,
                        struct MHD_Response **ret_response);
/** The connection of @request has ended, or will: forget it. */
void browser_finish(struct browser_request *request);

#endif
