#include "remote/driver/session/session.h"
#include "remote/wire/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>

#include "state/base/bytes/size.h"
#include "state/base/clock.h"
#include "state/base/log.h"

#define PATIENCE_ENV   "RESEAT_PATIENCE"
#define PATIENCE_S     60
#define PATIENCE_MAX_S (7 * 24 * 3600)

/* The longest try of one address while there are others. */
#define ADDRESS_NS (2 * NS_PER_S)
/* The pause between attempts grows from PAUSE_NS to PAUSE_MAX_NS. */
#define PAUSE_NS     (50 * NS_PER_MS)
#define PAUSE_MAX_NS (2 * NS_PER_S)
/* A host that has refused connections for so long has no server any more. Tunnels and forwarded
 * ports are back sooner. */
#define NOBODY_NS         (5 * NS_PER_S)
#define SPARE_DESCRIPTORS 16
/* Clocks of two hosts drift apart. */
#define DRIFT_NS (10 * NS_PER_MS)

uint32_t client_wanted_patience(void)
{
    const char *text = secure_getenv(PATIENCE_ENV);
    uint64_t seconds = PATIENCE_S;
    if (text && !number_parse(text, PATIENCE_MAX_S, &seconds))
        log_warn("%s=%s is no number of seconds up to %d", PATIENCE_ENV, text, PATIENCE_MAX_S);
    return (uint32_t)seconds;
}

/* ---- clocks ---- */

struct shift {
    struct client *client;
    int64_t ns;
};

static void connect_shift_device(void *object, void *data)
{
    struct device_object *device = object;
    const struct shift *shift = data;
    if (device->base.client != shift->client)
        return;
    pthread_mutex_lock(&shift->client->lock);
    device->away -= shift->ns;
    pthread_mutex_unlock(&shift->client->lock);
}

/* The server's clock was @ahead of ours, to within @roughly, when it answered. If it stood still
 * since the last time, because its host did, so did the clocks of its devices: shift what is known
 * of them. */
static void connect_take_clock(struct client *client, int64_t ahead, uint64_t roughly, bool again)
{
    struct shift shift = {client, ahead - client->ahead};
    uint64_t moved = (uint64_t)(shift.ns < 0 ? -shift.ns : shift.ns);
    if (again && moved <= roughly + client->roughly + DRIFT_NS)
        return;
    client->ahead = ahead;
    client->roughly = roughly;
    if (again)
        handle_each(ID_DEVICE, connect_shift_device, &shift);
}

/* ---- greetings ---- */

static int connect_send_hello(const struct client *client, struct link *link, uint64_t deadline_ns)
{
    struct pack pack;
    pack_init(&pack);
    pack_hello(&pack, &(struct msg_hello){.version = WIRE_VERSION,
                                          .features = client->session ? 0 : client->features,
                                          .session = client->session,
                                          .secret = client->secret,
                                          .secret_size = client->session ? WIRE_SECRET_SIZE : 0,
                                          .received = client->stream.received,
                                          .patience_s = client->patience_s});
    int error = greeting_send(link, MSG_HELLO, pack.bytes, pack.used, deadline_ns);
    pack_finish(&pack);
    return error;
}

static int connect_take_welcome(struct client *client, const struct msg_welcome *welcome)
{
    if (welcome->version != WIRE_VERSION) {
        log_warn("%s speaks version %u and this driver %d", client->address, welcome->version,
                 WIRE_VERSION);
        return -EPROTONOSUPPORT;
    }
    if (client->session)
        return welcome->session == client->session ? 0 : -EPROTO;
    if (welcome->session && welcome->secret_size != WIRE_SECRET_SIZE)
        return -EPROTO;
    client->session = welcome->session;
    if (client->patience_s > welcome->patience_s)
        client->patience_s = welcome->patience_s;
    if (welcome->session)
        memcpy(client->secret, welcome->secret, WIRE_SECRET_SIZE);
    return 0;
}

/* Exchange greetings: versions, features, and the session to go on with. -ESTALE: the session is
 * gone. */
static int connect_greet(struct client *client, struct link *link, uint64_t deadline_ns,
                         uint64_t *ret_received)
{
    unsigned char buffer[STREAM_GREETING_MAX];
    struct message message;
    bool again = client->session != 0;
    uint64_t asked = clock_now_ns();
    int error = connect_send_hello(client, link, deadline_ns);
    if (error == 0)
        error = greeting_receive(link, buffer, deadline_ns, &message);
    if (error)
        return error;
    struct unpack body = {message.body, message.body + message.size, false};
    struct msg_refused refused;
    struct msg_welcome welcome;
    if (message.type == MSG_REFUSED && unpack_refused(&body, &refused)) {
        log_warn("%s refuses: %s", client->address, refused.reason);
        return again ? -ESTALE : -ECONNREFUSED;
    }
    if (message.type != MSG_WELCOME || !unpack_welcome(&body, &welcome) ||
        (welcome.features & ~(again ? 0 : client->features)))
        return -EPROTO;
    error = connect_take_welcome(client, &welcome);
    if (error)
        return error;
    if (!again)
        client->features = welcome.features;
    uint64_t half = (clock_now_ns() - asked) / 2;
    connect_take_clock(client, (int64_t)(welcome.now_ns - (asked + half)), half, again);
    *ret_received = welcome.received;
    return 0;
}

