#include "remote/driver/servers/servers.h"

#include <errno.h>
#include <pthread.h>

#include "state/base/clock.h"
#include "state/base/threads/thread.h"

/* The receiving thread finds out that a session has ended within this time. */
#define FOUND_OUT_NS (3 * NS_PER_S)

/* The least time between two standby sessions: a driver may end as soon as it is open. */
#define AHEAD_NS  (2 * NS_PER_S)
#define FAILED_NS (30 * NS_PER_S)

/* Guards `renewed` and `standby` of all clients; held while such a session is begun. */
static pthread_mutex_t renewing = PTHREAD_MUTEX_INITIALIZER;

/* The thread that begins a standby session. */
static struct {
    pthread_mutex_t lock;
    pthread_t thread; /* guarded by lock, as is... */
    bool started;     /* ...this: it is to be joined */
    atomic_bool runs;
    _Atomic uint64_t next_ns; /* not before */
} ahead = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Does the session have the same devices, in the same order? */
static bool renew_has_devices_of(const struct client *client, const struct client *before)
{
    const struct inventory *now = &client->inventory, *then = &before->inventory;
    bool same = now->count == then->count;
    for (size_t i = 0; same && i < now->count; i++)
        same = device_key_equal(&now->entries[i].key, &then->entries[i].key);
    return same;
}

/* A post may fail before the receiving thread has noticed the end and ended what waits: wait for
 * that. */
static bool renew_has_ended(struct client *client)
{
    uint64_t deadline = clock_now_ns() + FOUND_OUT_NS;
    int error = 0;
    if (!atomic_load(&client->lost) && stream_has_ended(&client->stream)) {
        pthread_mutex_lock(&client->lock);
        while (error == 0 && !client->over)
            error = clock_wait(&client->changed, &client->lock, deadline);
        pthread_mutex_unlock(&client->lock);
    }
    return atomic_load(&client->lost);
}

/* Under the lock, like all below. */
static struct client *renew_last_of(struct client *client)
{
    while (client->renewed)
        client = client->renewed;
    return client;
}

/* A new session with the devices of @client; NULL if there is none, which was logged. */
static struct client *renew_begin_like(const struct client *client)
{
    struct client *fresh = NULL;
    if (client_begin(client->address, client->icd, &fresh) != 0)
        return NULL;
    if (!renew_has_devices_of(fresh, client)) {
        (void)client_give_up(fresh, -ENODEV);
        return NULL;
    }
    return fresh;
}

static bool renew_has_standby(const struct client *client)
{
    return client->standby && !renew_has_ended(client->standby);
}

struct client *client_renew(struct client *client)
{
    bool may = client->icd || atomic_load(&client->left);
    if (!may || client_is_forked() || !renew_has_ended(client))
        return client;
    pthread_mutex_lock(&renewing);
    client = renew_last_of(client);
    if (renew_has_ended(client)) {
        struct client *fresh =
            renew_has_standby(client) ? client->standby : renew_begin_like(client);
        if (fresh) {
            fresh->platforms = client->platforms;
            fresh->platform_count = client->platform_count;
            client->renewed = fresh;
            client = fresh;
        }
    }
    pthread_mutex_unlock(&renewing);
    return client;
}

static void *renew_begin_standby(void *data)
{
    pthread_mutex_lock(&renewing);
    struct client *client = renew_last_of(data);
    uint64_t pause = AHEAD_NS;
    if (!renew_has_ended(client) && !renew_has_standby(client)) {
        client->standby = renew_begin_like(client);
        if (!client->standby)
            pause = FAILED_NS;
    }
    pthread_mutex_unlock(&renewing);
    atomic_store(&ahead.next_ns, clock_now_ns() + pause);
    atomic_store(&ahead.runs, false);
    return NULL;
}

/* Join the thread, which has ended or is about to. */
static void renew_join_ahead(void)
{
    pthread_mutex_lock(&ahead.lock);
    if (ahead.started)
        pthread_join(ahead.thread, NULL);
    ahead.started = false;
    pthread_mutex_unlock(&ahead.lock);
}

static void renew_start_ahead(struct client *client)
{
    if (clock_now_ns() < atomic_load(&ahead.next_ns) || atomic_exchange(&ahead.runs, true))
        return;
    renew_join_ahead();
    pthread_mutex_lock(&ahead.lock);
    ahead.started =
        thread_start("reseat-spare", 0, renew_begin_standby, client, &ahead.thread) == 0;
    if (!ahead.started)
        atomic_store(&ahead.runs, false);
    pthread_mutex_unlock(&ahead.lock);
}

void client_keep_standby(struct client *client, bool wanted)
{
    if (!client->icd || client_is_forked())
        return;
    if (wanted) {
        /* The thread that holds the lock is beginning a session; the caller asks again later. */
        if (pthread_mutex_trylock(&renewing) != 0)
            return;
        client = renew_last_of(client);
        bool missing = !atomic_load(&client->lost) && !renew_has_standby(client);
        pthread_mutex_unlock(&renewing);
        if (missing)
            renew_start_ahead(client);
        return;
    }
    renew_join_ahead();
    pthread_mutex_lock(&renewing);
    client = renew_last_of(client);
    struct client *standby = client->standby;
    client->standby = NULL;
    if (standby && !atomic_load(&standby->left))
        client_leave(standby);
    pthread_mutex_unlock(&renewing);
}

int clients_leave(void)
{
    if (client_is_forked())
        return -ECHILD;
    pthread_mutex_lock(&renewing);
    client_leave_each();
    pthread_mutex_unlock(&renewing);
    renew_join_ahead();
    return 0;
}
