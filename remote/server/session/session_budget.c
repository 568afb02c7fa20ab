#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "remote/server/listener/channel.h"
#include "remote/server/session/server.h"
#include "state/base/clock.h"

/*
 * The memory that a session's objects use. It is limited by the session's certificate, and on each
 * device of an object's context by what the listening process has promised. The session asks for
 * promises in lumps. A driver keeps a released object's memory while commands, sub-buffers or
 * images use it, so an object counts until the driver's destructor callback.
 */

/* The smallest device allocation, in bytes. */
#define PAGE 4096u
/* The size of a lump, in bytes: 1/LUMP_OF of the device's memory, and at most LUMP_MAX. */
#define LUMP_MAX (UINT64_C(64) << 20)
#define LUMP_OF  64
/* How long to wait for the listening process's promise. */
#define PATIENCE_NS (60 * NS_PER_S)

struct session_budget {
    struct server *server;
    uint64_t bytes;
    uint64_t devices; /* One bit for each device. */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* Guards what follows. */
static pthread_cond_t answered = PTHREAD_COND_INITIALIZER;
static uint64_t used; /* Bytes, counted against the certificate's limit. */
static uint64_t used_of[DEVICES_MAX], promised_to[DEVICES_MAX];
static bool asking;
static uint32_t asked_for; /* The device, by the server's number, that is asked for. */
static uint64_t promise;

static uint64_t session_budget_lump_of(const struct server *server, size_t device)
{
    uint64_t lump = server->known->rows[server->numbers[device]].memory / LUMP_OF / PAGE * PAGE;
    return lump < LUMP_MAX ? lump : LUMP_MAX;
}

/* The lock is held, but released during the wait. Called only by the session's thread. */
static bool session_budget_ask(struct server *server, size_t device, uint64_t least)
{
    uint64_t lump = session_budget_lump_of(server, device);
    struct channel_message message = {.kind = CHANNEL_ASK,
                                      .device = server->numbers[device],
                                      .bytes = least > lump ? least : lump,
                                      .least = least};
    uint64_t deadline = clock_now_ns() + PATIENCE_NS;
    asking = true;
    asked_for = server->numbers[device];
    promise = 0;
    channel_tell(server->channel, &message);
    for (int late = 0; asking && !late;)
        late = clock_wait(&answered, &lock, deadline);
    asking = false;
    promised_to[device] += promise;
    return promise >= least;
}

void server_promised(struct server *server, const struct channel_message *message)
{
    pthread_mutex_lock(&lock);
    if (asking && message->device == asked_for) {
        promise = message->bytes;
        asking = false;
        pthread_cond_signal(&answered);
    } else { /* The request has timed out. */
        channel_tell(server->channel, &(struct channel_message){.kind = CHANNEL_RETURN,
                                                                .device = message->device,
                                                                .bytes = message->bytes});
    }
    pthread_mutex_unlock(&lock);
}

/* The lock is held. */
static void session_budget_return_some(struct server *server, size_t device)
{
    uint64_t standby = promised_to[device] - used_of[device],
             lump = session_budget_lump_of(server, device);
    if (standby <= 2 * lump)
        return;
    promised_to[device] -= standby - lump;
    channel_tell(server->channel, &(struct channel_message){.kind = CHANNEL_RETURN,
                                                            .device = server->numbers[device],
                                                            .bytes = standby - lump});
}

/* The lock is held. */
static void session_budget_uncount(struct server *server, uint64_t devices, uint64_t bytes)
{
    used -= bytes;
    for (size_t i = 0; server->known && i < server->device_count; i++)
        if (devices >> i & 1) {
            used_of[i] -= bytes;
            session_budget_return_some(server, i);
        }
}

/* The lock is held. */
static bool session_budget_count(struct server *server, uint64_t devices, uint64_t bytes)
{
    uint64_t done = 0;
    used += bytes;
    for (size_t i = 0; server->known && i < server->device_count; i++) {
        if (!(devices >> i & 1))
            continue;
        uint64_t left = promised_to[i] - used_of[i];
        if (bytes > left && !session_budget_ask(server, i, bytes - left)) {
            for (size_t at = 0; at < i; at++)
                used_of[at] -= done >> at & 1 ? bytes : 0;
            used -= bytes;
            return false;
        }
        used_of[i] += bytes;
        done |= UINT64_C(1) << i;
    }
    return true;
}

struct session_budget *server_take_memory(struct server *server, uint64_t devices, uint64_t bytes)
{
    struct session_budget *session_budget = malloc(sizeof(*session_budget));
    if (!session_budget)
        return NULL;
    pthread_mutex_lock(&lock);
    uint64_t left = server->memory - used;
    /* Cap at what is left: a limit need not be a multiple of the page size. */
    uint64_t pages = (bytes / PAGE + (bytes % PAGE != 0)) * PAGE;
    *session_budget = (struct session_budget){server, pages < left ? pages : left, devices};
    bool taken = bytes <= left && pages >= bytes &&
                 session_budget_count(server, devices, session_budget->bytes);
    pthread_mutex_unlock(&lock);
    if (taken)
        return session_budget;
    free(session_budget);
    return NULL;
}

void server_give_back(struct session_budget *session_budget)
{
    pthread_mutex_lock(&lock);
    session_budget_uncount(session_budget->server, session_budget->devices, session_budget->bytes);
    pthread_mutex_unlock(&lock);
    free(session_budget);
}

/* May be called in any thread of the driver. */
static void CL_CALLBACK session_budget_on_gone(cl_mem memory, void *data)
{
    (void)memory;
    server_give_back(data);
}

void server_charge(struct entry *entry, struct session_budget *session_budget)
{
    if (session_budget && entry->real &&
        !entry->cl->clSetMemObjectDestructorCallback(entry->real, session_budget_on_gone,
                                                     session_budget))
        return;
    if (session_budget)
        server_give_back(session_budget);
    if (!entry->real)
        return;
    entry->cl->clReleaseMemObject(entry->real);
    entry->real = NULL;
    entry->error = CL_MEM_OBJECT_ALLOCATION_FAILURE;
}

void server_charge_made(struct server *server, struct entry *entry)
{
    size_t bytes = 0;
    if (!entry->real)
        return;
    cl_int error =
        entry->cl->clGetMemObjectInfo(entry->real, CL_MEM_SIZE, sizeof(bytes), &bytes, NULL);
    server_charge(entry, error ? NULL : server_take_memory(server, entry->devices, bytes));
}

void server_cap_memory(const struct server *server, uint64_t memory, struct devinfo *info)
{
    memory = memory < server->memory ? memory : server->memory;
    for (size_t i = 0; i < info->value_count; i++) {
        struct devinfo_value *value = &info->values[i];
        uint64_t bytes;
        if ((value->name != CL_DEVICE_GLOBAL_MEM_SIZE &&
             value->name != CL_DEVICE_MAX_MEM_ALLOC_SIZE) ||
            value->size != sizeof(bytes))
            continue;
        memcpy(&bytes, value->bytes, sizeof(bytes));
        bytes = bytes < memory ? bytes : memory;
        memcpy(value->bytes, &bytes, sizeof(bytes));
    }
}
