#include "remote/driver/programs/program.h"

#include <stdlib.h>
#include <string.h>

#include "remote/driver/session/session.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/fork.h"

/* After so many servers have failed to give a binary it is sent from here. */
#define FAILS_MAX 3
/* Deadlines: of one attempt, HANDING_NS and the time that a slow link (BYTES_A_S) takes; of all
 * attempts, BRINGING_NS. */
#define HANDING_NS  (30 * NS_PER_S)
#define BYTES_A_S   (UINT64_C(1) << 20)
#define BRINGING_NS (60 * NS_PER_S)
/* A server whose link has been broken for so long is not waited for: it may be dead, and others
 * have the binary. */
#define AWAY_NS (2 * NS_PER_S)
/* How many contents are remembered, beside those that a thread is using. */
#define CONTENTS_MAX 64
/* A server is sent a binary in so many parts, or parts of so many bytes, and so many at once: what
 * else it is sent meanwhile, to give it on, waits for no more. */
#define SENT_PARTS 128
#define SENT_LEAST ((size_t)64 << 10)
#define SENT_AHEAD 4

enum state {
    LACKS,
    COMES,   /* A thread sees to it. */
    ARRIVES, /* The server has been told of what comes: it can give it. */
    HAS,
};

/* A session, and what its server has of one content. */
struct holder {
    struct holder *next;
    struct client *client;
    enum state state;
    struct holder *from; /**< While it arrives: the one that gives it; NULL: this host. */
    unsigned arrivals;   /**< How often it has begun to arrive. */
    /** It gives it to another server: to one at a time, at the full speed of its link, since that
     * one gives it on while it comes. */
    bool giving;
    unsigned waiting; /**< Threads that want it there. */
};

