#include "remote/server/listener/turns.h"

#include <stddef.h>

static void turns_take_out(struct turn_user **list, const struct turn_user *user)
{
    for (struct turn_user **at = list; *at; at = &(*at)->next)
        if (*at == user) {
            *at = user->next;
            return;
        }
}

static void turns_put_in(struct turn_user **list, struct turn_user *user)
{
    while (*list)
        list = &(*list)->next;
    user->next = NULL;
    *list = user;
}

/* What its turn cost it. */
static void turns_pay(struct turn_user *user, uint64_t now_ns)
{
    uint64_t used = now_ns > user->since_ns ? now_ns - user->since_ns : 0;
    used = used < user->most_ns ? used : user->most_ns;
    user->end = user->start + used / user->share * TURN_SHARE_MAX;
}

/* Of those who wait, who has had least; the first to have asked where they are equal. */
static struct turn_user *turns_least(const struct turns *turns)
{
    struct turn_user *found = turns->waiting;
    for (struct turn_user *user = found; user; user = user->next)
        if (user->start < found->start)
            found = user;
    return found;
}

static void turns_begin(struct turns *turns, struct turn_user *user, uint64_t now_ns)
{
    turns_take_out(&turns->waiting, user);
    user->waits = false;
    user->since_ns = now_ns;
    user->most_ns = UINT64_MAX;
    turns->now = user->start > turns->now ? user->start : turns->now;
    turns->holder = user;
    turns->alone = turns->waiting == NULL;
    turns->until_ns = turns->alone ? UINT64_MAX : now_ns + TURN_NS + TURN_OVERTIME_NS;
    turns->tell(turns->data, user, TURN_YOURS, turns->alone ? UINT64_MAX : TURN_NS);
}

static void turns_next(struct turns *turns, uint64_t now_ns)
{
    if (!turns->holder && turns->waiting)
        turns_begin(turns, turns_least(turns), now_ns);
}

/* Who was alone pays from now on, and for what it gave until now no more than a turn costs. */
static void turns_recall(struct turns *turns, uint64_t now_ns)
{
    turns->alone = false;
    turns->holder->since_ns = now_ns;
    turns->holder->most_ns = TURN_NS + TURN_OVERTIME_NS;
    turns->holder->start = turns->holder->start > turns->now ? turns->holder->start : turns->now;
    turns->until_ns = now_ns + TURN_NS + TURN_OVERTIME_NS;
    turns->tell(turns->data, turns->holder, TURN_RECALLED, TURN_NS);
}

static void turns_wait_for_turn(struct turns *turns, struct turn_user *user)
{
    user->waits = true;
    user->start = user->end > turns->now ? user->end : turns->now;
    turns_put_in(&turns->waiting, user);
}

void turns_want(struct turns *turns, struct turn_user *user, uint64_t now_ns)
{
    if (user->waits || turns->holder == user)
        return;
    if (user->owes) {
        user->waits = true;
        user->beside_ns = now_ns + TURN_BESIDE_NS;
        return;
    }
    turns_wait_for_turn(turns, user);
    if (turns->holder && turns->alone)
        turns_recall(turns, now_ns);
    turns_next(turns, now_ns);
}

void turns_over(struct turns *turns, struct turn_user *user, bool again, uint64_t now_ns)
{
    if (turns->holder != user && !user->owes)
        return;
    turns_pay(user, now_ns);
    again |= user->waits;
    if (user->owes)
        turns_take_out(&turns->owing, user);
    else
        turns->holder = NULL;
    user->owes = user->waits = false;
    if (again && turns->holder && turns->alone)
        turns_recall(turns, now_ns);
    if (again)
        turns_wait_for_turn(turns, user);
    turns_next(turns, now_ns);
}

void turns_leave(struct turns *turns, struct turn_user *user, uint64_t now_ns)
{
    if (user->owes)
        turns_take_out(&turns->owing, user);
    else if (user->waits)
        turns_take_out(&turns->waiting, user);
    if (turns->holder == user)
        turns->holder = NULL;
    user->owes = user->waits = false;
    turns_next(turns, now_ns);
}

uint64_t turns_tick(struct turns *turns, uint64_t now_ns)
{
    struct turn_user *holder = turns->holder;
    if (holder && now_ns >= turns->until_ns) {
        holder->owes = true;
        turns_put_in(&turns->owing, holder);
        turns->holder = NULL;
        turns->tell(turns->data, holder, TURN_LOST, 0);
        turns_next(turns, now_ns);
    }
    uint64_t soonest = turns->holder ? turns->until_ns : UINT64_MAX;
    for (struct turn_user *user = turns->owing; user; user = user->next) {
        if (!user->waits)
            continue;
        if (now_ns >= user->beside_ns) {
            user->waits = false;
            turns->tell(turns->data, user, TURN_YOURS, TURN_NS);
        } else if (user->beside_ns < soonest) {
            soonest = user->beside_ns;
        }
    }
    return soonest;
}
