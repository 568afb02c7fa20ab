#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "remote/driver/connect.h"
#include "remote/link/credentials.h"
#include "remote/link/process.h"
#include "state/base/clock.h"
#include "state/base/fork.h"
#include "state/base/log.h"
#include "state/base/text.h"
#include "state/base/thread.h"

/*
 * Sessions with the servers that RESEAT_SERVER names, separated by blanks; several addresses of one
 * server, by commas. Each platform of each server is one here: a program may make a context of all
 * devices of a platform, and devices of different servers or drivers have none in common.
 */

#define SERVER_ENV  "RESEAT_SERVER"
#define SERVERS_MAX 16
#define WINDOW      (16u << 20)

/* A server that is there answers at once; its drivers may take seconds to start, but then it gives
   signs of life. */
#define CONNECT_NS (3 * NS_PER_S)
#define DEVICES_NS (60 * NS_PER_S)
/* It does so each second, whatever its devices do. A link that does not is given up for another. */
#define SILENCE_NS (10 * NS_PER_S)

/* A program that ends waits so long until that is sent. */
#define LEAVE_NS NS_PER_S

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct client *_Atomic clients; /* Those with a session, once it began. */
static struct platform **all;
static cl_uint all_count;
/* In the child of a fork there is nobody who receives. */
static atomic_bool forked;

static void in_child(void)
{
    atomic_store(&forked, true);
}

FORK_PART = {.rank = FORK_OBJECT, .in_child = in_child};

cl_int client_state(const struct client *client)
{
    return atomic_load(&forked) || atomic_load(&client->lost) ? CL_DEVICE_NOT_AVAILABLE
                                                              : CL_SUCCESS;
}

cl_int posted(int error)
{
    switch (error) {
    case 0:
        return CL_SUCCESS;
    case -ENOMEM:
        return CL_OUT_OF_HOST_MEMORY;
    case -EMSGSIZE:
        return CL_OUT_OF_RESOURCES;
    default:
        return CL_DEVICE_NOT_AVAILABLE;
    }
}

void client_flush(struct client *client)
{
    if (client_state(client) == CL_SUCCESS)
        stream_flush(&client->stream);
}

void client_flush_soon(struct client *client)
{
    if (client_state(client) == CL_SUCCESS)
        stream_flush_soon(&client->stream);
}

/* ---- calls ---- */

static void call_finish(struct object *object)
{
    free(container_of(object, struct call, base)->content);
}

static const struct object_class call_class = {sizeof(struct call), call_finish};

struct call *call_create(struct client *client)
{
    return client_state(client) ? NULL : handle_create(client, ID_CALL, &call_class);
}

void call_run(struct callback_job *job)
{
    struct call *call = container_of(job, struct call, job);
    call->then(call);
    handle_release(call);
}

/* Under the client's lock. The content is the call's, from then on. */
static void answer(struct call *call, cl_int error, unsigned char *content, size_t size)
{
    if (call->answered) {
        free(content);
        return;
    }
    call->answered = true;
    call->error = error;
    call->content = content;
    call->size = size;
    if (call->then)
        callback_post(&call->job);
    pthread_cond_broadcast(&call->base.client->changed);
}

bool call_take_back(struct call *call)
{
    struct client *client = call->base.client;
    if (atomic_load(&forked))
        return true; /* Nobody answers in a child, and the lock may be another thread's for good. */
    pthread_mutex_lock(&client->lock);
    bool first = !call->answered;
    call->answered = true;
    pthread_mutex_unlock(&client->lock);
    return first;
}

cl_int call_wait(struct call *call, cl_int posted_error)
{
    struct client *client = call->base.client;
    if (posted_error)
        return posted_error;
    client_flush(client);
    pthread_mutex_lock(&client->lock);
    while (!call->answered && client_state(client) == CL_SUCCESS)
        pthread_cond_wait(&client->changed, &client->lock);
    cl_int error = call->answered ? call->error : CL_DEVICE_NOT_AVAILABLE;
    pthread_mutex_unlock(&client->lock);
    return error;
}

