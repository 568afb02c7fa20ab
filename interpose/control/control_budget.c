#include "interpose/control/control_priv.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "agent/protocol/common_messages.h"
#include "agent/protocol/program_messages.h"
#include "state/base/clock.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"
#include "state/budget/budget.h"
#include "state/move/status.h"

/* Turns of the control thread between two returns of bytes that are granted and not used. */
#define SLACK_TURNS 8
/* How long an agent may take to start again. */
#define PATIENCE_NS 3000000000u
/* The answer to a need may take long, since the agent may let the call wait in a queue. So the
 * agent is asked each second whether it is there; after UNANSWERED_MAX questions without an answer
 * it counts as hung. */
#define ALIVE_NS       1000000000u
#define UNANSWERED_MAX 5

/** A need that a thread of the program waits to have answered. On the thread's stack. */
struct need {
    struct need *next;
    uint64_t id;
    const struct budget_need *asked;
    bool sent, answered;
    enum budget_answer answer;
};

static struct {
    pthread_mutex_t lock; /**< Guards all below. */
    pthread_cond_t answered;
    bool connected;
    bool answers;      /**< The agent says whether it is there (MSG_ALIVE). */
    uint64_t until_ns; /**< Without a connection: waits for an agent end at this time. */
    bool began;
    uint64_t last_id;
    struct need *needs;
    uint64_t initial[PROTOCOL_VDEVS_MAX]; /**< Granted before the virtual devices had devices. */
    size_t initial_count;
    uint64_t returns[PROTOCOL_VDEVS_MAX]; /**< Bytes given up that the agent was not told of yet. */
    bool shrunk[PROTOCOL_VDEVS_MAX]; /**< A shrink ended: the agent is told, even if no bytes were
                                        given up. */
    unsigned turns;
    uint64_t alive_ns;   /**< When the agent was last asked whether it is there. */
    unsigned unanswered; /**< How often it was asked since it last sent anything. */
    void (*wake)(void);
} ledger_link = {.lock = PTHREAD_MUTEX_INITIALIZER, .answered = PTHREAD_COND_INITIALIZER};

static enum budget_answer control_budget_ask(const struct budget_need *asked)
{
    struct need need = {.asked = asked, .answer = BUDGET_FORCE};

    pthread_mutex_lock(&ledger_link.lock);
    need.id = ++ledger_link.last_id;
    need.answered = !ledger_link.connected && clock_now_ns() >= ledger_link.until_ns;
    need.next = ledger_link.needs;
    ledger_link.needs = &need;
    pthread_mutex_unlock(&ledger_link.lock);
    int before = cancel_hold();
    ledger_link.wake();
    pthread_mutex_lock(&ledger_link.lock);
    while (!need.answered)
        pthread_cond_wait(&ledger_link.answered, &ledger_link.lock);
    struct need **at = &ledger_link.needs;
    while (*at != &need)
        at = &(*at)->next;
    *at = need.next;
    pthread_mutex_unlock(&ledger_link.lock);
    cancel_allow(before);
    return need.answer;
}

void control_budget_start(void (*wake)(void))
{
    ledger_link.wake = wake;
    budget_set_policy(control_budget_ask);
}

/** Give the agent's initial grants to the virtual devices that have no limit yet. With the lock. */
static void control_budget_grant_first(void)
{
    for (uint32_t vdev = 0; ledger_link.began && vdev < ledger_link.initial_count; vdev++) {
        struct budget_use use;
        budget_read(vdev, &use);
        if (!use.limited)
            budget_grant(vdev, ledger_link.initial[vdev]);
    }
    if (ledger_link.began)
        ledger_link.initial_count = 0;
}

void control_budget_begin(void)
{
    pthread_mutex_lock(&ledger_link.lock);
    ledger_link.began = true;
    control_budget_grant_first();
    pthread_mutex_unlock(&ledger_link.lock);
}

