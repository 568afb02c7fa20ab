#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "remote/driver/session/session.h"
#include "remote/identity/credentials.h"
#include "remote/rings/area.h"
#include "remote/wire/stream_rings.h"
#include "state/base/bytes/text.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"

/* Sessions with servers. */

#define RINGS_ENV "RESEAT_RINGS"
#define WINDOW    (16u << 20)
/* The longest message without bytes that a command reads: binaries, logs, the devices. */
#define ANSWER_MAX (256u << 20)

#define RETRY_NS (20 * NS_PER_MS)
/* A server's drivers may take seconds to start, during which it sends signs of life. */
#define DEVICES_NS (60 * NS_PER_S)
/* A server that is greeting as many clients as it can closes further connections: try again for so
 * long. */
#define CROWDED_NS (15 * NS_PER_S)
#define PAUSE_NS   (20 * NS_PER_MS)
/* A server sends something each second. After this silence the link counts as broken. */
#define SILENCE_NS (10 * NS_PER_S)

/* How long a process that ends waits for its last message to be sent. */
#define LEAVE_NS NS_PER_S

static struct client *_Atomic clients; /* All clients whose session has begun. */
/* True in the child of a fork, which has no receiving thread. */
static atomic_bool forked;

/* Close the parent's connections here, so that they end with the parent and not with its last
 * child. */
static void client_in_child(void)
{
    atomic_store(&forked, true);
    for (struct client *client = atomic_load(&clients); client; client = client->next) {
        struct link *link = client->stream.link;
        if (link && link->ops->socket)
            owned_close(link->ops->socket(link));
    }
}

FORK_PART = {.rank = FORK_OBJECT, .in_child = client_in_child};

cl_int client_state(const struct client *client)
{
    return atomic_load(&forked) || atomic_load(&client->lost) ? CL_DEVICE_NOT_AVAILABLE
                                                              : CL_SUCCESS;
}