void client_reply(struct client *client, const struct msg_reply *message)
{
    struct call *call = handle_of_id(client, message->call);
    if (!call)
        return;
    size_t size = message->content_size;
    unsigned char *content = malloc(size + 1);
    if (content)
        memcpy(content, message->content, size);
    pthread_mutex_lock(&client->lock);
    answer(call, content ? message->error : CL_OUT_OF_HOST_MEMORY, content, content ? size : 0);
    pthread_mutex_unlock(&client->lock);
    handle_unuse(call);
}

static void call_lost(void *object, void *data)
{
    struct call *call = object;
    if (call->base.client != data)
        return;
    pthread_mutex_lock(&call->base.client->lock);
    answer(call, CL_DEVICE_NOT_AVAILABLE, NULL, 0);
    pthread_mutex_unlock(&call->base.client->lock);
}

/* ---- the session ---- */

static void client_end(struct client *client, int error)
{
    if (atomic_exchange(&client->lost, true))
        return;
    stream_end(&client->stream, error);
    /* A program that ends is not called back any more. */
    if (!atomic_load(&client->leaving)) {
        log_warn("the session with %s ended: %s", client->address, strerror(-error));
        handle_each(ID_CALL, call_lost, client);
        events_lost(client);
    }
    pthread_mutex_lock(&client->lock);
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->lock);
}

void client_devices(struct client *client, const struct msg_devices *message)
{
    if (atomic_load(&client->told))
        return;
    int error = inventory_decode(message->inventory, message->inventory_size, &client->inventory);
    if (error)
        log_warn("%s tells its devices in a way that is not understood", client->address);
    pthread_mutex_lock(&client->lock);
    atomic_store(&client->told, true);
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->lock);
}

/* Where the device's own driver would have written it. */
void client_printed(struct client *client, const struct msg_printed *message)
{
    (void)client;
    const char *at = message->bytes;
    for (uint64_t left = message->bytes_size; left != 0;) {
        ssize_t written = write(STDOUT_FILENO, at, left);
        if (written < 0 && errno != EINTR)
            return;
        at += written > 0 ? written : 0;
        left -= written > 0 ? (uint64_t)written : 0;
    }
}

void client_welcome(struct client *client, const struct msg_welcome *message)
{
    (void)client, (void)message; /* Greetings come before a stream. */
}

void client_ended(struct client *client, const struct msg_ended *message)
{
    char reason[128];
    text_make_safe(reason, sizeof(reason), message->reason, strlen(message->reason));
    log_warn("%s ended the session: %s", client->address, reason);
    client_end(client, -ESHUTDOWN);
}

void client_free_memory(struct client *client, const struct msg_free_memory *message)
{
    uint32_t place = id_place(message->device);
    if (place < ARRAY_SIZE(client->free_memory))
        atomic_store(&client->free_memory[place], ~message->bytes);
}

void client_refused(struct client *client, const struct msg_refused *message)
{
    (void)client, (void)message;
}

static void *receive(void *data)
{
    struct client *client = data;
    struct message message = {0};
    int error;
    do {
        error = stream_receive(&client->stream, SILENCE_NS, &message);
        struct unpack body = {message.body, message.body + message.size, false};
        if (error == 0 && !client_dispatch(client, message.type, &body))
            error = -EPROTO;
        else if (error && !atomic_load(&client->lost) && error != -EPROTO && error != -ENOMEM)
            error = client_reconnect(client);
    } while (error == 0);
    client_end(client, error);
    return NULL;
}