void control_budget_connected(const struct control_welcome *welcome)
{
    pthread_mutex_lock(&ledger_link.lock);
    ledger_link.connected = true;
    ledger_link.answers = welcome->alive;
    ledger_link.unanswered = 0;
    /* The first status tells a new agent what the program has: returns to an earlier one are moot.
     */
    memset(ledger_link.returns, 0, sizeof(ledger_link.returns));
    memset(ledger_link.shrunk, 0, sizeof(ledger_link.shrunk));
    memcpy(ledger_link.initial, welcome->grants, sizeof(ledger_link.initial));
    ledger_link.initial_count = welcome->grant_count;
    control_budget_grant_first();
    pthread_mutex_unlock(&ledger_link.lock);
}

/** No agent will answer: let all waiting threads continue. With the lock. */
static void control_budget_answer_all(void)
{
    for (struct need *need = ledger_link.needs; need; need = need->next)
        need->answered = true;
    pthread_cond_broadcast(&ledger_link.answered);
}

void control_budget_alone(void)
{
    pthread_mutex_lock(&ledger_link.lock);
    if (ledger_link.connected) {
        ledger_link.until_ns = clock_now_ns() + PATIENCE_NS;
        for (struct need *need = ledger_link.needs; need; need = need->next)
            need->sent = false;
    }
    ledger_link.connected = false;
    if (clock_now_ns() >= ledger_link.until_ns)
        control_budget_answer_all();
    pthread_mutex_unlock(&ledger_link.lock);
}

void control_budget_again(void)
{
    pthread_mutex_lock(&ledger_link.lock);
    ledger_link.until_ns = clock_now_ns() + PATIENCE_NS;
    pthread_mutex_unlock(&ledger_link.lock);
}

/** The next need that was not sent; NULL also without a connection. With the lock. */
static struct need *control_budget_unsent(void)
{
    struct need *need = ledger_link.connected ? ledger_link.needs : NULL;

    while (need && (need->sent || need->answered))
        need = need->next;
    return need;
}

bool control_budget_needs(void)
{
    pthread_mutex_lock(&ledger_link.lock);
    bool needs = control_budget_unsent() != NULL;
    pthread_mutex_unlock(&ledger_link.lock);
    return needs;
}

static void control_budget_send_needs(void *data, void (*send)(void *data, struct frame *frame))
{
    for (;;) {
        struct frame frame;

        pthread_mutex_lock(&ledger_link.lock);
        struct need *need = control_budget_unsent();
        if (need) {
            need->sent = true;
            frame_init(&frame, MSG_NEED);
            frame_u64(&frame, "id", need->id);
            put_need(&frame, need->asked);
        }
        pthread_mutex_unlock(&ledger_link.lock);
        if (!need)
            return;
        send(data, &frame);
    }
}

void control_budget_heard(void)
{
    pthread_mutex_lock(&ledger_link.lock);
    ledger_link.unanswered = 0;
    pthread_mutex_unlock(&ledger_link.lock);
}

/**
 * Ask the agent whether it is there if that is due, because calls wait for its answer or the
 * program @waits as a whole. False when the agent is hung; then nobody waits for it any more.
 */
static bool control_budget_ask_whether_alive(bool waits, void *data,
                                             void (*send)(void *data, struct frame *frame))
{
    struct frame frame;

    pthread_mutex_lock(&ledger_link.lock);
    waits = waits && ledger_link.answers;
    for (struct need *need = ledger_link.needs; need; need = need->next)
        waits = waits || (ledger_link.answers && need->sent && !need->answered);
    /* Questions are counted instead of time, because a program that was stopped itself has received
     * nothing meanwhile. */
    bool due = waits && clock_now_ns() - ledger_link.alive_ns >= ALIVE_NS;
    bool hung = due && ledger_link.unanswered == UNANSWERED_MAX;
    if (!waits) {
        ledger_link.unanswered = 0;
        ledger_link.alive_ns = clock_now_ns();
    } else if (hung) {
        ledger_link.connected = false;
        ledger_link.unanswered = 0;
        ledger_link.until_ns = clock_now_ns();
        control_budget_answer_all();
    } else if (due) {
        ledger_link.unanswered++;
        ledger_link.alive_ns = clock_now_ns();
    }
    pthread_mutex_unlock(&ledger_link.lock);
    if (due && !hung) {
        frame_init(&frame, MSG_ALIVE);
        send(data, &frame);
    }
    return !hung;
}