bool client_is_forked(void)
{
    return atomic_load(&forked);
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

static void client_call_finish(struct handle *handle)
{
    free(container_of(handle, struct call, base)->content);
}

static void client_call_lost(struct handle *handle);

static const struct handle_class call_class = {sizeof(struct call), client_call_finish,
                                               client_call_lost};

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

/* Under the client's lock. The call owns the content. */
static void client_answer(struct call *call, cl_int error, unsigned char *content, size_t size)
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

static void client_call_lost(struct handle *handle)
{
    pthread_mutex_lock(&handle->client->lock);
    client_answer(container_of(handle, struct call, base), CL_DEVICE_NOT_AVAILABLE, NULL, 0);
    pthread_mutex_unlock(&handle->client->lock);
}

bool call_take_back(struct call *call)
{
    struct client *client = call->base.client;
    if (atomic_load(&forked))
        return true; /* In the child of a fork no reply comes, and a thread that is gone may hold
                        the lock. */
    pthread_mutex_lock(&client->lock);
    bool first = !call->answered;
    call->answered = true;
    pthread_mutex_unlock(&client->lock);
    return first;
}

static bool client_is_answered(void *data)
{
    const struct call *call = data;
    pthread_mutex_lock(&call->base.client->lock);
    bool answered = call->answered;
    pthread_mutex_unlock(&call->base.client->lock);
    return answered;
}

cl_int call_wait(struct call *call, cl_int posted_error)
{
    struct client *client = call->base.client;
    if (posted_error)
        return posted_error;
    client_flush(client);
    client_attend(client, client_is_answered, call);
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
    client_answer(call, content ? message->error : CL_OUT_OF_HOST_MEMORY, content,
                  content ? size : 0);
    pthread_mutex_unlock(&client->lock);
    handle_unuse(call);
}

/* ---- the session ---- */

static void client_tell_lost(void *data, void *client)
{
    struct handle *handle = data;
    if (handle->client == client)
        handle->class->lost(handle);
}

static void client_end(struct client *client, int error)
{
    if (atomic_exchange(&client->lost, true))
        return;
    stream_end(&client->stream, error);
    /* A device may still be writing to memory that the program goes on with. */
    if (client->bulk && !atomic_load(&client->leaving))
        bulk_detach(client->bulk);
    /* A program that ends is not called back any more. */
    if (!atomic_load(&client->leaving)) {
        log_warn("the session with %s ended: %s", client->address, strerror(-error));
        handle_each(ID_CALL, client_tell_lost, client);
        /* Wait for copies into the program's memory, which it may free once its events have ended.
         */
        pthread_mutex_lock(&client->lock);
        while (client->arriving)
            pthread_cond_wait(&client->changed, &client->lock);
        pthread_mutex_unlock(&client->lock);
        handle_each(ID_EVENT, client_tell_lost, client);
    }
    pthread_mutex_lock(&client->lock);
    client->over = true;
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

/* Text of kernels goes where the device's driver would have written it. */
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

/* Over rings threads that wait for something receive too. */
static int client_receive_in_turn(struct client *client)
{
    struct stream_rings *rings = client->stream.rings;
    struct message message;
    int error;
    while ((error = stream_rings_lead(rings, SILENCE_NS, &message)) == 0) {
        struct unpack body = {message.body, message.body + message.size, false};
        bool good = client_dispatch(client, message.type, &body);
        stream_rings_leave(rings);
        if (!good)
            return -EPROTO;
    }
    return error;
}

struct attention {
    struct client *client;
    bool (*over)(void *data);
    void *data;
    bool wrong;
};

static void client_attend_to(void *data, const struct message *message)
{
    struct attention *attention = data;
    struct unpack body = {message->body, message->body + message->size, false};
    if (!attention->wrong && !client_dispatch(attention->client, message->type, &body))
        attention->wrong = true;
}

static bool client_attention_over(void *data)
{
    const struct attention *attention = data;
    return attention->wrong || client_state(attention->client) || attention->over(attention->data);
}

void client_attend(struct client *client, bool (*over)(void *data), void *data)
{
    struct attention attention = {client, over, data, false};
    if (!client->stream.rings)
        return;
    stream_rings_attend(client->stream.rings, client_attention_over, client_attend_to, &attention);
    if (attention.wrong)
        stream_end(&client->stream, -EPROTO); /* Who receives sees to the rest. */
}

static void *client_receive_frames(void *data)
{
    struct client *client = data;
    struct message message = {0};
    int error;
    if (client->stream.rings) {
        client_end(client, client_receive_in_turn(client));
        return NULL;
    }
    do {
        error = stream_receive(&client->stream, SILENCE_NS, &message);
        struct unpack body = {message.body, message.body + message.size, false};
        if (error == 0 && !client_dispatch(client, message.type, &body))
            error = -EPROTO;
        else if (error && !atomic_load(&client->lost) && error != -EPROTO && error != -ENOMEM)
            error = connect_again(client);
    } while (error == 0);
    client_end(client, error);
    return NULL;
}

/* Over rings, or over the link. */
static int client_open_stream(struct client *client, struct link *link,
                              const struct rings_areas *areas, uint64_t deadline)
{
    if (client->features & FEATURE_RINGS) {
        int error = blocks_init(client);
        return error ? error : stream_begin_rings(&client->stream, link, areas, deadline);
    }
    int error = stream_init(&client->stream, WINDOW);
    return error == 0 && !stream_attach(&client->stream, link, 0) ? -EPROTO : error;
}

/* Ask for rings if the server is on this machine and there is memory for them. */
static void client_ask_for_features(struct client *client, struct rings_areas *ret_areas)
{
    const char *where = NULL, *asked = getenv(RINGS_ENV);
    const struct link_kind *kind = link_kind_of(client->address, &where);
    bool wanted = kind && !kind->anyone && !(asked && strcmp(asked, "no") == 0);
    client->features = wanted && rings_areas_make(ret_areas) == 0 ? FEATURE_RINGS : 0;
    client->features |= FEATURE_ASK_MEMORY;
    if (kind && kind->anyone) /* On this machine sending a binary again costs nothing. */
        client->features |= FEATURE_BINARIES;
    if (client->icd)
        client->features |= FEATURE_ENVIRONMENT;
}

static bool client_tells_variable(const char *variable)
{
    static const char *const ours[] = {"RESEAT_",         "LD_",    "OCL_ICD_", "OPENCL_",
                                       "GLIBC_TUNABLES=", "MALLOC_"};
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
        if (strncmp(variable, ours[i], strlen(ours[i])) == 0)
            return false;
    return strchr(variable, '=') != NULL;
}

static void client_add_text(FILE *file, const char *text)
{
    fwrite(text, 1, strlen(text) + 1, file);
}

/*
 * What a server has to know to open a driver as this process would: the folder that the process is
 * in, and its variables except those of loaders and of reseat, with the driver @icd named as the
 * only one.
 *
 * @ret_text  Texts one after the other, each with its NUL; the caller's (free()).
 */
static int client_describe_environment(const char *icd, char **ret_text, size_t *ret_size)
{
    char folder[PATH_MAX], *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    if (!file)
        return -ENOMEM;
    client_add_text(file, getcwd(folder, sizeof(folder)) && folder[0] == '/' ? folder : "/");
    fputs("OCL_ICD_VENDORS=", file);
    client_add_text(file, icd);
    for (char **at = environ; *at; at++)
        if (client_tells_variable(*at))
            client_add_text(file, *at);
    if (fclose(file)) {
        free(text);
        return -ENOMEM;
    }
    *ret_text = text;
    *ret_size = size;
    return 0;
}

static int client_tell_environment(struct client *client)
{
    char *text = NULL;
    size_t size = 0;
    if (!client->icd)
        return 0;
    if (!(client->features & FEATURE_ENVIRONMENT))
        return -EPROTO;
    int error = client_describe_environment(client->icd, &text, &size);
    if (error == 0)
        error = post_environment(&client->stream,
                                 &(struct msg_environment){.texts = text, .texts_size = size});
    free(text);
    return error;
}

static int client_start(struct client *client)
{
    uint64_t deadline = clock_now_ns() + CONNECT_NS;
    struct rings_areas areas = {-1, -1};
    struct link *link = NULL;
    uint64_t until = deadline + CROWDED_NS;
    client_ask_for_features(client, &areas);
    int error = connect_first(client, deadline, &link);
    /* A crowded server closed the connection. The pauses differ from process to process, so that
     * clients that were turned away together do not come back together. */
    for (uint64_t attempt = 1 + (uint64_t)getpid() % 16; error == -EPIPE && clock_now_ns() < until;
         attempt++) {
        clock_sleep(PAUSE_NS * (1 + attempt % 16));
        deadline = clock_now_ns() + CONNECT_NS;
        error = connect_first(client, deadline, &link);
    }
    if (error == 0)
        error = client_open_stream(client, link, &areas, deadline);
    rings_areas_close(&areas);
    if (error) {
        if (link)
            link->ops->destroy(link);
        bulk_destroy(client->bulk);
        client->bulk = NULL;
        return error;
    }
    atomic_store(&client->stream.longest, ANSWER_MAX);
    pthread_mutex_init(&client->lock, NULL);
    pthread_cond_init(&client->changed, NULL);
    client->process = process_mark();
    error = client_tell_environment(client);
    if (error == 0)
        error = thread_start("reseat-remote", 0, client_receive_frames, client, &client->receiver);
    if (error) {
        stream_finish(&client->stream);
        bulk_destroy(client->bulk);
        client->bulk = NULL;
        return error;
    }
    client->next = atomic_load(&clients);
    while (!atomic_compare_exchange_weak(&clients, &client->next, client))
        ;
    return 0;
}

/* Tell servers that the process ends, so that they do not keep the session. The thread that ends
 * the process may hold any lock: nothing here waits for long. */
__attribute__((destructor)) static void client_leave_all(void)
{
    uint64_t deadline = clock_now_ns() + LEAVE_NS;
    for (struct client *client = atomic_load(&clients); client; client = client->next) {
        if (client_state(client) || client->process != process_mark())
            continue;
        atomic_store(&client->leaving, true);
        stream_leave(&client->stream, MSG_BYE, deadline);
    }
}

void client_leave(struct client *client)
{
    uint64_t deadline = clock_now_ns() + LEAVE_NS;
    atomic_store(&client->leaving, true);
    if (!atomic_load(&client->lost))
        stream_leave(&client->stream, MSG_BYE, deadline);
    client_end(client, -ESHUTDOWN);
    pthread_join(client->receiver, NULL);
    atomic_store(&client->left, true);
    stream_finish(&client->stream);
    bulk_destroy(client->bulk);
    client->stream.link = NULL;
    client->stream.rings = NULL;
    client->bulk = NULL;
}

void client_leave_each(void)
{
    for (struct client *client = atomic_load(&clients); client; client = client->next)
        if (client->process == process_mark() && !atomic_load(&client->left))
            client_leave(client);
}

/* ---- platforms ---- */

static bool client_same_platform(const struct inventory_entry *a, const struct inventory_entry *b)
{
    return !strcmp(a->key.icd, b->key.icd) && !strcmp(a->key.platform, b->key.platform);
}

static int client_make_platforms(struct client *client)
{
    const struct inventory *inventory = &client->inventory;
    client->platforms = calloc(inventory->count + 1, sizeof(*client->platforms));
    if (!client->platforms)
        return -ENOMEM;
    for (size_t i = 0; i < inventory->count;) {
        size_t end = i + 1;
        while (end < inventory->count &&
               client_same_platform(&inventory->entries[i], &inventory->entries[end]))
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

static int client_wait_for_devices(struct client *client)
{
    uint64_t deadline = clock_now_ns() + DEVICES_NS;
    int error = 0;
    pthread_mutex_lock(&client->lock);
    while (error == 0 && !atomic_load(&client->told) && !atomic_load(&client->lost))
        error = clock_wait(&client->changed, &client->lock, deadline);
    pthread_mutex_unlock(&client->lock);
    return atomic_load(&client->told) ? 0 : error ? -ETIMEDOUT : -EPIPE;
}

static pthread_once_t prepared = PTHREAD_ONCE_INIT;
static int prepare_error;
static uint32_t patience_s;

/* Read the environment now: later another thread connects, while the program may change it. */
static void client_prepare(void)
{
    prepare_error = callback_start();
    if (prepare_error == 0)
        prepare_error = fork_watch();
    patience_s = client_wanted_patience();
    if (prepare_error == 0)
        prepare_error = credentials_remember();
}

/* A server of isolated drivers is started by the first connection, and may be ending at this
 * moment: then try again. */
static int client_start_patiently(struct client *client)
{
    uint64_t deadline = clock_now_ns() + CONNECT_NS;
    int error;
    while ((error = client_start(client)) != 0 && client->icd && clock_now_ns() < deadline &&
           (error == -ECONNREFUSED || error == -ENOENT || error == -EPIPE))
        clock_sleep(RETRY_NS);
    return error;
}

int client_begin(const char *address, const char *icd, struct client **ret_client)
{
    pthread_once(&prepared, client_prepare);
    struct client *client = calloc(1, sizeof(*client));
    char *own = strdup(address), *own_icd = icd ? strdup(icd) : NULL;
    int error = client && own && (own_icd || !icd) ? prepare_error : -ENOMEM;
    if (error == 0) {
        client->address = own;
        client->icd = own_icd;
        client->patience_s = patience_s;
        error = client_start_patiently(client);
    }
    if (error) {
        log_warn("no session with %s: %s", address, strerror(-error));
        free(client);
        free(own);
        free(own_icd);
        return error;
    }
    /* From here on threads may use the client until the process ends. */
    error = client_wait_for_devices(client);
    *ret_client = client;
    return error;
}

int client_give_up(struct client *client, int error)
{
    log_warn("no devices of %s: %s", client->address, strerror(-error));
    stream_end(&client->stream, error);
    return error;
}

int client_open(const char *address, const char *icd, struct client **ret_client)
{
    struct client *client = NULL;
    int error = client_begin(address, icd, &client);
    if (error == 0)
        error = client_make_platforms(client);
    if (error)
        return client ? client_give_up(client, error) : error;
    for (cl_uint i = 0; i < client->platform_count; i++)
        platform_publish(&client->platforms[i]);
    *ret_client = client;
    return 0;
}