static int start(struct client *client)
{
    struct link *link = NULL;
    int error = client_connect(client, clock_now_ns() + CONNECT_NS, &link);
    if (error)
        return error;
    error = stream_init(&client->stream, WINDOW);
    if (error) {
        link->ops->destroy(link);
        return error;
    }
    pthread_mutex_init(&client->lock, NULL);
    pthread_cond_init(&client->changed, NULL);
    client->process = process_mark();
    client->next = atomic_load(&clients);
    atomic_store(&clients, client);
    if (!stream_attach(&client->stream, link, 0))
        error = -EPROTO;
    if (error == 0)
        error = thread_start("reseat-remote", 0, receive, client, &client->receiver);
    if (error) {
        atomic_store(&clients, client->next);
        stream_finish(&client->stream);
    }
    return error;
}

/* A server that is told needs not wait for a client that will not come back. Whoever has a lock now
   may be the one that ends the program: nothing here waits for long. */
__attribute__((destructor)) static void leave_all(void)
{
    uint64_t deadline = clock_now_ns() + LEAVE_NS;
    for (struct client *client = atomic_load(&clients); client; client = client->next) {
        if (client_state(client) || client->process != process_mark())
            continue;
        atomic_store(&client->leaving, true);
        stream_leave(&client->stream, MSG_BYE, deadline);
    }
}

/* ---- platforms ---- */

static bool same_platform(const struct inventory_entry *a, const struct inventory_entry *b)
{
    return !strcmp(a->key.icd, b->key.icd) && !strcmp(a->key.platform, b->key.platform);
}

static int make_platforms(struct client *client)
{
    const struct inventory *inventory = &client->inventory;
    client->platforms = calloc(inventory->count + 1, sizeof(*client->platforms));
    if (!client->platforms)
        return -ENOMEM;
    for (size_t i = 0; i < inventory->count;) {
        size_t end = i + 1;
        while (end < inventory->count &&
               same_platform(&inventory->entries[i], &inventory->entries[end]))
            end++;
        int error = platform_init(&client->platforms[client->platform_count], client,
                                  inventory->entries, i, end - i);
        if (error)
            return error;
        client->platform_count++;
        i = end;
    }
    return 0;
}

static int wait_for_devices(struct client *client)
{
    uint64_t deadline = clock_now_ns() + DEVICES_NS;
    int error = 0;
    pthread_mutex_lock(&client->lock);
    while (error == 0 && !atomic_load(&client->told) && !atomic_load(&client->lost))
        error = clock_wait(&client->changed, &client->lock, deadline);
    pthread_mutex_unlock(&client->lock);
    return atomic_load(&client->told) ? 0 : error ? -ETIMEDOUT : -EPIPE;
}

static void add_server(const char *address, uint32_t patience_s)
{
    struct client *client = calloc(1, sizeof(*client));
    if (!client)
        return;
    client->address = address;
    client->patience_s = patience_s;
    int error = start(client);
    if (error) {
        log_warn("no session with %s: %s", address, strerror(-error));
        free(client);
        return;
    }
    /* From here on its threads may be in it until the process ends. */
    error = wait_for_devices(client);
    if (error == 0)
        error = make_platforms(client);
    struct platform **more =
        error ? NULL : reallocarray(all, all_count + client->platform_count, sizeof(*more));
    if (!more) {
        log_warn("no devices of %s: %s", address, strerror(error ? -error : ENOMEM));
        return;
    }
    all = more;
    for (cl_uint i = 0; i < client->platform_count; i++)
        all[all_count++] = &client->platforms[i];
}

static void connect_all(void)
{
    const char *text = getauxval(AT_SECURE) ? NULL : getenv(SERVER_ENV);
    char *copy = text ? strdup(text) : NULL, *rest = copy;
    if (!copy || callback_start() || fork_watch())
        return;
    /* Later, another thread connects, and the program may change its environment. */
    uint32_t patience_s = client_wanted_patience();
    if (credentials_remember())
        return;
    for (char *word = strsep(&rest, " "); word; word = strsep(&rest, " "))
        if (*word)
            add_server(word, patience_s);
}

cl_uint clients_platforms(struct platform ***ret_platforms)
{
    pthread_once(&once, connect_all);
    *ret_platforms = all;
    return all_count;
}
