#include "agent/daemon/browser/browser.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "agent/daemon/agent_messages.h"
#include "state/base/files/file.h"

#define FILE_NAME "page"
#define FILE_MAX  (256u << 10)
#define VALID_MS  (24u * 3600 * 1000)

static void tokens_make(char ret[PAGE_TOKEN_SIZE])
{
    uint8_t bytes[PAGE_TOKEN_SIZE / 2];

    randombytes_buf(bytes, sizeof(bytes));
    sodium_bin2hex(ret, PAGE_TOKEN_SIZE, bytes, sizeof(bytes));
}

/** Remove those whose time is over; and of a clock that began again since all that it cannot say.
 */
static void tokens_expire(struct browser *browser)
{
    uint64_t now = uv_now(&browser->agent->loop);
    struct page_users *users = &browser->users;
    size_t kept = 0;

    for (size_t i = 0; i < users->count; i++) {
        const struct page_user *user = &users->users[i];
        if (user->ends_ms > now && user->ends_ms - now <= VALID_MS &&
            strlen(user->token) == PAGE_TOKEN_SIZE - 1)
            users->users[kept++] = *user;
    }
    users->count = kept;
}

static void tokens_load(struct browser *browser)
{
    struct message message;
    char path[PATH_MAX], *bytes;
    size_t size;

    if (paths_join(browser->agent->paths.folder, FILE_NAME, path) ||
        paths_read(path, FILE_MAX, &bytes, &size))
        return;
    /* As in a frame, the length is before the map. */
    if (size > sizeof(uint32_t) && !message_decode((const uint8_t *)bytes + sizeof(uint32_t),
                                                   size - sizeof(uint32_t), &message)) {
        take_page_users(&message.root, &browser->users);
        message_finish(&message);
    }
    free(bytes);
    tokens_expire(browser);
}

static int tokens_save(const struct browser *browser)
{
    char path[PATH_MAX];
    struct frame frame;

    frame_init(&frame, FILE_NAME);
    put_page_users(&frame, &browser->users);
    int error = frame_seal(&frame);
    if (!error)
        error = paths_join(browser->agent->paths.folder, FILE_NAME, path);
    if (!error)
        error = file_replace_path(path, frame.buffer.data, frame.buffer.size);
    frame_finish(&frame);
    return error;
}

void browser_init(struct browser *browser, struct agent *agent,
                  void (*wake)(struct browser *browser))
{
    *browser = (struct browser){.agent = agent, .wake = wake};
    (void)!sodium_init(); /* Random bytes need none, and there is no other way to fail. */
    tokens_load(browser);
}

void browser_listens(struct browser *browser, uint16_t port)
{
    browser->port = port;
    tokens_make(browser->challenge);
}

/** The entry of @uid: a new one in place of the one that ends first, where there are too many. */
static struct page_user *tokens_entry(struct page_users *users, uid_t uid)
{
    struct page_user *first = users->users;

    for (size_t i = 0; i < users->count; i++) {
        if (users->users[i].uid == uid)
            return &users->users[i];
        if (users->users[i].ends_ms < first->ends_ms)
            first = &users->users[i];
    }
    if (users->count < PAGE_USERS_MAX)
        first = &users->users[users->count++];
    *first = (struct page_user){.uid = uid};
    tokens_make(first->token);
    return first;
}

const char *browser_token(struct browser *browser, const struct peer *peer)
{
    tokens_expire(browser);
    struct page_user *user = tokens_entry(&browser->users, peer->uid);

    user->group_count = 0;
    for (size_t i = 0; i < peer->group_count && i < PAGE_GROUPS_MAX; i++)
        user->groups[user->group_count++] = peer->groups[i];
    user->ends_ms = uv_now(&browser->agent->loop) + VALID_MS;
    int error = tokens_save(browser);
    if (error)
        agent_log("%s/" FILE_NAME ": %s; there is no page for user %u",
                  browser->agent->paths.folder, strerror(-error), (unsigned)peer->uid);
    return error ? NULL : user->token;
}

/** HMAC-SHA-256 of the challenge, @host and @body, with newlines between, as hexadecimal digits. */
static void tokens_sign(const char *token, const char *challenge, const char *host,
                        const char *body, size_t size, char ret[PAGE_SIGNED_SIZE])
{
    const struct {
        const char *bytes;
        size_t size;
    } parts[] = {
        {challenge, strlen(challenge)}, {"\n", 1}, {host, strlen(host)}, {"\n", 1}, {body, size}};
    crypto_auth_hmacsha256_state state;
    uint8_t bytes[crypto_auth_hmacsha256_BYTES];

    crypto_auth_hmacsha256_init(&state, (const uint8_t *)token, strlen(token));
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        crypto_auth_hmacsha256_update(&state, (const uint8_t *)parts[i].bytes, parts[i].size);
    crypto_auth_hmacsha256_final(&state, bytes);
    sodium_bin2hex(ret, PAGE_SIGNED_SIZE, bytes, sizeof(bytes));
}

const struct page_user *browser_signed_by(const struct browser *browser, const char *authorization,
                                          const char *host, const char *body, size_t size)
{
    uint64_t now = uv_now(&browser->agent->loop);
    char given[PAGE_SIGNED_SIZE], made[PAGE_SIGNED_SIZE];
    uint32_t uid;
    int length = 0;

    if (!authorization || !host || !browser->challenge[0] ||
        sscanf(authorization, "Reseat %" SCNu32 ":%64[0-9a-f]%n", &uid, given, &length) != 2 ||
        authorization[length] || strlen(given) != PAGE_SIGNED_SIZE - 1)
        return NULL;
    for (size_t i = 0; i < browser->users.count; i++) {
        const struct page_user *user = &browser->users.users[i];
        if (user->uid != uid || user->ends_ms <= now)
            continue;
        tokens_sign(user->token, browser->challenge, host, body, size, made);
        return sodium_memcmp(made, given, PAGE_SIGNED_SIZE - 1) == 0 ? user : NULL;
    }
    return NULL;
}