/* ---- connections ---- */

static int connect_try_to_connect(struct client *client, const char *address, uint64_t deadline_ns,
                                  struct link **ret_link, uint64_t *ret_received)
{
    const char *where = NULL;
    const struct link_kind *kind = link_kind_of(address, &where);
    struct link *link = NULL;
    int error = kind ? kind->connect(where, NULL, deadline_ns, &link) : -EINVAL;
    if (error)
        return error;
    error = connect_greet(client, link, deadline_ns, ret_received);
    if (error)
        link->ops->destroy(link);
    else
        *ret_link = link;
    return error;
}

/* The program may have used up its descriptors. For as long as a connection is made the limit is
 * raised, if that is allowed. */
static bool connect_allow_more_descriptors(struct rlimit *ret_more)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_max - limit.rlim_cur < SPARE_DESCRIPTORS)
        return false;
    limit.rlim_cur += SPARE_DESCRIPTORS;
    *ret_more = limit;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static void connect_allow_no_more_descriptors(const struct rlimit *more)
{
    struct rlimit limit;
    /* Unless the program has changed it meanwhile. */
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur != more->rlim_cur)
        return;
    limit.rlim_cur -= SPARE_DESCRIPTORS;
    (void)!setrlimit(RLIMIT_NOFILE, &limit);
}

static int connect_to(struct client *client, const char *address, uint64_t deadline_ns,
                      struct link **ret_link, uint64_t *ret_received)
{
    struct rlimit more;
    int error = connect_try_to_connect(client, address, deadline_ns, ret_link, ret_received);
    if (error != -EMFILE || !connect_allow_more_descriptors(&more))
        return error;
    error = connect_try_to_connect(client, address, deadline_ns, ret_link, ret_received);
    connect_allow_no_more_descriptors(&more);
    return error;
}

/* Is there no server at the address? A name that is not found may be found later. */
static bool connect_is_refused(const char *address, int error)
{
    return error == -ECONNREFUSED ||
           (error == -ENOENT && strncmp(address, "unix:", strlen("unix:")) == 0);
}

/* Try the addresses in turn. -ECONNREFUSED: no server at any of them. */
static int connect_to_any(struct client *client, uint64_t deadline_ns, struct link **ret_link,
                          uint64_t *ret_received)
{
    char *copy = strdup(client->address), *rest = copy;
    unsigned left = 1;
    int error = copy ? -ECONNREFUSED : -ENOMEM;
    for (const char *at = client->address; (at = strchr(at, ',')); at++)
        left++;
    for (char *word = strsep(&rest, ","); word; word = strsep(&rest, ","), left--) {
        uint64_t now = clock_now_ns();
        uint64_t part = deadline_ns > now ? deadline_ns - now : 0;
        if (left > 1 && part > ADDRESS_NS)
            part = ADDRESS_NS;
        int failed = connect_to(client, word, now + part, ret_link, ret_received);
        if (failed == 0 || failed == -ESTALE) {
            error = failed;
            break;
        }
        if (!connect_is_refused(word, failed))
            error = failed;
    }
    free(copy);
    return error;
}

int connect_first(struct client *client, uint64_t deadline_ns, struct link **ret_link)
{
    uint64_t received = 0;
    return connect_to_any(client, deadline_ns, ret_link, &received);
}

/* Half of the pause is random, so that many clients do not come back together. */
static void connect_pause_before_attempt(unsigned attempt)
{
    uint64_t ns = attempt < 6 ? PAUSE_NS << attempt : PAUSE_MAX_NS;
    uint32_t chance = 0;
    (void)!getrandom(&chance, sizeof(chance), GRND_NONBLOCK);
    clock_sleep(ns / 2 + (ns / 2 * chance >> 32));
}

/* Has the host refused for so long that nobody can still have the session? */
static bool connect_is_nobody(int error, uint64_t *since_ns)
{
    if (error != -ECONNREFUSED) {
        *since_ns = 0;
        return false;
    }
    if (*since_ns == 0)
        *since_ns = clock_now_ns();
    return clock_now_ns() - *since_ns >= NOBODY_NS;
}

int connect_again(struct client *client)
{
    uint64_t until = clock_now_ns() + client->patience_s * NS_PER_S, nobody = 0;
    stream_detach(&client->stream);
    if (!client->session || client->patience_s == 0)
        return -EPIPE;
    log_info("the link with %s is broken: reconnecting", client->address);
    for (unsigned attempt = 0;; attempt++) {
        uint64_t received = 0, now = clock_now_ns();
        struct link *link = NULL;
        if (atomic_load(&client->leaving))
            return -ECANCELED;
        if (now >= until)
            return -ETIMEDOUT;
        uint64_t most = now + CONNECT_NS;
        int error = connect_to_any(client, most < until ? most : until, &link, &received);
        if (error == 0 && stream_attach(&client->stream, link, received))
            break;
        if (error == 0) {
            link->ops->destroy(link);
            return -EPROTO;
        }
        if (error == -ESTALE || connect_is_nobody(error, &nobody))
            return -EPIPE;
        connect_pause_before_attempt(attempt);
    }
    log_info("the session with %s goes on", client->address);
    return 0;
}