bool control_budget_serve(bool waits, void *data, void (*send)(void *data, struct frame *frame))
{
    bool look = ++ledger_link.turns % SLACK_TURNS == 0;

    if (!control_budget_ask_whether_alive(waits, data, send))
        return false;
    control_budget_send_needs(data, send);
    for (uint32_t vdev = 0; vdev < PROTOCOL_VDEVS_MAX; vdev++) {
        struct amount given = {vdev, look ? budget_slack(vdev) : 0, true};

        pthread_mutex_lock(&ledger_link.lock);
        given.bytes += ledger_link.returns[vdev];
        bool due = given.bytes != 0 || ledger_link.shrunk[vdev];
        ledger_link.returns[vdev] = 0;
        ledger_link.shrunk[vdev] = false;
        pthread_mutex_unlock(&ledger_link.lock);
        if (!due)
            continue;
        struct frame frame;
        frame_init(&frame, MSG_RETURN);
        put_amount(&frame, &given);
        send(data, &frame);
    }
    return true;
}

static void control_budget_shrink_ended(uint32_t vdev, uint64_t gone)
{
    pthread_mutex_lock(&ledger_link.lock);
    ledger_link.returns[vdev] += gone;
    ledger_link.shrunk[vdev] = true;
    pthread_mutex_unlock(&ledger_link.lock);
    ledger_link.wake();
}

static void *control_budget_shrink_main(void *data)
{
    struct amount *most = data;

    control_budget_shrink_ended(most->vdev, budget_shrink(most->vdev, most->bytes));
    free(most);
    return NULL;
}

void control_budget_answer(const msgpack_object *map)
{
    uint64_t id = field_u64(map, "id", 0);

    pthread_mutex_lock(&ledger_link.lock);
    for (struct need *need = ledger_link.needs; need; need = need->next) {
        if (need->id != id || need->answered)
            continue;
        need->answer = field_is(map, "way", WAY_AGAIN)   ? BUDGET_AGAIN
                       : field_is(map, "way", WAY_SPILL) ? BUDGET_SPILL
                                                         : BUDGET_REFUSE;
        need->answered = true;
    }
    pthread_cond_broadcast(&ledger_link.answered);
    pthread_mutex_unlock(&ledger_link.lock);
}

/* Messages without a virtual device or a number of bytes are ignored. */

void control_budget_granted(const msgpack_object *map)
{
    struct amount more;

    take_amount(map, &more);
    if (more.vdev < PROTOCOL_VDEVS_MAX && more.said && more.bytes != UINT64_MAX)
        budget_grant(more.vdev, more.bytes);
}

/** Shrink on a thread of its own, because that waits for the device. The agent waits for the
 * answer, so it is told even if there is no memory or thread for the shrink. */
void control_budget_shrink(const msgpack_object *map)
{
    struct amount said, *most;

    take_amount(map, &said);
    if (said.vdev >= PROTOCOL_VDEVS_MAX)
        return;
    if (!said.said)
        said.bytes = UINT64_MAX;
    most = malloc(sizeof(*most));
    if (most)
        *most = said;
    if (!most || thread_start("reseat-shrink", 0, control_budget_shrink_main, most, NULL)) {
        free(most);
        control_budget_shrink_ended(said.vdev, 0);
    }
}

/* The needs are those of the parent's threads: the child forgets them. */
static void control_budget_in_child(void)
{
    ledger_link.connected = false;
    ledger_link.until_ns = 0;
    ledger_link.unanswered = 0;
    ledger_link.needs = NULL;
    ledger_link.initial_count = 0;
    memset(ledger_link.returns, 0, sizeof(ledger_link.returns));
    memset(ledger_link.shrunk, 0, sizeof(ledger_link.shrunk));
}

FORK_PART = {.rank = FORK_TABLE,
             .long_lock = &ledger_link.lock,
             .changed = {&ledger_link.answered},
             .in_child = control_budget_in_child};
