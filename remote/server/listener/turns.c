#include "remote/server/listener/turns.h"

#include <stddef.h>

static void take_out(struct turn_user **list, const struct turn_user *user)
{
    for (struct turn_user **at = list; *at; at = &(*at)->next)
        if (*at == user) {
            *at = user->next;
            return;
        }
}

static void put_in(struct turn_user **list, struct turn_user *user)
{
    while (*list)
        list = &(*list)->next;
    user->next = NULL;
    *list = user;
}

/* What its turn cost it. */
static void pay(struct turn_user *user, uint64_t now_ns)
{
    uint64_t used = now_ns > user->since_ns ? now_ns - user->since_ns : 0;
    used = used < user->most_ns ? used : user->most_ns;
    user->end = user->start + used / user->share * TURN_SHARE_MAX;
}

/* Of those who wait, who has had least; the first to have asked where they are equal. */
static struct turn_user *least(const struct turns *turns)
{
    struct turn_user *found = turns->waiting;
    for (struct turn_user *user = found; user; user = user->next)
        if (user->start < found->start)
            found = user;
    return found;
}

static void begin(struct turns *turns, struct turn_user *user, uint64_t now_ns)
{
    take_out(&turns->waiting, user);
    user->waits = false;
    user->since_ns = now_ns;
    user->most_ns = UINT64_MAX;
    turns->now = user->start > turns->now ? user->start : turns->now;
    turns->holder = user;
    turns->alone = turns->waiting == NULL;
    turns->until_ns = turns->alone ? UINT64_MAX : now_ns + TURN_NS + TURN_OVERTIME_NS;
    turns->tell(turns->data, user, TURN_YOURS, turns->alone ? UINT64_MAX : TURN_NS);
}

static void next(struct turns *turns, uint64_t now_ns)
{
    if (!turns->holder && turns->waiting)
        begin(turns, least(turns), now_ns);
}

/* Who was alone pays from now on, and for what it gave until now no more than a turn costs. */
static void recall(struct turns *turns, uint64_t now_ns)
{
    turns->alone = false;
    turns->holder->since_ns = now_ns;
    turns->holder->most_ns = TURN_NS + TURN_OVERTIME_NS;
    turns->holder->start = turns->holder->start > turns->now ? turns->holder->start : turns->now;
    turns->until_ns = now_ns + TURN_NS + TURN_OVERTIME_NS;
    turns->tell(turns->data, turns->holder, TURN_RECALLED, TURN_NS);
}

static void wait_for_turn(struct turns *turns, struct turn_user *user)
{
    user->waits = true;
    user->start = user->end > turns->now ? user->end : turns->now;
    put_in(&turns->waiting, user);
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
    wait_for_turn(turns, user);
    if (turns->holder && turns->alone)
        recall(turns, now_ns);
    next(turns, now_ns);
}

void turns_over(struct turns *turns, struct turn_user *user, bool again, uint64_t now_ns)
{
    if (turns->holder != user && !user->owes)
        return;
    pay(user, now_ns);
    again |= user->waits;
    if (user->owes)
        take_out(&turns->owing, user);
    else
        turns->holder = NULL;
    user->owes = user->waits = false;
    if (again && turns->holder && turns->alone)
        recall(turns, now_ns);
    if (again)
        wait_for_turn(turns, user);
    next(turns, now_ns);
}

void turns_leave(struct turns *turns, struct turn_user *user, uint64_t now_ns)
{
    if (user->owes)
        take_out(&turns->owing, user);
    else if (user->waits)
        take_out(&turns->waiting, user);
    if (turns->holder == user)
        turns->holder = NULL;
    user->owes = user->waits = false;
    next(turns, now_ns);
}

uint64_t turns_tick(struct turns *turns, uint64_t now_ns)
{
    struct turn_user *holder = turns->holder;
    if (holder && now_ns >= turns->until_ns) {
        holder->owes = true;
        put_in(&turns->owing, holder);
        turns->holder = NULL;
        turns->tell(turns->data, holder, TURN_LOST, 0);
        next(turns, now_ns);
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