struct content {
    struct content *next;
    struct binary_name name;
    struct holder *holders;
    unsigned uses;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* Guards all of it. */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct content *contents; /* Most recently used first. */

FORK_PART = {.rank = FORK_OBJECT, .lock = &lock, .changed = {&changed}};

bool binaries_are_kept(const struct client *client, size_t size)
{
    return client->features & FEATURE_BINARIES && size >= WIRE_BINARY_MIN &&
           size <= WIRE_BINARY_MAX;
}

/* ---- what is known ---- */

static void binaries_content_destroy(struct content *content)
{
    for (struct holder *at = content->holders, *next; at; at = next) {
        next = at->next;
        free(at);
    }
    free(content);
}

/* The oldest that nobody uses go. */
static void binaries_forget_old(void)
{
    unsigned count = 0;
    for (struct content **at = &contents; *at;) {
        struct content *content = *at;
        if (++count <= CONTENTS_MAX || content->uses) {
            at = &content->next;
            continue;
        }
        *at = content->next;
        binaries_content_destroy(content);
    }
}

/* Find or make the content, as the first of the list. NULL without memory. */
static struct content *binaries_use(const struct binary_name *name)
{
    struct content **at = &contents;
    while (*at && memcmp(&(*at)->name, name, sizeof(*name)) != 0)
        at = &(*at)->next;
    struct content *content = *at;
    if (content)
        *at = content->next;
    else if (!(content = calloc(1, sizeof(*content))))
        return NULL;
    content->name = *name;
    content->next = contents;
    content->uses++;
    contents = content;
    binaries_forget_old();
    return content;
}

/* Find or make the client's entry; NULL without memory. Frees entries of sessions that ended. */
static struct holder *binaries_holder_of(struct content *content, struct client *client)
{
    struct holder *found = NULL;
    for (struct holder **at = &content->holders; *at;) {
        struct holder *holder = *at;
        bool over = holder->client != client && holder->state != COMES &&
                    holder->state != ARRIVES && !holder->giving && holder->waiting == 0 &&
                    client_state(holder->client);
        if (holder->client == client)
            found = holder;
        if (!over) {
            at = &holder->next;
            continue;
        }
        *at = holder->next;
        free(holder);
    }
    if (found || !(found = calloc(1, sizeof(*found))))
        return found;
    found->client = client;
    found->next = content->holders;
    content->holders = found;
    return found;
}

/* Under the lock. */
static void binaries_become(struct holder *holder, enum state state, struct holder *from)
{
    holder->state = state;
    holder->from = from;
    holder->arrivals += state == ARRIVES;
    pthread_cond_broadcast(&changed);
}

static void binaries_note(struct client *client, const struct binary_name *name, enum state state)
{
    pthread_mutex_lock(&lock);
    struct content *content = binaries_use(name);
    struct holder *holder = content ? binaries_holder_of(content, client) : NULL;
    if (holder)
        binaries_become(holder, state, NULL);
    if (content)
        content->uses--;
    pthread_mutex_unlock(&lock);
}

void binaries_learn(struct client *client, const struct binary_name *name, bool has)
{
    binaries_note(client, name, has ? HAS : LACKS);
}

/* A part that the server was sent, and has not answered. */
struct sent {
    struct call *call; /* NULL: none. */
    cl_int posted;
};

static cl_int binaries_await_sent(struct sent *sent)
{
    if (!sent->call)
        return CL_SUCCESS;
    cl_int error = call_wait(sent->call, sent->posted);
    handle_release(sent->call);
    sent->call = NULL;
    return error;
}

void binaries_send(struct client *client, const struct binary_name *name,
                   const unsigned char *bytes, size_t size)
{
    struct sent sent[SENT_AHEAD] = {{NULL, CL_SUCCESS}};
    size_t most = size / SENT_PARTS < SENT_LEAST ? SENT_LEAST : size / SENT_PARTS, part;
    cl_int error = CL_SUCCESS;
    unsigned n = 0;
    for (size_t at = 0; error == CL_SUCCESS && at < size; at += part) {
        struct sent *next = &sent[n++ % SENT_AHEAD];
        part = size - at < most ? size - at : most;
        error = binaries_await_sent(next);
        if (error == CL_SUCCESS && !(next->call = call_create(client)))
            error = CL_OUT_OF_HOST_MEMORY;
        if (error != CL_SUCCESS)
            break;
        next->posted = POST(client, send_binary,
                            {.call = handle_id(next->call),
                             .name = name,
                             .name_size = sizeof(*name),
                             .size = size,
                             .offset = at,
                             .part = bytes + at,
                             .part_size = part});
        client_flush(client);
        if (at == 0)
            binaries_note(client, name, ARRIVES);
    }
    for (unsigned i = 0; i < SENT_AHEAD; i++)
        (void)binaries_await_sent(&sent[i]);
}

static bool binaries_is_away(struct client *client, uint64_t ns)
{
    uint64_t since = stream_broken_since(&client->stream);
    return client_state(client) || (since && clock_now_ns() - since >= ns);
}

/* Wait, under the lock, until something has changed; a second at most, since nothing tells of a
 * broken link. */
static void binaries_wait_a_moment(uint64_t deadline)
{
    uint64_t moment = clock_now_ns() + NS_PER_S;
    (void)clock_wait(&changed, &lock, moment < deadline ? moment : deadline);
}

/* ---- from one server to another ---- */

/* One transfer between two servers. The reply of each is heard on a callback thread. */
struct handing {
    unsigned holders; /* Guarded by lock, with: */
    bool taken, over; /* The receiver has it; the transfer has ended there, and... */
    bool given;       /* ...at the sender, with: */
    cl_int ends[2];   /* Errors of the sender and of the receiver. */
    struct client *taker;
    uint64_t transfer;
};

static void binaries_unref(struct handing *handing)
{
    if (--handing->holders == 0)
        free(handing);
}

static void binaries_given(struct call *call)
{
    struct handing *handing = call->data;
    pthread_mutex_lock(&lock);
    handing->ends[0] = call->error;
    handing->given = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (call->error) /* Nothing comes any more. */
        meeting_forget(handing->taker, handing->transfer);
    pthread_mutex_lock(&lock);
    binaries_unref(handing);
    pthread_mutex_unlock(&lock);
}

static void binaries_taken(struct call *call)
{
    struct handing *handing = call->data;
    pthread_mutex_lock(&lock);
    handing->ends[1] = call->error;
    handing->over = true;
    handing->taken = call->error == CL_SUCCESS;
    binaries_unref(handing);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static struct call *binaries_call_of(struct client *client, struct handing *handing,
                                     void (*then)(struct call *call))
{
    struct call *call = call_create(client);
    if (!call)
        return NULL;
    call->data = handing;
    call->job.run = call_run;
    call->then = then;
    pthread_mutex_lock(&lock);
    handing->holders++;
    pthread_mutex_unlock(&lock);
    return call;
}

/* After a post with @error: true if the call stands and its callback will come, false if it was
 * withdrawn. */
static bool binaries_settle(struct call *call, struct handing *handing, cl_int error)
{
    if (error == CL_SUCCESS || !call_take_back(call)) {
        client_flush(call->base.client);
        return true; /* The call's reference goes with its callback. */
    }
    handle_release(call);
    pthread_mutex_lock(&lock);
    binaries_unref(handing);
    pthread_mutex_unlock(&lock);
    return false;
}

static bool binaries_send_take(struct meeting *meeting, struct handing *handing,
                               const struct binary_name *name, size_t size)
{
    struct pack pack;
    struct call *call = binaries_call_of(meeting->ends[1], handing, binaries_taken);
    if (!call)
        return false;
    pack_init(&pack);
    pack_take_binary(&pack, &(struct msg_take_binary){.call = handle_id(call),
                                                      .name = name,
                                                      .name_size = sizeof(*name),
                                                      .size = size,
                                                      .peer = meeting_peer(meeting, 1)});
    return binaries_settle(call, handing, meeting_post(meeting, 1, MSG_TAKE_BINARY, &pack));
}

static bool binaries_send_give(struct meeting *meeting, struct handing *handing,
                               const struct binary_name *name)
{
    struct pack pack;
    struct call *call = binaries_call_of(meeting->ends[0], handing, binaries_given);
    if (!call)
        return false;
    pack_init(&pack);
    pack_give_binary(&pack, &(struct msg_give_binary){.call = handle_id(call),
                                                      .name = name,
                                                      .name_size = sizeof(*name),
                                                      .peer = meeting_peer(meeting, 0)});
    return binaries_settle(call, handing, meeting_post(meeting, 0, MSG_GIVE_BINARY, &pack));
}

/* Wait for the reply of the server that takes. @ret_ends: the errors of both, CL_SUCCESS where none
 * was heard. */
static bool binaries_await(const struct handing *handing, struct client *giver, size_t size,
                           cl_int ret_ends[2])
{
    uint64_t deadline = clock_now_ns() + HANDING_NS + size / BYTES_A_S * NS_PER_S;
    pthread_mutex_lock(&lock);
    while (!handing->over && handing->ends[0] == CL_SUCCESS && !binaries_is_away(giver, AWAY_NS) &&
           clock_now_ns() < deadline)
        binaries_wait_a_moment(deadline);
    /* Whose fault it was the sender tells. */
    deadline = clock_now_ns() + NS_PER_S;
    while (handing->over && !handing->taken && !handing->given && clock_now_ns() < deadline)
        binaries_wait_a_moment(deadline);
    bool over = handing->over, there = handing->taken;
    memcpy(ret_ends, handing->ends, sizeof(handing->ends));
    pthread_mutex_unlock(&lock);
    if (!over)
        meeting_forget(handing->taker, handing->transfer);
    return there;
}

/* Have @source's server give the binary to @own's. True when it is there. @ret_ends: the errors of
 * both. */
static bool binaries_hand_on(struct holder *source, struct holder *own,
                             const struct binary_name *name, size_t size, cl_int ret_ends[2])
{
    struct client *from = source->client, *to = own->client;
    struct meeting meeting = MEETING_NONE;
    struct handing *handing = calloc(1, sizeof(*handing));
    bool there = false;
    if (handing && meeting_init(&meeting, from, to) == CL_SUCCESS) {
        *handing = (struct handing){.holders = 1, .taker = to, .transfer = meeting.transfer};
        if (binaries_send_take(&meeting, handing, name, size)) {
            pthread_mutex_lock(&lock);
            binaries_become(own, ARRIVES, source);
            pthread_mutex_unlock(&lock);
            if (!binaries_send_give(&meeting, handing, name))
                meeting_forget(to, meeting.transfer);
            there = binaries_await(handing, from, size, ret_ends);
        }
        /* Who lacks it has not awaited anybody. */
        for (int i = 0; meeting.awaits && ret_ends[0] != BINARY_LACKING && i < 2; i++)
            if (ret_ends[i] == TRANSFER_UNREACHED)
                meeting_unreached(meeting.awaits);
        pthread_mutex_lock(&lock);
        binaries_unref(handing);
        pthread_mutex_unlock(&lock);
    } else {
        free(handing);
    }
    meeting_finish(&meeting);
    return there;
}

/* ---- from where ---- */

/* The servers that were tried in vain. */
struct failed {
    const struct client *clients[FAILS_MAX];
    unsigned count;
};

static bool binaries_may_give(const struct holder *holder, const struct client *to,
                              const struct failed *failed)
{
    if (holder->client == to || binaries_is_away(holder->client, 0) ||
        !meeting_is_possible(holder->client, to))
        return false;
    for (unsigned i = 0; i < failed->count; i++)
        if (failed->clients[i] == holder->client)
            return false;
    return true;
}

/* True when it has the binary, or when it arrives there: from a server that has it, through others
 * perhaps, or from this host. Where one of these failed, those behind it are soon told. */
static bool binaries_can_give(const struct holder *holder)
{
    while (holder->state == ARRIVES && holder->from)
        holder = holder->from;
    return holder->state == ARRIVES || holder->state == HAS;
}

/* One of the servers that can give the binary; NULL: none is free.
 * @ret_wait: a server that will have it, or will be free, is worth waiting for. */
static struct holder *binaries_find_source(const struct content *content, const struct client *to,
                                           const struct failed *failed, bool *ret_wait)
{
    struct holder *free_one = NULL;
    *ret_wait = false;
    for (struct holder *at = content->holders; at; at = at->next) {
        if (at->state == LACKS || !binaries_may_give(at, to, failed))
            continue;
        if (binaries_can_give(at) && !at->giving)
            free_one = at;
        *ret_wait = true;
    }
    return free_one;
}

/* Called with the lock held, which is released meanwhile. */
static bool binaries_take_from(struct holder *source, struct holder *own,
                               const struct content *content, size_t size, uint64_t until,
                               struct failed *failed)
{
    cl_int ends[2] = {CL_SUCCESS, CL_SUCCESS};
    unsigned arrival = source->arrivals;
    source->giving = true;
    own->state = COMES;
    pthread_mutex_unlock(&lock);
    bool there = binaries_hand_on(source, own, &content->name, size, ends);
    pthread_mutex_lock(&lock);
    source->giving = false;
    bool lacks = ends[0] == BINARY_LACKING;
    if (lacks && source->state == HAS)
        source->state = LACKS;
    if (lacks && source->state == ARRIVES && source->arrivals == arrival)
        binaries_become(source, COMES, NULL); /* Its thread is about to be told that it failed. */
    /* It was given it in vain, and is not to blame: it may have it again by now. */
    if (!there && !(lacks && clock_now_ns() < until)) {
        log_info("%s did not give %s a binary (%d, %d)", source->client->address,
                 own->client->address, ends[0], ends[1]);
        failed->clients[failed->count++] = source->client;
    }
    binaries_become(own, there ? HAS : LACKS, NULL);
    return there;
}

/* Under the lock. */
static bool binaries_bring_one(struct content *content, struct holder *own, size_t size)
{
    uint64_t deadline = clock_now_ns() + BRINGING_NS;
    struct failed failed = {.count = 0};
    while (client_state(own->client) == CL_SUCCESS) {
        bool comes = own->state == COMES || own->state == ARRIVES,
             wait = comes; /* Another thread sees to it. */
        struct holder *source =
            comes ? NULL : binaries_find_source(content, own->client, &failed, &wait);
        if (own->state == HAS ||
            (source && binaries_take_from(source, own, content, size, deadline, &failed)))
            return true;
        if (source && failed.count < FAILS_MAX)
            continue;
        if (source || !wait || clock_now_ns() >= deadline)
            break;
        binaries_wait_a_moment(deadline);
    }
    own->state = COMES; /* From here. */
    return false;
}

bool binaries_bring(struct client *client, const struct binary_name *name, size_t size)
{
    bool there = false;
    pthread_mutex_lock(&lock);
    struct content *content = binaries_use(name);
    struct holder *own = content ? binaries_holder_of(content, client) : NULL;
    if (own) {
        own->waiting++;
        if (own->state == HAS) /* It had, and dropped it. */
            own->state = LACKS;
        there = binaries_bring_one(content, own, size);
        own->waiting--;
    }
    if (content)
        content->uses--;
    pthread_mutex_unlock(&lock);
    return there;
}
